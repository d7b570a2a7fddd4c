//! Quantised layouts: how codes lie in memory and what numbers they stand for.
//!
//! Pure functions from bytes and words to floats and back, row by row, so that nobody has to hold a whole
//! dequantised matrix. Choosing scales for given floats is a quantiser's business and not done here.

pub mod codes;
pub mod gguf;
pub mod packed;
mod scheme;

pub use gguf::{BlockFormat, Groups, GroupsMut};
pub use scheme::{Mode, Scheme};

/// What can be wrong with a quantised row.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs)] // the messages say it
pub enum QuantError {
    #[error("{0:?} is not a quantisation mode; known are affine, mxfp4, nvfp4 and mxfp8")]
    Mode(String),
    #[error("{mode} has no {bits}-bit codes in groups of {group}")]
    Scheme { mode: Mode, bits: i32, group: i32 },
    #[error("a row of {len} values does not fill whole words or groups ({what})")]
    Row { len: usize, what: String },
    #[error("{what}: {got} where {want} are needed")]
    Length { what: &'static str, got: usize, want: usize },
}

/// `Err` unless a part of a row has the length that the rest of it asks for.
fn expect_length(what: &'static str, got: usize, want: usize) -> Result<(), QuantError> {
    if got == want { Ok(()) } else { Err(QuantError::Length { what, got, want }) }
}
