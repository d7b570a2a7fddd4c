//! What runs have taken, for tests and whoever looks for time.

use std::time::Duration;

/// Sums over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs to their end.
    pub runs: u64,
    /// Command buffers that were recorded.
    pub recorded: u64,
    /// Runs that lowered only what their numbers change.
    pub replayed: u64,
    /// Kernels that ran.
    pub dispatches: u64,
    /// Time of the host besides waiting for the device.
    pub host: Duration,
}

impl Counts {
    pub(crate) fn plus(self, other: Counts) -> Counts {
        Counts {
            runs: self.runs + other.runs,
            recorded: self.recorded + other.recorded,
            replayed: self.replayed + other.replayed,
            dispatches: self.dispatches + other.dispatches,
            host: self.host + other.host,
        }
    }
}
