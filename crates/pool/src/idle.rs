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

/// Tells the time since it was made.
#[cfg(not(all(loom, test)))]
fn watch() -> impl Fn() -> Duration {
    let start = Instant::now();
    move || start.elapsed()
}

/// No time passes while loom explores.
#[cfg(all(loom, test))]
fn watch() -> impl Fn() -> Duration {
    || Duration::ZERO
}

/// How long one worker spins. It halves with each wait that no spinning would have met, and is whole again after one that it
/// would, also if the worker slept: otherwise one that had lost its patience would sleep through every short wait of a decoder,
/// and waking it takes longer than the wait. An idle or crowded machine is left alone.
pub(super) struct Patience {
    now: Duration,
    longest: Duration,
}

impl Patience {
    fn learn(&mut self, waited: Duration) {
        // Being woken takes about as long as the longest spin.
        self.now = if waited <= 2 * self.longest { self.longest } else { self.now / 2 };
    }
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
        let waited = watch();
        if spin_until(patience.now, || self.epoch() != seen) {
            return patience.learn(Duration::ZERO);
        }
        let mut guard = lock(&self.mutex);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.epoch.load(Ordering::Acquire) == seen {
            guard = wait(&self.moved, guard);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
        patience.learn(waited());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn patience_comes_back_with_the_first_short_wait() {
        let mut patience = Idle::new(LONGEST_SPIN).patience();
        for _ in 0..20 {
            patience.learn(Duration::from_millis(5));
        }
        assert_eq!(patience.now, Duration::ZERO);
        // It slept, for less than it would have spun.
        patience.learn(LONGEST_SPIN / 2);
        assert_eq!(patience.now, LONGEST_SPIN);
    }
}
