//! The description of this server for programs (OpenAPI 3.1): made of the table of routes and of the fields that each of
//! them takes. Every field has an example, which is taken where the field is.

use crate::routes::{Endpoint, ROUTES, Route};
use serde_json::{Map, Value, json};

/// A field of a request: its name, its schema, and an example, both as JSON.
type Field = (&'static str, &'static str, &'static str);

const TEXT: &str = r#"{"type": "string"}"#;
const TRUTH: &str = r#"{"type": "boolean"}"#;
const COUNT: &str = r#"{"type": "integer", "minimum": 0}"#;
const INTEGER: &str = r#"{"type": "integer"}"#;
const OBJECT: &str = r#"{"type": "object"}"#;
const UNIT: &str = r#"{"type": "number", "minimum": 0, "maximum": 1}"#;
const PENALTY: &str = r#"{"type": "number", "minimum": -2, "maximum": 2}"#;
const MESSAGES: Field = (
    "messages",
    r#"{"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role"], "properties":
        {"role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
         "content": {"type": ["string", "array", "null"]}, "name": {"type": "string"},
         "tool_calls": {"type": "array"}, "tool_call_id": {"type": "string"}}}}"#,
    r#"[{"role": "user", "content": "hello"}]"#,
);
const MODEL: Field = ("model", TEXT, "");

/// How tokens are chosen.
const SAMPLING: [Field; 3] = [
    ("temperature", r#"{"type": "number", "minimum": 0, "maximum": 2}"#, "0.5"),
    ("top_p", UNIT, "0.9"),
    ("stream", TRUTH, "false"),
];

/// What chats and completions of OpenAI's have in common.
const COMMON: [Field; 17] = [
    ("top_k", COUNT, "40"),
    ("min_p", UNIT, "0.1"),
    ("repetition_penalty", r#"{"type": "number", "minimum": 0.01, "maximum": 100}"#, "1.1"),
    ("frequency_penalty", PENALTY, "0.5"),
    ("presence_penalty", PENALTY, "0.5"),
    ("seed", INTEGER, "7"),
    ("stop", r#"{"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16}"#, r#"["\n\n"]"#),
    (
        "logit_bias",
        r#"{"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}}"#,
        r#"{"5": -1}"#,
    ),
    ("n", r#"{"type": "integer", "minimum": 1}"#, "2"),
    ("max_tokens", COUNT, "4"),
    (
        "stream_options",
        r#"{"type": "object", "properties": {"include_usage": {"type": "boolean"}}}"#,
        r#"{"include_usage": true}"#,
    ),
    ("user", TEXT, r#""me""#),
    ("store", TRUTH, "false"),
    ("metadata", OBJECT, r#"{"a": "b"}"#),
    ("safety_identifier", TEXT, r#""me""#),
    ("prompt_cache_key", TEXT, r#""key""#),
    MODEL,
];

const TOOLS: Field = (
    "tools",
    r#"{"type": "array", "items": {"type": "object", "required": ["type", "function"]}}"#,
    r#"[{"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}]"#,
);
const CHAT: [Field; 9] = [
    MESSAGES,
    TOOLS,
    ("tool_choice", r#"{"type": ["string", "object"]}"#, r#""none""#),
    ("parallel_tool_calls", TRUTH, "false"),
    ("response_format", OBJECT, r#"{"type": "json_object"}"#),
    ("logprobs", TRUTH, "true"),
    ("top_logprobs", r#"{"type": "integer", "minimum": 0, "maximum": 20}"#, "0"),
    ("max_completion_tokens", r#"{"type": "integer", "minimum": 1}"#, "4"),
    ("chat_template_kwargs", OBJECT, r#"{"enable_thinking": false}"#),
];
const COMPLETION: [Field; 4] = [
    ("prompt", r#"{"type": ["string", "array"]}"#, r#""hello""#),
    ("logprobs", r#"{"type": "integer", "minimum": 0, "maximum": 20}"#, "2"),
    ("echo", r#"{"const": false}"#, "false"),
    ("best_of", r#"{"const": 1}"#, "1"),
];
const RESPONSES: [Field; 14] = [
    MODEL,
    ("input", r#"{"type": ["string", "array"]}"#, r#""hello""#),
    ("instructions", TEXT, r#""Be brief.""#),
    ("max_output_tokens", r#"{"type": "integer", "minimum": 1}"#, "4"),
    ("text", OBJECT, r#"{"format": {"type": "json_object"}}"#),
    (
        "tools",
        r#"{"type": "array", "items": {"type": "object"}}"#,
        r#"[{"type": "function", "name": "paint"}]"#,
    ),
    ("tool_choice", r#"{"type": ["string", "object"]}"#, r#""none""#),
    ("parallel_tool_calls", TRUTH, "false"),
    ("reasoning", OBJECT, r#"{"effort": "none"}"#),
    ("store", r#"{"const": false}"#, "false"),
    ("truncation", r#"{"const": "disabled"}"#, r#""disabled""#),
    ("metadata", OBJECT, r#"{"a": "b"}"#),
    ("user", TEXT, r#""me""#),
    ("prompt_cache_key", TEXT, r#""key""#),
];
const CONVERSATION: [Field; 5] = [
    MODEL,
    ("messages", MESSAGES.1, MESSAGES.2),
    ("system", r#"{"type": ["string", "array"]}"#, r#""Be brief.""#),
    (
        "tools",
        r#"{"type": "array", "items": {"type": "object"}}"#,
        r#"[{"name": "paint", "input_schema": {}}]"#,
    ),
    ("tool_choice", OBJECT, r#"{"type": "none"}"#),
];
const ANTHROPIC: [Field; 6] = [
    ("max_tokens", r#"{"type": "integer", "minimum": 1}"#, "4"),
    ("top_k", COUNT, "40"),
    ("stop_sequences", r#"{"type": "array", "items": {"type": "string"}, "maxItems": 16}"#, r#"["\n\n"]"#),
    ("metadata", OBJECT, "{}"),
    ("service_tier", TEXT, r#""auto""#),
    ("thinking", OBJECT, r#"{"type": "disabled"}"#),
];
const OLLAMA: [Field; 6] = [
    MODEL,
    ("stream", TRUTH, "false"),
    ("options", OBJECT, r#"{"num_predict": 4, "temperature": 0.5, "num_ctx": 512}"#),
    ("format", r#"{"type": ["string", "object"]}"#, r#""json""#),
    ("think", TRUTH, "false"),
    ("keep_alive", r#"{"type": ["string", "number"]}"#, r#""5m""#),
];
const OLLAMA_CHAT: [Field; 1] = [MESSAGES];
const OLLAMA_PROMPT: [Field; 3] =
    [("prompt", TEXT, r#""hello""#), ("system", TEXT, r#""Be brief.""#), ("raw", TRUTH, "true")];
const TOKENIZE: [Field; 4] = [
    MODEL,
    ("content", TEXT, r#""hello""#),
    ("add_special", TRUTH, "true"),
    ("parse_special", TRUTH, "false"),
];
const TEMPLATE: [Field; 4] = [MODEL, MESSAGES, TOOLS, ("chat_template_kwargs", OBJECT, "{}")];
const SHOW: [Field; 2] = [MODEL, ("verbose", TRUTH, "false")];
const EMBEDDINGS: [Field; 4] = [
    MODEL,
    ("input", r#"{"type": ["string", "array"]}"#, r#""hello""#),
    ("encoding_format", r#"{"enum": ["float", "base64"]}"#, r#""float""#),
    ("dimensions", r#"{"type": "integer", "minimum": 1}"#, "16"),
];
const SOUND: [Field; 5] = [
    ("file", r#"{"type": "string", "format": "binary"}"#, ""),
    MODEL,
    ("prompt", TEXT, r#""names""#),
    ("response_format", r#"{"enum": ["json", "verbose_json", "text", "srt", "vtt"]}"#, r#""json""#),
    ("temperature", UNIT, "0"),
];
const SPOKEN: [Field; 3] = [
    ("stream", TRUTH, "false"),
    ("language", TEXT, r#""en""#),
    ("timestamp_granularities[]", r#"{"enum": ["segment", "word"]}"#, r#""segment""#),
];

/// What is said of a route: in words, its fields, and those that it needs.
struct About {
    says: &'static str,
    fields: &'static [&'static [Field]],
    needs: &'static [&'static str],
}

const fn about(
    says: &'static str,
    fields: &'static [&'static [Field]],
    needs: &'static [&'static str],
) -> About {
    About { says, fields, needs }
}

fn about_route(route: &Route) -> About {
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
        "/v1/embeddings" | "/api/embed" => {
            about("The vectors of texts, of a model that `--embed` names.", &[&EMBEDDINGS], &["input"])
        }
        "/v1/audio/transcriptions" => about("Writes down what is said.", &[&SOUND, &SPOKEN], &["file"]),
        "/v1/audio/translations" => about("Writes down in English what is said.", &[&SOUND], &["file"]),
        "/tokenize" => about("The tokens of a text.", &[&TOKENIZE], &[]),
        "/apply-template" => about("The text that a conversation becomes.", &[&TEMPLATE], &["messages"]),
        "/api/chat" => {
            about("Answers a conversation, for clients of Ollama.", &[&OLLAMA, &OLLAMA_CHAT, &[TOOLS]], &[])
        }
        "/api/generate" => about("Answers a prompt, for clients of Ollama.", &[&OLLAMA, &OLLAMA_PROMPT], &[]),
        "/api/show" => about("What is known of a model.", &[&SHOW], &[]),
        "/api/tags" => about("All models, for clients of Ollama.", &[], &[]),
        "/api/ps" => about("Models that are loaded.", &[], &[]),
        "/api/version" => about("The version of this server.", &[], &[]),
        _ => about("", &[], &[]),
    }
}

/// The whole description.
pub(crate) fn description() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    let bearer = json!({"type": "http", "scheme": "bearer"});
    let key = json!({"type": "apiKey", "in": "header", "name": "x-api-key"});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "pteron serve", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": bearer, "key": key}},
    })
}

fn operation(route: &Route) -> Value {
    let About { says, fields, needs } = about_route(route);
    let text = |kind: &str| {
        let mut content = Map::new();
        content.insert(kind.to_owned(), json!({}));
        Value::Object(content)
    };
    let good = match route.endpoint {
        Endpoint::Page => text("text/html"),
        Endpoint::Metrics => text("text/plain"),
        Endpoint::Speak(_) => json!({"application/json": {}, "text/event-stream": {}}),
        Endpoint::OllamaSpeak(_) => json!({"application/json": {}, "application/x-ndjson": {}}),
        Endpoint::Transcribe(_) => json!({
            "application/json": {}, "text/plain": {}, "text/vtt": {}, "application/x-subrip": {},
        }),
        _ => text("application/json"),
    };
    let wrong = json!({"description": "What is wrong.", "content": text("application/json")});
    let mut operation = json!({
        "operationId": format!("{}{}", route.method.as_str().to_ascii_lowercase(), route.path.replace(['/', '{', '}'], "_")),
        "summary": says,
        "responses": {"200": {"description": "What was asked for.", "content": good}, "default": wrong},
    });
    if route.path.contains('{') {
        operation["parameters"] =
            json!([{"name": "model", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    if !fields.is_empty() {
        let kind = match route.endpoint {
            Endpoint::Transcribe(_) => "multipart/form-data",
            _ => "application/json",
        };
        let properties: Map<String, Value> = fields.iter().copied().flatten().map(property).collect();
        let schema = json!({
            "type": "object", "properties": properties, "required": needs, "additionalProperties": false,
        });
        let mut content = Map::new();
        content.insert(kind.to_owned(), json!({"schema": schema}));
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn property(&(name, schema, example): &Field) -> (String, Value) {
    // Held to by a test over all of them.
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    let mut schema = read(schema).unwrap_or_default();
    if let (Some(example), Some(schema)) = (read(example), schema.as_object_mut()) {
        schema.insert("examples".to_owned(), json!([example]));
    }
    (name.to_owned(), schema)
}
