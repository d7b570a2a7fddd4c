//! The backend over a real MLX. Built with the feature `shim`; without it there is no MLX to test.

#![cfg(feature = "shim")]
#![allow(clippy::unwrap_used, clippy::panic)] // helpers fail their test

#[path = "../../runtime/tests/differential/mod.rs"]
mod differential;
#[path = "../../runtime/tests/patchy/mod.rs"]
mod patchy;
#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use differential::programs::{check_program, check_program_exactly};
use half::{bf16, f16};
use pte::{File, Method, f32s, i64s};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, ValueId, parse_graph};
use pteron_mlx::{Compile, MlxBackend, MlxOptions};
use pteron_runtime::backend::{Backend, GraphId, RunControl, Step, Trace};
use pteron_runtime::reference::Reference;
use pteron_runtime::registry::Registry;
use pteron_runtime::{BufferId, Error, LoadMode, Options, Placement, Program, Scope, Session, Value};
use pteron_tensor::{DType, HostTensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What the maker of test files loads them with.
fn registry() -> Registry {
    options(Compile::Repeated, LoadMode::Map).registry
}

fn mlx(compile: Compile) -> MlxBackend {
    MlxBackend::open(&MlxOptions { shim: None, compile }).unwrap()
}

fn options(compile: Compile, mode: LoadMode) -> Options {
    let mut options =
        Options { backend: Some("mlx".into()), placement: Placement::Fixed(mode), ..Options::default() };
    options.registry.add(Arc::new(mlx(compile)));
    options
}

/// Adds its input to a buffer and a row of a table to both; an index outside the table fails after the update.
const COUNTER: &str = r#"
graph "forward"
  input %0 "x": f32[2]
  input %1 "index": i64[1]
  constant %2 "table": f32[3, 2]
  buffer %3 "sum": f32[2] -> %4
{
  %4: f32[2] = add(a=%3, b=%0)
  %5: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %6: f32[1, 2] = add(a=%5, b=%4)
}
output %6 "out": f32[1, 2]
"#;

fn counter(options: &Options) -> Program {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[0.0, 0.0, 10.0, 10.0, 20.0, 20.0]));
    let mut method = Method::new("forward");
    let (x, index) = (method.tensor(DType::F32, &[2]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 2]);
    method.input(x);
    method.input(index);
    method.output(out);
    method.delegate(&mut file, COUNTER, &[x, index, out]);
    file.add(method);
    Program::load("test.pte", file.bytes(), &[], options).unwrap()
}

fn step(session: &mut Session, x: f32, index: i64) -> Result<Vec<f32>, Error> {
    let outputs = session.run("forward", &[f32s(&[2], &[x, -x]).into(), i64s(&[1], &[index]).into()])?;
    Ok(outputs[0].to_tensor()?.unwrap().as_slice::<f32>().unwrap().to_vec())
}

fn sum(session: &Session) -> Vec<f32> {
    let id = BufferId { scope: Scope::Method("forward".into()), delegate: Some(0), name: "sum".into() };
    session.read(&id).unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn random_ops_give_what_the_reference_gives() {
    let backend = mlx(Compile::Never);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut compared = 0;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        match differential::check(&bytes, &backend) {
            Ok(count) => compared += count,
            Err(difference) => panic!("{}", difference.0),
        }
    }
    assert!(compared > 500, "{compared} ops were compared");
}

/// What pieces of MLX give stays there for the next one, and comes to the host where another backend takes it.
#[test]
fn random_programs_in_pieces_give_what_they_give_in_one() {
    const PROGRAMS: u64 = 60;
    let backend: Arc<dyn Backend> = Arc::new(mlx(Compile::Never));
    let reference: Arc<dyn Backend> = Arc::new(Reference::default());
    let mut differences = Vec::new();
    for seed in 0..PROGRAMS {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes: Vec<u8> = (0..1024)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        let lacks = patchy::Lacks::Random(seed);
        let (alike, _) = patchy::in_pieces("patchy", (&backend, &backend), lacks);
        let (unlike, _) = patchy::in_pieces("patchy", (&backend, &reference), lacks);
        let checked = check_program_exactly(&bytes, [backend.as_ref(), &alike])
            .and_then(|_| check_program(&bytes, &unlike));
        if let Err(difference) = checked {
            differences.push(format!("seed {seed}: {}", difference.0));
        }
    }
    let count = differences.len();
    differences.sort_by_key(String::len);
    differences.truncate(3);
    assert!(count == 0, "{count} differences, the shortest of them:\n{}", differences.join("\n"));
}

#[test]
fn state_stays_and_an_error_takes_it_back() {
    for compile in [Compile::Never, Compile::Always] {
        let program = counter(&options(compile, LoadMode::Map));
        let mut session = program.session().unwrap();
        assert_eq!(step(&mut session, 1.0, 1).unwrap(), [11.0, 9.0]);
        let snapshot = session.snapshot().unwrap();
        assert_eq!(step(&mut session, 1.0, -1).unwrap(), [22.0, 18.0]);
        let error = step(&mut session, 1.0, 3).unwrap_err().to_string();
        assert!(error.contains("take") && error.contains("index 3 is outside an axis of size 3"), "{error}");
        assert_eq!(sum(&session), [2.0, -2.0]);
        assert_eq!(step(&mut session, 1.0, 0).unwrap(), [3.0, -3.0]);
        // The snapshot held the old buffer, so it was not updated in place.
        session.restore(&snapshot).unwrap();
        assert_eq!(sum(&session), [1.0, -1.0]);
        let mut fork = session.fork().unwrap();
        step(&mut fork, 5.0, 0).unwrap();
        assert_eq!((sum(&fork)[0], sum(&session)[0]), (6.0, 1.0));
    }
}

/// Panics at the first step of the second delegate.
struct Panics;

impl Trace for Panics {
    fn step(&self, step: &Step<'_>) {
        assert!(step.graph == GraphId(0), "the listener has had enough");
    }
}

#[test]
fn a_listener_that_panics_leaves_the_state_as_before() {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[0.0; 6]));
    let mut method = Method::new("forward");
    let (x, index) = (method.tensor(DType::F32, &[2]), method.tensor(DType::I64, &[1]));
    let outs = [method.tensor(DType::F32, &[1, 2]), method.tensor(DType::F32, &[1, 2])];
    method.input(x);
    method.input(index);
    for out in outs {
        method.output(out);
        method.delegate(&mut file, COUNTER, &[x, index, out]);
    }
    file.add(method);
    let options = Options { keeps_delegates: true, ..options(Compile::Never, LoadMode::Map) };
    let program = Program::load("test.pte", file.bytes(), &[], &options).unwrap();
    let mut session = program.session().unwrap();
    step(&mut session, 1.0, 0).unwrap();
    let inputs = [f32s(&[2], &[5.0, 5.0]).into(), i64s(&[1], &[0]).into()];
    let control = RunControl { trace: Some(Arc::new(Panics)), ..RunControl::default() };
    let panicked = catch_unwind(AssertUnwindSafe(|| session.run_with("forward", &inputs, &control)));
    assert!(panicked.is_err());
    assert_eq!(sum(&session), [1.0, -1.0]);
    // What the first delegate had made of its buffer does not come back with the next run.
    assert_eq!(step(&mut session, 1.0, 0).unwrap(), [2.0, -2.0]);
    assert_eq!(sum(&session), [2.0, -2.0]);
}

#[test]
fn constants_are_copied_where_that_is_asked_for() {
    let program = counter(&options(Compile::Never, LoadMode::Copy));
    let report = program.memory();
    assert_eq!((report.mapped_bytes, report.packed_bytes, report.state_bytes), (0, 24, 8));
    let mut session = program.session().unwrap();
    assert_eq!(step(&mut session, 0.0, 2).unwrap(), [20.0, 20.0]);
}

#[test]
fn sessions_on_many_threads_give_what_one_gives() {
    let program = counter(&options(Compile::Repeated, LoadMode::Map));
    let run = |program: &Program| {
        let mut session = program.session().unwrap();
        (0..20).map(|at| step(&mut session, at as f32, at % 3).unwrap()).collect::<Vec<_>>()
    };
    let wanted = run(&program);
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let program = program.clone();
            std::thread::spawn(move || run(&program))
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), wanted);
    }
}

/// Keeps a row for each position and sums what is there so far; what lies before and after the position's read is long
/// enough to be compiled.
const KEEPER: &str = include_str!("graphs/keeper.pir");

#[test]
fn a_graph_in_compiled_pieces_gives_what_its_nodes_give() {
    let outputs = |compile: Compile| {
        let mut file = File::default();
        file.name("w", &f32s(&[2], &[0.5, -0.25]));
        let mut method = Method::new("forward");
        let (x, position) = (method.tensor(DType::F32, &[1, 2]), method.tensor(DType::I64, &[1]));
        let out = method.tensor(DType::F32, &[2]);
        method.input(x);
        method.input(position);
        method.output(out);
        method.delegate(&mut file, KEEPER, &[x, position, out]);
        file.add(method);
        let program = Program::load("test.pte", file.bytes(), &[], &options(compile, LoadMode::Map)).unwrap();
        let mut session = program.session().unwrap();
        let step = |at: i64| {
            let inputs = [f32s(&[1, 2], &[at as f32, 1.0]).into(), i64s(&[1], &[at]).into()];
            let outputs = session.run("forward", &inputs).unwrap();
            outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
        };
        (0..8).map(step).collect::<Vec<_>>()
    };
    assert_eq!(outputs(Compile::Always), outputs(Compile::Never));
}

#[test]
fn a_session_moves_between_threads() {
    let program = counter(&options(Compile::Always, LoadMode::Map));
    let mut session = program.session().unwrap();
    for at in 0..4 {
        session = std::thread::spawn(move || {
            assert_eq!(step(&mut session, 1.0, 0).unwrap(), [(at + 1) as f32, -(at + 1) as f32]);
            session
        })
        .join()
        .unwrap();
    }
}

#[test]
fn what_a_run_leaves_is_read_and_computed_with_by_many_threads_at_once() {
    let program = counter(&options(Compile::Repeated, LoadMode::Map));
    let mut session = program.session().unwrap();
    let inputs = [f32s(&[2], &[1.0, -1.0]).into(), i64s(&[1], &[1]).into()];
    let output = session.run("forward", &inputs).unwrap().remove(0);
    let (output, snapshot) = (&output, &session.snapshot().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut mine = program.session().unwrap();
                for _ in 0..50 {
                    mine.restore(snapshot).unwrap();
                    assert_eq!(sum(&mine), [1.0, -1.0]);
                    assert_eq!(step(&mut mine, 1.0, 0).unwrap(), [2.0, -2.0]);
                    let read = output.to_tensor().unwrap().unwrap();
                    assert_eq!(read.as_slice::<f32>().unwrap(), [11.0, 9.0]);
                }
            });
        }
    });
    assert_eq!(sum(&session), [1.0, -1.0]);
}

/// Runs the text of a graph on a fresh backend.
fn run(text: &str, inputs: &[Value]) -> Result<Vec<HostTensor>, Error> {
    let graph = parse_graph(text).unwrap();
    let outputs = differential::run_graph(graph, inputs, &mlx(Compile::Never))?;
    Ok(outputs.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect())
}

#[test]
fn what_ends_a_c_program_is_an_answer_here() {
    let text = r#"
graph "forward"
  input %0 "a": i32[3]
  input %1 "b": i32[3]
  input %2 "x": f32[3]
{
  %3: i32[3] = floor_divide(a=%0, b=%1)
  %4: i32[3] = remainder(a=%0, b=%1)
  %5: u8[3] = as_type(x=%2, scalar_type=u8)
}
output %3 "": i32[3]
output %4 "": i32[3]
output %5 "": u8[3]
"#;
    let tensor = |values: &[i32]| Value::Tensor(HostTensor::from_slice(vec![3], values).unwrap());
    let inputs =
        [tensor(&[7, i32::MIN, -7]), tensor(&[0, -1, 2]), f32s(&[3], &[f32::NAN, 300.0, -1.9]).into()];
    let outputs = run(text, &inputs).unwrap();
    assert_eq!(outputs[0].as_slice::<i32>().unwrap(), [0, i32::MIN, -4]);
    assert_eq!(outputs[1].as_slice::<i32>().unwrap(), [7, 0, 1]);
    assert_eq!(outputs[2].as_slice::<u8>().unwrap(), [0, 255, 0]);
}

#[test]
fn an_op_that_mlx_refuses_is_named_with_its_shapes() {
    let text = r#"
graph "forward"
  input %0 "x": f32[2, 3]
{
  %1: f32[2, 2] = as_strided(x=%0, shape=[2, 2], strides=[4, 1], offset=1)
}
output %1 "": f32[2, 2]
"#;
    let error = run(text, &[f32s(&[2, 3], &[0.0; 6]).into()]).unwrap_err().to_string();
    assert!(error.contains("as_strided") && error.contains("f32 [2, 3]"), "{error}");
}

/// What the differential fuzz target has found, each settled in the op's lowering.
#[test]
fn differences_that_were_found_stay_settled() {
    let whole = |dtype: DType, shape: &[usize], values: &[i64]| {
        let size = dtype.size();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
        Value::Tensor(HostTensor::new(dtype, shape.to_vec(), pteron_tensor::Bytes::copy_of(&bytes)).unwrap())
    };
    let (x, y, z) = (ValueId(0), ValueId(1), ValueId(2));
    let all = None;
    let empty = || whole(DType::F16, &[0, 3], &[]);
    let int = IntArg::Literal;
    #[rustfmt::skip]
    let cases: Vec<(Op<Ssa>, Vec<Value>)> = vec![
        (Op::Flip { x, axes: vec![-1, 0] }, vec![whole(DType::I32, &[], &[3])]),
        (Op::LogSumExp { x, axes: all.clone(), keepdims: true }, vec![whole(DType::Bool, &[4], &[1, 0, 1, 1])]),
        (Op::LogSumExp { x, axes: all.clone(), keepdims: false }, vec![empty()]),
        (Op::Softmax { x, axis: 0, precise: false }, vec![whole(DType::I64, &[3], &[1, 2, 3])]),
        (Op::Mean { x, axes: all.clone(), keepdims: false }, vec![whole(DType::U32, &[2], &[u32::MAX.into(), 3])]),
        (Op::Std { x, axes: all.clone(), keepdims: false, ddof: 1 }, vec![whole(DType::U32, &[3], &[1, 9, 4])]),
        (Op::Round { x, decimals: 4 }, vec![whole(DType::U32, &[2], &[u32::MAX.into(), 3])]),
        (Op::Round { x, decimals: -1 }, vec![whole(DType::U32, &[4], &[u32::MAX.into(), 15, 25, 35])]),
        (Op::Round { x, decimals: 2 }, vec![whole(DType::F16, &[1], &[0x3a53])]),
        (Op::Split { x, sizes: vec![], axis: 0 }, vec![empty()]),
        (
            Op::SliceUpdate { dst: x, update: y, axis: int(0), start: int(0), stop: int(1), step: 1 },
            vec![whole(DType::I32, &[2], &[7, 7]), f32s(&[1], &[f32::NAN]).into()],
        ),
        (
            Op::Pad { x, pad_width: vec![int(0), int(2)], mode: "constant".into(), constant_value: 10000.0 },
            vec![whole(DType::I8, &[1], &[1])],
        ),
        (
            Op::Clip { x, a_min: Some(y), a_max: Some(z) },
            vec![
                whole(DType::F16, &[1], &[0x3c00]),
                whole(DType::U32, &[], &[(u32::MAX - 2).into()]),
                f32s(&[1], &[f32::INFINITY]).into(),
            ],
        ),
        (
            Op::Addmm { mat1: x, mat2: y, bias: Some(z), alpha: 1.0, beta: 2.0 },
            vec![f32s(&[2, 0], &[]).into(), f32s(&[0, 1], &[]).into(), f32s(&[1], &[1.5]).into()],
        ),
        (
            Op::ConvTranspose1D { x, w: y, stride: 32, padding: 4, dilation: 1, output_padding: 1, groups: 1 },
            vec![f32s(&[1, 2, 1], &[1.0, 2.0]).into(), f32s(&[1, 2, 1], &[3.0, 4.0]).into()],
        ),
        (
            Op::ScatterAdd { x, indices: y, updates: z, axis: 0 },
            vec![f32s(&[1], &[1.0]).into(), i64s(&[1], &[2]).into(), f32s(&[0], &[]).into()],
        ),
        (Op::Silu { x }, vec![whole(DType::F16, &[1], &[0xc9b2])]),
        (Op::LogAddExp { a: x, b: x }, vec![whole(DType::BF16, &[1], &[0xbf40])]),
    ];
    let backend = mlx(Compile::Never);
    for (op, values) in cases {
        let operands: Vec<_> =
            values.into_iter().enumerate().map(|(at, value)| (ValueId(at as u32), value)).collect();
        if let Err(difference) = differential::check_op(&op, &operands, &backend) {
            panic!("{}", difference.0);
        }
    }
}

/// Floats of 1.03, -1.06, 1.09, ...: no two of them alike, and none that 16 bits hold exactly.
fn uneven(dtype: DType, shape: &[usize]) -> Value {
    let count: usize = shape.iter().product();
    let number = |at: usize| (1.03 + 0.03 * at as f32) * if at.is_multiple_of(2) { 1.0 } else { -1.0 };
    let tensor = match dtype {
        DType::F16 => HostTensor::from_slice(
            shape.to_vec(),
            &(0..count).map(|at| f16::from_f32(number(at))).collect::<Vec<_>>(),
        ),
        DType::BF16 => HostTensor::from_slice(
            shape.to_vec(),
            &(0..count).map(|at| bf16::from_f32(number(at))).collect::<Vec<_>>(),
        ),
        _ => HostTensor::from_slice(shape.to_vec(), &(0..count).map(number).collect::<Vec<_>>()),
    };
    Value::Tensor(tensor.unwrap())
}

/// Packed weights of `lead` rows of 128: words, scales, biases where the mode has them.
fn packed(mode: &str, bits: i32, group: i32, scales: DType, lead: &[usize]) -> Vec<Value> {
    let rows: usize = lead.iter().product();
    let with = |last: usize| [lead, &[last]].concat();
    // Bit 6 of every byte is off: e4m3fn has its NaN there.
    let words: Vec<u32> =
        (0..rows * 4 * bits as usize).map(|at| (at as u32).wrapping_mul(0x9e37_79b9) & 0xbfbf_bfbf).collect();
    let w = HostTensor::from_slice(with(4 * bits as usize), &words).unwrap();
    let groups = with(128 / group as usize);
    if mode == "affine" {
        return vec![w.into(), uneven(scales, &groups), uneven(scales, &groups)];
    }
    let from = if mode == "nvfp4" { 0x30 } else { 97 };
    let codes: Vec<u8> = (0..groups.iter().product()).map(|at: usize| from + at as u8 % 16).collect();
    vec![w.into(), HostTensor::from_slice(groups, &codes).unwrap().into()]
}

/// Every mode and width that programs have, and the group sizes of each.
const QUANTISED: [(&str, i32, &[i32]); 9] = [
    ("affine", 2, &[16, 32, 64, 128]),
    ("affine", 3, &[16, 32, 64, 128]),
    ("affine", 4, &[16, 32, 64, 128]),
    ("affine", 5, &[16, 32, 64, 128]),
    ("affine", 6, &[16, 32, 64, 128]),
    ("affine", 8, &[16, 32, 64, 128]),
    ("mxfp4", 4, &[32]),
    ("mxfp8", 8, &[32]),
    ("nvfp4", 4, &[16]),
];

fn each_quantised(mut check: impl FnMut(&str, i32, i32, DType)) {
    for (mode, bits, groups) in QUANTISED {
        for &group in groups {
            for scales in [DType::F32, DType::F16, DType::BF16] {
                check(mode, bits, group, scales);
            }
        }
    }
}

fn numbered(values: Vec<Value>) -> Vec<(ValueId, Value)> {
    values.into_iter().enumerate().map(|(at, value)| (ValueId(at as u32), value)).collect()
}

#[test]
fn weights_are_dequantised_in_f32_whatever_the_scales_are() {
    let backend = mlx(Compile::Never);
    for lead in [&[3][..], &[2, 3], &[]] {
        each_quantised(|mode, bits, group, scales| {
            for dtype in [None, Some(DType::F32), Some(DType::F16), Some(DType::BF16)] {
                let mut values = packed(mode, bits, group, scales, lead);
                let biases = (mode == "affine").then_some(ValueId(2));
                let global_scale = (mode == "nvfp4").then_some(ValueId(2));
                values.extend(global_scale.map(|_| uneven(scales, &[])));
                let (w, scales, mode) = (ValueId(0), ValueId(1), mode.to_owned());
                let op =
                    Op::Dequantize { w, scales, biases, group_size: group, bits, mode, global_scale, dtype };
                if let Err(difference) = differential::check_op(&op, &numbered(values), &backend) {
                    panic!("{}", difference.0);
                }
            }
        });
    }
}

#[test]
fn products_with_packed_weights_sum_in_f32_whatever_the_scales_are() {
    let backend = mlx(Compile::Never);
    each_quantised(|mode, bits, group, scales| {
        for (dtype, transpose) in [(DType::F32, true), (DType::F16, true), (DType::BF16, false)] {
            let affine = mode == "affine";
            let (x, biases) = (ValueId(2 + u32::from(affine)), affine.then_some(ValueId(2)));
            let (w, scales_id, mode) = (ValueId(0), ValueId(1), mode.to_owned());
            let mut values = packed(&mode, bits, group, scales, &[5]);
            values.push(uneven(dtype, &[2, if transpose { 128 } else { 5 }]));
            let op = Op::QuantizedMatmul {
                x,
                w,
                scales: scales_id,
                biases,
                group_size: group,
                bits,
                mode: mode.clone(),
                transpose,
            };
            if let Err(difference) = differential::check_op(&op, &numbered(values), &backend) {
                panic!("{}", difference.0);
            }
            let mut values = packed(&mode, bits, group, scales, &[3, 5]);
            values.push(uneven(dtype, &[2, 1, if transpose { 128 } else { 5 }]));
            let picks = HostTensor::from_slice(vec![2], &[2u32, 0]).unwrap();
            values.push(picks.into());
            let op = Op::GatherQmm {
                x,
                w,
                scales: scales_id,
                mode,
                biases,
                lhs_indices: None,
                rhs_indices: Some(ValueId(x.0 + 1)),
                transpose,
                group_size: group,
                bits,
                sorted_indices: false,
                sorted_indices_flag: None,
            };
            if let Err(difference) = differential::check_op(&op, &numbered(values), &backend) {
                panic!("{}", difference.0);
            }
        }
    });
}
