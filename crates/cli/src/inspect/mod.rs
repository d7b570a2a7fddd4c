//! What is in a file, as data: the shape that `inspect --json` prints (docs/json.md) and the text is made from.
//!
//! A file flows in, an [`Overview`] flows out. A program that can be loaded tells about itself; of one that
//! cannot (a foreign delegate, weights in another file) the tables alone are shown, with the reason.

pub(crate) mod checkpoint;
mod describe;
mod numbers;
pub(crate) mod pt2;
mod render;

pub(crate) use describe::{describe, portable_operators};
pub(crate) use numbers::preview;
pub(crate) use render::render;

use indexmap::IndexMap;
use serde::Serialize;

/// Everything that `inspect` knows of a file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Overview {
    pub(crate) file: String,
    /// `pte`, `ptd` or `bpte`.
    pub(crate) kind: &'static str,
    pub(crate) bytes: u64,
    #[serde(flatten)]
    pub(crate) program: Option<ProgramOverview>,
    /// What a `.ptd` holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entries: Option<Vec<Entry>>,
    /// What a `.bpte` tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tests: Option<Vec<Tests>>,
}

/// What is known of a program.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProgramOverview {
    /// Why it cannot be run here, if it cannot.
    pub(crate) problem: Option<String>,
    /// The backend that has loaded it.
    #[serde(skip)]
    pub(crate) backend: Option<&'static str>,
    pub(crate) methods: Vec<Method>,
    pub(crate) metadata: IndexMap<String, serde_json::Value>,
    pub(crate) weights: Vec<Weights>,
    pub(crate) named_data: NamedData,
    /// How the model's makers would have tokens chosen, where the program carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generation_config: Option<serde_json::Map<String, serde_json::Value>>,
    /// What a run needs; absent if the program cannot be loaded.
    pub(crate) memory: Option<Memory>,
    /// In text form, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) graphs: Option<Vec<GraphText>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Argument>,
    pub(crate) outputs: Vec<Argument>,
    pub(crate) delegates: Vec<Delegate>,
    /// Portable operators with the number of their calls.
    pub(crate) portable: IndexMap<String, usize>,
}

/// An input or output.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Argument {
    pub(crate) name: String,
    /// `tensor`, `int` or `fixed`; of a `.pt2` also `float`, `bool`, `object` or `other`.
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dims: Option<Vec<Bound>>,
    /// The value that an argument is fixed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
}

/// What is known of one dim; equal for a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Bound {
    pub(crate) min: usize,
    pub(crate) max: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Delegate {
    pub(crate) id: String,
    pub(crate) payload_bytes: u64,
    pub(crate) nodes: usize,
    /// Nodes by op, most frequent first.
    pub(crate) ops: IndexMap<String, usize>,
    /// Ops that the backend does not run itself.
    pub(crate) fallbacks: IndexMap<String, Fallback>,
    /// The graphs that it runs as, where it is cut at ops that the backend lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pieces: Option<Pieces>,
    /// The delegate that it is run as a part of, where several were joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joined: Option<usize>,
}

/// Who runs an op that the backend does not.
#[derive(Debug, Serialize)]
pub(crate) struct Fallback {
    pub(crate) backend: String,
    pub(crate) nodes: usize,
    pub(crate) reason: String,
}

/// A delegate that several backends run.
#[derive(Debug, Serialize)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<Piece>,
    /// Values that cross between backends in a run, and their most bytes.
    pub(crate) crossing_values: usize,
    pub(crate) crossing_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Piece {
    pub(crate) backend: String,
    pub(crate) nodes: usize,
}

/// Constants of one dtype.
#[derive(Debug, Serialize)]
pub(crate) struct Weights {
    pub(crate) dtype: String,
    pub(crate) tensors: usize,
    pub(crate) bytes: u64,
}

/// Named segments of the file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NamedData {
    pub(crate) keys: usize,
    /// Data under several keys counts once.
    pub(crate) bytes: u64,
}

/// What a run needs.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) backend: String,
    pub(crate) device: String,
    /// Weights that stay in the mapped file.
    pub(crate) mapped_bytes: u64,
    /// Weights that were copied, packed or derived.
    pub(crate) packed_bytes: u64,
    /// Buffers of one session, the off-graph cache apart.
    pub(crate) state_bytes: u64,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) cache: Option<Cache>,
    /// For each method what one run holds beyond weights and state, at the largest declared sizes; `null` where a
    /// size has no bound.
    pub(crate) run_bytes: IndexMap<String, Option<u64>>,
}

/// A tensor that every session keeps.
#[derive(Debug, Serialize)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: u64,
}

/// The off-graph cache as the metadata describe it.
#[derive(Debug, Serialize)]
pub(crate) struct Cache {
    pub(crate) capacity: usize,
    pub(crate) layers: usize,
    pub(crate) ring_layers: usize,
    pub(crate) dtype: Option<String>,
    /// When it is full; absent if nothing says what it holds.
    pub(crate) bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GraphText {
    pub(crate) method: String,
    pub(crate) delegate: usize,
    pub(crate) text: String,
}

/// An entry of a `.ptd`.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Absent, like the shape, for plain bytes.
    pub(crate) dtype: Option<String>,
    pub(crate) shape: Option<Vec<i64>>,
    pub(crate) bytes: u64,
}

/// The tests of one method in a `.bpte`.
#[derive(Debug, Serialize)]
pub(crate) struct Tests {
    pub(crate) method: String,
    pub(crate) cases: usize,
}
