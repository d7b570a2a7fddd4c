//! Exported graphs made functional: no operator writes to its arguments, no value is a window on another.
//!
//! Straight from `torch.export` a graph mutates: `add_`, `index_copy_`, `copy_` into a slice of a buffer. Here each
//! such write becomes its functional operator, views that it shines through are written back to what they look at
//! (`slice` by `slice_scatter`, and so on), and views that have gone stale are taken anew when they are next read.
//! Graphs of wrappers that only set a mode (`no_grad`, autocast) are taken in. A verified program flows in; a list
//! of nodes in order flows out, with the new value of every buffer and input that was written. What operators
//! compute is not known here, only what they alias.

mod branches;
mod inplace;
mod rename;
mod views;
mod wrappers;

use super::error::LowerError;
use crate::pt2::ExportedProgram;
use crate::pt2::argument::{Argument, Name, SymInt, TensorMeta};
use crate::pt2::schema::{Graph, InputSpec, Node, OutputSpec};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// A graph without side effects.
#[derive(Clone, Debug, Default)]
pub struct Functional {
    /// In order; each uses only what stands before it.
    pub nodes: Vec<Node>,
    /// What is recorded of every tensor.
    pub tensors: IndexMap<String, TensorMeta>,
    /// What is recorded of every symbolic integer.
    pub ints: IndexMap<String, SymInt>,
    /// What the user gets, in order.
    pub outputs: Vec<Argument>,
    /// Buffers that are written: name of the input value, and of the value that the buffer holds afterwards.
    pub buffer_updates: IndexMap<String, String>,
    /// The same for inputs of the user.
    pub input_updates: IndexMap<String, String>,
    /// Values that a node, an output or an update reads.
    pub used: HashSet<String>,
}

impl Functional {
    /// Drops nodes whose results nobody reads, last ones first, and notes what is read.
    fn prune(&mut self) {
        let mut used: HashSet<String> = HashSet::new();
        let updates = self.buffer_updates.values().chain(self.input_updates.values());
        used.extend(updates.cloned());
        used.extend(self.outputs.iter().filter_map(only_name).map(str::to_owned));
        let mut kept = Vec::new();
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if has_effect(&node.target) || node.gives().iter().any(|name| used.contains(*name)) {
                used.extend(node.reads().into_iter().map(str::to_owned));
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        self.used = used;
    }
}

/// Operators that do something besides computing their results.
pub fn has_effect(target: &str) -> bool {
    target.starts_with("torch.ops.kvcache.")
}

/// Makes a program functional.
pub fn functionalise(program: &ExportedProgram) -> Result<Functional, LowerError> {
    let graph = program.graph();
    let mut maker = Maker::default();
    for input in &graph.inputs {
        maker.define_roots(graph, input);
    }
    maker.graph(graph, 0)?;
    maker.finish(program)
}

/// What a value is a window on.
#[derive(Clone, Debug)]
struct Alias {
    /// The value that owns the memory.
    root: String,
    /// The value that this is a view of, and the node that makes it one.
    parent: Option<(String, usize)>,
    /// How many writes to the memory this value has seen.
    seen: u64,
}

/// How deep wrapper graphs may nest; those of real programs nest once.
const MOST_NESTING: u32 = 16;

#[derive(Default)]
struct Maker {
    result: Functional,
    /// From a value's name in the file to the name of what it holds now.
    current: HashMap<String, String>,
    aliases: HashMap<String, Alias>,
    /// Writes to each root.
    writes: HashMap<String, u64>,
    /// Nodes that make views, as they were first given.
    view_nodes: Vec<Node>,
    fresh: u64,
    /// Put before names of a wrapper's graph, which has names of its own.
    scope: String,
}

impl Maker {
    /// An input, or a value that nothing else looks at.
    fn define_roots(&mut self, graph: &Graph, argument: &Argument) {
        let mut names = Vec::new();
        argument.names(&mut |_, name| names.push(name.to_owned()));
        for name in names {
            self.define(graph, &name, &name, None);
        }
    }

    /// Records a value under its name in the file; `holds` is its name in the result.
    fn define(&mut self, graph: &Graph, name: &str, holds: &str, parent: Option<(String, usize)>) {
        let scoped = self.scoped(name);
        if let Some(meta) = graph.tensor_values.get(name) {
            self.result.tensors.entry(holds.to_owned()).or_insert_with(|| meta.clone());
        }
        if let Some(meta) = graph.sym_int_values.get(name) {
            self.result.ints.entry(holds.to_owned()).or_insert_with(|| meta.clone());
        }
        let root = match &parent {
            Some((parent, _)) => self.aliases.get(parent).map_or(parent.clone(), |alias| alias.root.clone()),
            None => scoped.clone(),
        };
        let seen = self.writes.get(&root).copied().unwrap_or(0);
        self.current.insert(scoped.clone(), holds.to_owned());
        self.aliases.insert(scoped, Alias { root, parent, seen });
    }

    fn scoped(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    /// A name that nothing else has.
    fn fresh_name(&mut self, like: &str) -> String {
        self.fresh += 1;
        let base = like.split('@').next().unwrap_or(like);
        format!("{base}@{}", self.fresh)
    }

    fn graph(&mut self, graph: &Graph, depth: u32) -> Result<(), LowerError> {
        for node in &graph.nodes {
            if let Some(wrapped) = wrappers::wrapper(node) {
                if depth >= MOST_NESTING {
                    return Err(LowerError::node(node, "wrappers are nested too deeply"));
                }
                self.take_in(graph, node, wrapped, depth)?;
            } else if let Some(branches) = branches::branches(node) {
                if depth >= MOST_NESTING {
                    return Err(LowerError::node(node, "branches are nested too deeply"));
                }
                self.choose(graph, node, branches, depth)?;
            } else if is_check(&node.target) {
                // What torch checks of shapes, our type rules check again.
            } else if let Some(node) = inplace::unwrapped(node) {
                self.plain(graph, &node)?;
            } else if let Some(place) = inplace::of(node) {
                self.write(graph, node, &place)?;
            } else if let Some(parent) = views::parent(node, graph) {
                self.view(graph, node, &parent)?;
            } else {
                self.plain(graph, node)?;
            }
        }
        Ok(())
    }

    /// The node with its operands as they are now.
    fn resolved(&mut self, node: &Node) -> Result<Node, LowerError> {
        let mut node = node.clone();
        for input in &mut node.inputs {
            let mut missing = None;
            input.arg = rename::argument(&input.arg, &mut |name| {
                let scoped = self.scoped(name);
                self.read(&scoped).unwrap_or_else(|| {
                    missing = Some(name.to_owned());
                    String::new()
                })
            });
            if let Some(name) = missing {
                return Err(LowerError::node(&node, format!("`{name}` has no value here")));
            }
        }
        Ok(node)
    }

    /// What a value holds now; a view of memory that was written since is taken again.
    fn read(&mut self, name: &str) -> Option<String> {
        let alias = self.aliases.get(name)?.clone();
        let writes = self.writes.get(&alias.root).copied().unwrap_or(0);
        if alias.seen < writes
            && let Some((parent, node)) = &alias.parent
        {
            let from = self.read(parent)?;
            let holds = self.view_again(name, *node, &from)?;
            self.current.insert(name.to_owned(), holds);
            self.aliases.insert(name.to_owned(), Alias { seen: writes, ..alias });
        }
        self.current.get(name).cloned()
    }

    /// Repeats the node that made a view, over what its parent holds now.
    fn view_again(&mut self, name: &str, node: usize, from: &str) -> Option<String> {
        let template = self.view_nodes.get(node)?.clone();
        if views::is_identity(&template) {
            return Some(from.to_owned());
        }
        let (mut node, own) = (template, self.current.get(name)?.clone());
        let mut found = None;
        let mut renamed = HashMap::new();
        for output in node.gives() {
            let new = self.fresh_name(output);
            if let Some(meta) = self.result.tensors.get(output).cloned() {
                self.result.tensors.insert(new.clone(), meta);
            }
            renamed.insert(output.to_owned(), new);
        }
        let base = |text: &str| text.split('@').next().unwrap_or(text).to_owned();
        for output in &mut node.outputs {
            *output = rename::argument(output, &mut |name| {
                let new = renamed.get(name).cloned().unwrap_or_default();
                if base(name) == base(&own) {
                    found = Some(new.clone());
                }
                new
            });
        }
        views::set_parent(&mut node, from);
        node.name = found.clone();
        self.result.nodes.push(node);
        found
    }

    fn plain(&mut self, graph: &Graph, node: &Node) -> Result<(), LowerError> {
        let node = self.resolved(node)?;
        let node = self.with_scoped_outputs(graph, node, None);
        self.result.nodes.push(node);
        Ok(())
    }

    fn view(&mut self, graph: &Graph, node: &Node, parent: &str) -> Result<(), LowerError> {
        let resolved = self.resolved(node)?;
        let parent = self.scoped(parent);
        let number = self.view_nodes.len();
        let made = self.with_scoped_outputs(graph, resolved, Some((parent.clone(), number)));
        if views::is_identity(&made) {
            let from = self.read(&parent).unwrap_or_default();
            for name in node.gives() {
                let scoped = self.scoped(name);
                self.current.insert(scoped, from.clone());
            }
        } else {
            self.result.nodes.push(made.clone());
        }
        self.view_nodes.push(made);
        Ok(())
    }

    /// Gives a node's results their names in the result and records them.
    fn with_scoped_outputs(
        &mut self,
        graph: &Graph,
        mut node: Node,
        parent: Option<(String, usize)>,
    ) -> Node {
        let mut outputs = std::mem::take(&mut node.outputs);
        for output in &mut outputs {
            *output = rename::argument(output, &mut |name| {
                let holds = self.scoped(name);
                self.define(graph, name, &holds, parent.clone());
                holds
            });
        }
        node.outputs = outputs;
        node
    }

    /// A node that writes to one of its arguments.
    fn write(&mut self, graph: &Graph, node: &Node, place: &inplace::InPlace) -> Result<(), LowerError> {
        let Some(target) = inplace::written(node, place) else {
            return Err(LowerError::node(node, format!("its argument `{}` is no tensor", place.argument)));
        };
        let scoped = self.scoped(target);
        let mut made = self.resolved(node)?;
        made.target = place.functional.clone();
        let new = self.fresh_name(target);
        let Some(meta) = graph.tensor_values.get(target).cloned() else {
            return Err(LowerError::node(node, format!("nothing is recorded of `{target}`")));
        };
        self.result.tensors.insert(new.clone(), meta);
        let written = Argument::Tensor(Name { name: new.clone() });
        if place.returns_more {
            made = self.with_scoped_outputs(graph, made, None);
            made.outputs.push(written);
            self.result.nodes.push(made);
            return self.write_back(node, &scoped, &new);
        }
        made.outputs = vec![written];
        made.name = Some(new.clone());
        self.result.nodes.push(made);
        self.write_back(node, &scoped, &new)?;
        // What an in-place operator returns is its argument under another name.
        for name in node.gives() {
            let number = self.view_nodes.len();
            self.view_nodes.push(views::identity());
            self.define(graph, name, &new, Some((scoped.clone(), number)));
        }
        Ok(())
    }

    /// Makes `name` hold `new`, and with it all that `name` is a view of.
    fn write_back(&mut self, node: &Node, name: &str, new: &str) -> Result<(), LowerError> {
        let Some(alias) = self.aliases.get(name).cloned() else {
            return Err(LowerError::node(node, "it writes to a value that is not there"));
        };
        let mut path = vec![(name.to_owned(), new.to_owned())];
        let (mut step, mut holds) = (alias.clone(), new.to_owned());
        while let Some((parent, number)) = step.parent.clone() {
            let old = self.read(&parent).unwrap_or_default();
            let template = self.view_nodes.get(number).cloned().unwrap_or_default();
            holds = match views::is_identity(&template) {
                true => holds,
                false => {
                    let merged = self.fresh_name(&parent);
                    let meta = self.result.tensors.get(&old).cloned();
                    let Some(meta) = meta else {
                        return Err(LowerError::node(node, format!("nothing is recorded of `{parent}`")));
                    };
                    let inverse = views::inverse(&template, name_of_last(&path), &old, &holds, &meta, &self.result.tensors)
                        .ok_or_else(|| {
                            LowerError::node(
                                node,
                                format!(
                                    "it writes through a view ({}) that cannot be written back; write to a copy and \
                                     use that",
                                    template.target
                                ),
                            )
                        })?;
                    self.result.tensors.insert(merged.clone(), meta);
                    self.result.nodes.push(inverse.named(&merged, node));
                    merged
                }
            };
            path.push((parent.clone(), holds.clone()));
            let Some(next) = self.aliases.get(&parent).cloned() else { break };
            step = next;
        }
        let writes = self.writes.entry(alias.root.clone()).or_insert(0);
        *writes += 1;
        let seen = *writes;
        for (name, holds) in path {
            self.current.insert(name.clone(), holds);
            if let Some(alias) = self.aliases.get_mut(&name) {
                alias.seen = seen;
            }
        }
        Ok(())
    }

    /// Sorts the graph's results into what the user gets and what is written.
    fn finish(mut self, program: &ExportedProgram) -> Result<Functional, LowerError> {
        let signature = program.signature();
        let mut inputs_of = HashMap::new();
        for spec in &signature.input_specs {
            match spec {
                InputSpec::Buffer { arg, buffer_name, .. } => {
                    inputs_of.insert(buffer_name.as_str(), &*arg.name)
                }
                InputSpec::Parameter { arg, parameter_name } => {
                    inputs_of.insert(parameter_name.as_str(), &*arg.name)
                }
                _ => None,
            };
        }
        for (spec, output) in signature.output_specs.iter().zip(&program.graph().outputs) {
            let mut missing = false;
            let now = rename::argument(output, &mut |name| {
                self.read(name).unwrap_or_else(|| {
                    missing = true;
                    String::new()
                })
            });
            if missing {
                return Err(LowerError::signature("the outputs", "one has no value"));
            }
            let value = only_name(&now).map(str::to_owned);
            match spec {
                OutputSpec::UserOutput { .. } | OutputSpec::LossOutput { .. } => {
                    self.result.outputs.push(now)
                }
                OutputSpec::BufferMutation { buffer_name: name, .. }
                | OutputSpec::ParameterMutation { parameter_name: name, .. } => {
                    if let (Some(&input), Some(value)) = (inputs_of.get(name.as_str()), value) {
                        self.result.buffer_updates.insert(input.to_owned(), value);
                    }
                }
                OutputSpec::UserInputMutation { user_input_name, .. } => {
                    if let Some(value) = value {
                        self.result.input_updates.insert(user_input_name.clone(), value);
                    }
                }
                OutputSpec::Token { .. } => {}
                OutputSpec::GradientToParameter { .. } | OutputSpec::GradientToUserInput { .. } => {
                    return Err(LowerError::signature("the outputs", "gradients are not computed here"));
                }
            }
        }
        for spec in &signature.input_specs {
            let (name, of_user) = match spec {
                InputSpec::Buffer { arg, .. } | InputSpec::Parameter { arg, .. } => {
                    (arg.name.as_str(), false)
                }
                InputSpec::TensorConstant { arg, .. } => (arg.name.as_str(), false),
                InputSpec::UserInput { arg: Argument::Tensor(arg) } => (arg.name.as_str(), true),
                _ => continue,
            };
            if self.writes.get(name).is_some_and(|&writes| writes > 0)
                && let Some(now) = self.read(name)
            {
                let updates =
                    if of_user { &mut self.result.input_updates } else { &mut self.result.buffer_updates };
                updates.insert(name.to_owned(), now);
            }
        }
        self.result.prune();
        Ok(self.result)
    }
}

fn name_of_last(path: &[(String, String)]) -> &str {
    path.last().map_or("", |(name, _)| name.as_str())
}

/// The one value that an argument names.
pub(crate) fn only_name(argument: &Argument) -> Option<&str> {
    let mut found = None;
    argument.names(&mut |_, name| found = Some(name));
    found
}

/// Operators that only check, and give nothing.
fn is_check(target: &str) -> bool {
    matches!(
        target.strip_prefix("torch.ops.aten.").and_then(|rest| rest.split('.').next()),
        Some(
            "_assert_scalar"
                | "_assert_tensor_metadata"
                | "_assert_async"
                | "sym_constrain_range"
                | "sym_constrain_range_for_size"
        )
    )
}
