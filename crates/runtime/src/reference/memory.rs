//! Bytes that a run holds, counted by the memory behind values: tensors that share memory count once, constants
//! not at all.

use crate::{Error, Result};
use pteron_format::Limits;
use pteron_tensor::HostTensor;
use std::collections::HashMap;

/// The memory of one run.
#[derive(Debug)]
pub(super) struct Held<'a> {
    limits: &'a Limits,
    /// By address: how many values share it, and what it counts for.
    regions: HashMap<usize, (usize, u64)>,
    bytes: u64,
}

impl<'a> Held<'a> {
    /// Nothing yet, besides what is held elsewhere.
    pub(super) fn new(limits: &'a Limits, elsewhere: u64) -> Held<'a> {
        Held { limits, regions: HashMap::new(), bytes: elsewhere }
    }

    /// A tensor that is somebody else's: values that share its memory count for nothing.
    pub(super) fn borrow(&mut self, tensor: &HostTensor) {
        self.add(tensor, 0);
    }

    /// A tensor of the run.
    pub(super) fn hold(&mut self, tensor: &HostTensor) {
        self.add(tensor, tensor.bytes().len() as u64);
    }

    fn add(&mut self, tensor: &HostTensor, bytes: u64) {
        let region = self.regions.entry(address(tensor)).or_insert((0, bytes));
        if region.0 == 0 {
            self.bytes += bytes;
        }
        region.0 += 1;
    }

    /// A value whose memory began there is gone. By address, because a kernel may have taken the tensor.
    pub(super) fn release(&mut self, address: usize) {
        if let Some(region) = self.regions.get_mut(&address) {
            region.0 -= 1;
            if region.0 == 0 {
                self.bytes -= region.1;
                self.regions.remove(&address);
            }
        }
    }

    /// Refuses a result that would be too large, alone or with all that is there.
    pub(super) fn admit(&self, result: u64, together: u64) -> Result<()> {
        let limit = |what, limit, found, allowed| Err(Error::Limit { what, limit, found, allowed });
        if result > self.limits.tensor_bytes {
            return limit("a result", "tensor_bytes", result, self.limits.tensor_bytes);
        }
        let total = self.bytes.saturating_add(together);
        if total > self.limits.live_bytes {
            return limit("the memory of a run", "live_bytes", total, self.limits.live_bytes);
        }
        Ok(())
    }
}

/// What stands for the memory of a tensor.
pub(super) fn address(tensor: &HostTensor) -> usize {
    tensor.bytes().as_ptr() as usize
}
