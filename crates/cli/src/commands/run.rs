//! `pteron run`: one answer to one prompt.

use crate::bench::machine;
use crate::failure::{self, Failure, lack};
use crate::output::{Json, Output, complain};
use crate::talk::choosing::Choosing;
use crate::talk::images;
use crate::talk::interrupt;
use crate::talk::load::Loading;
use crate::talk::messages;
use crate::talk::speculating::Speculating;
use clap::ValueEnum;
use pteron::{FinishReason, GenerateOptions, Lack, Message, Model, Prompt, Stats};
use pteron_llm::Prompt as Tokens;
use serde::Serialize;
use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// A prompt from a pipe may be this long.
const LONGEST_PROMPT: u64 = 64 << 20;

/// Let a language model answer a prompt
///
/// The answer streams to standard output as it comes; what it took goes to standard error. The prompt is put into the
/// model's own chat template, unless `--raw` is given or the model has none. MODEL is a program, a GGUF file or a
/// checkpoint folder (these two are converted once and kept), a name that `pteron list` shows, or a repository of the
/// Hugging Face hub (`ORG/REPOSITORY`, `hf:ORG/REPOSITORY/FILE.gguf`).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron run \"Why is the sky blue?\"
  pteron run --model model.pte --temperature 0 --max-new 64 --json \"Count to ten.\"
  git diff | pteron run --system \"Write a commit message for this change.\" -
  pteron run --json-schema person.json \"Invent a person.\"
  pteron run --messages conversation.json
  pteron run --model google/gemma-3-4b-it --image photo.jpg \"What is that?\"

Exit status: 0 answered; 1 no answer, or one that was cut off before its grammar or schema was complete; 2 bad usage;
130 interrupted: what was said until then is shown.")]
pub(crate) struct Arguments {
    /// What to answer; `-`, or nothing where standard input is a pipe, reads it from there
    #[arg(conflicts_with_all = ["tokens", "messages"])]
    prompt: Option<String>,
    /// The model [default: the default model]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw", "tokens"])]
    system: Option<String>,
    /// Answer a whole conversation: a JSON list of messages with `role` and `content`, or an object with `messages` and
    /// `tools`; roles are system, developer, user, assistant and tool
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "tokens", "system"])]
    messages: Option<PathBuf>,
    /// Show the model this image, PNG or JPEG, before the prompt; several are shown in their order. The model must be one that
    /// sees
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "tokens", "messages"])]
    image: Vec<PathBuf>,
    /// Take the prompt as it is, without the chat template; BOS comes first if the tokenizer puts it there, and special
    /// tokens that it spells are such
    #[arg(long, conflicts_with = "tokens")]
    raw: bool,
    /// The prompt as token ids, with commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    tokens: Vec<u32>,
    /// Answer with JSON that the schema in this file allows, and nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    json_schema: Option<PathBuf>,
    /// Answer with a text of the grammar in this file (Lark's notation), and nothing else
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    #[command(flatten)]
    choosing: Choosing,
    #[command(flatten)]
    loading: Loading,
    #[command(flatten)]
    speculating: Speculating,
    /// Print one JSON object at the end in place of the text
    #[arg(long)]
    json: bool,
    /// What the answer took, on standard error: a line in words, with another where tokens were guessed ahead, the `PyTorchObserver` line of ExecuTorch's runners, or
    /// nothing [default: line; with --json, which has all of it, none]
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "quiet")]
    stats: Option<Statistics>,
    /// The same as `--stats none`
    #[arg(long, short)]
    quiet: bool,
}

/// `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Statistics {
    None,
    Line,
    Json,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    prompt_tokens: &'a [u32],
    tokens: &'a [u32],
    text: &'a str,
    finish_reason: FinishReason,
    stats: &'a Stats,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<failure::Answer, Failure> {
    let asked = arguments.asked()?;
    let model = arguments.loading.load(arguments.model.as_deref())?;
    let options = arguments.constrained(arguments.choosing.options(&model), &model)?;
    let options = options.speculate(arguments.speculating.of(&model, &arguments.loading)?);
    let prompt = arguments.prompt(asked, &model, &options)?;
    let cancel = interrupt::listen()?;

    let mut closed = None;
    let show = |piece: &str| match if arguments.json { Ok(()) } else { out.piece(piece) } {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            closed = Some(failure);
            ControlFlow::Break(())
        }
    };
    let answer = model.stream(prompt.clone(), &options, &cancel, show);
    if let Some(failure) = closed {
        return Err(failure);
    }
    let mut answer = answer?;
    answer.stats.peak_bytes = machine::peak_bytes();
    match arguments.json {
        true => {
            let report = Report {
                prompt_tokens: &prompt.tokens,
                tokens: &answer.tokens,
                text: &answer.text,
                finish_reason: answer.finish_reason,
                stats: &answer.stats,
            };
            out.json(&report, Json::OneLine)?;
        }
        false if model.voice().is_err() => {
            let ids: Vec<String> = answer.tokens.iter().map(u32::to_string).collect();
            out.line(ids.join(","))?;
        }
        false => out.line("")?,
    }
    out.flush()?;
    match arguments.statistics() {
        Statistics::None => {}
        Statistics::Line => complain(&format!("{}\n", answer.stats.summary())),
        Statistics::Json => complain(&format!("{}\n", answer.stats.observer_line())),
    }
    if answer.finish_reason == FinishReason::Cancelled {
        return Err(Failure::interrupted());
    }
    if arguments.is_constrained() && answer.finish_reason != FinishReason::Stop {
        return Err(Failure::new("the answer was cut off before it was complete")
            .hint("give it more room with `--max-new N` or `--context N`"));
    }
    Ok(failure::Answer::Yes)
}

impl Arguments {
    fn statistics(&self) -> Statistics {
        match (self.quiet, self.stats, self.json) {
            (true, ..) | (false, None, true) => Statistics::None,
            (false, Some(asked), _) => asked,
            (false, None, false) => Statistics::Line,
        }
    }

    /// What is to be answered.
    fn asked(&self) -> Result<Prompt, Failure> {
        let input = std::io::stdin();
        if let Some(path) = &self.messages {
            return messages::read(path).map(Prompt::Messages);
        }
        match self.prompt.as_deref() {
            _ if !self.tokens.is_empty() => Ok(Prompt::Tokens(self.tokens.clone())),
            Some(prompt) if prompt != "-" => self.text(prompt.to_owned()),
            None if input.is_terminal() => Err(Failure::usage("there is no prompt")
                .hint("write it behind the command, or `pteron chat` for a conversation")),
            _ => {
                let wrong = |problem: &dyn std::fmt::Display| {
                    Failure::new(format!("cannot read the prompt from standard input: {problem}"))
                };
                let mut bytes = Vec::new();
                let read = input.lock().take(LONGEST_PROMPT + 1).read_to_end(&mut bytes);
                read.map_err(|error| wrong(&error))?;
                if bytes.len() as u64 > LONGEST_PROMPT {
                    return Err(wrong(&"it is longer than 64 MiB"));
                }
                let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is not UTF-8"))?;
                // The line end that `echo` and editors add is nobody's question.
                let text = text.strip_suffix('\n').map(str::to_owned).unwrap_or(text);
                match text.is_empty() {
                    true => Err(Failure::usage("the prompt is empty: standard input has nothing to read")
                        .hint("write the prompt behind the command, or send one through the pipe")),
                    false => self.text(text),
                }
            }
        }
    }

    /// A text as it is, or as something that somebody asks.
    fn text(&self, text: String) -> Result<Prompt, Failure> {
        let images = self.image.iter().map(|path| images::read(path));
        let images = images.collect::<Result<Vec<_>, _>>()?;
        Ok(match (self.raw, &self.system) {
            (true, _) => Prompt::Raw(text),
            (false, None) if images.is_empty() => Prompt::Ask(text),
            (false, system) => {
                let system = system.iter().map(Message::system);
                Prompt::from(system.chain([Message::user(text).showing(images)]).collect::<Vec<_>>())
            }
        })
    }

    /// The tokens of what is to be answered.
    fn prompt(&self, asked: Prompt, model: &Model, options: &GenerateOptions) -> Result<Tokens, Failure> {
        let asked = match asked {
            // Without a template the system prompt is the first line.
            Prompt::Messages(said)
                if self.system.is_some() && self.image.is_empty() && model.voice()?.template.is_none() =>
            {
                Prompt::Ask(said.messages.iter().map(|message| format!("{}\n", message.content())).collect())
            }
            asked => asked,
        };
        model.tokens(asked, options).map_err(|error| match lack(&error) {
            Some(Lack::Template) if self.messages.is_some() => {
                Failure::usage(&error).hint("give it a prompt in place of messages")
            }
            _ => images::named(error, &self.image),
        })
    }

    fn is_constrained(&self) -> bool {
        self.json_schema.is_some() || self.grammar.is_some()
    }

    /// The same options with the schema or the grammar, which must be such as can be kept.
    fn constrained(&self, options: GenerateOptions, model: &Model) -> Result<GenerateOptions, Failure> {
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| Failure::in_file(path, error));
        let (path, options) = match (&self.json_schema, &self.grammar) {
            (Some(path), _) => {
                let schema = serde_json::from_str(&read(path)?);
                (path, options.schema(schema.map_err(|error| Failure::in_file(path, error))?))
            }
            (None, Some(path)) => (path, options.grammar(read(path)?)),
            (None, None) => return Ok(options),
        };
        model.voice()?;
        options.check(model).map_err(|error| Failure::in_file(path, error))?;
        Ok(options)
    }
}
