//! Runs one target over its seeds, then for some seconds over what chance makes of them, and ends with an error at the first
//! input that does not hold: it panics, takes too long or too much memory. That input is kept.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program for developers

use pteron_fuzz_targets::changes::Chance;
use pteron_fuzz_targets::{TARGETS, Target, memory};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: pteron-fuzz-targets TARGET SECONDS LONGEST MEMORY_MIB TIMEOUT KEPT SEEDS...";

/// Panics that were not expected: a target that counts on guards sets a hook of its own.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Walk::of(&arguments) {
        Some(walk) => walk.run(),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What is run over what, and how far.
struct Walk {
    name: String,
    target: Target,
    seconds: Duration,
    longest: usize,
    memory: usize,
    timeout: Duration,
    kept: PathBuf,
    seeds: Vec<Vec<u8>>,
}

/// The input that is being looked at, and since when.
type Now = Arc<Mutex<(Instant, Vec<u8>)>>;

impl Walk {
    fn of(arguments: &[String]) -> Option<Walk> {
        let [name, seconds, longest, memory, timeout, kept, folders @ ..] = arguments else { return None };
        let (_, target) = *TARGETS.iter().find(|(known, _)| known == name)?;
        let mut files: Vec<PathBuf> = Vec::new();
        for folder in folders {
            files.extend(fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())));
        }
        // In one order everywhere, or chance would make other inputs of them.
        files.sort();
        Some(Walk {
            name: name.clone(),
            target,
            seconds: Duration::from_secs_f64(seconds.parse().ok()?),
            longest: longest.parse().ok()?,
            memory: memory.parse::<usize>().ok()?.checked_mul(1 << 20)?,
            timeout: Duration::from_secs(timeout.parse().ok()?),
            kept: PathBuf::from(kept),
            seeds: files.iter().map(fs::read).collect::<Result<_, _>>().ok()?,
        })
    }

    fn run(&self) -> ExitCode {
        let now = Now::new(Mutex::new((Instant::now(), Vec::new())));
        watch(now.clone(), self.memory, self.timeout, &self.kept);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            usual(panic);
        }));
        let (began, mut runs) = (Instant::now(), 0usize);
        let beginning = self.name.bytes().fold(0, |all, byte| all * 31 + u64::from(byte));
        let mut chance = Chance::new(beginning);
        loop {
            let input = match self.seeds.get(runs) {
                Some(seed) => seed[..seed.len().min(self.longest)].to_vec(),
                None if began.elapsed() > self.seconds => break,
                None => chance.input(&self.seeds, self.longest),
            };
            *now.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), input.clone());
            let panics = PANICS.load(Ordering::Relaxed);
            let ended = catch_unwind(AssertUnwindSafe(|| (self.target)(&input)));
            if ended.is_err() || PANICS.load(Ordering::Relaxed) != panics {
                keep(&self.kept, &input, &format!("run {runs} panicked"));
                return ExitCode::FAILURE;
            }
            runs += 1;
        }
        println!("{}: {runs} runs, nothing found", self.name);
        ExitCode::SUCCESS
    }
}

/// Ends the process when an input takes too long, or all that is held too much.
fn watch(now: Now, memory: usize, timeout: Duration, kept: &Path) {
    let kept = kept.to_owned();
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(50));
            let (since, input) = &*now.lock().unwrap_or_else(PoisonError::into_inner);
            let said = match (memory::held() > memory, since.elapsed() > timeout) {
                (true, _) => format!("more than {} MiB are held", memory >> 20),
                (_, true) => format!("it takes more than {} s", timeout.as_secs()),
                _ => continue,
            };
            keep(&kept, input, &said);
            std::process::exit(1);
        }
    });
}

fn keep(folder: &Path, input: &[u8], said: &str) {
    let path = folder.join("found");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, input));
    match written {
        Ok(()) => eprintln!("{said}; the input is in {}", path.display()),
        Err(error) => eprintln!("{said}; the input could not be kept: {error}: {input:?}"),
    }
}
