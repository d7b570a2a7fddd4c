//! How a model is opened: where it is kept, what runs it, who is told. Builders, so that more can be chosen later.

use crate::engine::Engine;
use crate::error::Result;
#[cfg(feature = "registry")]
use crate::find::Finder;
#[cfg(feature = "registry")]
use crate::home::{self, Home};
use crate::progress::{Cancel, Event, Progress};
#[cfg(feature = "registry")]
use pteron_registry::Network;
use pteron_runtime::{Options, Precision};
use pteron_tensor::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builder functions, each with an example of its own: the documentation, the name with its argument, the field that it
/// sets with what, and the argument of the example.
macro_rules! setters {
    ($owner:ident: $($(#[doc = $doc:literal])+ $name:ident($argument:ident: $type:ty) $field:ident = $value:expr, $example:literal;)*) => {
        impl $owner {
            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = "```"]
                #[doc = concat!("let options = pteron::", stringify!($owner), "::default().", stringify!($name), "(", $example, ");")]
                #[doc = "```"]
                #[must_use]
                pub fn $name(mut self, $argument: $type) -> $owner {
                    self.$field = $value;
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;

/// How a model is opened. The defaults take what the machine has: its best backend, all cores, 8-bit activations where they
/// are faster.
///
/// ```
/// use pteron::{Cancel, OpenOptions};
///
/// let cancel = Cancel::default();
/// let options = OpenOptions::default()
///     .home("models")
///     .threads(2)
///     .context(1024)
///     .memory_limit(2 << 30)
///     .progress(|event: pteron::Event<'_>| println!("{event:?}"))
///     .cancel(&cancel);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    pub(crate) engine: Engine,
    #[cfg(feature = "registry")]
    models: Option<PathBuf>,
    #[cfg(feature = "registry")]
    settings: Option<PathBuf>,
    #[cfg(feature = "registry")]
    network: Network,
    pub(crate) tokenizer: Option<PathBuf>,
    pub(crate) context: Option<usize>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) cancel: Cancel,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            engine: Engine::default(),
            #[cfg(feature = "registry")]
            models: None,
            #[cfg(feature = "registry")]
            settings: None,
            #[cfg(feature = "registry")]
            network: Network::default(),
            tokenizer: None,
            context: None,
            memory_limit: None,
            progress: Arc::new(|_: Event<'_>| {}),
            cancel: Cancel::default(),
        }
    }
}

#[cfg(feature = "registry")]
setters! { OpenOptions:
    /// The folder that models are fetched to and conversions are kept in. Models by name and checkpoints need one; a program
    /// at a path does not.
    home(folder: impl Into<PathBuf>) models = Some(folder.into()), "\"models\"";
    /// The folder of a `models.toml` that adds models to the registry; without, that of [`OpenOptions::home`].
    settings(folder: impl Into<PathBuf>) settings = Some(folder.into()), "\"settings\"";
}

setters! { OpenOptions:
    /// The tokenizer, where the model carries none: `tokenizer.json`, a SentencePiece model, `tekken.json`, a GGUF file, or a
    /// folder that has one.
    tokenizer(file: impl Into<PathBuf>) tokenizer = Some(file.into()), "\"tokenizer.json\"";
    /// Positions of the context; without, what a program was exported with, or what a model was made for, up to 4,096.
    context(positions: usize) context = Some(positions), "1024";
    /// Refuses a model that needs more bytes than this, before it is loaded.
    memory_limit(bytes: u64) memory_limit = Some(bytes), "2 << 30";
    /// Who is told what happens.
    progress(progress: impl Progress + 'static) progress = Arc::new(progress), "|event: pteron::Event<'_>| println!(\"{event:?}\")";
    /// Ends the opening when it is cancelled. What was fetched so far is kept; a conversion begins anew. Reading the weights
    /// of a program that is there is not interrupted.
    cancel(cancel: &Cancel) cancel = cancel.clone(), "&pteron::Cancel::default()";
}

impl OpenOptions {
    /// The backend, with the number of a device where it has several: `cpu`, `mlx`, `mlx:1`.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().backend("cpu");
    /// ```
    #[must_use]
    pub fn backend(mut self, name: impl Into<String>) -> OpenOptions {
        self.engine.backend = Some(name.into());
        self
    }

    /// Threads of the cpu backend; without, one for each core.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().threads(2);
    /// ```
    #[must_use]
    pub fn threads(mut self, threads: usize) -> OpenOptions {
        self.engine.threads = Some(threads.max(1));
        self
    }

    /// How closely results follow the model's own types; without, for speed.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().precision(pteron::Precision::Exact);
    /// ```
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> OpenOptions {
        self.engine.precision = Some(precision);
        self
    }

    /// Holds the file to bounds that fit one of unknown origin: 4 GiB of caches, 4 GiB in a run.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().untrusted();
    /// ```
    #[must_use]
    pub fn untrusted(mut self) -> OpenOptions {
        self.engine.untrusted = true;
        self
    }

    /// A token for the Hugging Face hub, for models that want to know who asks; it is sent there and nowhere else.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().hub_token("hf_...");
    /// ```
    #[cfg(feature = "registry")]
    #[must_use]
    pub fn hub_token(mut self, token: impl Into<String>) -> OpenOptions {
        self.network.hub_token = Some(token.into());
        self
    }

    /// How the runtime loads a plain [`Program`](crate::Program) with these choices.
    ///
    /// ```
    /// let options = pteron::OpenOptions::default().backend("cpu").runtime()?;
    /// assert_eq!(options.backend.as_deref(), Some("cpu"));
    /// # Ok::<(), pteron::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such backend here.
    pub fn runtime(&self) -> Result<Options> {
        self.runtime_with(Precision::Exact)
    }

    /// As [`OpenOptions::runtime`]; `precision` is taken where none is chosen.
    pub(crate) fn runtime_with(&self, precision: Precision) -> Result<Options> {
        #[cfg(feature = "registry")]
        if let (None, Some(models)) = (&self.engine.kept_kernels, &self.models) {
            let kept_kernels = Some(Home::kernels(models));
            return Engine { kept_kernels, ..self.engine.clone() }.options(precision);
        }
        self.engine.options(precision)
    }

    /// Everything about what runs a model at once.
    #[doc(hidden)]
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> OpenOptions {
        self.engine = engine;
        self
    }
}

/// Where models by name and checkpoints are kept.
#[cfg(feature = "registry")]
impl OpenOptions {
    /// Everything about the network at once.
    #[doc(hidden)]
    #[must_use]
    pub fn network(mut self, network: Network) -> OpenOptions {
        self.network = network;
        self
    }

    /// Models of this machine; an error where no folder was named.
    #[doc(hidden)]
    pub fn open_home(&self) -> Result<Home> {
        self.home_for("this")
    }

    fn home_for(&self, what: &str) -> Result<Home> {
        let models: &Path = self.models.as_deref().ok_or_else(|| home::missing(what))?;
        let settings = self.settings.as_deref().unwrap_or(models);
        let network = Network { cancel: Some(self.cancel.flag()), ..self.network.clone() };
        Home::open(models, settings, network)
    }

    /// Looks for models with these options.
    #[doc(hidden)]
    pub fn finding<T>(&self, runtime: &Options, find: impl FnOnce(&Finder<'_>) -> Result<T>) -> Result<T> {
        let home = |what: &str| self.home_for(what);
        find(&Finder { home: &home, options: runtime, progress: &*self.progress, cancel: &self.cancel })
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("engine", &self.engine)
            .field("context", &self.context)
            .field("memory_limit", &self.memory_limit)
            .finish_non_exhaustive()
    }
}

/// Which model is meant.
///
/// ```
/// use pteron::Source;
/// use std::path::Path;
///
/// let either: Source = "smollm2-135m".into(); // a path that is there, or else a name
/// let file: Source = Path::new("model.pte").into();
/// assert_ne!(either, file);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The registry's default model for this platform.
    #[default]
    Usual,
    /// A path that is there, or else a name that the registry knows.
    Named(String),
    /// A program, a GGUF file or a checkpoint folder.
    Path(PathBuf),
    /// A program in memory.
    Memory {
        /// What it is called, in errors too.
        name: String,
        /// What its file holds.
        bytes: Bytes,
    },
}

impl From<&str> for Source {
    fn from(name: &str) -> Source {
        Source::Named(name.to_owned())
    }
}

impl From<String> for Source {
    fn from(name: String) -> Source {
        Source::Named(name)
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        Source::Path(path.to_owned())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source::Path(path)
    }
}
