//! Models that are no language models (`bench/make_vision.py`) on Pteron, on ExecuTorch's own runtime with XNNPACK, on ONNX Runtime and
//! on OpenVINO, turn by turn: milliseconds a run, time to load, peak memory, all in f32.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Arguments;
use super::record;
use super::rows::median;
use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// The models, as the scripts call them.
const MODELS: [&str; 5] = ["mobilenet-v2", "resnet-18", "vit-tiny", "bert-small", "whisper-tiny"];
/// The other engines, as the scripts call them.
const PEERS: [&str; 3] = ["xnnpack", "onnxruntime", "openvino"];
/// Runs of a turn.
const REPEATS: &str = "30";

/// What one engine says of one turn; all print these names.
#[derive(Deserialize)]
struct Turn {
    load_s: f64,
    run_ms: Times,
    peak_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Times {
    median: f64,
}

/// One engine on one model.
#[derive(Serialize)]
struct Row {
    model: String,
    threads: usize,
    engine: String,
    run_ms: f64,
    low_ms: f64,
    high_ms: f64,
    /// The engine's time by Pteron's, as the median over the rounds: above 1 Pteron is faster.
    ratio: f64,
    load_s: f64,
    peak_bytes: Option<u64>,
}

/// What is needed to measure.
struct Bench {
    folder: PathBuf,
    python: PathBuf,
    packages: PathBuf,
    pteron: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Outcome> {
    let models = match arguments.models.as_slice() {
        [] => MODELS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    if let Some(name) = models.iter().find(|name| !MODELS.contains(name)) {
        let known = MODELS.join(", ");
        return Err(Error::message(format!("{name} is none of the models of --vision: {known}")));
    }
    let cache = Cache::locate()?;
    let folder = cache.benchmarks().join("vision");
    fs::create_dir_all(&folder).doing("make", &folder)?;
    if !cache.python().exists() {
        return Err(Error::message("there is no Python environment; `cargo xtask cases` makes it"));
    }
    let packages = folder.join("packages");
    let bench = Bench { python: cache.python(), packages, pteron: workspace::build_pteron()?, folder };
    bench.set_up()?;
    let rounds = usize::from(arguments.rounds.unwrap_or(5));
    let mut rows = Vec::new();
    for model in models {
        bench.make(model)?;
        for threads in arguments.all_threads() {
            let mut turns: Vec<Vec<Turn>> = Vec::new();
            for round in 0..rounds {
                eprintln!("{model}, {threads} threads: round {} of {rounds}", round + 1);
                turns.push(bench.round(model, threads, round)?);
            }
            rows.extend(rows_of(model, threads, &turns));
        }
    }
    match arguments.json {
        true => {
            println!("{}", serde_json::to_string(&rows).map_err(|error| Error::message(error.to_string()))?)
        }
        false => record::show(arguments.record.as_deref(), "Vision and encoders, f32", 3, &lines(&rows))?,
    }
    Ok(Outcome::Good)
}

impl Bench {
    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        // -B: no compiled modules in the checkout.
        command.arg("-B").arg(workspace::root().join("bench").join(name)).env("PYTHONPATH", &self.packages);
        command
    }

    fn set_up(&self) -> Result<()> {
        let script = workspace::root().join("bench").join("vision_setup.sh");
        let mut command = Command::new("sh");
        command.arg(&script).arg(&self.python).arg(&self.packages);
        succeed(command, "vision_setup.sh")
    }

    /// Makes the programs of a model that are not there yet.
    fn make(&self, model: &str) -> Result<()> {
        let exported = self.folder.join(format!("{model}.pt2"));
        if !exported.exists() {
            let mut command = self.script("make_vision.py");
            command.arg(&self.folder).arg(model);
            succeed(command, "make_vision.py")?;
        }
        let mut command = self.script("vision_peer.py");
        command.arg("make").arg(&self.folder).arg(model);
        succeed(command, "vision_peer.py")?;
        // Ours is made anew: it is the compiler that is measured, too.
        let mut command = Command::new(&self.pteron);
        command.arg("compile").arg(&exported).arg("--output").arg(self.program(model));
        succeed(command, "pteron compile")
    }

    fn program(&self, model: &str) -> PathBuf {
        self.folder.join(format!("{model}.pte"))
    }

    /// A turn of every engine, Pteron first; who begins changes from round to round.
    fn round(&self, model: &str, threads: usize, round: usize) -> Result<Vec<Turn>> {
        let count = 1 + PEERS.len();
        let mut turns: Vec<Option<Turn>> = (0..count).map(|_| None).collect();
        for at in 0..count {
            let engine = (at + round) % count;
            turns[engine] = Some(self.turn(model, threads, engine)?);
        }
        Ok(turns.into_iter().flatten().collect())
    }

    fn turn(&self, model: &str, threads: usize, engine: usize) -> Result<Turn> {
        let threads = threads.to_string();
        let mut command = match engine.checked_sub(1) {
            None => {
                let mut command = Command::new(&self.pteron);
                command.arg("bench").arg(self.program(model)).arg("--json");
                command.arg("--input").arg(self.folder.join(format!("{model}.npy")));
                command
            }
            Some(peer) => {
                let mut command = self.script("vision_peer.py");
                command.arg("run").arg(&self.folder).args([model, PEERS[peer]]);
                command
            }
        };
        command.args(["--threads", &threads, "--repeats", REPEATS]);
        let program = command.get_program().to_owned();
        let output = command.stderr(Stdio::inherit()).output().doing("start", &program)?;
        if !output.status.success() {
            return Err(Error::message(format!("{} ended with {}", program.display(), output.status)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| Error::content(Path::new(&program), error))
    }
}

fn succeed(mut command: Command, what: &str) -> Result<()> {
    // What a script prints is no part of the table.
    let status = command.stdout(Stdio::null()).status().doing("start", what)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::message(format!("{what} ended with {status}"))),
    }
}

/// A row for each engine; rounds have Pteron first.
fn rows_of(model: &str, threads: usize, rounds: &[Vec<Turn>]) -> Vec<Row> {
    let engines = ["pteron"].into_iter().chain(PEERS);
    let row = |(at, engine): (usize, &str)| {
        let times: Vec<f64> = rounds.iter().map(|turns| turns[at].run_ms.median).collect();
        let ratios: Vec<f64> =
            rounds.iter().map(|turns| turns[at].run_ms.median / turns[0].run_ms.median).collect();
        let loads: Vec<f64> = rounds.iter().map(|turns| turns[at].load_s).collect();
        Some(Row {
            model: model.to_owned(),
            threads,
            engine: engine.to_owned(),
            run_ms: median(&times)?,
            low_ms: times.iter().copied().fold(f64::INFINITY, f64::min),
            high_ms: times.iter().copied().fold(0.0, f64::max),
            ratio: median(&ratios)?,
            load_s: median(&loads)?,
            peak_bytes: rounds.iter().filter_map(|turns| turns[at].peak_bytes).max(),
        })
    };
    engines.enumerate().filter_map(row).collect()
}

fn lines(rows: &[Row]) -> Vec<[String; 9]> {
    let head = ["model", "threads", "engine", "ms", "low", "high", "by Pteron's", "load ms", "peak MB"];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        [
            row.model.clone(),
            row.threads.to_string(),
            row.engine.clone(),
            format!("{:.2}", row.run_ms),
            format!("{:.2}", row.low_ms),
            format!("{:.2}", row.high_ms),
            format!("{:.2}", row.ratio),
            format!("{:.0}", row.load_s * 1e3),
            row.peak_bytes.map(|bytes| format!("{:.0}", bytes as f64 / 1e6)).unwrap_or_default(),
        ]
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_one_round() {
        let turn = |median: f64| Turn { load_s: 0.1, run_ms: Times { median }, peak_bytes: None };
        // Everything takes twice as long in the second round.
        let rounds: Vec<Vec<Turn>> =
            [1.0, 2.0, 1.0].iter().map(|by| [4.0, 6.0, 8.0, 2.0].map(|ms| turn(ms * by)).into()).collect();
        let rows = rows_of("m", 1, &rounds);
        let ratios: Vec<f64> = rows.iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [1.0, 1.5, 2.0, 0.5]);
        assert_eq!((rows[1].low_ms, rows[1].high_ms, rows[1].engine.as_str()), (6.0, 12.0, "xnnpack"));
        assert!(lines(&rows)[0].contains(&"by Pteron's".to_owned()));
    }
}
