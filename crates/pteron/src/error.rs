//! What can go wrong, by what an app would do about it. What the layers below say is kept as the cause.

use crate::form::WrongForm;
#[cfg(feature = "registry")]
use pteron_checkpoint::CheckpointError;
use pteron_format::FormatError;
use pteron_llm::conversation::StoreError;
use pteron_llm::{LlmError, SeeError};
use pteron_speech::SpeechError;
use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// The result of everything here.
///
/// ```
/// fn name(source: &str) -> pteron::Result<String> {
///     Ok(pteron::Model::open(source, Default::default())?.name().to_owned())
/// }
/// assert!(name("no/such/file.pte").is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. New kinds may come, so that a `match` has an arm for others.
///
/// ```
/// use pteron::{Error, Model, OpenOptions};
///
/// match Model::open("no/such/file.pte", OpenOptions::default()) {
///     Err(Error::NotFound(reason)) => assert!(reason.message().contains("no/such/file.pte")),
///     Err(Error::NotEnoughMemory { needed, limit, .. }) => println!("{needed} bytes, and {limit} may be had"),
///     Err(other) => println!("{other}"),
///     Ok(_) => unreachable!("there is no such file"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file or folder of that path, or no model of that name.
    #[error(transparent)]
    NotFound(Reason),
    /// The model needs more memory than it may have.
    #[error("{reason}")]
    NotEnoughMemory {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
        /// In words.
        reason: Reason,
    },
    /// The model, or what is asked of it, is of a kind that cannot be had here.
    #[error(transparent)]
    Unsupported(Reason),
    /// A file is not what it says that it is, or not whole.
    #[error(transparent)]
    Damaged(Reason),
    /// Whoever asked for it wants it no more.
    #[error("cancelled")]
    Cancelled,
    /// The text does not fit into the context.
    #[error("{reason}")]
    ContextFull {
        /// Tokens that it has.
        tokens: usize,
        /// Tokens that there is room for.
        context: usize,
        /// In words.
        reason: Reason,
    },
    /// What was asked for makes no sense: an option, a message, a schema, an input.
    #[error(transparent)]
    Invalid(Reason),
    /// The model could not be fetched.
    #[error(transparent)]
    Fetch(Reason),
    /// The file system refused, or is full.
    #[error(transparent)]
    Storage(Reason),
    /// A run failed.
    #[error(transparent)]
    Run(Reason),
}

/// A reason in words, with the error of a layer below where one was the cause.
///
/// ```
/// # use pteron::{Error, Model};
/// let Err(Error::NotFound(reason)) = Model::open("no/such/file.pte", Default::default()) else { unreachable!() };
/// assert_eq!(reason.message(), "there is no file or folder no/such/file.pte");
/// assert!(reason.cause().is_none());
/// ```
#[derive(Debug)]
pub struct Reason {
    message: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

/// What a model lacks for what is asked of it: the cause of some errors.
///
/// ```
/// # use pteron::{Error, GenerateOptions, Lack, Model, OpenOptions};
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::silent(folder.path())?;
/// let model = Model::open(path.as_path(), OpenOptions::default())?;
/// let Err(Error::Unsupported(reason)) = model.generate("Hello", &GenerateOptions::default()) else { unreachable!() };
/// assert_eq!(reason.cause().and_then(|cause| cause.downcast_ref()), Some(&Lack::Tokenizer));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// It carries no tokenizer.
    #[error("it carries no tokenizer")]
    Tokenizer,
    /// It carries no chat template.
    #[error("it carries no chat template")]
    Template,
    /// It helps other models, and says nothing itself.
    #[error("it is no model to talk to")]
    Speaker,
    /// It does not see images.
    #[error("it does not see images")]
    Eyes,
    /// It is no speech model.
    #[error("it is no speech model")]
    Speech,
    /// It gives no vectors of texts.
    #[error("it gives no vectors of texts")]
    Vectors,
    /// It is no reranker.
    #[error("it gives no numbers for pairs of texts")]
    Scores,
    /// It cannot tell the times of words.
    #[error("it cannot tell the times of words")]
    WordTimes,
    /// The weights that were kept are those of another model.
    #[error("these are not the weights of this model")]
    Weights,
    /// The backend that was named is not in this build, or not on this machine.
    #[error("the backend is not here")]
    Backend,
    /// No folder was named that models are kept in.
    #[error("no folder for models was named")]
    Home,
}

impl Reason {
    pub(crate) fn new(message: impl fmt::Display) -> Reason {
        Reason { message: message.to_string(), cause: None }
    }

    /// The same with the error that was the cause.
    pub(crate) fn by(self, cause: impl StdError + Send + Sync + 'static) -> Reason {
        Reason { cause: Some(Box::new(cause)), ..self }
    }

    fn of(cause: impl StdError + Send + Sync + 'static) -> Reason {
        Reason::new(&cause).by(cause)
    }

    /// What happened, in words for a person.
    ///
    /// ```
    /// # use pteron::{Error, Model};
    /// # let Err(Error::NotFound(reason)) = Model::open("a/b.pte", Default::default()) else { unreachable!() };
    /// assert_eq!(reason.message(), "there is no file or folder a/b.pte");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error of a layer below, or a [`Lack`].
    ///
    /// ```
    /// # use pteron::{Error, Model};
    /// # let Err(Error::NotFound(reason)) = Model::open("a/b.pte", Default::default()) else { unreachable!() };
    /// assert!(reason.cause().is_none());
    /// ```
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Reason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Error {
    pub(crate) fn invalid(message: impl fmt::Display) -> Error {
        Error::Invalid(Reason::new(message))
    }

    /// A model that lacks something.
    pub(crate) fn lacks(name: &str, lack: Lack) -> Error {
        let said = lack.to_string();
        let said = said.strip_prefix("it ").unwrap_or(&said);
        Error::Unsupported(Reason::new(format_args!("{name} {said}")).by(lack))
    }

    /// A file that could not be read as what it should be.
    pub(crate) fn in_file(path: &Path, error: FormatError) -> Error {
        let names_file = matches!(error, FormatError::Io { .. } | FormatError::Changed { .. });
        let message = if names_file { error.to_string() } else { format!("{}: {error}", path.display()) };
        of_format(&error)(Reason::new(message).by(error))
    }

    #[cfg(feature = "registry")]
    pub(crate) fn storage(path: &Path, error: std::io::Error) -> Error {
        let message = format!("{}: {error}", path.display());
        let kind = if error.kind() == ErrorKind::NotFound { Error::NotFound } else { Error::Storage };
        kind(Reason::new(message).by(error))
    }

    /// In words, and why; `None` where there is no more to say than [`Error::Cancelled`].
    ///
    /// ```
    /// let error = pteron::Model::open("a/b.pte", Default::default()).unwrap_err();
    /// assert_eq!(error.reason().map(|reason| reason.message()), Some("there is no file or folder a/b.pte"));
    /// assert!(pteron::Error::Cancelled.reason().is_none());
    /// ```
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Error::NotFound(reason)
            | Error::Unsupported(reason)
            | Error::Damaged(reason)
            | Error::Invalid(reason)
            | Error::Fetch(reason)
            | Error::Storage(reason)
            | Error::Run(reason)
            | Error::NotEnoughMemory { reason, .. }
            | Error::ContextFull { reason, .. } => Some(reason),
            Error::Cancelled => None,
        }
    }

    /// The same, with what lies at a path called as whoever asked for it calls it.
    pub(crate) fn naming(mut self, path: &Path, name: &str) -> Error {
        match &mut self {
            Error::NotFound(reason)
            | Error::Unsupported(reason)
            | Error::Damaged(reason)
            | Error::Invalid(reason)
            | Error::Fetch(reason)
            | Error::Storage(reason)
            | Error::Run(reason)
            | Error::NotEnoughMemory { reason, .. }
            | Error::ContextFull { reason, .. } => {
                reason.message = reason.message.replace(&path.display().to_string(), name);
            }
            Error::Cancelled => {}
        }
        self
    }
}

fn of_format(error: &FormatError) -> fn(Reason) -> Error {
    match error {
        FormatError::Io { source, .. } if source.kind() == ErrorKind::NotFound => Error::NotFound,
        FormatError::Io { .. } | FormatError::Write { .. } => Error::Storage,
        _ => Error::Damaged,
    }
}

impl From<WrongForm> for Error {
    fn from(error: WrongForm) -> Error {
        let kind = if error.is_damage() { Error::Damaged } else { Error::Unsupported };
        kind(Reason::of(error))
    }
}

#[cfg(feature = "registry")]
impl From<pteron_registry::Error> for Error {
    fn from(error: pteron_registry::Error) -> Error {
        use pteron_registry::Error as Registry;
        let kind = match &error {
            Registry::Cancelled => return Error::Cancelled,
            Registry::UnknownModel { .. } => Error::NotFound,
            Registry::NoVariant { .. } => Error::Unsupported,
            Registry::Data { .. } | Registry::Source(_) | Registry::Hash(_) => Error::Invalid,
            Registry::Io { .. } | Registry::DiskFull { .. } | Registry::Busy { .. } => Error::Storage,
            Registry::NotInstalled { .. } | Registry::NothingMade { .. } => Error::Storage,
            _ => Error::Fetch,
        };
        kind(Reason::of(error))
    }
}

impl From<pteron_runtime::Error> for Error {
    fn from(error: pteron_runtime::Error) -> Error {
        of_run(&error)(Reason::of(error))
    }
}

fn of_run(error: &pteron_runtime::Error) -> Box<dyn FnOnce(Reason) -> Error> {
    use pteron_runtime::Error as Run;
    Box::new(match error {
        Run::Cancelled | Run::Deadline => return Box::new(|_| Error::Cancelled),
        &Run::Limit { limit: "live_bytes" | "tensor_bytes" | "cache_cells", found, allowed, .. } => {
            return Box::new(move |reason| Error::NotEnoughMemory { needed: found, limit: allowed, reason });
        }
        Run::Format { source, .. } => of_format(source),
        Run::Program { .. } | Run::Constant { .. } => Error::Damaged,
        Run::UnknownBackend { .. } | Run::UnknownDevice { .. } | Run::UnknownMethod { .. } => {
            Error::Unsupported
        }
        Run::ForeignDelegate { .. } | Run::UnknownOperator { .. } | Run::UnsupportedOp(_) => {
            Error::Unsupported
        }
        Run::InputCount { .. } | Run::Input { .. } => Error::Invalid,
        _ => Error::Run,
    })
}

impl From<LlmError> for Error {
    fn from(error: LlmError) -> Error {
        let kind = match &error {
            LlmError::Run(run) => return of_run(run)(Reason::of(error)),
            &(LlmError::PromptTooLong { tokens, context } | LlmError::ContextFull { tokens, context }) => {
                return Error::ContextFull { tokens, context, reason: Reason::of(error) };
            }
            LlmError::See(SeeError::Blind | SeeError::Rows { .. } | SeeError::Marks) => Error::Unsupported,
            LlmError::See(SeeError::Places { .. }) => Error::Unsupported,
            LlmError::NotALanguageModel { .. } | LlmError::Output { .. } | LlmError::DrawsItself { .. } => {
                Error::Unsupported
            }
            LlmError::NamedData { .. } | LlmError::Tokenizer(_) => Error::Damaged,
            _ => Error::Invalid,
        };
        kind(Reason::of(error))
    }
}

#[cfg(feature = "registry")]
impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Error {
        let kind = match &error {
            CheckpointError::Io { source, .. } if source.kind() == ErrorKind::NotFound => Error::NotFound,
            CheckpointError::Io { .. } => Error::Storage,
            CheckpointError::File { .. } | CheckpointError::Weight(_) => Error::Damaged,
            _ => Error::Unsupported,
        };
        kind(Reason::of(error))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let kind = match &error {
            StoreError::Io { source, .. } if source.kind() == ErrorKind::NotFound => Error::NotFound,
            StoreError::Io { .. } | StoreError::Occupied { .. } => Error::Storage,
            StoreError::Image { problem, .. } if matches!(**problem, LlmError::See(SeeError::Blind)) => {
                Error::Unsupported
            }
            _ => Error::Damaged,
        };
        kind(Reason::of(error))
    }
}

impl From<SpeechError> for Error {
    fn from(error: SpeechError) -> Error {
        let kind = match &error {
            SpeechError::Run(run) => return of_run(run)(Reason::of(error)),
            SpeechError::Sound(_) | SpeechError::Tokenizer(_) => Error::Damaged,
            SpeechError::Language { .. } => Error::Invalid,
            _ => Error::Unsupported,
        };
        kind(Reason::of(error))
    }
}
