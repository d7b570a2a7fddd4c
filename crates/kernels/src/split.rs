//! Cutting work into tasks for the pool: none where waking a thread costs more than it saves.

use crate::pool::Pool;
use std::ops::Range;

/// What a task must cost at least, in units of about a nanosecond of one core.
const SMALLEST_TASK: usize = 8_000;

/// Calls `f` with ranges that cover `0..items` once, on several threads where that pays. A range begins at a
/// multiple of `unit`; `cost` is that of one item, in nanoseconds.
pub(crate) fn in_parts(
    pool: &Pool,
    items: usize,
    unit: usize,
    cost: usize,
    f: &(dyn Fn(Range<usize>) + Sync),
) {
    if items == 0 {
        return;
    }
    let unit = unit.max(1);
    let units = items.div_ceil(unit);
    let affordable = items.saturating_mul(cost.max(1)) / SMALLEST_TASK;
    // A few tasks a thread, so that one that is held up does not hold up all.
    let tasks = affordable.min(pool.threads() * 4).min(units);
    if pool.threads() == 1 || tasks < 2 {
        return f(0..items);
    }
    pool.run(tasks, &|task| {
        let at = |task: usize| (units * task / tasks * unit).min(items);
        f(at(task)..at(task + 1));
    });
}

/// A pointer that tasks share; they write disjoint elements through it.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: a pointer by itself is harmless; every use is an `unsafe` block that says why it is alone there.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(pointer: *mut T) -> Shared<T> {
        Shared(pointer)
    }

    /// The pointer; a method, so that closures capture the whole.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::sized;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn parts_cover_everything_once() {
        for (threads, items, unit, cost) in [
            (1, 10, 1, 1),
            (3, sized(100_000, 4_000), 64, 10),
            (4, 7, 3, 1_000_000),
            (2, 0, 5, 9),
            (5, 129, 128, 100_000),
        ] {
            let seen: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
            in_parts(&Pool::new(threads), items, unit, cost, &|range| {
                assert_eq!(range.start % unit, 0);
                range.for_each(|i| {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                });
            });
            assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }
}
