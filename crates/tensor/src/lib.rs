//! Dtypes, shapes and host tensors: the vocabulary every other crate speaks.
//!
//! Knows nothing of programs, graphs or backends, and opens no file. Bytes flow in as owned memory or as a shared region
//! that somebody else keeps alive (a mapped file); numbers flow out as checked slices.

mod bytes;
mod dtype;
mod host;
pub mod npy;
pub mod quant;

pub use bytes::{ByteOwner, Bytes};
pub use dtype::{DType, promote};
pub use host::{Element, HostTensor, Scalar, TensorError, element_count};
