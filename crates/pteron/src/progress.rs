//! What happens while a model is opened, and a way to end it. Nothing here prints: an app shows what it wants to.

#[cfg(feature = "registry")]
use pteron_registry::Variant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens while a model is opened.
///
/// ```
/// use pteron::{Event, Model, OpenOptions};
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let path = path.as_path();
/// let show = |event: Event<'_>| match event {
///     Event::Fetching { bytes, total: Some(total), .. } => println!("{} %", 100 * bytes / total),
///     Event::Converting { bytes, total } => println!("converted {bytes} of {total}"),
///     Event::Says(words) | Event::Remark(words) => println!("{words}"),
///     _ => {}
/// };
/// let model = Model::open(path, OpenOptions::default().progress(show))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A file comes over the network.
    Fetching {
        /// Its name.
        file: &'e str,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that it has, where anybody stated it.
        total: Option<u64>,
    },
    /// A checkpoint becomes a program.
    Converting {
        /// Bytes of weights that are written.
        bytes: u64,
        /// Bytes of all weights.
        total: u64,
    },
    /// The program is being loaded.
    Loading,
    /// What is being done that takes a while, in words.
    Says(&'e str),
    /// What somebody should know about the model, in words.
    Remark(&'e str),
}

/// Who is told of events; every function of an [`Event`] that can be shared by threads is one.
///
/// ```
/// use pteron::{Event, Progress};
///
/// struct Screen;
/// impl Progress for Screen {
///     fn tell(&self, event: Event<'_>) {
///         println!("{event:?}");
///     }
/// }
/// let options = pteron::OpenOptions::default().progress(Screen);
/// ```
pub trait Progress: Send + Sync {
    /// Something happens.
    fn tell(&self, event: Event<'_>);

    /// Something happens while files are fetched, in the words of the registry.
    #[cfg(feature = "registry")]
    #[doc(hidden)]
    fn fetch(&self, variant: &Variant, event: pteron_registry::Event<'_>) {
        use pteron_registry::Event as Fetch;
        match event {
            Fetch::File { path, size, at } => {
                self.tell(Event::Fetching { file: path, bytes: at, total: size });
            }
            Fetch::Bytes { at } => {
                let file = variant.file.as_deref().unwrap_or(&variant.model);
                self.tell(Event::Fetching { file, bytes: at, total: variant.size });
            }
            Fetch::Package { name, bytes, .. } => {
                self.tell(Event::Fetching { file: name, bytes, total: None });
            }
            _ => {}
        }
    }

    /// Nothing more is fetched.
    #[doc(hidden)]
    fn fetched(&self) {}
}

impl<F: Fn(Event<'_>) + Send + Sync> Progress for F {
    fn tell(&self, event: Event<'_>) {
        self(event);
    }
}

/// Ends what is under way, from any thread: clones are one and the same.
///
/// ```
/// use pteron::{Cancel, Error, Model, OpenOptions};
///
/// let cancel = Cancel::default();
/// let other = cancel.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(cancel.is_cancelled());
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let path = path.as_path();
/// let opened = Model::open(path, OpenOptions::default().cancel(&cancel));
/// assert!(matches!(opened, Err(Error::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends it.
    ///
    /// ```
    /// let cancel = pteron::Cancel::default();
    /// cancel.cancel();
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it shall end.
    ///
    /// ```
    /// assert!(!pteron::Cancel::default().is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The same as a flag that layers below look at.
    #[doc(hidden)]
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// The one of such a flag.
    #[doc(hidden)]
    pub fn of_flag(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }

    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.is_cancelled() { Err(crate::Error::Cancelled) } else { Ok(()) }
    }
}
