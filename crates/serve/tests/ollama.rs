//! Ollama's interface over the same request: chats and prompts line by line, options, tools, thinking, lists of models.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use support::{TEMPLATE, chat, get, plain, post, question, serve_models, tiny_model};

fn ask(more: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "hello"}],
        "options": {"temperature": 0, "num_predict": 12},
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body
}

fn lines(body: &str) -> Vec<Value> {
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_chat_says_line_by_line_what_the_other_interface_says() {
    let server = plain();
    let said = chat(server.address, &question("hello", json!({"logit_bias": null}))).json();
    let said = said["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let whole = post(server.address, "/api/chat", &ask(json!({"stream": false}))).json();
    assert_eq!(whole["message"], json!({"role": "assistant", "content": said}), "{whole}");
    // Streams are the default here.
    let reply = post(server.address, "/api/chat", &ask(json!({})));
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "application/x-ndjson"));
    let lines = lines(&reply.body);
    let (last, pieces) = lines.split_last().unwrap();
    assert!(pieces.iter().all(|piece| piece["done"] == false && piece["message"]["role"] == "assistant"));
    let text: String = pieces.iter().map(|piece| piece["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, said);
    for end in [last, &whole] {
        assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &whole["done_reason"]), "{end}");
        assert_eq!(end["eval_count"], whole["eval_count"]);
        let duration = |name: &str| end[name].as_u64().unwrap_or_else(|| panic!("{name} of {end}"));
        let parts = ["prompt_eval_duration", "eval_duration"].map(duration);
        assert!(duration("total_duration") >= parts[1] && parts[1] > 0 && parts[0] > 0, "{end}");
        assert!(duration("prompt_eval_count") > 5 && end["created_at"].as_str().unwrap().ends_with('Z'));
    }
}

#[test]
fn prompts_are_answered_in_the_template_or_as_they_are() {
    let server = plain();
    let generate = |more: Value| {
        let mut body = json!({"model": "tiny", "prompt": "hello", "stream": false,
            "options": {"temperature": 0, "num_predict": 12, "stop": ["zz"], "num_gpu": 0, "num_ctx": 2048}});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        post(server.address, "/api/generate", &body)
    };
    let talked = post(server.address, "/api/chat", &ask(json!({"stream": false}))).json();
    assert_eq!(generate(json!({})).json()["response"], talked["message"]["content"]);
    let raw = generate(json!({"raw": true})).json();
    let body = json!({"prompt": "hello", "temperature": 0, "max_tokens": 12});
    let completed = post(server.address, "/v1/completions", &body).json();
    assert_eq!(raw["response"], completed["choices"][0]["text"]);
    assert_eq!(raw["prompt_eval_count"], 5);
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}},
                        "required": ["mood"], "additionalProperties": false});
    for more in [json!({"format": schema}), json!({"format": schema, "raw": true})] {
        let mut more = more;
        more["options"] = json!({"num_predict": 100});
        let reply = generate(more).json();
        let answer: Value = serde_json::from_str(reply["response"].as_str().unwrap()).unwrap();
        assert!(["good", "bad"].contains(&answer["mood"].as_str().unwrap()), "{reply}");
        assert_eq!(reply["done_reason"], "stop");
    }
    let (_, streamed) = {
        let reply = generate(json!({"stream": true}));
        let lines = lines(&reply.body);
        (
            reply.status,
            lines.iter().map(|line| line["response"].as_str().unwrap().to_owned()).collect::<String>(),
        )
    };
    assert_eq!(talked["message"]["content"], streamed.as_str());
    // What shall fit a few positions ends there.
    let short = generate(json!({"options": {"num_ctx": 40, "temperature": 0}})).json();
    let count = |name: &str| short[name].as_u64().unwrap();
    assert!(count("prompt_eval_count") + count("eval_count") <= 40, "{short}");
}

#[test]
fn what_is_not_honoured_is_an_error_in_its_own_words() {
    let server = plain();
    let cases = [
        (ask(json!({"model": "other"})), 404, "other"),
        (ask(json!({"options": {"mirostat": 1}})), 400, "mirostat"),
        (ask(json!({"options": {"repeat_last_n": 64}})), 400, "repeat_last_n"),
        (ask(json!({"options": {"num_ctx": 1_000_000}})), 400, "num_ctx"),
        (ask(json!({"options": {"num_ctx": 3}})), 400, "no room"),
        (ask(json!({"options": {"temperature": "hot"}})), 400, "temperature"),
        (ask(json!({"think": true})), 400, "thinking"),
        (ask(json!({"think": "high"})), 400, "think"),
        (ask(json!({"format": "xml"})), 400, "format"),
        (ask(json!({"keep_alive": "soon"})), 400, "keep_alive"),
        (ask(json!({"logprobs": true})), 400, "logprobs"),
        (
            ask(json!({"messages": [{"role": "user", "content": "a", "images": ["AAAA"]}]})),
            400,
            "does not see images",
        ),
        (ask(json!({"unheard": 1})), 400, "unheard"),
    ];
    for (body, status, word) in cases {
        let reply = post(server.address, "/api/chat", &body);
        let error = reply.json();
        assert_eq!((reply.status, error.as_object().unwrap().len()), (status, 1), "{body}: {error}");
        assert!(error["error"].as_str().unwrap().contains(word), "{body}: {error}");
    }
    for (name, value) in [("suffix", json!("x")), ("template", json!("{{ x }}")), ("context", json!([1]))] {
        let mut body = json!({"prompt": "a"});
        body[name] = value;
        assert_eq!(post(server.address, "/api/generate", &body).status, 400, "{name}");
    }
}

#[test]
fn tools_are_called_with_objects() {
    let server = plain();
    let parameters = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    let tools = json!([{"type": "function", "function": {"name": "paint", "parameters": parameters}}]);
    // What the model writes is nonsense; that it may call is enough here.
    let reply = post(server.address, "/api/chat", &ask(json!({"tools": tools, "stream": false})));
    assert_eq!(reply.status, 200, "{reply:?}");
    let call = json!({"function": {"name": "paint", "arguments": {"colour": "red"}}});
    let messages = json!([
        {"role": "user", "content": "paint"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "paint", "content": "done"},
    ]);
    let reply = post(server.address, "/api/chat", &ask(json!({"messages": messages, "stream": false})));
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn thinking_is_turned_on_and_off_where_the_template_knows_of_it() {
    struct Thinker;
    impl pteron_serve::Models for Thinker {
        fn list(&self) -> Vec<pteron_serve::Served> {
            vec![pteron_serve::Served::new("thinker", 1)]
        }

        fn load(&self, name: &str) -> Result<pteron_serve::Loaded, pteron_serve::OpenError> {
            let template = format!("{TEMPLATE}{{% if enable_thinking %}}<think>{{% endif %}}");
            Ok(pteron_serve::Loaded::Talks(tiny_model(name, &template, |_| ())))
        }
    }
    let server = serve_models(std::sync::Arc::new(Thinker), |_| ());
    let said = |think: bool| {
        let more = json!({"model": "thinker", "think": think, "stream": false});
        post(server.address, "/api/chat", &ask(more)).json()["message"].clone()
    };
    let (thought, spoken) = (said(true), said(false));
    assert!(!thought["thinking"].as_str().unwrap().is_empty(), "{thought}");
    assert_eq!(thought["content"], "", "nothing ends the thought");
    assert!(spoken.get("thinking").is_none() && spoken["content"] != "", "{spoken}");
    let shown = post(server.address, "/api/show", &json!({"model": "thinker"})).json();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("thinking")), "{shown}");
    // The same by the name that the other interface has for it.
    let respond = |effort: &str| {
        let body = json!({"model": "thinker", "input": "hello", "max_output_tokens": 8,
                          "reasoning": {"effort": effort}, "temperature": 0});
        post(server.address, "/v1/responses", &body).json()
    };
    let (high, none) = (respond("high"), respond("none"));
    assert_eq!(high["output"][0]["type"], "reasoning", "{high}");
    assert!(high["output"][0]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()));
    assert!(high["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0, "{high}");
    assert_eq!(none["output"][0]["type"], "message", "{none}");
}

#[test]
fn models_are_listed_shown_and_told_to_stay_or_go() {
    let server = plain();
    assert!(get(server.address, "/api/version").json()["version"].is_string());
    let tags = get(server.address, "/api/tags").json();
    assert_eq!(
        (&tags["models"][0]["name"], &tags["models"][0]["details"]["format"]),
        (&json!("tiny"), &json!("pte"))
    );
    let running = || get(server.address, "/api/ps").json()["models"].clone();
    assert_eq!(running(), json!([]));
    let shown = post(server.address, "/api/show", &json!({"model": "tiny"})).json();
    assert_eq!(shown["capabilities"], json!(["completion"]));
    assert_eq!(running(), json!([]), "it is not loaded to be shown");
    // Without a prompt a model is loaded, and stays for as long as is said.
    let loaded = post(server.address, "/api/generate", &json!({"model": "tiny:latest", "keep_alive": "1h"}));
    assert_eq!((loaded.status, &loaded.json()["done_reason"]), (200, &json!("load")));
    let here = running();
    assert_eq!((&here[0]["name"], &here[0]["context_length"]), (&json!("tiny"), &json!(support::CONTEXT)));
    let expires = here[0]["expires_at"].as_str().unwrap();
    assert!(expires < "2900" && expires > loaded.json()["created_at"].as_str().unwrap(), "{here}");
    let shown = post(server.address, "/api/show", &json!({"model": "tiny"})).json();
    assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
    assert_eq!(shown["model_info"]["pteron.context_length"], support::CONTEXT);
    let gone = post(server.address, "/api/chat", &json!({"model": "tiny", "keep_alive": 0})).json();
    assert_eq!((&gone["done_reason"], running()), (&json!("unload"), json!([])));
    assert_eq!(post(server.address, "/api/show", &json!({"model": "other"})).status, 404);
    let embed = post(server.address, "/api/embed", &json!({"model": "tiny", "input": "a"}));
    assert_eq!(
        (embed.status, embed.json()["error"].as_str().unwrap().contains("no embeddings")),
        (404, true)
    );
}
