//! Graphs in the text form, run by the interpreter alone: branches, loops, memory that is reused, errors.

use super::effects::Effects;
use super::interpret::{Context, run};
use super::kernels::Datum;
use super::liveness::BlockLife;
use crate::backend::{GraphId, RunControl, Step, Trace};
use crate::{Result, Value};
use pteron_format::Limits;
use pteron_ir::parse_graph;
use pteron_tensor::{DType, HostTensor};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), values).unwrap()
}

fn run_with(
    text: &str,
    inputs: &[HostTensor],
    buffers: &mut [HostTensor],
    control: &RunControl,
) -> Result<Vec<HostTensor>> {
    let graph = parse_graph(text).unwrap();
    let mut effects = Effects::none();
    let context = Context {
        id: GraphId(0),
        graph: &graph,
        life: &BlockLife::of(&graph),
        limits: &Limits::default(),
        control,
        effects: &mut effects,
        elsewhere: 0,
        flat: None,
    };
    let inputs = inputs.iter().cloned().map(Datum::Tensor).collect();
    let outputs = run(context, inputs, &[], buffers)?;
    let tensors = outputs.into_iter().map(|datum| match datum {
        Datum::Tensor(tensor) => tensor,
        Datum::Scalar(scalar) => panic!("{scalar:?}"),
    });
    Ok(tensors.collect())
}

fn outputs(text: &str, inputs: &[HostTensor]) -> Vec<HostTensor> {
    run_with(text, inputs, &mut [], &RunControl::default()).unwrap()
}

#[test]
fn a_branch_yields_values_of_its_own_and_of_outside() {
    let text = r#"
graph "forward"
  input %0 "flag": i32[1]
  input %1 "x": f32[2]
{
  %2: int(#0) = item_int(x=%0)
  %3: f32[2], %4: f32[2] = if(cond=%2) then {
    %5: f32[2] = add(a=%1, b=%1)
    yield %5, %1
  } else {
    %6: f32[2] = neg(x=%1)
    yield %6, %6
  }
  %7: f32[2] = add(a=%3, b=%4)
}
output %7 "y": f32[2]
"#;
    let text = text.replace("int(#0)", "int(s0)").replace("  input %0", "  symbol s0 in i32\n  input %0");
    let x = tensor(&[2], &[1.0, 2.0]);
    let flag = |value: i32| HostTensor::from_slice(vec![1], &[value]).unwrap();
    assert_eq!(outputs(&text, &[flag(1), x.clone()]), [tensor(&[2], &[3.0, 6.0])]);
    assert_eq!(outputs(&text, &[flag(0), x]), [tensor(&[2], &[-2.0, -4.0])]);
}

const LOOP: &str = r#"
graph "forward"
  input %0 "xs": f32[2, 3]
  input %1 "start": f32[2]
{
  %2: f32[2, 3], %3: f32[2] = scan(originals=[%0], carry=[%1], scan_axis=1) body (%4: f32[2], %5: f32[2]) {
    %6: f32[2] = add(a=%5, b=%4)
    %7: f32[2] = multiply(a=%6, b=%4)
    yield %7, %6
  }
}
output %2 "products": f32[2, 3]
output %3 "sum": f32[2]
"#;

#[test]
fn a_loop_stacks_what_it_gives_and_carries_the_rest() {
    let xs = tensor(&[2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let given = outputs(LOOP, &[xs, tensor(&[2], &[0.0, 0.0])]);
    assert_eq!(given[0], tensor(&[2, 3], &[1.0, 6.0, 18.0, 100.0, 600.0, 1800.0]));
    assert_eq!(given[1], tensor(&[2], &[6.0, 60.0]));
}

#[test]
fn a_loop_over_nothing_is_refused() {
    let text = LOOP.replace("[2, 3]", "[2, 0]");
    let start = tensor(&[2], &[0.0, 0.0]);
    let error = run_with(&text, &[tensor(&[2, 0], &[]), start], &mut [], &RunControl::default());
    assert!(error.unwrap_err().to_string().contains("empty axis"));
}

/// A buffer that nobody else holds is updated where it is.
#[test]
fn updates_happen_in_place_when_the_old_value_is_dead() {
    #[derive(Default)]
    struct Places(Mutex<Vec<usize>>);
    impl Trace for Places {
        fn step(&self, step: &Step<'_>) {
            if let [Value::Tensor(tensor)] = step.results {
                self.0.lock().unwrap().push(tensor.bytes().as_ptr() as usize);
            }
        }
    }
    let text = r#"
graph "forward"
  input %0 "x": f32[1]
  buffer %1 "kept": f32[4] -> %3
{
  %2: f32[4] = slice_update(dst=%1, update=%0, axis=0, start=0, stop=1)
  %3: f32[4] = slice_update(dst=%2, update=%0, axis=0, start=2, stop=3)
}
"#;
    let places = Arc::new(Places::default());
    let control = RunControl { trace: Some(places.clone()), ..RunControl::default() };
    let mut buffers = [HostTensor::zeros(DType::F32, vec![4]).unwrap()];
    run_with(text, &[tensor(&[1], &[7.0])], &mut buffers, &control).unwrap();
    assert_eq!(buffers[0], tensor(&[4], &[7.0, 0.0, 7.0, 0.0]));
    let places = places.0.lock().unwrap();
    // The first write copies, because the caller still has the old contents; the second does not.
    assert_eq!(places[0], places[1]);
}

#[test]
fn an_operand_that_is_read_twice_is_not_taken() {
    let text = r#"
graph "forward"
  input %0 "x": f32[2]
{
  %1: f32[2] = neg(x=%0)
  %2: f32[2] = slice_update(dst=%1, update=%1, axis=0, start=0, stop=2)
}
output %2 "y": f32[2]
"#;
    assert_eq!(outputs(text, &[tensor(&[2], &[1.0, 2.0])]), [tensor(&[2], &[-1.0, -2.0])]);
}

#[test]
fn errors_inside_a_loop_name_the_op_its_place_and_its_operands() {
    let text = LOOP.replace("multiply(a=%6, b=%4)", "multiply(a=%6, b=%4)  ; chain 2 #1");
    let work = Arc::new(AtomicU64::new(40));
    let control = RunControl { work: Some(work.clone()), ..RunControl::default() };
    let inputs = [tensor(&[2, 3], &[1.0; 6]), tensor(&[2], &[0.0, 0.0])];
    let error = run_with(&text, &inputs, &mut [], &control).unwrap_err().to_string();
    assert!(error.contains("= add(") || error.contains("= multiply("), "{error}");
    assert!(error.contains("f32 [2]") && error.contains("`work`"), "{error}");
    assert!(work.load(Ordering::Relaxed) < 40);
}

#[test]
fn one_op_runs_alone_for_other_backends() {
    let graph = parse_graph(
        r#"
graph "forward"
  symbol n in i32
  input %0 "x": f32[1, 2]
  input %1 "n": int(n)
{
  %2: f32[n, 2] = tile(x=%0, reps=[%1, 1])
}
output %2 "y": f32[n, 2]
"#,
    )
    .unwrap();
    let node = &graph.body.nodes[0];
    let operands = [
        (graph.inputs[0].value, tensor(&[1, 2], &[1.0, 2.0]).into()),
        (graph.inputs[1].value, Value::Int(2)),
    ];
    let results = super::run_op(&node.op, &operands, &Limits::default(), &RunControl::default()).unwrap();
    assert_eq!(results[0].as_tensor().unwrap(), &tensor(&[2, 2], &[1.0, 2.0, 1.0, 2.0]));
}
