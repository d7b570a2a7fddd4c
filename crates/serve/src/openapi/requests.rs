//! What requests may say: the fields of every route that takes a body.
//!
//! The readers of requests take fields one by one; a test asks a server about every word of their source, so that what they take
//! is described here, and no more than that.

use crate::routes::Route;

/// A field of a request: its name, its schema, and a list of examples, as JSON. Objects in schemas list all that is taken,
/// or say that anything is. What is read in several ways has an example of each.
pub(super) type Field = (&'static str, &'static str, &'static str);

const TEXT: &str = r#"{"type": "string"}"#;
const TRUTH: &str = r#"{"type": "boolean"}"#;
const COUNT: &str = r#"{"type": "integer", "minimum": 0}"#;
const SOME: &str = r#"{"type": "integer", "minimum": 1}"#;
const INTEGER: &str = r#"{"type": "integer"}"#;
const UNIT: &str = r#"{"type": "number", "minimum": 0, "maximum": 1}"#;
const PENALTY: &str = r#"{"type": "number", "minimum": -2, "maximum": 2}"#;
const STOPS: &str = r#"{"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16}"#;
const ANYTHING: &str = r#"{"type": "object", "additionalProperties": true}"#;

// Taken only where they ask for what happens anyhow.
const NEVER: &str = r#"{"const": false}"#;
const NO_TEXT: &str = r#"{"const": ""}"#;
const NO_LIST: &str = r#"{"type": "array", "maxItems": 0}"#;
const NOTHING: &str = r#"{"type": "null"}"#;

const MODEL: Field = ("model", TEXT, "[]");
const FLAGS: Field = ("chat_template_kwargs", ANYTHING, r#"[{"enable_thinking": false}]"#);

/// The schema of a list of messages; what the list and each of its messages have besides.
macro_rules! messages {
    ($list:literal, $message:literal) => {
        concat!(
            r#"{"type": "array", "#,
            $list,
            r#""items": {"type": "object", "required": ["role"], "additionalProperties": false, "properties": {"#,
            $message,
            r#""role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"type": ["string", "array", "null"], "items": {
                "type": "object", "required": ["type"], "additionalProperties": true,
                "properties": {"type": {"enum": ["text", "image_url"]}, "text": {"type": "string"},
                    "image_url": {"type": ["object", "string"], "additionalProperties": true,
                        "properties": {"url": {"type": "string", "description":
                            "The data of a PNG or JPEG, as data:image/png;base64,...; nothing is fetched."}}}}}},
            "prefix": {"type": "boolean",
                "description": "In the last message, an assistant's: the answer goes on from its content."},
            "name": {"type": "string"},
            "tool_call_id": {"type": "string"},
            "tool_calls": {"type": "array", "items": {
                "type": "object", "required": ["function"], "additionalProperties": true, "properties": {
                    "function": {"type": "object", "required": ["name"], "additionalProperties": true,
                        "properties": {"name": {"type": "string"}, "arguments": {"type": ["string", "object"],
                            "additionalProperties": true}}}}}},
            "reasoning_content": {"type": "string"},
            "reasoning": {"type": "string"},
            "thinking": {"type": "string"},
            "refusal": {"type": ["array", "null"], "maxItems": 0},
            "annotations": {"type": ["array", "null"], "maxItems": 0},
            "audio": {"type": ["array", "null"], "maxItems": 0},
            "function_call": {"type": ["array", "null"], "maxItems": 0}}}}"#
        )
    };
}
const CONVERSATIONS: &str = r#"[
    [{"role": "user", "content": "hello"}],
    [{"role": "user", "content": [{"type": "text", "text": "hello"}]},
     {"role": "assistant", "content": "hel", "prefix": true}],
    [{"role": "user", "content": "hello"},
     {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "paint", "arguments": "{}"}}]},
     {"role": "tool", "tool_call_id": "1", "content": "done"}]]"#;
const MESSAGES: Field = ("messages", messages!(r#""minItems": 1, "#, ""), CONVERSATIONS);
const TOOLS: Field = (
    "tools",
    r#"{"type": "array", "maxItems": 256, "items": {
        "type": "object", "required": ["type", "function"], "additionalProperties": true, "properties": {
            "type": {"const": "function"},
            "function": {"type": "object", "required": ["name"], "additionalProperties": true, "properties": {
                "name": {"type": "string"}, "description": {"type": "string"},
                "parameters": {"type": "object", "additionalProperties": true}}}}}}"#,
    r#"[[{"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}]]"#,
);

/// How tokens are chosen, and whether they are told one by one.
const SAMPLING: [Field; 3] = [
    ("temperature", r#"{"type": "number", "minimum": 0, "maximum": 2}"#, "[0.5]"),
    ("top_p", UNIT, "[0.9]"),
    ("stream", TRUTH, "[false]"),
];

/// What chats and completions of OpenAI's have in common.
const COMMON: [Field; 17] = [
    ("top_k", COUNT, "[40]"),
    ("min_p", UNIT, "[0.1]"),
    ("repetition_penalty", r#"{"type": "number", "minimum": 0.01, "maximum": 100}"#, "[1.1]"),
    ("frequency_penalty", PENALTY, "[0.5]"),
    ("presence_penalty", PENALTY, "[0.5]"),
    ("seed", INTEGER, "[7]"),
    ("stop", STOPS, r#"[["\n\n"], "\n\n"]"#),
    (
        "logit_bias",
        r#"{"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}}"#,
        r#"[{"5": -1}]"#,
    ),
    ("n", SOME, "[2]"),
    ("max_tokens", COUNT, "[4]"),
    (
        "stream_options",
        r#"{"type": "object", "additionalProperties": false, "properties": {
            "include_usage": {"type": "boolean"}, "include_obfuscation": {"const": false}}}"#,
        r#"[{"include_usage": true}]"#,
    ),
    ("user", TEXT, r#"["me"]"#),
    ("store", TRUTH, "[false]"),
    ("metadata", ANYTHING, r#"[{"a": "b"}]"#),
    ("safety_identifier", TEXT, r#"["me"]"#),
    ("prompt_cache_key", TEXT, r#"["key"]"#),
    MODEL,
];

const CHAT: [Field; 9] = [
    MESSAGES,
    TOOLS,
    (
        "tool_choice",
        r#"{"type": ["string", "object"], "additionalProperties": true, "required": ["function"], "properties": {
            "function": {"type": "object", "required": ["name"], "additionalProperties": true, "properties": {
                "name": {"type": "string"}}}}}"#,
        r#"["none", {"type": "function", "function": {"name": "paint"}}]"#,
    ),
    ("parallel_tool_calls", TRUTH, "[false]"),
    (
        "response_format",
        r#"{"type": "object", "required": ["type"], "additionalProperties": false, "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {"type": "object", "required": ["schema"], "additionalProperties": false, "properties": {
                "name": {"type": "string"}, "description": {"type": "string"}, "strict": {"type": "boolean"},
                "schema": {"type": "object", "additionalProperties": true}}}}}"#,
        r#"[{"type": "text"}, {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a"]}}}]"#,
    ),
    ("logprobs", TRUTH, "[true]"),
    ("top_logprobs", r#"{"type": "integer", "minimum": 0, "maximum": 20}"#, "[0]"),
    ("max_completion_tokens", SOME, "[4]"),
    FLAGS,
];
const COMPLETION: [Field; 5] = [
    (
        "prompt",
        r#"{"type": ["string", "array"], "items": {"type": ["string", "integer"]}}"#,
        r#"["hello", ["hello"], [5, 6]]"#,
    ),
    ("logprobs", r#"{"type": "integer", "minimum": 0, "maximum": 20}"#, "[2]"),
    ("echo", NEVER, "[false]"),
    ("best_of", r#"{"const": 1}"#, "[1]"),
    ("suffix", NO_TEXT, r#"[""]"#),
];
const RESPONSES: [Field; 23] = [
    MODEL,
    (
        "input",
        r#"{"type": ["string", "array"], "items": {"type": "object", "additionalProperties": false, "properties": {
            "type": {"enum": ["message", "reasoning", "function_call", "function_call_output"]},
            "id": {"type": ["string", "null"]}, "status": {"type": ["string", "null"]},
            "role": {"enum": ["system", "developer", "user", "assistant"]},
            "content": {"type": ["string", "array", "null"], "items": {
                "type": "object", "additionalProperties": true, "properties": {
                    "type": {"enum":
                        ["input_text", "output_text", "text", "refusal", "reasoning_text", "input_image"]},
                    "text": {"type": "string"}, "refusal": {"type": "string"},
                    "image_url": {"type": "string", "description":
                        "The data of a PNG or JPEG, as data:image/png;base64,...; nothing is fetched."}}}},
            "phase": {"type": ["string", "null"]},
            "summary": {"type": "array"}, "encrypted_content": {"type": ["string", "null"]},
            "call_id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"type": "string"},
            "output": {"type": ["string", "array"]}}}}"#,
        r#"["hello",
            [{"role": "user", "content": "hello"}],
            [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "well"}]},
             {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
            [{"type": "function_call", "call_id": "1", "name": "paint", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "1", "output": "done"}],
            [{"type": "function_call_output", "call_id": "1", "output": "done"}]]"#,
    ),
    ("instructions", TEXT, r#"["Be brief."]"#),
    ("max_output_tokens", SOME, "[4]"),
    (
        "text",
        r#"{"type": "object", "additionalProperties": false, "properties": {
            "verbosity": {"const": "medium"},
            "format": {"type": "object", "required": ["type"], "additionalProperties": false, "properties": {
                "type": {"enum": ["text", "json_object", "json_schema"]},
                "name": {"type": "string"}, "description": {"type": "string"}, "strict": {"type": "boolean"},
                "schema": {"type": "object", "additionalProperties": true}}}}}"#,
        r#"[{"format": {"type": "json_object"}},
            {"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["a"]}}}]"#,
    ),
    (
        "tools",
        r#"{"type": "array", "maxItems": 256, "items": {
            "type": "object", "required": ["type", "name"], "additionalProperties": true, "properties": {
                "type": {"const": "function"}, "name": {"type": "string"}, "description": {"type": "string"},
                "parameters": {"type": "object", "additionalProperties": true}}}}"#,
        r#"[[{"type": "function", "name": "paint"}]]"#,
    ),
    (
        "tool_choice",
        r#"{"type": ["string", "object"], "required": ["name"], "additionalProperties": true, "properties": {
            "name": {"type": "string"}}}"#,
        r#"["none", {"type": "function", "name": "paint"}]"#,
    ),
    ("parallel_tool_calls", TRUTH, "[false]"),
    (
        "reasoning",
        r#"{"type": "object", "additionalProperties": false, "properties": {
            "effort": {"enum": ["none", "minimal", "low", "medium", "high", null]}, "summary": {"const": "auto"}}}"#,
        r#"[{"effort": "none"}]"#,
    ),
    ("store", NEVER, "[false]"),
    ("truncation", r#"{"const": "disabled"}"#, r#"["disabled"]"#),
    ("background", NEVER, "[false]"),
    ("include", NO_LIST, "[[]]"),
    ("service_tier", r#"{"const": "auto"}"#, r#"["auto"]"#),
    ("top_logprobs", r#"{"const": 0}"#, "[0]"),
    (
        "stream_options",
        r#"{"type": "object", "additionalProperties": false, "properties": {"include_obfuscation": {"const": false}}}"#,
        "[{}]",
    ),
    ("max_tool_calls", NOTHING, "[null]"),
    ("previous_response_id", NOTHING, "[null]"),
    ("conversation", NOTHING, "[null]"),
    ("metadata", ANYTHING, r#"[{"a": "b"}]"#),
    ("user", TEXT, r#"["me"]"#),
    ("safety_identifier", TEXT, r#"["me"]"#),
    ("prompt_cache_key", TEXT, r#"["key"]"#),
];
const CONVERSATION: [Field; 6] = [
    MODEL,
    (
        "messages",
        r#"{"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["role", "content"], "additionalProperties": true, "properties": {
                "role": {"enum": ["user", "assistant"]},
                "content": {"type": ["string", "array"], "items": {
                    "type": "object", "required": ["type"], "additionalProperties": true, "properties": {
                        "type": {"enum": ["text", "image", "thinking", "tool_use", "tool_result"]},
                        "source": {"type": "object", "additionalProperties": true, "properties": {
                            "type": {"const": "base64"}, "media_type": {"type": "string"},
                            "data": {"type": "string"}}},
                        "text": {"type": "string"}, "thinking": {"type": "string"}, "id": {"type": "string"},
                        "name": {"type": "string"}, "input": {"type": "object", "additionalProperties": true},
                        "tool_use_id": {"type": "string"}, "content": {"type": ["string", "array"]}}}}}}}"#,
        r#"[[{"role": "user", "content": "hello"}],
            [{"role": "user", "content": [{"type": "text", "text": "hello"}]},
             {"role": "assistant", "content": [{"type": "text", "text": "hel"}]}]]"#,
    ),
    (
        "system",
        r#"{"type": ["string", "array"]}"#,
        r#"["Be brief.", [{"type": "text", "text": "Be brief."}]]"#,
    ),
    (
        "tools",
        r#"{"type": "array", "maxItems": 256, "items": {
            "type": "object", "required": ["name"], "additionalProperties": true, "properties": {
                "name": {"type": "string"}, "description": {"type": "string"},
                "input_schema": {"type": "object", "additionalProperties": true}}}}"#,
        r#"[[{"name": "paint", "input_schema": {}}]]"#,
    ),
    (
        "tool_choice",
        r#"{"type": "object", "required": ["type"], "additionalProperties": false, "properties": {
            "type": {"enum": ["auto", "any", "none", "tool"]}, "name": {"type": "string"},
            "disable_parallel_tool_use": {"type": "boolean"}}}"#,
        r#"[{"type": "none"}, {"type": "tool", "name": "paint"}]"#,
    ),
    (
        "thinking",
        r#"{"type": "object", "additionalProperties": true, "properties": {"type": {"const": "disabled"}}}"#,
        r#"[{"type": "disabled"}]"#,
    ),
];
const ANTHROPIC: [Field; 5] = [
    ("max_tokens", SOME, "[4]"),
    ("top_k", COUNT, "[40]"),
    ("stop_sequences", STOPS, r#"[["\n\n"]]"#),
    ("metadata", ANYTHING, "[{}]"),
    ("service_tier", TEXT, r#"["auto"]"#),
];
const OLLAMA: [Field; 9] = [
    MODEL,
    ("stream", TRUTH, "[false]"),
    (
        "options",
        r#"{"type": "object", "additionalProperties": false, "properties": {
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "top_k": {"type": "integer", "minimum": 0},
            "top_p": {"type": "number", "minimum": 0, "maximum": 1},
            "min_p": {"type": "number", "minimum": 0, "maximum": 1},
            "seed": {"type": "integer"},
            "stop": {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16},
            "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
            "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
            "repeat_penalty": {"type": "number", "minimum": 0.01, "maximum": 100},
            "num_predict": {"type": "integer"},
            "num_ctx": {"type": "integer", "minimum": 0},
            "repeat_last_n": {"const": -1}, "typical_p": {"const": 1.0}, "mirostat": {"const": 0},
            "num_batch": {}, "num_gpu": {}, "main_gpu": {}, "num_thread": {}, "use_mmap": {}, "use_mlock": {},
            "numa": {}, "num_keep": {}}}"#,
        r#"[{"num_predict": 4, "temperature": 0.5, "num_ctx": 512}]"#,
    ),
    (
        "format",
        r#"{"type": ["string", "object"], "additionalProperties": true}"#,
        r#"["json", {"type": "object"}]"#,
    ),
    ("think", TRUTH, "[false]"),
    ("keep_alive", r#"{"type": ["string", "number"]}"#, r#"["5m", -1]"#),
    ("logprobs", NEVER, "[false]"),
    ("truncate", NEVER, "[false]"),
    ("shift", NEVER, "[false]"),
];
const OLLAMA_CHAT: [Field; 2] = [
    (
        "messages",
        messages!(
            "",
            r#""images": {"type": ["array", "null"], "items": {"type": "string"}}, "tool_name": {"type": "string"}, "#
        ),
        CONVERSATIONS,
    ),
    TOOLS,
];
const OLLAMA_PROMPT: [Field; 7] = [
    ("prompt", TEXT, r#"["hello"]"#),
    ("system", TEXT, r#"["Be brief."]"#),
    ("raw", TRUTH, "[true, false]"),
    ("suffix", NO_TEXT, r#"[""]"#),
    ("template", NO_TEXT, r#"[""]"#),
    ("images", r#"{"type": ["array", "null"], "items": {"type": "string"}}"#, "[[]]"),
    ("context", NO_LIST, "[[]]"),
];
const TOKENIZE: [Field; 7] = [
    MODEL,
    ("content", TEXT, r#"["hello"]"#),
    ("prompt", TEXT, r#"["hello"]"#),
    ("add_special", TRUTH, "[true]"),
    ("parse_special", TRUTH, "[false]"),
    MESSAGES,
    FLAGS,
];
const TEMPLATE: [Field; 4] = [MODEL, MESSAGES, TOOLS, FLAGS];
const SHOW: [Field; 3] = [MODEL, ("name", TEXT, "[]"), ("verbose", TRUTH, "[false]")];
const EMBEDDINGS: [Field; 4] = [
    MODEL,
    (
        "input",
        r#"{"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1, "maxItems": 2048}"#,
        r#"["hello", ["hello", "you"]]"#,
    ),
    ("encoding_format", r#"{"enum": ["float", "base64"]}"#, r#"["float"]"#),
    ("dimensions", SOME, "[1]"),
];
const OPENAI_EMBEDDINGS: [Field; 1] = [("user", TEXT, r#"["me"]"#)];
const OLLAMA_EMBEDDINGS: [Field; 3] = [
    ("truncate", r#"{"const": true}"#, "[true]"),
    ("options", ANYTHING, "[{}]"),
    ("keep_alive", r#"{"type": ["string", "number"]}"#, r#"["5m"]"#),
];
const SOUND: [Field; 5] = [
    ("file", r#"{"type": "string", "format": "binary"}"#, "[]"),
    MODEL,
    ("prompt", TEXT, r#"["names"]"#),
    ("response_format", r#"{"enum": ["json", "verbose_json", "text", "srt", "vtt"]}"#, r#"["json"]"#),
    ("temperature", UNIT, "[0]"),
];
const TRANSCRIPTIONS: [Field; 4] = [
    ("stream", TRUTH, "[false]"),
    ("language", TEXT, r#"["en"]"#),
    ("timestamp_granularities[]", r#"{"enum": ["segment", "word"]}"#, r#"["segment"]"#),
    ("timestamp_granularities", r#"{"enum": ["segment", "word"]}"#, r#"["segment"]"#),
];
const TRANSLATIONS: [Field; 1] = [("stream", NEVER, "[false]")];

/// What is said of a route: in words, its fields, and those that it needs.
pub(super) struct About {
    pub(super) says: &'static str,
    pub(super) fields: &'static [&'static [Field]],
    pub(super) needs: &'static [&'static str],
}

const fn about(
    says: &'static str,
    fields: &'static [&'static [Field]],
    needs: &'static [&'static str],
) -> About {
    About { says, fields, needs }
}

pub(super) fn about_route(route: &Route) -> About {
    match route.path {
        "/" => about("A page to chat with.", &[], &[]),
        "/health" => about("Whether the server takes requests.", &[], &[]),
        "/metrics" => about("Figures, as Prometheus reads them.", &[], &[]),
        "/openapi.json" => about("This description.", &[], &[]),
        "/v1/models" => about("All models, and whether they are loaded.", &[], &[]),
        "/v1/models/{model}" => about("One model.", &[], &[]),
        "/v1/chat/completions" => {
            about("Answers a conversation.", &[&CHAT, &SAMPLING, &COMMON], &["messages"])
        }
        "/v1/completions" => about("Goes on from a text.", &[&COMPLETION, &SAMPLING, &COMMON], &["prompt"]),
        "/v1/responses" => about("Answers items; nothing is kept.", &[&RESPONSES, &SAMPLING], &["input"]),
        "/v1/messages" => about(
            "Answers a conversation, for clients of Anthropic's interface.",
            &[&CONVERSATION, &SAMPLING, &ANTHROPIC],
            &["messages", "max_tokens"],
        ),
        "/v1/messages/count_tokens" => {
            about("Counts the tokens of a conversation.", &[&CONVERSATION], &["messages"])
        }
        "/v1/embeddings" => about(
            "The vectors of texts, of a model that `--embed` names.",
            &[&EMBEDDINGS, &OPENAI_EMBEDDINGS],
            &["input"],
        ),
        "/api/embed" => about(
            "The vectors of texts, for clients of Ollama.",
            &[&EMBEDDINGS, &OLLAMA_EMBEDDINGS],
            &["input"],
        ),
        "/v1/audio/transcriptions" => {
            about("Writes down what is said.", &[&SOUND, &TRANSCRIPTIONS], &["file"])
        }
        "/v1/audio/translations" => {
            about("Writes down in English what is said.", &[&SOUND, &TRANSLATIONS], &["file"])
        }
        "/tokenize" => about("The tokens of a text.", &[&TOKENIZE], &[]),
        "/apply-template" => about("The text that a conversation becomes.", &[&TEMPLATE], &["messages"]),
        "/api/chat" => about("Answers a conversation, for clients of Ollama.", &[&OLLAMA, &OLLAMA_CHAT], &[]),
        "/api/generate" => about("Answers a prompt, for clients of Ollama.", &[&OLLAMA, &OLLAMA_PROMPT], &[]),
        "/api/show" => about("What is known of a model.", &[&SHOW], &[]),
        "/api/tags" => about("All models, for clients of Ollama.", &[], &[]),
        "/api/ps" => about("Models that are loaded.", &[], &[]),
        "/api/version" => about("The version of this server.", &[], &[]),
        _ => about("", &[], &[]),
    }
}
