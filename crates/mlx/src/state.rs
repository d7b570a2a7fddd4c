//! What a session owns in this backend: buffers of every graph, the off-graph cache and the key of the generator, all
//! of them MLX arrays that were computed or are being computed. A snapshot shares them; an array that nobody else holds is
//! updated in place.

use crate::cache::Cache;
use crate::calls::Mlx;
use crate::ffi::{Flight, Shared};
use crate::lower::key_of;
use crate::machine::Effects;
use crate::values::{ArrayType, Kept};
use pteron_format::Limits;
use pteron_ir::Type;
use pteron_runtime::backend::{BufferId, GraphId, ProgramGraphs, Rewind, Snapshot, State, StateOptions};
use pteron_runtime::{CacheSpec, Error, Result};
use pteron_tensor::HostTensor;
use std::any::Any;
use std::sync::Arc;

/// The state of one session.
pub(crate) struct MlxState {
    mlx: Mlx,
    graphs: Arc<ProgramGraphs>,
    /// `None` once the old state was given up for a new one that did not come.
    committed: Option<Contents>,
    /// What runs since the last commit have made of it.
    pending: Option<Contents>,
}

/// Everything, at one moment.
#[derive(Clone)]
pub(crate) struct Contents {
    /// By graph, in the graph's order.
    pub(crate) buffers: Vec<Vec<Kept>>,
    pub(crate) effects: Effects<Arc<Shared>>,
    /// The last run that made something of it, which may be under way.
    pub(crate) flight: Option<Arc<Flight>>,
}

impl Contents {
    fn bytes(&self) -> u64 {
        let buffers = self.buffers.iter().flatten().map(Kept::bytes);
        buffers.sum::<u64>() + self.effects.cache.as_ref().map_or(0, Cache::bytes)
    }

    /// Bytes of the buffers of all other graphs.
    pub(crate) fn bytes_outside(&self, graph: GraphId) -> u64 {
        let others = self.buffers.iter().enumerate().filter(|(index, _)| *index != graph.0);
        others.flat_map(|(_, buffers)| buffers).map(Kept::bytes).sum()
    }
}

struct MlxSnapshot {
    graphs: Arc<ProgramGraphs>,
    contents: Contents,
}

impl Snapshot for MlxSnapshot {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl MlxState {
    /// Zeroed buffers, an empty cache, the generator at its seed.
    pub(crate) fn new(
        mlx: Mlx,
        graphs: Arc<ProgramGraphs>,
        options: &StateOptions,
        limits: &Limits,
    ) -> Result<MlxState> {
        let mut total = 0u64;
        let mut buffers = Vec::with_capacity(graphs.graphs.len());
        for graph in &graphs.graphs {
            let main = &graph.module.main;
            let mut zeros = Vec::with_capacity(main.buffers.len());
            for buffer in &main.buffers {
                let Some(ty) = main.ty(buffer.value).and_then(known) else {
                    return Err(Error::Invalid(format!("the size of buffer `{}` is not known", buffer.name)));
                };
                total = total.saturating_add((ty.count() as u64).saturating_mul(ty.dtype.size() as u64));
                if total > limits.live_bytes {
                    let (what, limit) = ("the state of a session", "live_bytes");
                    return Err(Error::Limit { what, limit, found: total, allowed: limits.live_bytes });
                }
                let tensor = HostTensor::zeros(ty.dtype, ty.shape.clone())?;
                zeros.push(Kept::new(mlx.place(&tensor)?, ty));
            }
            buffers.push(zeros);
        }
        if let Some(spec) = &options.cache {
            let cells = (spec.layers.len() as u64).saturating_mul(longest(spec) as u64);
            if cells > limits.cache_cells {
                let (what, limit) = ("layers times positions of the cache", "cache_cells");
                return Err(Error::Limit { what, limit, found: cells, allowed: limits.cache_cells });
            }
        }
        let cache = options.cache.as_ref().map(Cache::new).transpose();
        let cache = cache.map_err(|error| Error::Cache(error.to_string()))?;
        let effects = Effects { cache, key: Arc::new(key_of(&mlx, options.seed)?) };
        Ok(MlxState {
            mlx,
            graphs,
            committed: Some(Contents { buffers, effects, flight: None }),
            pending: None,
        })
    }

    /// Whether it is a state of this program.
    pub(crate) fn is_of(&self, graphs: &Arc<ProgramGraphs>) -> bool {
        Arc::ptr_eq(&self.graphs, graphs)
    }

    /// What a run starts from.
    pub(crate) fn begin(&self) -> Result<Contents> {
        match &self.pending {
            Some(pending) => Ok(pending.clone()),
            None => self.committed().cloned(),
        }
    }

    /// Lets go of the old state, so that the new one may take its memory.
    pub(crate) fn give_up(&mut self) {
        self.committed = None;
        self.pending = None;
    }

    /// What a run has made, computed or handed over.
    pub(crate) fn finish(&mut self, contents: Contents) {
        self.pending = Some(contents);
    }

    fn committed(&self) -> Result<&Contents> {
        let is_sound =
            |contents: &&Contents| !contents.flight.as_ref().is_some_and(|flight| flight.has_failed());
        self.committed.as_ref().filter(is_sound).ok_or_else(|| {
            Error::Invalid(
                "the session's state was lost when a run failed while MLX computed it in place: reset the session \
                 or restore a snapshot"
                    .into(),
            )
        })
    }

    fn committed_mut(&mut self) -> Result<&mut Contents> {
        self.committed()?;
        self.committed.as_mut().ok_or_else(|| Error::Invalid("there is no state".into()))
    }
}

/// Positions of the largest layer.
fn longest(spec: &CacheSpec) -> usize {
    let windows = spec.layers.iter().filter_map(|layer| layer.window);
    let ring = windows.max().map_or(0, |window| window.saturating_add(spec.max_write.unwrap_or(window)));
    spec.capacity.max(ring)
}

/// The type of a tensor whose sizes are all known.
pub(crate) fn known(ty: &Type) -> Option<ArrayType> {
    match ty {
        Type::Tensor(tensor) => Some(ArrayType { dtype: tensor.dtype, shape: tensor.known_shape()? }),
        _ => None,
    }
}

impl State for MlxState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        let (graph, index) = self.graphs.find_buffer(buffer)?;
        Ok(self.committed()?.buffers[graph.0][index].array.to_host()?)
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        let (graph, index) = self.graphs.find_buffer(buffer)?;
        let mlx = self.mlx;
        let slot = &mut self.committed_mut()?.buffers[graph.0][index];
        let given = ArrayType { dtype: value.dtype(), shape: value.shape().to_vec() };
        if *slot.ty != given {
            let (wanted, given) = (slot.ty.to_string(), given.to_string());
            return Err(Error::BufferType { buffer: buffer.clone(), wanted, given });
        }
        *slot = Kept::new(mlx.place(value)?, given);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            self.committed = Some(pending);
        }
        self.committed().map(drop)
    }

    fn rollback(&mut self) {
        self.pending = None;
    }

    fn rewind_to(&mut self, tokens: usize) -> Result<Rewind> {
        let mut written = self.graphs.graphs.iter().flat_map(|graph| {
            let buffers = graph.module.main.buffers.iter().filter(|buffer| buffer.update != buffer.value);
            buffers.map(move |buffer| (graph, &buffer.name))
        });
        if let Some((graph, name)) = written.next() {
            let reason = format!(
                "buffer `{name}` of method `{}` holds what all tokens so far have made of it",
                graph.method
            );
            return Ok(Rewind::Replay { from: 0, reason });
        }
        drop(written);
        let Some(cache) = &mut self.committed_mut()?.effects.cache else { return Ok(Rewind::Done) };
        if tokens > cache.len() {
            return Err(Error::Cache(format!("it holds {} positions, not {tokens}", cache.len())));
        }
        Ok(match cache.rewind(tokens) {
            Ok(()) => Rewind::Done,
            Err(reason) => Rewind::Replay { from: 0, reason },
        })
    }

    fn cached_tokens(&self) -> Option<usize> {
        self.committed.as_ref()?.effects.cache.as_ref().map(Cache::len)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(MlxSnapshot { graphs: self.graphs.clone(), contents: self.committed()?.clone() }))
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        match snapshot.as_any().downcast_ref::<MlxSnapshot>() {
            Some(snapshot) if Arc::ptr_eq(&snapshot.graphs, &self.graphs) => {
                self.committed = Some(snapshot.contents.clone());
                self.pending = None;
                Ok(())
            }
            _ => Err(Error::ForeignSnapshot),
        }
    }

    fn bytes(&self) -> u64 {
        self.committed.as_ref().map_or(0, Contents::bytes)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
