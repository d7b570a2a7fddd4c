//! Graphs as a program of their own, on a backend that is given: without a file, so that a graph is run as it stands.

#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used)] // a graph that cannot be built fails its test

use pteron_ir::{Graph, Module};
use pteron_runtime::backend::{
    Backend, DelegateGraph, DeviceId, GraphId, LoadOptions, Loaded, ProgramGraphs, RunControl, State,
    StateOptions,
};
use pteron_runtime::{BufferId, Result, Scope, Value, VerifiedGraphs, VerifiedProgram, Weights};
use pteron_tensor::HostTensor;
use std::sync::Arc;

/// A loaded program whose delegates are all of the method `forward`.
pub(crate) fn load(
    graphs: &[Graph],
    constants: &[(&str, HostTensor)],
    backend: &dyn Backend,
) -> Result<Arc<dyn Loaded>> {
    let mut weights = Weights::new(graphs.len());
    for (index, graph) in graphs.iter().enumerate() {
        for (name, tensor) in constants {
            if graph.constants.iter().any(|constant| constant.name == *name) {
                weights.add_stored(GraphId(index), name, tensor.clone());
            }
        }
    }
    let delegates = graphs.iter().enumerate().map(|(delegate, graph)| {
        let module = Arc::new(Module { init: None, main: graph.clone() });
        DelegateGraph::new("forward".into(), delegate, module)
    });
    let graphs = ProgramGraphs { file: "graphs".into(), graphs: delegates.collect() };
    let program = VerifiedProgram::new(VerifiedGraphs::new(graphs)?, Arc::new(weights))?;
    backend.load(DeviceId::default(), &program, &LoadOptions::default())
}

/// A program and the state of one session.
pub(crate) struct Trial {
    pub(crate) loaded: Arc<dyn Loaded>,
    pub(crate) state: Box<dyn State>,
}

impl Trial {
    pub(crate) fn new(
        graphs: &[Graph],
        constants: &[(&str, HostTensor)],
        backend: &dyn Backend,
        options: &StateOptions,
    ) -> Result<Trial> {
        let loaded = load(graphs, constants, backend)?;
        let state = loaded.new_state(options)?;
        Ok(Trial { loaded, state })
    }

    /// Of graphs in text form.
    pub(crate) fn of(texts: &[&str], constants: &[(&str, HostTensor)], backend: &dyn Backend) -> Trial {
        let graphs: Vec<Graph> = texts.iter().map(|text| pteron_ir::parse_graph(text).unwrap()).collect();
        Trial::new(&graphs, constants, backend, &StateOptions::default()).unwrap()
    }

    /// Runs one graph and commits; an error leaves the state alone.
    pub(crate) fn run(&mut self, graph: usize, inputs: &[Value]) -> Result<Vec<Value>> {
        let outputs = self.run_pending(graph, inputs, &RunControl::default())?;
        self.state.commit()?;
        Ok(outputs)
    }

    /// Runs one graph; outputs are in host memory.
    pub(crate) fn run_pending(
        &mut self,
        graph: usize,
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<Vec<Value>> {
        let mut outputs = Vec::new();
        self.loaded.run(GraphId(graph), self.state.as_mut(), inputs, control, &mut outputs)?;
        let fetched = outputs.into_iter().map(|value| Ok(value.to_tensor()?.map_or(value, Value::Tensor)));
        fetched.collect()
    }

    pub(crate) fn buffer(&self, delegate: usize, name: &str) -> HostTensor {
        self.state.read(&buffer(delegate, name)).unwrap()
    }
}

pub(crate) fn buffer(delegate: usize, name: &str) -> BufferId {
    BufferId { scope: Scope::Method("forward".into()), delegate: Some(delegate), name: name.into() }
}
