//! Random typed ops and programs on the reference backend and on every vector path that this machine has: they agree.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;
#[path = "../../runtime/tests/patchy/mod.rs"]
mod patchy;

use differential::programs::{Tally, check_program, check_program_exactly};
use patchy::{Lacks, in_pieces};
use pteron_cpu::{Cpu, Path, RunMemory};
use pteron_runtime::backend::Backend;
use std::sync::Arc;

/// Lists of ops for each path; Miri takes seconds for one.
const LISTS: u64 = if cfg!(miri) { 6 } else { 1000 };
/// Programs for each path, which has its own.
const PROGRAMS: u64 = if cfg!(miri) { 2 } else { 300 };
/// Of so many of them, at least, every kind has been run to an end and compared on a path.
const LEAST_OF_EACH_KIND: usize = if cfg!(miri) { 0 } else { 8 };

/// Bytes of a small generator: the same on every machine.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn paths(memory: RunMemory) -> impl Iterator<Item = (Path, Cpu)> {
    Path::ALL.into_iter().filter_map(move |path| {
        if !path.is_available() {
            println!("{path}: not run, this machine lacks it");
            return None;
        }
        Some((path, Cpu::new(2, Some(path)).unwrap().with_memory(memory)))
    })
}

#[test]
fn random_ops_agree_with_the_reference_backend() {
    let mut differences = Vec::new();
    for (path, backend) in paths(RunMemory::Planned) {
        let mut compared = 0;
        for seed in 0..LISTS {
            match differential::check(&bytes(seed, 512), &backend) {
                Ok(count) => compared += count,
                Err(difference) => differences.push(format!("{path}, seed {seed}: {}", difference.0)),
            }
        }
        assert!(compared as u64 >= LISTS, "{path}: {compared} ops were compared");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn random_programs_agree_with_the_reference_backend() {
    random_programs(RunMemory::Planned);
}

/// What is read after its life is spoiled there.
#[test]
fn random_programs_with_memory_for_every_value_agree_with_the_reference_backend() {
    random_programs(RunMemory::Separate);
}

fn random_programs(memory: RunMemory) {
    let mut differences = Vec::new();
    for (number, (path, backend)) in (0..).zip(paths(memory)) {
        let mut tally = Tally::default();
        for seed in PROGRAMS * number..PROGRAMS * (number + 1) {
            match check_program(&bytes(seed, 1024), &backend) {
                Ok(compared) => tally.add(compared),
                Err(difference) => differences.push(format!("{path}, seed {seed}: {}", difference.0)),
            }
        }
        println!("{path}: {tally:?}");
        if differences.is_empty() {
            assert!(tally.programs as u64 >= PROGRAMS * 3 / 4, "{path}: {tally:?}");
            let kinds = [
                tally.branches,
                tally.loops,
                tally.nested,
                tally.buffers,
                tally.outer_updates,
                tally.shared,
                tally.embeddings,
                tally.turned,
                tally.draws,
                tally.attends,
                tally.delegates,
                tally.failed,
                tally.restored,
            ];
            assert!(kinds.iter().all(|&count| count >= LEAST_OF_EACH_KIND), "{path}: {tally:?}");
        }
    }
    let count = differences.len();
    differences.sort_by_key(String::len);
    differences.truncate(3);
    assert!(count == 0, "{count} differences, the shortest of them:\n{}", differences.join("\n"));
}

/// Ops that are lacking cut graphs in pieces, which are planned by themselves: fewer groups, other places, other views.
#[test]
fn random_programs_in_pieces_give_the_same_bytes() {
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(2, None).unwrap());
    let mut differences = Vec::new();
    for seed in 0..PROGRAMS {
        let (backend, _) = in_pieces("patchy", (&cpu, &cpu), Lacks::Random(seed));
        if let Err(difference) = check_program_exactly(&bytes(seed, 1024), [cpu.as_ref(), &backend]) {
            differences.push(format!("seed {seed}: {}", difference.0));
        }
    }
    let count = differences.len();
    differences.sort_by_key(String::len);
    differences.truncate(3);
    assert!(count == 0, "{count} differences, the shortest of them:\n{}", differences.join("\n"));
}
