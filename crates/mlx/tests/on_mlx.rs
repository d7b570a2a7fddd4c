//! Programs and sessions on MLX: what holds on the reference backend holds here.

#![cfg(feature = "shim")]
#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/behaviour/mod.rs"]
mod behaviour;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;
#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pteron_mlx::{MlxBackend, MlxOptions};
use pteron_runtime::backend::Backend;
use pteron_runtime::registry::Registry;
use std::sync::{Arc, OnceLock};

/// The backend under test: the first of the registry's order.
fn registry() -> Registry {
    static MLX: OnceLock<Arc<dyn Backend>> = OnceLock::new();
    let open = || -> Arc<dyn Backend> { Arc::new(MlxBackend::open(&MlxOptions::default()).unwrap()) };
    let mut registry = Registry::default();
    registry.add(MLX.get_or_init(open).clone());
    registry
}
