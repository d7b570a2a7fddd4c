//! Anthropic's interface over the same request: messages whole and streamed, tools, counted tokens, errors.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use support::{chat, plain, post, question};

fn message(more: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 12,
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body
}

#[test]
fn an_answer_that_has_begun_is_gone_on_with() {
    let server = plain();
    let begun = json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Paris"}]);
    let read = |more: Value| {
        let usage = post(server.address, "/v1/messages", &message(more)).json()["usage"].clone();
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap()
    };
    // No turn ends behind it, and none begins.
    assert_eq!(read(json!({"messages": begun})), read(json!({})) + 5);
    let counted = post(server.address, "/v1/messages/count_tokens", &json!({"messages": begun})).json();
    assert_eq!(counted["input_tokens"], read(json!({})) + 5);
}

#[test]
fn a_message_says_what_a_chat_says() {
    let server = plain();
    let said = chat(server.address, &question("hello", json!({"logit_bias": null}))).json();
    let said = said["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let whole = post(server.address, "/v1/messages", &message(json!({}))).json();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")), "{whole}");
    assert_eq!(whole["content"], json!([{"type": "text", "text": said}]));
    let counted = post(
        server.address,
        "/v1/messages/count_tokens",
        &json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]}]}),
    );
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(counted.json(), json!({"input_tokens": read}));

    let reply = post(server.address, "/v1/messages", &message(json!({"stream": true})));
    let names: Vec<&str> = reply.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let data = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    assert!(events.iter().zip(&names).all(|(event, name)| event["type"] == **name));
    let [start, open, pieces @ .., close, last, stop] = events.as_slice() else { panic!("{names:?}") };
    assert_eq!((&start["type"], &start["message"]["content"]), (&json!("message_start"), &json!([])));
    assert_eq!(open["content_block"], json!({"type": "text", "text": ""}));
    let text: String = pieces.iter().map(|piece| piece["delta"]["text"].as_str().unwrap()).collect();
    assert_eq!(text, said);
    assert_eq!((&close["type"], &close["index"]), (&json!("content_block_stop"), &json!(0)));
    assert_eq!(last["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(stop["type"], "message_stop");
}

#[test]
fn a_tool_is_used_and_what_it_gave_is_read() {
    let server = plain();
    let schema = json!({"type": "object", "properties": {"colour": {"enum": ["red"]}}, "required": ["colour"],
                        "additionalProperties": false});
    let tools = json!([{"name": "paint", "input_schema": schema}]);
    let more = json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 200});
    let reply = post(server.address, "/v1/messages", &message(more)).json();
    let used = &reply["content"][0];
    assert_eq!((&used["type"], &used["input"]), (&json!("tool_use"), &json!({"colour": "red"})), "{reply}");
    assert_eq!(reply["stop_reason"], "tool_use");
    let messages = json!([
        {"role": "user", "content": "paint"},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": used["id"], "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "thanks"}]},
    ]);
    let more =
        json!({"system": [{"type": "text", "text": "be brief"}], "tools": tools, "messages": messages});
    assert_eq!(post(server.address, "/v1/messages", &message(more)).status, 200);
}

#[test]
fn a_tool_that_takes_nothing_is_given_nothing() {
    let server = plain();
    let tools = json!([{"name": "ring", "input_schema": {"type": "object", "properties": {}}}]);
    let more = json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 200});
    let reply = post(server.address, "/v1/messages", &message(more)).json();
    assert_eq!(
        (&reply["content"][0]["name"], &reply["content"][0]["input"]),
        (&json!("ring"), &json!({})),
        "{reply}"
    );
}

#[test]
fn the_stop_sequence_that_ended_a_message_is_named() {
    let server = plain();
    let whole = post(server.address, "/v1/messages", &message(json!({}))).json();
    assert_eq!(whole["stop_sequence"], Value::Null, "{whole}");
    let stop = whole["content"][0]["text"].as_str().unwrap().chars().last().unwrap().to_string();
    let stopped = json!(["stop_sequence", stop]);
    let asked = json!({"stop_sequences": ["never", stop]});
    let whole = post(server.address, "/v1/messages", &message(asked.clone())).json();
    assert_eq!(json!([whole["stop_reason"], whole["stop_sequence"]]), stopped, "{whole}");
    let mut asked = message(asked);
    asked["stream"] = true.into();
    let reply = post(server.address, "/v1/messages", &asked).body;
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let last = &events.iter().find(|event| event["type"] == "message_delta").unwrap()["delta"];
    assert_eq!(json!([last["stop_reason"], last["stop_sequence"]]), stopped, "{last}");
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_the_interface() {
    let server = plain();
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let image = json!({"type": "image", "source": source});
    let cases = [
        (message(json!({"max_tokens": null})), "max_tokens"),
        (message(json!({"messages": [{"role": "system", "content": "a"}]})), "user or the assistant"),
        (
            message(json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]})),
            "nothing is fetched",
        ),
        (message(json!({"messages": [{"role": "user", "content": [image]}]})), "does not see images"),
        (
            message(json!({"messages": [{"role": "user", "content": [{"type": "document"}]}]})),
            "only texts, images",
        ),
        (message(json!({"thinking": {"type": "enabled", "budget_tokens": 1024}})), "thinking"),
        (message(json!({"container": "x"})), "`container` is not honoured"),
    ];
    for (body, reason) in cases {
        let reply = post(server.address, "/v1/messages", &body);
        let told = reply.json();
        assert_eq!((reply.status, &told["type"]), (400, &json!("error")), "{body}");
        assert!(told["error"]["message"].as_str().unwrap().contains(reason), "{told}");
    }
}
