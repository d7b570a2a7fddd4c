//! A program that was found, in a file or in memory, and how what it is asked for is opened. Whoever asked for it names it:
//! errors speak of that name.

#[cfg(not(feature = "registry"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::form;
use crate::options::{OpenOptions, Source};
#[cfg(feature = "registry")]
use crate::progress::Event;
use crate::transcribe::SPEECH_SCHEME;
use pteron_format::Limits;
use pteron_format::bpte::Bpte;
use pteron_format::map::MappedFile;
use pteron_format::pte::Pte;
#[cfg(feature = "registry")]
use pteron_registry::{Export, Identity, Store};
use pteron_runtime::{Options, Program};
use pteron_tensor::Bytes;
use std::path::{Path, PathBuf};

/// A program, and where the rest of it is.
#[derive(Clone, Debug)]
pub struct Located {
    /// What whoever asked for it calls the model.
    pub name: String,
    /// The `.pte` file; of one in memory its name.
    pub program: PathBuf,
    /// The `.ptd` file with its weights, where they are not in it.
    pub weights: Option<PathBuf>,
    /// What the file holds, where it is in memory already.
    pub bytes: Option<Bytes>,
    /// What it was converted from, and where that is kept.
    #[cfg(feature = "registry")]
    pub source: Option<(Store, Identity)>,
}

impl Located {
    pub(crate) fn file(program: &Path, name: &str) -> Located {
        Located {
            name: name.to_owned(),
            program: program.to_owned(),
            weights: None,
            bytes: None,
            #[cfg(feature = "registry")]
            source: None,
        }
    }

    /// A file that is in memory. Parts of it are to be shared, whoever holds it.
    pub(crate) fn memory(name: &str, bytes: &Bytes) -> Located {
        Located { bytes: Some(bytes.counted_apart()), ..Located::file(Path::new(name), name) }
    }

    /// An error in words of whoever named the model: where its files are kept is of no use to them.
    pub fn named(&self, error: Error) -> Error {
        let files = self.data().into_iter().chain([&*self.program]);
        files.fold(error, |error, file| error.naming(file, &self.name))
    }

    /// Files that go with the program.
    pub fn data(&self) -> Vec<&Path> {
        self.weights.iter().map(PathBuf::as_path).collect()
    }

    /// Takes a conversion away that is not as it was written, so that it is made again; whether it was.
    #[cfg(feature = "registry")]
    pub fn mend(&self) -> Result<bool> {
        let Some((store, source)) = &self.source else { return Ok(false) };
        Ok(store.mend(source)?)
    }

    /// The tables of the program's file.
    pub(crate) fn pte(&self) -> Result<Pte> {
        let limits = Limits::own();
        form::check_program(&self.program, self.bytes.as_deref())?;
        let read = || {
            let bytes = match &self.bytes {
                Some(bytes) => bytes.clone(),
                None => MappedFile::open(&self.program, &limits)?.to_bytes(),
            };
            match Bpte::recognises(&bytes) {
                true => Ok(Bpte::read(bytes, &limits)?.pte),
                false => Pte::read(bytes, &limits),
            }
        };
        read().map_err(|error| Error::in_file(&self.program, error))
    }

    /// The program, loaded.
    pub(crate) fn load(&self, options: &Options) -> Result<Program> {
        Ok(match &self.bytes {
            Some(bytes) => Program::load(&self.name, bytes.clone(), &[], options)?,
            None => Program::open(&self.program, &self.data(), options)?,
        })
    }
}

/// What a checkpoint is exported as, where something has to be exported.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "registry"), expect(dead_code, reason = "nothing is exported without checkpoints"))]
pub(crate) struct ExportAs {
    pub(crate) quantize: Option<&'static str>,
    pub(crate) activations: Option<&'static str>,
}

impl ExportAs {
    /// For a chat.
    pub(crate) const TEXT: ExportAs = ExportAs { quantize: None, activations: None };
    /// For vectors of texts.
    pub(crate) const VECTORS: ExportAs = ExportAs { activations: Some("f32"), ..ExportAs::TEXT };
    /// For what is said in sound.
    pub(crate) const SPEECH: ExportAs = ExportAs { quantize: Some(SPEECH_SCHEME), activations: Some("f32") };

    #[cfg(feature = "registry")]
    pub(crate) fn export(self) -> Export {
        Export {
            quantize: self.quantize.map(str::to_owned),
            activations: self.activations.map(str::to_owned),
            ..Export::default()
        }
    }
}

/// Why a model could not be opened: where its own files were read, damage may be the reason.
pub(crate) enum Trouble {
    Reading(Error),
    Other(Error),
}

impl Trouble {
    pub(crate) fn reading(error: impl Into<Error>) -> Trouble {
        Trouble::Reading(error.into())
    }

    /// Anything but that nobody wants it may be damage.
    pub(crate) fn any(error: Error) -> Trouble {
        match error {
            Error::Cancelled => Trouble::Other(error),
            error => Trouble::Reading(error),
        }
    }
}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Other(error.into())
    }
}

/// Finds what is asked for and opens it.
pub(crate) fn opened<T>(
    source: &Source,
    wanted: ExportAs,
    options: &OpenOptions,
    runtime: &Options,
    open: impl Fn(&Located) -> Result<T, Trouble>,
) -> Result<T> {
    let open = |found: &Located| match open(found) {
        Err(Trouble::Reading(error)) => Err(Trouble::Reading(found.named(error))),
        Err(Trouble::Other(error)) => Err(Trouble::Other(found.named(error))),
        Ok(opened) => Ok(opened),
    };
    let told = match source {
        Source::Memory { name, bytes } => open(&Located::memory(name, bytes)),
        source => found(source, wanted, options, runtime, &open)?,
    };
    told.map_err(|trouble| match trouble {
        Trouble::Reading(error) | Trouble::Other(error) => error,
    })
}

#[cfg(feature = "registry")]
fn found<T>(
    source: &Source,
    wanted: ExportAs,
    options: &OpenOptions,
    runtime: &Options,
    open: &dyn Fn(&Located) -> Result<T, Trouble>,
) -> Result<Result<T, Trouble>> {
    let export = wanted.export();
    options.finding(runtime, |finder| {
        let found = finder.find(source, &export)?;
        Ok(match open(&found) {
            // A conversion that was damaged is made again, once.
            Err(Trouble::Reading(_)) if found.mend()? => {
                let says = "what was converted earlier was damaged, and has been removed";
                options.progress.tell(Event::Says(says));
                open(&finder.find(source, &export)?)
            }
            opened => opened,
        })
    })
}

/// Programs by path are all that there is.
#[cfg(not(feature = "registry"))]
fn found<T>(
    source: &Source,
    _wanted: ExportAs,
    options: &OpenOptions,
    _runtime: &Options,
    open: &dyn Fn(&Located) -> Result<T, Trouble>,
) -> Result<Result<T, Trouble>> {
    options.cancel.check()?;
    let path = program_path(source)?;
    Ok(open(&Located::file(path, &path.display().to_string())))
}

/// The path of a program.
#[cfg(not(feature = "registry"))]
pub(crate) fn program_path(source: &Source) -> Result<&Path> {
    let path = match source {
        Source::Path(path) => path.as_path(),
        Source::Named(name) => Path::new(name),
        Source::Usual | Source::Memory { .. } => Path::new(""),
    };
    if path.exists() {
        return Ok(path);
    }
    let name = path.display();
    let words = format!("there is no program {name}, and this build knows no models by name; open its bytes");
    Err(Error::NotFound(Reason::new(words)))
}
