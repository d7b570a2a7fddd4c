//! Lanes as a step sees them that takes all of them together.

use crate::batch::Batch;
use crate::run::Run;
use pteron_runtime::{Result, Value};

/// The most rows that are taken together: weights are read once for so many, which is seldom enough, and memory between
/// steps stays small however many lanes there are.
const MOST_ROWS: usize = 256;

/// One of several runs of a plan.
pub(crate) struct Lane<'r> {
    pub(crate) run: Run<'r>,
    pub(crate) outputs: &'r mut Vec<Value>,
    /// Its place among those that were handed in.
    pub(crate) number: usize,
    pub(crate) result: Result<()>,
}

/// All lanes before a step, and the memory that it may use.
pub(crate) struct Joint<'j, 'r> {
    pub(crate) lanes: &'j mut [Lane<'r>],
    pub(crate) batch: &'j mut Batch,
}

impl<'r> Joint<'_, 'r> {
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run<'r>> {
        self.lanes.iter().map(|lane| &lane.run)
    }

    /// Calls `work` with neighbouring lanes whose rows are at most so many together, and with how many those are; `rows` says
    /// how many a lane has. A lane that has more by itself comes alone.
    pub(crate) fn by_rows<E>(
        &mut self,
        most: usize,
        rows: impl Fn(&Run<'r>) -> usize,
        mut work: impl FnMut(Part<'_, 'r>, &mut Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        while from < self.lanes.len() {
            let (mut to, mut sum) = (from, 0);
            while let Some(lane) = self.lanes.get(to) {
                let own = rows(&lane.run);
                if to > from && sum + own > most.min(MOST_ROWS) {
                    break;
                }
                (to, sum) = (to + 1, sum + own);
            }
            work(Part { lanes: &self.lanes[from..to], rows: sum }, self.batch)?;
            from = to;
        }
        Ok(())
    }
}

/// Neighbouring lanes that are taken together; at least one.
#[derive(Clone, Copy)]
pub(crate) struct Part<'j, 'r> {
    lanes: &'j [Lane<'r>],
    /// Of all of them.
    pub(crate) rows: usize,
}

impl<'j, 'r> Part<'j, 'r> {
    pub(crate) fn runs(self) -> impl ExactSizeIterator<Item = &'j Run<'r>> + Clone {
        self.lanes.iter().map(|lane| &lane.run)
    }

    /// The only run, where there is only one.
    pub(crate) fn only(self) -> Option<&'j Run<'r>> {
        match self.lanes {
            [lane] => Some(&lane.run),
            _ => None,
        }
    }

    /// The first run: what plans know, all have in common.
    pub(crate) fn first(self) -> &'j Run<'r> {
        &self.lanes[0].run
    }
}
