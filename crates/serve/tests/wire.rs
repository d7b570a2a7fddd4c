//! What goes over the wire, as clients check it: chunks, usage, tools, schemas, log probabilities, lists.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use support::{chat, get, only_characters, plain, post, question};

#[test]
fn a_chat_is_answered_whole() {
    let server = plain();
    let reply = chat(server.address, &question("hello", json!({})));
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "application/json"));
    let json = reply.json();
    assert!(json["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&json["object"], &json["model"]), (&json!("chat.completion"), &json!("tiny")));
    let choice = &json["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"].as_str().unwrap().chars().count(), 12);
    let usage = &json["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], prompt + 12);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    // The second time the prompt is in the caches, and the answer the same.
    let again = chat(server.address, &question("hello", json!({}))).json();
    assert_eq!(again["choices"], json["choices"]);
    let more = "hello".repeat(30);
    chat(server.address, &question(&more, json!({})));
    let cached = chat(server.address, &question(&more, json!({}))).json();
    assert!(cached["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() >= 64, "{cached}");
}

#[test]
fn a_chat_streams_chunk_by_chunk() {
    let server = plain();
    let whole = chat(server.address, &question("hello", json!({}))).json();
    let wanted = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2});
    let reply = chat(server.address, &question("hello", wanted));
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "text/event-stream"));
    let (chunks, last) = reply.events();
    assert_eq!(last, "[DONE]");
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
    for chunk in chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["id"], &chunk["created"]), (&usage["id"], &usage["created"]));
        assert_eq!((&chunk["usage"], chunk["choices"].as_array().unwrap().len()), (&Value::Null, 1));
        assert!(chunk.as_object().unwrap().contains_key("usage"));
    }
    for index in 0..2 {
        let own: Vec<&Value> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        let [first, middle @ .., last] = own.as_slice() else { panic!("{own:?}") };
        assert_eq!(first["delta"], json!({"role": "assistant", "content": ""}));
        assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("length")));
        let mut content = String::new();
        for choice in middle {
            assert_eq!(choice["finish_reason"], Value::Null);
            assert_eq!(choice["delta"].as_object().unwrap().len(), 1, "{choice}");
            content += choice["delta"]["content"].as_str().unwrap();
        }
        assert!(middle.len() > 5, "it comes in pieces");
        assert_eq!(whole["choices"][0]["message"]["content"], content.as_str());
    }
    // Without being asked for, usage is not told.
    let (chunks, _) = chat(server.address, &question("hello", json!({"stream": true}))).events();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn completions_go_on_from_texts_and_tokens() {
    let server = plain();
    let ask = |more: Value| {
        let mut body = json!({
            "model": "tiny", "prompt": "abc", "temperature": 0, "logprobs": 2, "logit_bias": only_characters(),
        });
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        post(server.address, "/v1/completions", &body)
    };
    let text = ask(json!({})).json();
    assert_eq!(text["object"], "text_completion");
    let choice = &text["choices"][0];
    assert_eq!(text["usage"]["prompt_tokens"], 3);
    let told = &choice["logprobs"];
    let tokens: Vec<&str> =
        told["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    assert_eq!(told["text_offset"][1], tokens[0].len());
    assert_eq!(told["top_logprobs"][0].as_object().unwrap().len(), 2);
    // Letters follow the space in the vocabulary.
    let ids = ask(json!({"prompt": [65, 66, 67]})).json();
    assert_eq!(ids["choices"], text["choices"]);
    assert_eq!(ask(json!({"prompt": ["abc"]})).json()["choices"], text["choices"]);
    let (chunks, last) = ask(json!({"stream": true})).events();
    assert_eq!(last, "[DONE]");
    let joined: String = chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(joined, choice["text"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], choice["finish_reason"]);
}

#[test]
fn what_is_asked_for_of_an_answer_is_what_it_is_like() {
    let server = plain();
    let content = |more: Value| {
        let reply = chat(server.address, &question("hello", more));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let plain = content(json!({}));
    let stop: String = plain.chars().skip(4).take(2).collect();
    assert_eq!(content(json!({"stop": stop})), plain[..plain.find(&stop).unwrap()]);
    let drawn = |seed: i64| content(json!({"temperature": 1.0, "seed": seed}));
    assert_eq!(drawn(-3), drawn(-3));
    assert_ne!(drawn(-3), drawn(4));
    let biased = content(json!({"logit_bias": {"65": 100}}));
    assert_eq!(biased, "a".repeat(12));
    let scored =
        chat(server.address, &question("hello", json!({"logprobs": true, "top_logprobs": 3}))).json();
    let told = scored["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(told.len(), 12);
    for (token, character) in told.iter().zip(plain.chars()) {
        assert_eq!(token["token"], character.to_string());
        assert_eq!(token["bytes"], json!([character as u32]));
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"]), (3, &token["token"]), "the likeliest was taken");
        assert!(token["logprob"].as_f64().unwrap() < 0.0);
    }
}

fn tool() -> Value {
    json!([{"type": "function", "function": {"name": "paint", "parameters": {
        "type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"],
        "additionalProperties": false}}}])
}

#[test]
fn a_call_that_must_come_comes_and_is_a_call() {
    let server = plain();
    let named = json!({"type": "function", "function": {"name": "paint"}});
    for choice in [json!("required"), named] {
        let more = json!({"tools": tool(), "tool_choice": choice, "max_tokens": 200, "temperature": 1.0});
        let reply = chat(server.address, &question("hello", more.clone())).json();
        let answer = &reply["choices"][0];
        assert_eq!(answer["finish_reason"], "tool_calls", "{reply}");
        assert_eq!(answer["message"]["content"], Value::Null);
        let call = &answer["message"]["tool_calls"][0];
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("paint")));
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(["red", "blue"].contains(&arguments["colour"].as_str().unwrap()), "{arguments}");
        let mut streamed = question("hello", more);
        streamed["stream"] = true.into();
        let (chunks, _) = chat(server.address, &streamed).events();
        let delta = chunks.iter().find_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).unwrap();
        assert_eq!((&delta[0]["index"], &delta[0]["function"]["name"]), (&json!(0), &json!("paint")));
        assert!(delta[0]["id"].is_string() && delta[0]["type"] == "function");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
    // The answer goes back with what the tool said.
    let call = json!({"id": "call_1", "type": "function",
                      "function": {"name": "paint", "arguments": "{\"colour\": \"red\"}"}});
    let messages = json!([
        {"role": "user", "content": "paint"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]);
    let mut body = question("", json!({"tools": tool(), "messages": messages}));
    assert_eq!(chat(server.address, &body).status, 200);
    body.as_object_mut().unwrap().retain(|name, _| name == "messages" || name == "tools");
    let text = post(server.address, "/apply-template", &body).json();
    let text = text["prompt"].as_str().unwrap();
    assert!(text.contains("\"enum\": [\"red\", \"blue\"]"), "{text}");
    assert!(text.contains("{\"name\": \"paint\", \"arguments\": {\"colour\": \"red\"}}"), "{text}");
}

#[test]
fn an_answer_has_the_form_that_is_asked_for() {
    let server = plain();
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}},
                        "required": ["mood"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}});
    let more = json!({"response_format": format, "max_tokens": 100});
    let reply = chat(server.address, &question("hello", more)).json();
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    let answer: Value = serde_json::from_str(content).unwrap();
    assert!(["good", "bad"].contains(&answer["mood"].as_str().unwrap()), "{answer}");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn an_object_has_no_properties_but_those_that_its_schema_lists() {
    let server = plain();
    // As strict mode has it, whether the schema says so or not.
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]},
                        "place": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}}, "required": ["mood"]});
    for strict in [json!(true), json!(false), json!(null)] {
        let format = json!({"name": "mood", "schema": schema, "strict": strict});
        for seed in 0..8 {
            let more = json!({"response_format": {"type": "json_schema", "json_schema": format}, "max_tokens": 100,
                              "temperature": 2, "seed": seed});
            let reply = chat(server.address, &question("hello", more)).json();
            let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
            let answer: serde_json::Map<String, Value> = serde_json::from_str(content).unwrap();
            assert!(answer.keys().all(|key| key == "mood" || key == "place"), "{content}");
            let inner = answer.get("place").and_then(Value::as_object);
            assert!(inner.is_none_or(|inner| inner.keys().all(|key| key == "x")), "{content}");
        }
    }
}

#[test]
fn embeddings_that_no_model_gives_are_refused_in_so_many_words() {
    let server = plain();
    let reply = post(server.address, "/v1/embeddings", &json!({"model": "tiny", "input": "a"}));
    let error = &reply.json()["error"];
    assert_eq!(
        (reply.status, &error["param"], &error["code"]),
        (404, &json!("model"), &json!("no_embeddings"))
    );
    assert!(error["message"].as_str().unwrap().contains("gives no embeddings"), "{error}");
    assert!(error["type"].is_string());
}

#[test]
fn lists_health_figures_and_tokens_can_be_looked_at() {
    let server = plain();
    assert_eq!(get(server.address, "/health").json(), json!({"status": "ok"}));
    let models = get(server.address, "/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(get(server.address, "/v1/models/tiny").json()["object"], "model");
    assert_eq!(get(server.address, "/v1/models/other").status, 404);
    let tokens = post(server.address, "/tokenize", &json!({"content": "ab<|end|>"})).json();
    assert_eq!(tokens["tokens"], json!([65, 66, 99]));
    let text = json!({"content": "ab<|end|>", "parse_special": false});
    assert_eq!(post(server.address, "/tokenize", &text).json()["count"], 9);
    chat(server.address, &question("hello", json!({})));
    let figures = get(server.address, "/metrics").body;
    for line in [
        "pteron:num_requests_waiting{model_name=\"tiny\"} 0",
        "pteron:generation_tokens_total{model_name=\"tiny\"} 12",
        "pteron:time_to_first_token_seconds_count 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} in {figures}");
    }
}

#[test]
fn an_answer_goes_on_from_what_it_has_begun_with() {
    let server = plain();
    let of = |messages: Value| {
        let prompt = post(server.address, "/apply-template", &json!({"messages": messages}));
        (prompt.status, prompt.json()["prompt"].as_str().unwrap_or_default().to_owned())
    };
    let user = json!({"role": "user", "content": "count"});
    let ends = |messages: Value, end: &str| {
        let (status, prompt) = of(messages);
        assert!(status == 200 && prompt.ends_with(end), "{status}: {prompt}");
    };
    ends(json!([user, {"role": "assistant", "content": "1, 2", "prefix": true}]), "assistant: 1, 2");
    let parts = json!([{"type": "text", "text": "1, 2"}]);
    ends(json!([user, {"role": "assistant", "content": parts, "prefix": true}]), "assistant: 1, 2");
    ends(json!([user, {"role": "assistant", "content": "1", "prefix": false}, user]), "assistant: ");
    let call = json!([{"function": {"name": "add"}}]);
    let refused = [
        json!([{"role": "assistant", "content": "1", "prefix": true}]),
        json!([{"role": "user", "content": "1", "prefix": true}]),
        json!([{"role": "assistant", "content": "1", "prefix": true}, user]),
        json!([user, {"role": "assistant", "content": "1", "prefix": true, "weight": 1}]),
        json!([user, {"role": "assistant", "content": "1", "prefix": true, "tool_calls": call}]),
    ];
    for messages in refused {
        assert_eq!(of(messages.clone()).0, 400, "{messages}");
    }
}
