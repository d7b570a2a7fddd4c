//! The text form: a graph as a person reads and writes it, complete enough that parsing what was printed gives
//! an equal graph (the numbers of values and symbols included). File tests and errors speak it.
//!
//! ```text
//! graph "forward"
//!   symbol T in 2..=64
//!   input %0 "tokens": i64[1, T]
//!   constant %1 "embedding": f32[8, 4]
//!   buffer %2 "count": i32[1] -> %5
//! {
//!   %3: f32[1, T, 4] = take(x=%1, index=%0, axis=0)  ; chain 0 #3
//!   %4: int(T) = sym_size(a=%0, dim=1)
//!   %5: i32[1] = full(shape=[1], v=%4, scalar_type=i32)
//! }
//! output %3 "logits": f32[1, T, 4]
//! ```
//!
//! Everything after `;` is a comment. Fields are written by name, in any order; those that hold the schema's
//! default or nothing are left out. Bodies follow the fields: `if(cond=%1) then { ... yield %2 } else { ... }`.
//! What may be a tensor or an integer says which: `offset=%3` is a tensor, `offset=int(%3)` an integer. A value
//! that nothing defines is declared by `value %7: f32[4]`; a symbol whose name is not a word of its own goes by
//! its number: `symbol #3 "batch size" in 0..`. A module is `init graph ...`, where there is one, then its graph.

mod cursor;
mod error;
mod fields;
mod lexer;
mod op_table;
mod parse;
mod print;
mod types;

pub use error::{ParseError, Problem};
pub use op_table::op_table;
pub use parse::{parse_graph, parse_module};
pub use print::Printer;

/// The longest text that is parsed, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The most nodes and the most values in one text; payloads have the same limit.
pub const MAX_ITEMS: usize = 1_000_000;
/// How deep blocks may nest: parsing recurses once a level.
pub const MAX_DEPTH: usize = 64;
/// The bounds of a symbol of which nothing is known but that it is an integer; written `i32`.
const ANY_INT: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);
