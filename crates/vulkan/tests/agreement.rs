//! Random ops and programs on Vulkan against the reference backend, which also runs the ops that have no kernel.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod attends;
mod device;
#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;
mod experts;
mod kept;
mod order;
mod packed;

use differential::programs::check_program;
use pteron_gpu::Features;
use pteron_ir::parse_graph;
use pteron_runtime::WithFallback;
use pteron_runtime::backend::Backend;
use pteron_runtime::registry::Registry;
use pteron_tensor::{DType, HostTensor};
use pteron_vulkan::VulkanOptions;
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
fn backend(vulkan: Option<Arc<dyn Backend>>) -> Option<WithFallback> {
    let mut registry = Registry::default();
    registry.add(vulkan?);
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
    let Some(backend) = backend(device::open()) else { return };
    agree(LISTS, |seed| differential::check(&bytes(seed, 512), &backend).map(drop));
}

#[test]
fn random_programs_agree_with_the_reference_backend() {
    let Some(backend) = backend(device::open()) else { return };
    agree(PROGRAMS, |seed| check_program(&bytes(seed, 1024), &backend).map(drop));
}

/// What every device has is enough: no integers of 64 bits, no subgroups, little shared memory, small bindings.
#[test]
fn random_ops_agree_where_a_device_has_the_least_features() {
    let options = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    let Some(backend) = backend(device::open_with(&options)) else { return };
    agree(LISTS / 2, |seed| differential::check(&bytes(LISTS + seed, 512), &backend).map(drop));
}

/// A kernel that reads beside an axis reads what is not its own: the run fails, and says where.
#[test]
fn an_index_outside_its_axis_is_an_error_that_names_it() {
    let Some(backend) = backend(device::open()) else { return };
    let graph = |index: i64| {
        let text = r#"
graph "forward"
  input %0 "x": f16[3, 5]
  input %1 "index": i64[2]
{
  %2: f16[2, 5] = take(x=%0, index=%1, axis=0)
}
output %2 "out": f16[2, 5]
"#;
        let x = HostTensor::zeros(DType::F16, vec![3, 5]).unwrap();
        let indices = HostTensor::from_slice(vec![2], &[0, index]).unwrap();
        differential::run_graph(parse_graph(text).unwrap(), &[x.into(), indices.into()], &backend)
    };
    assert!(graph(2).is_ok() && graph(-3).is_ok());
    for wrong in [3, -4, i64::from(i32::MAX)] {
        let error = graph(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("index {wrong} is outside an axis of size 3")), "{error}");
    }
    assert!(graph(1 << 40).is_err());
}
