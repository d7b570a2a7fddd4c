//! How workers wait for jobs: they watch a counter for a bounded time, then sleep until it moves.

use super::sync::atomic::{AtomicUsize, Ordering, fence};
use super::sync::{Condvar, Mutex, lock, wait};
use std::time::Duration;
#[cfg(not(all(loom, test)))]
use std::time::Instant;

/// Longest time that a thread spins before it sleeps: a little more than the serial work between the parallel
/// regions of a decoder takes.
const LONGEST_SPIN: Duration = Duration::from_micros(100);

/// Spins after which the clock is read.
const SPINS_PER_LOOK: u32 = 32;

/// How long a thread of a pool of so many may spin: not at all where the pool alone has more threads than the
/// machine has cores, because the spinning one would keep a working one from its core.
pub(super) fn spin_limit(threads: usize) -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if threads > cores { Duration::ZERO } else { LONGEST_SPIN }
}

/// Spins until `done`, at most for `limit`; whether it was done in time.
#[cfg(not(all(loom, test)))]
pub(super) fn spin_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    if limit.is_zero() {
        return done();
    }
    let start = Instant::now();
    loop {
        for _ in 0..SPINS_PER_LOOK {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            return done();
        }
    }
}

/// Loom explores every schedule, so a single look stands for any number of spins.
#[cfg(all(loom, test))]
pub(super) fn spin_until(_limit: Duration, done: impl Fn() -> bool) -> bool {
    let _ = SPINS_PER_LOOK;
    done()
}

/// How long one worker spins. It halves each time that spinning was in vain and is whole again after a
/// success, so that an idle or crowded machine is left alone.
pub(super) struct Patience {
    now: Duration,
    longest: Duration,
}

/// Where workers wait.
pub(super) struct Idle {
    /// Moves whenever there is something new to look at.
    epoch: AtomicUsize,
    /// Workers that sleep or are about to.
    sleepers: AtomicUsize,
    mutex: Mutex<()>,
    moved: Condvar,
    longest_spin: Duration,
}

impl Idle {
    pub(super) fn new(longest_spin: Duration) -> Idle {
        Idle {
            epoch: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            mutex: Mutex::new(()),
            moved: Condvar::new(),
            longest_spin,
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience { now: self.longest_spin, longest: self.longest_spin }
    }

    /// What to hand to [`Idle::wait`]; read before looking for work, so that nothing new is slept through.
    pub(super) fn epoch(&self) -> usize {
        self.epoch.load(Ordering::Acquire)
    }

    /// Moves the counter and wakes who sleeps. What was written before is seen by those who see the new
    /// count.
    pub(super) fn announce(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        // Either this sees the sleeper, or the sleeper, which counts itself before it looks, sees the new
        // epoch.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // With the lock held, a sleeper is either before its look at the epoch or in its wait.
            let guard = lock(&self.mutex);
            self.moved.notify_all();
            drop(guard);
        }
    }

    /// Returns once the counter differs from `seen`.
    pub(super) fn wait(&self, seen: usize, patience: &mut Patience) {
        if spin_until(patience.now, || self.epoch() != seen) {
            patience.now = patience.longest;
            return;
        }
        patience.now /= 2;
        let mut guard = lock(&self.mutex);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.epoch.load(Ordering::Acquire) == seen {
            guard = wait(&self.moved, guard);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
    }
}
