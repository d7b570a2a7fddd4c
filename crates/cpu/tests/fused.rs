//! Ops that run as one give what they give one by one. A run that somebody listens to takes the ops as the file has them,
//! so both ways are one program here, and results and state are equal bit for bit.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use half::{bf16, f16};
use pte::{File, Method, i64s};
use pteron_cpu::{Cpu, Path};
use pteron_ir::OpKind;
use pteron_passes::fuse::{Counts, fuse};
use pteron_runtime::backend::{Step, Trace};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Precision, Program, RunControl, Value};
use pteron_tensor::{DType, HostTensor};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

thread_local! {
    /// The path of the programs that a test loads.
    static PATH: Cell<Option<Path>> = const { Cell::new(None) };
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(3, PATH.get()).unwrap()));
    registry
}

/// Inputs of every product.
const WIDTH: usize = 128;
/// The weights and how many outputs each has: more than a task is given, and none a multiple of what kernels write
/// together.
const WEIGHTS: [(&str, usize); 5] = if cfg!(miri) {
    // An output takes Miri a while, so that there are only as many as rows that kernels take together, and some more.
    [("q", 19), ("k", 24), ("v", 20), ("gate", 17), ("up", 17)]
} else {
    [("q", 1100), ("k", 24), ("v", 520), ("gate", 1061), ("up", 1061)]
};

/// A form of quantised weights.
#[derive(Clone, Copy, Debug)]
struct Form {
    mode: &'static str,
    bits: usize,
    group: usize,
}

const FORMS: [Form; 10] = [
    Form { mode: "affine", bits: 4, group: 32 },
    Form { mode: "affine", bits: 2, group: 64 },
    Form { mode: "affine", bits: 3, group: 128 },
    Form { mode: "affine", bits: 5, group: 32 },
    Form { mode: "affine", bits: 6, group: 16 },
    Form { mode: "affine", bits: 8, group: 64 },
    Form { mode: "affine", bits: 4, group: 128 },
    Form { mode: "mxfp4", bits: 4, group: 32 },
    Form { mode: "nvfp4", bits: 4, group: 16 },
    Form { mode: "mxfp8", bits: 8, group: 32 },
];

/// One layer's worth of ops that are fused: a residual and its norm, three products, a gate, keys into their cache.
fn layer(form: Form, dtype: DType, activation: &str) -> String {
    let Form { mode, bits, group } = form;
    let affine = mode == "affine";
    let mut text = format!(
        "graph \"forward\"\n  symbol T in 1..=32\n  symbol P in i32\n  input %0 \"x\": {dtype}[1, T, {WIDTH}]\n  \
         input %1 \"position\": i64[1]\n  \
         constant %2 \"norm\": {dtype}[{WIDTH}]\n"
    );
    let mut next = 3;
    let mut products = Vec::new();
    for (name, n) in WEIGHTS {
        let (words, groups) = (WIDTH * bits / 32, WIDTH / group);
        let scales = if affine { dtype.to_string() } else { "u8".to_owned() };
        text += &format!("  constant %{next} \"{name}\": u32[{n}, {words}]\n");
        text += &format!("  constant %{} \"{name}_scales\": {scales}[{n}, {groups}]\n", next + 1);
        let mut operands = format!("w=%{next}, scales=%{}", next + 1);
        next += 2;
        if affine {
            text += &format!("  constant %{next} \"{name}_biases\": {dtype}[{n}, {groups}]\n");
            operands += &format!(", biases=%{next}");
            next += 1;
        }
        products.push(format!("{operands}, group_size={group}, bits={bits}, mode=\"{mode}\""));
    }
    let (cache, first) = (next, next + 1);
    let mut body = String::new();
    let mut at = first;
    let mut node = |ty: String, op: String| {
        body += &format!("  %{at}: {ty} = {op}\n");
        at += 1;
        at - 1
    };
    let rows = |n: usize| format!("{dtype}[1, T, {n}]");
    let length = node("int(T)".into(), "sym_size(a=%0, dim=1)".into());
    let from = node("int(P)".into(), "item_int(x=%1)".into());
    let to = node("int(T+P)".into(), format!("add_int(a=%{from}, b=%{length})"));
    let more = node(rows(WIDTH), "square(x=%0)".into());
    let sum = node(rows(WIDTH), format!("add(a=%0, b=%{more})"));
    let normed = node(rows(WIDTH), format!("rms_norm(x=%{sum}, weight=%2, eps=1e-5)"));
    let mut product =
        |at: usize| node(rows(WEIGHTS[at].1), format!("quantized_matmul(x=%{normed}, {})", products[at]));
    let [q, k, v, gate, up] = std::array::from_fn(&mut product);
    let k = node(format!("{dtype}[1, T, 2, 12]"), format!("reshape(x=%{k}, shape=[1, %{length}, 2, 12])"));
    let k = node(format!("{dtype}[1, 2, T, 12]"), format!("transpose(x=%{k}, perm=[0, 2, 1, 3])"));
    let k = node(format!("{dtype}[1, 2, T, 12]"), format!("rope(x=%{k}, dims=8, offset=%1, base=10000.0)"));
    let kept = format!("{dtype}[1, 2, 64, 12]");
    let keys = node(
        kept.clone(),
        format!("slice_update(dst=%{cache}, update=%{k}, axis=2, start=%{from}, stop=%{to})"),
    );
    let inner = rows(WEIGHTS[3].1);
    let active = match activation {
        "silu" => node(inner.clone(), format!("silu(x=%{gate})")),
        "spelled" => {
            let part = node(inner.clone(), format!("sigmoid(x=%{gate})"));
            node(inner.clone(), format!("multiply(a=%{gate}, b=%{part})"))
        }
        approximate => node(inner.clone(), format!("gelu(x=%{gate}, approximate=\"{approximate}\")")),
    };
    let both = node(inner.clone(), format!("multiply(a=%{active}, b=%{up})"));
    text += &format!("  buffer %{cache} \"keys\": {kept} -> %{keys}\n{{\n{body}}}\n");
    let outputs =
        [(sum, rows(WIDTH)), (q, rows(WEIGHTS[0].1)), (v, rows(WEIGHTS[2].1)), (both, inner), (keys, kept)];
    for (index, (value, ty)) in outputs.into_iter().enumerate() {
        text += &format!("output %{value} \"out{index}\": {ty}\n");
    }
    text
}

/// Numbers in -1..1 that follow from a seed.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn floats(dtype: DType, shape: &[usize], values: &[f32]) -> HostTensor {
    let shape = shape.to_vec();
    match dtype {
        DType::F16 => {
            HostTensor::from_slice(shape, &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>())
        }
        DType::BF16 => {
            HostTensor::from_slice(shape, &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>())
        }
        _ => HostTensor::from_slice(shape, values),
    }
    .unwrap()
}

fn program(form: Form, dtype: DType, activation: &str, precision: Precision) -> Program {
    let mut file = File::default();
    file.name("norm", &floats(dtype, &[WIDTH], &numbers(1, WIDTH)));
    for (seed, (name, n)) in (2..).zip(WEIGHTS) {
        let (words, groups) = (WIDTH * form.bits / 32, WIDTH / form.group);
        let codes: Vec<u32> =
            numbers(seed, n * words).iter().map(|v| v.to_bits().wrapping_mul(2_654_435_761)).collect();
        file.name(name, &HostTensor::from_slice(vec![n, words], &codes).unwrap());
        let scales = numbers(seed + 10, n * groups);
        if form.mode == "affine" {
            let scales: Vec<f32> = scales.iter().map(|v| v / 16.0).collect();
            file.name(&format!("{name}_scales"), &floats(dtype, &[n, groups], &scales));
            let biases: Vec<f32> = numbers(seed + 20, n * groups).iter().map(|v| v / 4.0).collect();
            file.name(&format!("{name}_biases"), &floats(dtype, &[n, groups], &biases));
        } else {
            // Exponents about that of 1/8, in either of the small floats.
            let middle = if form.mode == "nvfp4" { 0x20 } else { 124 };
            let scales: Vec<u8> = scales.iter().map(|v| (f32::from(middle as u8) + v * 3.0) as u8).collect();
            file.name(&format!("{name}_scales"), &HostTensor::from_slice(vec![n, groups], &scales).unwrap());
        }
    }
    let mut method = Method::new("forward");
    let mut tensors = vec![method.dynamic(dtype, &[1, 32, WIDTH as i32]), method.tensor(DType::I64, &[1])];
    for &input in &tensors {
        method.input(input);
    }
    for n in [WIDTH, WEIGHTS[0].1, WEIGHTS[2].1, WEIGHTS[3].1] {
        tensors.push(method.dynamic(dtype, &[1, 32, n as i32]));
    }
    tensors.push(method.tensor(dtype, &[1, 2, 64, 12]));
    tensors[2..].iter().for_each(|&output| method.output(output));
    method.delegate(&mut file, &layer(form, dtype, activation), &tensors);
    file.add(method);
    file.load_with(&[], &Options { precision, ..Options::default() }).unwrap()
}

/// Which ops a run took.
#[derive(Default)]
struct Listener(Mutex<Vec<OpKind>>);

impl Trace for Listener {
    fn step(&self, step: &Step<'_>) {
        self.0.lock().unwrap().push(step.op.kind());
    }
}

/// Two runs of a session, the second behind the first: all outputs, the cache among them.
fn run(program: &Program, dtype: DType, rows: usize, listener: Option<Arc<Listener>>) -> Vec<Value> {
    let mut session = program.session().unwrap();
    let control = RunControl { trace: listener.map(|it| it as Arc<dyn Trace>), ..RunControl::default() };
    let mut outputs = Vec::new();
    for step in 0..2 {
        let input = floats(dtype, &[1, rows, WIDTH], &numbers(100 + step, rows * WIDTH));
        let position = i64s(&[1], &[step as i64 * rows as i64]);
        let inputs = [input.into(), position.into()];
        outputs.extend(session.run_with("forward", &inputs, &control).unwrap());
    }
    outputs
}

fn assert_equal(fused: &[Value], plain: &[Value], what: &str) {
    assert_eq!(fused.len(), plain.len());
    for (at, (fused, plain)) in fused.iter().zip(plain).enumerate() {
        let (fused, plain) = (fused.to_tensor().unwrap().unwrap(), plain.to_tensor().unwrap().unwrap());
        assert_eq!((fused.dtype(), fused.shape()), (plain.dtype(), plain.shape()), "{what}, output {at}");
        let differ = fused.bytes().iter().zip(plain.bytes().iter()).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{what}, output {at}: the first byte that differs");
        assert!(plain.bytes().iter().any(|&byte| byte != 0), "{what}, output {at} is empty");
    }
}

fn counts(program: &Program) -> Counts {
    let mut all = Counts::new();
    for delegate in program.methods().iter().flat_map(|method| &method.delegates) {
        for (kind, count) in fuse(&mut delegate.module.main.clone()) {
            *all.entry(kind).or_default() += count;
        }
    }
    all
}

#[test]
fn fused_ops_give_what_plain_ones_give() {
    let dtypes = [DType::BF16, DType::F32, DType::F16];
    let activations = ["silu", "tanh", "none", "spelled"];
    for path in Path::ALL {
        if !path.is_available() {
            println!("{path}: not run, this machine lacks it");
            continue;
        }
        PATH.set(Some(path));
        for (at, &form) in FORMS.iter().enumerate().step_by(if cfg!(miri) { FORMS.len() / 2 } else { 1 }) {
            let (dtype, activation) = (dtypes[at % dtypes.len()], activations[at % activations.len()]);
            let precisions: &[Precision] =
                if cfg!(miri) { &[Precision::Fast] } else { &[Precision::Exact, Precision::Fast] };
            for &precision in precisions {
                let program = program(form, dtype, activation, precision);
                let made: Vec<(OpKind, usize)> = counts(&program).into_iter().collect();
                // Embeddings have a test of their own.
                let of_layers = OpKind::internal().iter().filter(|&&kind| kind != OpKind::PackedEmbedding);
                let one_of_each: Vec<(OpKind, usize)> = of_layers.map(|&kind| (kind, 1)).collect();
                assert_eq!(made, one_of_each, "{form:?}");
                // A decoded token, a few rows, and as many as matrix tiles take.
                for &rows in if cfg!(miri) { [1, 3].as_slice() } else { &[1, 5, 20] } {
                    let listener = Arc::new(Listener::default());
                    let plain = run(&program, dtype, rows, Some(listener.clone()));
                    let heard = listener.0.lock().unwrap();
                    assert!(heard.contains(&OpKind::RMSNorm) && !heard.iter().any(|kind| kind.is_internal()));
                    let fused = run(&program, dtype, rows, None);
                    assert_equal(
                        &fused,
                        &plain,
                        &format!("{path} {form:?} {dtype} {precision:?} {rows} rows"),
                    );
                }
            }
        }
    }
}

/// Keys whose range is outside the cache, and queries that turn by the same angles.
const OUTSIDE: &str = r#"graph "forward"
  input %0 "k": f32[1, 2, 1, 8]
  input %1 "position": i64[1]
  buffer %2 "cache": f32[1, 2, 4, 8] -> %4
{
  %3: f32[1, 2, 1, 8] = rope(x=%0, dims=8, offset=%1, base=10000.0)
  %4: f32[1, 2, 4, 8] = slice_update(dst=%2, update=%3, axis=2, start=9, stop=10)
  %5: f32[1, 2, 1, 8] = neg(x=%0)
  %6: f32[1, 2, 1, 8] = rope(x=%5, dims=8, offset=%1, base=10000.0)
}
output %6 "q": f32[1, 2, 1, 8]
"#;

#[test]
fn keys_that_are_written_nowhere_leave_their_angles_to_others() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let [k, q] = [(); 2].map(|()| method.tensor(DType::F32, &[1, 2, 1, 8]));
    let position = method.tensor(DType::I64, &[1]);
    method.input(k);
    method.input(position);
    method.output(q);
    method.delegate(&mut file, OUTSIDE, &[k, position, q]);
    file.add(method);
    let program = file.load().unwrap();
    assert_eq!(counts(&program).get(&OpKind::RopeUpdate), Some(&1));
    for position in [3, 5] {
        let inputs =
            [floats(DType::F32, &[1, 2, 1, 8], &numbers(1, 16)).into(), i64s(&[1], &[position]).into()];
        let control = RunControl { trace: Some(Arc::new(Listener::default())), ..RunControl::default() };
        let plain = program.session().unwrap().run_with("forward", &inputs, &control).unwrap();
        let fused = program.session().unwrap().run("forward", &inputs).unwrap();
        assert_equal(&fused, &plain, &format!("position {position}"));
    }
}

/// The programs of the packed sample that ExecuTorch made. Miri would unpack them for an hour, and they only are counted.
#[cfg(not(miri))]
#[test]
fn programs_by_executorch_are_fused() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/sample.zip");
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(std::fs::read(file).unwrap())).unwrap();
    let mut made = |case: &str| {
        let mut bytes = Vec::new();
        std::io::copy(&mut archive.by_name(&format!("{case}/model.pte")).unwrap(), &mut bytes).unwrap();
        let options = Options { registry: registry(), ..Options::default() };
        let program = Program::load(case, pteron_tensor::Bytes::copy_of(&bytes), &[], &options).unwrap();
        counts(&program)
    };
    let of = |pairs: &[(OpKind, usize)]| pairs.iter().copied().collect::<Counts>();
    let (norms, products) = (OpKind::AddRmsNorm, OpKind::Projections);
    let (gates, keys) = (OpKind::GatedProjection, OpKind::RopeUpdate);
    let rows = OpKind::PackedEmbedding;
    assert_eq!(made("llama_4w_tied"), of(&[(norms, 4), (products, 2), (gates, 2), (rows, 1)]));
    assert_eq!(made("llama_f32"), of(&[(norms, 4)]));
    assert_eq!(made("gemma4_31b_sample"), of(&[(norms, 3), (keys, 1)]));
}

/// Tokens of any integer type, strided or not, that the run itself computes: their memory is free as soon as the rows are
/// picked, also for the rows.
const EMBEDDING: &str = r#"graph "forward"
  symbol T in 1..=16
  input %0 "tokens": i64[T, 2]
  constant %1 "w": u32[300, 16]
  constant %2 "scales": SCALES[300, 4]
  constant %3 "biases": SCALES[300, 4]
{
  %4: INDEX[T, 2] = as_type(x=%0, scalar_type=INDEX)
  %5: INDEX[2, T] = transpose(x=%4, perm=[1, 0])
  %6: u32[2, T, 16] = take(x=%1, index=%5, axis=0)
  %7: SCALES[2, T, 4] = take(x=%2, index=%5, axis=0)
  %8: SCALES[2, T, 4] = take(x=%3, index=%5, axis=0)
  %9: RESULT[2, T, 128] = dequantize(w=%6, scales=%7, biases=%8, group_size=32, bits=4, mode="affine", dtype=RESULT)
}
output %9 "rows": RESULT[2, T, 128]
"#;

#[test]
fn an_embedding_of_packed_weights_is_its_parts() {
    let codes: Vec<u32> = (0..300 * 16).map(|at| (at as u32).wrapping_mul(2_654_435_761)).collect();
    for (index, scales, result) in [
        ("i32", DType::F32, DType::F32),
        ("i64", DType::BF16, DType::BF16),
        ("u16", DType::F16, DType::F32),
        ("u32", DType::BF16, DType::F32),
        ("u64", DType::F32, DType::F16),
        ("i16", DType::F16, DType::F16),
    ] {
        let text = EMBEDDING.replace("INDEX", index);
        let text = text.replace("SCALES", &scales.to_string()).replace("RESULT", &result.to_string());
        let mut file = File::default();
        file.name("w", &HostTensor::from_slice(vec![300, 16], &codes).unwrap());
        for (name, seed) in [("scales", 3), ("biases", 4)] {
            file.name(name, &floats(scales, &[300, 4], &numbers(seed, 1200)));
        }
        let mut method = Method::new("forward");
        let (tokens, out) = (method.dynamic(DType::I64, &[16, 2]), method.dynamic(result, &[2, 16, 128]));
        method.input(tokens);
        method.output(out);
        method.delegate(&mut file, &text, &[tokens, out]);
        file.add(method);
        let program = file.load().unwrap();
        assert_eq!(counts(&program), [(OpKind::PackedEmbedding, 1)].into_iter().collect::<Counts>());
        for length in [1, 16] {
            let tokens: Vec<i64> = (0..2 * length as i64).map(|at| at * 97 % 300).collect();
            let inputs = [i64s(&[length, 2], &tokens).into()];
            let control = RunControl { trace: Some(Arc::new(Listener::default())), ..RunControl::default() };
            let plain = program.session().unwrap().run_with("forward", &inputs, &control).unwrap();
            let fused = program.session().unwrap().run("forward", &inputs).unwrap();
            assert_equal(&fused, &plain, &format!("{index}, {scales}, {result}, {length}"));
        }
    }
}
