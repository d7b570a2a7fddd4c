//! The steps of a plan, and the loop over them. A step is called with the run of one frame; it keeps nothing itself, so
//! that any number of runs can go through the same steps, one after the other or side by side.

use crate::run::Run;
use pteron_ir::ValueId;
use pteron_plan::{Plan, RunMemory, Storage};
use pteron_runtime::{NodeError, Result};

/// A byte that makes every float a NaN and every index one outside of its axis, or the last one.
const SPOILED: u8 = 0xff;

/// What a step does.
pub(crate) type Kernel = Box<dyn Fn(&mut Run<'_>) -> Result<(), NodeError> + Send + Sync>;

/// Which runs over a frame a step is needed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Always,
    /// The first: it gives a view of memory that never moves.
    Never,
    /// The first, if the value turned out to be such a view and no copy.
    IfCopied(ValueId),
}

/// One step of a plan.
pub(crate) struct Step {
    /// The node's number in pre-order.
    pub(crate) number: usize,
    pub(crate) repeat: Repeat,
    pub(crate) kernel: Kernel,
}

/// A plan with its steps.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) steps: Vec<Step>,
    /// Constants whose elements some step reads where they lie; the biases of quantised weights need not be there.
    pub(crate) read: Vec<bool>,
    /// Work of all steps whose sizes are known.
    pub(crate) work: u64,
}

impl Planned {
    /// Runs all steps. Where every value has memory of its own, what nobody needs any more is spoiled at once: a read
    /// that the plan does not know of then finds numbers that no test takes for right.
    pub(crate) fn run(&self, run: &mut Run<'_>) -> Result<()> {
        if self.plan.memory == RunMemory::Planned {
            return run_all(run, &self.steps);
        }
        for (step, dead) in self.steps.iter().zip(&self.plan.deaths) {
            step.run(run)?;
            dead.iter().for_each(|&heap| run.frame.heaps[heap].bytes_mut().fill(SPOILED));
        }
        Ok(())
    }
}

/// Runs steps in order.
pub(crate) fn run_all(run: &mut Run<'_>, steps: &[Step]) -> Result<()> {
    steps.iter().try_for_each(|step| step.run(run))
}

impl Step {
    /// Runs it, unless an earlier run over the frame has done for good what it does.
    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        if run.frame.warm && !run.control.traces_values() && !self.is_needed(run) {
            return Ok(());
        }
        run.control.check()?;
        if let Err(error) = (self.kernel)(run) {
            return Err(run.at_node(self.number, error));
        }
        if run.control.trace.is_some() {
            run.trace(self.number)?;
        }
        Ok(())
    }

    /// Whether a step that has run before has something to do.
    fn is_needed(&self, run: &Run<'_>) -> bool {
        match self.repeat {
            Repeat::Always => true,
            Repeat::Never => false,
            Repeat::IfCopied(value) => match run.plan.storage_of(value) {
                Storage::Arena { offset, .. } => run.slot(value).data == run.arena.at(offset),
                Storage::Heap(number) => run.slot(value).data == run.frame.heaps[number].address(),
                _ => true,
            },
        }
    }
}
