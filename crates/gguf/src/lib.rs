//! GGUF files: metadata, tensor list and blocks, checked before use.
