//! Whether the tables of a program fit together: every value defined once and before its use, one spec for
//! every input and output, a weight behind every name.
//!
//! Parsed tables flow in, the first contradiction flows out with the node or spec that it is in.

use super::ExportedProgram;
use super::argument::{Argument, SymInt, TensorMeta, ValueKind};
use super::error::{Pt2Error, Result, clip};
use super::schema::{Graph, InputSpec, OutputSpec};
use super::weights::Weight;
use pteron_format::{FormatError, Limits, Place};
use std::collections::{HashMap, HashSet};

/// Checks a whole program.
pub(super) fn verify(program: &ExportedProgram, limits: &Limits) -> Result<()> {
    let checker = Checker { program, limits };
    checker.graph(program.graph(), "the graph")?;
    checker.inputs()?;
    checker.outputs()
}

struct Checker<'a> {
    program: &'a ExportedProgram,
    limits: &'a Limits,
}

impl<'a> Checker<'a> {
    fn error(&self, place: impl Into<String>, problem: impl Into<String>) -> Pt2Error {
        let program = clip(self.program.name());
        Pt2Error::Graph { program, place: place.into(), problem: problem.into() }
    }

    fn limit(&self, limit: &'static str, found: usize, allowed: u64) -> Result<()> {
        let place = || Place::at(format!("program `{}`", clip(self.program.name())));
        Ok(FormatError::check_limit(limit, found as u64, allowed, place)?)
    }

    fn graph(&self, graph: &'a Graph, within: &str) -> Result<()> {
        self.limit("instructions", graph.nodes.len(), self.limits.instructions)?;
        self.limit("tensors", graph.tensor_values.len(), self.limits.tensors)?;
        for (name, meta) in graph.tensor_values.iter() {
            self.limit("rank", meta.sizes.len(), self.limits.rank as u64)?;
            if meta.sizes.len() != meta.strides.len() {
                return Err(
                    self.error(format!("tensor `{}`", clip(name)), "as many strides as sizes are needed")
                );
            }
        }
        let mut defined = HashMap::new();
        for (index, input) in graph.inputs.iter().enumerate() {
            self.define(graph, &mut defined, input, || format!("input {index} of {within}"))?;
        }
        for node in &graph.nodes {
            for input in &node.inputs {
                self.check_uses(&defined, &input.arg, || node.place())?;
                let mut subgraphs = Vec::new();
                input.arg.graphs(&mut |subgraph| subgraphs.push(subgraph));
                for subgraph in subgraphs {
                    self.graph(
                        &subgraph.graph,
                        &format!("graph `{}` of {}", clip(&subgraph.name), node.place()),
                    )?;
                }
            }
            for output in &node.outputs {
                self.define(graph, &mut defined, output, || node.place())?;
            }
        }
        for (index, output) in graph.outputs.iter().enumerate() {
            self.check_uses(&defined, output, || format!("output {index} of {within}"))?;
        }
        Ok(())
    }

    fn define(
        &self,
        graph: &Graph,
        defined: &mut HashMap<&'a str, ValueKind>,
        argument: &'a Argument,
        place: impl Fn() -> String,
    ) -> Result<()> {
        let mut problem = None;
        argument.names(&mut |kind, name| {
            let recorded = match kind {
                ValueKind::Tensor => graph.tensor_values.contains_key(name),
                ValueKind::SymInt => graph.sym_int_values.contains_key(name),
                ValueKind::SymFloat => graph.sym_float_values.contains_key(name),
                ValueKind::SymBool => graph.sym_bool_values.contains_key(name),
                ValueKind::Object => graph.custom_obj_values.contains_key(name),
            };
            if !recorded {
                problem.get_or_insert(format!("nothing is recorded of {kind:?} `{}`", clip(name)));
            }
            if defined.insert(name, kind).is_some() {
                problem.get_or_insert(format!("value `{}` is defined twice", clip(name)));
            }
        });
        problem.map_or(Ok(()), |problem| Err(self.error(place(), problem)))
    }

    fn check_uses(
        &self,
        defined: &HashMap<&str, ValueKind>,
        argument: &Argument,
        place: impl Fn() -> String,
    ) -> Result<()> {
        let mut problem = None;
        argument.names(&mut |kind, name| match defined.get(name) {
            Some(found) if *found == kind => {}
            Some(found) => {
                problem
                    .get_or_insert(format!("value `{}` is used as {kind:?}, but is {found:?}", clip(name)));
            }
            None => {
                problem.get_or_insert(format!("value `{}` is used before it is defined", clip(name)));
            }
        });
        problem.map_or(Ok(()), |problem| Err(self.error(place(), problem)))
    }

    fn inputs(&self) -> Result<()> {
        let (graph, specs) = (self.program.graph(), &self.program.signature().input_specs);
        if specs.len() != graph.inputs.len() {
            let problem = format!("{} input specs for {} inputs", specs.len(), graph.inputs.len());
            return Err(self.error("the signature", problem));
        }
        let mut targets = HashSet::new();
        for (index, (spec, input)) in specs.iter().zip(&graph.inputs).enumerate() {
            let place = || format!("input spec {index}");
            let fits = match spec {
                InputSpec::UserInput { arg } => arg == input,
                InputSpec::Parameter { arg, .. }
                | InputSpec::Buffer { arg, .. }
                | InputSpec::TensorConstant { arg, .. } => is_tensor(input, &arg.name),
                InputSpec::Token { arg } => single_name(input) == Some(&arg.name),
                InputSpec::CustomObj { arg, .. } => {
                    matches!(input, Argument::Object(object) if object == arg)
                }
                InputSpec::ConstantInput { .. } => names_nothing(input),
            };
            if !fits {
                return Err(self.error(place(), "it is of another value than the graph's input"));
            }
            let Some(target) = spec.target() else { continue };
            if !targets.insert(target) {
                return Err(self.error(place(), format!("`{}` is an input twice", clip(target))));
            }
            let Some(weight) = self.program.weight(target) else {
                return Err(self.error(place(), format!("the archive holds no `{}`", clip(target))));
            };
            if let Argument::Tensor(tensor) = input {
                let meta = graph.tensor_values.get(&tensor.name);
                if !meta.is_some_and(|meta| agrees(weight, meta)) {
                    let problem = format!("`{}` is stored with another dtype or shape", clip(target));
                    return Err(self.error(place(), problem));
                }
            }
        }
        Ok(())
    }

    fn outputs(&self) -> Result<()> {
        let (graph, signature) = (self.program.graph(), self.program.signature());
        if signature.output_specs.len() != graph.outputs.len() {
            let problem =
                format!("{} output specs for {} outputs", signature.output_specs.len(), graph.outputs.len());
            return Err(self.error("the signature", problem));
        }
        let mut parameters = HashSet::new();
        let mut buffers = HashSet::new();
        let mut given = HashSet::new();
        for spec in &signature.input_specs {
            match spec {
                InputSpec::Parameter { parameter_name, .. } => parameters.insert(parameter_name.as_str()),
                InputSpec::Buffer { buffer_name, .. } => buffers.insert(buffer_name.as_str()),
                InputSpec::UserInput { arg } => single_name(arg).is_some_and(|name| given.insert(name)),
                _ => continue,
            };
        }
        for (index, (spec, output)) in signature.output_specs.iter().zip(&graph.outputs).enumerate() {
            let (fits, known) = match spec {
                OutputSpec::UserOutput { arg } => (arg == output, true),
                OutputSpec::LossOutput { arg } => (is_tensor(output, &arg.name), true),
                OutputSpec::Token { arg } => (single_name(output) == Some(&arg.name), true),
                OutputSpec::BufferMutation { arg, buffer_name } => {
                    (is_tensor(output, &arg.name), buffers.contains(buffer_name.as_str()))
                }
                OutputSpec::ParameterMutation { arg, parameter_name }
                | OutputSpec::GradientToParameter { arg, parameter_name } => {
                    (is_tensor(output, &arg.name), parameters.contains(parameter_name.as_str()))
                }
                OutputSpec::UserInputMutation { arg, user_input_name }
                | OutputSpec::GradientToUserInput { arg, user_input_name } => {
                    (is_tensor(output, &arg.name), given.contains(user_input_name.as_str()))
                }
            };
            let problem = match (fits, known) {
                (true, true) => continue,
                (false, _) => "it is of another value than the graph's output",
                (true, false) => "it changes what is no input",
            };
            return Err(self.error(format!("output spec {index}"), problem));
        }
        Ok(())
    }
}

/// The one value that an argument names, if it names exactly one.
fn single_name(argument: &Argument) -> Option<&str> {
    let (mut only, mut count) = (None, 0);
    argument.names(&mut |_, name| {
        only = Some(name);
        count += 1;
    });
    only.filter(|_| count == 1)
}

fn names_nothing(argument: &Argument) -> bool {
    let mut nothing = true;
    argument.names(&mut |_, _| nothing = false);
    nothing
}

fn is_tensor(argument: &Argument, name: &str) -> bool {
    matches!(argument, Argument::Tensor(tensor) if tensor.name == name)
}

fn agrees(weight: &Weight, meta: &TensorMeta) -> bool {
    let Some((dtype, sizes)) = weight.dtype().zip(weight.sizes()) else { return false };
    let known = meta.sizes.iter().map(|size| match size {
        SymInt::Int(size) => usize::try_from(*size).ok(),
        SymInt::Expr(_) => None,
    });
    dtype == meta.dtype && known.eq(sizes.iter().map(|&size| Some(size)))
}
