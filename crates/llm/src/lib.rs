//! Language models that talk: tokenizers, templates, samplers, generation, conversations, statistics.

pub mod constrain;
pub mod sampler;
pub mod stream;
pub mod template;
pub mod tokenizer;
