//! The interface of responses, without a memory: items whole and as numbered events, functions, forms, what is refused.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use support::{Reply, chat, plain, post, question};

fn body(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "hello", "temperature": 0, "max_output_tokens": 12});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body
}

/// The events of a stream, each of which has its name twice and its number.
fn events(reply: &Reply) -> Vec<Value> {
    let names: Vec<&str> = reply.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let (events, last) = reply.events();
    assert_eq!(last, "[DONE]");
    assert_eq!(events.len(), names.len(), "nothing but events");
    for (number, (event, name)) in events.iter().zip(&names).enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(number)));
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_response_says_what_a_chat_says() {
    let server = plain();
    let said = chat(server.address, &question("hello", json!({"logit_bias": null}))).json();
    let said = said["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let whole = post(server.address, "/v1/responses", &body(json!({"metadata": {"a": "b"}}))).json();
    assert_eq!((&whole["object"], &whole["store"]), (&json!("response"), &json!(false)), "{whole}");
    let message = &whole["output"][0];
    assert_eq!((&message["type"], &message["content"][0]["text"]), (&json!("message"), &json!(said)));
    assert_eq!((&whole["metadata"], &whole["max_output_tokens"]), (&json!({"a": "b"}), &json!(12)));
    let usage = &whole["usage"];
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    let total = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], total);

    let reply = post(server.address, "/v1/responses", &body(json!({"stream": true})));
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let events = events(&reply);
    let status = whole["status"].as_str().unwrap();
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            &format!("response.{status}"),
        ]
    );
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), said);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"], message["content"]);
    assert_eq!(last["id"], events[0]["response"]["id"]);
    assert_eq!(
        (&events[0]["response"]["status"], &events[0]["response"]["output"]),
        (&json!("in_progress"), &json!([]))
    );
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(done["item"], last["output"][0]);
}

#[test]
fn an_answer_that_is_cut_is_incomplete() {
    let server = plain();
    let reply = post(server.address, "/v1/responses", &body(json!({"max_output_tokens": 2}))).json();
    assert_eq!((&reply["status"], &reply["completed_at"]), (&json!("incomplete"), &Value::Null), "{reply}");
    assert_eq!(reply["incomplete_details"], json!({"reason": "max_output_tokens"}));
}

#[test]
fn a_function_is_called_and_what_it_gave_is_read() {
    let server = plain();
    let parameters = json!({"type": "object", "properties": {"colour": {"enum": ["red"]}},
                            "required": ["colour"], "additionalProperties": false});
    let tools = json!([{"type": "function", "name": "paint", "parameters": parameters, "strict": true}]);
    for choice in [json!("required"), json!({"type": "function", "name": "paint"})] {
        let more = json!({"tools": tools, "tool_choice": choice, "max_output_tokens": 200, "stream": true});
        let events = events(&post(server.address, "/v1/responses", &body(more)));
        let inner = &kinds(&events)[2..];
        assert_eq!(
            inner,
            [
                "response.output_item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        let response = &events.last().unwrap()["response"];
        assert_eq!((&response["tool_choice"], &response["tools"]), (&choice, &tools));
        let call = &response["output"][0];
        assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("paint")));
        assert_eq!(
            serde_json::from_str::<Value>(call["arguments"].as_str().unwrap()).unwrap(),
            json!({"colour": "red"})
        );
        // All of it goes back, with what the function gave.
        let items = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "paint"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "red?"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
            call,
            {"type": "function_call_output", "call_id": call["call_id"], "output": "done"},
        ]);
        let reply = post(
            server.address,
            "/v1/responses",
            &body(json!({"input": items, "tools": tools, "tool_choice": "none"})),
        );
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

#[test]
fn an_answer_has_the_form_that_is_asked_for() {
    let server = plain();
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}},
                        "required": ["mood"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "mood", "schema": schema, "strict": true});
    let more = json!({"text": {"format": format}, "max_output_tokens": 100});
    let reply = post(server.address, "/v1/responses", &body(more)).json();
    let answer: Value =
        serde_json::from_str(reply["output"][0]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(["good", "bad"].contains(&answer["mood"].as_str().unwrap()), "{reply}");
    assert_eq!((&reply["status"], &reply["text"]["format"]), (&json!("completed"), &format));
}

#[test]
fn what_would_have_to_be_remembered_is_refused() {
    let server = plain();
    let cases = [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "previous_response_id"),
        (json!({"store": true}), "store"),
        (json!({"background": true}), "background"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"include": ["reasoning.encrypted_content"]}), "include"),
        (json!({"reasoning": {"effort": "high"}}), "reasoning"),
        (json!({"tools": [{"type": "web_search"}]}), "tools"),
        (json!({"input": 3}), "input"),
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}), "input"),
        (json!({"input": [{"role": "nobody", "content": "a"}]}), "input"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"unheard": 1}), "unheard"),
    ];
    for (more, param) in cases {
        let reply = post(server.address, "/v1/responses", &body(more.clone()));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, error["param"].as_str()), (400, Some(param)), "{more}: {error}");
    }
}
