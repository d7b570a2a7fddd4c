//! The graph that every front door makes and every backend runs: op catalogue, values and types with symbolic
//! dims, the type rule of every op, the verifier, when each value is needed, and the text form.
//!
//! Knows nothing of files (slots, chains and flatbuffers live in `format`) and nothing of how ops are computed
//! (kernels live in backends).

pub mod dim;
pub mod expand;
pub mod graph;
pub mod liveness;
pub mod op;
pub mod rows;
pub mod rules;
pub mod text;
pub mod verify;

pub use dim::{Dim, Symbol, SymbolInfo, Symbols, Verdict};
pub use expand::expand;
pub use graph::{
    Block, Buffer, Builder, Constant, Graph, Input, Module, Node, Output, Place, Ssa, TensorType, Type,
    ValueId, ValueInfo,
};
pub use op::{Effect, Op, OpKind};
pub use rows::{LaneInput, LaneRows, TokenRows, lane_rows, position_input, token_rows};
pub use rules::{RuleError, TypeSource, Typing, infer};
pub use text::{ParseError, parse_graph, parse_module};
pub use verify::{VerifyError, verify, verify_module};
