//! Planning, without a device: everything that can be decided about a graph once the sizes of its inputs are known. Types,
//! which values are views of others or are changed in place, which element-wise nodes run as one, how long each value is
//! needed, where it lies in one region of memory. A backend brings the [`Lower`]ing: an op and the plan so far in, a step
//! out. A plan is made once per input signature and replayed; positions and other numbers read from data stay numbers of the
//! run.
//!
//! Nothing here computes, allocates memory of a run or knows of a device.

mod arena;
mod groups;
mod layout;
mod lifetimes;
mod make;
mod plan;
mod types;

pub use groups::Groups;
pub use layout::{Layout, MAX_RANK};
pub use lifetimes::{Life, Lifetimes, Sharing, Tick, is_view};
pub use make::{Lower, Made, Numbered, Options, Planner, make};
pub use plan::{BufferWrite, Plan, RunMemory, Storage};
pub use types::{Types, counted};

use pteron_ir::ValueId;

/// Why a graph cannot be planned for some sizes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It needs more than it may have.
    #[error("{what} takes {found} bytes, and {limit} allows {allowed}")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// The name of the limit.
        limit: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        allowed: u64,
    },
    /// A size that no machine can count.
    #[error("the size of %{} overflows", .0.0)]
    Overflow(ValueId),
    /// More axes than a [`Layout`] has.
    #[error("%{} has {axes} axes", value.0)]
    Rank {
        /// Which value.
        value: ValueId,
        /// How many it has.
        axes: usize,
    },
}
