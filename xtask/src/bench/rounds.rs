//! Turn by turn: one side, the other, the other, the one, because who begins changes from round to round. Each turn is a
//! process of its own that prints one JSON object.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// What is measured of one model with one number of threads.
pub(crate) struct Measurement<'a> {
    pub(crate) threads: usize,
    pub(crate) prompt: usize,
    pub(crate) new: usize,
    pub(crate) context: &'a [usize],
    pub(crate) backend: Option<&'a str>,
    pub(crate) precision: &'a str,
    /// Numbers of sessions at once, in place of one; none for one.
    pub(crate) lanes: &'a [usize],
    /// The vector path that both sides are held to; each one's choice where there is none.
    pub(crate) path: Option<&'a str>,
    /// How often a turn measures; the median counts.
    pub(crate) repeats: usize,
}

/// What one side says of one turn; both print these names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Turn {
    pub(crate) prefill: Option<Prefill>,
    pub(crate) decode: Vec<Decode>,
    #[serde(default)]
    pub(crate) lanes: Vec<Together>,
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

/// Decode of several sessions at once.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Together {
    pub(crate) lanes: usize,
    pub(crate) context: usize,
    /// Of all of them together.
    pub(crate) tok_s: Speed,
}

impl Together {
    /// Whether both are of the same number of lanes at the same depth.
    pub(crate) fn is_like(&self, other: &Together) -> bool {
        (self.lanes, self.context) == (other.lanes, other.context)
    }
}

/// Tokens a second.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Speed {
    pub(crate) median: f64,
}

/// Takes turns between two sides: what the first gave, and the second, round by round.
pub(crate) fn take_turns<T>(
    rounds: usize,
    mut first: impl FnMut(usize) -> Result<T>,
    mut second: impl FnMut(usize) -> Result<T>,
) -> Result<(Vec<T>, Vec<T>)> {
    let (mut firsts, mut seconds) = (vec![], vec![]);
    for round in 0..rounds {
        if round.is_multiple_of(2) {
            firsts.push(first(round)?);
            seconds.push(second(round)?);
        } else {
            seconds.push(second(round)?);
            firsts.push(first(round)?);
        }
    }
    Ok((firsts, seconds))
}

impl Measurement<'_> {
    /// A turn of Pteron.
    pub(crate) fn pteron(&self, binary: &Path, program: &Path) -> Result<Turn> {
        let mut command = Command::new(binary);
        command.arg("bench").arg(program).args(["--json", "--precision", self.precision]);
        command.args(["--backend", self.backend.unwrap_or("cpu")]);
        self.answer(command)
    }

    /// A turn of the peer.
    pub(crate) fn peer(&self, python: &Path, gguf: &Path) -> Result<Turn> {
        let mut command = Command::new(python);
        // -B: no compiled modules in the checkout.
        command.arg("-B").arg(workspace::root().join("bench").join("peer.py")).arg(gguf);
        self.answer(command)
    }

    fn answer(&self, mut command: Command) -> Result<Turn> {
        let context: Vec<String> = self.context.iter().map(ToString::to_string).collect();
        command.args([
            "--repeats",
            &self.repeats.to_string(),
            "--threads",
            &self.threads.to_string(),
            "--context",
            &context.join(","),
        ]);
        command.args(["--prompt", &self.prompt.to_string(), "--new", &self.new.to_string()]);
        if !self.lanes.is_empty() {
            let lanes: Vec<String> = self.lanes.iter().map(ToString::to_string).collect();
            command.args(["--lanes", &lanes.join(",")]);
        }
        if let Some(path) = self.path {
            command.args(["--cpu", path]);
        }
        let program = command.get_program().to_owned();
        let output = command.stderr(Stdio::inherit()).output().doing("start", &program)?;
        if !output.status.success() {
            return Err(Error::message(format!("{} ended with {}", program.display(), output.status)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| Error::content(Path::new(&program), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn who_begins_changes_from_round_to_round() {
        let order = RefCell::new(String::new());
        let side = |name: char| {
            let order = &order;
            move |round: usize| {
                order.borrow_mut().push(name);
                Ok(round)
            }
        };
        let (first, second) = take_turns(3, side('a'), side('b')).unwrap();
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert_eq!((first, second), (vec![0, 1, 2], vec![0, 1, 2]));
    }
}
