//! Rows shared out among threads. Plain scoped threads do: rows cost the same, so there is nothing to steal, and the start
//! of a thread is nothing beside the work that is worth one. Results come in the order of rows, so that what is written
//! does not depend on how many threads there are.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

/// Fewest values that are worth a thread.
const LEAST_SHARE: usize = 1 << 16;

/// As many threads as the machine has and so many values are worth.
pub fn threads_for(values: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    cores.min(values / LEAST_SHARE).max(1)
}

/// Runs work over ranges of rows; results in the order of rows.
pub fn over_rows<T: Send, E: Send>(
    rows: usize,
    threads: usize,
    work: impl Fn(Range<usize>) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    if threads <= 1 {
        return if rows == 0 { Ok(vec![]) } else { Ok(vec![work(0..rows)?]) };
    }
    let share = rows.div_ceil(threads).max(1);
    let ranges = (0..rows).step_by(share).map(|start| start..rows.min(start + share));
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = ranges.map(|range| scope.spawn(move || work(range))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T, E>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect()
    })
}
