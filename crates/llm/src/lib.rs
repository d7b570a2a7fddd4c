//! Language models that talk, and see: tokenizers, samplers, generation, conversations, images, statistics.

mod caches;
pub mod constrain;
pub mod conversation;
mod decoder;
mod drive;
mod error;
mod generate;
mod generation;
mod messages;
mod perplexity;
mod program;
pub mod sampler;
mod schedule;
pub mod seeing;
mod signature;
mod speculate;
mod stats;
mod stop;
pub mod stream;
mod suggested;
pub mod tokenizer;
pub mod tools;
pub mod vectors;
mod voice;
mod writing;

pub use conversation::{Conversation, WhenFull};
pub use decoder::{Decoder, DecoderOptions, Next, Reading, Reuse};
pub use error::{LlmError, Result};
pub use generate::{Answer, FinishReason, GenerateOptions, generate};
pub use generation::{Generation, Likelihood, Step};
pub use messages::{ReadMessage, read_message, read_messages};
pub use perplexity::Perplexity;
pub use program::LanguageModel;
pub use schedule::{
    Counts, Event, Handle, Listener, Refused, Request, Round, ScheduleOptions, Scheduler, Ticket,
};
pub use seeing::{Eyes, Image, PromptRef, SeeError, Shown};
pub use signature::{Draw, Gives, Signature};
pub use speculate::{NoSpeculation, Speculator};
pub use stats::{Clock, Stats};
pub use stop::StopStrings;
pub use suggested::Suggested;
pub use voice::{Prompt, SpecialTokens, Voice};
pub use writing::{Writing, Written};
