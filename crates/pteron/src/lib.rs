//! Models as they are published, on the machine at hand: open one by path or by name, and talk to it.
//!
//! ```
//! use pteron::{ChatOptions, GenerateOptions, Model, OpenOptions};
//! # let folder = tempfile::tempdir()?;
//! # let path = pteron::tiny::talking(folder.path())?;
//! # let source = path.as_path();
//!
//! // A program, a GGUF file, a checkpoint folder, or a name such as "smollm2-135m", which is fetched the first time.
//! let model = Model::open(source, OpenOptions::default().home("models"))?;
//! let brief = GenerateOptions::default().max_tokens(16);
//! let mut chat = model.chat(ChatOptions::default().system("Be brief.").answering(brief))?;
//! chat.send("Why is the sky blue?", |piece: &str| print!("{piece}"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What there is
//!
//! - [`Model`]: open it with [`OpenOptions`], which say where models are kept, what runs them, who is told of
//!   [progress](Progress) and what [cancels](Cancel) it. [`requirements()`] says what it would need before that.
//! - [`Chat`]: a conversation that remembers, streams, stops, goes back, forks and is kept in files. Several of one model
//!   share its weights.
//! - [`Model::generate`] and [`Model::stream`]: a [`Prompt`] in, answers out, nothing kept. Answers can be held to a JSON
//!   [schema](GenerateOptions::schema) or a [grammar](GenerateOptions::grammar).
//! - [`Message::showing`] and [`Chat::show`]: images, PNG or JPEG, for models that [see](Model::sees).
//! - [`Transcriber`]: sound in, text with times out.
//! - [`Embedder`]: texts in, vectors out, or how well documents answer a question.
//! - [`Program`] and [`Session`]: any program, on tensors.
//! - [`Error`]: what went wrong, by what an app would do about it.
//!
//! # Plain programs
//!
//! ```
//! use pteron::{HostTensor, OpenOptions, Program, Value};
//! # let folder = tempfile::tempdir()?;
//! # let path = pteron::tiny::silent(folder.path())?;
//!
//! let program = Program::open(&path, &[], &OpenOptions::default().runtime()?)?;
//! let mut session = program.session()?;
//! let tokens = HostTensor::from_slice(vec![1, 3], &[5i64, 6, 7])?;
//! let logits = session.run("forward", &[Value::Tensor(tokens), Value::Int(0)])?;
//! assert_eq!(logits.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here prints, reads the environment, chooses a folder or ends the process.

mod carried;
mod chat;
#[cfg(feature = "registry")]
mod convert;
mod embed;
mod engine;
mod error;
#[cfg(feature = "registry")]
mod find;
mod form;
mod generate;
#[cfg(feature = "registry")]
mod home;
mod located;
mod machine;
mod message;
mod mlx;
mod model;
mod options;
mod progress;
mod requirements;
mod speculate;
#[cfg(feature = "registry")]
#[doc(hidden)]
pub mod tiny;
mod tools;
mod transcribe;
mod vulkan;

pub use chat::{Asking, CacheState, Chat, ChatOptions, Step, Stopper, Writing};
pub use embed::Embedder;
pub use error::{Error, Lack, Reason, Result};
pub use generate::{Flow, GenerateOptions, Prompt};
pub use message::{Message, Messages};
pub use model::Model;
pub use options::{OpenOptions, Source};
pub use progress::{Cancel, Event, Progress};
pub use requirements::{Requirements, requirements};
pub use speculate::Speculate;
pub use transcribe::{Audio, Heard, TranscribeOptions, Transcriber, Transcript};

pub use pteron_llm::tools::ToolCall;
pub use pteron_llm::{Answer, FinishReason, SpecialTokens, Stats, Voice, WhenFull};
pub use pteron_runtime::backend::{MemoryReport, RunControl};
pub use pteron_runtime::{
    Argument, ArgumentKind, Bound, MethodInfo, Options, Precision, Program, Session, Value,
};
pub use pteron_speech::segment::{Segment, Word};
pub use pteron_speech::sound::{RawFormat, SampleKind};
pub use pteron_tensor::{ByteOwner, Bytes, DType, HostTensor};

/// What the command line is made of besides: finding and converting models step by step. It may change with any version.
#[doc(hidden)]
pub mod parts {
    #[cfg(feature = "registry")]
    pub use crate::convert::{Conversion, FORMAT};
    pub use crate::engine::Engine;
    #[cfg(feature = "registry")]
    pub use crate::home::Home;
    pub use crate::located::Located;
    pub use crate::requirements::key_dtype;
    pub use crate::transcribe::SPEECH_SCHEME;
    /// Models by path or name.
    #[cfg(feature = "registry")]
    pub mod find {
        pub use crate::find::{Finder, Located, identity, kind, looks_like_a_path};
    }
    /// What a file is.
    pub mod form {
        pub use crate::form::{Form, Wanted, WrongForm, check};
    }
    /// How much memory there is.
    pub mod machine {
        pub use crate::machine::{cores, memory, size};
    }
    /// The MLX backend.
    pub mod mlx {
        pub use crate::mlx::{MlxCompile, MlxSettings, add};
    }
    /// The Vulkan backend.
    pub mod vulkan {
        pub use crate::vulkan::{Wanted, add};
    }
}
