//! Several runs of one plan side by side: lanes. Steps that read weights take the rows of all lanes together, so that
//! weights are read once; between two of those, every lane runs the steps that are its own on one of the threads. A lane
//! that fails or is stopped leaves, and the others go on without it.

use crate::batch::Batch;
use crate::fault::invalid;
use crate::finish::finish;
use crate::joint::{Joint, Lane};
use crate::step::Planned;
use pteron_kernels::pool::Pool;
use pteron_runtime::{Error, Result};
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A pointer to lanes that tasks share; each uses one lane.
struct Apart<'l, 'r>(*mut Lane<'r>, PhantomData<&'l mut [Lane<'r>]>);

// SAFETY: tasks use different lanes, and a lane may move between threads: see `is_send`.
unsafe impl Sync for Apart<'_, '_> {}

/// Lanes may run on any thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Lane<'static>>();
};

impl<'r> Apart<'_, 'r> {
    /// # Safety
    /// There is such a lane, and nobody else uses it.
    #[allow(clippy::mut_from_ref)] // what the promise is for
    unsafe fn get(&self, lane: usize) -> &mut Lane<'r> {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.add(lane) }
    }
}

/// Runs all lanes through a plan; `left` is given each when it is done or has failed.
pub(crate) fn run_lanes<'r>(
    planned: &Planned,
    lanes: &mut Vec<Lane<'r>>,
    (batch, pool): (&mut Batch, &Pool),
    mut left: impl FnMut(Lane<'r>),
) {
    let mut at = 0;
    loop {
        let rest = &planned.steps[at..];
        let next = at + rest.iter().position(|step| step.joint.is_some()).unwrap_or(rest.len());
        apart(pool, lanes, &|lane| planned.run_part(&mut lane.run, at..next));
        remove_failed(lanes, &mut left);
        if next == planned.steps.len() || lanes.is_empty() {
            break;
        }
        together(planned, next, lanes, batch);
        remove_failed(lanes, &mut left);
        at = next + 1;
    }
    apart(pool, lanes, &|lane| finish(&mut lane.run, lane.outputs));
    lanes.drain(..).for_each(left);
}

/// Does the same for every lane, side by side; kernels inside share what threads are left over.
fn apart<'r>(pool: &Pool, lanes: &mut [Lane<'r>], work: &(dyn Fn(&mut Lane<'r>) -> Result<()> + Sync)) {
    let shared = Apart(lanes.as_mut_ptr(), PhantomData);
    pool.run(lanes.len(), &|at| {
        // SAFETY: every task has its own number, of as many lanes as there are.
        let lane = unsafe { shared.get(at) };
        lane.result = caught(|| work(lane));
    });
}

/// Runs the step at a place for all lanes at once.
fn together(planned: &Planned, at: usize, lanes: &mut [Lane<'_>], batch: &mut Batch) {
    let step = &planned.steps[at];
    let Some(joint) = &step.joint else { return };
    // Lanes that are stopped here go to the end of the list, where the step does not see them.
    let mut ready = 0;
    for next in 0..lanes.len() {
        let lane = &mut lanes[next];
        lane.result = lane.run.control.check().and_then(|()| step.place(&mut lane.run));
        if lane.result.is_ok() {
            lanes.swap(ready, next);
            ready += 1;
        }
    }
    let lanes = &mut lanes[..ready];
    if lanes.is_empty() {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| (joint.kernel)(&mut Joint { lanes, batch })));
    let problem = match outcome {
        Ok(Ok(())) => {
            lanes.iter_mut().for_each(|lane| planned.spoil(&mut lane.run, at));
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(panic) => of_panic(&*panic).to_string(),
    };
    for lane in lanes {
        lane.result = Err(lane.run.at_node(step.number, invalid(problem.clone())));
    }
}

/// Runs one lane's part; a panic is an error of that lane.
pub(crate) fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(&*panic)))
}

/// What a panic says, as the error of a lane.
fn of_panic(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason");
    Error::Invalid(format!("the run panicked: {text}"))
}

fn remove_failed<'r>(lanes: &mut Vec<Lane<'r>>, left: &mut impl FnMut(Lane<'r>)) {
    while let Some(at) = lanes.iter().position(|lane| lane.result.is_err()) {
        left(lanes.swap_remove(at));
    }
}
