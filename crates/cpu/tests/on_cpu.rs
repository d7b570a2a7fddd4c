//! Programs and sessions on the CPU backend: what holds on the reference backend holds here.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/behaviour/mod.rs"]
mod behaviour;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;
#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pteron_cpu::Cpu;
use pteron_runtime::registry::Registry;
use std::sync::Arc;

/// The backend under test.
fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, None).unwrap()));
    registry
}
