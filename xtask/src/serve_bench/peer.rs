//! llama.cpp's library with as many sequences in one batch as there are clients, over the same tokens: a process of its own
//! that prints one JSON object.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::load::{Plan, Turn};
use crate::error::{Doing, Error, Result};
use crate::serving::scripts;

pub(super) fn run(python: &Path, gguf: &Path, plan: &Plan, threads: usize) -> Result<Turn> {
    let prompts: Vec<Vec<&[u32]>> = plan
        .clients
        .iter()
        .map(|client| client.iter().map(|prompt| prompt.tokens.as_slice()).collect())
        .collect();
    let asked = json!({"model": gguf, "threads": threads, "new": plan.new, "clients": prompts});
    let mut command = Command::new(python);
    // -B: no compiled modules in the checkout.
    command.arg("-B").arg(scripts().join("batched_peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().doing("start", python)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(asked.to_string().as_bytes()).doing("write to", "batched_peer.py")?;
    }
    let done = child.wait_with_output().doing("wait for", "batched_peer.py")?;
    if !done.status.success() {
        return Err(Error::message(format!("batched_peer.py ended with {}", done.status)));
    }
    serde_json::from_slice(&done.stdout).map_err(|error| Error::message(format!("batched_peer.py: {error}")))
}
