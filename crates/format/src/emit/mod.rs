//! From a graph's values to a payload's slots.
//!
//! Slots are numbered as the format asks (constants, inputs, outputs, mutable buffers, temporaries); a temporary
//! is free again after the last use of its value, an output is computed where it is wanted, and a buffer's update
//! takes the place of the old content where that is dead by then. Flows in: a [`Module`]. Flows out: a [`Payload`]
//! that lifts to the same module. The same module gives the same payload. Weights are not known here: a
//! constant keeps its name, which is the key of its data.

mod assign;
mod boundary;
mod chains;
mod error;
mod moves;
#[cfg(test)]
mod tests;

pub use error::EmitError;

use pteron_ir::{Graph, Module};
use std::borrow::Cow;

use crate::payload::{ChainId, InstructionChain, Payload, SlotVariant};
use assign::{Assignment, assign};
use boundary::{Boundary, Edge, named_slots, tensor_meta};
use chains::ChainWriter;

/// The payload that computes what the module computes.
///
/// A constant that the init graph defines without reading or listing it as a constant of its own has no data in
/// any file yet; readers want some under every name, so whoever writes the file must add one element under it.
/// Internal ops are written as the plain ones that they stand for.
pub fn emit(module: &Module) -> Result<Payload, EmitError> {
    let module = &*expanded(module)?;
    let boundary = Boundary::new(module)?;
    let mut chains = vec![InstructionChain::default()];
    let main = Emitted::new(&module.main, boundary.main())?;
    let init = match &module.init {
        Some(graph) => Some((graph, Emitted::new(graph, boundary.init(graph)?)?)),
        None => None,
    };
    let mut init_chain_idx = None;
    if init.is_some() {
        init_chain_idx = Some(ChainId(chains.len() as u32));
        chains.push(InstructionChain::default());
    }
    let mut temps = main.write(&module.main, 0, &mut chains)?;
    let mut values = main.assignment.values;
    if let Some((graph, emitted)) = &init {
        temps = temps.max(emitted.write(graph, 1, &mut chains)?);
        values = values.max(emitted.assignment.values);
    }
    Ok(Payload {
        version: crate::payload::VERSION.to_string().into(),
        num_constant_tensors: boundary.constants.len() as u32,
        num_input_tensors: boundary.input_tensors,
        num_output_tensors: boundary.output_tensors,
        num_mutable_buffer_tensors: boundary.buffers.len() as u32,
        num_temp_tensors: temps,
        num_values: boundary.boundary_values() + values,
        instruction_chains: chains.into(),
        main_chain_idx: ChainId(0),
        init_chain_idx,
        input_map: boundary.inputs.iter().cloned().collect(),
        output_map: boundary.output_map().collect(),
        mutable_buffer_map: boundary.buffers.iter().map(|&slot| SlotVariant::of(slot)).collect(),
        named_slots: named_slots(module, &boundary),
        tensor_meta: tensor_meta(module, &boundary)?,
    })
}

/// The module without internal ops, which no file has.
fn expanded(module: &Module) -> Result<Cow<'_, Module>, EmitError> {
    let mut module = Cow::Borrowed(module);
    if module.main.has_internal_ops() || module.init.as_ref().is_some_and(Graph::has_internal_ops) {
        let Module { init, main } = module.to_mut();
        for graph in init.iter_mut().chain([main]) {
            let expanded = pteron_ir::expand(graph);
            expanded.map_err(|source| EmitError::Expand { graph: graph.name.clone(), source })?;
        }
    }
    Ok(module)
}

/// A graph whose values have slots.
struct Emitted {
    assignment: Assignment,
    edge: Edge,
}

impl Emitted {
    fn new(graph: &Graph, edge: Edge) -> Result<Emitted, EmitError> {
        Ok(Emitted { assignment: assign(graph, &edge)?, edge })
    }

    /// Writes the graph's chain at `index` and its bodies behind all others; how many temporaries it needs.
    fn write(
        &self,
        graph: &Graph,
        index: usize,
        chains: &mut Vec<InstructionChain>,
    ) -> Result<u32, EmitError> {
        let mut writer = ChainWriter::new(graph, &self.assignment, &self.edge, chains);
        let instructions = writer.graph()?;
        let temps = writer.temps();
        chains[index].instructions = instructions.into();
        Ok(temps)
    }
}
