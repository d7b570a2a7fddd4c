//! XNNPACK delegate payloads: a header, one tree of tables, and constants behind it, mirrored table by table.
//!
//! [`Payload::decode`] gives tables of which every id, count and place is known to be sound; [`Payload::encode`] gives the
//! bytes back, equal table by table. What the nodes mean is not known here; that is what [`lift`](lift()) makes of them.

mod check;
mod lift;
mod node;
mod tables;
#[cfg(test)]
mod tests;

pub use lift::lift;
pub use node::{
    ArgMaxPooling, Attention, Binary, Concatenation, Convolution, Elu, FullyConnected, Kind, LeakyRelu, Node,
    Pooling, StaticConstantPad, StaticReshape, StaticResizeBilinear2D, StaticSlice, StaticTranspose, Unary,
};
pub use tables::{
    BY_KEY, Buffer, ConstantData, Datatype, NO_ID, OutputMinMax, PerChannelGroupQuant, PerChannelQuant,
    PerTensorQuant, PerTokenDynamicQuant, Quantization, TensorValue, Value, XnnGraph,
};

use pteron_tensor::Bytes;

use crate::draft::Constant;
use crate::error::Identifier;
use crate::flatbuffer::{Buffer as Tables, Builder};
use crate::headed::{self, Owner};
use crate::mirror::{Mirror, Source};
use crate::{FormatError, Limits, Result};

/// The id of delegates with such payloads.
pub const XNNPACK_BACKEND: &str = "XnnpackBackend";

/// How many arguments a call may have; XNNPACK's own bound.
pub const MOST_EXTERNS: u32 = 4096;

const CURRENT: [u8; 4] = *b"XN01";
const OLD: [u8; 4] = *b"XN00";

/// Old files have no header: there the payload is the tables themselves.
const HEADER: Owner = Owner { magic: *b"XH00", name: "XNNPACK", kind: "XNNPACK payload" };

/// Everything that one payload says.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// The identifier of the tables: `XN01`, or `XN00` in old files.
    pub identifier: [u8; 4],
    /// The tables.
    pub graph: XnnGraph,
    /// The constants behind the tables; `None` in old files without a header, whose constants lie inside the tables.
    pub data: Option<Bytes>,
}

impl Default for Payload {
    fn default() -> Payload {
        Payload { identifier: CURRENT, graph: XnnGraph::default(), data: Some(Bytes::zeroed(0)) }
    }
}

impl Payload {
    /// Reads a payload and checks all that lifting relies on: ids, counts, constants and quantisation parameters. Of
    /// what is wrong with sound tables, all is said at once.
    pub fn decode(bytes: &Bytes, limits: &Limits) -> Result<Payload> {
        Payload::decode_with_remarks(bytes, limits).map(|(payload, _)| payload)
    }

    /// The same, with the paths of fields that a newer exporter wrote and that writing the payload again would lose.
    pub fn decode_with_remarks(bytes: &Bytes, limits: &Limits) -> Result<(Payload, Vec<String>)> {
        let parts = headed::read(bytes, &HEADER)?;
        let outside = || FormatError::Header { offset: 10, problem: "parts lie outside the payload".into() };
        let (start, file, data) = match parts {
            Some(parts) => {
                let file = bytes.slice(parts.tables.clone()).ok_or_else(outside)?;
                (parts.tables.start, file, Some(bytes.slice(parts.data).ok_or_else(outside)?))
            }
            None => (0, bytes.clone(), None),
        };
        let tables = Tables::new(&file, start as u64, limits);
        let identifier = tables.identifier().unwrap_or_default();
        if identifier != CURRENT && identifier != OLD {
            let (kind, found, expected) = (HEADER.kind, Identifier(identifier), Identifier(CURRENT));
            return Err(match identifier.starts_with(b"XN") {
                true => FormatError::OtherVersion { kind, found, expected },
                false => FormatError::OtherFormat { kind, found, expected },
            });
        }
        let source = Source::new(&file, limits);
        let graph: XnnGraph = source.root(&tables)?;
        let payload = Payload { identifier, graph, data };
        payload.check(limits)?;
        Ok((payload, source.into_unknown()))
    }

    /// The payload's bytes, for a segment aligned to 16. The same tables give the same bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut builder = Builder::new();
        let root = self.graph.write(&mut builder);
        let tables = builder.finish(root, Some(self.identifier))?.bytes;
        match &self.data {
            Some(data) => headed::prepend(&tables, data, &HEADER),
            None => Ok(tables),
        }
    }

    /// Checks what [`decode`](Payload::decode) checks, for a payload that was made by hand.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check::check(self, limits)
    }

    /// How many constants can be named by index, "none" at 0 included.
    pub fn constants(&self) -> usize {
        match self.data {
            Some(_) => self.graph.constant_data.len(),
            None => self.graph.constant_buffer.len(),
        }
    }

    /// The constant of that index; `None` for 0 and for what there is not.
    pub fn constant(&self, index: u32) -> Option<Constant> {
        if index == 0 {
            return None;
        }
        let Some(data) = &self.data else {
            let buffer = self.graph.constant_buffer.get(index as usize)?;
            return buffer.storage.get().cloned().map(Constant::Inline);
        };
        let entry = self.graph.constant_data.get(index as usize)?;
        if !entry.named_key.is_empty() {
            return Some(Constant::Named(entry.named_key.to_string()));
        }
        let end = entry.offset.checked_add(entry.size)?;
        let range = usize::try_from(entry.offset).ok()?..usize::try_from(end).ok()?;
        data.slice(range).map(Constant::Inline)
    }
}
