//! What a session owns in the reference backend: buffers of every graph, the off-graph cache and the random
//! generator. All of it is copy on write, so a snapshot costs what is written after it.

use super::effects::Effects;
use super::interpret::byte_size;
use crate::backend::{BufferId, GraphId, ProgramGraphs, Rewind, Snapshot, State, StateOptions};
use crate::value::describe_tensor;
use crate::{Error, Result};
use pteron_format::Limits;
use pteron_ir::Type;
use pteron_tensor::HostTensor;
use std::any::Any;
use std::sync::Arc;

/// The state of one session.
pub(super) struct ReferenceState {
    graphs: Arc<ProgramGraphs>,
    /// By graph: the program's constants, counted apart so that sessions on several threads share no counter.
    constants: Vec<Arc<[HostTensor]>>,
    committed: Contents,
    /// What runs since the last commit have made of it.
    pending: Option<Contents>,
}

/// Everything, at one moment.
#[derive(Clone)]
pub(super) struct Contents {
    /// By graph, in the graph's order.
    pub(super) buffers: Vec<Vec<HostTensor>>,
    pub(super) effects: Effects,
}

struct ReferenceSnapshot {
    graphs: Arc<ProgramGraphs>,
    contents: Contents,
}

impl Snapshot for ReferenceSnapshot {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl ReferenceState {
    /// Zeroed buffers, an empty cache, the generator at its seed.
    pub(super) fn new(
        graphs: Arc<ProgramGraphs>,
        constants: Vec<Arc<[HostTensor]>>,
        options: &StateOptions,
        limits: &Limits,
    ) -> Result<ReferenceState> {
        let mut total = 0u64;
        let mut buffers = Vec::with_capacity(graphs.graphs.len());
        for graph in &graphs.graphs {
            let main = &graph.module.main;
            let zeros = main.buffers.iter().map(|buffer| {
                let Some((dtype, shape)) = main.ty(buffer.value).and_then(known) else {
                    return Err(Error::Invalid(format!("the size of buffer `{}` is not known", buffer.name)));
                };
                total = total.saturating_add(byte_size(dtype, &shape).unwrap_or(u64::MAX));
                if total > limits.live_bytes {
                    let (what, limit) = ("the state of a session", "live_bytes");
                    return Err(Error::Limit { what, limit, found: total, allowed: limits.live_bytes });
                }
                Ok(HostTensor::zeros(dtype, shape)?)
            });
            buffers.push(zeros.collect::<Result<Vec<_>>>()?);
        }
        let effects = Effects::new(options, limits)?;
        Ok(ReferenceState { graphs, constants, committed: Contents { buffers, effects }, pending: None })
    }

    /// Whether it is a state of this program.
    pub(super) fn is_of(&self, graphs: &Arc<ProgramGraphs>) -> bool {
        Arc::ptr_eq(&self.graphs, graphs)
    }

    /// The constants of a graph.
    pub(super) fn constants(&self, graph: GraphId) -> Arc<[HostTensor]> {
        self.constants.get(graph.0).cloned().unwrap_or_default()
    }

    /// Bytes of the buffers of all other graphs.
    pub(super) fn bytes_outside(&self, graph: GraphId) -> u64 {
        let others = self.committed.buffers.iter().enumerate().filter(|(index, _)| *index != graph.0);
        others.flat_map(|(_, buffers)| buffers).map(|tensor| tensor.bytes().len() as u64).sum()
    }

    /// What a run may change.
    pub(super) fn pending(&mut self) -> &mut Contents {
        self.pending.get_or_insert_with(|| self.committed.clone())
    }
}

fn known(ty: &Type) -> Option<(pteron_tensor::DType, Vec<usize>)> {
    match ty {
        Type::Tensor(tensor) => Some((tensor.dtype, tensor.known_shape()?)),
        _ => None,
    }
}

impl State for ReferenceState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        let (graph, index) = self.graphs.find_buffer(buffer)?;
        Ok(self.committed.buffers[graph.0][index].clone())
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        let (graph, index) = self.graphs.find_buffer(buffer)?;
        let slot = &mut self.committed.buffers[graph.0][index];
        if (slot.dtype(), slot.shape()) != (value.dtype(), value.shape()) {
            return Err(Error::BufferType {
                buffer: buffer.clone(),
                wanted: describe_tensor(slot.dtype(), slot.shape()),
                given: describe_tensor(value.dtype(), value.shape()),
            });
        }
        *slot = value.clone();
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            self.committed = pending;
        }
        Ok(())
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
        self.committed.effects.rewind_to(tokens)
    }

    fn cached_tokens(&self) -> Option<usize> {
        self.committed.effects.cached_tokens()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(ReferenceSnapshot { graphs: self.graphs.clone(), contents: self.committed.clone() }))
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        match snapshot.as_any().downcast_ref::<ReferenceSnapshot>() {
            Some(snapshot) if Arc::ptr_eq(&snapshot.graphs, &self.graphs) => {
                self.committed = snapshot.contents.clone();
                self.pending = None;
                Ok(())
            }
            _ => Err(Error::ForeignSnapshot),
        }
    }

    fn bytes(&self) -> u64 {
        let buffers = self.committed.buffers.iter().flatten().map(|tensor| tensor.bytes().len() as u64);
        buffers.sum::<u64>() + self.committed.effects.bytes()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
