//! Programs and sessions on the reference backend.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod behaviour;
mod graphs;
mod pte;

use pteron_runtime::registry::Registry;

/// The backend under test.
fn registry() -> Registry {
    Registry::default()
}
