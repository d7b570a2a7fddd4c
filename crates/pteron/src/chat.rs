//! A conversation: words flow in, answers flow out piece by piece, and every turn reads only what is new.

mod asking;
mod stop;

pub use asking::{Asking, Step, Writing};
pub use stop::Stopper;

use crate::error::{Error, Result};
use crate::generate::{Flow, GenerateOptions};
use crate::message::{Message, check_tools};
use crate::model::Model;
use crate::options::setters;
use crate::progress::Cancel;
use crate::speculate::Speculate;
use pteron_llm::conversation::Asker;
use pteron_llm::{Answer, Conversation, Voice, WhenFull};
use pteron_runtime::RunControl;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// How a conversation begins.
///
/// ```
/// use pteron::{ChatOptions, GenerateOptions};
///
/// let options = ChatOptions::default()
///     .system("Answer in one sentence.")
///     .answering(GenerateOptions::default().temperature(0.2));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChatOptions {
    system: Option<String>,
    history: Vec<Message>,
    tools: Value,
    when_full: WhenFull,
    answering: GenerateOptions,
    name: Option<String>,
}

setters! { ChatOptions:
    /// What the model is told before the conversation.
    system(text: impl Into<String>) system = Some(text.into()), "\"Be brief.\"";
    /// What was said before: an answer of the assistant follows each message of a user or a tool.
    history(messages: Vec<Message>) history = messages, "vec![pteron::Message::user(\"Hi\"), pteron::Message::assistant(\"Hello\")]";
    /// The tools that the model may call: a list of descriptions, as JSON.
    tools(tools: Value) tools = tools, "serde_json::json!([{\"type\": \"function\", \"function\": {\"name\": \"weather\"}}])";
    /// What happens when the context is full: the oldest turns are left out, or nothing more is said.
    when_full(when_full: WhenFull) when_full = when_full, "pteron::WhenFull::Stop";
    /// What answers shall be like.
    answering(options: GenerateOptions) answering = options, "pteron::GenerateOptions::default().max_tokens(64)";
    /// What the model is called in files that [`Chat::save`] writes; without, as it was asked for.
    called(name: impl Into<String>) name = Some(name.into()), "\"smollm2\"";
}

/// How much of the context a conversation has used.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// let model = pteron::Model::open(path.as_path(), Default::default())?;
/// let state = model.chat(Default::default())?.cache_state();
/// assert_eq!((state.position, state.capacity), (0, model.context()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheState {
    /// Tokens that the caches hold.
    pub position: usize,
    /// Tokens that they can hold; `None` where nothing says it.
    pub capacity: Option<usize>,
}

/// A conversation with a model. Several of one model run beside each other and share its weights.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let source = path.as_path();
/// use pteron::{ChatOptions, Model, OpenOptions};
///
/// let model = Model::open(source, OpenOptions::default())?;
/// let mut chat = model.chat(ChatOptions::default().system("Be brief."))?;
/// # chat.set_answering(pteron::GenerateOptions::default().max_tokens(4));
/// let answer = chat.send("Hello", |piece: &str| print!("{piece}"))?;
/// assert_eq!(chat.history().len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Chat {
    model: Model,
    conversation: Conversation,
    answering: GenerateOptions,
    /// What the decoder guesses with now.
    speculate: Speculate,
    seed: u64,
    stop: Cancel,
}

impl Model {
    /// A conversation that begins.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let mut chat = model.chat(pteron::ChatOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the model has no tokenizer, there is no memory for another session, or the history or the tools are none.
    pub fn chat(&self, options: ChatOptions) -> Result<Chat> {
        check_tools(&options.tools).map_err(Error::invalid)?;
        let answering = options.answering;
        let seed = answering.resolved(self).seed;
        let special_tokens = answering.special_tokens.unwrap_or_default();
        let voice = Voice { special_tokens, ..self.voice()?.clone() };
        let (system, history) = split(options.system, options.history)?;
        let mut decoder = self.decoder(seed)?;
        decoder.set_speculator(answering.speculate.speculator(self)?);
        let name = options.name.as_deref().unwrap_or(self.name());
        let begun = Conversation::new(decoder, voice, system, options.when_full).with(name);
        let begun = begun.with_tools(options.tools);
        let conversation = history.into_iter().try_fold(begun, |before, (asker, asked, answer)| {
            let after = before.after(asker, asked.content(), answer.content());
            if asked.images().is_empty() {
                return Ok(after);
            }
            if !self.sees() {
                return Err(self.is_blind());
            }
            Ok(after.showing(asked.images())?)
        })?;
        let (speculate, stop) = (answering.speculate.clone(), Cancel::default());
        Ok(Chat { model: self.clone(), conversation, answering, speculate, seed, stop })
    }
}

/// What the model is told first, and turns that were held before: a question and its answer.
type Before = (Option<String>, Vec<(Asker, Message, Message)>);

fn split(mut system: Option<String>, history: Vec<Message>) -> Result<Before> {
    let mut turns = Vec::new();
    let mut messages = history.into_iter().peekable();
    if let Some(first) = messages.next_if(|first| first.role() == "system")
        && system.replace(first.content().to_owned()).is_some()
    {
        return Err(Error::invalid("the system prompt is given twice"));
    }
    while let Some(asked) = messages.next() {
        let asker = match asked.role() {
            "user" => Asker::User,
            "tool" => Asker::Tool,
            other => {
                return Err(Error::invalid(format_args!("the history has `{other}` where somebody asks")));
            }
        };
        let answer = messages.next().filter(|answer| answer.role() == "assistant");
        let answer = answer.ok_or_else(|| Error::invalid("the history has a message that nobody answers"))?;
        let texts = |message: &Message| {
            let parts = message.as_json()["content"].as_array();
            parts.map_or(1, |parts| parts.iter().filter(|part| part["type"] == "text").count())
        };
        if texts(&asked) > 1 {
            return Err(Error::invalid("a message of the history has several texts among its images"));
        }
        turns.push((asker, asked, answer));
    }
    Ok((system, turns))
}

impl Chat {
    /// Asks something; the listener gets the answer piece by piece and may end it. What was said until then is a turn.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let mut chat = model.chat(Default::default())?;
    /// let mut pieces = 0;
    /// chat.send("Count to a hundred.", |piece: &str| {
    ///     pieces += 1;
    ///     if pieces < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the context is full, an option makes no sense, or a run fails; the conversation is then as before.
    pub fn send<F: Flow>(&mut self, text: &str, listener: impl FnMut(&str) -> F) -> Result<Answer> {
        let options = self.answering.clone();
        self.turn((Asker::User, text), &options, self.seed, listener)
    }

    /// The same with options for this answer alone, such as a schema.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use serde_json::json;
    ///
    /// let mut chat = model.chat(Default::default())?;
    /// let schema = json!({"enum": ["yes", "no"]});
    /// let options = pteron::GenerateOptions::default().schema(schema);
    /// let answer = chat.send_with("Is the sky blue?", &options, |_: &str| {})?;
    /// assert!(["\"yes\"", "\"no\""].contains(&answer.text.as_str()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub fn send_with<F: Flow>(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        listener: impl FnMut(&str) -> F,
    ) -> Result<Answer> {
        let seed = options.seed.unwrap_or(self.seed);
        self.turn((Asker::User, text), options, seed, listener)
    }

    /// Shows an image with the next question: the bytes of a PNG or JPEG file. Several are shown in their order. It is looked at
    /// when that question is asked.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let photo = pteron::tiny::image(8, 8);
    /// let mut chat = model.chat(Default::default())?;
    /// if model.sees() {
    ///     chat.show(photo)?;
    ///     chat.send("What is that?", |piece: &str| print!("{piece}"))?;
    /// } else {
    ///     assert!(matches!(chat.show(photo), Err(pteron::Error::Unsupported(_))));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is no image, or the model does not see; nothing is shown then.
    pub fn show(&mut self, image: impl Into<Arc<[u8]>>) -> Result<()> {
        if !self.model.sees() {
            return Err(self.model.is_blind());
        }
        Ok(self.conversation.show(image.into())?)
    }

    /// Shows what the last question showed with the next one too, unless that shows something already: for a question that is
    /// asked in place of the last one.
    #[doc(hidden)]
    pub fn show_again(&mut self) {
        self.conversation.show_again();
    }

    /// Gives the model what a tool has found that it called in its last answer.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let brief = pteron::GenerateOptions::default().max_tokens(4);
    /// let tools = serde_json::json!([{"type": "function", "function": {"name": "weather"}}]);
    /// let mut chat = model.chat(pteron::ChatOptions::default().tools(tools).answering(brief))?;
    /// chat.send("How warm is it in Oslo?", |_: &str| {})?;
    /// chat.send_result("14 degrees", |_: &str| {})?;
    /// assert_eq!(chat.history()[2].role(), "tool");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub fn send_result<F: Flow>(&mut self, found: &str, listener: impl FnMut(&str) -> F) -> Result<Answer> {
        let options = self.answering.clone();
        self.turn((Asker::Tool, found), &options, self.seed, listener)
    }

    /// Another answer to the last question, in place of the last one; `None` where nothing was asked.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let brief = pteron::GenerateOptions::default().max_tokens(4);
    /// let mut chat = model.chat(pteron::ChatOptions::default().answering(brief))?;
    /// assert!(chat.regenerate(|_: &str| {})?.is_none());
    /// chat.send("Hello", |_: &str| {})?;
    /// assert!(chat.regenerate(|_: &str| {})?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chat::send`]; the last turn is then taken back.
    pub fn regenerate<F: Flow>(&mut self, listener: impl FnMut(&str) -> F) -> Result<Option<Answer>> {
        let Some(last) = self.conversation.take_back() else { return Ok(None) };
        let waiting = self.conversation.show_instead(last.images);
        // The same seed would give the same answer.
        self.seed = self.seed.wrapping_add(1);
        let options = self.answering.clone();
        let answer = self.turn((last.asker, &last.user), &options, self.seed, listener);
        self.conversation.show_instead(waiting);
        answer.map(Some)
    }

    fn turn<F: Flow>(
        &mut self,
        (asker, text): (Asker, &str),
        options: &GenerateOptions,
        seed: u64,
        mut listener: impl FnMut(&str) -> F,
    ) -> Result<Answer> {
        self.stop.reset();
        let resolved = pteron_llm::GenerateOptions { seed, ..options.resolved(&self.model) };
        let mut constraint = options.constraint(&self.model)?;
        if !self.speculate.is_same(&options.speculate) {
            self.conversation.set_speculator(options.speculate.speculator(&self.model)?);
            self.speculate = options.speculate.clone();
        }
        let show = &mut |piece: &str| listener(piece).flow();
        let control = RunControl { cancel: Some(self.stop.flag()), ..RunControl::default() };
        let said = self.conversation.say_as(asker, text, &resolved, constraint.as_mut(), show, &control);
        self.stop.reset();
        Ok(self.model.timed(said.map_err(|error| self.model.named(error))?))
    }

    /// What stops an answer, for another thread or for the listener.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let chat = model.chat(Default::default())?;
    /// let stopper = chat.stopper();
    /// std::thread::spawn(move || stopper.stop()).join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// The same with a flag of somebody else's, such as one that the interrupt key sets.
    #[doc(hidden)]
    #[must_use]
    pub fn stopped_by(mut self, stop: &Cancel) -> Chat {
        self.stop = stop.clone();
        self
    }

    /// Everything that was said, in order.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::{ChatOptions, Message};
    ///
    /// let before = vec![Message::user("Hello"), Message::assistant("Hi")];
    /// let chat = model.chat(ChatOptions::default().history(before.clone()))?;
    /// assert_eq!(chat.history(), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn history(&self) -> Vec<Message> {
        let system = self.conversation.system().map(Message::system);
        let turns = self.conversation.turns().iter().flat_map(|turn| {
            let asked = match turn.asker {
                Asker::User => Message::user(&turn.user),
                Asker::Tool => Message::tool(&turn.user),
            };
            let asked = asked.showing(turn.images.iter().map(|image| image.file().clone()));
            [asked, Message::assistant(&turn.answer)]
        });
        system.into_iter().chain(turns).collect()
    }

    /// How many questions have been answered.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert_eq!(model.chat(Default::default())?.turns(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn turns(&self) -> usize {
        self.conversation.turns().len()
    }

    /// Goes back until so many turns are left. The caches follow when the next question is asked: only what is not the same
    /// is read again.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::{ChatOptions, Message};
    ///
    /// let before = vec![Message::user("Hello"), Message::assistant("Hi")];
    /// let mut chat = model.chat(ChatOptions::default().history(before))?;
    /// chat.rewind(0);
    /// assert!(chat.history().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rewind(&mut self, turns: usize) {
        while self.turns() > turns {
            self.conversation.undo();
        }
    }

    /// Takes the last turn back; what was asked in it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::{ChatOptions, Message};
    ///
    /// let before = vec![Message::user("Hello"), Message::assistant("Hi")];
    /// let mut chat = model.chat(ChatOptions::default().history(before))?;
    /// assert_eq!(chat.undo().as_deref(), Some("Hello"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn undo(&mut self) -> Option<String> {
        self.conversation.undo()
    }

    /// Another conversation that goes on from here; the two share memory until either goes on.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let chat = model.chat(Default::default())?;
    /// let other = chat.fork()?;
    /// assert_eq!(chat.history(), other.history());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there is no memory for another session.
    pub fn fork(&self) -> Result<Chat> {
        Ok(Chat {
            model: self.model.clone(),
            conversation: self.conversation.fork()?,
            answering: self.answering.clone(),
            speculate: self.speculate.clone(),
            seed: self.seed,
            stop: Cancel::default(),
        })
    }

    /// Writes the conversation to a file. One that is there already is replaced if it is a conversation, and refused if it is
    /// anything else. Messages are kept, caches are not: the first turn after [`Chat::resume`] reads them again.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::{ChatOptions, Message};
    ///
    /// let file = folder.path().join("yesterday.chat");
    /// let before = vec![Message::user("Hello"), Message::assistant("Hi")];
    /// model.chat(ChatOptions::default().history(before.clone()))?.save(&file)?;
    /// let mut chat = model.chat(ChatOptions::default())?;
    /// assert_eq!(chat.resume(&file)?, None);
    /// assert_eq!(chat.history(), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be written, or is somebody else's.
    pub fn save(&self, path: &Path) -> Result<()> {
        Ok(self.conversation.save(path)?)
    }

    /// Goes on with a conversation in a file. Gives the model that it was held with where that was another one; an empty name
    /// where the file does not say which.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::ChatOptions;
    ///
    /// let file = folder.path().join("yesterday.chat");
    /// model.chat(ChatOptions::default().called("owl"))?.save(&file)?;
    /// let held_with = model.chat(ChatOptions::default().called("raven"))?.resume(&file)?;
    /// assert_eq!(held_with.as_deref(), Some("owl"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file, or it is no conversation, or damaged.
    pub fn resume(&mut self, path: &Path) -> Result<Option<String>> {
        Ok(self.conversation.load(path)?)
    }

    /// What [`Chat::save`] writes, for apps that keep it elsewhere.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let brief = pteron::GenerateOptions::default().max_tokens(4);
    /// let mut chat = model.chat(pteron::ChatOptions::default().answering(brief))?;
    /// chat.send("Why is the sky blue?", |_: &str| ())?;
    /// let mut other = model.chat(Default::default())?;
    /// other.resume_from(&chat.saved()?)?;
    /// assert_eq!(other.history(), chat.history());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn saved(&self) -> Result<Vec<u8>> {
        Ok(self.conversation.to_bytes()?)
    }

    /// Goes on with what [`Chat::saved`] gave, as [`Chat::resume`] does with a file.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let mut chat = model.chat(Default::default())?;
    /// assert!(chat.resume_from(b"something else").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is damaged, or no conversation.
    pub fn resume_from(&mut self, saved: &[u8]) -> Result<Option<String>> {
        Ok(self.conversation.load_bytes(saved)?)
    }

    /// How much of the context is used.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let chat = model.chat(Default::default())?;
    /// assert_eq!(chat.cache_state().position, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_state(&self) -> CacheState {
        let decoder = self.conversation.decoder();
        CacheState { position: decoder.tokens().len(), capacity: decoder.context() }
    }

    /// Leaves out so many of the oldest turns that the model is shown; how many there were.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert_eq!(model.chat(Default::default())?.drop_oldest(1), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_oldest(&mut self, turns: usize) -> usize {
        self.conversation.drop_oldest(turns)
    }

    /// How many turns the model is not shown any more.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert_eq!(model.chat(Default::default())?.hidden(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hidden(&self) -> usize {
        self.conversation.hidden()
    }

    /// Changes what further answers shall be like.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let mut chat = model.chat(Default::default())?;
    /// chat.set_answering(pteron::GenerateOptions::default().temperature(0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_answering(&mut self, options: GenerateOptions) {
        self.seed = options.seed.unwrap_or(self.seed);
        self.answering = options;
    }
}
