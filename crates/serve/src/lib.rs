//! Models over HTTP, as clients of OpenAI's, Anthropic's and Ollama's interfaces expect them: chats, completions, tools,
//! schemas, streams, transcripts.
//!
//! Bytes of connections flow in and become requests of a [`pteron_llm::Scheduler`], what that tells flows out piece by
//! piece. Which models there are, where they come from and how they are opened is the caller's business ([`Models`]):
//! nothing here knows of files, of the registry or of the command line.

mod answer;
mod anthropic;
mod asked;
mod audio;
mod chat;
mod completion;
mod connection;
mod embed;
mod error;
mod fields;
mod keep;
mod metrics;
mod models;
mod multipart;
mod ollama;
mod openapi;
mod origin;
mod pace;
mod page;
mod pool;
mod reply;
mod responses;
mod routes;
mod schema;
mod seats;
mod server;
mod stream;
mod text;
mod wire;

pub use audio::{HearError, Hearing, Hears};
pub use embed::Embeds;
pub use keep::KeepAlive;
pub use models::{Loaded, Model, Models, OpenError, Served};
pub use server::{Options, Server, Stop};
