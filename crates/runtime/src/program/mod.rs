//! A program: one file read, checked and planned, shared by any number of sessions and never written again.
//!
//! Here is what others may know of it; how it is put together is in the files below.

mod arguments;
mod buffers;
mod choice;
mod files;
mod info;
mod init;
mod join;
mod load;
mod metadata;
mod method;
mod tensors;
mod translate;
mod uses;

pub(crate) use arguments::check as check_input;
pub(crate) use buffers::ProgramBuffer;
pub use info::{Argument, ArgumentKind, Bound, BufferInfo, DelegateInfo, Fallback, MethodInfo};
pub(crate) use method::{Instruction, Method, ValuePlan, show_place};
pub(crate) use tensors::{Place, TensorPlan};

use crate::backend::{Backend, BufferId, DeviceInfo, LoadMode, Loaded, MemoryReport, Placement, Precision};
use crate::registry::{Registry, Target};
use crate::{CacheLayer, CacheSpec, Error, Result, Session, SessionOptions, Value, Weights, reference};
use choice::Choice;
use files::Files;
use indexmap::IndexMap;
use pteron_format::bpte::Bpte;
use pteron_format::map::MappedFile;
use pteron_format::ptd::Ptd;
use pteron_format::pte::Pte;
use pteron_format::{FormatError, Limits};
use pteron_ir::{Module, TokenRows};
use pteron_tensor::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// How a program is loaded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend's name, or its name and the number of a device (`mlx:1`); `None` takes the first of the registry's
    /// order.
    pub backend: Option<String>,
    /// The backends to choose from.
    pub registry: Registry,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
    /// How closely results follow the program's own types.
    pub precision: Precision,
    /// Where weights live.
    pub placement: Placement,
    /// Whether what a session gives may not depend on the sessions that run together with it, to the last bit.
    pub batch_invariant: bool,
    /// Whether every delegate stays a graph of its own, as the file has it; else those that can be are joined.
    pub keeps_delegates: bool,
}

/// A `.ptd` file that goes with a program.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// For errors.
    pub name: String,
    /// The whole file.
    pub bytes: Bytes,
}

impl DataFile {
    /// The same file in memory of its own.
    fn copied(&self) -> Result<DataFile> {
        let bytes = pteron_format::map::copied(&self.bytes).map_err(|source| {
            let source = FormatError::Io { path: self.name.clone().into(), action: "copy", source };
            Error::Format { file: self.name.clone(), source }
        })?;
        Ok(DataFile { name: self.name.clone(), bytes })
    }
}

/// A loaded program. Cloning shares it.
#[derive(Clone)]
pub struct Program(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) target: Target,
    pub(crate) loaded: Arc<dyn Loaded>,
    pub(crate) weights: Arc<Weights>,
    /// In the order of `infos`.
    pub(crate) methods: Vec<Method>,
    pub(crate) infos: Vec<MethodInfo>,
    pub(crate) metadata: IndexMap<String, Vec<Value>>,
    pub(crate) cache_layers: Option<Vec<CacheLayer>>,
    pub(crate) cache_spec: Option<CacheSpec>,
    pub(crate) mode: LoadMode,
    /// Mapped files, to be looked at before their bytes are trusted again.
    pub(crate) files: Vec<Arc<MappedFile>>,
    pub(crate) needs_cache: bool,
    pub(crate) buffer_infos: Vec<BufferInfo>,
    pub(crate) program_buffers: Vec<ProgramBuffer>,
    /// What joined graphs keep for the program.
    kept: HashMap<BufferId, Arc<Module>>,
    /// By method, once somebody has asked: whether it reads flat batches.
    pub(crate) flat: Vec<OnceLock<Result<TokenRows, String>>>,
}

impl Inner {
    /// Fails if a mapped file was written into since it was opened.
    pub(crate) fn check_files(&self) -> Result<()> {
        for file in &self.files {
            let name = || file.path().display().to_string();
            file.check_unchanged().map_err(|source| Error::Format { file: name(), source })?;
        }
        Ok(())
    }

    /// The off-graph cache for a context of the caller's choice.
    pub(crate) fn cache_of(&self, context: Option<usize>) -> Option<CacheSpec> {
        metadata::cache_spec(
            &self.metadata,
            self.cache_layers.as_ref(),
            context.or(metadata::context(&self.metadata)),
        )
    }
}

impl Program {
    /// Opens and loads a `.pte` file (or the program inside a `.bpte`) and the `.ptd` files that go with it: mapped, or
    /// read into memory of their own.
    ///
    /// Where the options name no backend, the first of the order takes it that runs all of its ops and has the memory.
    pub fn open(path: &Path, data: &[&Path], options: &Options) -> Result<Program> {
        choice::first_that_takes(options, |choice| Program::open_for(choice, path, data, options))
    }

    fn open_for(choice: &Choice, path: &Path, data: &[&Path], options: &Options) -> Result<Program> {
        let backend = choice.target.backend.as_ref();
        let mode = open_mode(options.placement, backend, path, data);
        let mut mapped = Vec::new();
        let mut read = |path: &Path| {
            let file = match mode {
                LoadMode::Copy if backend.reads_in_place() => MappedFile::read(path, &options.limits),
                _ => MappedFile::open(path, &options.limits),
            };
            let file = file.map_err(|source| Error::Format { file: path.display().to_string(), source })?;
            mapped.push(file.clone());
            Ok(DataFile { name: path.display().to_string(), bytes: file.to_bytes() })
        };
        let program = read(path)?;
        let data = data.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        Program::read(choice, program, &data, mapped, mode, options)
    }

    /// Loads a program from memory; `name` stands for the file in errors. Backends are chosen as [`Program::open`] does.
    pub fn load(name: &str, program: Bytes, data: &[DataFile], options: &Options) -> Result<Program> {
        let program = DataFile { name: name.to_owned(), bytes: program };
        choice::first_that_takes(options, |choice| {
            let program = program.clone();
            match options.placement {
                Placement::Fixed(LoadMode::Copy) if choice.target.backend.reads_in_place() => {
                    let data = data.iter().map(DataFile::copied).collect::<Result<Vec<_>>>()?;
                    Program::read(choice, program.copied()?, &data, Vec::new(), LoadMode::Copy, options)
                }
                Placement::Fixed(mode) => Program::read(choice, program, data, Vec::new(), mode, options),
                // Bytes that are in memory already stay where they are.
                Placement::CopyUpTo(_) | Placement::ArrangeUpTo(_) => {
                    Program::read(choice, program, data, Vec::new(), LoadMode::Map, options)
                }
            }
        })
    }

    fn read(
        choice: &Choice,
        program: DataFile,
        data: &[DataFile],
        mapped: Vec<Arc<MappedFile>>,
        mode: LoadMode,
        options: &Options,
    ) -> Result<Program> {
        let limits = &options.limits;
        let wrong = |file: &str| {
            let file = file.to_owned();
            move |source: FormatError| Error::Format { file, source }
        };
        let pte = match Bpte::recognises(&program.bytes) {
            true => Bpte::read(program.bytes, limits).map(|bundle| bundle.pte),
            false => Pte::read(program.bytes, limits),
        };
        let data = data.iter().map(|file| Ptd::read(file.bytes.clone(), limits).map_err(wrong(&file.name)));
        let data = data.collect::<Result<Vec<_>>>()?;
        let pte = pte.map_err(wrong(&program.name))?;
        let files = Files::new(&program.name, pte, data, mapped, limits);
        let inner = load::load(choice, &files, mode, options)?;
        inner.check_files()?;
        Ok(Program(Arc::new(inner)))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) fn same(&self, other: &Program) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The file, or the name that was given instead.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The backend that runs it, and the device there.
    pub fn backend(&self) -> (&'static str, &DeviceInfo) {
        (self.0.target.name(), &self.0.target.device)
    }

    /// Where its weights live.
    pub fn load_mode(&self) -> LoadMode {
        self.0.mode
    }

    /// Methods that can be run, in file order; metadata are apart.
    pub fn methods(&self) -> &[MethodInfo] {
        &self.0.infos
    }

    /// The method of that name.
    pub fn method(&self, name: &str) -> Result<&MethodInfo> {
        Ok(&self.0.infos[self.position(name)?])
    }

    pub(crate) fn position(&self, name: &str) -> Result<usize> {
        let found = self.0.infos.iter().position(|method| method.name == name);
        found.ok_or_else(|| Error::UnknownMethod {
            file: self.0.name.clone(),
            method: name.to_owned(),
            known: self.0.infos.iter().map(|method| method.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Constant methods: what the exporter wrote about the program, by name. Several outputs become several
    /// values.
    pub fn metadata(&self) -> &IndexMap<String, Vec<Value>> {
        &self.0.metadata
    }

    /// The first output of a constant method.
    pub fn metadata_value(&self, name: &str) -> Option<&Value> {
        self.metadata().get(name)?.first()
    }

    /// All constants.
    pub fn weights(&self) -> &Weights {
        &self.0.weights
    }

    /// What every session keeps, apart from the off-graph cache.
    pub fn buffers(&self) -> &[BufferInfo] {
        &self.0.buffer_infos
    }

    /// The graph that keeps a buffer of the program itself, where joined delegates are all that touch it; the buffer has its
    /// name there.
    pub fn keeper(&self, buffer: &BufferId) -> Option<&Module> {
        self.0.kept.get(buffer).map(Arc::as_ref)
    }

    /// Bytes of all buffers of a session.
    pub fn state_bytes(&self) -> u64 {
        let sizes = self.0.buffer_infos.iter().map(|buffer| {
            let count = buffer.shape.iter().fold(1u64, |count, &dim| count.saturating_mul(dim as u64));
            count.saturating_mul(buffer.dtype.size() as u64)
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// An error where the buffers of a session are beyond the limits; none is made for the answer.
    pub fn check_state(&self) -> Result<()> {
        let (found, allowed) = (self.state_bytes(), self.0.limits.live_bytes);
        if found > allowed {
            let (what, limit) = ("the state of a session", "live_bytes");
            return Err(Error::Limit { what, limit, found, allowed });
        }
        Ok(())
    }

    /// The off-graph cache as the metadata describe it; `None` where they do not say how long it is.
    pub fn cache_spec(&self) -> Option<&CacheSpec> {
        self.0.cache_spec.as_ref()
    }

    /// Whether a method writes to the off-graph cache.
    pub fn needs_cache(&self) -> bool {
        self.0.needs_cache
    }

    /// What the backend holds and what a session will.
    pub fn memory(&self) -> MemoryReport {
        self.0.loaded.memory()
    }

    /// An estimate of the bytes that one run of a method needs beyond weights and state, at the largest
    /// declared sizes: the largest of its delegates, and what passes between them. `None` where a size has no
    /// bound.
    pub fn run_bytes(&self, method: &str) -> Result<Option<u64>> {
        let info = self.method(method)?;
        let plan = &self.0.methods[self.position(method)?];
        let between = plan.values.iter().map(|value| match value {
            ValuePlan::Tensor(plan) if plan.constant.is_none() => plan.bytes(),
            _ => 0,
        });
        let between = between.fold(0, u64::saturating_add);
        let delegates = info.delegates.iter().map(|delegate| reference::run_bytes(&delegate.module.main));
        let largest = delegates.collect::<Option<Vec<u64>>>().map(|all| all.into_iter().max().unwrap_or(0));
        Ok(largest.map(|largest| largest.saturating_add(between)))
    }

    /// A session with the cache that the metadata describe.
    pub fn session(&self) -> Result<Session> {
        self.session_with(&SessionOptions::default())
    }

    /// A session with a cache or a capacity of the caller's.
    pub fn session_with(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }
}

/// Where the weights of files shall live.
fn open_mode(placement: Placement, backend: &dyn Backend, path: &Path, data: &[&Path]) -> LoadMode {
    match placement {
        Placement::Fixed(mode) => mode,
        Placement::CopyUpTo(most) | Placement::ArrangeUpTo(most) => {
            // What cannot be looked at cannot be opened either, which is reported then.
            let size = |path: &&Path| std::fs::metadata(path).map_or(0, |file| file.len());
            let bytes = data.iter().chain([&path]).map(size).fold(0, u64::saturating_add);
            match bytes <= most {
                true if backend.arranges() && matches!(placement, Placement::ArrangeUpTo(_)) => {
                    LoadMode::Arrange
                }
                true if backend.reads_in_place() => LoadMode::Copy,
                _ => LoadMode::Map,
            }
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("name", &self.0.name).field("methods", &self.0.infos.len()).finish()
    }
}
