//! `pteron chat`: a conversation with a language model, line by line.

use crate::bench::machine;
use crate::failure::{self, Failure};
use crate::home::Home;
use crate::output::{Output, complain};
use crate::talk::choosing::Choosing;
use crate::talk::editor::Editor;
use crate::talk::interrupt;
use crate::talk::load::{Loaded, Loading};
use crate::talk::orders::{self, Line, Order};
use clap::ValueEnum;
use pteron_llm::conversation::StoreError;
use pteron_llm::{Answer, Conversation, FinishReason, GenerateOptions, LlmError, Stats, Voice, WhenFull};
use pteron_registry::Platform;
use pteron_runtime::RunControl;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Talk to a language model
///
/// Every turn reads only what is new. Ctrl-C stops an answer, Ctrl-D ends the conversation; `/help` lists what else can
/// be typed. With `--temperature 0` a question gets the same answer each time that it is asked at the same place, by
/// `/regenerate` too, at every `--precision` and as long as `--threads` and the other options stay. MODEL is a program, a GGUF file or a checkpoint folder, or a name that `pteron list` shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron chat
  pteron chat model.pte --system \"Answer in one sentence.\"
  pteron chat model.pte --resume yesterday.chat")]
pub(crate) struct Arguments {
    /// The model [default: the default model]
    model: Option<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Go on with a conversation that `/save` wrote
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    resume: Option<PathBuf>,
    /// When the context is full: say so and wait for `/drop`, or leave the oldest turns out
    #[arg(long, value_enum, default_value = "stop")]
    when_full: Full,
    #[command(flatten)]
    choosing: Choosing,
    #[command(flatten)]
    loading: Loading,
}

/// `--when-full`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Full {
    Stop,
    #[value(alias = "slide")]
    Drop,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<failure::Answer, Failure> {
    let loaded = arguments.loading.load(arguments.model.as_deref())?;
    let mut chat = Chat::new(arguments, &loaded)?;
    let mut editor = Editor::new()?;
    if editor.interactive() {
        complain(&format!("{}: /help lists what can be typed\n", chat.model));
    }
    while let Some(line) = editor.line()? {
        if chat.take(&line, out)?.is_break() {
            break;
        }
    }
    editor.keep_history();
    Ok(failure::Answer::Yes)
}

/// A conversation and those that were put aside.
struct Chat {
    /// What the model is called.
    model: String,
    conversation: Conversation,
    aside: HashMap<String, Conversation>,
    options: GenerateOptions,
    interrupted: Arc<AtomicBool>,
    stats: Option<Stats>,
}

impl Chat {
    fn new(arguments: &Arguments, loaded: &Loaded) -> Result<Chat, Failure> {
        let options = arguments.choosing.options(loaded);
        let full = match arguments.when_full {
            Full::Drop => WhenFull::Slide,
            Full::Stop => WhenFull::Stop,
        };
        let model = name_of(arguments.model.as_deref());
        let special_tokens = arguments.choosing.special_tokens().unwrap_or_default();
        let voice = Voice { special_tokens, ..loaded.voice()?.clone() };
        let decoder = loaded.decoder(options.seed)?;
        let conversation = Conversation::new(decoder, voice, arguments.system.clone(), full).with(&model);
        let (aside, interrupted) = (HashMap::new(), interrupt::listen()?);
        let mut chat = Chat { model, conversation, aside, options, interrupted, stats: None };
        if let Some(path) = &arguments.resume {
            chat.load(path).map_err(Failure::new)?;
        }
        Ok(chat)
    }

    /// Does what a line asks for; `Break` to leave. What goes wrong is told and does not end the chat.
    fn take(&mut self, line: &str, out: &mut Output) -> Result<ControlFlow<()>, Failure> {
        match orders::parse(line) {
            Line::Empty => {}
            Line::Say(text) => self.say(text, out)?,
            Line::Unknown(name) => complain(&format!("there is no /{name}; /help lists what there is\n")),
            Line::Order(Order::Quit, _) => return Ok(ControlFlow::Break(())),
            Line::Order(order, rest) => self.obey(order, rest, out)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn obey(&mut self, order: Order, rest: &str, out: &mut Output) -> Result<(), Failure> {
        match order {
            Order::Help => complain(&orders::help()),
            Order::Undo => match self.conversation.undo() {
                Some(asked) => complain(&format!("taken back: {asked}\n")),
                None => complain("there is nothing to take back\n"),
            },
            Order::Regenerate => match self.conversation.undo() {
                Some(asked) => {
                    // The same seed would give the same answer.
                    self.options.seed = self.options.seed.wrapping_add(1);
                    self.say(&asked, out)?;
                }
                None => complain("nothing has been asked yet\n"),
            },
            Order::Edit if rest.is_empty() => complain("write the new question behind /edit\n"),
            Order::Edit => {
                self.conversation.undo();
                self.say(rest, out)?;
            }
            Order::Fork => self.fork(rest),
            Order::Switch => match self.aside.remove(rest) {
                Some(other) => {
                    let this = std::mem::replace(&mut self.conversation, other);
                    self.aside.insert(rest.to_owned(), this);
                    complain(&format!("{} turns\n", self.conversation.turns().len()));
                }
                None => {
                    complain(&format!("no conversation is called `{rest}`; there are: {}\n", self.names()))
                }
            },
            Order::Save => match rest.is_empty() {
                true => complain("write a file's name behind /save\n"),
                false => tell(self.conversation.save(Path::new(rest)), "saved"),
            },
            Order::Load => tell(self.load(Path::new(rest)), "loaded"),
            Order::Clear => self.conversation.clear(),
            Order::Drop => match rest.parse() {
                Ok(turns) => {
                    let dropped = self.conversation.drop_oldest(turns);
                    let left = self.conversation.turns().len() - self.conversation.hidden();
                    complain(&format!("{dropped} turns are left out; the model is shown the last {left}\n"));
                }
                Err(_) => complain("write behind /drop how many of the oldest turns are left out\n"),
            },
            Order::Stats => match &self.stats {
                Some(stats) => complain(&format!("{}\n", stats.details())),
                None => complain("nothing has been answered yet\n"),
            },
            Order::Quit => {}
        }
        Ok(())
    }

    /// Goes on with the conversation in a file; whether another model held it is told.
    fn load(&mut self, path: &Path) -> Result<(), StoreError> {
        let other = self.conversation.load(path)?;
        if let Some(other) = other {
            let other = if other.is_empty() { "another model" } else { other.as_str() };
            complain(&format!("this conversation was held with {other}; {} goes on with it\n", self.model));
        }
        Ok(())
    }

    fn fork(&mut self, name: &str) {
        if name.is_empty() {
            return complain("write a name behind /fork\n");
        }
        match self.conversation.fork() {
            Ok(other) => {
                self.aside.insert(name.to_owned(), other);
                complain(&format!("kept as `{name}`\n"));
            }
            Err(error) => complain(&Failure::from(error).render()),
        }
    }

    fn names(&self) -> String {
        let mut names: Vec<&str> = self.aside.keys().map(String::as_str).collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    fn say(&mut self, text: &str, out: &mut Output) -> Result<(), Failure> {
        self.interrupted.store(false, Ordering::SeqCst);
        let control = RunControl { cancel: Some(self.interrupted.clone()), ..RunControl::default() };
        let mut closed = None;
        let mut show = |piece: &str| match out.piece(piece) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                closed = Some(failure);
                ControlFlow::Break(())
            }
        };
        let hidden = self.conversation.hidden();
        let answer = self.conversation.say(text, &self.options, None, &mut show, &control);
        self.interrupted.store(false, Ordering::SeqCst);
        if let Some(failure) = closed {
            return Err(failure);
        }
        out.line("")?;
        out.flush()?;
        match answer {
            Ok(mut answer) => {
                if self.conversation.hidden() > hidden {
                    let left_out = self.conversation.hidden();
                    complain(&format!("(the context is full: the {left_out} oldest turns are left out)\n"));
                }
                complain(&self.ending(&answer));
                answer.stats.peak_bytes = machine::peak_bytes();
                self.stats = Some(answer.stats);
            }
            Err(error @ LlmError::ContextFull { .. }) => {
                let help = "`/drop N` leaves the N oldest turns out; `--when-full drop` does so by itself";
                complain(&Failure::new(error).hint(help).render());
            }
            Err(error) => complain(&Failure::from(error).render()),
        }
        Ok(())
    }

    /// Why an answer is shorter than the model wanted it, if it is.
    fn ending(&self, answer: &Answer) -> String {
        match (answer.finish_reason, self.options.max_new, self.conversation.decoder().context()) {
            (FinishReason::Stop, ..) => String::new(),
            (FinishReason::Cancelled, ..) => "(stopped)\n".to_owned(),
            (FinishReason::Length, Some(most), _) if answer.tokens.len() >= most => {
                format!("(cut off after {most} tokens, as --max-new has it)\n")
            }
            (FinishReason::Length, _, Some(context)) => {
                format!("(cut off: the context of {context} tokens is full; /drop N makes room)\n")
            }
            (FinishReason::Length, _, None) => "(cut off)\n".to_owned(),
        }
    }
}

/// What a model is called: its name, or that of its file.
fn name_of(model: Option<&str>) -> String {
    let path = model.map(Path::new).filter(|path| path.exists());
    if let Some(name) = path.and_then(Path::file_name) {
        return name.to_string_lossy().into_owned();
    }
    let registered = || {
        let home = Home::open().ok()?;
        let found = match model {
            Some(name) => home.registry.model(name).ok()?,
            None => home.registry.default_model(&Platform::here()).ok()?,
        };
        Some(found.name.clone())
    };
    registered().unwrap_or_else(|| model.unwrap_or("the default model").to_owned())
}

fn tell<E: std::fmt::Display>(result: Result<(), E>, done: &str) {
    match result {
        Ok(()) => complain(&format!("{done}\n")),
        Err(error) => complain(&format!("error: {error}\n")),
    }
}
