//! The thread pool: one call runs a number of tasks on the calling thread and on the pool's workers.
//!
//! Decoding a token is a few hundred short parallel regions, so what counts is how soon a worker starts.
//! Workers spin for a moment after each job and then sleep. Several threads may call at the same time: each
//! always works on its own job, and idle workers take the open jobs in turn. A call allocates nothing.
//!
//! A crate of its own, so that what checks every schedule of its protocol compiles this and no kernel.

// A job is lent to the workers by pointer; every block says why it holds.
#![allow(unsafe_code)]

mod idle;
mod slot;
mod sync;

#[cfg(test)]
mod tests;

use idle::Idle;
use slot::Slot;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{Arc, thread};

/// Jobs that may be open at the same time; a call that finds no slot free runs all its tasks itself.
const SLOTS: usize = 8;

/// A fixed number of threads that run tasks together.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
}

/// What the callers and the workers see.
struct Shared {
    slots: [Slot; SLOTS],
    /// Slots that a caller holds, a bit each.
    taken: AtomicU32,
    /// Slots that workers may look into, a bit each.
    open: AtomicU32,
    idle: Idle,
    shutdown: AtomicBool,
}

impl Pool {
    /// A pool of so many threads, the caller of [`Pool::run`] counted; at least one. Where the system refuses
    /// a thread, the pool is smaller: [`Pool::threads`] says how large it became.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            slots: std::array::from_fn(|_| Slot::new()),
            taken: AtomicU32::new(0),
            open: AtomicU32::new(0),
            idle: Idle::new(idle::spin_limit(threads)),
            shutdown: AtomicBool::new(false),
        });
        let mut workers = Vec::new();
        for index in 1..threads {
            let shared = shared.clone();
            match sync::spawn(format!("pteron-{index}"), move || work(&shared)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Pool { shared, workers }
    }

    /// Number of threads that work on a job, the caller counted.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0)`, .., `task(tasks - 1)`, each once, in any order and on any of the threads, and returns
    /// when all are done. Panics where a task panicked, after all others have run.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || tasks <= 1 {
            return (0..tasks).for_each(task);
        }
        let shared = &*self.shared;
        let Some(index) = shared.take_slot() else {
            return (0..tasks).for_each(task);
        };
        let slot = &shared.slots[index];
        // SAFETY: the slot is ours until its bit in `taken` is cleared below, and `finish` returns only when
        // no worker can touch `task` any more. Nothing in between unwinds: panics of tasks are caught and
        // kept.
        unsafe { slot.open(tasks, task) };
        shared.open.fetch_or(1 << index, Ordering::Release);
        shared.idle.announce();
        slot.work();
        shared.open.fetch_and(!(1 << index), Ordering::Relaxed);
        let panic = slot.finish();
        shared.taken.fetch_and(!(1 << index), Ordering::Release);
        if let Some(payload) = panic {
            std::panic::resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::Release);
        self.shared.idle.announce();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A slot that no other caller holds.
    fn take_slot(&self) -> Option<usize> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let index = (!taken).trailing_zeros() as usize;
            if index >= SLOTS {
                return None;
            }
            match self.taken.compare_exchange_weak(
                taken,
                taken | 1 << index,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(index),
                Err(now) => taken = now,
            }
        }
    }

    /// Works on one open job, the first at or after `turn`; the turn after it, or `None` where no job wanted
    /// help.
    fn help(&self, turn: usize) -> Option<usize> {
        let open = self.open.load(Ordering::Acquire);
        let candidates = (0..SLOTS).map(|i| (turn + i) % SLOTS).filter(|index| open & 1 << index != 0);
        for index in candidates {
            if self.slots[index].join() {
                return Some((index + 1) % SLOTS);
            }
        }
        None
    }
}

/// The life of a worker.
fn work(shared: &Shared) {
    let mut turn = 0;
    let mut patience = shared.idle.patience();
    loop {
        let seen = shared.idle.epoch();
        if shared.shutdown.load(Ordering::Acquire) {
            return;
        }
        match shared.help(turn) {
            Some(next) => turn = next,
            None => shared.idle.wait(seen, &mut patience),
        }
    }
}
