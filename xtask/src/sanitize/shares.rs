//! The tests of several crates, one program each, several at once: for a tool that keeps to one core. What each prints goes to
//! the log of its crate as it ends, so that the rest of this room reads it as it reads any other.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Run, crate_folder, log_path};
use crate::error::{Doing, Error, Result};

/// A test that takes longer is named: it is what all others wait for.
const LONG: Duration = Duration::from_secs(120);

/// What became of a crate's tests.
pub(super) struct Ending {
    pub(super) succeeded: bool,
    /// Of all its tests, one after the other.
    pub(super) time: Duration,
}

struct Test {
    /// Which of the runs it belongs to.
    of: usize,
    program: Vec<String>,
    name: String,
}

/// Runs them and says how each crate ended.
pub(super) fn run(runs: &[Run], jobs: usize) -> Result<Vec<Ending>> {
    let (mut tests, mut endings) = (vec![], vec![]);
    for (of, &run) in runs.iter().enumerate() {
        let log = log_path(run)?;
        let mut file = File::create(&log).doing("write", &log)?;
        let mut ending = Ending { succeeded: true, time: Duration::ZERO };
        for program in programs(run)? {
            let output = cargo(run, &program, &["--list", "--format", "terse"])?;
            if !output.status.success() {
                ending.succeeded = false;
                file.write_all(&output.stderr).doing("write", &log)?;
                continue;
            }
            let list = String::from_utf8_lossy(&output.stdout);
            let found =
                names(&list).map(|name| Test { of, program: program.clone(), name: name.to_string() });
            tests.extend(found);
        }
        endings.push((file, ending));
    }
    let next = AtomicUsize::new(0);
    let endings = Mutex::new(endings);
    let work = || -> Result<()> {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let Output { status, stdout, stderr } =
                cargo(runs[test.of], &test.program, &["--exact", &test.name])?;
            let time = start.elapsed();
            if time > LONG {
                println!("   {}: {} s", test.name, time.as_secs());
            }
            let mut endings = endings.lock().map_err(|_| Error::message("who waits for a test panicked"))?;
            let (file, ending) = &mut endings[test.of];
            ending.succeeded &= status.success();
            ending.time += time;
            file.write_all(&stderr)
                .and_then(|()| file.write_all(&stdout))
                .doing("write", log_path(runs[test.of])?)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(tests.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::message("who waits for a test panicked")))
        })
    })?;
    Ok(endings.into_inner().unwrap_or_default().into_iter().map(|(_, ending)| ending).collect())
}

/// The flags by which cargo knows each test program of a crate: one for the library, one for each file of tests.
fn programs(run: Run) -> Result<Vec<Vec<String>>> {
    let mut programs = vec![vec!["--lib".to_string()]];
    if !run.tool.tests_whole_programs(run.package) {
        return Ok(programs);
    }
    let folder = crate_folder(run.package).join("tests");
    let mut names = vec![];
    for entry in fs::read_dir(&folder).doing("read", &folder)? {
        let path = entry.doing("read", &folder)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    programs.extend(names.into_iter().map(|name| vec!["--test".to_string(), name]));
    Ok(programs)
}

fn cargo(run: Run, program: &[String], arguments: &[&str]) -> Result<Output> {
    let flags: Vec<&str> = program.iter().map(String::as_str).collect();
    run.tool.harness(run.package, &flags)?.args(arguments).output().doing("start", "cargo")
}

/// Names of tests in the harness's list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| line.strip_suffix(": test"))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn tests_are_read_from_the_list_of_the_harness() {
        let list = "a::b: test\nspeed: benchmark\nc: test\n\n2 tests, 1 benchmark\n";
        assert!(names(list).eq(["a::b", "c"]));
    }
}
