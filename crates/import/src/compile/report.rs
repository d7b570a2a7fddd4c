//! What became of a program: ops by delegate, operators left outside with their place and the reason.

use super::pipeline::Trace;
use indexmap::IndexMap;
use pteron_passes::Verdict;

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

/// What a pattern has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How often it was found.
    pub times: usize,
    /// Nodes that it stood for in all.
    pub nodes: usize,
}

impl MethodReport {
    /// What each pattern took, in the order in which they were first found.
    pub fn taken(&self) -> IndexMap<&'static str, Taken> {
        let mut all: IndexMap<&'static str, Taken> = IndexMap::new();
        for explained in &self.trace.remarks {
            if let Verdict::Taken { nodes } = explained.remark.verdict {
                let taken = all.entry(explained.remark.pattern).or_default();
                taken.times += 1;
                taken.nodes += nodes;
            }
        }
        all
    }

    /// Ops in all delegates.
    pub fn ops(&self) -> usize {
        self.delegates.iter().flat_map(IndexMap::values).sum()
    }
}
