//! Checkpoints that are talked to: converted once, into the store, and found there the next time.

use super::find::Wanted;
use crate::failure::Failure;
use crate::output::complain;
use indicatif::{ProgressBar, ProgressStyle};
use pteron_checkpoint::{Checkpoint, ExportOptions, Progress, export};
use pteron_models::{Packing, Quantization};
use pteron_registry::{Identity, Store};
use pteron_tensor::DType;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The program of a checkpoint, made now if it is not there yet.
pub(crate) fn converted(
    store: &Store,
    source: &Path,
    identity: &Identity,
    asked: &pteron_registry::Export,
    wanted: &Wanted,
) -> Result<PathBuf, Failure> {
    let options = options(asked, wanted)?;
    // Another version may convert otherwise.
    let key = format!("pteron {} {options:?}", env!("CARGO_PKG_VERSION"));
    store.converted(identity, &key, |path| {
        complain(&format!("converting {}; this is done once\n", source.display()));
        let checkpoint = Checkpoint::open(source).map_err(Failure::new)?;
        let bar = bar();
        let mut show = |progress: Progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.written);
        };
        export(&checkpoint, &options, path, &mut show).map_err(Failure::new)?;
        bar.finish_and_clear();
        Ok(())
    })
}

fn options(asked: &pteron_registry::Export, wanted: &Wanted) -> Result<ExportOptions, Failure> {
    let mut options =
        ExportOptions { context: wanted.context, logits: wanted.logits, ..ExportOptions::default() };
    if let Some(name) = &asked.activations {
        options.activations = DType::from_name(name)
            .ok_or_else(|| Failure::new(format!("the registry asks for activations of `{name}`")))?;
    }
    if let Some(scheme) = &asked.quantize {
        let scheme: Packing = scheme.parse().map_err(Failure::new)?;
        let group = asked.group_size.map(|size| size as usize);
        options.quantization = Quantization { scheme: Some(scheme), group, ..Quantization::default() };
    }
    Ok(options)
}

/// A bar on standard error; hidden where that is no terminal.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
