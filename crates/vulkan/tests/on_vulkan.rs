//! Programs and sessions on Vulkan: what holds on the reference backend holds here. Ops without a kernel run on the reference
//! backend, as pieces of their graphs.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/behaviour/mod.rs"]
mod behaviour;
mod device;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;
#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pteron_runtime::registry::Registry;

/// The backend under test: the first of the registry's order. Without a device that is the reference backend.
fn registry() -> Registry {
    let mut registry = Registry::default();
    if let Some(backend) = device::open() {
        registry.add(backend);
    }
    registry
}
