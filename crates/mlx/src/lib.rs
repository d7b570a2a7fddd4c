//! The real MLX as a backend, through a small C++ shim opened at run time.
//!
//! Graphs and host data come in through the contract of `pteron_runtime`, MLX's own arrays do the work. The shim
//! (`shim/`) offers MLX's functions behind plain C, is built with the feature `shim`, and is looked for when a
//! [`MlxBackend`] is opened: a program without MLX starts, and says what is missing.
//!
//! MLX's rules for threads are kept here alone: its streams and traces belong to the thread that made them, so work
//! runs on the caller's, and every run hands over all that it leaves behind. Who waits holds no lock meanwhile.

mod backend;
mod cache;
mod calls;
mod compiled;
mod constants;
mod control;
mod device;
mod error;
mod ffi;
mod known;
mod loaded;
mod lower;
mod machine;
mod numbers;
mod pieces;
mod state;
mod values;

pub use backend::{MLX_VERSION, MlxBackend, MlxOptions};
pub use compiled::Compile;
pub use error::MlxError;
