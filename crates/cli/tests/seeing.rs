//! Images through the binary: `run --image`, `/image` in a chat, and the four interfaces of the server, which all say the same of the
//! same image; and what is refused, in words that help.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use support::{Folder, Run, pteron, root};

fn image(name: &str) -> String {
    root().join("crates/checkpoint/tests/data/images").join(name).to_str().unwrap().to_owned()
}

fn encoded(name: &str) -> String {
    BASE64.encode(std::fs::read(image(name)).unwrap())
}

/// A tiny model that sees, as a program.
fn seeing(folder: &Folder, name: &str) -> String {
    let (from, to) = (root().join("crates/checkpoint/tests/data").join(name), folder.at("seeing.pte"));
    pteron(&["export", from.to_str().unwrap(), "-o", &to, "--activations", "f32"]);
    assert!(std::path::Path::new(&to).exists());
    to
}

/// What `run` says to a question about images: tokens, and their text.
fn said(model: &str, images: &[&str], question: &str) -> (Value, String) {
    let mut arguments =
        vec!["run", "--quiet", "--json", "--temperature", "0", "--max-new", "24", "--ignore-eos"];
    arguments.extend(["--threads", "1", "--model", model]);
    let files: Vec<String> = images.iter().map(|name| image(name)).collect();
    arguments.extend(files.iter().flat_map(|file| ["--image", file]));
    arguments.push(question);
    let report: Value = serde_json::from_str(&pteron(&arguments).ok()).unwrap();
    (report["tokens"].clone(), report["text"].as_str().unwrap().to_owned())
}

/// A chat with these lines.
fn chat(model: &str, lines: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    command.args(["chat", model, "--temperature", "0", "--max-new", "24", "--ignore-eos", "--threads", "1"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

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

impl Served {
    fn new(folder: &Folder, model: &str) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
        command.env("PTERON_HOME", folder.path("home"));
        command.args(["serve", "--port", "0", "--threads", "1", model]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        let address = line.trim().split_once(" at http://").unwrap_or_else(|| panic!("{line:?}")).1;
        let address = address.trim_end_matches("/v1").to_owned();
        Served { child, address, _told: told }
    }

    fn ask(&self, path: &str, body: &Value) -> (u16, Value) {
        let (mut stream, body) = (TcpStream::connect(&self.address).unwrap(), body.to_string());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// What each interface says to a question about images.
    fn answers(&self, images: &[&str], question: &str) -> Vec<(&'static str, Value)> {
        let data: Vec<String> = images.iter().map(|name| encoded(name)).collect();
        let parts = |image: &dyn Fn(&String) -> Value, text: Value| -> Value {
            data.iter().map(image).chain([text]).collect()
        };
        let url = |data: &String| format!("data:image/png;base64,{data}");
        let user = |content: Value| json!([{"role": "user", "content": content}]);
        let text = json!({"type": "text", "text": question});
        let chat = parts(&|data| json!({"type": "image_url", "image_url": {"url": url(data)}}), text.clone());
        let items = parts(
            &|data| json!({"type": "input_image", "image_url": url(data), "detail": "auto"}),
            json!({"type": "input_text", "text": question}),
        );
        let source = |data: &String| json!({"type": "base64", "media_type": "image/png", "data": data});
        let blocks = parts(&|data| json!({"type": "image", "source": source(data)}), text);
        let options = json!({"num_predict": 8, "temperature": 0});
        let talk = json!([{"role": "user", "content": question, "images": data}]);
        let asked = [
            (
                "/v1/chat/completions",
                json!({"messages": user(chat), "max_tokens": 8, "temperature": 0}),
                "/choices/0/message/content",
            ),
            (
                "/v1/responses",
                json!({"input": user(items), "max_output_tokens": 8, "temperature": 0}),
                "/output/0/content/0/text",
            ),
            (
                "/v1/messages",
                json!({"messages": user(blocks), "max_tokens": 8, "temperature": 0}),
                "/content/0/text",
            ),
            ("/api/chat", json!({"messages": talk, "options": options, "stream": false}), "/message/content"),
            (
                "/api/generate",
                json!({"prompt": question, "images": data, "options": options, "stream": false}),
                "/response",
            ),
        ];
        let ask = |(path, body, place): (&'static str, Value, &str)| {
            let (status, reply) = self.ask(path, &body);
            assert_eq!(status, 200, "{path}: {reply}");
            (path, reply.pointer(place).cloned().unwrap_or_else(|| panic!("{path}: {reply}")))
        };
        asked.into_iter().map(ask).collect()
    }
}

#[test]
fn run_and_chat_show_images() {
    for name in ["gemma3", "gemma4", "qwen2_5_vl"] {
        let folder = Folder::new();
        let model = seeing(&folder, name);
        let seen = said(&model, &["noise.png"], "What is that?");
        assert_ne!(seen, said(&model, &["grey.png"], "What is that?"), "{name}");
        assert_ne!(seen, said(&model, &[], "What is that?"), "{name}");
        let both = said(&model, &["noise.png", "grey.png"], "Both?");
        assert_ne!(both, said(&model, &["grey.png", "noise.png"], "Both?"), "{name}");

        let (seen, shown) = (seen.1.trim(), image("noise.png"));
        let talked =
            chat(&model, &format!("/image {shown} What is that?\n/undo\n/image {shown}\nWhat is that?\n"));
        assert_eq!(talked.code, 0, "{}", talked.stderr);
        assert_eq!(talked.stdout.matches(seen).count(), 2, "{name}: {:?}, not {seen:?}", talked.stdout);
        assert!(talked.stderr.contains("shown with the next question"), "{}", talked.stderr);
        // A question that is asked in place of the last one is about the same image.
        let talked = chat(&model, &format!("/image {shown} Who?\n/edit What is that?\n"));
        assert!(talked.stdout.contains(seen), "{name}: {:?}, not {seen:?}", talked.stdout);

        let missing = chat(&model, "/image /no/such.png\n/image\n");
        assert!(missing.stderr.contains("/no/such.png: "), "{}", missing.stderr);
        assert!(missing.stderr.contains("write an image's file behind /image"), "{}", missing.stderr);
    }
}

#[test]
fn what_is_not_seen_is_told() {
    let folder = Folder::new();
    let model = seeing(&folder, "gemma3");
    let text = folder.write("text.png", b"no image");
    let grey = image("grey.png");
    let wrong = pteron(&["run", "--model", &model, "--image", &grey, "--image", &text, "What?"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, ""));
    assert!(wrong.stderr.contains("text.png: it is no image; PNG and JPEG are read"), "{}", wrong.stderr);

    let blind = pteron::tiny::talking(&folder.path("")).unwrap();
    let wrong = pteron(&["run", "--model", blind.to_str().unwrap(), "--image", &grey, "What?"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    assert!(
        wrong.stderr.contains("does not see images") && wrong.stderr.contains("hint: "),
        "{}",
        wrong.stderr
    );
    let wrong = pteron(&["run", "--raw", "--image", &grey, "What?"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    let talked = chat(blind.to_str().unwrap(), &format!("/image {grey} What?\n"));
    assert_eq!((talked.code, talked.stdout.as_str()), (0, ""), "nothing is said");
    assert!(talked.stderr.contains("does not see images"), "{}", talked.stderr);
}

#[test]
fn all_interfaces_say_the_same_of_an_image() {
    for name in ["gemma3", "gemma4", "qwen2_5_vl"] {
        let folder = Folder::new();
        let server = Served::new(&folder, &seeing(&folder, name));
        for images in [&["noise.png"][..], &["wide.png", "grey.png"]] {
            let answers = server.answers(images, "What is that?");
            assert!(answers.iter().all(|(_, said)| *said == answers[0].1), "{name}: {answers:?}");
            assert_eq!(answers.len(), 5);
        }
        let about = server.ask("/api/show", &json!({"model": "seeing"})).1;
        assert!(about["capabilities"].as_array().unwrap().contains(&json!("vision")), "{about}");
    }
}

#[test]
fn images_that_are_not_sent_are_refused() {
    let folder = Folder::new();
    let server = Served::new(&folder, &seeing(&folder, "gemma3"));
    let part = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
    let (broken, far) = ("data:image/png;base64,AAAA", "https://example.org/cat.png");
    let input = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    let source = json!({"type": "url", "url": far});
    for (path, body, told) in [
        ("/v1/chat/completions", user(json!([part(far)])), "nothing is fetched: send its data"),
        ("/v1/chat/completions", user(json!([part(broken)])), "image 1: it is no image"),
        ("/v1/chat/completions", user(json!([part("data:image/png;base64,?")])), "no base64"),
        ("/v1/responses", input(json!({"type": "input_image", "image_url": far})), "nothing is fetched"),
        ("/v1/responses", input(json!({"type": "input_image", "file_id": "file-1"})), "files are not kept"),
        ("/v1/messages", user(json!([{"type": "image", "source": source}])), "nothing is fetched"),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "a", "images": ["?"]}]}), "no base64"),
        ("/api/generate", json!({"prompt": "a", "images": "AAAA"}), "list of images"),
    ] {
        let (status, reply) = server.ask(path, &body);
        assert!(status == 400 && reply.to_string().contains(told), "{path}: {status} {reply}");
    }

    let blind = pteron::tiny::talking(&folder.path("")).unwrap();
    let server = Served::new(&folder, blind.to_str().unwrap());
    let data = encoded("grey.png");
    let url = format!("data:image/png;base64,{data}");
    for (path, body) in [
        ("/v1/chat/completions", user(json!([part(&url)]))),
        ("/v1/responses", input(json!({"type": "input_image", "image_url": url}))),
        ("/api/chat", json!({"messages": [{"role": "user", "content": "a", "images": [data]}]})),
    ] {
        let (status, reply) = server.ask(path, &body);
        assert!(
            status == 400 && reply.to_string().contains("this model does not see images"),
            "{path}: {reply}"
        );
    }
}
