//! A decoded token allocates nothing, whatever the number of layers and the position, but for pages of off-graph caches;
//! tokens of several lanes together allocate for their lists and nothing more.

#![allow(clippy::unwrap_used, unsafe_code)] // helpers fail their test; an allocator is unsafe by nature

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pte::{File, Method, f32s, i64s};
use pteron_cpu::Cpu;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Lane, Options, Precision, Program, RunControl, Session, SessionOptions, Value};
use pteron_tensor::{DType, HostTensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of what it was asked for.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(data, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    registry
}

/// Under Miri a token takes seconds.
const POSITIONS: usize = if cfg!(miri) { 5 } else { 16 };

/// A decoder step with so many layers: packed embeddings, caches, attention over their live part, packed projections.
fn decoder(layers: usize) -> String {
    let mut head = String::from("graph \"forward\"\n  symbol s0 in i32\n");
    let mut text = String::from(
        r#"  input %0 "token": i64[1, 1]
  input %1 "position": i64[1]
  constant %2 "norm": f32[64]
  constant %3 "square": u32[64, 8]
  constant %4 "square_scales": f32[64, 2]
  constant %5 "square_biases": f32[64, 2]
  constant %6 "wide": u32[128, 8]
  constant %7 "wide_scales": f32[128, 2]
  constant %8 "wide_biases": f32[128, 2]
  constant %9 "deep": u32[64, 16]
  constant %10 "deep_scales": f32[64, 4]
  constant %11 "deep_biases": f32[64, 4]
"#,
    );
    let first = 12 + 2 * layers;
    let mut body = format!(
        "  %{first}: int(s0) = item_int(x=%1)\n  %{}: int(s0+1) = add_int(a=%{first}, b=1)\n",
        first + 1
    );
    let (from, to) = (first, first + 1);
    let mut at = first + 2;
    // What `export` writes: the rows of codes, scales and biases that a token picks, as numbers.
    for (table, ty) in [(3, "u32[1, 1, 8]"), (4, "f32[1, 1, 2]"), (5, "f32[1, 1, 2]")] {
        writeln!(body, "  %{at}: {ty} = take(x=%{table}, index=%0, axis=0)").unwrap();
        at += 1;
    }
    let rows = format!("w=%{}, scales=%{}, biases=%{}, group_size=32, bits=4", at - 3, at - 2, at - 1);
    writeln!(body, "  %{at}: f32[1, 1, 64] = dequantize({rows}, mode=\"affine\", dtype=f32)").unwrap();
    let mut x = at;
    at += 1;
    for layer in 0..layers {
        let [keys, values] = [12 + 2 * layer, 13 + 2 * layer];
        let [k_live, v_live] = [2 * layer + 1, 2 * layer + 2];
        writeln!(head, "  symbol s{k_live} in 0..={POSITIONS}\n  symbol s{v_live} in 0..={POSITIONS}")
            .unwrap();
        let square = "w=%3, scales=%4, biases=%5, group_size=32, bits=4, mode=\"affine\"";
        let wide = "w=%6, scales=%7, biases=%8, group_size=32, bits=4, mode=\"affine\"";
        let deep = "w=%9, scales=%10, biases=%11, group_size=32, bits=4, mode=\"affine\"";
        let mut node = |ty: &str, op: String| {
            writeln!(body, "  %{at}: {ty} = {op}").unwrap();
            at += 1;
            at - 1
        };
        let (row, heads) = ("f32[1, 1, 64]", "f32[1, 2, 1, 32]");
        let normed = node(row, format!("rms_norm(x=%{x}, weight=%2, eps=1e-5)"));
        let mut projected = || {
            let all = node(row, format!("quantized_matmul(x=%{normed}, {square})"));
            let apart = node("f32[1, 1, 2, 32]", format!("reshape(x=%{all}, shape=[1, 1, 2, 32])"));
            node(heads, format!("transpose(x=%{apart}, perm=[0, 2, 1, 3])"))
        };
        let (q, k, v) = (projected(), projected(), projected());
        let q = node(heads, format!("rope(x=%{q}, dims=32, offset=%1, base=10000.0)"));
        let k = node(heads, format!("rope(x=%{k}, dims=32, offset=%1, base=10000.0)"));
        let cache = format!("f32[1, 2, {POSITIONS}, 32]");
        let mut kept = |old: usize, new: usize, live: usize, name: &str| {
            let range = format!("axis=2, start=%{from}, stop=%{to}");
            let all = node(&cache, format!("slice_update(dst=%{old}, update=%{new}, {range})"));
            writeln!(text, "  buffer %{old} \"{name}{layer}\": {cache} -> %{all}").unwrap();
            node(&format!("f32[1, 2, s{live}, 32]"), format!("slice(x=%{all}, axis=2, start=0, stop=%{to})"))
        };
        let (k, v) = (kept(keys, k, k_live, "keys"), kept(values, v, v_live, "values"));
        let attended = node(heads, format!("sdpa(q=%{q}, k=%{k}, v=%{v}, scale=0.125, causal=true)"));
        let attended = node("f32[1, 1, 2, 32]", format!("transpose(x=%{attended}, perm=[0, 2, 1, 3])"));
        let attended = node(row, format!("reshape(x=%{attended}, shape=[1, 1, 64])"));
        let attended = node(row, format!("quantized_matmul(x=%{attended}, {square})"));
        let added = node(row, format!("add(a=%{x}, b=%{attended})"));
        let normed = node(row, format!("rms_norm(x=%{added}, weight=%2, eps=1e-5)"));
        let gate = node("f32[1, 1, 128]", format!("quantized_matmul(x=%{normed}, {wide})"));
        let gate = node("f32[1, 1, 128]", format!("silu(x=%{gate})"));
        let up = node("f32[1, 1, 128]", format!("quantized_matmul(x=%{normed}, {wide})"));
        let both = node("f32[1, 1, 128]", format!("multiply(a=%{gate}, b=%{up})"));
        let down = node(row, format!("quantized_matmul(x=%{both}, {deep})"));
        x = node(row, format!("add(a=%{added}, b=%{down})"));
    }
    format!("{head}{text}{{\n{body}}}\noutput %{x} \"out\": f32[1, 1, 64]\n")
}

fn program(layers: usize, precision: Precision) -> Program {
    let mut file = File::default();
    file.name("norm", &f32s(&[64], &[1.0; 64]));
    for (name, rows, columns) in [("square", 64, 64), ("wide", 128, 64), ("deep", 64, 128)] {
        let codes: Vec<u32> =
            (0..rows * columns / 8).map(|at| (at as u32).wrapping_mul(2_654_435_761)).collect();
        file.name(name, &HostTensor::from_slice(vec![rows, columns / 8], &codes).unwrap());
        let groups = rows * columns / 32;
        let shape = [rows, columns / 32];
        file.name(&format!("{name}_scales"), &f32s(&shape, &vec![0.01; groups]));
        file.name(&format!("{name}_biases"), &f32s(&shape, &vec![-0.07; groups]));
    }
    let mut method = Method::new("forward");
    let (x, position) = (method.tensor(DType::I64, &[1, 1]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 1, 64]);
    method.input(x);
    method.input(position);
    method.output(out);
    method.delegate(&mut file, &decoder(layers), &[x, position, out]);
    file.add(method);
    file.load_with(&[], &Options { precision, ..Options::default() }).unwrap()
}

/// Allocations of one token at each of the positions after the first few.
fn allocations(layers: usize, precision: Precision) -> Vec<usize> {
    let mut session = program(layers, precision).session().unwrap();
    let mut counts = Vec::with_capacity(POSITIONS);
    let mut outputs = Vec::new();
    for position in 0..POSITIONS as i64 {
        let inputs = [i64s(&[1, 1], &[position * 3]).into(), i64s(&[1], &[position]).into()];
        let before = COUNT.load(Ordering::Relaxed);
        session.run_into("forward", &inputs, &RunControl::default(), &mut outputs).unwrap();
        counts.push(COUNT.load(Ordering::Relaxed) - before);
        let out = outputs[0].as_tensor().unwrap();
        assert!(out.as_slice::<f32>().unwrap().iter().all(|value| value.is_finite()));
    }
    counts.split_off(4)
}

/// Allocations of one token in each of three lanes, at each of the positions after the first few.
fn allocations_of_lanes(layers: usize) -> Vec<usize> {
    let program = program(layers, Precision::Fast);
    let mut sessions: Vec<_> = (0..3).map(|_| program.session().unwrap()).collect();
    let mut outputs = vec![Vec::new(); 3];
    let control = RunControl::default();
    let mut counts = Vec::with_capacity(POSITIONS);
    for position in 0..POSITIONS as i64 {
        let inputs: Vec<[Value; 2]> = (0..3)
            .map(|lane| [i64s(&[1, 1], &[position * 3 + lane]).into(), i64s(&[1], &[position]).into()])
            .collect();
        let before = COUNT.load(Ordering::Relaxed);
        let each = sessions.iter_mut().zip(&inputs).zip(&mut outputs);
        let mut lanes: Vec<Lane<'_>> =
            each.map(|((session, inputs), outputs)| Lane::new(session, inputs, &control, outputs)).collect();
        Session::run_together("forward", &mut lanes).unwrap();
        lanes.into_iter().for_each(|lane| lane.result.unwrap());
        counts.push(COUNT.load(Ordering::Relaxed) - before);
    }
    counts.split_off(4)
}

/// What a token costs that is written to an off-graph cache of one layer.
const OUTSIDE: &str = r#"graph "forward"
  input %0 "x": f32[1, 2, 1, 32]
  input %1 "at": i64[1]
{
  %2: f32[1, 2, 1, 32] = update_and_attend(q=%0, k=%0, v=%0, position=%1, layer_id=0, scale=0.125)
}
output %2 "out": f32[1, 2, 1, 32]
"#;

/// Allocations of each token of a second session, the first of which has given its pages back.
fn allocations_outside() -> Vec<usize> {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, at) = (method.tensor(DType::F32, &[1, 2, 1, 32]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 2, 1, 32]);
    method.input(x);
    method.input(at);
    method.output(out);
    method.delegate(&mut file, OUTSIDE, &[x, at, out]);
    file.add(method);
    let program = file.load_with(&[], &Options::default()).unwrap();
    let options = SessionOptions { context: Some(1000), ..SessionOptions::default() };
    let tokens = if cfg!(miri) { 70 } else { 300 };
    let mut counts = Vec::with_capacity(tokens);
    for _ in 0..2 {
        let mut session = program.session_with(&options).unwrap();
        let mut outputs = Vec::new();
        counts.clear();
        for at in 0..tokens as i64 {
            let inputs = [f32s(&[1, 2, 1, 32], &[0.5; 64]).into(), i64s(&[1], &[at]).into()];
            let before = COUNT.load(Ordering::Relaxed);
            session.run_into("forward", &inputs, &RunControl::default(), &mut outputs).unwrap();
            counts.push(COUNT.load(Ordering::Relaxed) - before);
        }
    }
    counts
}

#[test]
fn a_token_allocates_nothing() {
    let outside = allocations_outside();
    for (at, count) in outside.into_iter().enumerate().skip(4) {
        // The memory of a page is there; its list of positions is new, and sometimes that of pages grows.
        assert!(count <= if at % 64 == 0 { 2 } else { 0 }, "{count} at {at}");
    }
    for &precision in
        if cfg!(miri) { [Precision::Fast].as_slice() } else { &[Precision::Exact, Precision::Fast] }
    {
        for &layers in if cfg!(miri) { [1].as_slice() } else { &[1, 6] } {
            let counts = allocations(layers, precision);
            assert!(counts.iter().all(|&count| count == 0), "{layers} layers, {precision:?}: {counts:?}");
        }
    }
    let few = allocations_of_lanes(1);
    if !cfg!(miri) {
        assert_eq!(few, allocations_of_lanes(6), "layers make no difference");
    }
    assert!(few.iter().all(|&count| count == few[0] && count < 100), "{few:?}");
}
