//! Turn by turn: Pteron, the peer, Pteron, the peer; who begins changes from round to round. Each turn is a process of
//! its own that prints one JSON object.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::files::Pair;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// One model with one number of threads.
pub(crate) struct Measurement<'a> {
    pub(crate) pteron: &'a Path,
    pub(crate) python: PathBuf,
    pub(crate) files: &'a Pair,
    pub(crate) threads: usize,
    pub(crate) prompt: usize,
    pub(crate) new: usize,
    pub(crate) context: &'a [usize],
    pub(crate) backend: Option<&'a str>,
    pub(crate) precision: &'a str,
}

/// What one side says of one turn; both print these names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Turn {
    pub(crate) prefill: Option<Prefill>,
    pub(crate) decode: Vec<Decode>,
    pub(crate) load_s: f64,
    /// Where weights live; only Pteron says it.
    pub(crate) load: Option<String>,
    pub(crate) peak_bytes: Option<u64>,
    /// Bytes a second that plain reads reach; only Pteron measures it.
    pub(crate) read_limit_bytes_s: Option<f64>,
    /// Multiply-adds a second that the matrix unit reaches; only Pteron measures it.
    pub(crate) matrix_limit_multiply_adds_s: Option<f64>,
}

/// The prefill of a turn.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Prefill {
    pub(crate) tokens: usize,
    pub(crate) tok_s: Speed,
    pub(crate) multiply_adds_s: Option<f64>,
}

/// Decode at one depth of a turn.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Decode {
    pub(crate) context: usize,
    /// Seconds to the first token behind a prompt of that length.
    pub(crate) fill_s: f64,
    pub(crate) tok_s: Speed,
    pub(crate) bytes_per_token: Option<u64>,
}

/// Tokens a second.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Speed {
    pub(crate) median: f64,
}

/// All turns of both.
pub(crate) struct Turns {
    pub(crate) pteron: Vec<Turn>,
    pub(crate) peer: Vec<Turn>,
}

impl Measurement<'_> {
    pub(crate) fn take_turns(&self, rounds: usize, model: &str) -> Result<Turns> {
        let mut turns = Turns { pteron: vec![], peer: vec![] };
        for round in 0..rounds {
            eprintln!("{model}, {} threads: round {} of {rounds}", self.threads, round + 1);
            if round.is_multiple_of(2) {
                turns.pteron.push(self.pteron()?);
                turns.peer.push(self.peer()?);
            } else {
                turns.peer.push(self.peer()?);
                turns.pteron.push(self.pteron()?);
            }
        }
        Ok(turns)
    }

    fn pteron(&self) -> Result<Turn> {
        let mut command = Command::new(self.pteron);
        command.arg("bench").arg(&self.files.pte).args(["--json", "--precision", self.precision]);
        if let Some(backend) = self.backend {
            command.args(["--backend", backend]);
        }
        self.answer(command)
    }

    fn peer(&self) -> Result<Turn> {
        let mut command = Command::new(&self.python);
        // -B: no compiled modules in the checkout.
        command.arg("-B").arg(workspace::root().join("bench").join("peer.py")).arg(&self.files.gguf);
        self.answer(command)
    }

    fn answer(&self, mut command: Command) -> Result<Turn> {
        let context: Vec<String> = self.context.iter().map(ToString::to_string).collect();
        command.args([
            "--repeats",
            "1",
            "--threads",
            &self.threads.to_string(),
            "--context",
            &context.join(","),
        ]);
        command.args(["--prompt", &self.prompt.to_string(), "--new", &self.new.to_string()]);
        let program = command.get_program().to_owned();
        let output = command.stderr(Stdio::inherit()).output().doing("start", &program)?;
        if !output.status.success() {
            return Err(Error::message(format!("{} ended with {}", program.display(), output.status)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| Error::content(Path::new(&program), error))
    }
}
