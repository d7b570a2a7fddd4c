//! Random ops and programs on Vulkan against the reference backend, which also runs the ops that have no kernel.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;
#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;

use differential::programs::check_program;
use pteron_runtime::WithFallback;
use pteron_runtime::backend::Backend;
use pteron_runtime::registry::Registry;
use std::sync::Arc;

/// Lists of ops; a kernel takes a software device milliseconds to compile.
const LISTS: u64 = 60;
const PROGRAMS: u64 = 30;

/// Bytes of a small generator: the same on every machine.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Vulkan with the reference backend behind it.
fn backend() -> Option<WithFallback> {
    let mut registry = Registry::default();
    let vulkan: Arc<dyn Backend> = device::open()?;
    registry.add(vulkan);
    let own = registry.resolve(Some("vulkan")).unwrap();
    let other = registry.resolve(Some("reference")).unwrap();
    Some(WithFallback::new(own, other))
}

#[track_caller]
fn agree(count: u64, check: impl Fn(u64) -> Result<(), differential::Difference>) {
    let differences: Vec<String> =
        (0..count).filter_map(|seed| Some(format!("seed {seed}: {}", check(seed).err()?.0))).collect();
    let (found, shown) = (differences.len(), differences.iter().take(12).cloned().collect::<Vec<_>>());
    assert!(found == 0, "{found} of {count} differ:\n{}", shown.join("\n"));
}

#[test]
fn random_ops_agree_with_the_reference_backend() {
    let Some(backend) = backend() else { return };
    agree(LISTS, |seed| differential::check(&bytes(seed, 512), &backend).map(drop));
}

#[test]
fn random_programs_agree_with_the_reference_backend() {
    let Some(backend) = backend() else { return };
    agree(PROGRAMS, |seed| check_program(&bytes(seed, 1024), &backend).map(drop));
}
