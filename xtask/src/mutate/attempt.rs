//! The one place where a mutant meets the libraries: read, lift, verify, plan, run. An error at any of these is what
//! a damaged file should give; the driver looks for everything else.

use std::fs;
use std::time::{Duration, Instant};

use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_runtime::{DataFile, Options, Program, RunControl, SessionOptions};
use pteron_tensor::Bytes;

use super::corpus::Damaged;
use crate::error::{Doing, Result};
use crate::start::Start;

/// How far a mutant got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// Refused as a file.
    Refused,
    /// A container, but no program could be made of it.
    Read,
    /// A program, but running it gave an error.
    Loaded,
    /// Ran to its end.
    Ran,
}

impl Reached {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reached::Refused => "refused",
            Reached::Read => "read",
            Reached::Loaded => "loaded",
            Reached::Ran => "ran",
        }
    }
}

/// A run is told to stop after this; a run that does not is what the driver's limit is for.
const DEADLINE: Duration = Duration::from_secs(2);

/// Runs the first step of a case whose files are sound but for one, on each of the backends. An error is about the case,
/// never the mutant.
pub(crate) fn attempt(damaged: &Damaged<'_>, backends: &[Options]) -> Result<Reached> {
    let (case, limits) = (damaged.case, Limits::untrusted());
    let file = |name: &str| -> Result<Bytes> {
        if name == damaged.file {
            return Ok(Bytes::copy_of(&damaged.mutant.bytes));
        }
        let path = case.folder.join(name);
        Ok(Bytes::copy_of(&fs::read(&path).doing("read", &path)?))
    };
    let program = file("model.pte")?;
    if Pte::read(program.clone(), &limits).is_err() {
        return Ok(Reached::Refused);
    }
    let mut data = vec![];
    for name in &case.description.data {
        data.push(DataFile { name: name.clone(), bytes: file(name)? });
    }
    let start = Start::read(case)?;
    let mut reached = Reached::Refused;
    for options in backends {
        reached = reached.max(run(&program, &data, options, &start));
    }
    Ok(reached)
}

fn run(program: &Bytes, data: &[DataFile], options: &Options, start: &Start) -> Reached {
    let Ok(program) = Program::load("model.pte", program.clone(), data, options) else {
        return Reached::Read;
    };
    let options = SessionOptions { cache: start.cache.clone(), ..SessionOptions::default() };
    let Ok(mut session) = program.session_with(&options) else { return Reached::Loaded };
    let control = RunControl { deadline: Some(Instant::now() + DEADLINE), ..RunControl::default() };
    match session.run_with(&start.method, &start.inputs, &control) {
        Ok(_) => Reached::Ran,
        Err(_) => Reached::Loaded,
    }
}
