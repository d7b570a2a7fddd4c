//! `pteron chat`: a conversation with a language model, line by line.

use crate::bench::machine;
use crate::failure::{self, Failure};
use crate::home;
use crate::output::{Output, complain};
use crate::talk::choosing::Choosing;
use crate::talk::editor::Editor;
use crate::talk::images;
use crate::talk::interrupt;
use crate::talk::load::Loading;
use crate::talk::orders::{self, Line, Order};
use crate::talk::speculating::Speculating;
use clap::ValueEnum;
use pteron::{Answer, Cancel, Chat, ChatOptions, Error, FinishReason, Model, Stats, WhenFull};
use pteron_llm::LlmError;
use pteron_registry::Platform;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Talk to a language model
///
/// Every turn reads only what is new. Ctrl-C stops an answer, Ctrl-D ends the conversation; `/help` lists what else can
/// be typed. With `--temperature 0` a question gets the same answer each time that it is asked at the same place, by
/// `/regenerate` too, at every `--precision` and as long as `--threads` and the other options stay. MODEL is a program, a GGUF file or a checkpoint folder, a name that `pteron list` shows, or a repository of the Hugging Face hub (`ORG/REPOSITORY`).
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
    #[command(flatten)]
    speculating: Speculating,
}

/// `--when-full`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Full {
    Stop,
    #[value(alias = "slide")]
    Drop,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<failure::Answer, Failure> {
    let model = arguments.loading.load(arguments.model.as_deref())?;
    let mut chat = Talk::new(arguments, &model)?;
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
struct Talk {
    /// What the model is called.
    model: String,
    chat: Chat,
    aside: HashMap<String, Chat>,
    /// Tokens of an answer at most.
    max_new: Option<usize>,
    interrupted: Cancel,
    stats: Option<Stats>,
}

/// What somebody says, or the last of it once more.
enum Said<'s> {
    Text(&'s str),
    Again,
}

impl Talk {
    fn new(arguments: &Arguments, model: &Model) -> Result<Talk, Failure> {
        let full = match arguments.when_full {
            Full::Drop => WhenFull::Slide,
            Full::Stop => WhenFull::Stop,
        };
        let name = name_of(arguments.model.as_deref());
        let options = ChatOptions::default().when_full(full).called(&name);
        let options = arguments.system.iter().fold(options, ChatOptions::system);
        let interrupted = interrupt::listen()?;
        let answering = arguments.choosing.options(model);
        let answering = answering.speculate(arguments.speculating.of(model, &arguments.loading)?);
        let chat = model.chat(options.answering(answering))?;
        let (chat, aside) = (chat.stopped_by(&interrupted), HashMap::new());
        let max_new = arguments.choosing.max_new;
        let mut talk = Talk { model: name, chat, aside, max_new, interrupted, stats: None };
        if let Some(path) = &arguments.resume {
            talk.load(path)?;
        }
        Ok(talk)
    }

    /// Does what a line asks for; `Break` to leave. What goes wrong is told and does not end the chat.
    fn take(&mut self, line: &str, out: &mut Output) -> Result<ControlFlow<()>, Failure> {
        match orders::parse(line) {
            Line::Empty => {}
            Line::Say(text) => self.say(Said::Text(text), out)?,
            Line::Unknown(name) => complain(&format!("there is no /{name}; /help lists what there is\n")),
            Line::Order(Order::Quit, _) => return Ok(ControlFlow::Break(())),
            Line::Order(order, rest) => self.obey(order, rest, out)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn obey(&mut self, order: Order, rest: &str, out: &mut Output) -> Result<(), Failure> {
        match order {
            Order::Help => complain(&orders::help()),
            Order::Undo => match self.chat.undo() {
                Some(asked) => complain(&format!("taken back: {asked}\n")),
                None => complain("there is nothing to take back\n"),
            },
            Order::Regenerate if self.chat.turns() == 0 => complain("nothing has been asked yet\n"),
            Order::Regenerate => self.say(Said::Again, out)?,
            Order::Edit if rest.is_empty() => complain("write the new question behind /edit\n"),
            Order::Edit => {
                self.chat.show_again();
                self.chat.undo();
                self.say(Said::Text(rest), out)?;
            }
            Order::Image => self.image(rest, out)?,
            Order::Fork => self.fork(rest),
            Order::Switch => match self.aside.remove(rest) {
                Some(other) => {
                    let this = std::mem::replace(&mut self.chat, other);
                    self.aside.insert(rest.to_owned(), this);
                    complain(&format!("{} turns\n", self.chat.turns()));
                }
                None => {
                    complain(&format!("no conversation is called `{rest}`; there are: {}\n", self.names()))
                }
            },
            Order::Save => match rest.is_empty() {
                true => complain("write a file's name behind /save\n"),
                false => tell(self.chat.save(Path::new(rest)), "saved"),
            },
            Order::Load => tell(self.load(Path::new(rest)), "loaded"),
            Order::Clear => self.chat.rewind(0),
            Order::Drop => match rest.parse() {
                Ok(turns) => {
                    let dropped = self.chat.drop_oldest(turns);
                    let left = self.chat.turns() - self.chat.hidden();
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
    fn load(&mut self, path: &Path) -> Result<(), Error> {
        let other = self.chat.resume(path)?;
        if let Some(other) = other {
            let other = if other.is_empty() { "another model" } else { other.as_str() };
            complain(&format!("this conversation was held with {other}; {} goes on with it\n", self.model));
        }
        Ok(())
    }

    /// Shows an image with the question that is behind it, or with the next one.
    fn image(&mut self, rest: &str, out: &mut Output) -> Result<(), Failure> {
        let (file, question) = images::split(rest);
        if file.is_empty() {
            complain("write an image's file behind /image, PNG or JPEG\n");
            return Ok(());
        }
        let path = Path::new(file);
        let shown = images::read(path).and_then(|bytes| {
            let shown = self.chat.show(bytes);
            shown.map_err(|error| images::named(error, &[path]))
        });
        match shown {
            Err(failure) => complain(&failure.render()),
            Ok(()) if question.is_empty() => complain("it is shown with the next question\n"),
            Ok(()) => self.say(Said::Text(question), out)?,
        }
        Ok(())
    }

    fn fork(&mut self, name: &str) {
        if name.is_empty() {
            return complain("write a name behind /fork\n");
        }
        match self.chat.fork() {
            Ok(other) => {
                self.aside.insert(name.to_owned(), other.stopped_by(&self.interrupted));
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

    fn say(&mut self, said: Said<'_>, out: &mut Output) -> Result<(), Failure> {
        let mut closed = None;
        let show = |piece: &str| match out.piece(piece) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                closed = Some(failure);
                ControlFlow::Break(())
            }
        };
        let hidden = self.chat.hidden();
        let answer = match said {
            Said::Text(text) => self.chat.send(text, show).map(Some),
            Said::Again => self.chat.regenerate(show),
        };
        if let Some(failure) = closed {
            return Err(failure);
        }
        out.line("")?;
        out.flush()?;
        match answer {
            Ok(None) => {}
            Ok(Some(mut answer)) => {
                if self.chat.hidden() > hidden {
                    let left_out = self.chat.hidden();
                    complain(&format!("(the context is full: the {left_out} oldest turns are left out)\n"));
                }
                complain(&self.ending(&answer));
                answer.stats.peak_bytes = machine::peak_bytes();
                self.stats = Some(answer.stats);
            }
            Err(error) if is_full(&error) => {
                let help = "`/drop N` leaves the N oldest turns out; `--when-full drop` does so by itself";
                complain(&Failure::new(error).hint(help).render());
            }
            Err(error) => complain(&Failure::from(error).render()),
        }
        Ok(())
    }

    /// Why an answer is shorter than the model wanted it, if it is.
    fn ending(&self, answer: &Answer) -> String {
        match (answer.finish_reason, self.max_new, self.chat.cache_state().capacity) {
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

/// Whether turns have to be left out before more can be said.
fn is_full(error: &Error) -> bool {
    let cause = error.reason().and_then(|reason| reason.cause()?.downcast_ref());
    matches!(cause, Some(LlmError::ContextFull { .. }))
}

/// What a model is called: its name, or that of its file.
fn name_of(model: Option<&str>) -> String {
    let path = model.map(Path::new).filter(|path| path.exists());
    if let Some(name) = path.and_then(Path::file_name) {
        return name.to_string_lossy().into_owned();
    }
    let registered = || {
        let home = home::open().ok()?;
        let found = match model {
            Some(name) if pteron_registry::Model::of_repository(name).is_some() => return None,
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
