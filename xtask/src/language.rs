//! Real language models as these commands use them: fetched by the name that the registry has for them, exported by the
//! binary under test, opened on the CPU backend.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use pteron_cpu::Cpu;
use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_llm::{Decoder, DecoderOptions, LanguageModel, Voice};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Precision, Program};

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// A model that can be read with and talked to.
pub(crate) struct Language {
    pub(crate) model: LanguageModel,
    pub(crate) voice: Voice,
}

/// The published file of a model, fetched if it is not there yet.
pub(crate) fn pull(pteron: &Path, name: &str) -> Result<PathBuf> {
    let printed = output(Command::new(pteron).args(["pull", name]))?;
    let path = printed.lines().last().unwrap_or_default().trim();
    match Path::new(path) {
        path if path.is_file() => Ok(path.to_owned()),
        _ => Err(Error::message(format!("`pteron pull {name}` names no file: {printed}"))),
    }
}

/// The program that `pteron export` makes of a published file, with these options.
pub(crate) fn export(pteron: &Path, source: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let folder = workspace::scratch().join("language");
    fs::create_dir_all(&folder).doing("make", &folder)?;
    let program = folder.join(format!("{name}.pte"));
    output(Command::new(pteron).arg("export").arg(source).arg("-o").arg(&program).args(options))?;
    Ok(program)
}

/// Standard output of a command that must succeed; what it says on standard error goes to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let done = command.stderr(Stdio::inherit()).output().doing("start", &shown)?;
    if !done.status.success() {
        return Err(Error::message(format!("{shown} failed, {}", done.status)));
    }
    String::from_utf8(done.stdout).map_err(|error| Error::content(Path::new(&shown), error))
}

impl Language {
    /// Opens a program on as many threads as there are cores.
    pub(crate) fn open(program: &Path, precision: Precision) -> Result<Language> {
        let failed = |error: &dyn std::fmt::Display| Error::content(program, error);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut registry = Registry::default();
        registry.add(Arc::new(Cpu::new(threads, None).map_err(|error| failed(&error))?));
        let options = Options { backend: Some("cpu".to_owned()), registry, precision, ..Options::default() };
        let opened = Program::open(program, &[], &options).map_err(|error| failed(&error))?;
        let model = LanguageModel::new(opened).map_err(|error| failed(&error))?;
        let pte = Pte::open(program, &Limits::default()).map_err(|error| failed(&error))?;
        let tokenizer = Voice::tokenizer_inside(&pte).map_err(|error| failed(&error))?;
        let tokenizer = tokenizer.ok_or_else(|| failed(&"it carries no tokenizer"))?;
        let template = Voice::template_inside(&pte).map_err(|error| failed(&error))?;
        Ok(Language { model, voice: Voice { template, ..Voice::new(tokenizer) } })
    }

    /// A decoder with empty caches.
    pub(crate) fn decoder(&self) -> Result<Decoder> {
        Decoder::new(&self.model, &DecoderOptions::default()).map_err(said)
    }
}

/// The error of a model, in its own words.
pub(crate) fn said(error: impl std::fmt::Display) -> Error {
    Error::message(error.to_string())
}
