//! Random typed ops and programs on the reference backend and on the CPU backend: they must agree.

#![no_main]

#[allow(dead_code, reason = "its tests use the rest")]
#[path = "../../crates/runtime/tests/differential/mod.rs"]
mod differential;

use libfuzzer_sys::fuzz_target;
use pteron_cpu::Cpu;
use std::sync::OnceLock;

static BACKEND: OnceLock<Cpu> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    let backend = BACKEND.get_or_init(Cpu::best);
    let checked = match kind % 2 {
        0 => differential::check(rest, backend).map(drop),
        _ => differential::programs::check_program(rest, backend).map(drop),
    };
    if let Err(difference) = checked {
        panic!("{}", difference.0);
    }
});
