//! Planning, without a device: everything that can be decided about a graph once the sizes of its inputs are known. Types,
//! which values are views of others or are changed in place, which element-wise nodes run as one, how long each value is
//! needed, where it lies in one region of memory. A backend brings the [`Lower`]ing: an op and the plan so far in, a step
//! out. A plan is made once per input signature and replayed; positions and other numbers read from data stay numbers of the
//! run.
//!
//! Nothing here computes, allocates memory of a run or knows of a device.

mod arena;
mod groups;
mod hazards;
mod layout;
mod lifetimes;
mod make;
mod numbers;
mod plan;
mod types;

pub use groups::{Groups, Join};
pub use hazards::barriers;
pub use layout::{Layout, MAX_RANK};
pub use lifetimes::{Life, Lifetimes, Sharing};
pub use make::{Lower, Made, Numbered, Options, Planner, make};
pub use numbers::{Arithmetic, HostNumbers, NumberError, Origin, arithmetic};
pub use plan::{Access, BufferWrite, Plan, PlanError, RunMemory, Storage};
pub use types::{Types, counted};
