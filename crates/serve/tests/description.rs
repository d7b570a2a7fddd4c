//! The description of the server holds: every path of it is there, every field of it is taken, and nothing else is.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_serve::{Embeds, Loaded, Models, OpenError, Served};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use support::{Running, get, head, plain, post, receive, send, serve_models};

/// Gives the same vector for every text.
struct Vectors;

impl Embeds for Vectors {
    fn bytes(&self) -> u64 {
        1
    }

    fn embed(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, usize), String> {
        Ok((vec![vec![1.0, 0.0]; texts.len()], 1))
    }
}

struct OneThatEmbeds;

impl Models for OneThatEmbeds {
    fn list(&self) -> Vec<Served> {
        vec![Served::new("vectors", 1)]
    }

    fn load(&self, _: &str) -> Result<Loaded, OpenError> {
        Ok(Loaded::Embeds(Arc::new(Vectors)))
    }
}

/// A server that talks and one that gives vectors: each has one model, which requests need not name.
struct Servers {
    talks: Running,
    embeds: Running,
}

impl Servers {
    fn start() -> Servers {
        Servers { talks: plain(), embeds: serve_models(Arc::new(OneThatEmbeds), |_| ()) }
    }

    fn at(&self, path: &str) -> &Running {
        if path.contains("embed") { &self.embeds } else { &self.talks }
    }

    fn description(&self) -> Value {
        get(self.talks.address, "/openapi.json").json()
    }

    /// The operations that take a JSON object, by path.
    fn operations(&self) -> Vec<(String, Value)> {
        let paths = self.description()["paths"].as_object().unwrap().clone();
        let posts =
            paths.into_iter().filter_map(|(path, methods)| Some((path, methods.get("post")?.clone())));
        posts.filter(|(path, _)| !path.contains("/audio/")).collect()
    }

    fn post(&self, path: &str, body: &Value) -> support::Reply {
        post(self.at(path).address, path, body)
    }
}

fn schema(operation: &Value) -> &Value {
    &operation["requestBody"]["content"]["application/json"]["schema"]
}

fn examples(path: &str, name: &str, field: &Value) -> Vec<Value> {
    match (name, field["examples"].as_array()) {
        (_, Some(examples)) => examples.clone(),
        ("model" | "name", None) => vec![json!(if path.contains("embed") { "vectors" } else { "tiny" })],
        _ => panic!("{name} of {path} has no example"),
    }
}

/// The least that a request has to say, and no more tokens than it takes.
fn least(path: &str, operation: &Value) -> Map<String, Value> {
    let properties = schema(operation)["properties"].as_object().unwrap();
    let needed = schema(operation)["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let also: &[&str] = match path {
        "/api/chat" => &["messages", "stream", "options"],
        "/api/generate" => &["prompt", "stream", "options"],
        "/tokenize" => &["content"],
        _ => &["max_tokens", "max_output_tokens"],
    };
    let also = also.iter().copied().filter(|name| properties.contains_key(*name));
    needed.chain(also).map(|name| (name.to_owned(), properties[name]["examples"][0].clone())).collect()
}

/// The least request with one field more, and what that field needs to be taken.
fn with(path: &str, operation: &Value, name: &str, example: &Value) -> Map<String, Value> {
    let properties = &schema(operation)["properties"];
    let mut body = least(path, operation);
    let also = match name {
        "stream_options" => Some(("stream", json!(true))),
        "top_logprobs" if path == "/v1/chat/completions" => Some(("logprobs", json!(true))),
        "tool_choice" => Some(("tools", properties["tools"]["examples"][0].clone())),
        // Of a conversation, not of a text.
        "chat_template_kwargs" if path == "/tokenize" => {
            Some(("messages", properties["messages"]["examples"][0].clone()))
        }
        _ => None,
    };
    if path == "/tokenize" && ["messages", "prompt", "chat_template_kwargs"].contains(&name) {
        body.remove("content");
    }
    body.extend(also.map(|(name, value)| (name.to_owned(), value)));
    body.insert(name.to_owned(), example.clone());
    body
}

#[test]
fn every_path_is_there_and_every_field_is_taken() {
    let servers = Servers::start();
    let description = servers.description();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 23, "{}", paths.len());
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            assert_ne!(operation["summary"], "", "{path}");
            let place = path.replace("{model}", "tiny");
            if method == "get" {
                assert_eq!(get(servers.talks.address, &place).status, 200, "{path}");
            }
        }
    }
    let mut fields = 0;
    for (path, operation) in servers.operations() {
        for (name, field) in schema(&operation)["properties"].as_object().unwrap() {
            for example in examples(&path, name, field) {
                let body = Value::Object(with(&path, &operation, name, &example));
                let reply = servers.post(&path, &body);
                assert_eq!(reply.status, 200, "{name} of {path}: {body}: {}", reply.body);
            }
            fields += 1;
        }
    }
    assert!(fields > 130, "{fields}");
}

/// Every word that the readers of requests have in quotation marks: the names of all fields are among them, however they
/// are taken.
fn words() -> BTreeSet<String> {
    fn read(place: &Path, words: &mut BTreeSet<String>) {
        if place.is_dir() {
            fs::read_dir(place).unwrap().for_each(|entry| read(&entry.unwrap().path(), words));
            return;
        }
        let is_word = |text: &&str| {
            (1..=32).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_lowercase() || "_[]".contains(c))
        };
        let text = fs::read_to_string(place).unwrap();
        // Between any two marks, so that those within raw texts are found too.
        words.extend(text.split('"').filter(is_word).map(str::to_owned));
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut words = BTreeSet::new();
    read(&crates.join("serve").join("src"), &mut words);
    read(&crates.join("llm").join("src").join("messages.rs"), &mut words);
    words
}

/// Whether a reply says that a field is not taken.
fn refuses(reply: &str, word: &str) -> bool {
    [format!("`{word}` is not honoured here"), format!("`{word}` of a message is not honoured")]
        .iter()
        .any(|told| reply.contains(told))
}

/// Where objects lie in a request, and what is known of their fields.
#[derive(Default)]
struct Known {
    described: BTreeSet<String>,
    taken: BTreeSet<String>,
    /// Names of the fields of objects that were tried already.
    tried: BTreeSet<Vec<String>>,
}

struct Survey<'s> {
    servers: &'s Servers,
    words: BTreeSet<String>,
    /// By path and place, as pointers without the numbers of lists' items.
    known: BTreeMap<String, Known>,
}

impl Survey<'_> {
    /// Tries every word as one more field of the object at this pointer of a body that is answered, and of all objects in it.
    fn visit(&mut self, path: &str, body: &Value, pointer: &str, place: &str, schema: &Value) {
        match body.pointer(pointer).unwrap() {
            Value::Array(items) => {
                for at in 0..items.len() {
                    self.visit(
                        path,
                        body,
                        &format!("{pointer}/{at}"),
                        &format!("{place}[]"),
                        &schema["items"],
                    );
                }
            }
            Value::Object(fields) => {
                assert!(schema.get("additionalProperties").is_some(), "{place} does not say what it takes");
                for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                    if fields.contains_key(name) && schema.is_object() {
                        self.visit(
                            path,
                            body,
                            &format!("{pointer}/{name}"),
                            &format!("{place}.{name}"),
                            schema,
                        );
                    }
                }
                if schema["additionalProperties"] == false {
                    self.try_words(path, body, pointer, place, schema);
                }
            }
            _ => {}
        }
    }

    fn try_words(&mut self, path: &str, body: &Value, pointer: &str, place: &str, schema: &Value) {
        let fields = body.pointer(pointer).unwrap().as_object().unwrap();
        let names: Vec<String> = fields.keys().cloned().collect();
        let known = self.known.entry(place.to_owned()).or_default();
        known.described.extend(schema["properties"].as_object().unwrap().keys().cloned());
        known.taken.extend(names.iter().cloned());
        if !known.tried.insert(names) {
            return;
        }
        for word in self.words.iter().filter(|word| !fields.contains_key(*word)) {
            let mut body = body.clone();
            body.pointer_mut(pointer).unwrap()[word] = json!([]);
            if !refuses(&self.servers.post(path, &body).body, word) {
                known.taken.insert(word.clone());
            }
        }
    }
}

#[test]
fn what_is_taken_is_described() {
    let servers = Servers::start();
    let mut survey = Survey { servers: &servers, words: words(), known: BTreeMap::new() };
    assert!(survey.words.contains("include_obfuscation"));
    for (path, operation) in servers.operations() {
        let schema = schema(&operation);
        for (name, field) in schema["properties"].as_object().unwrap() {
            for example in examples(&path, name, field) {
                let body = Value::Object(with(&path, &operation, name, &example));
                let needed = ["messages", "content", "prompt", "input"];
                if field["items"].is_object() || field["properties"].is_object() {
                    survey.visit(&path, &body, &format!("/{name}"), &format!("{path} {name}"), field);
                }
                if needed.contains(&name.as_str()) || path == "/api/show" {
                    survey.try_words(&path, &body, "", &path, schema);
                }
            }
        }
    }
    for (path, operations) in servers.description()["paths"].as_object().unwrap() {
        let form = &operations["post"]["requestBody"]["content"]["multipart/form-data"]["schema"];
        let Some(properties) = form["properties"].as_object() else { continue };
        let known = survey.known.entry(path.clone()).or_default();
        known.described.extend(properties.keys().cloned());
        known.taken.insert("file".to_owned());
        for word in survey.words.iter().filter(|word| *word != "file") {
            let part = |name: &str| {
                format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nfalse\r\n")
            };
            let body = part("file") + &part(word) + "--XX--\r\n";
            let head = head("POST", path, "", body.len())
                .replace("application/json", "multipart/form-data; boundary=XX");
            if !refuses(&receive(send(servers.talks.address, &head, body.as_bytes())).body, word) {
                known.taken.insert(word.clone());
            }
        }
    }
    assert!(survey.known.len() > 25, "{:?}", survey.known.keys());
    for (place, Known { described, taken, .. }) in &survey.known {
        assert_eq!(described, taken, "{place}: described, taken");
    }
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
