//! Random typed ops on the reference backend and on the CPU backend: they must agree.

#![no_main]

#[allow(dead_code, reason = "its tests use the rest")]
#[path = "../../crates/runtime/tests/differential/mod.rs"]
mod differential;

use libfuzzer_sys::fuzz_target;
use pteron_cpu::Cpu;
use std::sync::OnceLock;

static BACKEND: OnceLock<Cpu> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    if let Err(difference) = differential::check(data, BACKEND.get_or_init(Cpu::best)) {
        panic!("{}", difference.0);
    }
});
