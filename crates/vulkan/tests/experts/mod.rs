//! Products with matrices that rows pick by number, as experts are, against the reference backend: few rows, many rows, experts that
//! nobody meets, and numbers of experts that there are not.

use crate::packed::{FORMS, Form, agrees, devices, operands, tensor};
use crate::{device, differential};
use pteron_ir::{Op, Ssa, TypeSource, ValueId, parse_graph};
use pteron_runtime::backend::{Backend, DeviceId, DeviceInfo, LoadOptions, Loaded, Precision, Support};
use pteron_runtime::reference::Reference;
use pteron_runtime::{Result, Value, VerifiedProgram};
use pteron_tensor::{DType, HostTensor};
use std::sync::Arc;

/// What is multiplied with what.
struct Case {
    /// Batches and rows of what is on the left.
    left: &'static [usize],
    /// Axes of picks.
    picks: &'static [usize],
    matrices: usize,
    columns: usize,
    /// Picks by place.
    pick: fn(usize, usize) -> usize,
}

const CASES: [Case; 12] = [
    // A token, on its way in and on its way out.
    Case { left: &[1, 1, 1], picks: &[1, 2], matrices: 4, columns: 40, pick: |at, all| (3 * at + 1) % all },
    Case { left: &[1, 2, 1], picks: &[1, 2], matrices: 4, columns: 66, pick: |at, all| (at + 2) % all },
    Case { left: &[1, 1, 1], picks: &[1, 1], matrices: 1, columns: 2, pick: |_, _| 0 },
    // A few, all of which meet the same expert; several rows of one; tokens that share rows.
    Case { left: &[5, 1, 1], picks: &[5, 3], matrices: 6, columns: 64, pick: |_, _| 4 },
    Case { left: &[2, 1, 3], picks: &[2, 2], matrices: 3, columns: 10, pick: |at, all| at % all },
    Case { left: &[1, 2, 1], picks: &[3, 2], matrices: 3, columns: 6, pick: |at, all| (at * at) % all },
    // Rows of which words hold parts.
    Case { left: &[3, 1, 1], picks: &[3, 2], matrices: 5, columns: 7, pick: |at, all| (at * 2) % all },
    // Many: a tile of one expert, several of some and none of others, parts of tiles.
    Case { left: &[33, 1, 1], picks: &[33, 1], matrices: 2, columns: 64, pick: |_, _| 1 },
    Case {
        left: &[70, 1, 1],
        picks: &[70, 2],
        matrices: 5,
        columns: 130,
        pick: |at, _| [0, 3, 3, 4][at % 4],
    },
    Case {
        left: &[40, 3, 1],
        picks: &[40, 3],
        matrices: 7,
        columns: 66,
        pick: |at, all| (at * 5 + at / 7) % all,
    },
    Case { left: &[9, 1, 5], picks: &[9, 2], matrices: 3, columns: 32, pick: |at, all| (at / 3) % all },
    Case { left: &[65, 1, 1], picks: &[65, 1], matrices: 70, columns: 6, pick: |at, all| all - 1 - at },
];

fn picks(case: &Case, dtype: DType) -> HostTensor {
    let count: usize = case.picks.iter().product();
    let numbers: Vec<i64> = (0..count).map(|at| (case.pick)(at, case.matrices) as i64).collect();
    let shape = case.picks.to_vec();
    match dtype {
        DType::I64 => HostTensor::from_slice(shape, &numbers).unwrap(),
        DType::U32 => {
            let numbers: Vec<u32> = numbers.iter().map(|&number| number as u32).collect();
            HostTensor::from_slice(shape, &numbers).unwrap()
        }
        _ => {
            let numbers: Vec<i32> = numbers.iter().map(|&number| number as i32).collect();
            HostTensor::from_slice(shape, &numbers).unwrap()
        }
    }
}

fn gather_qmm(form: Form, biased: bool, transpose: bool) -> Op<Ssa> {
    Op::GatherQmm {
        x: ValueId(0),
        w: ValueId(2),
        scales: ValueId(3),
        mode: form.mode.to_owned(),
        biases: biased.then_some(ValueId(4)),
        lhs_indices: None,
        rhs_indices: Some(ValueId(1)),
        transpose,
        group_size: form.group,
        bits: form.bits,
        sorted_indices: false,
        sorted_indices_flag: None,
    }
}

#[test]
fn products_with_picked_packed_matrices_agree_with_the_reference_backend() {
    for (device, backend) in devices().into_iter().enumerate() {
        for (number, form) in FORMS.into_iter().enumerate() {
            for (at, case) in CASES.iter().enumerate() {
                // Kernels take a software device their time: each has its part of the cases.
                if (at + number) % 3 == 2 * (1 - device) {
                    continue;
                }
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + at) % 3];
                let transpose = (number + at) % 6 != 5;
                let inner = form.inner(at % 5);
                let (row, left) =
                    if transpose { (case.columns, inner) } else { (case.columns, case.columns) };
                let x = tensor(dtype, &[case.left, &[left]].concat(), at);
                let weights = form.weights(dtype, &[case.matrices, row, inner], number + at);
                let op = gather_qmm(form, weights.len() == 3, transpose);
                let by = [DType::U32, DType::I32][at % 2];
                let given = [x, picks(case, by)].into_iter().chain(weights);
                let what = format!("{form:?}, {dtype}, case {at}, transposed: {transpose}");
                agrees(&op, &operands(given), backend.as_ref(), &what);
            }
        }
    }
}

#[test]
fn products_with_picked_matrices_agree_with_the_reference_backend() {
    for backend in devices() {
        for (at, case) in CASES.iter().enumerate() {
            let dtype = [DType::F32, DType::BF16, DType::F16][at % 3];
            let inner = [5, 64, 33][at % 3];
            let a = tensor(dtype, &[case.left, &[inner]].concat(), at);
            let b = tensor(dtype, &[case.matrices, inner, case.columns], at + 1);
            let op = Op::GatherMm {
                a: ValueId(0),
                b: ValueId(2),
                lhs_indices: None,
                rhs_indices: Some(ValueId(1)),
                sorted_indices: false,
                sorted_indices_flag: None,
            };
            agrees(&op, &operands([a, picks(case, DType::U32), b]), backend.as_ref(), &format!("case {at}"));
        }
    }
}

/// One row, many rows that are sorted, and sizes that only tiles take.
#[test]
fn the_number_of_a_matrix_that_there_is_not_is_an_error_that_names_it() {
    for backend in devices() {
        for (tokens, columns) in [(1, 8), (40, 8), (1, 7)] {
            let graph = |wrong: i32| {
                let text = format!(
                    r#"
graph "forward"
  input %0 "x": f32[{tokens}, 1, 1, 32]
  input %1 "picks": i32[{tokens}, 1]
  input %2 "w": u32[3, {columns}, 4]
  input %3 "scales": u8[3, {columns}, 1]
{{
  %4: f32[{tokens}, 1, 1, {columns}] = gather_qmm(x=%0, w=%2, scales=%3, mode="mxfp4", rhs_indices=%1, transpose=true, group_size=32, bits=4)
}}
output %4 "out": f32[{tokens}, 1, 1, {columns}]
"#
                );
                let mut numbers = vec![1i32; tokens];
                numbers[tokens - 1] = wrong;
                let given = [
                    tensor(DType::F32, &[tokens, 1, 1, 32], 1),
                    HostTensor::from_slice(vec![tokens, 1], &numbers).unwrap(),
                    HostTensor::zeros(DType::U32, vec![3, columns, 4]).unwrap(),
                    HostTensor::zeros(DType::U8, vec![3, columns, 1]).unwrap(),
                ];
                let inputs: Vec<_> = given.into_iter().map(Into::into).collect();
                differential::run_graph(parse_graph(&text).unwrap(), &inputs, backend.as_ref())
            };
            graph(2).unwrap();
            for wrong in [3, -1, i32::MIN, i32::MAX] {
                let error = graph(wrong).unwrap_err().to_string();
                let named = format!("index {wrong} is outside an axis of size 3");
                assert!(error.contains(&named), "{tokens} tokens: {error}");
            }
        }
    }
}

/// A backend that may round activations to 8 bits.
struct Hasty(Arc<dyn Backend>);

impl Backend for Hasty {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.0.devices()
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        self.0.supports(op, types)
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        self.0.load(device, program, &LoadOptions { precision: Precision::Fast, ..options.clone() })
    }
}

/// One row, several rows that are read together, and rows that pick.
#[test]
fn products_are_close_where_activations_may_be_rounded() {
    let Some(vulkan) = device::open() else { return };
    let hasty = Hasty(vulkan);
    for form in FORMS.into_iter().filter(|form| matches!(form.bits, 4 | 8)) {
        for (tokens, picks) in [(1, false), (20, false), (1, true), (7, true)] {
            let (inner, columns, matrices) = (form.group.max(32) as usize * 4, 34, 3);
            let lead: Vec<usize> = if picks { vec![matrices, columns] } else { vec![columns] };
            let weights = form.weights(DType::F32, &[&lead[..], &[inner]].concat(), tokens);
            let rows: Vec<usize> = if picks { vec![tokens, 1] } else { vec![tokens] };
            let x = tensor(DType::F32, &[&rows[..], &[inner]].concat(), 5);
            let numbers: Vec<i32> = (0..tokens).map(|at| (at * 2 % matrices) as i32).collect();
            let by = HostTensor::from_slice(vec![tokens], &numbers).unwrap();
            let shapes: Vec<String> =
                weights.iter().map(|part| format!("{}{:?}", part.dtype(), part.shape())).collect();
            let inputs: String = shapes
                .iter()
                .enumerate()
                .map(|(at, shape)| format!("  input %{} \"weights.{at}\": {shape}\n", at + 2))
                .collect();
            let biases = if weights.len() == 3 { ", biases=%4" } else { "" };
            let (kind, more) =
                if picks { ("gather_qmm", ", rhs_indices=%1") } else { ("quantized_matmul", "") };
            let out = format!("f32{:?}", [&rows[..], &[columns]].concat());
            let text = format!(
                "graph \"forward\"\n  input %0 \"x\": f32{:?}\n  input %1 \"picks\": i32[{tokens}]\n{inputs}{{\n  \
                 %{last}: {out} = {kind}(x=%0, w=%2, scales=%3{biases}{more}, group_size={}, bits={}, mode=\"{}\", \
                 transpose=true)\n}}\noutput %{last} \"out\": {out}\n",
                x.shape(),
                form.group,
                form.bits,
                form.mode,
                last = weights.len() + 2,
            );
            let inputs: Vec<Value> = [x, by].into_iter().chain(weights).map(Into::into).collect();
            let run = |backend: &dyn Backend| -> Vec<f32> {
                let outputs = differential::run_graph(parse_graph(&text).unwrap(), &inputs, backend).unwrap();
                outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
            };
            let (got, want) = (run(&hasty), run(&Reference::default()));
            let most = want.iter().fold(0f32, |most, x| most.max(x.abs()));
            let off = got.iter().zip(&want).fold(0f32, |off, (a, b)| off.max((a - b).abs()));
            assert!(off <= 2e-2 * most, "{form:?}, {tokens} tokens, {kind}: off by {off} of {most}");
        }
    }
}
