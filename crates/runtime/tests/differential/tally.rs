//! What random programs had in them, counted, so that a test can ask for enough of each kind.

/// What was compared: of programs that ran to an end at least once, those with each of these.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Programs that ran.
    pub(crate) programs: usize,
    /// With a branch.
    pub(crate) branches: usize,
    /// With a loop.
    pub(crate) loops: usize,
    /// With a block inside another.
    pub(crate) nested: usize,
    /// With an update of a buffer.
    pub(crate) buffers: usize,
    /// With an update inside a loop of a value from outside.
    pub(crate) outer_updates: usize,
    /// With the same constants under two schemes.
    pub(crate) shared: usize,
    /// With a packed embedding.
    pub(crate) embeddings: usize,
    /// With keys that are turned into their cache.
    pub(crate) turned: usize,
    /// With draws.
    pub(crate) draws: usize,
    /// With attention over the off-graph cache.
    pub(crate) attends: usize,
    /// With two delegates.
    pub(crate) delegates: usize,
    /// In which a run failed and the session went on.
    pub(crate) failed: usize,
    /// In which a snapshot was restored.
    pub(crate) restored: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        let pairs = [
            (&mut self.programs, other.programs),
            (&mut self.branches, other.branches),
            (&mut self.loops, other.loops),
            (&mut self.nested, other.nested),
            (&mut self.buffers, other.buffers),
            (&mut self.outer_updates, other.outer_updates),
            (&mut self.shared, other.shared),
            (&mut self.embeddings, other.embeddings),
            (&mut self.turned, other.turned),
            (&mut self.draws, other.draws),
            (&mut self.attends, other.attends),
            (&mut self.delegates, other.delegates),
            (&mut self.failed, other.failed),
            (&mut self.restored, other.restored),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
    }
}
