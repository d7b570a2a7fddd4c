//! GGUF files: metadata, tensor list and blocks, checked before use.
//!
//! Bytes flow in, mapped or owned; a [`Gguf`] flows out, whose every count, length, offset and product has been
//! checked against [`Limits`], so that what it lends can be used without further thought. Long arrays (a vocabulary of
//! a quarter of a million strings) stay where they lie in the file and are walked when asked for. [`Writer`] makes
//! files: the tokenizer that travels inside a program, and what tests read. Nothing here knows a model.

mod cursor;
mod error;
mod limits;
mod metadata;
mod reader;
mod tensors;
mod types;
mod writer;

pub use error::GgufError;
pub use limits::Limits;
pub use metadata::{Array, Metadata, Value, Values};
pub use reader::Gguf;
pub use tensors::Tensor;
pub use types::{TensorType, ValueType};
pub use writer::Writer;
