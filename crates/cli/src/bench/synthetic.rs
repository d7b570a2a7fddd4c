//! A program of a published shape with random weights, written to a file: through the same blocks as real ones.

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use pteron_format::WriteOptions;
use pteron_models::shapes::{self, Shape};
use pteron_models::{Model, ModelOptions, Packing, RandomWeights};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

/// The same weights every time.
const SEED: u64 = 1;

/// The shape of that name.
pub(crate) fn shape(name: &str) -> Result<&'static Shape, Failure> {
    shapes::find(name).ok_or_else(|| {
        let names: Vec<&str> = shapes::SHAPES.iter().map(|shape| shape.name).collect();
        Failure::usage(format!("no shape is called `{name}`")).hint(format!("there are {}", names.join(", ")))
    })
}

/// Writes a program of the shape; its bytes.
pub(crate) fn write(
    shape: &Shape,
    packing: Option<Packing>,
    options: ModelOptions,
    path: &Path,
) -> Result<u64, Failure> {
    let weights = match packing {
        Some(packing) => RandomWeights::packed(SEED, packing.with_scales(options.activations)),
        None => RandomWeights::new(SEED),
    };
    let architecture = shape.architecture().map_err(Failure::usage)?;
    let model = Model::build(architecture.as_ref(), Arc::new(weights), options).map_err(Failure::usage)?;
    let progress = bar(model.weight_bytes(), shape.title);
    let counter = progress.clone();
    let program = model.program(move |bytes| counter.inc(bytes)).map_err(Failure::new)?;
    let written = program.write_file(path, &WriteOptions::default()).map_err(Failure::new)?;
    progress.finish_and_clear();
    Ok(written)
}

/// A bar on standard error; hidden where that is no terminal.
fn bar(bytes: u64, title: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("random {msg}: {bar:40} {bytes} of {total_bytes}, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style).with_message(title.to_owned())
}
