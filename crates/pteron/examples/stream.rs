//! One answer, shown as it comes, with what happens before the first word: fetching, converting, loading.
//!
//! `cargo run --release -p pteron --example stream -- MODEL FOLDER PROMPT`

use pteron::{Cancel, Event, GenerateOptions, Model, OpenOptions};
use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;

pub(crate) fn run(model: &str, home: &str, prompt: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let needs = pteron::requirements(model, &OpenOptions::default().home(home))?;
    writeln!(out, "{} MiB of weights", needs.weights >> 20)?;
    let show = |event: Event<'_>| {
        if let Event::Fetching { file, bytes, .. } = event {
            let _ = write!(std::io::stderr(), "\r{file}: {} MiB", bytes >> 20);
        }
    };
    let model = Model::open(model, OpenOptions::default().home(home).progress(show))?;
    let options = GenerateOptions::default().max_tokens(128);
    // Another thread may end the answer with it.
    let cancel = Cancel::default();
    let answer = model.stream(prompt, &options, &cancel, |piece: &str| {
        match write!(out, "{piece}").and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    writeln!(out, "\n{}", answer.stats.summary())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, home, prompt] = arguments.as_slice() else {
        return Err("usage: stream MODEL FOLDER PROMPT".into());
    };
    run(model, home, prompt, &mut std::io::stdout())
}
