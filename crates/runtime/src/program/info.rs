//! What a program says about itself: methods, their inputs and outputs, delegates, buffers.

use crate::backend::{BufferId, GraphId, Lack};
use crate::fallback::Pieces;
use indexmap::IndexMap;
use pteron_ir::Module;
use pteron_tensor::DType;
use std::sync::Arc;

/// One method.
#[derive(Clone, Debug)]
pub struct MethodInfo {
    /// Its name in the file.
    pub name: String,
    /// What [`Session::run`](crate::Session::run) takes, in order.
    pub inputs: Vec<Argument>,
    /// What it gives, in order.
    pub outputs: Vec<Argument>,
    /// The delegates that it calls.
    pub delegates: Vec<DelegateInfo>,
    /// Portable operators by `name.overload`, with the number of calls that stand in the method.
    pub portable: IndexMap<String, usize>,
}

/// An input or output of a method.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its name in the file; empty where the file has none.
    pub name: String,
    /// What it is.
    pub kind: ArgumentKind,
}

/// What an input or output is.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentKind {
    /// A tensor with bounds for every dim.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Dims, outermost first.
        dims: Vec<Bound>,
    },
    /// An integer that may take any value: a delegate reads it.
    Int,
    /// A value that was fixed when the program was made, as text; only that value is accepted.
    Fixed(String),
}

/// What is known of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The least size that the file declares; exporters overstate it, so nothing enforces it.
    pub min: usize,
    /// The largest size; `None` where the file sets none.
    pub max: Option<usize>,
}

/// One delegate of a method.
#[derive(Clone, Debug)]
pub struct DelegateInfo {
    /// Its number among all graphs of the program.
    pub graph: GraphId,
    /// The id of the backend that the file names for it, which says what its payload is.
    pub id: String,
    /// Its graphs.
    pub module: Arc<Module>,
    /// Nodes by op name, nested ones and those of the init graph included.
    pub ops: IndexMap<&'static str, usize>,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Ops that the chosen backend does not run itself.
    pub fallbacks: IndexMap<&'static str, Fallback>,
    /// The first of the delegates that it was joined with, by number, where it was.
    pub joined: Option<usize>,
    /// What it, and those that are joined to it, run as, where the chosen backend does not run all of it.
    pub pieces: Option<Pieces>,
}

/// Who runs an op that the chosen backend does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The backend.
    pub backend: &'static str,
    /// What the chosen one lacks.
    pub lack: Lack,
    /// How many nodes there are.
    pub nodes: usize,
}

/// A buffer that every session keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferInfo {
    /// Its identity.
    pub id: BufferId,
    /// Element type.
    pub dtype: DType,
    /// Dims.
    pub shape: Vec<usize>,
}
