//! What replies have to be able to say, whichever interface they are written for.

use crate::answer::{Piece, Usage};
use crate::anthropic;
use crate::asked::{Asked, Shape};
use crate::error::ApiError;
use crate::ollama;
use crate::reply::Writer;
use crate::responses;
use bytes::Bytes;
use serde_json::Value;
use std::time::Duration;

/// What a stream of events says where it has nothing to say.
pub(crate) const STILL_THERE: Bytes = Bytes::from_static(b": still there\n\n");

/// The answers to one request in the words of an interface.
pub(crate) trait Wire: Send {
    /// The type of a stream.
    fn kind(&self) -> &'static str {
        "text/event-stream"
    }

    /// What a stream says where it has nothing to say for long, so that nobody between takes it for dead.
    fn ping(&self) -> Option<Bytes> {
        Some(STILL_THERE)
    }

    /// What a stream begins with.
    fn begin(&mut self) -> Vec<Bytes>;

    /// What a piece becomes in a stream.
    fn piece(&mut self, piece: Piece) -> Vec<Bytes>;

    /// What a stream ends with.
    fn end(&mut self, usage: Usage) -> Vec<Bytes>;

    /// What a stream ends with where something went wrong.
    fn failed(&mut self, error: &ApiError) -> Vec<Bytes>;

    /// All answers at once.
    fn whole(&mut self, pieces: Vec<Piece>, usage: Usage) -> Value;
}

/// The wire that a request came by; loading the model took so long.
pub(crate) fn wire_of(asked: &mut Asked, loading: Duration) -> Box<dyn Wire> {
    match asked.shape {
        Shape::Chat | Shape::Completion => Box::new(Writer::new(asked)),
        Shape::Messages => Box::new(anthropic::Writer::new(asked)),
        Shape::Responses => Box::new(responses::Writer::new(asked)),
        Shape::Talk | Shape::Generate => Box::new(ollama::Writer::new(asked, loading)),
    }
}

/// One event of a stream.
pub(crate) fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
