//! What is kept for a plan from run to run: where every value lies now, and the numbers read from data.

use crate::constants::Constants;
use crate::memory::{Memory, Region};
use pteron_plan::{Layout, Plan, Storage};
use pteron_tensor::Scalar;

// A view of every layout can be made.
const _: () = assert!(pteron_plan::MAX_RANK == pteron_kernels::view::MAX_RANK);

/// Where a tensor lies.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) data: *mut u8,
    pub(crate) layout: Layout,
}

// SAFETY: a slot is an address; whoever uses it answers for the memory, which belongs to the run.
unsafe impl Send for Slot {}

impl Slot {
    pub(crate) const EMPTY: Slot = Slot { data: std::ptr::null_mut(), layout: Layout::SCALAR };
}

/// What is kept for a plan from run to run.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) slots: Vec<Slot>,
    pub(crate) numbers: Vec<Scalar>,
    pub(crate) heaps: Vec<Memory>,
    /// Whether steps that need to run only once have run.
    pub(crate) warm: bool,
}

impl Frame {
    /// Values that never move are put in their places; `read` says which constants are among them.
    pub(crate) fn new(plan: &Plan, read: &[bool], arena: Region, constants: &Constants) -> Frame {
        let mut frame = Frame {
            slots: vec![Slot::EMPTY; plan.dtypes.len()],
            numbers: vec![Scalar::Int(0); plan.dtypes.len()],
            heaps: plan.heaps.iter().map(|&bytes| Memory::zeroed(bytes)).collect(),
            warm: false,
        };
        for &(value, number) in &plan.numbers {
            frame.numbers[value.0 as usize] = Scalar::Int(number);
        }
        for &(value, layout) in &plan.fixed {
            let data = match plan.storage[value.0 as usize] {
                Storage::Arena { offset, .. } => arena.at(offset),
                Storage::Heap(number) => frame.heaps[number].address(),
                // Kernels never write to constants: only arena and buffers are written in place.
                Storage::Constant(index) if read[index] => {
                    constants.get(index).map_or(std::ptr::null_mut(), |it| it.bytes().as_ptr().cast_mut())
                }
                _ => std::ptr::null_mut(),
            };
            frame.slots[value.0 as usize] = Slot { data, layout };
        }
        frame
    }
}
