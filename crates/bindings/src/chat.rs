//! A conversation that remembers, streams, stops, goes back, forks and is kept in files.

use crate::error::{PteronError, Result};
use crate::message::{Answer, GenerateOptions, Message, PieceListener, heard, parsed};
use crate::open::size;
use crate::owner::Owner;
use crate::slot::{Dispose, Lent, Slot};
use crate::steps::Steps;
use crate::stream::AnswerStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, uniffi::Enum)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The oldest turns are left out.
    #[default]
    Slide,
    /// Nothing more is said.
    Stop,
}

/// How a conversation begins.
#[derive(Clone, Debug, Default, Deserialize, uniffi::Record)]
#[serde(default, deny_unknown_fields)]
pub struct ChatOptions {
    /// What the model is told before the conversation.
    #[uniffi(default = None)]
    pub system: Option<String>,
    /// What was said before: an answer of the assistant follows each message of a user or a tool.
    #[uniffi(default = [])]
    pub history: Vec<Message>,
    /// The tools that the model may call: a list of descriptions, as JSON.
    #[uniffi(default = None)]
    pub tools: Option<String>,
    /// What happens when the context is full; without, the oldest turns are left out.
    #[uniffi(default = None)]
    pub when_full: Option<WhenFull>,
    /// What answers shall be like.
    #[uniffi(default = None)]
    pub answering: Option<GenerateOptions>,
}

/// How much of the context a conversation has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct CacheState {
    /// Tokens that the caches hold.
    pub position: u64,
    /// Tokens that they can hold; none where nothing says it.
    pub capacity: Option<u64>,
}

/// A conversation with a model.
#[derive(uniffi::Object)]
pub struct Chat {
    slot: Arc<Slot<Talk>>,
    stop: Stop,
    owner: Arc<Owner>,
    tools: Value,
}

/// What a call uses.
pub(crate) struct Talk {
    pub(crate) chat: pteron::Chat,
    pub(crate) model: pteron::Model,
}

/// Stops the answer that is being given, or that begins just now: a chat forgets what it was told before its first step.
#[derive(Clone)]
pub(crate) struct Stop {
    stopper: pteron::Stopper,
    is_asked: Arc<AtomicBool>,
}

impl Stop {
    fn stop(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        self.stopper.stop();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }
}

impl Chat {
    pub(crate) fn begin(owner: &Arc<Owner>, options: ChatOptions) -> Result<Arc<Chat>> {
        let model = owner.model()?;
        let tools = options.tools.map_or(Ok(Value::Null), |tools| parsed("tools", &tools))?;
        let history = options.history.into_iter().map(Message::facade).collect::<Result<Vec<_>>>()?;
        let mut chosen = pteron::ChatOptions::default()
            .history(history)
            .tools(tools.clone())
            .answering(options.answering.unwrap_or_default().facade()?)
            .when_full(match options.when_full.unwrap_or_default() {
                WhenFull::Slide => pteron::WhenFull::Slide,
                WhenFull::Stop => pteron::WhenFull::Stop,
            });
        if let Some(system) = options.system {
            chosen = chosen.system(system);
        }
        let chat = model.chat(chosen)?;
        Chat::of(Talk { chat, model }, owner, tools)
    }

    fn of(talk: Talk, owner: &Arc<Owner>, tools: Value) -> Result<Arc<Chat>> {
        let stop = Stop { stopper: talk.chat.stopper(), is_asked: Arc::default() };
        owner.adopt(Arc::new(Chat { slot: Slot::new("chat", talk), stop, owner: owner.clone(), tools }))
    }

    /// An answer on this thread.
    fn answer<T>(
        &self,
        listener: Option<Arc<dyn PieceListener>>,
        ask: impl FnOnce(&mut pteron::Chat, &mut dyn FnMut(&str) -> ControlFlow<()>) -> pteron::Result<T>,
    ) -> Result<(T, Lent<Talk>)> {
        let mut talk = self.slot.lend()?;
        self.stop.is_asked.store(false, Ordering::SeqCst);
        let is_unwanted = || self.slot.is_unwanted() || self.stop.is_asked.load(Ordering::SeqCst);
        let answer = heard(listener, is_unwanted, |show| ask(&mut talk.chat, show))?;
        Ok((answer, talk))
    }

    /// An answer on a thread of its own.
    fn streamed<F>(&self, ask: F) -> Result<Arc<AnswerStream>>
    where
        F: FnOnce(
            &mut pteron::Chat,
            &mut dyn FnMut(&str) -> ControlFlow<()>,
        ) -> pteron::Result<pteron::Answer>,
        F: Send + 'static,
    {
        let mut talk = self.slot.lend_away()?;
        self.stop.is_asked.store(false, Ordering::SeqCst);
        let (stop, tools, slot) = (self.stop.clone(), self.tools.clone(), self.slot.clone());
        let stopped = stop.clone();
        AnswerStream::start(
            move || stop.stop(),
            move |show| {
                let is_unwanted = || slot.is_unwanted() || stopped.is_asked.load(Ordering::SeqCst);
                let answer = ask(&mut talk.chat, &mut |piece: &str| {
                    if is_unwanted() { ControlFlow::Break(()) } else { show(piece) }
                })?;
                // The chat is free again before anybody hears that the stream has ended.
                let model = talk.model.clone();
                drop(talk);
                Answer::of(answer, &model, &tools)
            },
        )
    }
}

impl Chat {
    /// Asks something and leaves it to the caller to go on with the answer, step by step.
    pub fn steps(&self, text: &str, options: Option<GenerateOptions>) -> Result<Steps, PteronError> {
        let options = options.map(GenerateOptions::facade).transpose()?;
        self.stepped(|chat| chat.begin(text, options.as_ref()))
    }

    /// The same with what a tool has found.
    pub fn result_steps(&self, found: &str) -> Result<Steps, PteronError> {
        self.stepped(|chat| chat.begin_result(found))
    }

    fn stepped(
        &self,
        begin: impl FnOnce(&mut pteron::Chat) -> pteron::Result<pteron::Asking>,
    ) -> Result<Steps> {
        let mut talk = self.slot.lend_away()?;
        self.stop.is_asked.store(false, Ordering::SeqCst);
        let asking = begin(&mut talk.chat)?;
        Ok(Steps::of_chat(talk, asking, self.slot.clone(), self.stop.clone(), self.tools.clone()))
    }
}

#[uniffi::export]
impl Chat {
    /// Asks something; the listener gets the answer piece by piece and may end it. What was said until then is a turn.
    #[uniffi::method(default(options = None, listener = None))]
    pub fn send(
        &self,
        text: String,
        options: Option<GenerateOptions>,
        listener: Option<Arc<dyn PieceListener>>,
    ) -> Result<Answer, PteronError> {
        let options = options.map(GenerateOptions::facade).transpose()?;
        let (answer, talk) = self.answer(listener, |chat, show| match &options {
            Some(options) => chat.send_with(&text, options, show),
            None => chat.send(&text, show),
        })?;
        Answer::of(answer, &talk.model, &self.tools)
    }

    /// The same on a thread of its own: the answer is asked for piece by piece.
    #[uniffi::method(default(options = None))]
    pub fn stream(
        &self,
        text: String,
        options: Option<GenerateOptions>,
    ) -> Result<Arc<AnswerStream>, PteronError> {
        let options = options.map(GenerateOptions::facade).transpose()?;
        self.streamed(move |chat, show| match &options {
            Some(options) => chat.send_with(&text, options, show),
            None => chat.send(&text, show),
        })
    }

    /// Gives the model what a tool has found that it called in its last answer.
    #[uniffi::method(default(listener = None))]
    pub fn send_result(
        &self,
        found: String,
        listener: Option<Arc<dyn PieceListener>>,
    ) -> Result<Answer, PteronError> {
        let (answer, talk) = self.answer(listener, |chat, show| chat.send_result(&found, show))?;
        Answer::of(answer, &talk.model, &self.tools)
    }

    /// The same on a thread of its own.
    pub fn stream_result(&self, found: String) -> Result<Arc<AnswerStream>, PteronError> {
        self.streamed(move |chat, show| chat.send_result(&found, show))
    }

    /// Another answer to the last question, in place of the last one; none where nothing was asked.
    #[uniffi::method(default(listener = None))]
    pub fn regenerate(
        &self,
        listener: Option<Arc<dyn PieceListener>>,
    ) -> Result<Option<Answer>, PteronError> {
        let (answer, talk) = self.answer(listener, |chat, show| chat.regenerate(show))?;
        answer.map(|answer| Answer::of(answer, &talk.model, &self.tools)).transpose()
    }

    /// Stops the answer that is being given, from any thread; what was said until then stays. Where none is being given,
    /// nothing happens.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Everything that was said, in order.
    pub fn history(&self) -> Result<Vec<Message>, PteronError> {
        Ok(self.slot.lend()?.chat.history().iter().map(Message::of).collect())
    }

    /// Shows the model an image with the next question: the bytes of its file, PNG or JPEG.
    pub fn show(&self, image: Vec<u8>) -> Result<(), PteronError> {
        Ok(self.slot.lend()?.chat.show(image)?)
    }

    /// How many questions have been answered.
    pub fn turns(&self) -> Result<u64, PteronError> {
        Ok(self.slot.lend()?.chat.turns() as u64)
    }

    /// Goes back until so many turns are left.
    pub fn rewind(&self, turns: u64) -> Result<(), PteronError> {
        self.slot.lend()?.chat.rewind(size(turns));
        Ok(())
    }

    /// Takes the last turn back; what was asked in it.
    pub fn undo(&self) -> Result<Option<String>, PteronError> {
        Ok(self.slot.lend()?.chat.undo())
    }

    /// Another conversation that goes on from here; the two share memory until either goes on.
    pub fn fork(&self) -> Result<Arc<Chat>, PteronError> {
        let talk = self.slot.lend()?;
        let fork = Talk { chat: talk.chat.fork()?, model: talk.model.clone() };
        Chat::of(fork, &self.owner, self.tools.clone())
    }

    /// Writes the conversation to a file. Messages are kept, caches are not.
    pub fn save(&self, path: String) -> Result<(), PteronError> {
        Ok(self.slot.lend()?.chat.save(Path::new(&path))?)
    }

    /// Goes on with a conversation in a file. Gives the model that it was held with where that was another one; an empty name
    /// where the file does not say which.
    pub fn restore(&self, path: String) -> Result<Option<String>, PteronError> {
        Ok(self.slot.lend()?.chat.resume(Path::new(&path))?)
    }

    /// What `save` writes, for apps that keep it elsewhere.
    pub fn saved(&self) -> Result<Vec<u8>, PteronError> {
        Ok(self.slot.lend()?.chat.saved()?)
    }

    /// Goes on with what `saved` gave, as `restore` does with a file.
    pub fn restore_saved(&self, saved: Vec<u8>) -> Result<Option<String>, PteronError> {
        Ok(self.slot.lend()?.chat.resume_from(&saved)?)
    }

    /// How much of the context is used.
    pub fn cache_state(&self) -> Result<CacheState, PteronError> {
        let state = self.slot.lend()?.chat.cache_state();
        let capacity = state.capacity.map(|capacity| capacity as u64);
        Ok(CacheState { position: state.position as u64, capacity })
    }

    /// Leaves out so many of the oldest turns that the model is shown; how many there were.
    pub fn drop_oldest(&self, turns: u64) -> Result<u64, PteronError> {
        Ok(self.slot.lend()?.chat.drop_oldest(size(turns)) as u64)
    }

    /// Changes what further answers shall be like.
    pub fn set_answering(&self, options: GenerateOptions) -> Result<(), PteronError> {
        self.slot.lend()?.chat.set_answering(options.facade()?);
        Ok(())
    }

    /// Cancels the answer that is being given, waits for its end, and gives the caches back. A listener may do this too; the
    /// answer then ends soon after it.
    pub fn dispose(&self) {
        Dispose::dispose(self);
    }
}

impl Dispose for Chat {
    fn dispose(&self) {
        self.slot.dispose(|| self.stop.stop());
    }
}
