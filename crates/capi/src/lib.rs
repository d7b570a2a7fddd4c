//! The objects of the bindings as a small C library. Pointers flow in, are checked and become objects; errors flow out as
//! numbers with words beside them. What models do, and who may use an object when, is said below.
//!
//! No panic leaves here, and no pointer is followed without a look for NULL.

// Every function is called from C, which promises what the header says.
#![allow(unsafe_code)]

mod chat;
mod embed;
mod model;
mod module;
mod status;
mod text;
mod transcribe;
mod value;

pub use chat::*;
pub use embed::*;
pub use model::*;
pub use module::*;
pub use status::*;
pub use text::*;
pub use transcribe::*;
pub use value::*;
