//! What passes have to say: which pattern took which nodes, and why one that looked alike was left.

use pteron_ir::Place;

/// Whether a pattern was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was; that many nodes became fewer.
    Taken {
        /// Nodes that it stands for.
        nodes: usize,
    },
    /// It was not, for this reason.
    Left(String),
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The pattern.
    pub pattern: &'static str,
    /// The node at which it was found, in text form.
    pub node: String,
    /// Where that node came from.
    pub place: Option<Place>,
    /// What became of it.
    pub verdict: Verdict,
}

/// The remarks of one pass.
#[derive(Clone, Debug, Default)]
pub struct Remarks(Vec<Remark>);

impl Remarks {
    /// Adds one.
    pub fn push(&mut self, remark: Remark) {
        self.0.push(remark);
    }

    /// All of them, in the order of the nodes.
    pub fn into_vec(self) -> Vec<Remark> {
        self.0
    }

    /// How often patterns were taken.
    pub fn taken(&self) -> usize {
        self.0.iter().filter(|remark| matches!(remark.verdict, Verdict::Taken { .. })).count()
    }
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.verdict {
            Verdict::Taken { nodes } => write!(f, "{}: took {nodes} nodes at `{}`", self.pattern, self.node),
            Verdict::Left(why) => write!(f, "{}: left `{}`: {why}", self.pattern, self.node),
        }
    }
}
