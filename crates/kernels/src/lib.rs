//! Vector kernels: slices in, slices out, the best path of the machine.
//!
//! Knows nothing of graphs, files or backends. Every kernel takes the [`path::Path`] it shall use as an argument, so that
//! tests and users can force one; nothing here reads the environment or keeps a global choice.

// Kernels are one of the places where `unsafe` lives; every block says why it holds.
#![allow(unsafe_code)]

pub mod amx;
pub mod attention;
pub mod convert;
pub mod convolution;
pub mod copy;
pub mod delta;
pub mod dense;
pub mod elementwise;
pub mod epilogue;
pub mod index;
pub mod norm;
pub mod order;
pub mod path;
pub mod quant;
pub mod reduce;
pub mod rope;
mod rows;
mod simd;
pub mod softmax;
mod split;
#[cfg(test)]
mod trial;
pub mod view;

/// What kernels run on: it is in their signatures.
pub use pteron_pool as pool;
