//! A small HTTP client over plain sockets: one request a connection, bodies whole, in chunks or until the end, read as they
//! come, so that the time of every piece is that of its arrival. For servers of ours on this machine and nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::error::{Doing, Error, Result};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Asks one server.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    key: Option<String>,
}

impl Client {
    pub(crate) fn new(address: &str, key: Option<&str>) -> Client {
        Client { address: address.to_owned(), key: key.map(str::to_owned) }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Reply> {
        self.send(path, "GET", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &serde_json::Value) -> Result<Reply> {
        self.send(path, "POST", body.to_string().as_bytes())
    }

    /// Any bytes as a body that claims to be JSON.
    pub(crate) fn send(&self, path: &str, method: &str, body: &[u8]) -> Result<Reply> {
        let mut stream = TcpStream::connect(&self.address).doing("connect to", &self.address)?;
        let key = self.key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{key}\r\n",
            self.address,
            body.len()
        );
        let sent = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_nodelay(true));
        sent.and_then(|()| stream.write_all(&[head.as_bytes(), body].concat()))
            .doing("write to", &self.address)?;
        Reply::read(BufReader::new(stream))
    }
}

/// A reply whose body is still to come.
pub(crate) struct Reply {
    pub(crate) status: u16,
    body: Body,
}

struct Body {
    stream: BufReader<TcpStream>,
    /// Whether it comes in chunks.
    chunked: bool,
    /// Bytes to come of this chunk, or of all of it where that is known.
    left: u64,
    ended: bool,
}

impl Reply {
    fn read(mut stream: BufReader<TcpStream>) -> Result<Reply> {
        let mut status = None;
        let (mut chunked, mut length) = (false, u64::MAX);
        loop {
            let line = line(&mut stream)?;
            if line.is_empty() {
                break;
            }
            if status.is_none() {
                let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                status = Some(code.ok_or_else(|| Error::message(format!("no reply of HTTP: {line:?}")))?);
            }
            let lower = line.to_ascii_lowercase();
            chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
            if let Some(given) = lower.strip_prefix("content-length:") {
                length = given.trim().parse().map_err(|_| Error::message(format!("{line:?}")))?;
            }
        }
        let status = status.ok_or_else(|| Error::message("an empty reply"))?;
        let left = if chunked { 0 } else { length };
        Ok(Reply { status, body: Body { stream, chunked, left, ended: false } })
    }

    /// All of the body.
    pub(crate) fn text(mut self) -> Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text).doing("read", "a reply")?;
        Ok(text)
    }

    pub(crate) fn json(self) -> Result<serde_json::Value> {
        let (status, text) = (self.status, self.text()?);
        serde_json::from_str(&text)
            .map_err(|error| Error::message(format!("status {status}, {error}: {text}")))
    }

    /// The data of a stream's events as they come.
    pub(crate) fn events(self) -> impl Iterator<Item = Result<String>> {
        let lines = BufReader::new(self.body).lines();
        lines.filter_map(|line| match line {
            Ok(line) => line.strip_prefix("data: ").map(|data| Ok(data.to_owned())),
            Err(error) => Some(Err(error).doing("read", "a stream")),
        })
    }
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.take(64 << 10).read_line(&mut line).doing("read", "a reply")?;
    Ok(line.trim_end().to_owned())
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.chunked && self.left == 0 && !self.ended {
            let size = chunk_size(&mut self.stream)?;
            self.ended = size == 0;
            self.left = size;
        }
        if self.ended || self.left == 0 {
            return Ok(0);
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.stream.read(&mut buffer[..most])?;
        self.left -= read as u64;
        if self.chunked && read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if self.chunked && self.left == 0 {
            // The line end behind a chunk.
            self.stream.read_exact(&mut [0; 2])?;
        }
        Ok(read)
    }
}

fn chunk_size(stream: &mut impl BufRead) -> std::io::Result<u64> {
    let mut size = String::new();
    stream.take(64).read_line(&mut size)?;
    let wrong = |_| std::io::Error::from(std::io::ErrorKind::InvalidData);
    u64::from_str_radix(size.trim(), 16).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a client reads of a reply with these bytes.
    fn answered(bytes: &'static [u8]) -> Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(bytes).unwrap();
        });
        let reply = Client::new(&address, Some("k")).get("/");
        server.join().unwrap();
        reply
    }

    #[test]
    fn bodies_are_read_whole_in_chunks_and_until_the_end() {
        let cases: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nhello",
        ];
        for bytes in cases {
            let reply = answered(bytes).unwrap();
            assert_eq!((reply.status, reply.text().unwrap().as_str()), (200, "hello"));
        }
    }

    #[test]
    fn a_stream_is_its_events_and_one_that_breaks_off_is_an_error() {
        let whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\nb\r\n: x\n\ndata: \r\n3\r\nb\n\n\r\n0\r\n\r\n";
        let events: Vec<_> = answered(whole).unwrap().events().map(Result::unwrap).collect();
        assert_eq!(events, ["a", "b"]);
        let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata";
        assert!(answered(broken).unwrap().events().any(|event| event.is_err()));
        assert!(answered(b"nonsense\r\n\r\n").is_err());
    }
}
