//! Random typed ops and programs on the reference backend and on MLX: they must agree. Needs the feature `mlx`.

#![no_main]

#[allow(dead_code, reason = "its tests use the rest")]
#[path = "../../crates/runtime/tests/differential/mod.rs"]
mod differential;

use libfuzzer_sys::fuzz_target;
use pteron_mlx::{Compile, MlxBackend, MlxOptions};
use std::sync::OnceLock;

static BACKEND: OnceLock<MlxBackend> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let options = MlxOptions { shim: None, compile: Compile::Never };
    let backend =
        BACKEND.get_or_init(|| MlxBackend::open(&options).unwrap_or_else(|error| panic!("{error}")));
    let Some((&kind, rest)) = data.split_first() else { return };
    let checked = match kind % 2 {
        0 => differential::check(rest, backend).map(drop),
        _ => differential::programs::check_program(rest, backend).map(drop),
    };
    if let Err(difference) = checked {
        panic!("{}", difference.0);
    }
});
