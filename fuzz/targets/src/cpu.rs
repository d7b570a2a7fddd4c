//! Random typed ops and programs on the reference backend and on the CPU backend: they must agree.

#[allow(dead_code, clippy::unwrap_used, reason = "its tests use the rest, and want what they unwrap")]
#[path = "../../../crates/runtime/tests/differential/mod.rs"]
mod differential;

use pteron_cpu::Cpu;
use std::sync::OnceLock;

static BACKEND: OnceLock<Cpu> = OnceLock::new();

/// One input.
pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let backend = BACKEND.get_or_init(Cpu::best);
    let checked = match kind % 2 {
        0 => differential::check(rest, backend).map(drop),
        _ => differential::programs::check_program(rest, backend).map(drop),
    };
    if let Err(difference) = checked {
        panic!("{}", difference.0);
    }
}
