//! Who comes in and what they may take: readers that are slow, more connections than there may be, pages of other places,
//! and what is written down of all that.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Running, chat, get, head, plain, question, receive, send, serve, serve_named};

/// A server with one place, whose model has a name that fills the buffers between two machines within a few tokens.
fn wordy(change: impl FnOnce(&mut pteron_serve::Options)) -> Running {
    serve_named(&"name".repeat(50_000), |options| options.parallel = 1, change)
}

/// A stream of megabytes that nobody reads.
fn unread(server: &Running) -> TcpStream {
    let body = question("hello", json!({"model": null, "stream": true, "max_tokens": 4000})).to_string();
    let client = send(server.address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes());
    server.wait_until("it was under way", |counts| counts.requests == 1);
    client
}

fn goes_on(server: &Running) {
    let body = question("hi", json!({"model": null, "max_tokens": 2}));
    assert_eq!(chat(server.address, &body).status, 200);
}

#[test]
fn a_reader_that_takes_nothing_is_cut_and_frees_its_slot() {
    let server = wordy(|options| options.to_take = Duration::from_millis(200));
    let client = unread(&server);
    server.wait_until("the slot is free", |counts| counts.running == 0 && counts.cancelled == 1);
    goes_on(&server);
    drop(client);
}

#[test]
fn a_stream_holds_no_more_than_it_may() {
    let server = wordy(|options| options.most_unread = 16);
    let mut client = unread(&server);
    server.wait_until("the slot is free", |counts| counts.running == 0 && counts.cancelled == 1);
    // Who reads after all is told why it ends.
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("slow_reader"), "{}", &rest[rest.len() - 300..]);
    goes_on(&server);
}

/// Whether a connection has been closed from the other side.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

#[test]
fn connections_that_say_nothing_make_room_for_those_that_ask() {
    let server = serve(|_| (), |options| options.connections = 8);
    // The one that was idle the longest has gone, and the others have not.
    let idle: Vec<TcpStream> = (0..8).map(|_| send(server.address, "", b"")).collect();
    assert_eq!(get(server.address, "/health").status, 200);
    let end = Instant::now() + Duration::from_secs(30);
    while !is_closed(&idle[0]) {
        assert!(Instant::now() < end, "the first is still there");
    }
    assert!(!is_closed(&idle[7]));
    drop(idle);
    let half = head("POST", "/v1/chat/completions", "", 100);
    // Nothing, half a head, a head without its body.
    let said = ["", &half[..20], half.as_str()];
    for said in said.iter().cycle().take(9) {
        let mut idle = Vec::new();
        for _ in 0..8 {
            idle.push(send(server.address, said, b""));
        }
        assert_eq!(get(server.address, "/health").status, 200, "{said:?}");
        drop(idle);
    }
}

#[test]
fn a_flood_of_half_requests_keeps_nobody_out() {
    let server = serve(|_| (), |options| options.connections = 8);
    let half = &head("GET", "/health", "", 0)[..20];
    let flood: Vec<TcpStream> = (0..300).map(|_| send(server.address, half, b"")).collect();
    for _ in 0..20 {
        assert_eq!(get(server.address, "/health").status, 200);
    }
    drop(flood);
}

#[test]
fn where_all_connections_are_being_answered_others_are_told_so() {
    let server = serve(|options| options.parallel = 1, |options| options.connections = 4);
    let body = question("hello", json!({"stream": true, "max_tokens": 4000})).to_string();
    let ask = || send(server.address, &head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes());
    let answered: Vec<TcpStream> = (0..4).map(|_| ask()).collect();
    server.wait_until("all are under way or wait", |counts| counts.running + counts.waiting == 4);
    for _ in 0..5 {
        let mut reply = String::new();
        let mut stream = send(server.address, &head("GET", "/health", "", 0), b"");
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("Retry-After: 1"), "{reply}");
        assert!(reply.contains("too_many_connections"), "{reply}");
    }
    assert_eq!(server.counts().cancelled, 0, "nobody was cut off");
    // Whoever goes makes room.
    drop(answered);
    let end = Instant::now() + Duration::from_secs(30);
    while get(server.address, "/health").status != 200 {
        assert!(Instant::now() < end, "there is no room");
    }
    server.wait_until("every slot is free", |counts| counts.running + counts.waiting == 0);
}

#[test]
fn pages_of_other_places_may_ask_only_where_they_were_named() {
    let from = |origin: &str| format!("Origin: {origin}\r\n");
    let preflight = |origin: &str| {
        format!(
            "{}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n",
            from(origin)
        )
    };
    let body = question("hello", json!({"max_tokens": 2})).to_string();
    let ask = |server: &Running, more: &str| {
        receive(send(
            server.address,
            &head("POST", "/v1/chat/completions", more, body.len()),
            body.as_bytes(),
        ))
    };
    let first = |server: &Running, more: &str| {
        receive(send(server.address, &head("OPTIONS", "/v1/chat/completions", more, 0), b""))
    };
    let closed = plain();
    let reply = ask(&closed, &from("https://evil.example"));
    assert_eq!((reply.status, reply.headers.get("access-control-allow-origin")), (403, None));
    assert_eq!(first(&closed, &preflight("https://evil.example")).status, 403);
    // Its own page, and what is no page.
    assert_eq!(ask(&closed, &from("http://localhost")).status, 200);
    assert_eq!(ask(&closed, "").status, 200);

    let open = serve(
        |_| (),
        |options| {
            options.origins = vec!["https://chat.example".to_owned()];
            options.keys = vec!["key".to_owned()];
        },
    );
    let key = "Authorization: Bearer key\r\n";
    let reply = ask(&open, &format!("{key}{}", from("https://chat.example")));
    assert_eq!(
        (reply.status, reply.headers["access-control-allow-origin"].as_str()),
        (200, "https://chat.example")
    );
    assert_eq!(reply.headers["vary"], "origin");
    // Browsers ask without a key whether they may send one.
    let reply = first(&open, &preflight("https://chat.example"));
    assert_eq!(reply.status, 204);
    assert!(reply.headers["access-control-allow-headers"].contains("authorization"));
    // Errors can be read too, and other places stay out.
    let reply = ask(&open, &from("https://chat.example"));
    assert_eq!(
        (reply.status, reply.headers["access-control-allow-origin"].as_str()),
        (401, "https://chat.example")
    );
    let reply = ask(&open, &format!("{key}{}", from("https://evil.example")));
    assert_eq!((reply.status, reply.headers.get("access-control-allow-origin")), (403, None));
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn prompts_are_logged_only_where_somebody_asks_for_it() {
    let log = Log::default();
    let writer = log.clone();
    // For all threads of this process: other tests log too, but not these words.
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    let text = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let server = plain();
    assert_eq!(chat(server.address, &question("a secret word", json!({}))).status, 200);
    assert!(text().contains("/v1/chat/completions") && !text().contains("secret word"));
    let server = serve(|_| (), |options| options.log_prompts = true);
    assert_eq!(chat(server.address, &question("a public word", json!({}))).status, 200);
    assert!(text().contains("public word"));
}
