//! What people publish (a GGUF file, a checkpoint folder) as data and as text: what it says of itself, its tensors by type,
//! and whether a program can be made of it.
//!
//! Read without knowing any architecture, so that a model that cannot be run is shown too, with the reason.

use super::{Weights, render};
use crate::failure::Failure;
use crate::output::{Align, Json, Output, Table, count, size};
use indexmap::IndexMap;
use pteron_checkpoint::{Checkpoint, gguf};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_gguf::{Gguf, Value as GgufValue};
use safetensors::SafeTensors;
use serde::Serialize;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A configuration is never longer.
const LONGEST_CONFIGURATION: u64 = 16 << 20;
/// Texts of a file's metadata are shown up to this many characters.
const LONGEST_TEXT: usize = 60;

/// Everything that `inspect` says of a checkpoint.
#[derive(Debug, Default, Serialize)]
struct Overview {
    file: String,
    /// `gguf` or `checkpoint`.
    kind: &'static str,
    /// Of the files that hold weights.
    bytes: u64,
    /// Why no program can be made of it, if none can.
    problem: Option<String>,
    /// As the source names it.
    architecture: Option<String>,
    /// Whether it has a tokenizer and a chat template; `null` where no program can be made of it.
    tokenizer: Option<bool>,
    chat_template: Option<bool>,
    parameters: u64,
    /// Numbers, flags and short texts that the source says of itself.
    configuration: IndexMap<String, Value>,
    weights: Vec<Weights>,
}

/// Shows a GGUF file or a checkpoint folder.
pub(crate) fn inspect(path: &Path, json: bool, out: &mut Output) -> Result<(), Failure> {
    let mut overview = if path.is_dir() { of_folder(path)? } else { of_gguf(path)? };
    match Checkpoint::open(path) {
        Ok(checkpoint) => {
            overview.tokenizer = Some(checkpoint.tokenizer.is_some());
            overview.chat_template = Some(checkpoint.chat_templates.default.is_some());
        }
        Err(error) => {
            let problem = error.to_string();
            let own = format!("{}: ", path.display());
            overview.problem = Some(problem.strip_prefix(&own).unwrap_or(&problem).to_owned());
        }
    }
    match json {
        true => out.json(&overview, Json::Indented),
        false => show(&overview, out),
    }
}

/// Tensors by type: how many, and their bytes.
#[derive(Default)]
struct Totals {
    by_type: IndexMap<String, (usize, u64)>,
    parameters: u64,
}

impl Totals {
    fn add(&mut self, ty: String, elements: u64, bytes: u64) {
        let (tensors, sum) = self.by_type.entry(ty).or_default();
        *tensors += 1;
        *sum = sum.saturating_add(bytes);
        self.parameters = self.parameters.saturating_add(elements);
    }

    fn finish(mut self, overview: &mut Overview) {
        self.by_type.sort_by(|a, x, b, y| y.1.cmp(&x.1).then_with(|| a.cmp(b)));
        let row = |(dtype, (tensors, bytes))| Weights { dtype, tensors, bytes };
        overview.weights = self.by_type.into_iter().map(row).collect();
        overview.parameters = self.parameters;
    }
}

fn of_gguf(path: &Path) -> Result<Overview, Failure> {
    let mut overview = Overview { file: path.display().to_string(), kind: "gguf", ..Overview::default() };
    let mut totals = Totals::default();
    for (number, part) in gguf::files(path).iter().enumerate() {
        let mapped = map(part)?;
        overview.bytes += mapped.to_bytes().len() as u64;
        let file = Gguf::read(mapped.to_bytes(), &pteron_gguf::Limits::default())
            .map_err(|error| Failure::in_file(part, error))?;
        for tensor in file.tensors() {
            totals.add(tensor.ty().name().to_owned(), tensor.elements() as u64, tensor.range().len() as u64);
        }
        if number == 0 {
            let metadata = file.metadata();
            overview.architecture = metadata.text("general.architecture").ok().flatten().map(str::to_owned);
            let known = metadata.iter().filter_map(|(key, value)| Some((key.to_owned(), plain(&value)?)));
            overview.configuration = known.collect();
        }
    }
    totals.finish(&mut overview);
    Ok(overview)
}

/// A value that is not a list, as JSON; long texts (templates) are left out.
fn plain(value: &GgufValue<'_>) -> Option<Value> {
    if let Some(text) = value.as_str() {
        return short(text).then(|| text.into());
    }
    let number = value.as_bool().map(Value::from).or_else(|| value.as_u64().map(Value::from));
    number.or_else(|| value.as_i64().map(Value::from)).or_else(|| value.as_f64().map(Value::from))
}

fn short(text: &str) -> bool {
    text.chars().count() <= LONGEST_TEXT
}

fn of_folder(path: &Path) -> Result<Overview, Failure> {
    let mut overview =
        Overview { file: path.display().to_string(), kind: "checkpoint", ..Overview::default() };
    let mut totals = Totals::default();
    let entries = std::fs::read_dir(path).map_err(|error| Failure::in_file(path, error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let ends_in =
        |file: &PathBuf, ending: &str| file.extension().is_some_and(|extension| extension == ending);
    let settings = path.join("config.json");
    if !settings.is_file() {
        return match files.iter().find(|file| ends_in(file, "gguf")) {
            Some(file) => of_gguf(file),
            None => Err(Failure::in_file(path, "the folder has no config.json, so that it is no checkpoint")),
        };
    }
    for file in files.iter().filter(|file| ends_in(file, "safetensors")) {
        let mapped = map(file)?;
        let bytes = mapped.to_bytes();
        overview.bytes += bytes.len() as u64;
        let (_, header) =
            SafeTensors::read_metadata(&bytes).map_err(|error| Failure::in_file(file, error))?;
        for tensor in header.tensors().values() {
            let elements = tensor.shape.iter().fold(1u64, |product, &dim| product.saturating_mul(dim as u64));
            let (start, end) = tensor.data_offsets;
            totals.add(tensor.dtype.to_string(), elements, end.saturating_sub(start) as u64);
        }
    }
    overview.configuration = configuration(&settings)?;
    overview.architecture =
        overview.configuration.get("model_type").and_then(Value::as_str).map(str::to_owned);
    totals.finish(&mut overview);
    Ok(overview)
}

/// What a `config.json` says in plain values; lists and tables are left out.
fn configuration(path: &Path) -> Result<IndexMap<String, Value>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::in_file(path, error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(LONGEST_CONFIGURATION).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let all: IndexMap<String, Value> = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let is_plain = |value: &Value| match value {
        Value::Null | Value::Array(_) | Value::Object(_) => false,
        Value::String(text) => short(text),
        Value::Bool(_) | Value::Number(_) => true,
    };
    Ok(all.into_iter().filter(|(_, value)| is_plain(value)).collect())
}

fn map(path: &Path) -> Result<std::sync::Arc<MappedFile>, Failure> {
    MappedFile::open(path, &Limits::default()).map_err(Failure::new)
}

fn show(overview: &Overview, out: &mut Output) -> Result<(), Failure> {
    let tensors = count(overview.weights.iter().map(|weights| weights.tensors).sum(), "tensor");
    let architecture = overview.architecture.as_deref().unwrap_or("no architecture named");
    out.line(format!(
        "{}: {}, {}, {architecture}, {tensors}, {} parameters",
        overview.file,
        overview.kind,
        size(overview.bytes),
        millions(overview.parameters)
    ))?;
    match &overview.problem {
        Some(problem) => out.line(format!("cannot be run here: {problem}"))?,
        None => {
            let has = |there: Option<bool>| if there == Some(true) { "with" } else { "no" };
            let (tokenizer, template) = (has(overview.tokenizer), has(overview.chat_template));
            out.line(format!("{tokenizer} tokenizer, {template} chat template"))?;
        }
    }
    render::weights(&overview.weights, out)?;
    let mut table = Table::new(&[Align::Left, Align::Left]);
    for (key, value) in &overview.configuration {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.row([key.clone(), text]);
    }
    out.section("configuration", &table)
}

/// `135 M`, `7.2 B`.
fn millions(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{:.0} M", number as f64 / 1e6),
        _ => format!("{:.1} B", number as f64 / 1e9),
    }
}
