//! Vector kernels and the thread pool: slices in, slices out, the best path of the machine.
//!
//! Knows nothing of graphs, files or backends. Every kernel takes the [`path::Path`] it shall use as an argument, so that
//! tests and users can force one; nothing here reads the environment or keeps a global choice.

// Kernels are one of the places where `unsafe` lives; every block says why it holds.
#![allow(unsafe_code)]

pub mod amx;
pub mod path;
pub mod pool;
pub mod quant;
pub mod convert;
pub mod elementwise;
pub mod view;
mod simd;
mod split;
pub mod copy;
pub mod norm;
pub mod softmax;
mod rows;
pub mod attention;
pub mod dense;
pub mod rope;
pub mod reduce;
pub mod order;
pub mod index;
pub mod convolution;
#[cfg(test)]
mod trial;
