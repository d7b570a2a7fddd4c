//! From an XNNPACK payload to a graph.
//!
//! Values that hold codes become values that hold the numbers which the codes stand for: rounding to the codes' grid is a
//! few plain ops behind whoever writes the value, and reading it is nothing. So every op computes with floats, whatever
//! the file quantised, and all backends run it. Weights of products stay packed where the catalogue has their layout.
//! Flows in: a [`Payload`] and what the program knows of the call's arguments. Flows out: a [`pteron_ir::Module`], and where the bytes of its
//! constants are. Of what is wrong with a payload, all is said at once; what depends on a node that is wrong is passed over.

mod boundary;
mod constants;
mod linear;
mod nodes;
mod quantize;
mod windows;

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use pteron_ir::{Op, Place as NodePlace, ValueId};

use super::Payload;
use super::node::Node;
use super::tables::{Datatype, Value};
use crate::draft::{Argument, Draft, Held, Lifted, Step, Stop, problem};
use crate::{Limits, Result};

/// The graphs that a payload stands for; `name` is the method or delegate they are for, `arguments` those of its call.
pub fn lift(payload: &Payload, name: &str, arguments: &[Argument], limits: &Limits) -> Result<Lifted> {
    payload.check(limits)?;
    let mut lifter = Lifter::new(payload, name, limits);
    lifter.inputs(arguments);
    for (index, node) in payload.graph.xnodes.iter().enumerate() {
        lifter.place = Some(NodePlace { chain: 0, index: index as u32 });
        if let Err(stop) = lifter.node(node) {
            lifter.stopped(stop, || format!("XNNGraph.xnodes[{index}] ({})", node.kind.name()))?;
            node.kind.outputs().into_iter().for_each(|id| lifter.spoil(id));
        }
    }
    lifter.outputs(arguments)?;
    lifter.draft.finish()
}

struct Lifter<'p> {
    payload: &'p Payload,
    draft: Draft<'p>,
    /// By id: the place among the payload's values.
    index: HashMap<u32, usize>,
    /// By place.
    held: Vec<Held>,
}

/// Nodes are steps of the draft.
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
    fn new(payload: &'p Payload, name: &str, limits: &'p Limits) -> Lifter<'p> {
        let values = &payload.graph.xvalues;
        let index =
            values.iter().enumerate().filter_map(|(at, value)| Some((value.tensor()?.id_out, at))).collect();
        let draft = Draft::new(name, "XNNGraph.xnodes", limits);
        Lifter { payload, draft, index, held: vec![Held::Nothing; values.len()] }
    }

    fn at(&self, id: u32) -> Step<usize> {
        self.index.get(&id).copied().ok_or_else(|| Stop::Problem(format!("there is no value {id}")))
    }

    fn declared(&self, id: u32) -> Step<&'p Value> {
        Ok(&self.payload.graph.xvalues[self.at(id)?])
    }

    fn datatype(&self, id: u32) -> Step<Datatype> {
        Ok(self.declared(id)?.tensor().map_or(Datatype::Invalid, |tensor| tensor.datatype))
    }

    fn spoil(&mut self, id: u32) {
        if let Ok(at) = self.at(id) {
            self.held[at] = Held::Spoilt;
        }
    }

    /// What a value holds, as numbers.
    fn value(&mut self, id: u32) -> Step<ValueId> {
        let at = self.at(id)?;
        match self.held[at] {
            Held::Value(value) => Ok(value),
            Held::Spoilt => Err(Stop::Spoilt),
            Held::Nothing => match self.payload.graph.xvalues[at].tensor() {
                Some(tensor) if tensor.constant_buffer_idx != 0 => {
                    let value = self.constant(at)?;
                    self.held[at] = Held::Value(value);
                    Ok(value)
                }
                _ => problem(format!("it reads value {id}, which nothing has set before")),
            },
        }
    }

    fn set(&mut self, id: u32, value: ValueId) -> Step<()> {
        let at = self.at(id)?;
        let constant = self.payload.graph.xvalues[at].tensor().map_or(0, |tensor| tensor.constant_buffer_idx);
        match self.held[at] {
            Held::Nothing if constant == 0 => {
                self.held[at] = Held::Value(value);
                Ok(())
            }
            Held::Nothing => problem(format!("it writes value {id}, which is a constant")),
            _ => problem(format!("it writes value {id}, which is set already")),
        }
    }

    /// Writes the result of a node: within its bounds, in the type and on the grid that the value has.
    fn give(&mut self, node: &Node, id: u32, value: ValueId) -> Step<()> {
        let value = self.bounded(node, value)?;
        let value = self.rounded(id, value)?;
        self.set(id, value)
    }

    /// The same for ops that only move elements: what they read is on its grid already, and stays there where the
    /// grids are the same.
    fn pass(&mut self, node: &Node, from: &[u32], id: u32, value: ValueId) -> Step<()> {
        let value = self.bounded(node, value)?;
        let to = self.declared(id)?;
        let mut same = to.quantization().is_some();
        for &from in from {
            let from = self.declared(from)?;
            same &= from.quantization() == to.quantization()
                && from.tensor().map(|tensor| tensor.datatype) == to.tensor().map(|tensor| tensor.datatype);
        }
        let value = if same { value } else { self.rounded(id, value)? };
        self.set(id, value)
    }

    fn bounded(&mut self, node: &Node, x: ValueId) -> Step<ValueId> {
        let Some(bounds) = &node.output_min_max else { return Ok(x) };
        let dtype = self.dtype(x)?;
        let mut bound = |bound: f32| match bound.is_finite() {
            true => self.number(bound.into(), dtype).map(Some),
            false => Ok(None),
        };
        match (bound(bounds.output_min)?, bound(bounds.output_max)?) {
            (None, None) => Ok(x),
            (a_min, a_max) => self.emit(Op::Clip { x, a_min, a_max }),
        }
    }
}
