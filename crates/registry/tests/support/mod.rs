//! A web server for tests: what it holds, and how it misbehaves, is given file by file.

#![allow(dead_code)] // each test file uses its part

pub(crate) mod bench;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A file of the server.
#[derive(Clone, Default)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    /// A strong tag of its version.
    pub(crate) tag: Option<String>,
    /// Whether ranges are answered.
    pub(crate) ranges: bool,
    /// The status, if not 200 or 206.
    pub(crate) status: Option<u16>,
    /// Where to go instead, with status 302 unless another is given.
    pub(crate) redirect: Option<String>,
    /// The answer ends with the connection, and nothing says where.
    pub(crate) endless: bool,
    /// Further headers.
    pub(crate) headers: Vec<(String, String)>,
    /// The first so many answers break off after so many bytes.
    pub(crate) breaks: Option<(usize, usize)>,
    /// A pause before each block of so many bytes.
    pub(crate) slow: Option<(Duration, usize)>,
    /// The first so many answers are this status instead.
    pub(crate) fails_first: Option<(usize, u16)>,
}

impl Page {
    pub(crate) fn of(bytes: &[u8]) -> Page {
        Page { bytes: bytes.to_vec(), ranges: true, ..Page::default() }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
}

/// The server; it ends with the process.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: String,
    pages: Arc<Mutex<HashMap<String, Page>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Server { address, pages: Arc::default(), requests: Arc::default() };
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                // A client that goes away is no failure of the server's.
                std::thread::spawn(move || own.answer(stream));
            }
        });
        server
    }

    pub(crate) fn put(&self, path: &str, page: Page) -> String {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
        format!("{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    fn answer(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let request = Request { method, path, headers };
        self.requests.lock().unwrap().push(request.clone());
        self.send(stream, &request)
    }

    fn send(&self, mut stream: TcpStream, request: &Request) -> Option<()> {
        let page = {
            let mut pages = self.pages.lock().unwrap();
            let page = pages.get_mut(&request.path);
            let now = page.as_deref().cloned();
            // What happens only so often is counted here.
            if let Some(page) = page {
                page.fails_first =
                    page.fails_first.and_then(|(times, code)| (times > 1).then(|| (times - 1, code)));
                if request.method == "GET" {
                    page.breaks = page.breaks.and_then(|(times, at)| (times > 1).then(|| (times - 1, at)));
                }
            }
            now.unwrap_or(Page { status: Some(404), ..Page::default() })
        };
        let mut head = String::new();
        let range = request.headers.get("range").filter(|_| page.ranges);
        let current = match (request.headers.get("if-range"), &page.tag) {
            (Some(asked), Some(tag)) => asked == tag,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let first: usize = match range.filter(|_| current) {
            Some(range) => range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()?,
            None => 0,
        };
        let mut status = if range.is_some() && current { 206 } else { 200 };
        let total = page.bytes.len();
        if first > total || first == total && first > 0 {
            status = 416;
        }
        if let Some((_, code)) = page.fails_first {
            status = code;
        }
        status = page.status.unwrap_or(status);
        if let Some(location) = &page.redirect {
            status = page.status.unwrap_or(302);
            head += &format!("Location: {location}\r\n");
        }
        for (name, value) in &page.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(tag) = &page.tag {
            head += &format!("ETag: {tag}\r\n");
        }
        let body = if matches!(status, 200 | 206) { &page.bytes[first..] } else { &[] };
        if status == 206 {
            head += &format!("Content-Range: bytes {first}-{}/{total}\r\n", total - 1);
        }
        if !page.endless {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{head}\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        if request.method == "HEAD" {
            return Some(());
        }
        let body = match page.breaks {
            Some((_, at)) => &body[..at.min(body.len())],
            None => body,
        };
        let (pause, block) = page.slow.unwrap_or((Duration::ZERO, body.len().max(1)));
        for block in body.chunks(block) {
            std::thread::sleep(pause);
            stream.write_all(block).ok()?;
        }
        Some(())
    }
}

/// Bytes that look like nothing else, the same for the same seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
