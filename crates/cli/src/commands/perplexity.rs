//! `pteron perplexity`: how surprised a model is by a text, and how far a fast run is from an exact one.

use crate::failure::{Answer, Failure};
use crate::output::{Json, Output};
use crate::talk::interrupt;
use crate::talk::load::Loading;
use indicatif::{ProgressBar, ProgressStyle};
use pteron::Model;
use pteron_llm::tokenizer::Ends;
use pteron_llm::{Decoder, Perplexity};
use pteron_runtime::RunControl;
use serde::Serialize;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longer texts are cut: their tokens would take hours anyway.
const LONGEST_TEXT: u64 = 256 << 20;

/// Measure how well a language model predicts a text
///
/// The text is cut into windows, each read from empty caches, with BOS in front where the tokenizer adds it; every token
/// but the first of a window is scored. A program that gives the logits of every token, or of those that it is asked for
/// (what `pteron export` writes), reads in chunks; others token by token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron perplexity model.pte book.txt --tokens 8192
  pteron perplexity model.gguf book.txt --tokens 2048 --divergence")]
pub(crate) struct Arguments {
    /// The model: a program, a GGUF file, a checkpoint folder, or a name
    model: String,
    /// A text in UTF-8
    text: PathBuf,
    /// Tokens of the text to use, from its beginning [default: all]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Tokens of a window
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..))]
    window: u32,
    /// Compare `--precision fast` with `exact` on the same text: mean KL divergence, and both perplexities
    #[arg(long)]
    divergence: bool,
    #[command(flatten)]
    loading: Loading,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    perplexity: f64,
    scored_tokens: usize,
    windows: usize,
    window_tokens: usize,
    tok_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast: Option<Fast>,
}

/// The fast run beside the exact one.
#[derive(Debug, Serialize)]
struct Fast {
    perplexity: f64,
    mean_kl_divergence: f64,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let text = read(&arguments.text)?;
    let (loaded, fast) = arguments.loading.load_to_score(&arguments.model, arguments.divergence)?;
    let mut decoder = loaded.decoder(0)?;
    let mut fast = fast.map(|fast| fast.decoder(0)).transpose()?;
    let windows = arguments.windows(&text, &loaded, &decoder)?;
    let control = RunControl { cancel: Some(interrupt::listen()?.flag()), ..RunControl::default() };
    let progress = bar(windows.len() as u64);
    let start = Instant::now();
    let mut sum = Perplexity::default();
    for window in &windows {
        sum.add(&mut decoder, fast.as_mut(), window, &control)?;
        progress.inc(1);
        progress.set_message(format!("{:.3}", sum.perplexity()));
    }
    progress.finish_and_clear();
    let report = Report {
        model: loaded.name().to_owned(),
        perplexity: sum.perplexity(),
        scored_tokens: sum.scored_tokens,
        windows: windows.len(),
        window_tokens: arguments.window as usize,
        tok_s: sum.scored_tokens as f64 / start.elapsed().as_secs_f64(),
        fast: fast
            .is_some()
            .then(|| Fast { perplexity: sum.other_perplexity(), mean_kl_divergence: sum.mean_divergence() }),
    };
    match arguments.json {
        true => out.json(&report, Json::OneLine)?,
        false => report.render(out)?,
    }
    Ok(Answer::Yes)
}

impl Arguments {
    /// The text as windows of tokens, each with the BOS that the tokenizer would put before it.
    fn windows(&self, text: &str, loaded: &Model, decoder: &Decoder) -> Result<Vec<Vec<u32>>, Failure> {
        let voice = loaded.voice()?;
        let mut tokens = voice.tokenizer.encode(text, Ends::None).map_err(Failure::new)?;
        if let Some(most) = self.tokens {
            tokens.truncate(most);
        }
        let bos = voice.leading()?;
        let size = self.window as usize;
        let needed = size.min(tokens.len()) + usize::from(bos.is_some());
        if let Some(context) = decoder.context().filter(|&context| context < needed) {
            return Err(Failure::usage(format!(
                "a window needs {needed} positions, and the context has {context}"
            ))
            .hint("ask for less with `--window N`"));
        }
        let windows =
            tokens.chunks(size).map(|window| bos.into_iter().chain(window.iter().copied()).collect());
        let windows: Vec<Vec<u32>> = windows.filter(|window: &Vec<u32>| window.len() > 1).collect();
        if windows.is_empty() {
            return Err(Failure::in_file(&self.text, "too short: there is no token to score"));
        }
        Ok(windows)
    }
}

impl Report {
    fn render(&self, out: &mut Output) -> Result<(), Failure> {
        out.line(format!(
            "perplexity {:.4} over {} tokens in {} windows of {}, {:.1} tok/s",
            self.perplexity, self.scored_tokens, self.windows, self.window_tokens, self.tok_s
        ))?;
        let Some(fast) = &self.fast else { return Ok(()) };
        out.line(format!(
            "fast: perplexity {:.4} ({:+.2} %), mean KL divergence {:.6}",
            fast.perplexity,
            (fast.perplexity / self.perplexity - 1.0) * 100.0,
            fast.mean_kl_divergence
        ))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::in_file(path, error);
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST_TEXT).read_to_end(&mut bytes))
        .map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| Failure::in_file(path, format!("not UTF-8: {error}")))
}

/// A bar on standard error; hidden where that is no terminal.
fn bar(windows: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:16} window {pos} of {len}, {eta}, perplexity {msg}");
    ProgressBar::new(windows).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
