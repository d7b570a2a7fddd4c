//! Programs that backends may trust: every graph has passed the verifier, and every constant is what its graph says.
//! There is no other way to load a program into a backend, so what rests on it holds whoever calls.

use crate::backend::{DelegateGraph, GraphId, ProgramGraphs};
use crate::value::describe_tensor;
use crate::{Error, Result, Weights};
use pteron_ir::{Constant, Graph, Module, Type, verify_module};
use pteron_tensor::HostTensor;
use std::collections::HashSet;
use std::sync::Arc;

/// Graphs that mean something: each value is made once and before it is read, each op's rule holds, and the sizes of
/// buffers are known.
#[derive(Clone, Debug)]
pub struct VerifiedGraphs(Arc<ProgramGraphs>);

impl VerifiedGraphs {
    /// Runs the verifier over all graphs, those of init too; modules that delegates share once.
    pub fn new(graphs: ProgramGraphs) -> Result<VerifiedGraphs> {
        let mut seen: HashSet<*const Module> = HashSet::new();
        for delegate in &graphs.graphs {
            if !seen.insert(Arc::as_ptr(&delegate.module)) {
                continue;
            }
            if let Some(problem) = unsound(&delegate.module) {
                let (file, place) = (graphs.file.clone(), place(delegate));
                return Err(Error::Program { file, place, problem });
            }
        }
        Ok(VerifiedGraphs(Arc::new(graphs)))
    }

    /// The graphs, to be shared as they are.
    pub fn shared(&self) -> &Arc<ProgramGraphs> {
        &self.0
    }
}

impl std::ops::Deref for VerifiedGraphs {
    type Target = ProgramGraphs;

    fn deref(&self) -> &ProgramGraphs {
        &self.0
    }
}

/// Verified graphs with the constants of all main graphs: there, of the dtype and of the sizes that the graph declares.
/// What an init graph has made may have a size that its graph does not know; that is within its bound.
#[derive(Clone, Debug)]
pub struct VerifiedProgram {
    graphs: VerifiedGraphs,
    weights: Arc<Weights>,
}

impl VerifiedProgram {
    /// Holds the weights against what the graphs say. Nothing of them is read, and no multiple of a constant is made.
    pub fn new(graphs: VerifiedGraphs, weights: Arc<Weights>) -> Result<VerifiedProgram> {
        for (index, delegate) in graphs.graphs.iter().enumerate() {
            let main = &delegate.module.main;
            for constant in &main.constants {
                let like = weights.like(GraphId(index), &constant.name);
                misfit(main, constant, like).map_or(Ok(()), |problem| {
                    Err(Error::Constant {
                        file: graphs.file.clone(),
                        method: delegate.method.clone(),
                        name: constant.name.clone(),
                        problem,
                    })
                })?;
            }
        }
        Ok(VerifiedProgram { graphs, weights })
    }

    /// The graphs.
    pub fn graphs(&self) -> &Arc<ProgramGraphs> {
        self.graphs.shared()
    }

    /// The constants of all of them.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }
}

fn place(delegate: &DelegateGraph) -> String {
    format!("method `{}`, delegate {}", delegate.method, delegate.delegate)
}

/// What is wrong with a module.
fn unsound(module: &Module) -> Option<String> {
    if let Err(errors) = verify_module(module) {
        return Some(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let main = &module.main;
    let is_known = |value| matches!(main.ty(value), Some(Type::Tensor(ty)) if ty.known_shape().is_some());
    let unknown = main.buffers.iter().find(|buffer| !is_known(buffer.value))?;
    Some(format!("the size of buffer `{}` is not known", unknown.name))
}

/// What is wrong with the data of a constant.
fn misfit(graph: &Graph, constant: &Constant, data: Option<&HostTensor>) -> Option<String> {
    let Some(data) = data else { return Some("no data".into()) };
    let Some(Type::Tensor(ty)) = graph.ty(constant.value) else { return Some("it is not a tensor".into()) };
    let fits = ty.dtype == data.dtype()
        && ty.shape.len() == data.rank()
        && ty.shape.iter().zip(data.shape()).all(|(dim, &size)| match dim.as_known() {
            Some(known) => usize::try_from(known) == Ok(size),
            None => graph.symbols.upper(dim).is_none_or(|most| size as i64 <= most),
        });
    if fits {
        return None;
    }
    let dims: Vec<String> = ty.shape.iter().map(|dim| graph.symbols.show(dim)).collect();
    let given = describe_tensor(data.dtype(), data.shape());
    Some(format!("the graph says {} [{}], the data are {given}", ty.dtype, dims.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Multiple;
    use pteron_ir::parse_graph;

    /// Multiples are held against the graph by what they are multiples of.
    #[test]
    fn multiples_of_constants_are_checked_and_not_made() {
        let text = "graph \"forward\"\n  constant %0 \"biases\": f32[2]\n{}\noutput %0 \"y\": f32[2]\n";
        let program = |of: &[f32]| {
            let module = Arc::new(Module { init: None, main: parse_graph(text).unwrap() });
            let delegate = DelegateGraph::new("forward".into(), 0, module);
            let graphs = ProgramGraphs { file: "test".into(), graphs: vec![delegate] };
            let of = HostTensor::from_slice(vec![of.len()], of).unwrap();
            let mut weights = Weights::new(1);
            weights.add_multiple(GraphId(0), "biases", Multiple::new(&of, -8.0).unwrap());
            VerifiedProgram::new(VerifiedGraphs::new(graphs)?, Arc::new(weights))
        };
        assert_eq!(program(&[1.0, 2.0]).unwrap().weights().bytes(), (0, 0));
        let error = program(&[1.0, 2.0, 3.0]).err().unwrap().to_string();
        assert!(error.contains("`biases`") && error.contains("the data are"), "{error}");
    }
}
