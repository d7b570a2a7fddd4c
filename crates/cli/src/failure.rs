//! How a command ends when it cannot do what it was asked: one message, a hint where one helps, an exit code.
//!
//! Errors of the libraries flow in with their places; what the reader of a terminal needs flows out. Hints are
//! made here and nowhere else, since only the command line knows its own commands.

use crate::form;
use crate::home::HOME_VARIABLE;
use crate::output::{self, visible};
use pteron::Lack;
use pteron::parts::form::WrongForm;
use pteron_format::FormatError;
use pteron_llm::LlmError;
use pteron_llm::sampler::SamplerError;
use pteron_runtime::Error;
use pteron_speech::SpeechError;
use serde::Serialize;
use std::error::Error as StdError;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// What a command that ran to its end found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All is well: exit code 0.
    Yes,
    /// It ran, and the answer is no (a difference, an unsound file, a failed case): exit code 1.
    No,
}

/// The status of a process that an interrupt ended, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not run to its end.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The file, the program or the run is at fault: exit code 1.
    pub(crate) fn new(message: impl Display) -> Failure {
        Failure { message: message.to_string(), hint: None, code: 1 }
    }

    /// The command line is at fault: exit code 2.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure { code: 2, ..Failure::new(message) }
    }

    /// A file that could not be read, written or made sense of.
    pub(crate) fn in_file(path: &Path, problem: impl Display) -> Failure {
        Failure::new(format!("{}: {problem}", path.display()))
    }

    /// Nobody reads our output any more; that is no reason to complain.
    pub(crate) fn closed_output() -> Failure {
        Failure { message: String::new(), hint: None, code: 0 }
    }

    /// The user stopped it, and what there is has been shown: the exit code that shells give to an interrupt.
    pub(crate) fn interrupted() -> Failure {
        Failure { message: String::new(), hint: None, code: INTERRUPTED }
    }

    /// The same, with what would help.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// The same, with what lies at a path called as the user calls it.
    pub(crate) fn naming(self, path: &Path, name: &str) -> Failure {
        Failure { message: self.message.replace(&path.display().to_string(), name), ..self }
    }

    /// The same with exit code 2, for commands whose 1 is an answer.
    pub(crate) fn into_trouble(self) -> Failure {
        Failure { code: self.code * 2, ..self }
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What standard error gets; empty when there is nothing to say.
    pub(crate) fn render(&self) -> String {
        match (self.message.is_empty(), &self.hint) {
            (true, _) => String::new(),
            (false, None) => format!("error: {}\n", self.message),
            (false, Some(hint)) => format!("error: {}\nhint: {hint}\n", self.message),
        }
    }

    /// Whether there is anything to tell.
    pub(crate) fn says_something(&self) -> bool {
        !self.message.is_empty()
    }

    /// Tells standard error, in the colours that clap has for its own errors where people look at it.
    pub(crate) fn complain(&self) {
        match output::colours_wanted() && self.says_something() {
            true => output::complain_raw(&self.coloured()),
            false => output::complain(&self.render()),
        }
    }

    fn coloured(&self) -> String {
        let error = format!("\u{1b}[1;31merror:\u{1b}[0m {}\n", visible(&self.message));
        let hint = self.hint.as_ref().map(|hint| format!("\u{1b}[32mhint:\u{1b}[0m {}\n", visible(hint)));
        error + &hint.unwrap_or_default()
    }

    /// What standard output gets in place of a result that was asked for as JSON (docs/json.md).
    pub(crate) fn as_json(&self) -> impl Serialize + '_ {
        let kind = match self.code {
            2 => "usage",
            130 => "interrupted",
            _ => "failed",
        };
        serde_json::json!({"error": {"kind": kind, "message": self.message, "hint": self.hint}})
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// An error about a file that the message may not name yet.
pub(crate) fn in_format(path: &Path, error: FormatError) -> Failure {
    let names_file = matches!(error, FormatError::Io { .. } | FormatError::Changed { .. });
    let failure = if names_file { Failure::new(&error) } else { Failure::in_file(path, &error) };
    failure.helped_in_format(&error)
}

impl From<pteron::Error> for Failure {
    fn from(error: pteron::Error) -> Failure {
        let failure = match &error {
            pteron::Error::NotFound(_) => Failure::usage(&error),
            pteron::Error::Cancelled => return Failure::interrupted(),
            _ => Failure::new(&error),
        };
        match error.reason().and_then(|reason| reason.cause()) {
            Some(cause) => failure.helped(cause),
            None if matches!(error, pteron::Error::NotEnoughMemory { .. }) => failure
                .hint("a smaller or more strongly quantised model needs less, and so does a shorter context"),
            None => failure,
        }
    }
}

/// What a model lacks, where that is why something failed.
pub(crate) fn lack(error: &pteron::Error) -> Option<Lack> {
    error.reason()?.cause()?.downcast_ref().copied()
}

impl Failure {
    /// The same with what helps against a cause, and the exit code that it has.
    fn helped(self, cause: &(dyn StdError + 'static)) -> Failure {
        if let Some(error) = cause.downcast_ref::<pteron_registry::Error>() {
            return self.helped_in_registry(error);
        }
        if let Some(error) = cause.downcast_ref::<LlmError>() {
            return self.helped_in_talk(error);
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            let is_usage = matches!(error, Error::UnknownBackend { .. } | Error::UnknownDevice { .. });
            let (hint, code) = (hint(error).map(str::to_owned), if is_usage { 2 } else { 1 });
            return Failure { hint, code, ..self };
        }
        if let Some(error) = cause.downcast_ref::<FormatError>() {
            return Failure { code: 1, ..self }.helped_in_format(error);
        }
        if let Some(wrong) = cause.downcast_ref::<WrongForm>() {
            return form::refused(wrong);
        }
        if let Some(lack) = cause.downcast_ref::<Lack>() {
            return self.helped_to(*lack);
        }
        if let Some(error) = cause.downcast_ref::<SpeechError>() {
            return match error {
                SpeechError::Run(error) => self.helped(error),
                SpeechError::Language { .. } => Failure { code: 2, ..self },
                _ => Failure { code: 1, ..self },
            };
        }
        Failure { code: 1, ..self }
    }

    fn helped_to(self, lack: Lack) -> Failure {
        let usage = |failure: Failure| Failure { code: 2, ..failure };
        match lack {
            Lack::Tokenizer => usage(self).hint("name one with `--tokenizer FILE`"),
            Lack::Eyes => usage(self).hint(
                "Gemma 3 from 4B on, Gemma 4, Qwen2.5-VL and Qwen3-VL see, as programs made of their Hugging Face folders",
            ),
            Lack::Speaker => usage(self).hint("`pteron transcribe` uses it by itself"),
            Lack::Speech => self
                .hint("`pteron list` shows those that have a name; `pteron export` makes one of a Whisper"),
            Lack::Vectors => usage(self)
                .hint("`pteron embed` takes BERT, RoBERTa and ModernBERT models; `--query` takes rerankers"),
            Lack::Scores => usage(self).hint("leave `--query` out, and it gives vectors"),
            Lack::WordTimes => {
                usage(self).hint("export it anew from a checkpoint that names its alignment heads")
            }
            Lack::Weights => self.hint("`pteron rm --converted` clears the way for a new conversion"),
            Lack::Home => Failure::new("this system names no folder for caches")
                .hint(format!("set {HOME_VARIABLE} to a folder for models and settings")),
            _ => usage(self),
        }
    }

    fn helped_in_talk(self, error: &LlmError) -> Failure {
        let usage = |failure: Failure| Failure { code: 2, ..failure };
        match error {
            LlmError::Run(error) => self.helped(error),
            LlmError::NotALanguageModel { .. } => {
                usage(self).hint("`pteron exec FILE` runs programs of every kind on tensors")
            }
            LlmError::PromptTooLong { .. } => self.hint(
                "shorten the prompt, or give it more room with `--context N`; a program with caches in the graph is exported \
                 anew for that",
            ),
            LlmError::Context { .. } => {
                usage(self).hint("export the model with a longer `--context`, or with `--kv off-graph`")
            }
            LlmError::LongContext { .. } | LlmError::Sampler(SamplerError::Setting { .. }) => usage(self),
            _ => self,
        }
    }

    fn helped_in_format(self, error: &FormatError) -> Failure {
        match error {
            FormatError::OtherFormat { .. } => self.hint("pteron reads .pte, .ptd and .bpte files"),
            FormatError::TooShort { .. } | FormatError::Header { .. } => {
                self.hint("compare the file's size with that of its source, and copy it again")
            }
            _ => self,
        }
    }

    fn helped_in_registry(self, error: &pteron_registry::Error) -> Failure {
        use pteron_registry::Error;
        let usage = |failure: Failure| Failure { code: 2, ..failure };
        let failed = |failure: Failure| Failure { code: 1, ..failure };
        match error {
            Error::UnknownModel { .. } => usage(self).hint("`pteron list` shows every model that has a name"),
            Error::NoVariant { .. } => usage(self).hint("`pteron doctor` shows which backends there are"),
            Error::DiskFull { .. } => failed(self).hint(
                "`pteron rm --unused` and `pteron rm NAME` free space; PTERON_HOME names another folder",
            ),
            Error::Io { source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory
                ) =>
            {
                failed(self).hint("PTERON_HOME names another folder for models and what is converted")
            }
            _ if error.wants_credentials() => failed(self).hint(
                "accept the model's licence on its page, then set HF_TOKEN to a token that may read it",
            ),
            _ if error.is_offline() => {
                failed(self).hint("connect to the network and run it again: it goes on where it ended")
            }
            Error::AllSources { .. } => failed(self).hint(
                "a `models.toml` in the settings folder can name another source; `pteron doctor` says where",
            ),
            _ => failed(self),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(&error).helped(&error)
    }
}

impl From<LlmError> for Failure {
    fn from(error: LlmError) -> Failure {
        Failure::new(&error).helped(&error)
    }
}

impl From<pteron_registry::Error> for Failure {
    fn from(error: pteron_registry::Error) -> Failure {
        Failure::new(&error).helped(&error)
    }
}

fn hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::InputCount { .. } | Error::Input { .. } => {
            Some("`pteron inspect FILE` lists the inputs of every method with their dtypes and bounds")
        }
        Error::ForeignDelegate { .. } => Some("export the model for MLX, XNNPACK or Vulkan"),
        Error::UnsupportedOp { .. } | Error::UnknownOperator { .. } => {
            Some("`pteron verify FILE` lists everything in the file that cannot be run")
        }
        Error::Constant { .. } => Some("weights in another file are given with `--data FILE.ptd`"),
        Error::Limit { limit: "live_bytes" | "tensor_bytes" | "work" | "cache_cells", .. } => Some(
            "`--limits own` lets a model that you trust take what the machine has; a shorter `--context` needs less",
        ),
        Error::Cache(_) => Some("`--context N` sets how many positions the off-graph cache can hold"),
        Error::Format { source: FormatError::OtherFormat { .. }, .. } => {
            Some("pteron reads .pte, .ptd and .bpte files")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_went_wrong_and_what_helps() {
        let failure = Failure::usage("no such thing").hint("try another");
        assert_eq!(failure.render(), "error: no such thing\nhint: try another\n");
        assert_eq!(
            failure.coloured(),
            "\u{1b}[1;31merror:\u{1b}[0m no such thing\n\u{1b}[32mhint:\u{1b}[0m try another\n"
        );
        // A file's own name must not colour anything.
        assert!(Failure::new("\u{1b}[2J").coloured().contains("\\u{1b}[2J"));
        let json = serde_json::to_value(failure.as_json()).unwrap();
        let error = serde_json::json!({"kind": "usage", "message": "no such thing", "hint": "try another"});
        assert_eq!(json, serde_json::json!({"error": error}));
        assert_eq!(Failure::closed_output().render(), "");
        let store = Path::new("store/m");
        let named = Failure::in_file(&store.join("config.json"), "cut off").naming(store, "smollm2-135m");
        assert_eq!(named.message(), "smollm2-135m/config.json: cut off");
        let error = Error::InputCount { method: "forward".into(), wanted: 2, given: 1 };
        let rendered = Failure::from(error).render();
        assert!(rendered.contains("takes 2 inputs, 1 were given\nhint: `pteron inspect"), "{rendered}");
        let (what, limit) = ("the state of a session", "live_bytes");
        let rendered = Failure::from(Error::Limit { what, limit, found: 8 << 30, allowed: 4 << 30 }).render();
        assert!(rendered.contains("\nhint: `--limits own`"), "{rendered}");
    }
}
