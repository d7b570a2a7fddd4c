//! Vulkan delegate payloads: a header, one tree of tables with operators by name, and constants behind it, mirrored table by
//! table.
//!
//! [`Payload::decode`] gives tables of which every id, count and place is known to be sound; [`Payload::encode`] gives the
//! bytes back, equal table by table. What the operators mean is not known here; that is what [`lift`](lift()) makes of them.

mod check;
mod lift;
mod tables;
#[cfg(test)]
mod tests;

pub use lift::{lift, operators};
pub use tables::{
    BY_KEY, BoolList, BoolValue, Datatype, DoubleList, DoubleValue, IntList, IntValue, MemoryLayout, Null,
    OperatorCall, StagingDatatype, StorageType, StringValue, SymInt, Value, ValueList, VkBytes, VkGraph,
    VkTensor,
};

use pteron_tensor::Bytes;

use crate::draft::Constant;
use crate::error::Identifier;
use crate::flatbuffer::{Buffer as Tables, Builder};
use crate::headed::{self, Owner};
use crate::mirror::{Mirror, Source};
use crate::{FormatError, Limits, Result};

/// The id of delegates with such payloads.
pub const VULKAN_BACKEND: &str = "VulkanBackend";

const IDENTIFIER: [u8; 4] = *b"VK00";

const HEADER: Owner = Owner { magic: *b"VH00", name: "Vulkan", kind: "Vulkan payload" };

/// Everything that one payload says.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// The tables.
    pub graph: VkGraph,
    /// The constants behind the tables.
    pub data: Bytes,
}

impl Default for Payload {
    fn default() -> Payload {
        Payload { graph: VkGraph::default(), data: Bytes::zeroed(0) }
    }
}

impl Payload {
    /// Reads a payload and checks all that lifting relies on: ids, counts and constants. Of what is wrong with sound
    /// tables, all is said at once.
    pub fn decode(bytes: &Bytes, limits: &Limits) -> Result<Payload> {
        Payload::decode_with_remarks(bytes, limits).map(|(payload, _)| payload)
    }

    /// The same, with the paths of fields that a newer exporter wrote and that writing the payload again would lose.
    pub fn decode_with_remarks(bytes: &Bytes, limits: &Limits) -> Result<(Payload, Vec<String>)> {
        let Some(parts) = headed::read(bytes, &HEADER)? else {
            let found = bytes.get(4..8).and_then(|magic| magic.try_into().ok()).unwrap_or_default();
            let (found, expected) = (Identifier(found), Identifier(HEADER.magic));
            return Err(FormatError::OtherFormat { kind: HEADER.kind, found, expected });
        };
        let outside = || FormatError::Header { offset: 10, problem: "parts lie outside the payload".into() };
        let file = bytes.slice(parts.tables.clone()).ok_or_else(outside)?;
        let data = bytes.slice(parts.data).ok_or_else(outside)?;
        let tables = Tables::new(&file, parts.tables.start as u64, limits);
        let identifier = tables.identifier().unwrap_or_default();
        if identifier != IDENTIFIER {
            let (kind, found, expected) = (HEADER.kind, Identifier(identifier), Identifier(IDENTIFIER));
            return Err(match identifier.starts_with(b"VK") {
                true => FormatError::OtherVersion { kind, found, expected },
                false => FormatError::OtherFormat { kind, found, expected },
            });
        }
        let source = Source::new(&file, limits);
        let graph: VkGraph = source.root(&tables)?;
        let payload = Payload { graph, data };
        payload.check(limits)?;
        Ok((payload, source.into_unknown()))
    }

    /// The payload's bytes, for a segment aligned to 16. The same tables give the same bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut builder = Builder::new();
        let root = self.graph.write(&mut builder);
        let tables = builder.finish(root, Some(IDENTIFIER))?.bytes;
        headed::prepend(&tables, &self.data, &HEADER)
    }

    /// Checks what [`decode`](Payload::decode) checks, for a payload that was made by hand.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check::check(self, limits)
    }

    /// The constant of that index; `None` for what there is not.
    pub fn constant(&self, index: u32) -> Option<Constant> {
        let entry = self.graph.constants.get(index as usize)?;
        if !entry.named_key.is_empty() {
            return Some(Constant::Named(entry.named_key.to_string()));
        }
        let end = entry.offset.checked_add(entry.length)?;
        let range = usize::try_from(entry.offset).ok()?..usize::try_from(end).ok()?;
        self.data.slice(range).map(Constant::Inline)
    }
}
