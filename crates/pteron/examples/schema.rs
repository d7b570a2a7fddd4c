//! An answer that is JSON of a schema, and nothing else, whatever the model would rather say.
//!
//! `cargo run --release -p pteron --example schema -- MODEL FOLDER PROMPT`

use pteron::{GenerateOptions, Model, OpenOptions};
use serde_json::{Value, json};
use std::error::Error;

pub(crate) fn run(model: &str, home: &str, prompt: &str) -> Result<Value, Box<dyn Error>> {
    let model = Model::open(model, OpenOptions::default().home(home))?;
    let schema = json!({
        "type": "object",
        "properties": {
            "mood": {"enum": ["good", "bad"]},
            "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["mood", "stars"],
        "additionalProperties": false,
    });
    let answers = model.generate(prompt, &GenerateOptions::default().schema(schema))?;
    Ok(serde_json::from_str(&answers[0].text)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    use std::io::Write;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, home, prompt] = arguments.as_slice() else {
        return Err("usage: schema MODEL FOLDER PROMPT".into());
    };
    writeln!(std::io::stdout(), "{:#}", run(model, home, prompt)?)?;
    Ok(())
}
