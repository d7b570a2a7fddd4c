//! What guessing tokens ahead wins and costs: greedy answers of real models to the prompts of `bench/prompts`, with guesses and
//! without, turn by turn, beside llama.cpp with its own prompt lookup. Prompts of prose have next to nothing to guess from:
//! of these the lowest ratio counts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Arguments;
use super::files::Files;
use super::rows::{aligned, median};
use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::language::pull;
use crate::workspace;

/// Published models, as the registry calls them.
const MODELS: [&str; 2] = ["smollm2-135m", "qwen2.5-coder-0.5b"];
/// Prompts whose answers repeat what they were given.
const REPEATING: [&str; 2] = ["summary", "edit"];
/// Tokens that the peer guesses at once, as it is built to.
const PEER_GUESSES: &str = "10";
/// Tokens of an answer, where nobody says how many.
const NEW: usize = 192;
/// What `auto` must reach of plain decode on every prompt.
const LEAST: f64 = 0.98;

/// Who answers, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Pteron with `--speculate` so.
    Pteron(&'static str),
    Peer,
    PeerLookup,
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Pteron(how) => format!("pteron {how}"),
            Way::Peer => "llama.cpp".to_owned(),
            Way::PeerLookup => "llama.cpp lookup".to_owned(),
        }
    }
}

/// What one side says of one answer.
struct Turn {
    tokens: Vec<u32>,
    tok_s: f64,
    proposed: usize,
    accepted: usize,
}

/// One way to answer one prompt.
#[derive(Serialize)]
struct Row {
    model: String,
    prompt: String,
    way: String,
    tok_s: f64,
    /// Its speed by that of plain decode, as the median over the rounds.
    ratio: f64,
    /// Tokens of the answer, and whether they are those of plain decode.
    tokens: usize,
    same: bool,
    proposed: usize,
    accepted: usize,
}

/// What `pteron run --json` prints, as far as it counts here.
#[derive(Deserialize)]
struct Answer {
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    decode_token_per_sec: Option<f64>,
    proposed_tokens: usize,
    accepted_tokens: usize,
}

#[derive(Deserialize)]
struct PeerAnswer {
    tokens: Vec<u32>,
    tok_s: f64,
}

struct Bench<'a> {
    pteron: PathBuf,
    /// The peer's Python, where it has been set up.
    python: Option<PathBuf>,
    threads: usize,
    new: usize,
    arguments: &'a Arguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<Outcome> {
    let models: Vec<&str> = match arguments.models.as_slice() {
        [] => MODELS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let python = Files::at(Cache::locate()?.benchmarks())?.lookup_python();
    let pteron = workspace::build_pteron()?;
    let new = arguments.new.unwrap_or(NEW);
    let mut rows = Vec::new();
    let threads = arguments.all_threads().into_iter().max().unwrap_or(1);
    let bench = Bench { pteron, python, threads, new, arguments };
    for model in &models {
        let gguf = pull(&bench.pteron, model)?;
        for (name, prompt, ways) in prompts(bench.python.is_some())? {
            rows.extend(bench.rows(model, &gguf, (&name, &prompt), &ways)?);
        }
    }
    let lowest = lowest(&rows);
    match arguments.json {
        true => {
            println!("{}", serde_json::to_string(&rows).map_err(|error| Error::message(error.to_string()))?)
        }
        false => {
            println!("{}\nlowest ratio of auto to plain on any prompt: {lowest:.3}", table(&rows));
        }
    }
    Ok(if lowest >= LEAST { Outcome::Good } else { Outcome::Bad })
}

/// Every prompt with its name, and the ways that it is answered in, plain decode first.
fn prompts(has_peer: bool) -> Result<Vec<(String, String, Vec<Way>)>> {
    let folder = workspace::root().join("bench").join("prompts");
    let read = |name: &str| {
        let path = folder.join(format!("{name}.txt"));
        fs::read_to_string(&path).doing("read", &path)
    };
    let mut all = Vec::new();
    for name in REPEATING {
        let mut ways = vec![Way::Pteron("off"), Way::Pteron("auto"), Way::Pteron("lookup")];
        if has_peer {
            ways.extend([Way::Peer, Way::PeerLookup]);
        }
        all.push((name.to_owned(), read(name)?, ways));
    }
    for (number, line) in (1..).zip(read("prose")?.lines()) {
        let ways = vec![Way::Pteron("off"), Way::Pteron("auto")];
        all.push((format!("prose {number}"), line.to_owned(), ways));
    }
    Ok(all)
}

impl Bench<'_> {
    fn rows(&self, model: &str, gguf: &Path, prompt: (&str, &str), ways: &[Way]) -> Result<Vec<Row>> {
        let rounds = usize::from(self.arguments.rounds.unwrap_or(3));
        eprintln!("{model}, {}: {rounds} rounds", prompt.0);
        let mut turns: Vec<Vec<Turn>> = ways.iter().map(|_| Vec::new()).collect();
        // The peer is given the tokens that Pteron made of the prompt.
        let mut ids = Vec::new();
        for round in 0..rounds {
            for at in 0..ways.len() {
                // Plain decode begins the first round, and somebody else each other.
                let at = (at + round) % ways.len();
                turns[at].push(self.turn(model, gguf, prompt.1, ways[at], &mut ids)?);
            }
        }
        let row = |(way, turns_of): (&Way, &Vec<Turn>)| {
            let speeds: Vec<f64> = turns_of.iter().map(|turn| turn.tok_s).collect();
            let ratios: Vec<f64> =
                turns_of.iter().zip(&turns[0]).map(|(turn, plain)| turn.tok_s / plain.tok_s).collect();
            let (turn, plain) = (turns_of.first()?, turns[0].first()?);
            Some(Row {
                model: model.to_owned(),
                prompt: prompt.0.to_owned(),
                way: way.name(),
                tok_s: median(&speeds)?,
                ratio: median(&ratios)?,
                tokens: turn.tokens.len(),
                same: turns_of.iter().all(|turn| turn.tokens == plain.tokens),
                proposed: turn.proposed,
                accepted: turn.accepted,
            })
        };
        Ok(ways.iter().zip(&turns).filter_map(row).collect())
    }

    fn turn(&self, model: &str, gguf: &Path, prompt: &str, way: Way, ids: &mut Vec<u32>) -> Result<Turn> {
        let (new, threads) = (self.new.to_string(), self.threads.to_string());
        let how = match way {
            Way::Pteron(how) => how,
            Way::Peer | Way::PeerLookup => {
                let Some(python) = &self.python else { return Err(Error::message("there is no peer")) };
                let mut command = Command::new(python);
                // -B: no compiled modules in the checkout.
                command.arg("-B").arg(workspace::root().join("bench").join("lookup_peer.py")).arg(gguf);
                command.args(["--new", &new, "--threads", &threads]);
                if way == Way::PeerLookup {
                    command.args(["--lookup", PEER_GUESSES]);
                }
                let given = serde_json::to_string(ids).map_err(|error| Error::message(error.to_string()))?;
                let PeerAnswer { tokens, tok_s } = answer(command, &given)?;
                return Ok(Turn { tokens, tok_s, proposed: 0, accepted: 0 });
            }
        };
        let mut command = Command::new(&self.pteron);
        command.args([
            "run",
            "--backend",
            "cpu",
            "--model",
            model,
            "--temperature",
            "0",
            "--json",
            "--speculate",
            how,
        ]);
        command.args(["--repetition-penalty", "1", "--max-new", &new, "--threads", &threads]);
        command.args(["--precision", &self.arguments.precision, "-"]);
        let Answer { prompt_tokens, tokens, stats } = answer(command, prompt)?;
        *ids = prompt_tokens;
        Ok(Turn {
            tokens,
            tok_s: stats.decode_token_per_sec.unwrap_or(0.0),
            proposed: stats.proposed_tokens,
            accepted: stats.accepted_tokens,
        })
    }
}

/// What a command prints when it is given something.
fn answer<T: for<'d> Deserialize<'d>>(mut command: Command, given: &str) -> Result<T> {
    let program = command.get_program().to_owned();
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = piped.spawn().doing("start", &program)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(given.as_bytes()).doing("give a prompt to", &program)?;
    }
    let output = child.wait_with_output().doing("run", &program)?;
    if !output.status.success() {
        return Err(Error::message(format!("{} ended with {}", program.display(), output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Error::content(Path::new(&program), error))
}

fn lowest(rows: &[Row]) -> f64 {
    let auto = Way::Pteron("auto").name();
    rows.iter().filter(|row| row.way == auto).map(|row| row.ratio).fold(f64::INFINITY, f64::min)
}

fn table(rows: &[Row]) -> String {
    let head = ["model", "prompt", "way", "tok/s", "by plain", "tokens", "same", "accepted"];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        [
            row.model.clone(),
            row.prompt.clone(),
            row.way.clone(),
            format!("{:.1}", row.tok_s),
            format!("{:.2}", row.ratio),
            row.tokens.to_string(),
            if row.same { "yes" } else { "no" }.to_owned(),
            match row.proposed {
                0 => String::new(),
                proposed => format!("{} of {proposed}", row.accepted),
            },
        ]
    }));
    aligned(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_is_there_and_prose_has_twenty() {
        let all = prompts(true).unwrap();
        assert!(all.iter().all(|(_, prompt, ways)| !prompt.is_empty() && ways[0] == Way::Pteron("off")));
        assert_eq!(all.iter().filter(|(name, ..)| name.starts_with("prose")).count(), 20);
        assert!(all[0].2.contains(&Way::PeerLookup) && !prompts(false).unwrap()[0].2.contains(&Way::Peer));
    }

    #[test]
    fn the_lowest_ratio_is_that_of_auto() {
        let row = |way: Way, ratio| Row {
            model: "m".to_owned(),
            prompt: "p".to_owned(),
            way: way.name(),
            tok_s: 1.0,
            ratio,
            tokens: 1,
            same: true,
            proposed: 4,
            accepted: 3,
        };
        let rows =
            [row(Way::Pteron("auto"), 1.2), row(Way::Pteron("auto"), 0.99), row(Way::Pteron("lookup"), 0.5)];
        assert_eq!(lowest(&rows), 0.99);
        assert!(table(&rows).contains("3 of 4"));
    }
}
