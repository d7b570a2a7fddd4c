//! Checkpoints that are talked to: converted once, into the store, and found there the next time.
//!
//! A checkpoint becomes its weights, one `.ptd` file, and beside them a small program; its caches grow with the text, and it is
//! asked for logits call by call, so that it is the same for every context and every reader.

use crate::error::{Error, Lack, Reason, Result};
use crate::located::Located;
use crate::progress::{Cancel, Event, Progress};
use pteron_checkpoint::{Checkpoint, CheckpointError, Export, ExportOptions};
use pteron_format::assemble::DataWriter;
use pteron_format::ptd::Ptd;
use pteron_format::{Limits, WriteOptions};
use pteron_models::{Packing, Quantization};
use pteron_registry::{Found, Identity, Piece, Store};
use pteron_tensor::DType;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What converted files mean. Raise it when the exporter makes something else of the same checkpoint and options, or when
/// the files are laid out otherwise: whatever has another number is made anew.
pub const FORMAT: u32 = 4;

/// Room that a file of weights may take beside them: names, and gaps between tensors.
const TABLES_ROOM: u64 = 1 << 20;

/// A source of conversions, and how it is made into a program.
pub struct Conversion<'a> {
    store: &'a Store,
    source: &'a Path,
    /// What whoever asked for it calls it.
    name: String,
    identity: Identity,
    options: ExportOptions,
}

impl<'a> Conversion<'a> {
    /// How a source is made into a program.
    pub fn new(
        store: &'a Store,
        source: &'a Path,
        identity: Identity,
        asked: &pteron_registry::Export,
    ) -> Result<Conversion<'a>> {
        let name = source.display().to_string();
        Ok(Conversion { store, source, name, identity, options: options(asked)? })
    }

    /// The same of a source that goes by a name of its own, whatever file it lies in.
    pub fn called(self, name: &str) -> Conversion<'a> {
        Conversion { name: name.to_owned(), ..self }
    }

    /// How the checkpoint is exported.
    pub fn options(&self) -> &ExportOptions {
        &self.options
    }

    /// The program, if it is here; nothing is made.
    pub fn find(&self) -> Result<Option<Located>> {
        Ok(match self.look()? {
            (Found::Whole(program), Found::Whole(weights)) => Some(self.located(program, weights)),
            _ => None,
        })
    }

    /// The program, made now if it is not there yet.
    pub fn converted(&self, progress: &dyn Progress, cancel: &Cancel) -> Result<Located> {
        let found = self.look()?;
        if let (Found::Whole(program), Found::Whole(weights)) = found {
            return Ok(self.located(program, weights));
        }
        // Whatever cannot be made is refused before anything is said or written.
        let refused = |error: CheckpointError| Error::from(error).naming(self.source, &self.name);
        let checkpoint = Checkpoint::open(self.source).map_err(refused)?;
        let export = Export::new(&checkpoint, &self.options).map_err(refused)?;
        self.announce(&found, progress)?;
        if !export.remarks().is_empty() {
            progress.tell(Event::Remark(&export.remarks().join("; ")));
        }
        let mut show = |done: pteron_checkpoint::Progress| {
            progress.tell(Event::Converting { bytes: done.written, total: done.total });
        };
        let (program, data) = export.apart(&mut show).map_err(refused)?;
        let (program_words, weights_words) = (program_words(&self.options), weights_words(&self.options));
        let failed = |error| match cancel.is_cancelled() {
            true => Error::Cancelled,
            false => Error::from(CheckpointError::Program(error)),
        };
        let mut program_file = Vec::new();
        program.write(&WriteOptions::default(), &mut program_file).map_err(failed)?;
        let weights = self.store.converted(&self.identity, &weights_piece(&weights_words), |out| {
            let beside = TABLES_ROOM + program_file.len() as u64;
            self.store.check_room(export.weight_bytes().saturating_add(beside))?;
            let mut out = Wanting { out, cancel };
            data.write(&WriteOptions::default(), &mut out).map(drop).map_err(failed)
        })?;
        check_weights(&weights, &data)?;
        let program = self.store.converted(&self.identity, &program_piece(&program_words), |out| {
            out.write_all(&program_file).map_err(|error| Error::storage(self.store.root(), error))
        })?;
        Ok(self.located(program, weights))
    }

    /// Says what is made and why; a program for weights that are here is made too quickly to speak of.
    fn announce(&self, found: &(Found, Found), progress: &dyn Progress) -> Result<()> {
        let name = &self.name;
        let says = |words: String| progress.tell(Event::Says(&words));
        match found {
            (Found::Damaged, _) | (_, Found::Damaged) => {
                says(format!("what was converted from {name} is damaged; converting it again"));
            }
            (_, Found::Whole(_)) => {}
            _ if self.store.has_other_formats(&self.identity, FORMAT)? => {
                says(format!("another version has converted {name}; converting it anew"));
            }
            _ => says(format!("converting {name}; this is done once")),
        }
        Ok(())
    }

    fn look(&self) -> Result<(Found, Found)> {
        let (program, weights) = (program_words(&self.options), weights_words(&self.options));
        let program = self.store.conversion(&self.identity, &program_piece(&program))?;
        Ok((program, self.store.conversion(&self.identity, &weights_piece(&weights))?))
    }

    fn located(&self, program: PathBuf, weights: PathBuf) -> Located {
        let source = Some((self.store.clone(), self.identity.clone()));
        Located { name: self.name.clone(), program, weights: Some(weights), bytes: None, source }
    }
}

/// A program must find every weight that it reads, as long as it takes it to be.
fn check_weights(path: &Path, wanted: &DataWriter<'_>) -> Result<()> {
    let found = Ptd::open(path, &Limits::own()).map_err(|error| Error::in_file(path, error))?;
    let fits = |(key, bytes)| found.named(key).is_some_and(|data| data.bytes.len() as u64 == bytes);
    match wanted.entries().all(fits) {
        true => Ok(()),
        false => {
            let message = format!("{}: {}", path.display(), Lack::Weights);
            Err(Error::Damaged(Reason::new(message).by(Lack::Weights)))
        }
    }
}

fn weights_piece(words: &str) -> Piece<'_> {
    Piece { file: "weights.ptd", format: FORMAT, options: words }
}

fn program_piece(words: &str) -> Piece<'_> {
    Piece { file: "model.pte", format: FORMAT, options: words }
}

/// All that changes weights, in words.
fn weights_words(options: &ExportOptions) -> String {
    let ExportOptions { activations, quantization, .. } = options;
    format!("weights, {activations}, quantised {quantization}")
}

/// All that changes a program, in words.
fn program_words(options: &ExportOptions) -> String {
    let ExportOptions { activations, quantization, .. } = options;
    format!("program, selected logits, {activations}, quantised {quantization}")
}

fn options(asked: &pteron_registry::Export) -> Result<ExportOptions> {
    let mut options = ExportOptions::default();
    if let Some(name) = &asked.activations {
        options.activations = DType::from_name(name)
            .ok_or_else(|| Error::invalid(format_args!("the registry asks for activations of `{name}`")))?;
    }
    if let Some(scheme) = &asked.quantize {
        let scheme: Packing = scheme.parse().map_err(Error::invalid)?;
        let group = asked.group_size.map(|size| size as usize);
        options.quantization = Quantization { scheme: Some(scheme), group, ..Quantization::default() };
    }
    Ok(options)
}

/// A file that is written as long as somebody wants it.
struct Wanting<'w> {
    out: &'w mut dyn Write,
    cancel: &'w Cancel,
}

impl Write for Wanting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.cancel.is_cancelled() {
            true => Err(io::Error::other("cancelled")),
            false => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
