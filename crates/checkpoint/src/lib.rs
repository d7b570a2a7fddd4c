//! What people publish, as models: Hugging Face folders, GGUF files, OpenAI's Whisper and NVIDIA's NeMo files in, programs out.
//!
//! [`Checkpoint::open`] reads a path as far as building needs: the architecture with its sizes, names and forms of the
//! weights, the tokenizer's bytes. [`Export`] turns that into a program and streams it to a file, tensor by tensor.
//! Nothing here knows how ops compute, prints, or runs a tokenizer.

mod checkpoint;
mod error;
mod export;
pub mod folder;
pub mod gguf;
mod left_out;
pub mod nemo;
pub mod openai;
mod saved;

pub use checkpoint::{ChatTemplates, Checkpoint, Origin, TokenizerData};
pub use error::CheckpointError;
pub use export::{Export, ExportOptions, Progress, export};
