//! What a session owns: the buffers of every graph, the off-graph cache and the effects. Buffers are written in place; a
//! log of what was there makes a run take effect as a whole or not at all. A snapshot shares the buffers, and the next run
//! that would write one copies it first.

use crate::cache::Cache;
use crate::memory::Memory;
use crate::pages::PageStore;
use crate::undo::{BufferPlace, Undo};
use pteron_format::Limits;
use pteron_ir::{TensorType, Type};
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_runtime::backend::{BufferId, GraphId, ProgramGraphs, Rewind, Snapshot, State, StateOptions};
use pteron_runtime::reference::{Argument, Effects};
use pteron_runtime::{Error, Result};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;
use std::sync::Arc;

/// The state of one session.
pub(crate) struct CpuState {
    graphs: Arc<ProgramGraphs>,
    pool: Arc<Pool>,
    /// By graph, in the graph's order.
    pub(crate) buffers: Vec<Vec<Arc<Memory>>>,
    pub(crate) undo: Undo,
    /// The off-graph cache, where the session has one.
    pub(crate) cache: Option<Cache>,
    pub(crate) committed: Effects,
    /// What runs since the last commit have made of the effects.
    pub(crate) pending: Option<Effects>,
    /// Where the inputs of a run are held; empty between runs.
    pub(crate) arguments: Vec<Argument>,
}

struct CpuSnapshot {
    graphs: Arc<ProgramGraphs>,
    buffers: Vec<Vec<Arc<Memory>>>,
    cache: Option<Cache>,
    effects: Effects,
}

impl Snapshot for CpuSnapshot {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The type of a buffer, which is always known.
fn buffer_type(graphs: &ProgramGraphs, graph: usize, buffer: usize) -> Option<(DType, Vec<usize>)> {
    let main = &graphs.graphs.get(graph)?.module.main;
    match main.ty(main.buffers.get(buffer)?.value)? {
        Type::Tensor(tensor @ TensorType { dtype, .. }) => Some((*dtype, tensor.known_shape()?)),
        _ => None,
    }
}

impl CpuState {
    /// Zeroed buffers, an empty cache, the generator at its seed.
    pub(crate) fn new(
        graphs: Arc<ProgramGraphs>,
        (pool, path, pages): (Arc<Pool>, Path, Arc<PageStore>),
        options: &StateOptions,
        limits: &Limits,
    ) -> Result<CpuState> {
        let mut total = 0u64;
        let mut buffers = Vec::with_capacity(graphs.graphs.len());
        for (number, graph) in graphs.graphs.iter().enumerate() {
            let main = &graph.module.main;
            let zeroed = main.buffers.iter().enumerate().map(|(index, buffer)| {
                let bytes = buffer_type(&graphs, number, index).and_then(|(dtype, shape)| {
                    pteron_tensor::element_count(&shape)?.checked_mul(dtype.size())
                });
                let Some(bytes) = bytes else {
                    return Err(Error::Invalid(format!("the size of buffer `{}` is not known", buffer.name)));
                };
                total = total.saturating_add(bytes as u64);
                if total > limits.live_bytes {
                    let (what, limit) = ("the state of a session", "live_bytes");
                    return Err(Error::Limit { what, limit, found: total, allowed: limits.live_bytes });
                }
                Ok(Arc::new(Memory::zeroed(bytes)))
            });
            buffers.push(zeroed.collect::<Result<Vec<_>>>()?);
        }
        Ok(CpuState {
            graphs,
            pool,
            buffers,
            undo: Undo::default(),
            cache: options.cache.as_ref().map(|spec| Cache::new(spec, path, pages, limits)).transpose()?,
            committed: Effects::new(&StateOptions { cache: None, ..options.clone() }, limits)?,
            pending: None,
            arguments: Vec::new(),
        })
    }

    /// Whether it is a state of this program.
    pub(crate) fn is_of(&self, graphs: &Arc<ProgramGraphs>) -> bool {
        Arc::ptr_eq(&self.graphs, graphs)
    }

    fn find(&self, id: &BufferId) -> Result<(usize, usize)> {
        let (graph, buffer) = self.graphs.find_buffer(id)?;
        Ok((graph.0, buffer))
    }
}

impl State for CpuState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        let (graph, index) = self.find(buffer)?;
        let (dtype, shape) =
            buffer_type(&self.graphs, graph, index).ok_or_else(|| Error::UnknownBuffer(buffer.clone()))?;
        let bytes = pteron_tensor::Bytes::copy_of(self.buffers[graph][index].bytes());
        Ok(HostTensor::new(dtype, shape, bytes)?)
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        let (graph, index) = self.find(buffer)?;
        let (dtype, shape) =
            buffer_type(&self.graphs, graph, index).ok_or_else(|| Error::UnknownBuffer(buffer.clone()))?;
        if (dtype, shape.as_slice()) != (value.dtype(), value.shape()) {
            return Err(Error::BufferType {
                buffer: buffer.clone(),
                wanted: format!("{dtype} {shape:?}"),
                given: format!("{} {:?}", value.dtype(), value.shape()),
            });
        }
        // What runs wrote before, nobody can miss any more: a rollback leaves the new contents.
        self.undo.forget_buffer(BufferPlace { graph: GraphId(graph), buffer: index });
        match Arc::get_mut(&mut self.buffers[graph][index]) {
            Some(memory) => memory.bytes_mut().copy_from_slice(value.bytes()),
            None => self.buffers[graph][index] = Arc::new(Memory::copy_of(value.bytes())),
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.undo.forget();
        if let Some(cache) = &mut self.cache {
            cache.commit();
        }
        if let Some(pending) = self.pending.take() {
            self.committed = pending;
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.undo.roll_back(&self.pool, &mut self.buffers);
        if let Some(cache) = &mut self.cache {
            cache.roll_back();
        }
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
        let Some(cache) = &mut self.cache else { return Ok(Rewind::Done) };
        if tokens > cache.len() {
            return Err(Error::Cache(format!("it holds {} positions, not {tokens}", cache.len())));
        }
        Ok(match cache.rewind(tokens) {
            Ok(()) => Rewind::Done,
            Err(reason) => Rewind::Replay { from: 0, reason },
        })
    }

    fn cached_tokens(&self) -> Option<usize> {
        self.cache.as_ref().map(Cache::len)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(CpuSnapshot {
            graphs: self.graphs.clone(),
            buffers: self.buffers.clone(),
            cache: self.cache.clone().map(Cache::committed),
            effects: self.pending.as_ref().unwrap_or(&self.committed).clone(),
        }))
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        match snapshot.as_any().downcast_ref::<CpuSnapshot>() {
            Some(snapshot) if Arc::ptr_eq(&snapshot.graphs, &self.graphs) => {
                self.undo.forget();
                self.buffers = snapshot.buffers.clone();
                self.cache = snapshot.cache.clone();
                self.committed = snapshot.effects.clone();
                self.pending = None;
                Ok(())
            }
            _ => Err(Error::ForeignSnapshot),
        }
    }

    fn bytes(&self) -> u64 {
        let buffers: u64 = self.buffers.iter().flatten().map(|memory| memory.len() as u64).sum();
        let cache = self.cache.as_ref().map_or(0, Cache::bytes);
        buffers + cache + self.undo.capacity() as u64
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
