//! Bad requests, many clients, clients that vanish: a right error or the right answer, and no slot is lost.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;
use support::{CONTEXT, chat, get, head, plain, post, question, receive, send, serve};

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let server = plain();
    let with = |more: Value| question("hello", more);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let cases: Vec<(Value, u16, &str, &str)> = vec![
        (json!([]), 400, "", "no JSON object"),
        (json!({"model": "tiny"}), 400, "messages", "no `messages`"),
        (with(json!({"model": "other"})), 404, "model", "other"),
        (with(json!({"model": 3})), 400, "model", "must be a text"),
        (with(json!({"messages": "hello"})), 400, "messages", "must be a list"),
        (with(json!({"messages": []})), 400, "messages", "0 messages"),
        (
            with(json!({"messages": [{"role": "nobody", "content": "a"}]})),
            400,
            "messages",
            "nobody has the role",
        ),
        (with(json!({"temperature": "hot"})), 400, "temperature", "must be a number"),
        (with(json!({"temperature": 3})), 400, "temperature", "between 0 and 2"),
        (with(json!({"top_p": -0.1})), 400, "top_p", "between"),
        (with(json!({"max_tokens": -1})), 400, "max_tokens", "whole number"),
        (with(json!({"max_tokens": 0})), 400, "max_completion_tokens", "at least one"),
        (with(json!({"max_tokens": 1.5})), 400, "max_tokens", "whole number"),
        (with(json!({"stream": "yes"})), 400, "stream", "true or false"),
        (with(json!({"stream_options": {"include_usage": true}})), 400, "stream_options", "only for streams"),
        (with(json!({"stop": 3})), 400, "stop", "text"),
        (with(json!({"n": 0})), 400, "n", "0 answers"),
        (with(json!({"n": 1000})), 400, "n", "1000 answers"),
        (with(json!({"logit_bias": {"x": 1}})), 400, "logit_bias", "token ids"),
        (with(json!({"logit_bias": {"1": 1000}})), 400, "logit_bias", "-100 to 100"),
        (with(json!({"top_logprobs": 2})), 400, "top_logprobs", "needs `logprobs`"),
        (with(json!({"logprobs": true, "top_logprobs": 21})), 400, "top_logprobs", "at most 20"),
        (with(json!({"modalities": ["audio"]})), 400, "modalities", "not honoured"),
        (with(json!({"reasoning_effort": "high"})), 400, "reasoning_effort", "not honoured"),
        (with(json!({"tools": [{}]})), 400, "tools", "function"),
        (with(json!({"tool_choice": "required"})), 400, "tool_choice", "no such tool"),
        (with(json!({"tools": tools, "tool_choice": "maybe"})), 400, "tool_choice", "auto, none, required"),
        (with(json!({"response_format": {"type": "xml"}})), 400, "response_format", "json_schema"),
        (
            with(
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}}),
            ),
            400,
            "response_format",
            "cannot be honoured",
        ),
        (
            with(json!({"messages": [{"role": "user", "content": "a".repeat(CONTEXT)}]})),
            400,
            "messages",
            "no room",
        ),
    ];
    for (body, status, param, message) in cases {
        let reply = chat(server.address, &body);
        let error = &reply.json()["error"];
        assert_eq!(reply.status, status, "{body}: {error}");
        assert_eq!(error["param"].as_str().unwrap_or_default(), param, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{body}: {error}");
        let names: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(names, ["message", "type", "param", "code"]);
    }
    let code = |body: &Value| chat(server.address, body).json()["error"]["code"].clone();
    assert_eq!(code(&with(json!({"model": "other"}))), "model_not_found");
    assert_eq!(code(&with(json!({"modalities": ["audio"]}))), "unsupported_parameter");
    let long = with(json!({"messages": [{"role": "user", "content": "a".repeat(CONTEXT)}]}));
    assert_eq!(code(&long), "context_length_exceeded");
    // Fields without an effect are let through, and so is nothing.
    let idle = json!({"user": "me", "metadata": {"a": "b"}, "store": false, "tools": null, "stop": null});
    assert_eq!(chat(server.address, &with(idle)).status, 200);
}

#[test]
fn what_is_far_too_long_is_refused_before_it_is_read_and_can_be_counted() {
    let server = plain();
    let long = "a".repeat(100 * CONTEXT);
    let messages = json!([{"role": "user", "content": long}]);
    let asked = [
        ("/v1/chat/completions", json!({"messages": messages}), "messages"),
        ("/v1/completions", json!({"prompt": long}), "prompt"),
        ("/v1/responses", json!({"input": long}), "input"),
    ];
    for (path, body, param) in asked {
        let reply = post(server.address, path, &body);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{path}: {error}");
        assert_eq!(error["code"], "context_length_exceeded", "{path}");
        assert!(error["message"].as_str().unwrap().contains("far more tokens"), "{path}: {error}");
    }
    let message = post(server.address, "/v1/messages", &json!({"messages": messages, "max_tokens": 1}));
    assert_eq!(message.status, 400);
    let count = post(server.address, "/v1/messages/count_tokens", &json!({"messages": messages}));
    assert!(count.json()["input_tokens"].as_u64().unwrap() > 100 * CONTEXT as u64);
    assert_eq!(post(server.address, "/tokenize", &json!({"content": long})).json()["count"], 100 * CONTEXT);
}

#[test]
fn what_is_no_request_at_all_gets_an_error_too() {
    let server = serve(|_| (), |options| options.longest_body = 10_000);
    let sent = |head: &str, body: &[u8]| receive(send(server.address, head, body));
    let path = "/v1/chat/completions";
    let broken = [&b"{"[..], b"", b"\xff\xfe", b"{\"messages\": [}", b"null"];
    for body in broken {
        let reply = sent(&head("POST", path, "", body.len()), body);
        assert_eq!(
            (reply.status, reply.json()["error"]["type"].as_str()),
            (400, Some("invalid_request_error"))
        );
    }
    let nested = "[".repeat(9_000);
    assert_eq!(sent(&head("POST", path, "", nested.len()), nested.as_bytes()).status, 400);
    let huge = vec![b' '; 12_000];
    assert_eq!(sent(&head("POST", path, "", huge.len()), &huge).status, 413);
    let form = head("POST", path, "", 2).replace("application/json", "text/plain");
    assert_eq!(sent(&form, b"{}").status, 415);
    assert_eq!(sent(&head("GET", path, "", 0), b"").status, 405);
    assert_eq!(sent(&head("DELETE", "/v1/models", "", 0), b"").status, 405);
    assert_eq!(sent(&head("POST", "/v1/nothing", "", 2), b"{}").status, 404);
    // A page whose name was made to lead here.
    let foreign = head("GET", "/v1/models", "", 0).replace("Host: localhost", "Host: evil.example:80");
    assert_eq!(sent(&foreign, b"").status, 403);
    assert_eq!(get(server.address, "/health").status, 200);
}

#[test]
fn sixteen_at_once_get_what_each_gets_alone() {
    let server = serve(|options| options.parallel = 8, |_| ());
    let ask = |at: usize| {
        let text = format!("{} number {at}", "word ".repeat(at * 3));
        let reply = chat(server.address, &question(&text, json!({"max_tokens": 10 + at})));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["choices"].clone()
    };
    let alone: Vec<Value> = (0..16).map(ask).collect();
    let at_once: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|at| scope.spawn(move || ask(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(at_once, alone);
    // A slot is free a moment after its last token has been told.
    server.wait_until("all are free", |counts| (counts.running, counts.waiting) == (0, 0));
}

#[test]
fn a_client_that_vanishes_frees_its_slot() {
    let server = serve(|options| options.parallel = 1, |_| ());
    for stream in [true, false] {
        let before = server.counts();
        let body = question("hello", json!({"stream": stream, "max_tokens": 4000})).to_string();
        let mut client =
            send(server.address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes());
        if stream {
            client.read_exact(&mut [0; 200]).unwrap();
        }
        // An answer is told to its end a little before its lane is free: `running` alone may still be the last one's.
        let under_way =
            |counts: &pteron_llm::Counts| counts.requests > before.requests && counts.running == 1;
        server.wait_until("it is under way", under_way);
        drop(client);
        let given_up =
            |counts: &pteron_llm::Counts| counts.running == 0 && counts.cancelled == before.cancelled + 1;
        server.wait_until("the slot is free", given_up);
        assert_eq!(chat(server.address, &question("hi", json!({}))).status, 200);
    }
}

#[test]
fn more_than_may_wait_are_told_to_come_back() {
    let limits = |options: &mut pteron_llm::ScheduleOptions| (options.parallel, options.queue) = (1, 1);
    let server = serve(limits, |_| ());
    let body = question("hello", json!({"stream": true, "max_tokens": 4000})).to_string();
    let ask = || send(server.address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes());
    let first = ask();
    server.wait_until("the first is under way", |counts| counts.running == 1);
    let second = ask();
    server.wait_until("the second waits", |counts| counts.waiting == 1);
    let refused = receive(ask());
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (429, "1"));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    drop(first);
    // The one that waited is answered to its end.
    let (chunks, last) = receive(second).events();
    assert_eq!(last, "[DONE]");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn without_a_key_there_is_nothing_but_health() {
    let server = serve(|_| (), |options| options.keys = vec!["first".to_owned(), "second".to_owned()]);
    let ask = |more: &str| receive(send(server.address, &head("GET", "/v1/models", more, 0), b""));
    for wrong in ["", "Authorization: Bearer third\r\n", "Authorization: Basic first\r\n", "x-api-key: \r\n"]
    {
        let reply = ask(wrong);
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    }
    for right in ["Authorization: Bearer second\r\n", "x-api-key: first\r\n"] {
        assert_eq!(ask(right).status, 200, "{right}");
    }
    assert_eq!(get(server.address, "/health").status, 200);
    assert_eq!(post(server.address, "/tokenize", &json!({"content": "a"})).status, 401);
}

#[test]
fn answers_come_to_their_end_before_the_server_does() {
    let server = plain();
    let address = server.address;
    let body = question("hello", json!({"stream": true, "max_tokens": 300})).to_string();
    let client = send(address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes());
    server.wait_until("it is under way", |counts| counts.running == 1);
    server.stop.stop();
    let (chunks, last) = receive(client).events();
    let said = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!((last.as_str(), said.map(str::len).sum::<usize>()), ("[DONE]", 300));
    server.join();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn an_answer_that_takes_too_long_is_cut() {
    let server = serve(|_| (), |options| options.to_answer = Duration::ZERO);
    // Nobody waits for the model to be loaded either; whoever asks again finds it.
    let ask = |_| chat(server.address, &question("hello", json!({})));
    let reply = (0..100).map(ask).find(|reply| reply.status != 503).expect("the model is loaded");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["choices"][0]["finish_reason"], "length");
    assert_eq!(reply.json()["usage"]["completion_tokens"], 0);
}
