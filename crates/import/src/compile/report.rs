//! What became of a program: ops by delegate, operators left outside with their place and the reason.

use super::pipeline::Trace;
use indexmap::IndexMap;

/// What became of all methods.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they were given.
    pub methods: Vec<MethodReport>,
}

/// What became of one method.
#[derive(Clone, Debug, Default)]
pub struct MethodReport {
    /// Its name.
    pub name: String,
    /// Ops by name, for each delegate in the order of its call.
    pub delegates: Vec<IndexMap<&'static str, usize>>,
    /// Operators that run outside, in order.
    pub portable: Vec<Outside>,
    /// Copies into buffers and inputs at the end of a run.
    pub copies: usize,
    /// What the passes had to say.
    pub trace: Trace,
}

/// An operator that stays outside the delegates.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The portable kernel.
    pub kernel: String,
    /// The node with its operator and module.
    pub place: String,
    /// File and line of the source model, where they were recorded.
    pub source_place: Option<String>,
    /// Why no delegate computes it.
    pub reason: String,
}

impl MethodReport {
    /// Ops in all delegates.
    pub fn ops(&self) -> usize {
        self.delegates.iter().flat_map(IndexMap::values).sum()
    }
}
