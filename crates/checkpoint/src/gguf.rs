//! GGUF files as models: their configuration and their weights.
