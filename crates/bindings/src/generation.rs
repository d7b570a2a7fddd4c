//! Answers without a conversation: messages flow in, answers flow out, and nothing is kept in between.

use crate::error::{PteronError, Result};
use crate::message::{Answer, GenerateOptions, Message, PieceListener, heard, parsed};
use crate::owner::Owner;
use crate::slot::{Dispose, Slot};
use crate::steps::Steps;
use crate::stream::AnswerStream;
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Answers of a model with the same options.
#[derive(uniffi::Object)]
pub struct Generation {
    slot: Arc<Slot<pteron::Model>>,
    options: pteron::GenerateOptions,
    /// What ends the answer that is being given.
    cancel: Mutex<pteron::Cancel>,
}

impl Generation {
    pub(crate) fn new(owner: &Arc<Owner>, options: GenerateOptions) -> Result<Arc<Generation>> {
        let (model, options) = (owner.model()?, options.facade()?);
        options.check(&model)?;
        let (slot, cancel) = (Slot::new("generation", model), Mutex::default());
        owner.adopt(Arc::new(Generation { slot, options, cancel }))
    }

    /// A flag for the answer that begins now.
    fn begun(&self) -> pteron::Cancel {
        let cancel = pteron::Cancel::default();
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        cancel
    }
}

fn prompt(messages: Vec<Message>, tools: &Value) -> Result<pteron::Prompt> {
    let messages = messages.into_iter().map(Message::facade).collect::<Result<Vec<_>>>()?;
    let mut prompt = pteron::Messages::from(messages);
    prompt.tools = tools.clone();
    Ok(prompt.into())
}

fn read_tools(tools: Option<String>) -> Result<Value> {
    tools.map_or(Ok(Value::Null), |tools| parsed("tools", &tools))
}

impl Generation {
    /// Answers a conversation once, and leaves it to the caller to go on with the answer, step by step.
    pub fn steps(&self, messages: Vec<Message>, tools: Option<String>) -> Result<Steps, PteronError> {
        let tools = read_tools(tools)?;
        let prompt = prompt(messages, &tools)?;
        let lent = self.slot.lend_away()?;
        let writing = lent.begin(prompt, &self.options)?;
        Ok(Steps::of_generation(lent, writing, self.slot.clone(), self.begun(), tools))
    }
}

#[uniffi::export]
impl Generation {
    /// Answers a conversation, as often as the options ask for; all answers at the same time.
    #[uniffi::method(default(tools = None))]
    pub fn generate(
        &self,
        messages: Vec<Message>,
        tools: Option<String>,
    ) -> Result<Vec<Answer>, PteronError> {
        let tools = read_tools(tools)?;
        let prompt = prompt(messages, &tools)?;
        let model = self.slot.lend()?;
        let answers = model.generate(prompt, &self.options)?;
        answers.into_iter().map(|answer| Answer::of(answer, &model, &tools)).collect()
    }

    /// Answers a conversation once; the listener gets the answer piece by piece and may end it.
    #[uniffi::method(default(tools = None, listener = None))]
    pub fn respond(
        &self,
        messages: Vec<Message>,
        tools: Option<String>,
        listener: Option<Arc<dyn PieceListener>>,
    ) -> Result<Answer, PteronError> {
        let tools = read_tools(tools)?;
        let prompt = prompt(messages, &tools)?;
        let model = self.slot.lend()?;
        let cancel = self.begun();
        let answer = heard(
            listener,
            || self.slot.is_unwanted(),
            |show| model.stream(prompt, &self.options, &cancel, show),
        )?;
        Answer::of(answer, &model, &tools)
    }

    /// The same on a thread of its own: the answer is asked for piece by piece.
    #[uniffi::method(default(tools = None))]
    pub fn stream(
        &self,
        messages: Vec<Message>,
        tools: Option<String>,
    ) -> Result<Arc<AnswerStream>, PteronError> {
        let tools = read_tools(tools)?;
        let prompt = prompt(messages, &tools)?;
        let lent = self.slot.lend_away()?;
        let (cancel, options, slot) = (self.begun(), self.options.clone(), self.slot.clone());
        let stop = cancel.clone();
        AnswerStream::start(
            move || stop.cancel(),
            move |show| {
                let show = |piece: &str| {
                    if slot.is_unwanted() { ControlFlow::Break(()) } else { show(piece) }
                };
                let answer = lent.stream(prompt, &options, &cancel, show)?;
                let model = pteron::Model::clone(&lent);
                drop(lent);
                Answer::of(answer, &model, &tools)
            },
        )
    }

    /// Stops the answer that is being given by `respond` or `stream`, from any thread.
    pub fn stop(&self) {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    /// Cancels the answer that is being given, and waits for its end. Answers of `generate` are waited for.
    pub fn dispose(&self) {
        Dispose::dispose(self);
    }
}

impl Dispose for Generation {
    fn dispose(&self) {
        self.slot.dispose(|| self.stop());
    }
}
