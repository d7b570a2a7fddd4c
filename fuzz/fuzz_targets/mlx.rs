//! Random typed graphs, op by op on the reference backend and on MLX: they must agree. Needs the feature `mlx`.

#![no_main]

#[path = "../../crates/runtime/tests/differential/mod.rs"]
mod differential;

use libfuzzer_sys::fuzz_target;
use pteron_mlx::{Compile, MlxBackend, MlxOptions};
use std::sync::OnceLock;

static BACKEND: OnceLock<MlxBackend> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let options = MlxOptions { shim: None, compile: Compile::Never };
    let backend = BACKEND.get_or_init(|| MlxBackend::open(&options).unwrap_or_else(|error| panic!("{error}")));
    if let Err(difference) = differential::check(data, backend) {
        panic!("{}", difference.0);
    }
});
