//! `pteron embed`: the vectors of texts, and how well documents answer a question.

use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::home;
use crate::output::{Align, Json, Output, Table};
use crate::talk::load::source;
use pteron::Embedder;
use serde::Serialize;
use std::io::Read;
use std::path::PathBuf;

/// Longer texts are not read from standard input.
const LONGEST_TEXT: u64 = 64 << 20;

/// Make vectors of texts
///
/// One line a text: its vector, as numbers. Several texts that a person looks at become a table of how near each is to the others
/// (`--nearness`). With `--query`, a reranker says of each text how well it answers; other models say how near its vector is.
/// MODEL is a program, a folder of a BERT, RoBERTa or ModernBERT as Hugging Face and sentence-transformers publish them
/// (converted once and kept), or a name that `pteron list` shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron embed 'Why is the sky blue?'
  pteron embed --nearness 'a cat' 'a kitten' 'a car'
  pteron embed --query 'how do plants eat' 'Leaves turn light into sugar.' 'Cars burn petrol.'
  pteron embed --json - < book.txt")]
pub(crate) struct Arguments {
    /// The texts; `-` reads one a line from standard input
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// The model
    #[arg(long, value_name = "MODEL", default_value = "all-minilm-l6-v2")]
    model: String,
    /// Show how near the texts are to each other: the cosine of the angle between their vectors
    #[arg(long, conflicts_with = "query")]
    nearness: bool,
    /// Show how well each text answers this question
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// The tokenizer, where the model carries none
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Print one JSON object a text: {"text": ..., "embedding": [...]}, or with a number in place of the vector
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: Engine,
}

/// What `--json` prints of a text.
#[derive(Debug, Serialize)]
struct Line<'t> {
    text: &'t str,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<&'t [f32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearness: Option<Vec<f32>>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let mut options = home::options().engine(arguments.engine.for_library()?);
    if let Some(tokenizer) = &arguments.tokenizer {
        options = options.tokenizer(tokenizer);
    }
    let texts = arguments.texts()?;
    let embedder = Embedder::open(source(Some(&arguments.model)), options)?;
    match &arguments.query {
        Some(query) => answers(arguments, &embedder, query, &texts, out)?,
        None => vectors(arguments, &embedder, &texts, out)?,
    }
    Ok(Answer::Yes)
}

impl Arguments {
    fn texts(&self) -> Result<Vec<String>, Failure> {
        if self.texts != ["-"] {
            return Ok(self.texts.clone());
        }
        let mut text = String::new();
        let read = std::io::stdin().take(LONGEST_TEXT).read_to_string(&mut text);
        read.map_err(|error| Failure::new(format!("cannot read texts from standard input: {error}")))?;
        let lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        match lines.is_empty() {
            true => Err(Failure::usage("standard input has no text")),
            false => Ok(lines),
        }
    }
}

/// The vectors, or how near they are to each other.
fn vectors(
    arguments: &Arguments,
    embedder: &Embedder,
    texts: &[String],
    out: &mut Output,
) -> Result<(), Failure> {
    let vectors = embedder.embed(texts)?;
    let near = |vector: &[f32]| vectors.iter().map(|other| cosine(vector, other)).collect::<Vec<_>>();
    if arguments.nearness && !arguments.json {
        let mut table = Table::new(&[vec![Align::Right; texts.len()], vec![Align::Left]].concat());
        for (text, vector) in texts.iter().zip(&vectors) {
            let numbers = near(vector).into_iter().map(|cosine| format!("{cosine:.3}"));
            table.row(numbers.chain([text.clone()]));
        }
        return out.line(table.render(0));
    }
    for (text, vector) in texts.iter().zip(&vectors) {
        if arguments.json {
            let nearness = arguments.nearness.then(|| near(vector));
            let embedding = nearness.is_none().then_some(vector.as_slice());
            out.json(&Line { text, embedding, score: None, nearness }, Json::OneLine)?;
        } else {
            let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
            out.line(numbers.join(" "))?;
        }
    }
    Ok(())
}

/// How well each text answers, the best first.
fn answers(
    arguments: &Arguments,
    embedder: &Embedder,
    query: &str,
    texts: &[String],
    out: &mut Output,
) -> Result<(), Failure> {
    let scores: Vec<f32> = match embedder.scores() {
        // Of several numbers the first is the one that models are published with.
        true => embedder
            .score(query, texts)?
            .iter()
            .map(|numbers| numbers.first().copied().unwrap_or(0.0))
            .collect(),
        false => {
            let question = embedder.embed(&[query])?;
            let vectors = embedder.embed(texts)?;
            vectors.iter().map(|vector| cosine(&question[0], vector)).collect()
        }
    };
    let mut ranked: Vec<(&String, f32)> = texts.iter().zip(scores).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    if arguments.json {
        for (text, score) in ranked {
            out.json(&Line { text, embedding: None, score: Some(score), nearness: None }, Json::OneLine)?;
        }
        return Ok(());
    }
    let mut table = Table::new(&[Align::Right, Align::Left]);
    for (text, score) in ranked {
        table.row([format!("{score:.3}"), text.clone()]);
    }
    out.line(table.render(0))
}

/// The cosine of the angle between two vectors; 0 where one has no direction.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}
