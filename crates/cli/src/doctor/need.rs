//! What a model needs, and whether this machine has it.

use super::machine::Machine;
use crate::failure::Failure;
use crate::file::File;
use crate::inspect::{Memory, ProgramOverview, describe};
use pteron::parts::find::{self, Located};
use pteron::parts::{Conversion, Home};
use pteron_checkpoint::{Checkpoint, CheckpointError, Export};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_registry::{FileKind, Identity, Resolution};
use pteron_runtime::{DataFile, Options};
use serde::Serialize;
use std::path::Path;

/// What is known of the model that was asked about.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ModelReport {
    /// The name in the registry, or the path.
    pub(super) name: String,
    pub(super) variant: Option<String>,
    pub(super) licence: Option<String>,
    /// Whether it is on this machine.
    pub(super) here: bool,
    /// The file or folder, if it is.
    pub(super) path: Option<String>,
    /// Bytes of the file, or of the files of a folder, where they are known.
    pub(super) bytes: Option<u64>,
    /// The program that would run: the model itself, or what was converted from it.
    pub(super) program: Option<String>,
    /// The file with its weights, where they are apart.
    pub(super) weights: Option<String>,
    /// The backend that would run it.
    pub(super) backend: String,
    /// Why the program cannot be run here.
    pub(super) problem: Option<String>,
    pub(super) need: Option<Need>,
    /// What there is to fit into: memory of the device, or free memory of the machine.
    pub(super) available_bytes: Option<u64>,
    /// `null` where nobody can tell yet.
    pub(super) fits: Option<bool>,
    /// Bytes of the weights that the first run will convert.
    #[serde(skip)]
    to_convert: Option<u64>,
}

/// Memory that a model takes at its largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Need {
    /// Weights that stay in the mapped file.
    pub(super) mapped_bytes: u64,
    /// Weights that are copied, packed or derived.
    pub(super) packed_bytes: u64,
    /// Buffers and caches of one session, when full.
    pub(super) state_bytes: u64,
    /// What the largest run holds beside them.
    pub(super) run_bytes: u64,
    pub(super) total_bytes: u64,
    /// Whether these are a program's own figures, or only the size of the weights that it will be made from.
    pub(super) is_estimate: bool,
}

/// Looks at a model by path or name.
pub(super) fn examine(
    model: &str,
    home: &Home,
    options: &Options,
    machine: &Machine,
) -> Result<ModelReport, Failure> {
    let path = Path::new(model);
    let mut report = if path.exists() { of_path(path, home)? } else { of_name(model, home, options)? };
    let target = options.registry.resolve(options.backend.as_deref())?;
    if report.backend.is_empty() {
        report.backend = target.name().to_owned();
    }
    report.available_bytes = match &options.backend {
        Some(_) => target.device.memory_bytes.or(machine.free_memory_bytes),
        // What does not fit into the memory of the first backend's device is the next one's, and the CPU's in the end.
        None => target.device.memory_bytes.max(machine.free_memory_bytes),
    };
    match report.program.clone() {
        Some(program) => measure(&mut report, Path::new(&program), options)?,
        None => {
            report.need = report.to_convert.or(report.bytes).map(|bytes| Need {
                mapped_bytes: bytes,
                total_bytes: bytes,
                is_estimate: true,
                ..Need::default()
            });
        }
    }
    if report.problem.is_some() && report.program.is_none() {
        report.need = None;
    }
    report.fits = report.need.zip(report.available_bytes).map(|(need, free)| need.total_bytes <= free);
    Ok(report)
}

fn of_path(path: &Path, home: &Home) -> Result<ModelReport, Failure> {
    let mut report = ModelReport {
        name: path.display().to_string(),
        here: true,
        path: Some(path.display().to_string()),
        bytes: Some(size_of(path)),
        ..ModelReport::default()
    };
    match find::kind(path)? {
        FileKind::Gguf | FileKind::Folder | FileKind::Pt | FileKind::Nemo => {
            let (identity, asked) = (find::identity(path)?, pteron_registry::Export::default());
            report.look_at(&Conversion::new(&home.store, path, identity, &asked)?, path)?;
        }
        FileKind::Pte => report.program = report.path.clone(),
        FileKind::Safetensors => {}
    }
    Ok(report)
}

fn of_name(name: &str, home: &Home, options: &Options) -> Result<ModelReport, Failure> {
    let present: Vec<&str> = options.registry.backends().iter().map(|backend| backend.name()).collect();
    let Resolution { model, variant, backend, .. } =
        home.resolve(Some(name), options.backend.as_deref(), &present)?;
    let installed = home.store.installed(&variant)?;
    let mut report = ModelReport {
        name: model.name.clone(),
        variant: Some(variant.name.clone()),
        licence: Some(model.licence.clone()),
        here: installed.is_some(),
        path: installed.as_ref().map(|here| here.path.display().to_string()),
        bytes: installed.as_ref().map(|here| here.record.size).or(variant.size),
        backend,
        ..ModelReport::default()
    };
    match &installed {
        Some(here) if here.record.kind == FileKind::Safetensors => {}
        Some(here) if here.record.kind == FileKind::Pte => report.program = report.path.clone(),
        Some(here) => {
            let identity = Identity::of_installed(here);
            let conversion = Conversion::new(&home.store, &here.path, identity, &variant.export)?;
            report.look_at(&conversion, &here.path)?;
        }
        None => {}
    }
    Ok(report)
}

impl ModelReport {
    /// What `run` would take of a checkpoint: the program that was made of it, or else whether one can be made. As much is
    /// done as an export does before it reads weights.
    fn look_at(&mut self, conversion: &Conversion<'_>, source: &Path) -> Result<(), Failure> {
        if let Some(Located { program, weights, .. }) = conversion.find()? {
            self.program = Some(program.display().to_string());
            self.weights = weights.map(|weights| weights.display().to_string());
            return Ok(());
        }
        let planned = Checkpoint::open(source)
            .and_then(|checkpoint| Ok(Export::new(&checkpoint, conversion.options())?.weight_bytes()));
        match planned {
            Ok(bytes) => self.to_convert = Some(bytes),
            Err(error) => self.problem = Some(without_path(&error, source)),
        }
        Ok(())
    }
}

/// The problem alone where the error names the path that the report names already.
fn without_path(error: &CheckpointError, source: &Path) -> String {
    let problem = error.to_string();
    problem.strip_prefix(&format!("{}: ", source.display())).unwrap_or(&problem).to_owned()
}

/// A program's own figures. To load it on a fast backend packs weights, so that the reference backend, which packs
/// nothing, is asked first: what does not fit by its figures is not loaded at all.
fn measure(report: &mut ModelReport, program: &Path, options: &Options) -> Result<(), Failure> {
    let file = File::open(program)?;
    let data = report.weights.iter().map(|name| {
        let path = Path::new(name);
        let mapped = MappedFile::open(path, &Limits::own());
        let bytes = mapped.map_err(|error| Failure::in_file(path, error))?.to_bytes();
        Ok(DataFile { name: name.clone(), bytes })
    });
    let data = data.collect::<Result<Vec<_>, Failure>>()?;
    let reference = Options { backend: Some("reference".to_owned()), ..options.clone() };
    // Where nobody names a backend, the next one takes what the first does not.
    for options in [reference, options.clone()] {
        let Some(ProgramOverview { problem, memory, backend, .. }) =
            describe(&file, &data, &options, false).program
        else {
            report.problem = Some("it holds data, not a program".to_owned());
            return Ok(());
        };
        report.problem = problem;
        if let Some(backend) = backend.filter(|&backend| backend != "reference") {
            backend.clone_into(&mut report.backend);
        }
        report.need = memory.as_ref().map(Need::of);
        let total = report.need.map(|need| need.total_bytes);
        if total.zip(report.available_bytes).is_none_or(|(total, free)| total > free) {
            break;
        }
    }
    Ok(())
}

impl Need {
    fn of(memory: &Memory) -> Need {
        let cache = memory.cache.as_ref().and_then(|cache| cache.bytes).unwrap_or(0);
        let run_bytes = memory.run_bytes.values().flatten().copied().max().unwrap_or(0);
        let state_bytes = memory.state_bytes.saturating_add(cache);
        let parts = [memory.mapped_bytes, memory.packed_bytes, state_bytes, run_bytes];
        Need {
            mapped_bytes: memory.mapped_bytes,
            packed_bytes: memory.packed_bytes,
            state_bytes,
            run_bytes,
            total_bytes: parts.into_iter().fold(0, u64::saturating_add),
            is_estimate: false,
        }
    }
}

/// Bytes of a file, or of the files directly in a folder.
fn size_of(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| length(&entry.path())).sum(),
        Err(_) => length(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Cache;

    #[test]
    fn a_need_is_the_sum_of_its_parts_at_their_largest() {
        let cache = Cache { capacity: 8, layers: 1, ring_layers: 0, dtype: None, bytes: Some(5) };
        let memory = Memory {
            backend: String::new(),
            device: String::new(),
            mapped_bytes: 100,
            packed_bytes: 20,
            state_bytes: 3,
            buffers: Vec::new(),
            cache: Some(cache),
            run_bytes: [("a".to_owned(), Some(7)), ("b".to_owned(), Some(9)), ("c".to_owned(), None)].into(),
        };
        let need = Need::of(&memory);
        assert_eq!((need.state_bytes, need.run_bytes, need.total_bytes), (8, 9, 137));
        let endless = Memory { mapped_bytes: u64::MAX, ..memory };
        assert_eq!(Need::of(&endless).total_bytes, u64::MAX);
    }
}
