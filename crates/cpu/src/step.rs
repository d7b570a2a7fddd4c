//! The steps of a plan, and the loop over them. A step is called with the run of one frame; it keeps nothing itself, so
//! that any number of runs can go through the same steps, one after the other or side by side.

use crate::joint::Joint;
use crate::run::Run;
use pteron_ir::{Node, ValueId};
use pteron_plan::{Plan, RunMemory, Storage};
use pteron_runtime::{NodeError, Result};
use std::ops::Range;
use std::sync::Arc;

/// A byte that makes every float a NaN and every index one outside of its axis, or the last one.
const SPOILED: u8 = 0xff;

/// What a step does.
pub(crate) type Kernel = Box<dyn Fn(&mut Run<'_>) -> Result<(), NodeError> + Send + Sync>;

/// What a step does for several lanes at once. It makes what it needs itself: what an earlier step of one lane alone would
/// have left for it is not there.
pub(crate) type JointKernel = Box<dyn Fn(&mut Joint<'_, '_>) -> Result<(), NodeError> + Send + Sync>;

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
    /// The product or convolution that a group of nodes begins with, where it runs in this step.
    pub(crate) begins: Option<Box<Node>>,
    /// For steps that read weights, and gain by reading them for several lanes.
    pub(crate) joint: Option<JointStep>,
}

/// A step over several lanes.
pub(crate) struct JointStep {
    /// The node whose results have no places before the step, in every lane.
    pub(crate) unplaced: Option<Arc<Node>>,
    pub(crate) kernel: JointKernel,
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
    /// Bytes that it takes, but for what its steps share with others.
    pub(crate) fn bytes(&self) -> usize {
        let steps = self.steps.iter().map(|step| {
            let joint = step.joint.as_ref().map_or(0, |joint| size_of_val(&*joint.kernel));
            size_of::<Step>() + size_of_val(&*step.kernel) + joint
        });
        self.plan.bytes() + steps.sum::<usize>()
    }

    /// Runs all steps.
    pub(crate) fn run(&self, run: &mut Run<'_>) -> Result<()> {
        self.run_part(run, 0..self.steps.len())
    }

    /// Runs some of the steps.
    pub(crate) fn run_part(&self, run: &mut Run<'_>, part: Range<usize>) -> Result<()> {
        if self.plan.memory == RunMemory::Planned {
            return run_all(run, &self.steps[part]);
        }
        for at in part {
            self.steps[at].run(run)?;
            self.spoil(run, at);
        }
        Ok(())
    }

    /// Where every value has memory of its own, what nobody needs any more when a step has run is spoiled at once: a read
    /// that the plan does not know of then finds numbers that no test takes for right.
    pub(crate) fn spoil(&self, run: &mut Run<'_>, at: usize) {
        for &heap in self.plan.deaths.get(at).into_iter().flatten() {
            run.frame.heaps[heap].bytes_mut().fill(SPOILED);
        }
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
            run.trace(self.number, self.begins.as_deref())?;
        }
        Ok(())
    }

    /// Gives the results of a step that takes lanes together their places, in one of them.
    pub(crate) fn place(&self, run: &mut Run<'_>) -> Result<()> {
        let unplaced = self.joint.as_ref().and_then(|joint| joint.unplaced.as_ref());
        let placed = unplaced.map_or(Ok(()), |node| run.prepare(node));
        placed.map_err(|error| run.at_node(self.number, error))
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
