//! What a model needs, before it is fetched, converted or loaded.

#[cfg(feature = "registry")]
mod kept;

use crate::error::{Error, Reason, Result};
use crate::located::Located;
use crate::machine::size;
use crate::options::{OpenOptions, Source};
#[cfg(feature = "registry")]
use kept::of_source;
use pteron_format::Limits;
use pteron_ir::{Op, Type};
use pteron_runtime::{Options, Program};
use pteron_speech::whisper::{USUAL_TEXTS, WhisperProgram};
use pteron_tensor::DType;
use std::path::Path;

/// Memory that a model takes at its largest, in bytes.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let path = path.as_path();
/// let needs = pteron::requirements(path, &pteron::OpenOptions::default())?;
/// println!("{} bytes for the weights, {} for each conversation", needs.weights, needs.state);
/// assert!(needs.total() > needs.weights && !needs.is_estimate);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requirements {
    /// The weights, which all conversations share.
    pub weights: u64,
    /// Buffers and caches of one conversation, when its context is full; or of one sound, with all texts that are weighed against
    /// each other.
    pub state: u64,
    /// What each position of the context adds to these; 0 where all of it is there from the start.
    pub state_per_token: u64,
    /// What the largest run holds beside them.
    pub run: u64,
    /// Bytes that are to be fetched first, where they are known.
    pub download: Option<u64>,
    /// Whether the model is still to be fetched or converted, so that the size of its weights is all that is known.
    pub is_estimate: bool,
}

impl Requirements {
    /// All of it, with one conversation.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let needs = pteron::requirements(path.as_path(), &pteron::OpenOptions::default())?;
    /// assert_eq!(needs.total(), needs.weights + needs.state + needs.run);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.state).saturating_add(self.run)
    }
}

/// What a model needs. Nothing is fetched, converted or loaded for the answer.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let path = path.as_path();
/// use pteron::OpenOptions;
///
/// let short = pteron::requirements(path, &OpenOptions::default().context(64))?;
/// let long = pteron::requirements(path, &OpenOptions::default().context(128))?;
/// assert_eq!(long.state - short.state, 64 * long.state_per_token);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no such model, or it cannot be run here.
pub fn requirements(source: impl Into<Source>, options: &OpenOptions) -> Result<Requirements> {
    match &source.into() {
        Source::Memory { name, bytes } => of_program(&Located::memory(name, bytes), options.context),
        source => of_source(source, options),
    }
}

/// Programs by path are all that there is.
#[cfg(not(feature = "registry"))]
fn of_source(source: &Source, options: &OpenOptions) -> Result<Requirements> {
    of_program(&of_path(crate::located::program_path(source)?), options.context)
}

fn of_path(path: &Path) -> Located {
    Located::file(path, &path.display().to_string())
}

/// A program's own figures; nothing of its weights is read for them.
fn of_program(found: &Located, context: Option<usize>) -> Result<Requirements> {
    // The reference backend packs nothing, so that the file is mapped and no more.
    // What it needs is told also where that is more than a limit.
    let options =
        Options { backend: Some("reference".to_owned()), limits: Limits::own(), ..Options::default() };
    let program = found.load(&options)?;
    let mut run = 0;
    for method in program.methods() {
        run = run.max(program.run_bytes(&method.name)?.unwrap_or(0));
    }
    let (per_token, off_graph) = cache_bytes(&program, context);
    let (stored, derived) = program.weights().bytes();
    let texts = if WhisperProgram::recognises(&program) { USUAL_TEXTS as u64 } else { 1 };
    Ok(Requirements {
        weights: stored.saturating_add(derived),
        state: program.state_bytes().saturating_mul(texts).saturating_add(off_graph),
        state_per_token: per_token,
        run,
        ..Requirements::default()
    })
}

/// What a position adds to caches outside the graph, and what all of them take.
fn cache_bytes(program: &Program, context: Option<usize>) -> (u64, u64) {
    let Some(spec) = program.cache_spec().filter(|_| program.needs_cache()) else { return (0, 0) };
    let capacity = context.unwrap_or(spec.capacity);
    let element = spec.dtype.or_else(|| key_dtype(program)).map_or(4, |dtype| dtype.size());
    spec.layers.iter().fold((0, 0), |(per_token, all): (u64, u64), layer| {
        let position = (layer.kv_heads * layer.head_dim).saturating_mul(2 * element) as u64;
        let slots = layer.window.map_or(capacity, |window| window + spec.max_write.unwrap_or(window));
        let layer_bytes = position.saturating_mul(slots.min(capacity) as u64);
        // A window is full soon, and grows no more.
        let more = if layer.window.is_none() { position } else { 0 };
        (per_token.saturating_add(more), all.saturating_add(layer_bytes))
    })
}

/// The dtype of what is kept, where only the graph says it.
pub fn key_dtype(program: &Program) -> Option<DType> {
    let mut found = None;
    for delegate in program.methods().iter().flat_map(|method| &method.delegates) {
        let graph = &delegate.module.main;
        graph.for_each_node(|node, _| {
            if let Op::UpdateAndAttend { k, .. } = &node.op
                && let Some(Type::Tensor(tensor)) = graph.ty(*k)
            {
                found = found.or(Some(tensor.dtype));
            }
        });
    }
    found
}

/// An error if a program needs more than it may have.
pub(crate) fn check(found: &Located, context: Option<usize>, limit: u64) -> Result<()> {
    let needs = of_program(found, context)?;
    if needs.total() <= limit {
        return Ok(());
    }
    let Requirements { weights, state, run, .. } = needs;
    let what = format!(
        "{} needs {}: weights {}, caches {}, one run {}",
        found.program.display(),
        size(needs.total()),
        size(weights),
        size(state),
        size(run)
    );
    Err(too_large(needs.total(), limit, &what))
}

pub(crate) fn too_large(needed: u64, limit: u64, what: &str) -> Error {
    let reason = Reason::new(format_args!("{what}; the limit is {}", size(limit)));
    Error::NotEnoughMemory { needed, limit, reason }
}
