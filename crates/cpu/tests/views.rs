//! Views of what moves from run to run (inputs, buffers that were copied) follow it.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pte::{File, Method, f32s};
use pteron_cpu::Cpu;
use pteron_runtime::registry::Registry;
use pteron_tensor::DType;
use std::sync::Arc;

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    registry
}

/// The input and the buffer are reshaped and transposed, which moves no element; the buffer counts up.
const VIEWS: &str = r#"graph "forward"
  input %0 "x": f32[6]
  buffer %1 "sum": f32[6] -> %8
{
  %2: f32[2, 3] = reshape(x=%0, shape=[2, 3])
  %3: f32[3, 2] = transpose(x=%2, perm=[1, 0])
  %4: f32[2, 3] = reshape(x=%1, shape=[2, 3])
  %5: f32[3, 2] = transpose(x=%4, perm=[1, 0])
  %6: f32[3, 2] = add(a=%3, b=%5)
  %7: f32[6] = add(a=%0, b=%1)
  %8: f32[6] = slice_update(dst=%1, update=%7, axis=0, start=0, stop=6)
}
output %6 "y": f32[3, 2]
"#;

#[test]
fn views_follow_inputs_and_buffers_that_move() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, out) = (method.tensor(DType::F32, &[6]), method.tensor(DType::F32, &[3, 2]));
    method.input(x);
    method.output(out);
    method.delegate(&mut file, VIEWS, &[x, out]);
    file.add(method);
    let mut session = file.load().unwrap().session().unwrap();
    // The old inputs are kept, so that a new one lies elsewhere; so are snapshots, so that the buffer is copied.
    let (mut inputs, mut snapshots) = (Vec::new(), Vec::new());
    let mut sum = [0.0f32; 6];
    for run in 1..5 {
        let values: [f32; 6] = std::array::from_fn(|at| (run * 10 + at) as f32);
        inputs.push(f32s(&[6], &values));
        let outputs = session.run("forward", &[inputs[run - 1].clone().into()]).unwrap();
        let got = outputs[0].to_tensor().unwrap().unwrap();
        let wanted: Vec<f32> = [0, 3, 1, 4, 2, 5].iter().map(|&at: &usize| values[at] + sum[at]).collect();
        assert_eq!(got.as_slice::<f32>().unwrap(), wanted, "run {run}");
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        snapshots.push(session.snapshot().unwrap());
    }
}

/// A part of the input, transposed, between numbers.
const PADDED: &str = r#"graph "forward"
  input %0 "x": f32[2, 3]
{
  %1: f32[3, 2] = transpose(x=%0, perm=[1, 0])
  %2: f32[2, 2] = slice(x=%1, axis=0, start=1, stop=3)
  %3: f32[3, 5] = pad(x=%2, pad_width=[1, 0, 1, 2], mode="constant", constant_value=-1.5)
}
output %3 "y": f32[3, 5]
"#;

#[test]
fn padding_lies_around_a_view_and_nowhere_else() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, out) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::F32, &[3, 5]));
    method.input(x);
    method.output(out);
    method.delegate(&mut file, PADDED, &[x, out]);
    file.add(method);
    let mut session = file.load().unwrap().session().unwrap();
    for run in 0..3 {
        let x: [f32; 6] = std::array::from_fn(|at| (run * 10 + at) as f32);
        let outputs = session.run("forward", &[f32s(&[2, 3], &x).into()]).unwrap();
        let got = outputs[0].to_tensor().unwrap().unwrap();
        let p = -1.5;
        let wanted = [p, p, p, p, p, p, x[1], x[4], p, p, p, x[2], x[5], p, p];
        assert_eq!(got.as_slice::<f32>().unwrap(), wanted, "run {run}");
    }
}
