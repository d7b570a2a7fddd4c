//! Crowds: thousands of connections that say nothing, half of a request, or take nothing of the answers that they asked for.
//! Others must be answered meanwhile, and what the server holds is looked at.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::messages;
use super::mixed::free;
use crate::Outcome;
use crate::error::{Doing, Result};
use crate::serving::{Client, Server};

/// How often others ask while a crowd is there.
const ASKED: usize = 50;
/// How long anybody may have to wait for a word of the server's health.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a crowd does.
#[derive(Clone, Copy)]
enum Manner {
    Silent,
    /// The beginning of a request's head.
    HalfHead,
    /// A head whose body never comes.
    HalfRequest,
    /// A request whose answer nobody takes.
    Unread,
}

const MANNERS: [(Manner, &str); 4] = [
    (Manner::Silent, "say nothing"),
    (Manner::HalfHead, "send half a head"),
    (Manner::HalfRequest, "send no body"),
    (Manner::Unread, "read nothing"),
];

pub(super) fn run(
    start: impl Fn(Option<usize>) -> Result<Server>,
    model: &str,
    crowd: usize,
) -> Result<Outcome> {
    let mut good = true;
    // Room for all, and for those who ask meanwhile.
    for (places, told) in [(None, "the usual places"), (Some(crowd + 64), "places for all")] {
        let server = start(places)?;
        println!("{crowd} connections, {told}");
        for (manner, what) in MANNERS {
            good &= stand(&server, model, crowd, manner, what)?;
        }
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Opens all of them and lets others ask meanwhile; whether these were answered and nothing is left behind.
fn stand(server: &Server, model: &str, crowd: usize, manner: Manner, what: &str) -> Result<bool> {
    let client = server.client();
    let before = server.resident().map_or(0, |resident| resident.bytes);
    let began = Instant::now();
    let said = said(manner, model);
    let mut standing = Vec::with_capacity(crowd);
    for _ in 0..crowd {
        let mut stream = TcpStream::connect(server.address()).doing("connect to", server.address())?;
        // One that was closed already is told so by the next read, of which there is none.
        let _ = stream.write_all(said.as_bytes());
        standing.push(stream);
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut slowest = Duration::ZERO;
    let mut healthy = 0;
    for _ in 0..ASKED {
        let asked = Instant::now();
        healthy += usize::from(client.get("/health").is_ok_and(|reply| reply.status == 200));
        slowest = slowest.max(asked.elapsed());
    }
    let most = server.resident().map_or(0, |resident| resident.bytes);
    let answered = matches!(manner, Manner::Unread) || answers(&client, model);
    drop(standing);
    let free = free(server)?;
    let after = server.resident().map_or(0, |resident| resident.bytes);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "  {what:16}  opened in {seconds:.2} s; healthy {healthy} of {ASKED}, slowest {:.0} ms; {:.1} MB before, {:.1} MB \
         meanwhile, {:.1} MB after; answers {}; slots {}",
        slowest.as_secs_f64() * 1e3,
        megabytes(before),
        megabytes(most),
        megabytes(after),
        if answered { "come" } else { "DO NOT COME" },
        if free { "all free" } else { "NOT all free" },
    );
    Ok(healthy == ASKED && slowest < PATIENCE && answered && free)
}

/// Whether somebody else is answered.
fn answers(client: &Client, model: &str) -> bool {
    let body = json!({"model": model, "messages": messages("Hello."), "max_tokens": 4});
    client.post("/v1/chat/completions", &body).is_ok_and(|reply| reply.status == 200 && reply.json().is_ok())
}

fn said(manner: Manner, model: &str) -> String {
    let body = json!({"model": model, "messages": messages("Count to a thousand."), "max_tokens": 400, "stream": true});
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    match manner {
        Manner::Silent => String::new(),
        Manner::HalfHead => head[..head.len() / 2].to_owned(),
        Manner::HalfRequest => head,
        Manner::Unread => head + &body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_say_as_much_as_they_should() {
        let [silent, half, head, whole] = MANNERS.map(|(manner, _)| said(manner, "m"));
        assert_eq!(
            (silent.as_str(), half.contains("\r\n\r\n"), head.ends_with("\r\n\r\n")),
            ("", false, true)
        );
        let (_, body) = whole.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
