//! A run that is kept whole: what the next call of the same sizes needs besides its numbers.

use crate::ffi::Recording;
use pteron_gpu::{Datum, Dispatch, Lowered, Planned, Region};
use std::sync::Arc;

/// A recorded run with all that its parameters were made of.
pub(crate) struct Replay {
    pub(crate) planned: Arc<Planned>,
    pub(crate) lowered: Lowered,
    pub(crate) dispatches: Vec<Dispatch>,
    /// By dispatch: where its grid and parameters begin, in words.
    pub(crate) offsets: Vec<u32>,
    /// By dispatch: whether its grid changes from call to call, and its groups when it was recorded.
    pub(crate) varies: Vec<bool>,
    pub(crate) groups: Vec<u32>,
    pub(crate) recording: Recording,
    /// The memory that its commands name, and where each region begins in it: where another has taken its place, it is of no use.
    pub(crate) memory: Vec<(Region, u64, u64)>,
    pub(crate) outputs: Vec<Datum>,
    pub(crate) greatest: Option<(usize, usize)>,
    /// What its steps were charged.
    pub(crate) work: u64,
}
