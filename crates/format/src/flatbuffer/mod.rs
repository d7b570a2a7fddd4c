//! FlatBuffers, the encoding of every table in this crate: a reader that checks all it touches, and a builder.
//!
//! Both are written by hand and know no schema. The `flatbuffers` crate reads tables without generated code only
//! through `unsafe`, and its builder can neither force an alignment from safe code nor fail softly at 2 GiB.
//! Fields are named by slot (their number in the schema, from 0; a union takes two) and by name, for errors.

mod build;
mod read;
mod scalar;
mod vectors;

#[cfg(test)]
mod tests;

pub use build::{Builder, Finished, Offset, TableFields};
pub use read::{Buffer, Table};
pub use scalar::Scalar;
pub use vectors::{StringVector, StructVector, TableVector};
