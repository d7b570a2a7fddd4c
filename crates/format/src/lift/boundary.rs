//! The edge of a payload: constants, inputs, outputs and mutable buffers, from their slots' metadata.

use std::collections::{HashMap, HashSet};

use pteron_ir::{Dim, Graph, Op, Output, TensorType, Type, ValueId};

use super::error::{LiftError, Where};
use super::{Lifter, Role};
use crate::payload::{ChainId, Slot, SlotType, SlotVariant, Tid};

impl Lifter<'_> {
    /// Lifts the init chain: constants in, constants out, by name.
    pub(super) fn init(mut self, chain: ChainId) -> Result<Graph, LiftError> {
        debug_assert_eq!(self.role, Role::Init);
        let effects = self.liveness.effects(chain);
        let constants = |slots: &HashSet<Slot>| {
            let mut slots: Vec<Slot> = slots.iter().copied().filter(|&slot| self.is_constant(slot)).collect();
            slots.sort_unstable();
            slots
        };
        // What is only written is listed too: its declared type is that of the placeholder in the file.
        let touched = constants(&effects.uses.union(&effects.writes).copied().collect());
        let written = constants(&effects.writes);
        for slot in touched {
            let (name, ty) = self.constant(slot)?;
            let value = self.builder.graph_mut().add_constant(&name, ty);
            self.slots.set(slot, value);
        }
        self.chain(chain, &written)?;
        for (index, slot) in written.into_iter().enumerate() {
            let value = self.read(Where::Output(index), slot)?;
            let name = self.constant_name(slot)?;
            let ty = self.type_of(value);
            self.builder.graph_mut().outputs.push(Output { name, value, ty });
        }
        Ok(self.builder.finish())
    }

    /// Lifts the main chain. Constants that `init` defines have the types that it gives them; what the file
    /// declares for them is a placeholder.
    pub(super) fn main(mut self, init: Option<&Graph>) -> Result<Graph, LiftError> {
        self.constants(init)?;
        self.inputs()?;
        let buffers = self.buffers()?;
        let outputs: Vec<SlotVariant> = self.payload.output_map.to_vec();
        let live_out: Vec<Slot> =
            outputs.iter().map(SlotVariant::slot).chain(buffers.iter().copied()).collect();
        self.chain(self.payload.main_chain_idx, &live_out)?;
        for (index, variant) in outputs.iter().enumerate() {
            self.output(index, variant)?;
        }
        for (index, slot) in buffers.into_iter().enumerate() {
            self.commit(index, slot)?;
        }
        Ok(self.builder.finish())
    }

    /// What a buffer holds afterwards. On the wire the slot simply takes the new tensor, whatever its dtype; the
    /// program that was exported converts it to the buffer's, and so do we.
    fn commit(&mut self, index: usize, slot: Slot) -> Result<(), LiftError> {
        let mut update = self.read(Where::Buffer(index), slot)?;
        let graph = self.builder.graph();
        let Some(buffer) = graph.buffers.get(index) else { return Ok(()) };
        if let (Some(Type::Tensor(kept)), Some(Type::Tensor(new))) =
            (graph.ty(buffer.value), graph.ty(update))
            && kept.dtype != new.dtype
        {
            let convert = Op::AsType { x: update, scalar_type: kept.dtype };
            update = match self.builder.append(convert, None) {
                Ok(values) => values.first().copied().unwrap_or(update),
                Err(source) => {
                    let (at, operands) = (Where::Buffer(index), String::new());
                    return Err(LiftError::Rule { at, operands, source });
                }
            };
        }
        if let Some(buffer) = self.builder.graph_mut().buffers.get_mut(index) {
            buffer.update = update;
        }
        Ok(())
    }

    fn constants(&mut self, init: Option<&Graph>) -> Result<(), LiftError> {
        let derived: HashMap<&str, (&Graph, &Type)> = init
            .iter()
            .flat_map(|graph| graph.outputs.iter().map(|output| (output.name.as_str(), (*graph, &output.ty))))
            .collect();
        let [constants, ..] = self.ranges();
        let mut seen = HashSet::new();
        for index in constants {
            let slot = Slot::Tensor(Tid(index));
            let name = self.constant_name(slot)?;
            if !seen.insert(name.clone()) {
                return Err(self.boundary("constant", slot, "another constant has the same name"));
            }
            let ty = match derived.get(name.as_str()) {
                Some((graph, Type::Tensor(ty))) => self.adopt(graph, ty),
                Some(_) => return Err(self.boundary("constant", slot, "the init chain gives no tensor")),
                None => self.constant(slot)?.1,
            };
            let value = self.builder.graph_mut().add_constant(&name, ty);
            self.slots.set(slot, value);
        }
        Ok(())
    }

    /// A type of the init graph in the symbols of this one: a size that is not known at load has no more than
    /// its bound in common.
    fn adopt(&mut self, from: &Graph, ty: &TensorType) -> TensorType {
        let symbols = &mut self.builder.graph_mut().symbols;
        let shape = ty.shape.iter().map(|dim| match dim.as_known() {
            Some(_) => dim.clone(),
            None => symbols.fresh_size(from.symbols.upper(dim)),
        });
        TensorType { dtype: ty.dtype, shape: shape.collect() }
    }

    fn inputs(&mut self) -> Result<(), LiftError> {
        for (index, variant) in self.payload.input_map.iter().enumerate() {
            let slot = variant.slot();
            if let Some(earlier) = self.slots.get(slot) {
                // Two arguments for one slot, or an argument for a constant: neither has a meaning.
                let graph = self.builder.graph();
                let twice = graph.inputs.iter().any(|input| input.value == earlier);
                let problem = if twice { "the slot takes two inputs" } else { "the slot holds a constant" };
                return Err(LiftError::Forbidden {
                    at: Where::Input(index),
                    slot: self.named(slot),
                    problem,
                });
            }
            let ty = match variant.slot_type {
                SlotType::Tensor => Type::Tensor(self.declared("input", slot)?),
                SlotType::IntValue => Type::Int(self.builder.graph_mut().symbols.fresh_int()),
                SlotType::FloatValue => Type::Float,
                SlotType::BoolValue => Type::Bool,
            };
            let name = self.names.get(&slot).copied().unwrap_or_default();
            let value = self.builder.graph_mut().add_input(name, ty);
            self.slots.set(slot, value);
        }
        Ok(())
    }

    /// All slots of mutable buffers, by number; the payload's own list of them says nothing more.
    fn buffers(&mut self) -> Result<Vec<Slot>, LiftError> {
        let [.., buffers] = self.ranges();
        let mut slots = Vec::with_capacity(buffers.len());
        for index in buffers {
            let slot = Slot::Tensor(Tid(index));
            if self.slots.get(slot).is_some() {
                return Err(self.boundary("mutable buffer", slot, "it takes an input as well"));
            }
            let ty = self.declared("mutable buffer", slot)?;
            if ty.known_shape().is_none() {
                return Err(self.boundary("mutable buffer", slot, "its size is not fixed"));
            }
            let name = self.names.get(&slot).copied().unwrap_or_default();
            let value = self.builder.graph_mut().add_buffer(name, ty);
            self.slots.set(slot, value);
            slots.push(slot);
        }
        Ok(slots)
    }

    fn output(&mut self, index: usize, variant: &SlotVariant) -> Result<(), LiftError> {
        let slot = variant.slot();
        let value = self.read(Where::Output(index), slot)?;
        let ty = match variant.slot_type {
            SlotType::Tensor => Type::Tensor(self.declared("output", slot)?),
            _ => self.type_of(value),
        };
        let name = self.names.get(&slot).map_or_else(String::new, |name| (*name).to_owned());
        self.builder.graph_mut().outputs.push(Output { name, value, ty });
        Ok(())
    }

    fn type_of(&self, value: ValueId) -> Type {
        // Values come out of this builder; a bool stands for one that cannot occur.
        self.builder.graph().ty(value).cloned().unwrap_or(Type::Bool)
    }

    fn constant_name(&self, slot: Slot) -> Result<String, LiftError> {
        match self.names.get(&slot) {
            Some(name) if !name.is_empty() => Ok((*name).to_owned()),
            _ => Err(self.boundary("constant", slot, "it has no name, so nobody knows its data")),
        }
    }

    fn constant(&mut self, slot: Slot) -> Result<(String, TensorType), LiftError> {
        let (name, ty) = (self.constant_name(slot)?, self.declared("constant", slot)?);
        match ty.known_shape() {
            Some(_) => Ok((name, ty)),
            None => Err(self.boundary("constant", slot, "its size is not fixed")),
        }
    }

    /// The type that the payload declares for a slot; dynamic dims become symbols.
    fn declared(&mut self, what: &'static str, slot: Slot) -> Result<TensorType, LiftError> {
        let meta = match slot {
            Slot::Tensor(Tid(index)) => self.payload.tensor_meta.get(index as usize),
            Slot::Value(_) => None,
        };
        let Some(meta) = meta else { return Err(self.boundary(what, slot, "it has no metadata")) };
        let Some(dtype) = meta.scalar_type.dtype() else {
            let problem =
                format!("its element type {} is none that tensors can have here", meta.scalar_type.code());
            return Err(self.boundary(what, slot, problem));
        };
        let row_major = meta.dim_order.iter().enumerate().all(|(index, &axis)| usize::from(axis) == index);
        if !row_major || !(meta.dim_order.is_empty() || meta.dim_order.len() == meta.shape.len()) {
            return Err(self.boundary(what, slot, "its memory is not in row-major order"));
        }
        let symbols = &mut self.builder.graph_mut().symbols;
        let shape = meta.shape.iter().map(|dim| match dim.value {
            -1 => {
                let max = (dim.max_value != -1).then_some(i64::from(dim.max_value));
                Dim::symbol(symbols.add("", dim.min_value.into(), max))
            }
            size => Dim::known(size.into()),
        });
        Ok(TensorType { dtype, shape: shape.collect() })
    }

    fn boundary(&self, what: &'static str, slot: Slot, problem: impl Into<String>) -> LiftError {
        LiftError::Boundary { what, slot: self.named(slot), problem: problem.into() }
    }
}
