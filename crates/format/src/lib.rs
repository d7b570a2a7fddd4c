//! Files: the `.pte`, `.ptd` and `.bpte` containers, read and written table by table under one set of [`Limits`].
//!
//! Bytes flow in (mapped or owned), checked tables that borrow them flow out, and the other way round. Nothing
//! here runs a program, and nothing here trusts a file: every offset, size, index and product is checked before
//! it is used.

mod across;
pub mod assemble;
pub mod bpte;
mod delegate;
mod draft;
pub mod emit;
mod error;
pub mod flatbuffer;
mod headed;
mod large;
pub mod lift;
mod limits;
pub mod map;
mod mirror;
pub mod payload;
mod portable;
pub mod ptd;
pub mod pte;
mod segments;
pub mod vulkan;
pub mod xnnpack;

pub use across::to_mlx;
pub use assemble::{AssembleError, ProgramWriter};
pub use delegate::{DELEGATE_IDS, delegate_arguments, lift_delegate};
pub use draft::{Argument, Constant, Lifted};
pub use emit::{EmitError, emit};
pub use error::{FormatError, Identifier, Place, Result};
pub use lift::{LiftError, lift};
pub use limits::Limits;
pub use mirror::{Blob, List, Text};
pub use portable::{RunInit, to_portable};
pub use segments::{SEGMENT_ALIGNMENT, Segment, WriteOptions};
