//! Which tensors of the program outlive a call. A file says so only between the lines:
//!
//! - a planned tensor with initial contents is a buffer;
//! - a planned tensor that a method reads before it writes it is one too: its memory is its own, so what the
//!   last call left there (`aten::copy_` at the end) is what the next call reads;
//! - where all planned methods have a second arena of equal size, the exporter was asked to share mutable
//!   buffers: there a place in the arena is a buffer of all methods.

use crate::backend::{BufferId, Scope};
use crate::{Error, Result};
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_format::pte::{EValue, ExecutionPlan, Tensor};
use pteron_tensor::{DType, HostTensor};
use std::collections::{BTreeMap, HashSet};

/// A buffer that the session keeps for the program itself.
#[derive(Clone, Debug)]
pub(crate) struct ProgramBuffer {
    pub(crate) id: BufferId,
    /// What a new session has in it.
    pub(crate) initial: HostTensor,
}

/// The buffers found so far.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) list: Vec<ProgramBuffer>,
    /// Numbers of shared buffers, by offset.
    shared: BTreeMap<u64, usize>,
    bytes: u64,
}

/// The arena whose places all methods share, as `memory_id` counts.
const SHARED_ARENA: u32 = 2;

/// Whether all planned methods share their second arena. Tensors of an arena that is only planned overlap in
/// time; buffers never do, so one overlap shows that it is not shared.
pub(super) fn shares_arena(plans: &[&ExecutionPlan]) -> bool {
    let planned: Vec<_> = plans.iter().filter(|plan| plan.non_const_buffer_sizes.len() > 1).collect();
    let size = |plan: &ExecutionPlan| plan.non_const_buffer_sizes.get(SHARED_ARENA as usize).copied();
    let Some(first) = planned.first().and_then(|plan| size(plan)) else { return false };
    if planned.len() < 2 || planned.iter().any(|plan| size(plan) != Some(first)) {
        return false;
    }
    let mut places: BTreeMap<u64, (u64, i8, Vec<i32>)> = BTreeMap::new();
    for tensor in planned.iter().flat_map(|plan| plan.values.iter()).filter_map(in_shared_arena) {
        let Some(offset) = place(tensor) else { continue };
        let here = (tensor.byte_len().unwrap_or(u64::MAX), tensor.scalar_type.code(), tensor.sizes.to_vec());
        if *places.entry(offset).or_insert_with(|| here.clone()) != here {
            return false;
        }
    }
    let mut end = 0;
    places.iter().all(|(&offset, (bytes, _, _))| {
        let apart = offset >= end;
        end = offset.saturating_add(*bytes);
        apart
    })
}

fn in_shared_arena(value: &EValue) -> Option<&Tensor> {
    match value {
        EValue::Tensor(tensor) if place(tensor).is_some() => Some(tensor),
        _ => None,
    }
}

/// The offset in the shared arena.
pub(super) fn place(tensor: &Tensor) -> Option<u64> {
    let details = tensor.allocation_info.as_ref()?;
    (details.memory_id == SHARED_ARENA).then(|| details.offset())
}

impl Buffers {
    /// The number of a shared buffer; the first method that mentions it decides how it starts.
    pub(super) fn shared(
        &mut self,
        offset: u64,
        (dtype, sizes): (DType, &[usize]),
        initial: Option<HostTensor>,
        limits: &Limits,
    ) -> Result<usize> {
        if let Some(&number) = self.shared.get(&offset) {
            if let Some(initial) = initial {
                self.list[number].initial = initial;
            }
            return Ok(number);
        }
        let id = BufferId { scope: Scope::Shared, delegate: None, name: format!("arena2+{offset}") };
        let number = self.add(id, (dtype, sizes), initial, limits)?;
        self.shared.insert(offset, number);
        Ok(number)
    }

    /// A new buffer of one method.
    pub(super) fn own(
        &mut self,
        method: &str,
        name: String,
        (dtype, sizes): (DType, &[usize]),
        initial: Option<HostTensor>,
        limits: &Limits,
    ) -> Result<usize> {
        let id = BufferId { scope: Scope::Method(method.to_owned()), delegate: None, name };
        self.add(id, (dtype, sizes), initial, limits)
    }

    fn add(
        &mut self,
        id: BufferId,
        (dtype, sizes): (DType, &[usize]),
        initial: Option<HostTensor>,
        limits: &Limits,
    ) -> Result<usize> {
        let initial = match initial {
            Some(initial) => initial,
            None => {
                let bytes =
                    pteron_tensor::element_count(sizes).map(|count| count as u64 * dtype.size() as u64);
                self.bytes = self.bytes.saturating_add(bytes.unwrap_or(u64::MAX));
                if self.bytes > limits.live_bytes {
                    let (what, limit, found) = ("the program's buffers", "live_bytes", self.bytes);
                    return Err(Error::Limit { what, limit, found, allowed: limits.live_bytes });
                }
                HostTensor::zeros(dtype, sizes.to_vec())?
            }
        };
        self.list.push(ProgramBuffer { id, initial });
        Ok(self.list.len() - 1)
    }
}

/// How the values of a method are used: by value, whether the first use is a read. Lists count for their
/// members, once.
#[derive(Debug, Default)]
pub(super) struct Uses {
    first: IndexMap<usize, bool>,
    lists: HashSet<usize>,
}

impl Uses {
    /// Notes a use.
    pub(super) fn note(&mut self, value: usize, read: bool) {
        self.first.entry(value).or_insert(read);
    }

    /// Whether a list is met for the first time.
    pub(super) fn is_new_list(&mut self, value: usize) -> bool {
        self.lists.insert(value)
    }

    /// Whether a value is read before it is written.
    pub(super) fn read_first(&self, value: usize) -> bool {
        self.first.get(&value).copied().unwrap_or(false)
    }

    /// Whether a value is used at all.
    pub(super) fn is_used(&self, value: usize) -> bool {
        self.first.contains_key(&value)
    }
}
