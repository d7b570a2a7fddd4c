//! Two servers behind a proxy that sends each conversation to the one that has its beginning in its caches, as routers in
//! front of replicas do: by a hash of the first bytes of the prompt, and the gauges of both.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use support::{Running, chat, get, plain, question};

/// Bytes of a request's first message by which it finds its way.
const BEGINNING: usize = 64;

/// Reads one request and passes it on; the reply comes back as it is.
fn pass(client: TcpStream, servers: &[SocketAddr]) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let first = asked["messages"][0]["content"].as_str().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    first.as_bytes()[..first.len().min(BEGINNING)].hash(&mut hasher);
    let mut server = TcpStream::connect(servers[hasher.finish() as usize % servers.len()])?;
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    std::io::copy(&mut server, &mut &client)?;
    Ok(())
}

fn gauges(server: &Running) -> HashMap<String, f64> {
    let text = get(server.address, "/metrics").body;
    let gauge = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.split('{').next()?.to_owned(), value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(gauge).collect()
}

#[test]
fn conversations_go_where_their_beginning_is_in_the_caches() {
    let servers = [plain(), plain()];
    let addresses = servers.each_ref().map(|server| server.address);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || pass(client, &addresses));
        }
    });
    let turns = 3;
    for conversation in 0..6 {
        let system = format!("conversation {conversation} {}", "word ".repeat(30));
        let mut messages = vec![json!({"role": "system", "content": system})];
        for turn in 0..turns {
            messages.push(json!({"role": "user", "content": format!("turn {turn}")}));
            let reply = chat(proxy, &question("", json!({"messages": messages, "max_tokens": 8})));
            assert_eq!(reply.status, 200, "{reply:?}");
            let reply = reply.json();
            let usage = &reply["usage"];
            let (prompt, cached) = (
                usage["prompt_tokens"].as_u64().unwrap(),
                usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
            );
            if turn > 0 {
                assert!(cached * 2 > prompt, "turn {turn} of {conversation}: {cached} of {prompt}");
            }
            messages.push(json!({"role": "assistant", "content": reply["choices"][0]["message"]["content"]}));
        }
    }
    // A client has its answer a moment before the server has ended the request.
    let figures = servers.each_ref().map(|server| {
        let is_idle = |figures: &HashMap<String, f64>| figures["pteron:num_requests_running"] == 0.0;
        let seen = (0..200).map(|_| gauges(server));
        let mut waited = seen.inspect(|figures| {
            if !is_idle(figures) {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        waited.find(is_idle).expect("the last request ends within ten seconds")
    });
    let of = |name: &str| figures.each_ref().map(|figures| figures[&format!("pteron:{name}")]);
    let requests = of("requests_total");
    assert_eq!(requests.iter().sum::<f64>(), f64::from(6 * turns));
    assert!(requests.iter().all(|&count| count > 0.0), "both have work: {requests:?}");
    // What the routers ask for.
    for name in ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"] {
        assert_eq!(of(name), [0.0, 0.0], "{name}");
    }
    let (hits, queries) = (of("prefix_cache_hits_total"), of("prefix_cache_queries_total"));
    assert!(hits.iter().sum::<f64>() * 2.0 > queries.iter().sum::<f64>(), "{hits:?} of {queries:?}");
}
