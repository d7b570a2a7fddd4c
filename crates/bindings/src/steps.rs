//! An answer that its caller drives, a call of the model at a time: where there is no thread to write it, as in a browser.

use crate::chat::{Stop, Talk};
use crate::error::{PteronError, Result};
use crate::message::Answer;
use crate::slot::{Lent, Slot};
use serde_json::Value;
use std::sync::Arc;

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// More text, which may be none; there is more to come.
    Piece(String),
    /// The last of the text, which may be none, and the whole answer.
    Ended(String, Answer),
}

/// An answer that is being written. It ends when this is dropped.
pub struct Steps {
    /// What writes it; none once it has ended.
    writer: Option<Writer>,
    tools: Value,
}

enum Writer {
    Chat {
        talk: Lent<Talk>,
        asking: pteron::Asking,
        slot: Arc<Slot<Talk>>,
        stop: Stop,
    },
    Generation {
        model: Lent<pteron::Model>,
        writing: pteron::Writing,
        slot: Arc<Slot<pteron::Model>>,
        cancel: pteron::Cancel,
    },
}

/// A step of either writer.
enum Gone {
    On(String, Box<Writer>),
    Ended(String, Box<pteron::Answer>, pteron::Model),
}

impl Writer {
    fn step(self) -> Result<Gone> {
        Ok(match self {
            Writer::Chat { mut talk, asking, slot, stop } => {
                let model = talk.model.clone();
                if slot.is_unwanted() || stop.is_asked() {
                    let (piece, answer) = talk.chat.interrupt(asking);
                    return Ok(Gone::Ended(piece, Box::new(answer), model));
                }
                match talk.chat.step(asking)? {
                    pteron::Step::More { piece, rest } => {
                        Gone::On(piece, Box::new(Writer::Chat { talk, asking: rest, slot, stop }))
                    }
                    pteron::Step::Ended { piece, answer } => Gone::Ended(piece, answer, model),
                }
            }
            Writer::Generation { model, writing, slot, cancel } => {
                let own = pteron::Model::clone(&model);
                if slot.is_unwanted() {
                    cancel.cancel();
                }
                match writing.step(&cancel)? {
                    pteron::Step::More { piece, rest } => {
                        Gone::On(piece, Box::new(Writer::Generation { model, writing: rest, slot, cancel }))
                    }
                    pteron::Step::Ended { piece, answer } => Gone::Ended(piece, answer, own),
                }
            }
        })
    }
}

impl Steps {
    pub(crate) fn of_chat(
        talk: Lent<Talk>,
        asking: pteron::Asking,
        slot: Arc<Slot<Talk>>,
        stop: Stop,
        tools: Value,
    ) -> Steps {
        Steps { writer: Some(Writer::Chat { talk, asking, slot, stop }), tools }
    }

    pub(crate) fn of_generation(
        model: Lent<pteron::Model>,
        writing: pteron::Writing,
        slot: Arc<Slot<pteron::Model>>,
        cancel: pteron::Cancel,
        tools: Value,
    ) -> Steps {
        Steps { writer: Some(Writer::Generation { model, writing, slot, cancel }), tools }
    }

    /// Reads a part of what was asked, or chooses a token. What it is asked of is free again when it has ended.
    ///
    /// # Errors
    /// When a run fails, or it has ended before.
    pub fn step(&mut self) -> Result<Step, PteronError> {
        let ended = || PteronError::Disposed { what: "answer".to_owned() };
        match self.writer.take().ok_or_else(ended)?.step()? {
            Gone::On(piece, writer) => {
                self.writer = Some(*writer);
                Ok(Step::Piece(piece))
            }
            Gone::Ended(piece, answer, model) => {
                Ok(Step::Ended(piece, Answer::of(*answer, &model, &self.tools)?))
            }
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(Writer::Chat { mut talk, asking, .. }) = self.writer.take() {
            // What was said until now is a turn, as where a listener wants no more.
            talk.chat.interrupt(asking);
        }
    }
}
