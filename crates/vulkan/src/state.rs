//! What a session owns on the device: the buffers of all graphs in one piece of memory, the off-graph cache, and what was recorded
//! for its runs. Runs write in place; what was there before is kept beside it until a commit.

use crate::cache::{CacheSnapshot, DeviceCache};
use crate::ffi::{ALIGNMENT, Buffer, Device, Purpose, Saved};
use crate::outcome::Outcome;
use crate::replay::Recorded;
use pteron_ir::Type;
use pteron_runtime::backend::{BufferId, GraphId, ProgramGraphs, Rewind, Snapshot, State};
use pteron_runtime::{CacheSpec, Error, Result};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;
use std::sync::Arc;

/// Where a buffer lies.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
}

/// Where all buffers of a program lie, by graph.
pub(crate) struct Slots {
    pub(crate) by_graph: Vec<Vec<Slot>>,
    pub(crate) bytes: u64,
}

impl Slots {
    pub(crate) fn of(graphs: &ProgramGraphs, live_bytes: u64) -> Result<Slots> {
        let (mut by_graph, mut bytes) = (Vec::new(), 0u64);
        for graph in &graphs.graphs {
            let main = &graph.module.main;
            let mut slots = Vec::new();
            for buffer in &main.buffers {
                let Some((dtype, sizes)) = main.ty(buffer.value).and_then(known) else {
                    return Err(Error::Invalid(format!("the size of buffer `{}` is not known", buffer.name)));
                };
                let size = pteron_tensor::element_count(&sizes)
                    .and_then(|count| count.checked_mul(dtype.size()))
                    .map_or(u64::MAX, |bytes| bytes as u64);
                if bytes.saturating_add(size) > live_bytes {
                    let (what, limit) = ("the state of a session", "live_bytes");
                    let found = bytes.saturating_add(size);
                    return Err(Error::Limit { what, limit, found, allowed: live_bytes });
                }
                slots.push(Slot { offset: bytes, bytes: size, dtype, sizes });
                bytes += size.max(1).next_multiple_of(ALIGNMENT);
            }
            by_graph.push(slots);
        }
        Ok(Slots { by_graph, bytes })
    }
}

fn known(ty: &Type) -> Option<(DType, Vec<usize>)> {
    match ty {
        Type::Tensor(tensor) => Some((tensor.dtype, tensor.known_shape()?)),
        _ => None,
    }
}

/// The state of one session.
pub(crate) struct VulkanState {
    graphs: Arc<ProgramGraphs>,
    pub(crate) slots: Arc<Slots>,
    /// None where no graph has a buffer.
    pub(crate) buffers: Option<Buffer>,
    /// What was in them at the last commit, while runs have changed them since.
    backup: Option<Buffer>,
    is_changed: bool,
    pub(crate) cache: Option<DeviceCache>,
    pub(crate) recorded: Recorded,
    /// Runs since the last commit that were handed over.
    pending: Vec<Arc<Outcome>>,
    /// Those before it that may still be under way, or have failed.
    under_way: Vec<Arc<Outcome>>,
    /// Set when what was there cannot be had back.
    gone: Option<String>,
}

struct VulkanSnapshot {
    graphs: Arc<ProgramGraphs>,
    buffers: Option<Buffer>,
    cache: Option<CacheSnapshot>,
}

impl Snapshot for VulkanSnapshot {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl VulkanState {
    pub(crate) fn new(
        device: &Arc<Device>,
        graphs: Arc<ProgramGraphs>,
        slots: Arc<Slots>,
        cache: Option<&CacheSpec>,
    ) -> Result<VulkanState> {
        let buffers = match slots.bytes {
            0 => None,
            bytes => {
                let buffers = Buffer::new(device, bytes, Purpose::Compute, "the buffers of a session")?;
                buffers.clear(0, bytes)?;
                Some(buffers)
            }
        };
        Ok(VulkanState {
            graphs,
            slots,
            buffers,
            backup: None,
            is_changed: false,
            cache: cache.map(|spec| DeviceCache::new(device, spec)),
            recorded: Recorded::default(),
            pending: Vec::new(),
            under_way: Vec::new(),
            gone: None,
        })
    }

    /// Whether it is a state of this program.
    pub(crate) fn is_of(&self, graphs: &Arc<ProgramGraphs>) -> bool {
        Arc::ptr_eq(&self.graphs, graphs)
    }

    /// An error where it is gone.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(error) = self.under_way.iter().find_map(|outcome| outcome.known_fault()) {
            return Err(Error::Invalid(format!("the session is gone: {error}")));
        }
        self.gone.as_ref().map_or(Ok(()), |reason| Err(Error::Invalid(reason.clone())))
    }

    /// Whether nothing is pending that a rollback would take back.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending.is_empty() && !self.is_changed && self.cache.as_ref().is_none_or(DeviceCache::is_settled)
    }

    /// Goes on from what a run will have made.
    pub(crate) fn follows(&mut self, outcome: Arc<Outcome>) {
        self.pending.push(outcome);
    }

    /// The copy that a run which changes buffers begins with; `None` where what they held is kept already.
    pub(crate) fn saving(&mut self, device: &Arc<Device>) -> Result<Option<Saved>> {
        let Some(buffers) = self.buffers.as_ref().filter(|_| !self.is_changed) else { return Ok(None) };
        if self.backup.is_none() {
            let what = "what a session held before a run";
            self.backup = Some(Buffer::new(device, buffers.bytes, Purpose::Compute, what)?);
        }
        Ok(self.backup.as_ref().map(|backup| Saved::new(buffers, backup)))
    }

    /// Notes that such a copy was submitted, or could not be.
    pub(crate) fn saved(&mut self, failed: Option<&Error>) {
        self.is_changed = true;
        if let Some(error) = failed {
            // Whether the copy was made is not known.
            self.gone = Some(format!("the session is gone: {error}"));
        }
    }

    /// What the last commit left.
    fn committed(&self) -> Option<&Buffer> {
        if self.is_changed { self.backup.as_ref() } else { self.buffers.as_ref() }
    }

    fn slot(&self, buffer: &BufferId) -> Result<&Slot> {
        let (GraphId(graph), index) = self.graphs.find_buffer(buffer)?;
        let slot = self.slots.by_graph.get(graph).and_then(|slots| slots.get(index));
        slot.ok_or_else(|| Error::UnknownBuffer(buffer.clone()))
    }
}

impl State for VulkanState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        self.check()?;
        let slot = self.slot(buffer)?;
        let mut tensor = HostTensor::zeros(slot.dtype, slot.sizes.clone())?;
        if let Some(held) = self.committed() {
            held.read(slot.offset, tensor.bytes_mut())?;
        }
        Ok(tensor)
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        self.check()?;
        let slot = self.slot(buffer)?;
        if (slot.dtype, slot.sizes.as_slice()) != (value.dtype(), value.shape()) {
            return Err(Error::BufferType {
                buffer: buffer.clone(),
                wanted: format!("{} {:?}", slot.dtype, slot.sizes),
                given: format!("{} {:?}", value.dtype(), value.shape()),
            });
        }
        if let Some(held) = self.committed() {
            held.write(slot.offset, value.bytes())?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.check()?;
        self.is_changed = false;
        // What ended well needs no memory.
        self.under_way.retain(|outcome| !outcome.flight.has_landed() || outcome.known_fault().is_some());
        self.under_way.append(&mut self.pending);
        if let Some(cache) = &mut self.cache {
            cache.commit();
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.pending.clear();
        if let Some(cache) = &mut self.cache {
            cache.rollback();
        }
        if !self.is_changed {
            return;
        }
        self.is_changed = false;
        if let (Some(backup), Some(buffers)) = (&self.backup, &self.buffers)
            && let Err(error) = backup.copy_to(0, buffers, 0, buffers.bytes)
        {
            self.gone = Some(format!("the session is gone: {error}"));
        }
    }

    fn rewind_to(&mut self, tokens: usize) -> Result<Rewind> {
        self.check()?;
        for graph in &self.graphs.graphs {
            let mut buffers = graph.module.main.buffers.iter();
            if let Some(buffer) = buffers.find(|buffer| buffer.update != buffer.value) {
                let (name, method) = (&buffer.name, &graph.method);
                let reason = format!(
                    "buffer `{name}` of method `{method}` holds what all tokens so far have made of it"
                );
                return Ok(Rewind::Replay { from: 0, reason });
            }
        }
        self.cache.as_mut().map_or(Ok(Rewind::Done), |cache| cache.rewind(tokens))
    }

    fn cached_tokens(&self) -> Option<usize> {
        self.cache.as_ref().map(DeviceCache::len)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.check()?;
        let buffers = self.committed().map(|buffers| buffers.duplicate("a snapshot")).transpose()?;
        let cache = self.cache.as_ref().map(DeviceCache::snapshot);
        Ok(Arc::new(VulkanSnapshot { graphs: self.graphs.clone(), buffers, cache }))
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        let snapshot = snapshot.as_any().downcast_ref::<VulkanSnapshot>();
        let Some(snapshot) = snapshot.filter(|snapshot| Arc::ptr_eq(&snapshot.graphs, &self.graphs)) else {
            return Err(Error::ForeignSnapshot);
        };
        if let (Some(from), Some(to)) = (&snapshot.buffers, &self.buffers) {
            from.copy_to(0, to, 0, to.bytes)?;
        }
        if let (Some(from), Some(to)) = (&snapshot.cache, &mut self.cache) {
            to.restore(from);
        }
        self.is_changed = false;
        self.gone = None;
        self.pending.clear();
        self.under_way.clear();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let buffers = self.buffers.as_ref().map_or(0, |_| self.slots.bytes);
        buffers + self.cache.as_ref().map_or(0, DeviceCache::bytes)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
