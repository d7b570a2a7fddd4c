//! MLX delegate payloads: a header of 24 bytes and one tree of tables, mirrored table by table.
//!
//! [`Payload::decode`] gives tables of which every slot, chain and count is known to be sound; [`Payload::encode`]
//! gives the bytes back, equal table by table. Nodes are read and written by loops over the op catalogue: nothing
//! here lists ops. What the slots mean is not known here; that is what `lift` makes of them.

mod check;
mod header;
#[cfg(test)]
pub(crate) mod machine;
mod node;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod translate;

pub use tables::{
    ChainId, Instruction, InstructionChain, NamedSlot, Payload, ShapeDim, Slot, SlotType, SlotVariant,
    TensorMeta, Tid, Vid, Wire,
};

use pteron_tensor::Bytes;

use crate::flatbuffer::{Buffer, Builder};
use crate::mirror::{Mirror, Source};
use crate::{Limits, Result};

/// The payload version that is written, and the newest that is read.
pub const VERSION: u64 = 1;

impl Payload {
    /// Reads a payload and checks all that `lift` relies on: the version, every slot and chain number, counts,
    /// and that chains nest without cycles.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Payload> {
        Payload::decode_with_remarks(bytes, limits).map(|(payload, _)| payload)
    }

    /// The same, with the paths of fields that a newer exporter wrote and that writing the payload again would
    /// lose. A node with such a field is an error instead: nobody knows what it asks for.
    pub fn decode_with_remarks(bytes: &[u8], limits: &Limits) -> Result<(Payload, Vec<String>)> {
        let tables = header::read(bytes)?;
        // A payload's tables hold no blobs, so there is nothing to borrow.
        let nothing = Bytes::zeroed(0);
        let source = Source::new(&nothing, limits);
        let payload: Payload = source.root(&Buffer::new(&bytes[tables], header::LENGTH as u64, limits))?;
        payload.check(limits)?;
        Ok((payload, source.into_unknown()))
    }

    /// The payload's bytes, for a segment aligned to 16. The same tables give the same bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut builder = Builder::new();
        let root = self.write(&mut builder);
        Ok(header::prepend(&builder.finish(root, None)?.bytes))
    }

    /// Checks what [`decode`](Payload::decode) checks, for a payload that was made by hand.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check::check(self, limits)
    }

    /// How many tensor slots there are, temporaries included.
    pub fn num_tensors(&self) -> u64 {
        [
            self.num_constant_tensors,
            self.num_input_tensors,
            self.num_output_tensors,
            self.num_mutable_buffer_tensors,
            self.num_temp_tensors,
        ]
        .iter()
        .map(|&count| u64::from(count))
        .sum()
    }

    /// The chain of that number.
    pub fn chain(&self, chain: ChainId) -> Option<&InstructionChain> {
        self.instruction_chains.get(chain.0 as usize)
    }
}
