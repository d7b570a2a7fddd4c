//! From a payload's slots to a graph's values.
//!
//! Chains are walked in order with a table of what each slot holds; writing a slot only changes the table, so
//! slots and their reuse are gone afterwards, and so are the copies that only moved values between slots.
//! Branches and loops become blocks whose results are the slots that somebody reads later. Flows in: a
//! [`Payload`]. Flows out: a [`Module`] with every node of the file but Noop and IdCopy. Knows nothing of weights.

mod boundary;
mod chain;
mod control;
mod error;
mod liveness;
#[cfg(test)]
mod random_tests;
mod slots;
#[cfg(test)]
mod tests;

pub use error::{LiftError, NamedPlace, Where};

use std::collections::HashMap;
use std::ops::Range;

use pteron_ir::{Builder, Graph, Module};

use crate::Limits;
use crate::payload::{Payload, Slot, Tid};
use liveness::Liveness;
use slots::SlotTable;

/// The graphs that a payload stands for; `name` is the method or delegate they are for.
pub fn lift(payload: &Payload, name: &str, limits: &Limits) -> Result<Module, LiftError> {
    payload.check(limits)?;
    let init = match payload.init_chain_idx {
        Some(chain) => Some(Lifter::new(payload, format!("{name}.init"), Role::Init, limits).init(chain)?),
        None => None,
    };
    let main = Lifter::new(payload, name.to_owned(), Role::Main, limits).main(init.as_ref())?;
    Ok(Module { init, main })
}

/// Which chain is lifted: only one of them may write constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Init,
    Main,
}

/// One graph in the making.
struct Lifter<'p> {
    payload: &'p Payload,
    role: Role,
    builder: Builder,
    slots: SlotTable,
    liveness: Liveness<'p>,
    names: HashMap<Slot, &'p str>,
    limits: &'p Limits,
    /// Bytes that types may still take: shapes can grow with every node, whatever the file's size.
    type_bytes: u64,
    /// Instructions that may still be lifted.
    instructions: u64,
}

impl<'p> Lifter<'p> {
    fn new(payload: &'p Payload, name: String, role: Role, limits: &'p Limits) -> Lifter<'p> {
        let mut names = HashMap::new();
        for named in &payload.named_slots {
            if let Some(slot) = &named.slot {
                names.entry(slot.slot()).or_insert(&*named.name);
            }
        }
        Lifter {
            payload,
            role,
            builder: Builder::new(Graph { name, ..Graph::default() }),
            slots: SlotTable::new(payload),
            liveness: Liveness::new(payload),
            names,
            limits,
            type_bytes: limits.decoded_bytes,
            instructions: limits.instructions,
        }
    }

    fn named(&self, slot: Slot) -> NamedPlace {
        NamedPlace { slot, name: self.names.get(&slot).map(|name| (*name).to_owned()) }
    }

    /// The tensor slots of the constants, the inputs, the outputs and the mutable buffers.
    fn ranges(&self) -> [Range<u32>; 4] {
        let mut start = 0;
        [
            self.payload.num_constant_tensors,
            self.payload.num_input_tensors,
            self.payload.num_output_tensors,
            self.payload.num_mutable_buffer_tensors,
        ]
        .map(|count| {
            let range = start..start + count;
            start = range.end;
            range
        })
    }

    fn is_constant(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Tensor(Tid(index)) if self.ranges()[0].contains(&index))
    }

    fn is_buffer(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Tensor(Tid(index)) if self.ranges()[3].contains(&index))
    }
}
