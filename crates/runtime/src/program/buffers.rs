//! Which places of planned memory outlive a call. A file says so only between the lines:
//!
//! - a planned tensor with initial contents is a buffer;
//! - a place that a method reads before it writes it is one too: its memory is its own, so what the last call
//!   left there (`aten::copy_` at the end) is what the next call reads;
//! - where all planned methods have a second arena of equal size, the exporter was asked to share mutable
//!   buffers: there a place in the arena is a buffer of all methods.

use super::method::{Method, ValuePlan};
use super::tensors::{Place, TensorPlan};
use crate::backend::{BufferId, Scope};
use crate::{Error, Result};
use pteron_format::Limits;
use pteron_format::pte::{EValue, ExecutionPlan, Tensor};
use pteron_tensor::HostTensor;
use std::collections::{BTreeMap, HashMap, HashSet};

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
    /// Numbers of shared buffers.
    shared: BTreeMap<Place, usize>,
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
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    for tensor in planned.iter().flat_map(|plan| plan.values.iter()).filter_map(tensor_of) {
        let details = tensor.allocation_info.as_ref().filter(|details| details.memory_id == SHARED_ARENA);
        let Some(offset) = details.map(|details| details.offset()) else { continue };
        let bytes = tensor.byte_len().unwrap_or(u64::MAX);
        if *places.entry(offset).or_insert(bytes) != bytes {
            return false;
        }
    }
    let mut end = 0;
    places.iter().all(|(&offset, bytes)| {
        let apart = offset >= end;
        end = offset.saturating_add(*bytes);
        apart
    })
}

fn tensor_of(value: &EValue) -> Option<&Tensor> {
    match value {
        EValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

impl Buffers {
    /// The buffers of a method, by place. `initial` holds contents that the file gives to planned tensors.
    pub(super) fn find(
        &mut self,
        method: &Method,
        source: &ExecutionPlan,
        shared: bool,
        mut initial: HashMap<usize, HostTensor>,
        limits: &Limits,
    ) -> Result<Vec<(Place, usize)>> {
        let inputs: HashSet<usize> = method.inputs.iter().copied().collect();
        let read_first = read_first(method);
        let (mut found, mut known, mut names) = (Vec::new(), HashSet::new(), HashSet::new());
        for (number, value) in method.values.iter().enumerate() {
            let ValuePlan::Tensor(plan) = value else { continue };
            let Some(place) = plan.place else { continue };
            let start = initial.remove(&number).filter(|_| !inputs.contains(&number));
            let is_shared = shared && place.arena == SHARED_ARENA;
            if !(is_shared || start.is_some() || read_first.contains(&number)) || plan.bytes() == 0 {
                continue;
            }
            if !known.insert(place) {
                continue;
            }
            let buffer = match self.shared.get(&place).filter(|_| is_shared) {
                Some(&buffer) => {
                    if let Some(start) = start {
                        self.list[buffer].initial = start;
                    }
                    buffer
                }
                None => {
                    let name = source.values.get(number).and_then(tensor_of).and_then(|table| {
                        let name = table.extra_tensor_info.as_ref()?.fully_qualified_name.to_string();
                        (!name.is_empty() && names.insert(name.clone())).then_some(name)
                    });
                    let (scope, name) = match is_shared {
                        true => (Scope::Shared, format!("arena{}+{}", place.arena, place.offset)),
                        false => (
                            Scope::Method(method.name.clone()),
                            name.unwrap_or_else(|| format!("value{number}")),
                        ),
                    };
                    self.add(BufferId { scope, delegate: None, name }, plan, start, limits)?
                }
            };
            if is_shared {
                self.shared.insert(place, buffer);
            }
            found.push((place, buffer));
        }
        Ok(found)
    }

    fn add(
        &mut self,
        id: BufferId,
        plan: &TensorPlan,
        initial: Option<HostTensor>,
        limits: &Limits,
    ) -> Result<usize> {
        let initial = match initial {
            Some(initial) => initial,
            None => {
                self.bytes = self.bytes.saturating_add(plan.bytes());
                if self.bytes > limits.live_bytes {
                    let (what, limit, found) = ("the program's buffers", "live_bytes", self.bytes);
                    return Err(Error::Limit { what, limit, found, allowed: limits.live_bytes });
                }
                HostTensor::zeros(plan.dtype, plan.sizes.clone())?
            }
        };
        self.list.push(ProgramBuffer { id, initial });
        Ok(self.list.len() - 1)
    }
}

/// Values whose place is read before anything is written to it: inputs come first, then the instructions in
/// order, then the outputs are read.
fn read_first(method: &Method) -> HashSet<usize> {
    let place = |value: usize| match &method.values[value] {
        ValuePlan::Tensor(plan) => plan.place,
        _ => None,
    };
    let mut written: HashSet<Place> = method.inputs.iter().filter_map(|&value| place(value)).collect();
    let (mut found, mut lists) = (HashSet::new(), HashSet::new());
    let mut read = |value: usize, written: &HashSet<Place>| {
        let mut one = |value: usize| {
            if place(value).is_some_and(|place| !written.contains(&place)) {
                found.insert(value);
            }
        };
        match &method.values[value] {
            // A list is looked through once: its members are written before it is first used, or never.
            ValuePlan::Tensors(items) if lists.insert(value) => {
                items.iter().flatten().for_each(|&item| one(item))
            }
            ValuePlan::Tensors(_) => {}
            _ => one(value),
        }
    };
    for instruction in method.chains.iter().flatten() {
        instruction.for_each_read(|value| read(value, &written));
        instruction.for_each_written(|value| written.extend(place(value)));
    }
    method.outputs.iter().for_each(|&value| read(value, &written));
    found
}

/// Values that some instruction or output uses, members of lists included.
pub(super) fn used(method: &Method) -> HashSet<usize> {
    let mut used = HashSet::new();
    let mut note = |value: usize| {
        if used.insert(value) {
            match &method.values[value] {
                ValuePlan::Ints(items) => used.extend(items),
                ValuePlan::Tensors(items) => used.extend(items.iter().flatten()),
                _ => {}
            }
        }
    };
    for instruction in method.chains.iter().flatten() {
        instruction.for_each_read(&mut note);
        instruction.for_each_written(&mut note);
    }
    method.outputs.iter().copied().for_each(note);
    used
}
