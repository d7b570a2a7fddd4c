//! `pteron serve` from end to end: models that are loaded when somebody asks, one that hears, what is wrong with the command
//! line, and an end on SIGTERM.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use support::*;

/// A server that ends with its test.
struct Served {
    child: Child,
    address: String,
    // Whoever writes to a pipe that nobody holds gets an error.
    _told: BufReader<ChildStdout>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(folder: &Folder, arguments: &[&str]) -> Served {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    command
        .env("PTERON_HOME", folder.path("home"))
        .args(["serve", "--port", "0", "--threads", "1"])
        .args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let address = line.trim().split_once(" at http://").unwrap_or_else(|| panic!("{line:?}")).1;
    let address = address.trim_end_matches("/v1").to_owned();
    Served { child, address, _told: told }
}

impl Served {
    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, reply) = self.ask(method, path, "application/json", body.to_string().as_bytes());
        assert_eq!(status, 200, "{path}: {reply}");
        serde_json::from_str(&reply).unwrap()
    }

    fn states(&self) -> Vec<(String, String)> {
        let list = self.json("GET", "/v1/models", &Value::Null);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let models = list["data"].as_array().unwrap().iter();
        models.map(|model| (text(&model["id"]), text(&model["status"]["value"]))).collect()
    }
}

fn talking(folder: &Folder, name: &str) -> String {
    let place = folder.path(name);
    std::fs::create_dir(&place).unwrap();
    let made = pteron::tiny::talking(&place).unwrap();
    let path = place.join(format!("{name}.pte"));
    std::fs::rename(made, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn named(state: &[(String, String)]) -> Vec<(&str, &str)> {
    state.iter().map(|(name, state)| (name.as_str(), state.as_str())).collect()
}

#[test]
fn models_are_loaded_when_they_are_asked_for() {
    let folder = Folder::new();
    let (one, two) = (talking(&folder, "one"), talking(&folder, "two"));
    let ear = pteron::tiny::hearing(&folder.path("")).unwrap();
    let server = serve(&folder, &[&one, &two, "--speech", ear.to_str().unwrap()]);
    let ear = ear.file_stem().unwrap().to_str().unwrap();
    assert_eq!(named(&server.states()), [("one", "unloaded"), ("two", "unloaded"), (ear, "unloaded")]);
    let body = json!({"model": "two", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    let answer = server.json("POST", "/v1/chat/completions", &body);
    assert_eq!(
        (&answer["model"], &answer["usage"]["completion_tokens"]),
        (&json!("two"), &json!(4)),
        "{answer}"
    );
    assert_eq!(named(&server.states())[..2], [("one", "unloaded"), ("two", "loaded")]);
    let mut form = format!(
        "--XX\r\nContent-Disposition: form-data; name=model\r\n\r\n{ear}\r\n--XX\r\n\
         Content-Disposition: form-data; name=temperature\r\n\r\n0\r\n--XX\r\n\
         Content-Disposition: form-data; name=file; filename=a.wav\r\n\r\n"
    )
    .into_bytes();
    form.extend(pteron::tiny::sound(1.0));
    form.extend(b"\r\n--XX--\r\n");
    let heard = server.ask("POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=XX", &form);
    assert_eq!(heard, (200, json!({"text": "A", "usage": {"type": "duration", "seconds": 1.0}}).to_string()));
    let noise = String::from_utf8_lossy(&form).replace("RIFF", "NONE").replace("WAVE", "NONE");
    let refused =
        server.ask("POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=XX", noise.as_bytes());
    assert_eq!(refused.0, 400, "{}", refused.1);
}

#[test]
fn a_model_that_has_to_be_converted_first_answers_the_first_request() {
    let folder = Folder::new();
    let (model, tokenizer) = (checkpoint(&folder, "smollm2-bf16"), character_tokenizer(&folder));
    let server = serve(&folder, &[&model, "--tokenizer", &tokenizer]);
    let answer = server.json("POST", "/v1/completions", &json!({"prompt": "Hi", "max_tokens": 2}));
    assert_eq!(answer["usage"]["prompt_tokens"], 2, "{answer}");
}

#[test]
fn one_model_is_loaded_at_once_and_the_end_is_clean() {
    let folder = Folder::new();
    let one = talking(&folder, "one");
    let mut server = serve(&folder, &[&one, "--keep-alive", "1h", "--memory-budget", "2G"]);
    assert_eq!(named(&server.states()), [("one", "loaded")]);
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 3}, "stream": false});
    assert_eq!(server.json("POST", "/api/chat", &body)["eval_count"], 3);
    let stop = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(stop.success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_told_before_anybody_asks() {
    let folder = Folder::new();
    let one = talking(&folder, "one");
    let cases: [(&[&str], &str); 6] = [
        (&["no/such.pte"], "there is no file or folder"),
        (&["no-such-model-at-all"], "no-such-model-at-all"),
        (&[&one, &one], "two models would be called one"),
        (&[&one, "--keep-alive", "soon"], "is no time"),
        (&[&one, "--cors", "example.org"], "is no origin"),
        (&[&one, "--memory-budget", "1k"], "all models together may have 1024"),
    ];
    for (arguments, told) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
        command.env("PTERON_HOME", folder.path("home")).args(["serve", "--port", "0"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(told), "{arguments:?}: {stderr}");
    }
}
