//! Whose keys and values a run writes: those of its session, or, in a flat batch, of several, each with so many tokens.

use super::Cache;
use pteron_runtime::RunControl;

/// The caches of a run.
pub(crate) enum Caches<'r> {
    /// There is none.
    None,
    /// That of the session.
    One(&'r mut Cache),
    /// Those of all sessions of a flat batch, in the order of their tokens.
    Several(Vec<SpanCache<'r>>),
}

/// One session of a flat batch.
pub(crate) struct SpanCache<'r> {
    pub(crate) cache: &'r mut Cache,
    /// How many of the run's tokens are its own.
    pub(crate) tokens: usize,
    pub(crate) control: &'r RunControl,
}

impl<'r> Caches<'r> {
    /// Takes them out for the time of a step.
    pub(crate) fn take(&mut self) -> Caches<'r> {
        std::mem::replace(self, Caches::None)
    }
}
