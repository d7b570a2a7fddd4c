//! What a program carries for its runner beside graphs and weights: the contract between those who write programs and
//! those who talk with them.
//!
//! It travels as named data, of which other runtimes pass over what they do not know; all but one under `pteron.` names.

mod config;
mod encoder;
mod format;
mod speech;
mod vision;

pub use config::TokenizerConfig;
pub use encoder::Encoder;
pub use format::{TokenizerFormat, UnknownFormat};
pub use speech::{Parakeet, Realtime, Speech, Voxtral, Whisper, WhisperTokens};
pub use vision::{Filter, Marks, Patches, Pixels, Size, Vision};

/// The tokenizer's file, as it was published.
pub const TOKENIZER: &str = "pteron.tokenizer";
/// The name of that file's [`TokenizerFormat`].
pub const TOKENIZER_FORMAT: &str = "pteron.tokenizer.format";
/// The [`TokenizerConfig`], as JSON.
pub const TOKENIZER_CONFIG: &str = "pteron.tokenizer.config";
/// The Jinja source that makes a text of a conversation.
pub const CHAT_TEMPLATE: &str = "pteron.chat_template";
/// How the model's makers would have tokens chosen: a `generation_config.json`, under the name that it is published by.
pub const GENERATION_CONFIG: &str = "generation_config.json";
/// What a speech program says of itself: a [`Speech`], as JSON.
pub const SPEECH: &str = "pteron.speech";
/// What a program that sees says of itself: a [`Vision`], as JSON.
pub const VISION: &str = "pteron.vision";
/// What a program that makes vectors or numbers of texts says of itself: an [`Encoder`], as JSON.
pub const ENCODER: &str = "pteron.encoder";
/// What the program was made from, by which version, with which options, as JSON.
pub const PROVENANCE: &str = "pteron.provenance";

/// Where a chat template that is meant only when it is asked for travels.
pub fn named_chat_template(name: &str) -> String {
    format!("{CHAT_TEMPLATE}.{name}")
}
