//! Several models: loaded when somebody asks, each once, dropped by least use where memory is short or their time is over;
//! nobody waits for a model that is not theirs.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_serve::{KeepAlive, Loaded, Model, Models, OpenError, Options, Served};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::{Running, TEMPLATE, chat, get, head, post, question, send, serve_models, tiny_model};

/// Models of a hundred bytes each; how often they were loaded, and which of them wait to be let go on.
#[derive(Default)]
struct Shelf {
    loads: Mutex<HashMap<String, usize>>,
    held: Mutex<Vec<String>>,
    changed: Condvar,
    /// The last one of each that was loaded.
    models: Mutex<HashMap<String, Arc<Model>>>,
}

impl Shelf {
    fn loads(&self, name: &str) -> usize {
        self.loads.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    fn let_go(&self) {
        self.held.lock().unwrap().clear();
        self.changed.notify_all();
    }
}

impl Models for Shelf {
    fn list(&self) -> Vec<Served> {
        ["one", "two", "three", "huge", "broken", "panics"].map(|name| Served::new(name, 1)).to_vec()
    }

    fn needs(&self, name: &str) -> Option<u64> {
        Some(if name == "huge" { 1000 } else { 100 })
    }

    fn load(&self, name: &str) -> Result<Loaded, OpenError> {
        *self.loads.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        let held = self.held.lock().unwrap();
        let waits = |held: &mut Vec<String>| held.iter().any(|other| other == name);
        drop(self.changed.wait_while(held, waits).unwrap());
        assert_ne!(name, "panics", "this is what a loader that panics does");
        if name == "broken" {
            return Err(OpenError::Failed("its file is broken".to_owned()));
        }
        let model = tiny_model(name, TEMPLATE, |_| ());
        self.models.lock().unwrap().insert(name.to_owned(), model.clone());
        Ok(Loaded::Talks(model))
    }
}

fn serve(change: impl FnOnce(&mut Options)) -> (Arc<Shelf>, Running) {
    let shelf = Arc::new(Shelf::default());
    let server = serve_models(shelf.clone(), change);
    (shelf, server)
}

fn ask(address: SocketAddr, name: &str) -> support::Reply {
    chat(address, &question("hello", json!({"model": name, "max_tokens": 3})))
}

fn states(address: SocketAddr) -> HashMap<String, String> {
    let list = get(address, "/v1/models").json();
    let state = |model: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&model["id"]), text(&model["status"]["value"]))
    };
    list["data"].as_array().unwrap().iter().map(state).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_model_is_loaded_once_when_somebody_asks_and_nobody_else_waits() {
    let (shelf, server) = serve(|_| ());
    assert!(states(server.address).values().all(|state| state == "unloaded"));
    assert_eq!(ask(server.address, "one").status, 200);
    shelf.held.lock().unwrap().push("two".to_owned());
    std::thread::scope(|scope| {
        // More than there are threads to read requests on.
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| ask(server.address, "two").status)).collect();
        wait_until("it loads", || states(server.address)["two"] == "loading");
        assert_eq!(states(server.address)["one"], "loaded");
        assert_eq!(ask(server.address, "one").status, 200, "others are answered meanwhile");
        shelf.let_go();
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap() == 200));
    });
    assert_eq!((shelf.loads("one"), shelf.loads("two")), (1, 1));
    // With several there is none that is meant where none is named.
    let unnamed = chat(server.address, &question("hello", json!({"model": null})));
    assert_eq!((unnamed.status, unnamed.json()["error"]["param"].as_str()), (400, Some("model")));
}

#[test]
fn a_load_that_fails_is_an_error_of_its_request() {
    let (shelf, server) = serve(|options| options.memory = 500);
    for time in 1..3 {
        let reply = ask(server.address, "broken");
        assert_eq!((reply.status, shelf.loads("broken")), (503, time), "it is tried again");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("its file is broken"));
    }
    assert_eq!(ask(server.address, "panics").status, 503);
    assert_eq!(states(server.address)["panics"], "unloaded");
    let reply = ask(server.address, "huge");
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (400, Some("model_too_large")));
    assert_eq!(ask(server.address, "none").status, 404);
    assert_eq!(ask(server.address, "one").status, 200);
}

#[test]
fn the_least_used_makes_room_and_one_that_answers_does_not() {
    let (shelf, server) = serve(|options| options.memory = 250);
    for name in ["one", "two", "one", "three"] {
        assert_eq!(ask(server.address, name).status, 200, "{name}");
    }
    let states = || states(server.address);
    assert_eq!(
        (states()["one"].as_str(), states()["two"].as_str(), states()["three"].as_str()),
        ("loaded", "unloaded", "loaded")
    );
    // What was dropped has nothing under way and takes nothing more.
    let dropped = shelf.models.lock().unwrap()["two"].clone();
    wait_until("its scheduler ends", || {
        dropped.handle.counts().kept == 0 || dropped.handle.counts().running == 0
    });
    let stream = |name: &str| {
        let body = question("hello", json!({"model": name, "stream": true, "max_tokens": 4000})).to_string();
        send(server.address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes())
    };
    let busy = [stream("one"), stream("three")];
    let running = |name: &str| shelf.models.lock().unwrap()[name].handle.counts().running == 1;
    wait_until("both answer", || running("one") && running("three"));
    let refused = ask(server.address, "two");
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (503, "1"));
    drop(busy);
    wait_until("there is room again", || ask(server.address, "two").status == 200);
}

#[test]
fn models_go_when_their_time_is_over() {
    let (shelf, server) = serve(|options| options.keep_alive = KeepAlive::For(Duration::from_millis(50)));
    assert_eq!(ask(server.address, "one").status, 200);
    wait_until("it goes", || states(server.address)["one"] == "unloaded");
    let keep = |name: &str, keep: Value| {
        let body = json!({"model": name, "prompt": "a", "keep_alive": keep, "stream": false, "options": {"num_predict": 2}});
        assert_eq!(post(server.address, "/api/generate", &body).status, 200);
    };
    keep("one", json!(-1));
    keep("two", json!(0));
    wait_until("the second goes at once", || states(server.address)["two"] == "unloaded");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!((states(server.address)["one"].as_str(), shelf.loads("one")), ("loaded", 2));
}
