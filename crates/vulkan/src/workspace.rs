//! What runs of a program compute in. The arena is one, because the device computes one run after the other; what the host writes for
//! a run and reads of it lies in slots, so that a run can be handed over while another is under way.

use crate::error::VulkanError;
use crate::ffi::{Buffer, Device, Flight, Purpose};
use crate::outcome::Outcome;
use pteron_gpu::REPORT_WORDS;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of inputs and of outputs that a slot begins with.
const FIRST_BYTES: u64 = 64 << 10;
/// Outputs of more bytes stay on the device until somebody asks for them.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;
/// Slots: runs under way, and outputs that somebody holds.
const MOST_SLOTS: usize = 16;

/// What a run gives, and a place on the host for it.
pub(crate) struct Outputs {
    pub(crate) buffer: Buffer,
    stage: Mutex<Stage>,
}

/// Made when somebody reads what the host does not see.
#[derive(Default)]
struct Stage {
    buffer: Option<Buffer>,
    /// The run whose outputs it holds, all of them.
    holds: Option<Arc<Outcome>>,
}

impl Outputs {
    pub(crate) fn new(device: &Arc<Device>, bytes: u64) -> Result<Outputs, VulkanError> {
        // A few numbers are written where the host reads them; rows of scores stay, because their greatest is found there.
        let purpose = if bytes > SMALL_BYTES { Purpose::Compute } else { Purpose::Readback };
        let buffer = Buffer::new(device, bytes, purpose, "outputs")?;
        Ok(Outputs { buffer, stage: Mutex::default() })
    }

    /// Reads what a run has left that has landed; where it has left more that will be read, `together` says which run it is and how many
    /// bytes there are, and all of them are brought over at once.
    pub(crate) fn read(
        &self,
        offset: u64,
        bytes: &mut [u8],
        together: Option<(&Arc<Outcome>, u64)>,
    ) -> Result<(), VulkanError> {
        if self.buffer.is_read_in_place(bytes.len()) {
            return self.buffer.read_landed(offset, bytes);
        }
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let Stage { buffer, holds } = &mut *stage;
        let stage = match buffer {
            Some(stage) => stage,
            none => {
                let device = self.buffer.device();
                none.insert(Buffer::new(device, self.buffer.bytes, Purpose::Readback, "outputs on the host")?)
            }
        };
        let Some((run, all)) = together else {
            *holds = None;
            self.buffer.copy_to(offset, stage, 0, bytes.len() as u64)?;
            return stage.read_landed(0, bytes);
        };
        if holds.as_ref().is_none_or(|held| !Arc::ptr_eq(held, run)) {
            *holds = None;
            self.buffer.copy_to(0, stage, 0, all)?;
            *holds = Some(run.clone());
        }
        stage.read_landed(offset, bytes)
    }
}

/// What one run needs besides the arena.
pub(crate) struct Slot {
    pub(crate) inputs: Buffer,
    pub(crate) outputs: Arc<Outputs>,
    pub(crate) report: Arc<Buffer>,
    /// The last run in it.
    pub(crate) flight: Option<Arc<Flight>>,
}

impl Slot {
    fn new(device: &Arc<Device>) -> Result<Slot, VulkanError> {
        Ok(Slot {
            inputs: Buffer::new(device, FIRST_BYTES, Purpose::Upload, "inputs")?,
            outputs: Arc::new(Outputs::new(device, FIRST_BYTES)?),
            report: Arc::new(Buffer::new(device, 4 * REPORT_WORDS as u64, Purpose::Readback, "reports")?),
            flight: None,
        })
    }

    /// Whether nobody holds what its last run gave.
    fn is_let_go(&self) -> bool {
        Arc::strong_count(&self.outputs) == 1
    }

    fn is_free(&self) -> bool {
        self.is_let_go() && self.flight.as_ref().is_none_or(|flight| flight.has_landed())
    }
}

/// The memory of runs. Each part grows to what the largest run so far has needed.
pub(crate) struct Workspace {
    pub(crate) arena: Buffer,
    pub(crate) slots: Vec<Slot>,
}

impl Workspace {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Workspace, VulkanError> {
        let arena = Buffer::new(device, FIRST_BYTES, Purpose::Compute, "the memory of runs")?;
        Ok(Workspace { arena, slots: vec![Slot::new(device)?] })
    }

    /// A slot in which nothing is under way: one that is preferred, if there is one.
    pub(crate) fn slot(
        &mut self,
        device: &Arc<Device>,
        is_preferred: impl Fn(&Slot) -> bool,
    ) -> Result<usize, VulkanError> {
        let free = |slot: &Slot| slot.is_free();
        let mut found = self.slots.iter().position(|slot| is_preferred(slot) && free(slot));
        found = found.or_else(|| self.slots.iter().position(free));
        if let Some(at) = found {
            return Ok(at);
        }
        if self.slots.len() < MOST_SLOTS {
            self.slots.push(Slot::new(device)?);
            return Ok(self.slots.len() - 1);
        }
        // The one whose run is the first to end; outputs that somebody holds are theirs.
        let at = self.slots.iter().position(Slot::is_let_go).unwrap_or(0);
        let slot = &mut self.slots[at];
        if let Some(flight) = slot.flight.take() {
            let _ = flight.wait();
        }
        if !slot.is_let_go() {
            slot.outputs = Arc::new(Outputs::new(device, slot.outputs.buffer.bytes)?);
        }
        Ok(at)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let slots = self.slots.iter().map(|slot| slot.inputs.bytes + slot.outputs.buffer.bytes);
        self.arena.bytes + slots.sum::<u64>()
    }
}
