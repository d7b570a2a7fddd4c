//! One job: a function, a counter of tasks, and who is working on it.
//!
//! A slot outlives every job in it, so a worker that looks into one never touches freed memory. `state`
//! decides: a worker may use the function only between joining, which succeeds only while the job is open,
//! and leaving; the caller forgets the function only when the job is closed and everyone has left.

use super::idle::{spin_limit, spin_until};
use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::{Condvar, Mutex, UnsafeCell, lock, wait};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// What a panicking task threw.
pub(super) type Payload = Box<dyn Any + Send>;

/// Bit of `state`: workers may join.
const OPEN: usize = 1;
/// Bit of `state`: the caller sleeps until the last worker leaves.
const CALLER_SLEEPS: usize = 2;
/// One worker in `state`'s count of those at work.
const WORKER: usize = 4;

type Task = *const (dyn Fn(usize) + Sync);

/// On a line of its own: the counter is written by all threads.
#[repr(align(128))]
pub(super) struct Slot {
    state: AtomicUsize,
    /// The next task that nobody has taken.
    next: AtomicUsize,
    tasks: AtomicUsize,
    task: UnsafeCell<Option<Task>>,
    panic: Mutex<Option<Payload>>,
    left: Condvar,
    spin: Duration,
}

// SAFETY: `task` is written only by the caller that holds the slot, while it is closed and nobody is at work,
// and read only by those at work; what it points to is `Sync`. Everything else synchronises itself.
unsafe impl Sync for Slot {}
// SAFETY: as above: the pointer is used only under the protocol, on whichever thread.
unsafe impl Send for Slot {}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot {
            state: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            task: UnsafeCell::new(None),
            panic: Mutex::new(None),
            left: Condvar::new(),
            spin: spin_limit(2),
        }
    }

    /// Opens a job.
    ///
    /// # Safety
    /// The calling thread holds the slot, and calls [`Slot::finish`] before `task` ends.
    pub(super) unsafe fn open(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and the caller promises to call `finish` within it.
        let task: Task = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        // SAFETY: the slot is closed and nobody is at work, so nobody reads the cell.
        self.with_task(|cell| unsafe { *cell = Some(task) });
        self.tasks.store(tasks, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Release);
    }

    /// Takes tasks until none is left. The caller's part, and that of a worker that joined.
    pub(super) fn work(&self) {
        let tasks = self.tasks.load(Ordering::Relaxed);
        // SAFETY: between `open` and `finish`, or between joining and leaving: nobody writes the cell.
        let Some(task) = self.read_task(|cell| unsafe { *cell }) else { return };
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
                return;
            }
            // SAFETY: `open`'s caller keeps the function alive until everyone has left.
            let task = unsafe { &*task };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(index))) {
                lock(&self.panic).get_or_insert(payload);
            }
        }
    }

    /// Works on the job if it is open and has tasks left; whether it did.
    pub(super) fn join(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & OPEN == 0 || self.next.load(Ordering::Relaxed) >= self.tasks.load(Ordering::Relaxed) {
                return false;
            }
            match self.state.compare_exchange_weak(
                state,
                state + WORKER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.work();
        let before = self.state.fetch_sub(WORKER, Ordering::AcqRel);
        if before == WORKER | CALLER_SLEEPS {
            // With the lock held, the caller is either before its look at the state or in its wait.
            let guard = lock(&self.panic);
            self.left.notify_all();
            drop(guard);
        }
        true
    }

    /// Closes the job and waits until everyone has left; what the first panicking task threw.
    pub(super) fn finish(&self) -> Option<Payload> {
        let before = self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let is_left = || self.state.load(Ordering::Acquire) & !CALLER_SLEEPS == 0;
        if before != OPEN && !spin_until(self.spin, is_left) {
            let mut guard = lock(&self.panic);
            self.state.fetch_or(CALLER_SLEEPS, Ordering::AcqRel);
            while !is_left() {
                guard = wait(&self.left, guard);
            }
            drop(guard);
        }
        self.state.store(0, Ordering::Relaxed);
        // SAFETY: closed and everyone has left, so nobody reads the cell.
        self.with_task(|cell| unsafe { *cell = None });
        lock(&self.panic).take()
    }

    #[cfg(not(all(loom, test)))]
    fn with_task(&self, write: impl FnOnce(*mut Option<Task>)) {
        write(self.task.get());
    }

    #[cfg(not(all(loom, test)))]
    fn read_task<T>(&self, read: impl FnOnce(*const Option<Task>) -> T) -> T {
        read(self.task.get())
    }

    #[cfg(all(loom, test))]
    fn with_task(&self, write: impl FnOnce(*mut Option<Task>)) {
        self.task.with_mut(write);
    }

    #[cfg(all(loom, test))]
    fn read_task<T>(&self, read: impl FnOnce(*const Option<Task>) -> T) -> T {
        self.task.with(read)
    }
}
