//! Conversations that are given as a file: a list of messages, or an object with `messages` and `tools`, as programs that call
//! models over the network write them.

use crate::failure::Failure;
use pteron::Messages;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any context holds.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a conversation from a file.
pub(crate) fn read(path: &Path) -> Result<Messages, Failure> {
    let wrong = |problem: String| {
        Failure::in_file(path, problem)
            .hint("a list of messages such as [{\"role\": \"user\", \"content\": \"Hello\"}]")
    };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::in_file(path, error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    let value = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("it is no JSON: {error}")))?;
    Messages::from_json(value).map_err(|error| wrong(error.to_string()))
}
