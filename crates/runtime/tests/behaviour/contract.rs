//! The contract of backends, called by itself: what safe code can hand to a backend is what it may rely on, or refused.

use crate::graphs::{Trial, buffer, load};
use crate::pte::f32s;
use pteron_ir::{Graph, Op, ValueId, parse_graph};
use pteron_runtime::backend::{GraphId, RunControl, StateOptions};
use pteron_runtime::{Error, Value};
use pteron_tensor::HostTensor;
use std::sync::Arc;

fn backend() -> Arc<dyn pteron_runtime::backend::Backend> {
    crate::registry().resolve(None).unwrap().backend
}

/// Adds its input to a buffer of so many elements.
fn adds(count: usize) -> Graph {
    let text = format!(
        r#"graph "forward"
  input %0 "x": f32[{count}]
  buffer %1 "sum": f32[{count}] -> %2
{{
  %2: f32[{count}] = add(a=%0, b=%1)
}}
output %2 "y": f32[{count}]
"#
    );
    parse_graph(&text).unwrap()
}

/// Its buffers have other sizes than the graph that would write them.
#[test]
fn a_state_of_another_program_is_refused() {
    let backend = backend();
    let options = StateOptions::default();
    let mut small = Trial::new(&[adds(2)], &[], backend.as_ref(), &options).unwrap();
    let large = Trial::new(&[adds(4096)], &[], backend.as_ref(), &options).unwrap();
    let inputs = [Value::Tensor(f32s(&[4096], &[1.0; 4096]))];
    let mut outputs = Vec::new();
    let result =
        large.loaded.run(GraphId(0), small.state.as_mut(), &inputs, &RunControl::default(), &mut outputs);
    assert!(matches!(result, Err(Error::ForeignState)), "{result:?}");
    small.run(0, &[f32s(&[2], &[1.0, 2.0]).into()]).unwrap();
    assert_eq!(small.buffer(0, "sum"), f32s(&[2], &[1.0, 2.0]));
    // The same graph loaded twice is two programs.
    let mut again = Trial::new(&[adds(2)], &[], backend.as_ref(), &options).unwrap();
    again.loaded = small.loaded.clone();
    let result = again.run(0, &[f32s(&[2], &[1.0, 2.0]).into()]);
    assert!(matches!(result, Err(Error::ForeignState)), "{result:?}");
}

/// Graphs that no file gives: lift makes none of them, but nothing keeps others from handing them in.
#[test]
fn graphs_that_mean_nothing_are_not_loaded() {
    let refused = |change: &dyn Fn(&mut Graph), wanted: &str| {
        let mut graph = adds(2);
        change(&mut graph);
        let error = load(&[graph], &[], backend().as_ref()).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("loaded, though {wanted}"));
        assert!(error.contains(wanted) && error.contains("method `forward`"), "{error}");
    };
    refused(&|graph| graph.body.nodes[0].op = Op::Exp { x: ValueId(9) }, "not in the table of values");
    refused(&|graph| graph.body.nodes[0].op = Op::Exp { x: ValueId(2) }, "used before it is defined");
    refused(&|graph| graph.body.nodes[0].results = vec![ValueId(0)], "is defined twice");
    refused(&|graph| graph.body.nodes[0].results.clear(), "results are listed where the op gives");
    refused(&|graph| graph.values[2] = adds(3).values[2].clone(), "is declared f32[3]");
    refused(&|graph| graph.buffers[0].value = ValueId(0), "is defined twice");
    let symbolic = "graph \"forward\"\n  symbol T in 1..=8\n  buffer %0 \"sum\": f32[T] -> %0\n{}\n";
    let graph = parse_graph(symbolic).unwrap();
    let error = load(&[graph], &[], backend().as_ref()).err().unwrap().to_string();
    assert!(error.contains("the size of buffer `sum` is not known"), "{error}");
}

#[test]
fn constants_must_be_what_the_graph_says() {
    let graph = parse_graph(
        r#"graph "forward"
  input %0 "x": f32[4]
  constant %1 "w": f32[4]
{
  %2: f32[4] = add(a=%0, b=%1)
}
output %2 "y": f32[4]
"#,
    )
    .unwrap();
    let try_with =
        |constants: &[(&str, HostTensor)]| load(std::slice::from_ref(&graph), constants, backend().as_ref());
    try_with(&[("w", f32s(&[4], &[1.0; 4]))]).unwrap();
    let ints = HostTensor::from_slice(vec![4], &[1i32; 4]).unwrap();
    let wrong: [(&[(&str, HostTensor)], &str); 4] = [
        (&[], "no data"),
        (&[("w", f32s(&[2], &[1.0; 2]))], "the graph says f32 [4], the data are"),
        (&[("w", f32s(&[1, 4], &[1.0; 4]))], "the graph says f32 [4], the data are"),
        (&[("w", ints)], "the graph says f32 [4], the data are"),
    ];
    for (constants, wanted) in wrong {
        let error = try_with(constants).err().unwrap().to_string();
        assert!(error.contains("`w`") && error.contains(wanted), "{error}");
    }
}

/// A number that the graph knows has decided sizes before the run.
#[test]
fn a_number_that_the_graph_knows_is_held_to_it() {
    let text = r#"graph "forward"
  input %0 "x": f32[8]
  input %1 "n": int(3)
{
  %2: f32[3] = slice(x=%0, axis=0, start=0, stop=%1)
  %3: f32[3] = add(a=%2, b=%2)
}
output %3 "y": f32[3]
"#;
    let mut trial = Trial::of(&[text], &[], backend().as_ref());
    let x = || Value::Tensor(f32s(&[8], &[1.0; 8]));
    let outputs = trial.run(0, &[x(), Value::Int(3)]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[3], &[2.0; 3]));
    for other in [0, 2, 8] {
        let result = trial.run(0, &[x(), Value::Int(other)]);
        assert!(matches!(result, Err(Error::Input { index: 1, .. })), "{other}: {result:?}");
    }
}

/// What is pending is taken back as a whole by whoever saw the panic or the error, also where several runs made it.
#[test]
fn a_rollback_takes_back_all_runs_since_the_last_commit() {
    let mut trial =
        Trial::new(&[adds(2), adds(2)], &[], backend().as_ref(), &StateOptions::default()).unwrap();
    let x = [Value::Tensor(f32s(&[2], &[1.0, 2.0]))];
    trial.run(0, &x).unwrap();
    for graph in [0, 1, 0] {
        trial.run_pending(graph, &x, &RunControl::default()).unwrap();
    }
    trial.state.rollback();
    assert_eq!(trial.buffer(0, "sum"), f32s(&[2], &[1.0, 2.0]));
    assert_eq!(trial.buffer(1, "sum"), f32s(&[2], &[0.0, 0.0]));
    trial.state.write(&buffer(1, "sum"), &f32s(&[2], &[5.0, 5.0])).unwrap();
    trial.run(1, &x).unwrap();
    assert_eq!(trial.buffer(1, "sum"), f32s(&[2], &[6.0, 7.0]));
}
