//! What apps in other languages can do with models: objects, records and errors over the facade, defined once. Python,
//! Kotlin, Swift and JavaScript are generated from the macros here.
//!
//! Calls come in from any thread, in any order, with anything in them: what makes no sense is a typed error. An object
//! belongs to one call at a time; `dispose` cancels that call, waits for it and gives the memory back. Nothing here knows how
//! a model computes, or which language calls.

// Every module of the definition exports C functions; what they do with pointers is written by the macros.
#![allow(unsafe_code)]

mod chat;
mod embed;
mod error;
mod generation;
mod live;
mod message;
mod model;
mod module;
mod open;
mod owner;
mod slot;
mod steps;
mod stream;
mod tensor;
mod transcribe;

pub use chat::{CacheState, Chat, ChatOptions, WhenFull};
pub use embed::Embedder;
pub use error::PteronError;
pub use generation::Generation;
pub use live::LiveSound;
pub use message::{Answer, FinishReason, GenerateOptions, Message, PieceListener, Stats, ToolCall};
pub use model::{MemoryReport, Model};
pub use module::{Argument, ArgumentKind, Dim, MethodMetadata, Module, Value};
pub use open::{Cancel, Event, OpenOptions, Precision, ProgressListener, Requirements, requirements};
pub use steps::{Step, Steps};
pub use stream::AnswerStream;
pub use tensor::{DType, Keeper, Tensor};
pub use transcribe::{
    Audio, Heard, Segment, SoundListener, TranscribeOptions, Transcriber, Transcript, Word,
};

pub use pteron::{ByteOwner, Bytes, Source};

uniffi::setup_scaffolding!("pteron");
