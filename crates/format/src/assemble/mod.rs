//! From graphs to a whole `.pte` program: methods with their values and calls, payloads, named data, constants and
//! metadata, put together and streamed to a file.
//!
//! Modules and weights flow in, in any order that names things before they are used; bytes flow out, the same for the
//! same calls. What is equal is stored once: payloads, constants and named data by their content. Named data may also
//! become a `.ptd` file of its own, which several programs can share. Knows nothing of where a model came from.

mod apart;
mod arena;
mod error;
mod method;
mod pool;
mod resume;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::{self, Write};
#[cfg(not(target_family = "wasm"))]
use std::path::Path;

use indexmap::IndexMap;
use pteron_ir::{Module, Type};
use pteron_tensor::{Bytes, DType, HostTensor};

use crate::pte::{self, BackendDelegateDataReference, DataLocation, ExecutionPlan, NamedData};
use crate::{Segment, WriteOptions, emit};

pub use apart::DataWriter;
pub use error::AssembleError;
pub use method::{Jump, MethodWriter, TensorSpec, ValueIndex};

use method::Storage;
pub(crate) use pool::content_hash;
use pool::{Pool, Stored};

/// The id of delegates whose payload is MLX bytecode.
pub const MLX_BACKEND: &str = "MLXBackend";

/// What every stored tensor starts at a multiple of.
pub(crate) const DATA_ALIGNMENT: u64 = 16;

/// The payload of a delegate of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadIndex(usize);

/// A tensor stored for portable operators: a constant, or what a mutable tensor holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredIndex(u32);

impl StoredIndex {
    /// That entry of the program's constants.
    pub(crate) fn entry(at: u32) -> StoredIndex {
        StoredIndex(at)
    }

    /// Which entry it is.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// What a constant method says about the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A float.
    Double(f64),
    /// A text.
    String(String),
    /// Several numbers: several outputs, as ExecuTorch's exporter flattens a list.
    Ints(Vec<i64>),
    /// A tensor.
    Tensor(HostTensor),
}

/// A `.pte` program in the making.
#[derive(Default)]
pub struct ProgramWriter<'a> {
    plans: Vec<ExecutionPlan>,
    payloads: Pool<PayloadEntry>,
    constants: Stored,
    initials: Stored,
    /// Segments of named data, and which of them a key means.
    data: Pool<Segment<'a>>,
    keys: IndexMap<String, usize>,
    /// Keys whose data is in a `.ptd` file.
    apart: HashSet<String>,
    shared_state: IndexMap<String, (u64, u64)>,
}

/// A payload with what its constants are called and how large they are.
struct PayloadEntry {
    bytes: Bytes,
    arguments: usize,
    constants: Vec<String>,
    /// Constants that only the load-time graph defines: readers want an element under each.
    placeholders: Vec<(String, DType)>,
}

impl<'a> ProgramWriter<'a> {
    /// A program without methods.
    pub fn new() -> ProgramWriter<'a> {
        ProgramWriter::default()
    }

    /// Data under a name, such as a weight. Content that is there already is not stored again.
    pub fn name(&mut self, key: &str, bytes: Bytes) -> Result<(), AssembleError> {
        let hash = content_hash(&bytes);
        let same = |segment: &Segment<'a>| segment.held().is_some_and(|held| *held == *bytes);
        let at = match self.data.find(hash, same) {
            Some(at) => at,
            None => self.data.push(Some(hash), Segment::shared(bytes.clone()).aligned_to(DATA_ALIGNMENT)),
        };
        self.add_key(key, at)
    }

    /// Data under a name that `produce` writes when the file is written: exactly `len` bytes, the same each time. So a
    /// model of any size passes through the memory of one tensor.
    pub fn name_produced(
        &mut self,
        key: &str,
        len: u64,
        produce: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Result<(), AssembleError> {
        let at = self.data.push(None, Segment::produced(len, produce).aligned_to(DATA_ALIGNMENT));
        self.add_key(key, at)
    }

    /// Another name for data that has one.
    pub fn alias(&mut self, key: &str, of: &str) -> Result<(), AssembleError> {
        let at = *self.keys.get(of).ok_or_else(|| AssembleError::UnknownName { key: of.to_owned() })?;
        self.add_key(key, at)
    }

    /// Whether a name is taken.
    pub fn has_name(&self, key: &str) -> bool {
        self.keys.contains_key(key) || self.apart.contains(key)
    }

    fn add_key(&mut self, key: &str, at: usize) -> Result<(), AssembleError> {
        match self.keys.insert(key.to_owned(), at) {
            None => Ok(()),
            Some(_) => Err(AssembleError::DoubleName { key: key.to_owned() }),
        }
    }

    /// A constant of portable operators.
    pub fn constant(&mut self, bytes: &[u8]) -> StoredIndex {
        self.constants.add(bytes, true)
    }

    /// What a mutable tensor of the program holds in a new session.
    pub fn initial(&mut self, bytes: &[u8]) -> StoredIndex {
        // Each mutable tensor has contents of its own, so that equal ones stay apart.
        self.initials.add(bytes, false)
    }

    /// A module as the payload of a delegate.
    pub fn payload(&mut self, module: &Module) -> Result<PayloadIndex, AssembleError> {
        let name = || module.main.name.clone();
        let payload = emit(module).map_err(|source| AssembleError::Emit { graph: name(), source })?;
        let bytes = payload.encode().map_err(|source| AssembleError::Encode { graph: name(), source })?;
        let hash = content_hash(&bytes);
        if let Some(at) = self.payloads.find(hash, |entry| *entry.bytes == *bytes) {
            return Ok(PayloadIndex(at));
        }
        let entry = PayloadEntry {
            bytes: Bytes::copy_of(&bytes),
            arguments: module.main.inputs.len() + module.main.outputs.len(),
            constants: stored_constants(module),
            placeholders: placeholders(module),
        };
        Ok(PayloadIndex(self.payloads.push(Some(hash), entry)))
    }

    /// A constant method: what a runner wants to know of the program.
    pub fn metadata(&mut self, name: &str, value: &Metadata) -> Result<(), AssembleError> {
        let mut method = MethodWriter::new(name);
        let values = match value {
            Metadata::Int(value) => vec![method.int(*value)],
            Metadata::Bool(value) => vec![method.bool(*value)],
            Metadata::Double(value) => vec![method.double(*value)],
            Metadata::String(text) => vec![method.string(text)],
            Metadata::Ints(values) => values.iter().map(|&value| method.int(value)).collect(),
            Metadata::Tensor(tensor) => {
                let stored = self.constant(tensor.bytes());
                vec![method.constant(&TensorSpec::known(tensor.dtype(), tensor.shape()), stored)]
            }
        };
        values.into_iter().for_each(|value| method.output(value));
        self.method(method)
    }

    /// A method, finished: its memory is planned and its calls are checked against their payloads.
    pub fn method(&mut self, method: MethodWriter) -> Result<(), AssembleError> {
        if self.plans.iter().any(|plan| *plan.name == *method.name) {
            return Err(AssembleError::DoubleMethod { method: method.name });
        }
        for (payload, arguments) in method.calls() {
            let wanted = self.payloads.entries.get(payload.0).map_or(0, |entry| entry.arguments);
            if arguments != wanted {
                return Err(AssembleError::Arguments {
                    method: method.name.clone(),
                    wanted,
                    given: arguments,
                });
            }
        }
        for (key, bytes) in method.shared() {
            let next = self.shared_state.values().map(|(offset, bytes)| offset + bytes).max().unwrap_or(0);
            let next = next.next_multiple_of(DATA_ALIGNMENT);
            let (_, known) = *self.shared_state.entry(key.to_owned()).or_insert((next, bytes));
            if known != bytes {
                let (state, method) = (key.to_owned(), method.name.clone());
                return Err(AssembleError::SharedSize { state, method, known, bytes });
            }
        }
        self.plans.push(method.finish(&self.shared_state)?);
        Ok(())
    }

    /// Writes the program; returns the bytes written.
    pub fn write(self, options: &WriteOptions, out: &mut dyn Write) -> Result<u64, AssembleError> {
        let (program, segments) = self.finish()?;
        Ok(pte::write(&program, &segments, options, out)?)
    }

    /// Writes the program as a file that appears whole or not at all.
    #[cfg(not(target_family = "wasm"))]
    pub fn write_file(self, path: &Path, options: &WriteOptions) -> Result<u64, AssembleError> {
        let (program, segments) = self.finish()?;
        Ok(pte::write_file(path, &program, &segments, options)?)
    }

    /// The tables, and the segments in the order that ExecuTorch's writer has: constants, initial values, payloads,
    /// named data.
    fn finish(mut self) -> Result<(pte::Program, Vec<Segment<'a>>), AssembleError> {
        self.add_placeholders()?;
        self.check_names()?;
        self.share_arena();
        let mut segments = vec![Segment::shared(self.constants.bytes())];
        let mut program =
            pte::Program { constant_segment: Some(self.constants.table(0)), ..pte::Program::default() };
        if !self.initials.is_empty() {
            program.mutable_data_segments = vec![self.initials.table(segments.len() as u32)].into();
            segments.push(Segment::shared(self.initials.bytes()));
        }
        let first_payload = segments.len() as u32;
        let payloads = self.payloads.entries.into_iter();
        segments.extend(payloads.map(|entry| Segment::shared(entry.bytes).aligned_to(DATA_ALIGNMENT)));
        let first_data = segments.len() as u32;
        segments.extend(self.data.entries);

        let named = self
            .keys
            .iter()
            .map(|(key, at)| NamedData { key: key.as_str().into(), segment_index: first_data + *at as u32 });
        program.named_data = named.collect();
        for plan in &mut self.plans {
            // Until here a delegate counts payloads; in the file, segments.
            for delegate in plan.delegates.make_mut() {
                if let Some(BackendDelegateDataReference { location: DataLocation::Segment, index }) =
                    &mut delegate.processed
                {
                    *index += first_payload;
                }
            }
        }
        program.execution_plan = self.plans.into();
        program.complete();
        Ok((program, segments))
    }

    /// Readers take a second arena of equal size in every planned method as the sign of shared state.
    fn share_arena(&mut self) {
        let Some(size) = self.shared_state.values().map(|(offset, bytes)| offset + bytes).max() else {
            return;
        };
        for plan in self.plans.iter_mut().filter(|plan| plan.non_const_buffer_sizes.len() > 1) {
            let sizes = plan.non_const_buffer_sizes.make_mut();
            sizes.resize(Storage::SHARED_ARENA as usize + 1, 0);
            sizes[Storage::SHARED_ARENA as usize] = size as i64;
        }
    }

    fn add_placeholders(&mut self) -> Result<(), AssembleError> {
        let wanted = self.payloads.entries.iter().flat_map(|entry| entry.placeholders.clone());
        for (key, dtype) in wanted.collect::<Vec<_>>() {
            if !self.has_name(&key) {
                self.name(&key, Bytes::zeroed(dtype.size()))?;
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), AssembleError> {
        let wanted = self.payloads.entries.iter().flat_map(|entry| &entry.constants);
        match wanted.into_iter().find(|key| !self.has_name(key)) {
            None => Ok(()),
            Some(key) => Err(AssembleError::UnknownName { key: key.clone() }),
        }
    }
}

/// Keys that a payload reads from the file.
fn stored_constants(module: &Module) -> Vec<String> {
    let graphs = [Some(&module.main), module.init.as_ref()];
    let constants = graphs.into_iter().flatten().flat_map(|graph| &graph.constants);
    constants.map(|constant| constant.name.clone()).collect()
}

/// Constants that the load-time graph makes out of nothing that is stored under their name.
pub(crate) fn placeholders(module: &Module) -> Vec<(String, DType)> {
    let Some(init) = &module.init else { return Vec::new() };
    let read: HashSet<&str> = init.constants.iter().map(|constant| constant.name.as_str()).collect();
    let made = init.outputs.iter().filter(|output| !read.contains(output.name.as_str()));
    made.filter_map(|output| match &output.ty {
        Type::Tensor(ty) => Some((output.name.clone(), ty.dtype)),
        _ => None,
    })
    .collect()
}
