//! A conversation: every line of standard input is a question, and what was said before is remembered.
//!
//! `cargo run --release -p pteron --example chat -- MODEL FOLDER`: MODEL is a file or a name such as `smollm2-135m`, FOLDER is
//! where models are kept.

use pteron::{ChatOptions, GenerateOptions, Model, OpenOptions};
use std::error::Error;
use std::io::{BufRead, Write};

pub(crate) fn run(
    model: &str,
    home: &str,
    questions: impl BufRead,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let model = Model::open(model, OpenOptions::default().home(home))?;
    let brief = GenerateOptions::default().max_tokens(64);
    let mut chat = model.chat(ChatOptions::default().system("Answer in one sentence.").answering(brief))?;
    for question in questions.lines() {
        let answer = chat.send(&question?, |_: &str| {})?;
        let state = chat.cache_state();
        writeln!(out, "{}\n({} of {:?} tokens)", answer.text, state.position, state.capacity)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, home] = arguments.as_slice() else { return Err("usage: chat MODEL FOLDER".into()) };
    run(model, home, std::io::stdin().lock(), &mut std::io::stdout())
}
