//! `pteron run`: one answer to one prompt.

use crate::bench::machine;
use crate::failure::{self, Failure};
use crate::output::{Json, Output, complain};
use crate::talk::choosing::Choosing;
use crate::talk::interrupt;
use crate::talk::load::{Loaded, Loading};
use crate::talk::messages::{self, Messages};
use clap::ValueEnum;
use pteron_llm::constrain::Constraint;
use pteron_llm::{FinishReason, Prompt, SpecialTokens, Stats, Voice, generate};
use pteron_runtime::RunControl;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// A prompt from a pipe may be this long.
const LONGEST_PROMPT: u64 = 64 << 20;

/// Let a language model answer a prompt
///
/// The answer streams to standard output as it comes; what it took goes to standard error. The prompt is put into the
/// model's own chat template, unless `--raw` is given or the model has none. MODEL is a program, a GGUF file or a
/// checkpoint folder (these two are converted once and kept), or a name that `pteron list` shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron run \"Why is the sky blue?\"
  pteron run --model model.pte --temperature 0 --max-new 64 --json \"Count to ten.\"
  git diff | pteron run --system \"Write a commit message for this change.\" -
  pteron run --json-schema person.json \"Invent a person.\"
  pteron run --messages conversation.json

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
    /// Print one JSON object at the end in place of the text
    #[arg(long)]
    json: bool,
    /// What the answer took, on standard error: one line in words, the `PyTorchObserver` line of ExecuTorch's runners, or
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

/// What is to be answered.
enum Asked {
    Text(String),
    Messages(Messages),
    Tokens(Vec<u32>),
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
    let loaded = arguments.loading.load(arguments.model.as_deref())?;
    let prompt = arguments.prompt(asked, &loaded)?;
    let mut constraint = arguments.constraint(&loaded)?;
    let options = arguments.choosing.options(&loaded);
    let mut decoder = loaded.decoder(options.seed)?;
    let control = RunControl { cancel: Some(interrupt::listen()?), ..RunControl::default() };

    let mut closed = None;
    let mut show = |piece: &str| match if arguments.json { Ok(()) } else { out.piece(piece) } {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            closed = Some(failure);
            ControlFlow::Break(())
        }
    };
    let tokenizer = loaded.voice.as_ref().map(|voice| &voice.tokenizer);
    let answer =
        generate(&mut decoder, tokenizer, &prompt.tokens, &options, constraint.as_mut(), &mut show, &control);
    if let Some(failure) = closed {
        return Err(failure);
    }
    let mut answer = answer?;
    answer.stats.load_start = loaded.load_start;
    answer.stats.load_end = loaded.load_end;
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
        false if tokenizer.is_none() => {
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
    if constraint.is_some() && answer.finish_reason != FinishReason::Stop {
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
    fn asked(&self) -> Result<Asked, Failure> {
        let input = std::io::stdin();
        if let Some(path) = &self.messages {
            return messages::read(path).map(Asked::Messages);
        }
        match self.prompt.as_deref() {
            _ if !self.tokens.is_empty() => Ok(Asked::Tokens(self.tokens.clone())),
            Some(prompt) if prompt != "-" => Ok(Asked::Text(prompt.to_owned())),
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
                    false => Ok(Asked::Text(text)),
                }
            }
        }
    }

    fn prompt(&self, asked: Asked, loaded: &Loaded) -> Result<Prompt, Failure> {
        let special_tokens = self.choosing.special_tokens();
        let voice = |loaded: &Loaded| {
            let voice: &Voice = loaded.voice()?;
            Ok::<Voice, Failure>(Voice {
                special_tokens: special_tokens.unwrap_or_default(),
                ..voice.clone()
            })
        };
        let Messages { messages, tools } = match asked {
            Asked::Tokens(tokens) => return Ok(Prompt { text: String::new(), tokens }),
            Asked::Text(text) if self.raw => {
                return Ok(voice(loaded)?.alone(&text, special_tokens.unwrap_or(SpecialTokens::Parse))?);
            }
            Asked::Text(text) => {
                let voice = voice(loaded)?;
                if voice.template.is_none() && self.system.is_none() {
                    return Ok(voice.alone(&text, voice.special_tokens)?);
                }
                let system = self.system.as_ref().map(|system| json!({"role": "system", "content": system}));
                let user = json!({"role": "user", "content": text});
                Messages { messages: system.into_iter().chain([user]).collect(), tools: Value::Null }
            }
            Asked::Messages(_) if loaded.voice()?.template.is_none() => {
                return Err(Failure::usage(format!("{} carries no chat template", loaded.name()))
                    .hint("give it a prompt in place of messages"));
            }
            Asked::Messages(messages) => messages,
        };
        Ok(voice(loaded)?.chat_with_tools(&messages, &tools)?)
    }

    fn constraint(&self, loaded: &Loaded) -> Result<Option<Constraint>, Failure> {
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| Failure::in_file(path, error));
        if let Some(path) = &self.json_schema {
            let schema = serde_json::from_str(&read(path)?).map_err(|error| Failure::in_file(path, error))?;
            let constraint = Constraint::json_schema(&loaded.voice()?.tokenizer, &schema);
            return constraint.map(Some).map_err(|error| Failure::in_file(path, error));
        }
        let Some(path) = &self.grammar else { return Ok(None) };
        let constraint = Constraint::grammar(&loaded.voice()?.tokenizer, &read(path)?);
        constraint.map(Some).map_err(|error| Failure::in_file(path, error))
    }
}
