//! Products with packed rows of every mode, and the numbers that those stand for, against the reference backend: on the device, whatever
//! their sizes.

use crate::{device, differential};
use pteron_gpu::Features;
use pteron_ir::{Op, Ssa, TensorType, Type, TypeSource, ValueId, parse_graph};
use pteron_runtime::Value;
use pteron_runtime::backend::{Backend, Support};
use pteron_runtime::reference::{Reference, cast};
use pteron_tensor::{DType, HostTensor};
use pteron_vulkan::VulkanOptions;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers between -1 and 1: the same on every machine.
pub(crate) fn tensor(dtype: DType, shape: &[usize], seed: usize) -> HostTensor {
    let count: usize = shape.iter().product();
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    let values: Vec<f32> = (0..count).map(number).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &values).unwrap(), dtype).unwrap()
}

/// How rows are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) mode: &'static str,
    pub(crate) bits: i32,
    pub(crate) group: i32,
}

const fn form(mode: &'static str, bits: i32, group: i32) -> Form {
    Form { mode, bits, group }
}

pub(crate) const FORMS: [Form; 12] = [
    form("affine", 2, 64),
    form("affine", 3, 32),
    form("affine", 4, 16),
    form("affine", 4, 32),
    form("affine", 4, 128),
    form("affine", 5, 64),
    form("affine", 6, 16),
    form("affine", 8, 16),
    form("affine", 8, 64),
    form("mxfp4", 4, 32),
    form("nvfp4", 4, 16),
    form("mxfp8", 8, 32),
];

impl Form {
    /// Inner sizes that its rows can have: one group, a few, many.
    pub(crate) fn inner(&self, at: usize) -> usize {
        (self.group as usize).max(32) * [1, 3, 2, 9, 5, 40][at % 6]
    }

    /// Words, scales and, of affine ones, biases of matrices whose last axes are rows and numbers of a row.
    pub(crate) fn weights(&self, dtype: DType, shape: &[usize], seed: usize) -> Vec<HostTensor> {
        let (&inner, lead) = shape.split_last().unwrap();
        let with = |last: usize| [lead, &[last]].concat();
        let (words, groups) = (inner * self.bits as usize / 32, inner / self.group as usize);
        let rows: usize = lead.iter().product();
        let mix = |at: usize| ((at + seed * 1013) as u32).wrapping_mul(2_654_435_761).rotate_left(11);
        // A code of 8 bits that is NaN makes all of a row none.
        let mask = if self.mode == "mxfp8" { 0xbfbf_bfbf } else { u32::MAX };
        let codes: Vec<u32> =
            (0..rows * words).map(|at| (mix(at) ^ mix(at + 77).rotate_left(16)) & mask).collect();
        let w = HostTensor::from_slice(with(words), &codes).unwrap();
        if self.mode == "affine" {
            return vec![w, tensor(dtype, &with(groups), seed + 1), tensor(dtype, &with(groups), seed + 2)];
        }
        let byte = |at: usize| match self.mode {
            "nvfp4" => (0x28 + mix(at) % 24) as u8 | if at.is_multiple_of(3) { 0x80 } else { 0 },
            _ => (123 + mix(at) % 6) as u8,
        };
        let bytes: Vec<u8> = (0..rows * groups).map(byte).collect();
        vec![w, HostTensor::from_slice(with(groups), &bytes).unwrap()]
    }
}

/// Types of operands by number.
struct Types(HashMap<ValueId, Type>);

impl TypeSource for Types {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.0.get(&value)
    }
}

/// Operands in the order of their numbers.
pub(crate) fn operands(given: impl IntoIterator<Item = HostTensor>) -> Vec<(ValueId, Value)> {
    given.into_iter().zip(0..).map(|(tensor, id)| (ValueId(id), tensor.into())).collect()
}

/// Asserts that a backend runs an op itself, and that it gives what the reference backend gives.
#[track_caller]
pub(crate) fn agrees(op: &Op<Ssa>, operands: &[(ValueId, Value)], backend: &dyn Backend, what: &str) {
    let types = operands.iter().map(|(id, value)| {
        let tensor = value.to_tensor().unwrap().unwrap();
        (*id, Type::Tensor(TensorType::known(tensor.dtype(), tensor.shape())))
    });
    let support = backend.supports(op, &Types(types.collect()));
    assert!(matches!(support, Support::Native), "{what}: {support:?}");
    match differential::check_op(op, operands, backend) {
        Ok(found) => assert!(found.is_some(), "{what}: refused by both"),
        Err(difference) => panic!("{what}: {}", difference.0.rsplit(": ").next().unwrap_or_default()),
    }
}

/// A device as it is, and with the least features.
pub(crate) fn devices() -> Vec<Arc<dyn Backend>> {
    let least = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    device::open().into_iter().chain(device::open_with(&least)).collect()
}

#[test]
fn products_of_every_mode_agree_with_the_reference_backend() {
    let rows = [1, 2, 7, 8, 9, 31, 32, 33, 65];
    let columns = [6, 40, 7, 130, 64, 1, 66];
    for (device, backend) in devices().into_iter().enumerate() {
        for (number, form) in FORMS.into_iter().enumerate() {
            for (at, &rows) in rows.iter().enumerate() {
                // A software device takes a tenth of a second for a kernel: the second one has every third case.
                if device > 0 && (at + number) % 3 != 0 {
                    continue;
                }
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + at) % 3];
                let transpose = at % 5 != 4;
                let (inner, columns) = (form.inner(at), columns[(at + number) % columns.len()]);
                let shape = if transpose { [columns, inner] } else { [columns, form.inner(at + 1)] };
                let x = tensor(dtype, &[rows, if transpose { inner } else { columns }], at);
                let weights = form.weights(dtype, &shape, number + at);
                let op = Op::QuantizedMatmul {
                    x: ValueId(0),
                    w: ValueId(1),
                    scales: ValueId(2),
                    biases: (weights.len() == 3).then_some(ValueId(3)),
                    group_size: form.group,
                    bits: form.bits,
                    mode: form.mode.to_owned(),
                    transpose,
                };
                let what = format!("{form:?}, {dtype}, {rows} rows, {shape:?}, transposed: {transpose}");
                agrees(&op, &operands([x].into_iter().chain(weights)), backend.as_ref(), &what);
            }
        }
    }
}

#[test]
fn numbers_of_every_mode_agree_with_the_reference_backend() {
    for backend in devices() {
        for (number, form) in FORMS.into_iter().enumerate() {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let weights = form.weights(dtype, &[2, 3, form.inner(number)], number);
                let op = Op::Dequantize {
                    w: ValueId(0),
                    scales: ValueId(1),
                    biases: (weights.len() == 3).then_some(ValueId(2)),
                    group_size: form.group,
                    bits: form.bits,
                    mode: form.mode.to_owned(),
                    global_scale: None,
                    dtype: Some(dtype),
                };
                agrees(&op, &operands(weights), backend.as_ref(), &format!("{form:?}, {dtype}"));
            }
        }
    }
}

/// Every code under every scale, the least, the largest and those that are no numbers among them: to the last bit, but for numbers
/// that a device may take for zeros.
#[test]
fn every_code_and_scale_is_what_it_is_on_the_reference_backend() {
    for backend in devices() {
        for (mode, bits, group) in [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)] {
            // A row a scale; in it all codes of that width.
            let each = (1usize << bits).next_multiple_of(group);
            let words = each * bits / 32;
            let code = |at: usize| (at % (1 << bits)) as u32;
            let row: Vec<u32> = (0..words)
                .map(|word| {
                    (0..32 / bits).fold(0, |all, at| all | code(word * 32 / bits + at) << (at * bits))
                })
                .collect();
            let w = HostTensor::from_slice(vec![256, words], &row.repeat(256)).unwrap();
            let bytes: Vec<u8> = (0..=255u8).flat_map(|byte| vec![byte; each / group]).collect();
            let scales = HostTensor::from_slice(vec![256, each / group], &bytes).unwrap();
            let text = format!(
                r#"
graph "forward"
  input %0 "w": u32[256, {words}]
  input %1 "scales": u8[256, {groups}]
{{
  %2: f32[256, {each}] = dequantize(w=%0, scales=%1, group_size={group}, bits={bits}, mode="{mode}", dtype=f32)
}}
output %2 "out": f32[256, {each}]
"#,
                groups = each / group
            );
            let run = |backend: &dyn Backend| -> Vec<f32> {
                let inputs = [w.clone().into(), scales.clone().into()];
                let graph = parse_graph(&text).unwrap();
                let outputs = differential::run_graph(graph, &inputs, backend).unwrap();
                outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
            };
            let (got, want) = (run(backend.as_ref()), run(&Reference::default()));
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = got == want || (got.is_nan() && want.is_nan());
                let is_least = want.abs() < f32::MIN_POSITIVE && got.abs() <= f32::MIN_POSITIVE;
                assert!(
                    same || is_least,
                    "{mode}, scale {}, code {}: {got}, not {want}",
                    at / each,
                    at % each
                );
            }
        }
    }
}
