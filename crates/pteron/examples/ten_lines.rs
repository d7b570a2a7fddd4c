//! From a new crate to a streamed answer, as the README shows it.
//!
//! `cargo run --release -p pteron --example ten_lines`

#![allow(clippy::print_stdout, reason = "it is a program that tells something")]

use pteron::{ChatOptions, Model, OpenOptions};
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::open("smollm2-135m", OpenOptions::default().home("models"))?;
    let mut chat = model.chat(ChatOptions::default())?;
    chat.send("Why is the sky blue?", |piece: &str| {
        print!("{piece}");
        let _ = stdout().flush();
    })?;
    Ok(())
}
