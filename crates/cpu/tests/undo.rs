//! What a run wrote is taken back through the contract's own traits, whatever is done to the state between: these are the
//! orders of calls that a session never makes, and that whoever holds a `State` may.

#![allow(clippy::unwrap_used)] // helpers fail their test

use pteron_cpu::Cpu;
use pteron_ir::parse_module;
use pteron_runtime::backend::{
    Backend, BufferId, DelegateGraph, DeviceId, GraphId, LoadOptions, Loaded, ProgramGraphs, RunControl,
    Scope, State, StateOptions, Step, Trace,
};
use pteron_runtime::{Result, Value, VerifiedGraphs, VerifiedProgram, Weights};
use pteron_tensor::HostTensor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One row of a buffer is replaced in place, then a number is taken out of the input, which may not be there.
const COUNTER: &str = r#"graph "forward"
  input %0 "x": f32[2]
  input %1 "row": i64[1]
  buffer %2 "kept": f32[3, 2] -> %4
{
  %3: f32[1, 2] = expand_dims(x=%0, axis=0)
  %4: f32[3, 2] = index_copy(dst=%2, update=%3, indices=%1, axis=0)
  %5: f32[1] = take(x=%0, index=%1, axis=0)
}
output %5 "y": f32[1]
"#;

fn load() -> Arc<dyn Loaded> {
    let module = Arc::new(parse_module(COUNTER).unwrap());
    let delegate = DelegateGraph::new("forward".into(), 0, module);
    let graphs = ProgramGraphs { file: "counter".into(), graphs: vec![delegate] };
    let graphs = VerifiedGraphs::new(graphs).unwrap();
    let program = VerifiedProgram::new(graphs, Arc::new(Weights::default())).unwrap();
    Cpu::new(2, None).unwrap().load(DeviceId::default(), &program, &LoadOptions::default()).unwrap()
}

fn buffer() -> BufferId {
    BufferId { scope: Scope::Method("forward".into()), delegate: Some(0), name: "kept".into() }
}

fn floats(shape: &[usize], numbers: &[f32]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), numbers).unwrap()
}

fn contents(state: &dyn State) -> Vec<f32> {
    state.read(&buffer()).unwrap().as_slice::<f32>().unwrap().to_vec()
}

fn run(loaded: &dyn Loaded, state: &mut dyn State, row: i64, control: &RunControl) -> Result<()> {
    let inputs = [
        Value::Tensor(floats(&[2], &[7.0, 8.0])),
        Value::Tensor(HostTensor::from_slice(vec![1], &[row]).unwrap()),
    ];
    loaded.run(GraphId(0), state, &inputs, control, &mut Vec::new())
}

const OLD: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const NEW: [f32; 6] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];

fn filled(loaded: &dyn Loaded) -> Box<dyn State> {
    let mut state = loaded.new_state(&StateOptions::default()).unwrap();
    state.write(&buffer(), &floats(&[3, 2], &OLD)).unwrap();
    state
}

#[test]
fn a_rollback_after_a_write_leaves_what_was_written_and_touches_no_memory_that_is_gone() {
    let loaded = load();
    let mut state = filled(&*loaded);
    run(&*loaded, state.as_mut(), 1, &RunControl::default()).unwrap();
    // The snapshot shares the buffer, so that the write replaces it; with the snapshot its memory goes.
    let snapshot = state.snapshot().unwrap();
    state.write(&buffer(), &floats(&[3, 2], &NEW)).unwrap();
    drop(snapshot);
    state.rollback();
    assert_eq!(contents(&*state), NEW);
}

#[test]
fn a_rollback_leaves_a_snapshot_of_pending_writes_alone() {
    let loaded = load();
    let mut state = filled(&*loaded);
    run(&*loaded, state.as_mut(), 1, &RunControl::default()).unwrap();
    let pending = [1.0, 2.0, 7.0, 8.0, 5.0, 6.0];
    assert_eq!(contents(&*state), pending);
    let snapshot = state.snapshot().unwrap();
    state.rollback();
    assert_eq!(contents(&*state), OLD);
    state.restore(&*snapshot).unwrap();
    assert_eq!(contents(&*state), pending);
    // What a snapshot holds is not pending any more.
    state.rollback();
    assert_eq!(contents(&*state), pending);
}

#[test]
fn several_runs_are_taken_back_together_and_a_failed_one_takes_all_with_it() {
    let loaded = load();
    let mut state = filled(&*loaded);
    for row in [0, 1] {
        run(&*loaded, state.as_mut(), row, &RunControl::default()).unwrap();
    }
    // Row 2 of the buffer is there, element 2 of the input is not.
    run(&*loaded, state.as_mut(), 2, &RunControl::default()).unwrap_err();
    assert_eq!(contents(&*state), OLD);
}

/// Panics when it is told of a step.
struct Panics;

impl Trace for Panics {
    fn step(&self, step: &Step<'_>) {
        assert!(!matches!(step.op, pteron_ir::Op::IndexCopy { .. }), "as the test wants it");
    }
}

#[test]
fn a_panic_inside_a_run_leaves_the_state_as_it_was() {
    let loaded = load();
    let mut state = filled(&*loaded);
    let control = RunControl { trace: Some(Arc::new(Panics)), ..RunControl::default() };
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&*loaded, state.as_mut(), 1, &control)));
    assert!(outcome.is_err());
    assert_eq!(contents(&*state), OLD);
    // Nothing of it is committed by the next success, and nothing of it is put back into a later snapshot.
    let snapshot = state.snapshot().unwrap();
    run(&*loaded, state.as_mut(), 0, &RunControl::default()).unwrap();
    state.commit().unwrap();
    assert_eq!(contents(&*state), [7.0, 8.0, 3.0, 4.0, 5.0, 6.0]);
    run(&*loaded, state.as_mut(), 2, &RunControl::default()).unwrap_err();
    state.restore(&*snapshot).unwrap();
    assert_eq!(contents(&*state), OLD);
}
