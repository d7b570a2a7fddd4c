//! The process that runs mutants: under a limit on its address space, one number in, one line about it out. What kills
//! it is a finding, and the driver that started it sees that.

use std::any::Any;
use std::io::{BufRead, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Mutex;

use super::attempt::attempt;
use super::corpus::Corpus;
use crate::Outcome;
use crate::engine::Engine;
use crate::error::{Doing, Result};

/// Run mutants by number, as `mutate` asks for them on standard input.
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct WorkerArguments {
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) memory_mib: u64,
}

/// How a worker says that a mutant made it panic; the message follows.
pub(crate) const PANICKED: &str = "panicked";

/// Where the last panic was: the payload that `catch_unwind` gives does not know.
static PLACE: Mutex<String> = Mutex::new(String::new());

pub(crate) fn work(arguments: &WorkerArguments) -> Result<Outcome> {
    limit_address_space(arguments.memory_mib << 20)?;
    let corpus = Corpus::open(&arguments.folder, arguments.seed)?;
    let backends = Engine::ALL.map(Engine::options).into_iter().collect::<Result<Vec<_>>>()?;
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        *PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = place;
    }));
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.doing("read", "standard input")?;
        let Ok(index) = line.trim().parse() else { continue };
        let damaged = corpus.mutant(index)?;
        let answer = match panic::catch_unwind(AssertUnwindSafe(|| attempt(&damaged, &backends))) {
            Ok(reached) => reached?.word().to_string(),
            Err(payload) => {
                let place = PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                format!("{PANICKED} at {place}: {}", message(payload.as_ref()))
            }
        };
        writeln!(output, "{}", answer.replace('\n', " ")).doing("write", "standard output")?;
        output.flush().doing("write", "standard output")?;
    }
    Ok(Outcome::Good)
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(target_os = "linux")]
fn limit_address_space(bytes: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit).map_err(std::io::Error::from).doing("limit", "the address space")
}

/// Elsewhere an address space cannot be limited, or not usefully; everything but runaway allocations is still found.
#[cfg(not(target_os = "linux"))]
fn limit_address_space(_bytes: u64) -> Result<()> {
    Ok(())
}
