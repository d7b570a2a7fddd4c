//! What a token takes without a border between languages, as the runners of the scenarios measure it with one.
//!
//! `cargo run --release -p pteron-bindings --example endure -- MODEL`

#![allow(clippy::print_stdout, reason = "it is a program that tells something")]

use pteron::{ChatOptions, GenerateOptions, Model, OpenOptions};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: endure MODEL")?;
    let model = Model::open(file.as_str(), OpenOptions::default())?;
    let lasting = GenerateOptions::default().max_tokens(200).temperature(0.0).ignore_end(true);
    let mut least = f64::INFINITY;
    for _ in 0..40 {
        let mut chat = model.chat(ChatOptions::default().answering(lasting.clone()))?;
        let begun = Instant::now();
        let answer = chat.send("Hello", |_: &str| {})?;
        least = least.min(begun.elapsed().as_secs_f64() * 1e6 / answer.tokens.len() as f64);
    }
    println!("{least}");
    Ok(())
}
