//! Texts become vectors, as OpenAI's and Ollama's interfaces have them; what is no text, and models that give none, do not.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_serve::{Embeds, Loaded, Models, OpenError, Served};
use serde_json::{Value, json};
use std::sync::Arc;
use support::{Reply, Running, TEMPLATE, chat, post, question, serve_models, tiny_model};

/// A vector is how many letters a text has, and how many of them are the first.
struct Letters;

impl Embeds for Letters {
    fn bytes(&self) -> u64 {
        1
    }

    fn embed(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, usize), String> {
        if texts.iter().any(|text| text == "fail") {
            return Err("it failed".to_owned());
        }
        let vector = |text: &String| {
            let first = text.chars().next();
            vec![text.len() as f32, text.chars().filter(|letter| Some(*letter) == first).count() as f32]
        };
        Ok((texts.iter().map(vector).collect(), texts.iter().map(String::len).sum()))
    }
}

struct Both;

impl Models for Both {
    fn list(&self) -> Vec<Served> {
        vec![Served::new("letters", 1), Served::new("tiny", 1)]
    }

    fn load(&self, name: &str) -> Result<Loaded, OpenError> {
        Ok(match name {
            "letters" => Loaded::Embeds(Arc::new(Letters)),
            _ => Loaded::Talks(tiny_model(name, TEMPLATE, |_| ())),
        })
    }
}

fn embed(server: &Running, more: Value) -> Reply {
    let mut body = json!({"model": "letters"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(server.address, "/v1/embeddings", &body)
}

#[test]
fn texts_become_vectors_in_their_order() {
    let server = serve_models(Arc::new(Both), |_| ());
    let reply = embed(&server, json!({"input": ["aab", "b"], "user": "me"})).json();
    assert_eq!((&reply["object"], &reply["model"]), (&json!("list"), &json!("letters")));
    assert_eq!(reply["data"][0], json!({"object": "embedding", "index": 0, "embedding": [3.0, 2.0]}));
    assert_eq!(reply["data"][1]["embedding"], json!([1.0, 1.0]));
    assert_eq!(reply["usage"], json!({"prompt_tokens": 4, "total_tokens": 4}));
    let one = embed(&server, json!({"input": "aab", "encoding_format": "base64"})).json();
    assert_eq!(one["data"][0]["embedding"], "AABAQAAAAEA=");
    // Fewer numbers, of length one again.
    let short = embed(&server, json!({"input": "aab", "dimensions": 1})).json();
    assert_eq!(short["data"][0]["embedding"], json!([1.0]));
    let ollama = post(server.address, "/api/embed", &json!({"model": "letters", "input": ["aab"]})).json();
    assert_eq!(ollama, json!({"model": "letters", "embeddings": [[3.0, 2.0]], "prompt_eval_count": 3}));
}

#[test]
fn what_is_no_text_is_refused() {
    let server = serve_models(Arc::new(Both), |_| ());
    let wrong = [
        json!({}),
        json!({"input": 1}),
        json!({"input": [[1, 2]]}),
        json!({"input": []}),
        json!({"input": ""}),
        json!({"input": "a", "encoding_format": "int8"}),
        json!({"input": "a", "dimensions": 3}),
        json!({"input": "a", "dimensions": 0}),
        json!({"input": "a", "unknown": 1}),
        json!({"input": vec!["a"; 3000]}),
    ];
    for body in wrong {
        assert_eq!(embed(&server, body.clone()).status, 400, "{body}");
    }
    assert_eq!(embed(&server, json!({"input": "fail"})).status, 500);
}

#[test]
fn a_model_that_embeds_does_not_talk_and_the_other_way_round() {
    let server = serve_models(Arc::new(Both), |_| ());
    let asked = question("a", json!({"model": "letters"}));
    assert_eq!(chat(server.address, &asked).status, 400);
    let reply = post(server.address, "/v1/embeddings", &json!({"model": "tiny", "input": "a"}));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("no_embeddings")));
}
