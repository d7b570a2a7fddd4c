//! Random programs in which some ops are lacking run in pieces on two backends, and give what they give in one.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[allow(dead_code)] // single ops have nothing to cut
mod differential;
mod patchy;

use differential::programs::{Tally, check_program_exactly};
use patchy::{Lacks, in_pieces};
use pteron_runtime::backend::Backend;
use pteron_runtime::reference::Reference;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Programs that are run; Miri takes seconds for one.
const PROGRAMS: u64 = if cfg!(miri) { 3 } else { 600 };
/// Of so many of them, at least, the first backend has several pieces of one graph.
const LEAST_CUT: usize = if cfg!(miri) { 0 } else { 60 };

/// Bytes of a small generator: the same on every machine.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Outputs, buffers, the off-graph cache, draws, snapshots, runs that fail or are taken back, and lanes.
#[test]
fn programs_in_pieces_give_the_same_bytes() {
    let reference: Arc<dyn Backend> = Arc::new(Reference::default());
    let (mut tally, mut cut, mut differences) = (Tally::default(), 0, Vec::new());
    for seed in 0..PROGRAMS {
        let (backend, patchy) = in_pieces("patchy", (&reference, &reference), Lacks::Random(seed));
        match check_program_exactly(&bytes(seed, 1024), [reference.as_ref(), &backend]) {
            Ok(compared) => {
                tally.add(compared);
                // Loaded twice: for one session, and for several.
                let delegates = 1 + compared.delegates;
                cut += usize::from(patchy.graphs.load(Ordering::Relaxed) / 2 > delegates);
            }
            Err(difference) => differences.push(format!("seed {seed}: {}", difference.0)),
        }
    }
    let count = differences.len();
    differences.sort_by_key(String::len);
    differences.truncate(3);
    assert!(count == 0, "{count} differences, the shortest of them:\n{}", differences.join("\n"));
    assert!(tally.programs as u64 >= PROGRAMS * 3 / 4, "{tally:?}");
    assert!(cut >= LEAST_CUT, "{cut} programs were cut: {tally:?}");
}
