//! Language models over HTTP, as clients of OpenAI's interface expect them: chats, completions, tools, schemas, streams.
//!
//! Bytes of connections flow in and become requests of a [`pteron_llm::Scheduler`], what that tells flows out piece by
//! piece. Which models there are, where they come from and how they are opened is the caller's business ([`Models`]):
//! nothing here knows of files, of the registry or of the command line.

mod answer;
mod anthropic;
mod asked;
mod chat;
mod completion;
mod connection;
mod error;
mod fields;
mod metrics;
mod models;
mod page;
mod reply;
mod routes;
mod schema;
mod server;
mod stream;
mod text;
mod wire;

pub use models::{Model, Models, OpenError, Served};
pub use server::{Options, Server, Stop};
