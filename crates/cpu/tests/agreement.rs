//! Random typed ops on the reference backend and on every vector path that this machine has: they agree.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;

use pteron_cpu::{Cpu, Path};

/// Graphs for each path; Miri takes seconds for one.
const GRAPHS: u64 = if cfg!(miri) { 6 } else { 1000 };

#[test]
fn random_ops_agree_with_the_reference_backend() {
    let mut differences = Vec::new();
    for path in Path::ALL {
        if !path.is_available() {
            println!("{path}: not run, this machine lacks it");
            continue;
        }
        let backend = Cpu::new(2, Some(path)).unwrap();
        let mut compared = 0;
        for seed in 0..GRAPHS {
            // Bytes of a small generator: the same on every machine.
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let bytes: Vec<u8> = (0..512)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                })
                .collect();
            match differential::check(&bytes, &backend) {
                Ok(count) => compared += count,
                Err(difference) => differences.push(format!("{path}, seed {seed}: {}", difference.0)),
            }
        }
        assert!(compared > 0);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
