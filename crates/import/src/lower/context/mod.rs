//! The graph that a list of nodes is lowered into: values by their names in the file, constants, symbols, and the
//! small steps that all families of operators share.

use super::GgufLayout;
mod outside;
mod steps;

use super::call::{Arg, Call, Int};
use super::constants::Constants;
use super::error::{LowerError, Lowered, Refusal};
use super::functional::Functional;
use crate::pt2::argument::{Argument, OptionalTensor, OrName, TensorMeta};
use crate::pt2::schema::InputSpec;
use crate::pt2::{ExportedProgram, Subclass};
use pteron_ir::{Builder, Dim, Graph, Op, Place, Ssa, Type, ValueId};
use pteron_tensor::DType;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A weight of several tensors.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    /// Its name in the source model.
    pub(crate) name: String,
    /// Its parts.
    pub(crate) subclass: Subclass,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Tensor(ValueId),
    Int(Int),
    Weight(Rc<Weight>),
}

/// What an operator's lowering gives, in the order of the node's results.
pub(crate) type Outs = Vec<Bound>;

/// Builds one graph.
pub(crate) struct Lowerer<'p> {
    pub(crate) program: &'p ExportedProgram,
    pub(crate) functional: &'p Functional,
    pub(crate) gguf: GgufLayout,
    pub(crate) constants: Constants,
    builder: Builder,
    bound: HashMap<String, Bound>,
    symbols: HashMap<String, Dim>,
    /// Names of the graph's inputs, in order.
    pub(crate) inputs: Vec<String>,
    /// Buffers that the graph owns, by the name of their input value.
    owned: HashSet<String>,
    sources: HashMap<&'p str, &'p InputSpec>,
    constant_values: HashMap<String, ValueId>,
    /// Which constant a value is.
    constant_names: HashMap<ValueId, String>,
    place: Option<Place>,
}

impl<'p> Lowerer<'p> {
    pub(crate) fn new(
        program: &'p ExportedProgram,
        functional: &'p Functional,
        name: &str,
        owned: HashSet<String>,
        gguf: GgufLayout,
    ) -> Lowerer<'p> {
        let specs = program.signature().input_specs.iter().zip(&program.graph().inputs);
        let sources = specs.filter_map(|(spec, input)| Some((super::functional::only_name(input)?, spec)));
        let graph = Graph { name: name.to_owned(), ..Graph::default() };
        Lowerer {
            program,
            functional,
            gguf,
            constants: Constants::default(),
            builder: Builder::new(graph),
            bound: HashMap::new(),
            symbols: HashMap::new(),
            inputs: Vec::new(),
            owned,
            sources: sources.collect(),
            constant_values: HashMap::new(),
            constant_names: HashMap::new(),
            place: None,
        }
    }

    pub(crate) fn graph(&self) -> &Graph {
        self.builder.graph()
    }

    pub(crate) fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    pub(crate) fn finish(self) -> (Graph, Vec<String>, Constants) {
        (self.builder.finish(), self.inputs, self.constants)
    }

    /// What a name stands for; one that nothing has defined yet comes from outside.
    pub(crate) fn resolve(&mut self, name: &str) -> Lowered<Bound> {
        if let Some(bound) = self.bound.get(name) {
            return Ok(bound.clone());
        }
        let bound = self.bind_outside(name)?;
        self.bound.insert(name.to_owned(), bound.clone());
        Ok(bound)
    }

    /// Lowers a node: its operands are resolved, its rule is applied, its results are bound.
    pub(crate) fn node(&mut self, index: usize) -> Lowered<()> {
        let functional = self.functional;
        let node = &functional.nodes[index];
        self.place = Some(Place { chain: 0, index: index as u32 });
        let mut args = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            args.push((input.name.as_str(), self.arg(&input.arg)?));
        }
        let names = node.gives();
        let results = names.iter().filter_map(|name| functional.tensors.get(*name)).collect();
        let call = Call { node, args, results };
        let rule = super::registry::find(call.operator()).ok_or(Refusal::Unknown)?;
        let outs = rule(self, &call)?;
        self.bind(&names, outs)
    }

    fn bind(&mut self, names: &[&str], outs: Outs) -> Lowered<()> {
        // A rule need not give what nobody reads.
        if names.iter().skip(outs.len()).any(|name| self.functional.used.contains(*name)) {
            return Err(Refusal::because(format!("only its first {} results are computed", outs.len())));
        }
        for (name, out) in names.iter().zip(outs) {
            let out = match (out, self.functional.tensors.get(*name)) {
                (Bound::Tensor(value), Some(meta)) => Bound::Tensor(self.fitted(value, meta)?),
                (out, _) => out,
            };
            self.bound.insert((*name).to_owned(), out);
        }
        Ok(())
    }

    /// The value in the dtype that torch recorded; a rank that differs is a mistake in a rule.
    fn fitted(&mut self, value: ValueId, meta: &TensorMeta) -> Lowered<ValueId> {
        let ty = self.ty(value)?;
        if ty.shape.len() != meta.sizes.len() {
            return Err(Refusal::because(format!(
                "its lowering gives rank {}, torch recorded {}",
                ty.shape.len(),
                meta.sizes.len()
            )));
        }
        let dtype = meta.dtype.dtype();
        let dtype =
            dtype.ok_or_else(|| Refusal::because(format!("the delegate has no {}", meta.dtype.name())))?;
        self.cast(value, dtype)
    }

    fn arg(&mut self, argument: &Argument) -> Lowered<Arg> {
        Ok(match argument {
            Argument::None(_) | Argument::OptionalTensor(OptionalTensor::None(_)) => Arg::None,
            Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
                match self.resolve(&tensor.name)? {
                    Bound::Tensor(value) => Arg::Tensor(value),
                    Bound::Weight(weight) => Arg::Weight(weight),
                    Bound::Int(_) => return Err(Refusal::because("an integer where a tensor is wanted")),
                }
            }
            Argument::Tensors(tensors) => {
                let values = tensors.iter().map(|tensor| self.tensor_named(&tensor.name));
                Arg::Tensors(values.collect::<Lowered<_>>()?)
            }
            Argument::OptionalTensors(tensors) => {
                let values = tensors.iter().map(|tensor| match tensor {
                    OptionalTensor::Tensor(tensor) => self.tensor_named(&tensor.name).map(Some),
                    OptionalTensor::None(_) => Ok(None),
                });
                Arg::MaybeTensors(values.collect::<Lowered<_>>()?)
            }
            Argument::Int(value) => Arg::Int(Int::Literal(*value)),
            Argument::Ints(values) => Arg::Ints(values.iter().copied().map(Int::Literal).collect()),
            Argument::SymInt(one) => Arg::Int(self.sym_int(one)?),
            Argument::SymInts(all) => {
                Arg::Ints(all.iter().map(|one| self.sym_int(one)).collect::<Lowered<_>>()?)
            }
            Argument::Float(value) => Arg::Float(value.0),
            Argument::SymFloat(OrName::Plain(value)) => Arg::Float(value.0),
            Argument::Bool(value) | Argument::SymBool(OrName::Plain(value)) => Arg::Bool(*value),
            Argument::Text(text) => Arg::Text(text.clone()),
            Argument::ScalarType(scalar) => Arg::Type(*scalar),
            Argument::MemoryFormat(_) | Argument::Layout(_) | Argument::Device(_) => Arg::Other,
            Argument::SymFloat(_) | Argument::SymBool(_) => {
                return Err(Refusal::because("a symbolic float or truth value is an argument"));
            }
            _ => Arg::Other,
        })
    }

    fn tensor_named(&mut self, name: &str) -> Lowered<ValueId> {
        match self.resolve(name)? {
            Bound::Tensor(value) => Ok(value),
            _ => Err(Refusal::because(format!("`{name}` is no plain tensor"))),
        }
    }

    fn sym_int(&mut self, one: &OrName<i64>) -> Lowered<Int> {
        match one {
            OrName::Plain(value) => Ok(Int::Literal(*value)),
            OrName::Name(name) => match self.resolve(name)? {
                Bound::Int(value) => Ok(value),
                _ => Err(Refusal::because(format!("`{name}` is no integer"))),
            },
        }
    }

    /// Appends an op; its results.
    pub(crate) fn emit_all(&mut self, op: Op<Ssa>) -> Lowered<Vec<ValueId>> {
        let name = op.spec().name;
        let results = self.builder.append(op, self.place);
        let results = results.map_err(|problem| Refusal::Rule { op: name, problem })?;
        for &value in &results {
            if let Some(Type::Tensor(ty)) = self.graph().ty(value) {
                check_dtype(ty.dtype)?;
            }
        }
        Ok(results)
    }

    /// Appends an op with one result.
    pub(crate) fn emit(&mut self, op: Op<Ssa>) -> Lowered<ValueId> {
        let results = self.emit_all(op)?;
        results.first().copied().ok_or_else(|| Refusal::because("an op gave nothing"))
    }

    /// Appends an op whose result is an integer. What the rule knows to be one number is that number.
    pub(crate) fn emit_int(&mut self, op: Op<Ssa>) -> Lowered<Int> {
        let value = self.emit(op)?;
        match self.graph().ty(value) {
            Some(Type::Int(dim)) if dim.as_known().is_some() => {
                let known = dim.as_known().unwrap_or_default();
                self.forget(value);
                Ok(Int::Literal(known))
            }
            _ => Ok(Int::Value(value)),
        }
    }

    /// Takes the last node back if it gives `value`, which nobody has seen. In a nested block it stays, unused.
    fn forget(&mut self, value: ValueId) {
        let nodes = &mut self.builder.graph_mut().body.nodes;
        if nodes.last().is_some_and(|node| node.results == [value]) {
            nodes.pop();
        }
    }

    /// Declares a value of the file as an output.
    pub(crate) fn output(&mut self, name: &str) -> Result<(), LowerError> {
        let fail = |problem: String| LowerError::signature(format!("value `{name}`"), problem);
        let bound = self.resolve(name).map_err(|refusal| fail(refusal.to_string()))?;
        let value = match bound {
            Bound::Tensor(value) | Bound::Int(Int::Value(value)) => value,
            Bound::Int(Int::Literal(_)) => return Ok(()),
            Bound::Weight(_) => return Err(fail("a packed weight cannot be an output".into())),
        };
        let ty = self.graph().ty(value).cloned().ok_or_else(|| fail("it has no type".into()))?;
        self.builder.graph_mut().outputs.push(pteron_ir::Output { name: name.to_owned(), value, ty });
        Ok(())
    }

    /// Declares what an owned buffer holds after a run.
    pub(crate) fn update(&mut self, buffer: &str, value: &str) -> Lowered<()> {
        let Bound::Tensor(old) = self.resolve(buffer)? else {
            return Err(Refusal::because(format!("`{buffer}` is no tensor")));
        };
        let new = self.tensor_named(value)?;
        let new = self.cast(new, self.dtype(old)?)?;
        let buffers = &mut self.builder.graph_mut().buffers;
        if let Some(entry) = buffers.iter_mut().find(|entry| entry.value == old) {
            entry.update = new;
        }
        Ok(())
    }

    /// An integer known to be one number, if the value of the file is one.
    pub(crate) fn known_int(&mut self, name: &str) -> Option<i64> {
        match self.bound.get(name) {
            Some(Bound::Int(Int::Literal(value))) => Some(*value),
            _ => None,
        }
    }
}

/// An axis from the front; a tensor without dims has one that is not there.
pub(crate) fn axis_of(dim: i64, rank: usize) -> Lowered<usize> {
    let counted = if dim < 0 { dim + (rank.max(1) as i64) } else { dim };
    match usize::try_from(counted) {
        Ok(axis) if axis < rank.max(1) => Ok(axis),
        _ => Err(Refusal::because(format!("axis {dim} is outside a tensor of rank {rank}"))),
    }
}

/// Elements that the delegate computes with.
fn check_dtype(dtype: DType) -> Lowered<()> {
    match dtype {
        DType::F64 | DType::U16 | DType::U64 => {
            Err(Refusal::because(format!("the delegate does not take {dtype}")))
        }
        _ => Ok(()),
    }
}

/// Numbers that a constant made here may have: a file can ask for any.
const MOST_NUMBERS: i64 = 1 << 24;

/// A count that a constant is made of, if it is one that a program can hold.
pub(crate) fn countable(count: Option<i64>) -> Lowered<usize> {
    let count = count.filter(|count| (0..=MOST_NUMBERS).contains(count));
    count.map(|count| count as usize).ok_or_else(|| Refusal::because("a constant of too many numbers"))
}

/// One tensor as a rule's result.
pub(crate) fn one(value: ValueId) -> Lowered<Outs> {
    Ok(vec![Bound::Tensor(value)])
}
