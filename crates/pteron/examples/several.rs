//! Several conversations at once: each has caches of its own, and all of them share the weights.
//!
//! `cargo run --release -p pteron --example several -- MODEL FOLDER QUESTION...`

use pteron::{ChatOptions, GenerateOptions, Model, OpenOptions};
use std::error::Error;

pub(crate) fn run(model: &str, home: &str, questions: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let model = Model::open(model, OpenOptions::default().home(home).threads(1))?;
    let ask = |question: &str| -> pteron::Result<String> {
        let options = ChatOptions::default().answering(GenerateOptions::default().max_tokens(32));
        Ok(model.chat(options)?.send(question, |_: &str| {})?.text)
    };
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = questions.iter().map(|question| scope.spawn(|| ask(question))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut texts = Vec::new();
    for answer in answers {
        texts.push(answer.map_err(|_| "a conversation ended in a panic")??);
    }
    Ok(texts)
}

fn main() -> Result<(), Box<dyn Error>> {
    use std::io::Write;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, home, questions @ ..] = arguments.as_slice() else {
        return Err("usage: several MODEL FOLDER QUESTION...".into());
    };
    let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
    for (question, answer) in questions.iter().zip(run(model, home, &questions)?) {
        writeln!(std::io::stdout(), "{question}\n  {answer}")?;
    }
    Ok(())
}
