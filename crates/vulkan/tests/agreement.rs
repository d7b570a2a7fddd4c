//! Random ops and programs on Vulkan against the reference backend, which also runs the ops that have no kernel.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod along;
mod attends;
mod convolutions;
mod delta;
mod device;
#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;
mod experts;
mod functions;
mod kept;
mod order;
mod packed;

use differential::programs::check_program;
use packed::{agrees, devices, operands, tensor};
use pteron_gpu::Features;
use pteron_ir::{Op, ValueId, parse_graph};
use pteron_runtime::WithFallback;
use pteron_runtime::backend::{Backend, Lack, Support};
use pteron_runtime::reference::cast;
use pteron_runtime::registry::Registry;
use pteron_tensor::{DType, HostTensor};
use pteron_vulkan::VulkanOptions;
use std::collections::BTreeSet;
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

/// The rows of the page's table of ops that have no kernels: ops and why.
fn rows_of_the_page() -> BTreeSet<(String, String)> {
    let page = include_str!("../../../docs/gpu.md");
    let table = page.split("| op | why it runs on `cpu` |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")));
    cells.map(|mut cells| (cells.next().unwrap(), cells.next().unwrap())).collect()
}

/// Random ops of typical types, whatever their rules let them be: those without a kernel are the ones that the page names, for the reasons
/// that it gives.
#[test]
fn every_op_has_kernels_but_those_that_the_page_names() {
    let Some(backend) = device::open() else { return };
    let named = rows_of_the_page();
    let (mut found, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..4000 {
        differential::each_op(&bytes(seed, 512), |op, types| {
            kinds.insert(op.spec().text);
            if let Support::No(Lack::Other(reason)) = backend.supports(op, types) {
                found.insert((op.spec().text.to_owned(), reason));
            }
        });
    }
    let unnamed: Vec<_> = found.difference(&named).collect();
    assert!(unnamed.is_empty(), "not in docs/gpu.md: {unnamed:#?}");
    // Those that random ops never are stand for themselves.
    let unseen: Vec<_> = named.difference(&found).filter(|(op, _)| kinds.contains(op.as_str())).collect();
    assert!(unseen.is_empty(), "in docs/gpu.md, and never met: {unseen:#?}");
    assert!(kinds.len() > 110, "{} kinds of ops", kinds.len());
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

/// Quotients of integers of both signs, by zero, and of the least by -1; sums of logarithms far apart and infinite.
#[test]
fn quotients_rounded_down_and_sums_of_logarithms_agree_with_the_reference_backend() {
    let (a, b) = (ValueId(0), ValueId(1));
    for backend in devices() {
        for dtype in [DType::I32, DType::I8, DType::U8, DType::U32, DType::I16] {
            let least = if dtype == DType::I8 { -128.0 } else { -2_147_483_648.0 };
            let signs = if matches!(dtype, DType::U8 | DType::U32) { [7.0, 255.0] } else { [-7.0, least] };
            let x = [[7.0, 6.0, 0.0, signs[0], signs[1]]; 5].concat();
            let y = [2.0, 3.0, 0.0, 7.0, if signs[0] < 0.0 { -1.0 } else { 1.0 }].map(|y| [y; 5]).concat();
            let given = [x, y].map(|numbers: Vec<f32>| {
                cast(&HostTensor::from_slice(vec![25], &numbers).unwrap(), dtype).unwrap()
            });
            agrees(&Op::FloorDivide { a, b }, &operands(given), backend.as_ref(), &format!("{dtype}"));
        }
        let special = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -3.5, 1000.0];
        let x = special.map(|x| [x; 6]).concat();
        let y = [special; 6].concat();
        let given = [x, y].map(|numbers| HostTensor::from_slice(vec![36], &numbers).unwrap());
        agrees(&Op::LogAddExp { a, b }, &operands(given), backend.as_ref(), "sums of logarithms");
    }
}

/// A grid is whole rows of groups: those that are too many write nothing behind the result, where another value lies.
#[test]
fn more_groups_than_a_row_of_a_grid_change_nothing_else() {
    let count = 40_000;
    let text = format!(
        r#"
graph "forward"
  input %0 "a": f32[{count}, 1, 1]
  input %1 "b": f32[{count}, 1, 1]
{{
  %2: f32[{count}, 1, 1] = square(x=%0)
  %3: f32[{count}, 1, 1] = square(x=%1)
  %4: f32[1, 1] = sum(x=%2, axes=[0], keepdims=false)
  %5: f32[{count}, 1, 1] = addmm(mat1=%0, mat2=%1)
  %6: f32[{count}, 1, 1] = add(a=%5, b=%3)
}}
output %6 "out": f32[{count}, 1, 1]
output %4 "sum": f32[1, 1]
"#
    );
    let (a, b) = (tensor(DType::F32, &[count, 1, 1], 1), tensor(DType::F32, &[count, 1, 1], 2));
    let (x, y) = (a.as_slice::<f32>().unwrap().to_vec(), b.as_slice::<f32>().unwrap().to_vec());
    for backend in devices() {
        let inputs = [a.clone().into(), b.clone().into()];
        let outputs =
            differential::run_graph(parse_graph(&text).unwrap(), &inputs, backend.as_ref()).unwrap();
        let got = outputs[0].to_tensor().unwrap().unwrap();
        for (at, got) in got.as_slice::<f32>().unwrap().iter().enumerate() {
            let want = x[at] * y[at] + y[at] * y[at];
            assert!((got - want).abs() <= 1e-5, "element {at} is {got}, not {want}");
        }
    }
}
