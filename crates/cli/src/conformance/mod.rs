//! Conformance cases: finding them, running them step by step, and judging what comes out.
//!
//! Folders or archives flow in, one [`Outcome`](run::Outcome) a case flows out. The layout and the rules are in
//! `conformance/README.md`; printing is the command's business.

pub(crate) mod case;
pub(crate) mod from_checkpoint;
pub(crate) mod from_pt2;
pub(crate) mod judge;
pub(crate) mod quality;
mod rounding;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod sizes;
