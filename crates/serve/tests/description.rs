//! The description of the server holds: every path of it is there, every field of it is taken.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Map, Value, json};
use support::{get, head, plain, post, receive, send};

fn schema(operation: &Value) -> &Value {
    &operation["requestBody"]["content"]["application/json"]["schema"]
}

/// The least that a request has to say, and no more tokens than it takes.
fn least(operation: &Value) -> Map<String, Value> {
    let properties = schema(operation)["properties"].as_object().unwrap();
    let needed = schema(operation)["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let brief = ["max_tokens", "max_output_tokens", "messages", "prompt", "content"];
    let also = brief.into_iter().filter(|name| properties.contains_key(*name));
    needed.chain(also).map(|name| (name.to_owned(), properties[name]["examples"][0].clone())).collect()
}

#[test]
fn every_path_is_there_and_every_field_is_taken() {
    let server = plain();
    let description = get(server.address, "/openapi.json").json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 22, "{}", paths.len());
    let mut fields = 0;
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            assert_ne!(operation["summary"], "", "{path}");
            let place = path.replace("{model}", "tiny");
            if method == "get" {
                assert_eq!(get(server.address, &place).status, 200, "{path}");
                continue;
            }
            if path.contains("/audio/") || path.ends_with("/embeddings") || path.ends_with("/embed") {
                // There without a model that can do it.
                assert!([400, 404, 415].contains(&post(server.address, path, &json!({})).status), "{path}");
                continue;
            }
            for (name, field) in schema(operation)["properties"].as_object().unwrap() {
                let mut body = least(operation);
                let example = if name == "model" { json!("tiny") } else { field["examples"][0].clone() };
                assert!(!example.is_null(), "{name} of {path} has no example");
                body.insert(name.clone(), example);
                match name.as_str() {
                    "stream_options" => drop(body.insert("stream".to_owned(), true.into())),
                    "top_logprobs" => drop(body.insert("logprobs".to_owned(), true.into())),
                    "tool_choice" => drop(body.insert(
                        "tools".to_owned(),
                        schema(operation)["properties"]["tools"]["examples"][0].clone(),
                    )),
                    _ => {}
                }
                let reply = post(server.address, path, &Value::Object(body.clone()));
                assert_eq!(reply.status, 200, "{name} of {path}: {body:?}: {}", reply.body);
                fields += 1;
            }
        }
    }
    assert!(fields > 80, "{fields}");
}

#[test]
fn what_is_not_described_is_not_there() {
    let server = plain();
    let description = get(server.address, "/openapi.json").json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let place = path.replace("{model}", "tiny");
        let other = if methods.get("get").is_some() { "POST" } else { "GET" };
        let reply = receive(send(server.address, &head(other, &place, "", 0), b""));
        assert_eq!(reply.status, 405, "{other} {path}");
        assert_eq!(receive(send(server.address, &head("DELETE", &place, "", 0), b"")).status, 405, "{path}");
    }
    for path in ["/v1", "/v1/models/", "/api", "/api/pull", "/v1/chat/completions/"] {
        assert_eq!(get(server.address, path).status, 404, "{path}");
    }
}
