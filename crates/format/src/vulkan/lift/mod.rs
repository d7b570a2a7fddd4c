//! From a Vulkan payload to a graph.
//!
//! Operators are those of PyTorch's schemas, called with values by position, and a few of the exporter's own; each has a
//! rule in one of the families' tables. Every result is held to the element type that the payload declares. Tensors that an
//! operator writes in place live on from call to call where they began as constants: they become buffers of the graph.
//! Flows in: a [`Payload`] and what the program knows of the call's arguments. Flows out: a [`Lifted`]. Of what is wrong
//! with a payload, all is said at once; what depends on an operator that is wrong is passed over.

mod arguments;
mod attention;
mod boundary;
mod convolution;
mod elements;
mod linear;
mod quantize;
mod reduce;
mod shape;
mod state;

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use pteron_ir::{Place as NodePlace, ValueId};
use pteron_tensor::Bytes;

use super::Payload;
use super::tables::{OperatorCall, Value, VkTensor};
use crate::draft::{Argument, Draft, Int, Lifted, Step, Stop, problem};
use crate::{Limits, Result};
use state::State;

/// The graphs that a payload stands for; `name` is the method or delegate they are for, `arguments` those of its call, and
/// `named` finds named data that lies at hand.
pub fn lift(
    payload: &Payload,
    name: &str,
    arguments: &[Argument],
    named: &dyn Fn(&str) -> Option<Bytes>,
    limits: &Limits,
) -> Result<Lifted> {
    payload.check(limits)?;
    let mut lifter = Lifter {
        payload,
        named,
        draft: Draft::new(name, "VkGraph.chain", limits),
        held: vec![Held::Nothing; payload.graph.values.len()],
        states: HashMap::new(),
        started: None,
        items_left: limits.decoded_bytes / size_of::<u64>() as u64,
    };
    lifter.find_states();
    lifter.inputs(arguments)?;
    for (index, call) in payload.graph.chain.iter().enumerate() {
        lifter.place = Some(NodePlace { chain: 0, index: index as u32 });
        if let Err(stop) = lifter.call(call) {
            lifter.stopped(stop, || format!("VkGraph.chain[{index}] ({})", &*call.name))?;
            lifter.spoil(call);
        }
    }
    lifter.outputs(arguments)?;
    lifter.keep_states()?;
    lifter.draft.finish()
}

/// The operators that have a rule, by name.
pub fn operators() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter().map(|(name, _)| *name))
}

/// What an operator gives.
enum Given {
    Tensor(ValueId),
    /// The first of several; the others nobody computes.
    Tensors(Vec<ValueId>),
    Int(Int),
}

type Rule = fn(&mut Lifter<'_>, &Call<'_>) -> Step<Given>;

/// Rules by the operator's name with its overload.
type Table = &'static [(&'static str, Rule)];

const TABLES: [Table; 8] = [
    attention::TABLE,
    convolution::TABLE,
    elements::TABLE,
    linear::TABLE,
    quantize::TABLE,
    reduce::TABLE,
    shape::TABLE,
    state::TABLE,
];

fn one(value: ValueId) -> Step<Given> {
    Ok(Given::Tensor(value))
}

/// A call with its arguments apart from what it gives.
struct Call<'p> {
    name: &'p str,
    args: &'p [i32],
    /// The value, or list of values, that it gives.
    out: i32,
}

/// What a value of the payload is so far.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    Spoilt,
    Tensor(ValueId),
    Int(Int),
}

struct Lifter<'p> {
    payload: &'p Payload,
    named: &'p dyn Fn(&str) -> Option<Bytes>,
    draft: Draft<'p>,
    /// By id.
    held: Vec<Held>,
    /// Tensors that live on from call to call, by id.
    states: HashMap<usize, State>,
    /// Whether this is not the first call, for states that do not begin with zeros.
    started: Option<ValueId>,
    /// Items of lists that may still be looked at: many calls may name one long list.
    items_left: u64,
}

/// Operators are steps of the draft.
impl<'p> Deref for Lifter<'p> {
    type Target = Draft<'p>;

    fn deref(&self) -> &Draft<'p> {
        &self.draft
    }
}

impl DerefMut for Lifter<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.draft
    }
}

impl<'p> Lifter<'p> {
    fn call(&mut self, call: &'p OperatorCall) -> Step<()> {
        let Some((&out, args)) = call.args.split_last() else { return problem("it gives nothing") };
        let found = TABLES.iter().flat_map(|table| table.iter()).find(|(name, _)| *name == &*call.name);
        let Some((_, rule)) = found else { return problem("this operator is not known here") };
        let call = Call { name: &call.name, args, out };
        match rule(self, &call)? {
            Given::Tensor(value) => self.give(out, value),
            Given::Int(value) => match self.declared(out)? {
                Value::SymInt(_) => self.hold(out, Held::Int(value)),
                other => problem(format!("it gives an integer, and writes value {out}, a {}", other.kind())),
            },
            Given::Tensors(values) => {
                let Value::Values(list) = self.declared(out)? else {
                    return problem(format!("it gives several tensors, and writes value {out} only"));
                };
                if list.items.len() < values.len() {
                    return problem(format!(
                        "it gives {} tensors, and writes {}",
                        values.len(),
                        list.items.len()
                    ));
                }
                list.items.iter().zip(values).try_for_each(|(&id, value)| self.give(id, value))
            }
        }
    }

    /// What depends on a call that is wrong is not complained about.
    fn spoil(&mut self, call: &OperatorCall) {
        let Some(&out) = call.args.last() else { return };
        let ids = match self.declared(out) {
            Ok(Value::Values(list)) => list.items.to_vec(),
            _ => vec![out],
        };
        for id in ids {
            if let Some(held) = usize::try_from(id).ok().and_then(|id| self.held.get_mut(id)) {
                *held = Held::Spoilt;
            }
        }
    }

    fn declared(&self, id: i32) -> Step<&'p Value> {
        let found = usize::try_from(id).ok().and_then(|id| self.payload.graph.values.get(id));
        found.ok_or_else(|| Stop::Problem(format!("there is no value {id}")))
    }

    fn declared_tensor(&self, id: i32) -> Step<&'p VkTensor> {
        match self.declared(id)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => problem(format!("value {id} is {}, where a tensor is wanted", other.kind())),
        }
    }

    /// What the payload says of the tensor that a call gives.
    fn result(&self, call: &Call<'_>) -> Step<&'p VkTensor> {
        self.declared_tensor(call.out)
    }

    /// Sets a tensor, in the element type that the payload declares.
    fn give(&mut self, id: i32, value: ValueId) -> Step<()> {
        let declared = self.declared_tensor(id)?;
        let rank = self.rank(value)?;
        if rank != declared.dims.len() {
            return problem(format!("value {id} has {} dims, and {rank} are computed", declared.dims.len()));
        }
        let value = self.cast(value, declared.datatype.dtype())?;
        self.hold(id, Held::Tensor(value))
    }

    fn hold(&mut self, id: i32, held: Held) -> Step<()> {
        match usize::try_from(id).ok().and_then(|id| self.held.get_mut(id)) {
            Some(place) => {
                *place = held;
                Ok(())
            }
            None => problem(format!("there is no value {id}")),
        }
    }
}
