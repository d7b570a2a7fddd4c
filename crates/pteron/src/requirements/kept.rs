//! What models by name and checkpoints need: what was made of them says it, or else the weights that they have.

use super::{Requirements, of_path, of_program};
use crate::convert::Conversion;
use crate::error::Result;
use crate::find;
use crate::located::ExportAs;
use crate::options::{OpenOptions, Source};
use pteron_checkpoint::{Checkpoint, Export};
use pteron_registry::{FileKind, Identity};
use pteron_runtime::Precision;
use std::path::Path;

/// A model that is no program in memory.
pub(super) fn of_source(source: &Source, options: &OpenOptions) -> Result<Requirements> {
    match source {
        Source::Usual | Source::Memory { .. } => of_name(None, options),
        Source::Named(name) if Path::new(name).exists() => of_file(Path::new(name), options),
        Source::Named(name) if find::looks_like_a_path(name) => Err(find::nothing_at(name)),
        Source::Named(name) => of_name(Some(name), options),
        Source::Path(path) if path.exists() => of_file(path, options),
        Source::Path(path) => Err(find::nothing_at(&path.display().to_string())),
    }
}

fn of_file(path: &Path, options: &OpenOptions) -> Result<Requirements> {
    if matches!(find::kind(path)?, FileKind::Pte | FileKind::Safetensors) {
        return of_program(&of_path(path), options.context);
    }
    let home = options.open_home()?;
    let identity = find::identity(path)?;
    let conversion =
        |wanted: ExportAs| Conversion::new(&home.store, path, identity.clone(), &wanted.export());
    for wanted in [ExportAs::TEXT, ExportAs::SPEECH, ExportAs::VECTORS] {
        if let Some(found) = conversion(wanted)?.find()? {
            return of_program(&found, options.context);
        }
    }
    let checkpoint = Checkpoint::open(path)?;
    let wanted = if checkpoint.speech.is_some() { ExportAs::SPEECH } else { ExportAs::TEXT };
    of_weights(&checkpoint, &conversion(wanted)?)
}

fn of_name(name: Option<&str>, options: &OpenOptions) -> Result<Requirements> {
    let home = options.open_home()?;
    let runtime = options.runtime_with(Precision::Fast)?;
    let present: Vec<&str> = runtime.registry.backends().iter().map(|backend| backend.name()).collect();
    let resolution = home.resolve(name, runtime.backend.as_deref(), &present)?;
    let variant = &resolution.variant;
    let Some(here) = home.store.installed(variant)? else {
        let (weights, download) = (variant.size.unwrap_or(0), variant.size);
        return Ok(Requirements { weights, download, is_estimate: true, ..Requirements::default() });
    };
    if matches!(variant.kind, FileKind::Pte | FileKind::Safetensors) {
        return of_program(&of_path(&here.path), options.context);
    }
    let identity = Identity::of_installed(&here);
    let conversion = Conversion::new(&home.store, &here.path, identity, &variant.export)?;
    match conversion.find()? {
        Some(found) => of_program(&found, options.context),
        None => of_weights(&Checkpoint::open(&here.path)?, &conversion),
    }
}

/// The weights that a checkpoint will have.
fn of_weights(checkpoint: &Checkpoint, conversion: &Conversion<'_>) -> Result<Requirements> {
    let weights = Export::new(checkpoint, conversion.options())?.weight_bytes();
    Ok(Requirements { weights, is_estimate: true, ..Requirements::default() })
}
