//! One method: lowered, partitioned, and put together call by call.

use super::error::CompileError;
use super::partition::{Step, partition};
use super::pipeline::Pipeline;
use super::portable;
use super::report::{MethodReport, Outside};
use super::values::Values;
use super::{Options, Source};
use crate::lower::functional::{Functional, functionalise, only_name};
use crate::lower::{Constants, LowerError, LoweredPart, Part, Refusal, lower_part, source_place};
use crate::pt2::Weight;
use crate::pt2::argument::{Argument, OrName};
use crate::pt2::schema::{ConstantValue, InputSpec};
use indexmap::IndexMap;
use pteron_format::ProgramWriter;
use pteron_format::assemble::ValueIndex;
use pteron_format::pte::EValue;
use pteron_ir::{Graph, Module, ValueId, verify_module};
use std::collections::{HashMap, HashSet};

/// What a method is compiled with.
pub(super) struct MethodCompiler<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) options: &'a Options,
    /// Put before the names of its constants.
    pub(super) prefix: String,
    /// Buffers that other methods have too.
    pub(super) shared: &'a HashSet<String>,
}

/// A method split into steps.
struct Plan {
    steps: Vec<Step>,
    /// By step, the graph of a delegate.
    parts: Vec<Option<LoweredPart>>,
    /// Buffers that a delegate keeps.
    owned: HashSet<String>,
}

impl MethodCompiler<'_> {
    fn lower_error(&self, source: LowerError) -> CompileError {
        CompileError::Lower { method: self.source.name.to_owned(), source }
    }

    pub(super) fn compile(&self, writer: &mut ProgramWriter<'static>) -> Result<MethodReport, CompileError> {
        let functional = functionalise(self.source.program).map_err(|error| self.lower_error(error))?;
        let mut report = MethodReport { name: self.source.name.to_owned(), ..MethodReport::default() };
        let mut plan = self.plan(&functional, &mut report)?;
        for lowered in plan.parts.iter_mut().flatten() {
            self.improve(&functional, lowered, &mut report)?;
        }
        self.assemble(&functional, plan, writer, &mut report)?;
        Ok(report)
    }

    /// Which nodes run where, and the graph of each delegate.
    fn plan(&self, functional: &Functional, report: &mut MethodReport) -> Result<Plan, CompileError> {
        let all: Vec<usize> = (0..functional.nodes.len()).collect();
        let mut refused: HashMap<usize, Refusal> = HashMap::new();
        if self.options.portable.takes(self.source.name) {
            let reason = Refusal::Arguments("nothing is to be delegated".into());
            refused.extend(all.iter().map(|&node| (node, reason.clone())));
        } else {
            let part = self.part(functional, &all, &[]);
            let whole = self.lower(functional, &part)?;
            if whole.refused.is_empty() && !all.is_empty() {
                let owned = part.buffers.into_iter().collect();
                return Ok(Plan { steps: vec![Step::Delegate(all)], parts: vec![Some(whole)], owned });
            }
            refused.extend(whole.refused);
        }
        for (&node, refusal) in &refused {
            self.check_outside(functional, node, refusal)?;
        }
        let delegated: Vec<bool> = all.iter().map(|node| !refused.contains_key(node)).collect();
        let steps = partition(functional, &delegated);
        let (mut parts, mut owned) = (Vec::new(), HashSet::new());
        for step in &steps {
            parts.push(match step {
                Step::Delegate(nodes) => {
                    let others: Vec<usize> =
                        all.iter().copied().filter(|node| !nodes.contains(node)).collect();
                    let part = self.part(functional, nodes, &others);
                    let lowered = self.lower(functional, &part)?;
                    if let Some((node, refusal)) = lowered.refused.first() {
                        // It was taken among all nodes and must be taken among fewer.
                        return Err(self.outside_error(
                            functional,
                            *node,
                            refusal,
                            "This is a mistake of the compiler",
                        ));
                    }
                    owned.extend(part.buffers);
                    Some(lowered)
                }
                Step::Portable(node) => {
                    let placed = &functional.nodes[*node];
                    report.portable.push(Outside {
                        kernel: portable::kernel_of(placed).unwrap_or_default(),
                        place: placed.place(),
                        source_place: source_place(placed),
                        reason: refused.get(node).map(ToString::to_string).unwrap_or_default(),
                    });
                    None
                }
            });
        }
        Ok(Plan { steps, parts, owned })
    }

    fn lower(&self, functional: &Functional, part: &Part) -> Result<LoweredPart, CompileError> {
        lower_part(self.source.program, functional, self.source.name, part, self.options.gguf)
            .map_err(|error| self.lower_error(error))
    }

    fn outside_error(
        &self,
        functional: &Functional,
        node: usize,
        refusal: &Refusal,
        advice: &str,
    ) -> CompileError {
        let node = &functional.nodes[node];
        CompileError::Operator {
            method: self.source.name.to_owned(),
            place: node.place(),
            source_place: source_place(node),
            reason: refusal.to_string(),
            advice: advice.to_owned(),
        }
    }

    /// A node outside the delegates must be allowed there and have a kernel.
    fn check_outside(
        &self,
        functional: &Functional,
        node: usize,
        refusal: &Refusal,
    ) -> Result<(), CompileError> {
        if self.options.strict {
            let advice = "With --strict everything must be in the delegate: leave it out, or rewrite the model without \
                          this operator";
            return Err(self.outside_error(functional, node, refusal, advice));
        }
        match portable::kernel_of(&functional.nodes[node]) {
            Some(_) => Ok(()),
            None => {
                let advice = "No portable kernel computes it either: decompose it before export \
                              (run_decompositions()), or rewrite the model without it";
                Err(self.outside_error(functional, node, refusal, advice))
            }
        }
    }

    /// What a set of nodes must give to others, and the buffers that are theirs alone.
    fn part(&self, functional: &Functional, nodes: &[usize], others: &[usize]) -> Part {
        let made: HashSet<&str> = nodes.iter().flat_map(|&node| functional.nodes[node].gives()).collect();
        let read_by_others: HashSet<&str> =
            others.iter().flat_map(|&node| functional.nodes[node].reads()).collect();
        let given: HashSet<&str> = functional.outputs.iter().filter_map(only_name).collect();
        let owned: Vec<String> = functional
            .buffer_updates
            .iter()
            .filter(|(buffer, update)| {
                !read_by_others.contains(buffer.as_str())
                    && !given.contains(buffer.as_str())
                    && made.contains(update.as_str())
                    && self.can_own(buffer)
            })
            .map(|(buffer, _)| buffer.clone())
            .collect();
        let updates = functional.buffer_updates.iter().filter(|(buffer, _)| !owned.contains(buffer));
        let updates = updates.chain(&functional.input_updates).map(|(_, value)| value.as_str());
        let wanted: HashSet<&str> = given.iter().copied().chain(updates).chain(read_by_others).collect();
        let outputs = nodes.iter().flat_map(|&node| functional.nodes[node].gives());
        let outputs = outputs.filter(|name| wanted.contains(name)).map(str::to_owned).collect();
        Part { nodes: nodes.to_vec(), outputs, buffers: owned }
    }

    /// A delegate's buffers begin as zeros and belong to it alone.
    fn can_own(&self, buffer: &str) -> bool {
        let Some(target) = self.target(buffer) else { return false };
        !self.shared.contains(target)
            && match self.source.program.weight(target) {
                Some(Weight::Tensor(tensor)) => tensor.to_bytes().iter().all(|byte| *byte == 0),
                _ => false,
            }
    }

    fn target(&self, input: &str) -> Option<&str> {
        let program = self.source.program;
        let specs = program.signature().input_specs.iter().zip(&program.graph().inputs);
        specs
            .into_iter()
            .find(|(_, known)| only_name(known) == Some(input))
            .and_then(|(spec, _)| spec.target())
    }

    /// Runs the passes over a delegate's graph, and checks what they made.
    fn improve(
        &self,
        functional: &Functional,
        lowered: &mut LoweredPart,
        report: &mut MethodReport,
    ) -> Result<(), CompileError> {
        let mut module = Module { init: None, main: std::mem::take(&mut lowered.graph) };
        let pipeline = Pipeline {
            print_after: self.options.print_after.as_deref(),
            quantize: self.options.quantize.as_ref(),
            source_of: &|node| functional.nodes.get(node as usize).map(|node| node.place()),
        };
        pipeline
            .run(&mut module, &mut lowered.constants, &mut report.trace)
            .map_err(|problem| CompileError::Pass { method: self.source.name.to_owned(), problem })?;
        if let Err(errors) = verify_module(&module) {
            let problem = errors.first().map(ToString::to_string).unwrap_or_default();
            return Err(CompileError::Unsound { method: self.source.name.to_owned(), problem });
        }
        lowered.graph = module.main;
        Ok(())
    }

    fn assemble(
        &self,
        functional: &Functional,
        plan: Plan,
        writer: &mut ProgramWriter<'static>,
        report: &mut MethodReport,
    ) -> Result<(), CompileError> {
        let mut values = Values::new(self.source.program, functional, writer, self.source.name);
        let states = self
            .define_inputs(functional, &plan.owned, &mut values)
            .map_err(|error| self.lower_error(error))?;
        for (step, part) in plan.steps.iter().zip(plan.parts) {
            match (step, part) {
                (Step::Portable(node), _) => {
                    portable::call(&functional.nodes[*node], &mut values)
                        .map_err(|error| self.lower_error(error))?;
                }
                (_, Some(part)) => self.delegate(part, &mut values, report)?,
                (_, None) => {}
            }
        }
        let fail = |error| self.lower_error(error);
        for (to, from) in states {
            let from = values.of(&from).map_err(fail)?;
            if from != to {
                portable::copy_into(&mut values, to, from);
                report.copies += 1;
            }
        }
        for output in &functional.outputs {
            let value = output_value(&mut values, output).map_err(fail)?;
            values.method.output(value);
        }
        let Values { method, writer, .. } = values;
        Ok(writer.method(method)?)
    }

    /// Inputs in the order of the signature, then buffers of the program itself; what is to be written at the end.
    fn define_inputs(
        &self,
        functional: &Functional,
        owned: &HashSet<String>,
        values: &mut Values<'_, '_>,
    ) -> Result<Vec<(ValueIndex, String)>, LowerError> {
        let program = self.source.program;
        let mut writes = Vec::new();
        for (spec, input) in program.signature().input_specs.iter().zip(&program.graph().inputs) {
            match spec {
                InputSpec::UserInput { arg: Argument::Tensor(tensor) } => {
                    let meta = functional.tensors.get(&tensor.name);
                    let missing = || {
                        LowerError::signature(format!("input `{}`", tensor.name), "nothing is recorded of it")
                    };
                    let spec = values.spec(&tensor.name, meta.ok_or_else(missing)?)?;
                    let value = values.method.input(&spec);
                    values.set(&tensor.name, value);
                    if let Some(update) = functional.input_updates.get(&tensor.name) {
                        writes.push((value, update.clone()));
                    }
                }
                InputSpec::UserInput { arg } => {
                    let value = fixed_value(arg).ok_or_else(|| {
                        LowerError::signature(
                            "an input",
                            format!("programs take no {arg:?}; give tensors or integers"),
                        )
                    })?;
                    let value = values.method.value(value);
                    values.method.input_value(value);
                    if let Some(name) = only_name(arg) {
                        values.set(name, value);
                    }
                }
                InputSpec::ConstantInput { value, .. } => {
                    let value = values.method.value(match value {
                        ConstantValue::None(_) => EValue::Null,
                        ConstantValue::Int(value) => EValue::Int(*value),
                        ConstantValue::Float(value) => EValue::Double(value.0),
                        ConstantValue::Bool(value) => EValue::Bool(*value),
                        ConstantValue::Text(text) => EValue::String(text.as_str().into()),
                    });
                    values.method.input_value(value);
                }
                InputSpec::Token { .. } | InputSpec::CustomObj { .. } => {
                    return Err(LowerError::signature(
                        "the inputs",
                        "tokens and objects are not known to programs",
                    ));
                }
                InputSpec::Parameter { .. } | InputSpec::Buffer { .. } | InputSpec::TensorConstant { .. } => {
                    let Some(name) = only_name(input) else { continue };
                    if let Some(update) = functional.buffer_updates.get(name)
                        && !owned.contains(name)
                    {
                        writes.push((self.state(values, name)?, update.clone()));
                    }
                }
            }
        }
        Ok(writes)
    }

    /// A buffer that the program itself keeps.
    fn state(&self, values: &mut Values<'_, '_>, input: &str) -> Result<ValueIndex, LowerError> {
        let target = self.target(input).unwrap_or(input).to_owned();
        let problem = |problem: String| LowerError::signature(format!("buffer `{target}`"), problem);
        let Some(Weight::Tensor(tensor)) = self.source.program.weight(&target) else {
            return Err(problem("only plain tensors can be written".into()));
        };
        let tensor = tensor.to_host().map_err(problem)?;
        let spec = pteron_format::assemble::TensorSpec::known(tensor.dtype(), tensor.shape());
        let zero = tensor.bytes().iter().all(|byte| *byte == 0);
        let value = if self.shared.contains(&target) {
            if !zero {
                return Err(problem(
                    "it is shared and does not begin as zeros, which programs cannot express".into(),
                ));
            }
            values.method.shared_state(&target, &spec)
        } else {
            let initial = (!zero).then(|| values.writer.initial(tensor.bytes()));
            values.method.state(&target, &spec, initial)
        };
        values.set(input, value);
        Ok(value)
    }

    fn delegate(
        &self,
        mut part: LoweredPart,
        values: &mut Values<'_, '_>,
        report: &mut MethodReport,
    ) -> Result<(), CompileError> {
        let fail = |error| self.lower_error(error);
        let same = merge_outputs(&mut part);
        let mut graph = part.graph;
        let mut ops = IndexMap::new();
        graph.for_each_node(|node, _| *ops.entry(node.op.spec().name).or_default() += 1);
        ops.sort_unstable_keys();
        report.delegates.push(ops);
        for (name, number) in &part.numbers {
            let value = values.method.int(*number);
            values.set(name, value);
        }
        self.name_constants(&mut graph, &part.constants, values)?;
        let inputs =
            part.inputs.iter().map(|name| values.of(name)).collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let outputs =
            part.outputs.iter().map(|name| values.of(name)).collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let payload = values.writer.payload(&Module { init: None, main: graph })?;
        values.method.delegate(payload, &inputs, &outputs);
        for (name, first) in same {
            let value = values.of(&first).map_err(fail)?;
            values.set(&name, value);
        }
        Ok(())
    }

    /// Puts constants that the graph reads into the file, under names with the method's prefix.
    fn name_constants(
        &self,
        graph: &mut Graph,
        constants: &Constants,
        values: &mut Values<'_, '_>,
    ) -> Result<(), CompileError> {
        let mut read = HashSet::new();
        graph.for_each_node(|node, _| node.for_each_operand(|value| read.extend([value])));
        read.extend(graph.outputs.iter().map(|output| output.value));
        read.extend(graph.buffers.iter().map(|buffer| buffer.update));
        let mut nested = Vec::new();
        graph.for_each_node(|node, _| {
            node.for_each_block(|block| nested.extend(block.results.iter().copied()))
        });
        read.extend(nested);
        graph.constants.retain(|constant| read.contains(&constant.value));
        for constant in &mut graph.constants {
            let key = format!("{}/{}", self.prefix, constant.name);
            let tensor = constants.get(&constant.name).ok_or_else(|| CompileError::Unsound {
                method: self.source.name.to_owned(),
                problem: format!("constant `{}` has no data", constant.name),
            })?;
            if !values.writer.has_name(&key) {
                values.writer.name(&key, tensor.bytes().clone())?;
            }
            constant.name = key;
        }
        Ok(())
    }
}

/// Outputs that passes found to be one value are given once; each that is dropped, with the one that stands for it.
fn merge_outputs(part: &mut LoweredPart) -> Vec<(String, String)> {
    let mut first: HashMap<ValueId, String> = HashMap::new();
    let mut same = Vec::new();
    let mut kept = Vec::new();
    for (output, name) in
        std::mem::take(&mut part.graph.outputs).into_iter().zip(std::mem::take(&mut part.outputs))
    {
        match first.get(&output.value) {
            Some(earlier) => same.push((name, earlier.clone())),
            None => {
                first.insert(output.value, name.clone());
                kept.push((output, name));
            }
        }
    }
    (part.graph.outputs, part.outputs) = kept.into_iter().unzip();
    same
}

/// A number of the user; integers may be known only when the program runs.
fn fixed_value(argument: &Argument) -> Option<EValue> {
    Some(match argument {
        Argument::None(_) => EValue::Null,
        Argument::Int(value) | Argument::SymInt(OrName::Plain(value)) => EValue::Int(*value),
        Argument::SymInt(OrName::Name(_)) => EValue::Int(0),
        Argument::Float(value) | Argument::SymFloat(OrName::Plain(value)) => EValue::Double(value.0),
        Argument::Bool(value) | Argument::SymBool(OrName::Plain(value)) => EValue::Bool(*value),
        Argument::Text(text) => EValue::String(text.as_str().into()),
        _ => return None,
    })
}

fn output_value(values: &mut Values<'_, '_>, output: &Argument) -> Result<ValueIndex, LowerError> {
    match output {
        Argument::Tensor(tensor) => values.of(&tensor.name),
        Argument::SymInt(OrName::Name(name)) => values.of(name),
        other => match fixed_value(other) {
            Some(value) => Ok(values.method.value(value)),
            None => Err(LowerError::signature("an output", format!("programs give no {other:?}"))),
        },
    }
}
