//! The tests of a crate, one program each, several at once: for a tool that keeps to one core. The logs become one, in the
//! order of the tests' names, so that the rest of this room reads it as it reads any other.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Run, crate_folder};
use crate::error::{Doing, Error, Result};

/// Runs them and says whether all of them succeeded.
pub(super) fn run(run: Run, jobs: usize, log: &Path) -> Result<bool> {
    let mut file = File::create(log).doing("write", log)?;
    let mut tests = vec![];
    for program in programs(run)? {
        let output = cargo(run, &program, &["--list", "--format", "terse"])?;
        if !output.status.success() {
            file.write_all(&output.stderr).doing("write", log)?;
            return Ok(false);
        }
        let list = String::from_utf8_lossy(&output.stdout);
        tests.extend(names(&list).map(|name| (program.clone(), name.to_string())));
    }
    let next = AtomicUsize::new(0);
    let outputs = Mutex::new(BTreeMap::new());
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((program, name)) = tests.get(at) else { return Ok(()) };
            let output = cargo(run, program, &["--exact", name])?;
            if let Ok(mut outputs) = outputs.lock() {
                outputs.insert(at, output);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(tests.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::message("who waits for a test panicked")))
        })
    })?;
    let mut succeeded = true;
    for Output { status, stdout, stderr } in outputs.into_inner().unwrap_or_default().into_values() {
        succeeded &= status.success();
        file.write_all(&stderr).and_then(|()| file.write_all(&stdout)).doing("write", log)?;
    }
    Ok(succeeded)
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
