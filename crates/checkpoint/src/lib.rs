//! What people publish, as models: Hugging Face folders and GGUF files in, programs out.

pub mod gguf;
