//! One file a command: its arguments with their help, and what it does with the rooms around it.

pub(crate) mod bench;
pub(crate) mod compile;
pub(crate) mod conformance;
pub(crate) mod diff;
pub(crate) mod exec;
pub(crate) mod inspect;
pub(crate) mod rewrite;
pub(crate) mod verify;
