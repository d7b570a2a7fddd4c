//! The edge of a payload: which slot each constant, input, output and buffer has, its name and its metadata.

use std::collections::HashMap;

use pteron_ir::{Dim, Graph, Module, Symbols, TensorType, Type, ValueId};

use super::EmitError;
use crate::List;
use crate::payload::{NamedSlot, ShapeDim, Slot, SlotType, SlotVariant, TensorMeta, Tid};

/// A slot that keeps a tensor beyond the run, and what is to be in it afterwards.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) slot: Slot,
    /// What it holds at first.
    pub(super) old: Option<ValueId>,
    /// What it shall hold.
    pub(super) new: ValueId,
}

/// What one graph finds in slots and must leave in slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Edge {
    /// Values that are there before the first node.
    pub(super) given: Vec<(ValueId, Slot)>,
    /// State, or the constants that an init graph defines.
    pub(super) homes: Vec<Home>,
    /// Outputs in order, each slot once.
    pub(super) outputs: Vec<(ValueId, Slot)>,
    /// The first temporary of each space.
    pub(super) first_tensor: u32,
    pub(super) first_value: u32,
}

/// Slot numbers of everything that is not a temporary.
#[derive(Debug)]
pub(super) struct Boundary<'m> {
    module: &'m Module,
    /// By slot: the constant's name.
    pub(super) constants: Vec<&'m str>,
    constant_slots: HashMap<&'m str, Slot>,
    pub(super) inputs: Vec<SlotVariant>,
    /// For each output its place among `output_slots`.
    outputs: Vec<usize>,
    /// Slots of the outputs, and which output each is of first.
    output_slots: Vec<(SlotVariant, usize)>,
    pub(super) buffers: Vec<Slot>,
    pub(super) input_tensors: u32,
    pub(super) output_tensors: u32,
}

impl<'m> Boundary<'m> {
    pub(super) fn new(module: &'m Module) -> Result<Boundary<'m>, EmitError> {
        let main = &module.main;
        let mut boundary = Boundary {
            module,
            constants: Vec::new(),
            constant_slots: HashMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output_slots: Vec::new(),
            buffers: Vec::new(),
            input_tensors: 0,
            output_tensors: 0,
        };
        boundary.number_constants();
        let mut next = Next { tensor: boundary.constants.len() as u32, value: 0 };
        for input in &main.inputs {
            boundary.inputs.push(next.slot(value_type(main, "input", &input.name, input.value)?));
        }
        boundary.input_tensors = next.tensor - boundary.constants.len() as u32;
        let mut seen: HashMap<(&str, ValueId), usize> = HashMap::new();
        for (index, output) in main.outputs.iter().enumerate() {
            // One value under one name is one slot, however often it is returned.
            let at = *seen.entry((&output.name, output.value)).or_insert(boundary.output_slots.len());
            match boundary.output_slots.get(at) {
                Some(&(_, first)) if main.outputs[first] == *output => boundary.outputs.push(at),
                _ => {
                    boundary.outputs.push(boundary.output_slots.len());
                    boundary.output_slots.push((next.slot(&output.ty), index));
                }
            }
        }
        boundary.output_tensors = next.tensor - boundary.input_tensors - boundary.constants.len() as u32;
        for buffer in &main.buffers {
            match value_type(main, "buffer", &buffer.name, buffer.value)? {
                ty @ Type::Tensor(_) => boundary.buffers.push(next.slot(ty).slot()),
                _ => return Err(problem("buffer", &buffer.name, "it is not a tensor")),
            }
        }
        Ok(boundary)
    }

    /// Constants of the main graph, then what only the init graph knows.
    fn number_constants(&mut self) {
        let init = self.module.init.as_ref();
        let of_main = self.module.main.constants.iter().map(|constant| constant.name.as_str());
        let of_init = init.into_iter().flat_map(|init| {
            let outputs = init.outputs.iter().map(|output| output.name.as_str());
            init.constants.iter().map(|constant| constant.name.as_str()).chain(outputs)
        });
        for name in of_main.chain(of_init) {
            self.constant_slots.entry(name).or_insert_with(|| {
                self.constants.push(name);
                Slot::Tensor(Tid(self.constants.len() as u32 - 1))
            });
        }
    }

    /// Value slots at the boundary; temporaries come after them.
    pub(super) fn boundary_values(&self) -> u32 {
        let of_outputs = self.output_slots.iter().map(|(variant, _)| variant);
        let all = self.inputs.iter().chain(of_outputs);
        all.filter(|variant| variant.slot_type != SlotType::Tensor).count() as u32
    }

    fn boundary_tensors(&self) -> u32 {
        self.constants.len() as u32 + self.input_tensors + self.output_tensors + self.buffers.len() as u32
    }

    pub(super) fn output_map(&self) -> impl Iterator<Item = SlotVariant> + '_ {
        self.outputs.iter().map(|&at| self.output_slots[at].0.clone())
    }

    fn empty_edge(&self) -> Edge {
        Edge { first_tensor: self.boundary_tensors(), first_value: self.boundary_values(), ..Edge::default() }
    }

    fn given_constants(&self, graph: &Graph) -> Vec<(ValueId, Slot)> {
        let slot = |name: &str| self.constant_slots.get(name).copied();
        graph.constants.iter().filter_map(|constant| Some((constant.value, slot(&constant.name)?))).collect()
    }

    /// What the main graph finds and leaves.
    pub(super) fn main(&self) -> Edge {
        let main = &self.module.main;
        let mut edge = Edge { given: self.given_constants(main), ..self.empty_edge() };
        let inputs = main.inputs.iter().zip(&self.inputs);
        edge.given.extend(inputs.map(|(input, slot)| (input.value, slot.slot())));
        for (buffer, &slot) in main.buffers.iter().zip(&self.buffers) {
            edge.given.push((buffer.value, slot));
            edge.homes.push(Home { slot, old: Some(buffer.value), new: buffer.update });
        }
        for (variant, first) in &self.output_slots {
            edge.outputs.push((main.outputs[*first].value, variant.slot()));
        }
        edge
    }

    /// What the init graph finds and leaves: constants both.
    pub(super) fn init(&self, init: &Graph) -> Result<Edge, EmitError> {
        if let Some(input) = init.inputs.first() {
            return Err(problem("input", &input.name, "an init graph takes no inputs"));
        }
        if let Some(buffer) = init.buffers.first() {
            return Err(problem("buffer", &buffer.name, "an init graph has no state"));
        }
        let mut edge = Edge { given: self.given_constants(init), ..self.empty_edge() };
        let found: HashMap<&str, ValueId> =
            init.constants.iter().map(|constant| (constant.name.as_str(), constant.value)).collect();
        for output in &init.outputs {
            let name = output.name.as_str();
            let Some(&slot) = self.constant_slots.get(name) else { continue };
            edge.homes.push(Home { slot, old: found.get(name).copied(), new: output.value });
        }
        Ok(edge)
    }
}

/// The next free slot of each space.
struct Next {
    tensor: u32,
    value: u32,
}

impl Next {
    fn slot(&mut self, ty: &Type) -> SlotVariant {
        let (slot_type, next) = match ty {
            Type::Tensor(_) => (SlotType::Tensor, &mut self.tensor),
            Type::Int(_) => (SlotType::IntValue, &mut self.value),
            Type::Float => (SlotType::FloatValue, &mut self.value),
            Type::Bool => (SlotType::BoolValue, &mut self.value),
        };
        *next += 1;
        SlotVariant { idx: *next - 1, slot_type }
    }
}

fn problem(what: &'static str, name: &str, problem: impl Into<String>) -> EmitError {
    EmitError::Boundary { what, name: name.to_owned(), problem: problem.into() }
}

fn value_type<'g>(
    graph: &'g Graph,
    what: &'static str,
    name: &str,
    value: ValueId,
) -> Result<&'g Type, EmitError> {
    graph.ty(value).ok_or_else(|| problem(what, name, format!("%{} is not in the graph", value.0)))
}

/// Names of everything that has one.
pub(super) fn named_slots(module: &Module, boundary: &Boundary<'_>) -> List<NamedSlot> {
    let main = &module.main;
    let constants = boundary.constants.iter().enumerate();
    let constants = constants.map(|(index, name)| (*name, SlotVariant::of(Slot::Tensor(Tid(index as u32)))));
    let inputs = main.inputs.iter().zip(&boundary.inputs);
    let inputs = inputs.map(|(input, slot)| (input.name.as_str(), slot.clone()));
    let outputs = boundary.output_slots.iter();
    let outputs = outputs.map(|(variant, first)| (main.outputs[*first].name.as_str(), variant.clone()));
    let buffers = main.buffers.iter().zip(&boundary.buffers);
    let buffers = buffers.map(|(buffer, &slot)| (buffer.name.as_str(), SlotVariant::of(slot)));
    let all = constants.chain(inputs).chain(outputs).chain(buffers);
    all.filter(|(name, _)| !name.is_empty())
        .map(|(name, slot)| NamedSlot { name: name.into(), slot: Some(slot) })
        .collect()
}

/// Metadata of every tensor slot that is not a temporary, by slot.
pub(super) fn tensor_meta(module: &Module, boundary: &Boundary<'_>) -> Result<List<TensorMeta>, EmitError> {
    let main = &module.main;
    let mut metas = Vec::with_capacity(boundary.boundary_tensors() as usize);
    let stored = stored_types(module);
    for name in &boundary.constants {
        let Some((ty, symbols)) = stored.get(name) else {
            return Err(problem("constant", name, "it has no type"));
        };
        metas.push(meta("constant", name, ty, symbols)?);
    }
    for input in &main.inputs {
        if let Type::Tensor(ty) = value_type(main, "input", &input.name, input.value)? {
            metas.push(meta("input", &input.name, ty, &main.symbols)?);
        }
    }
    for (_, first) in &boundary.output_slots {
        let output = &main.outputs[*first];
        if let Type::Tensor(ty) = &output.ty {
            metas.push(meta("output", &output.name, ty, &main.symbols)?);
        }
    }
    for buffer in &main.buffers {
        if let Type::Tensor(ty) = value_type(main, "buffer", &buffer.name, buffer.value)? {
            metas.push(meta("buffer", &buffer.name, ty, &main.symbols)?);
        }
    }
    Ok(metas.into())
}

/// The type of each constant as its data is stored. What an init graph overwrites is stored as that graph finds
/// it; what it makes out of nothing is a placeholder of one element.
fn stored_types(module: &Module) -> HashMap<&str, (TensorType, &Symbols)> {
    let mut types = HashMap::new();
    for graph in [Some(&module.main), module.init.as_ref()].into_iter().flatten() {
        if module.init.as_ref().is_some_and(|init| std::ptr::eq(init, graph)) {
            for output in &graph.outputs {
                if let Type::Tensor(ty) = &output.ty {
                    let placeholder = TensorType { dtype: ty.dtype, shape: Vec::new() };
                    types.insert(output.name.as_str(), (placeholder, &graph.symbols));
                }
            }
        }
        for constant in &graph.constants {
            if let Some(Type::Tensor(ty)) = graph.ty(constant.value) {
                types.insert(constant.name.as_str(), (ty.clone(), &graph.symbols));
            }
        }
    }
    types
}

fn meta(what: &'static str, name: &str, ty: &TensorType, symbols: &Symbols) -> Result<TensorMeta, EmitError> {
    let fixed = matches!(what, "constant" | "buffer");
    let mut shape = Vec::with_capacity(ty.shape.len());
    for dim in &ty.shape {
        let size = shape_dim(dim, symbols);
        let size = size.filter(|size| !fixed || size.value >= 0);
        shape.push(size.ok_or_else(|| {
            problem(what, name, format!("{} is not a size that the format can hold", symbols.show(dim)))
        })?);
    }
    let Ok(rank) = u8::try_from(shape.len()) else {
        return Err(problem(what, name, format!("rank {}", shape.len())));
    };
    let dim_order = if rank == 0 { List::absent() } else { (0..rank).collect() };
    Ok(TensorMeta { shape: shape.into(), scalar_type: ty.dtype.into(), dim_order })
}

fn shape_dim(dim: &Dim, symbols: &Symbols) -> Option<ShapeDim> {
    if let Some(size) = dim.as_known() {
        return i32::try_from(size).ok().filter(|size| *size >= 0).map(ShapeDim::fixed);
    }
    let (min, max) = match dim.as_symbol().and_then(|symbol| symbols.get(symbol)) {
        Some(info) => (Some(info.min), info.max),
        None => (symbols.lower(dim), symbols.upper(dim)),
    };
    // A bound that the field cannot hold is none.
    let bound = |bound: Option<i64>| bound.and_then(|bound| i32::try_from(bound).ok());
    let max_value = bound(max).filter(|max| *max >= 0).unwrap_or(-1);
    let min_value = bound(min).unwrap_or(0).max(0);
    let min_value = if max_value >= 0 { min_value.min(max_value) } else { min_value };
    Some(ShapeDim { value: -1, min_value, max_value })
}
