//! What the machine could do at best and what the process took: the speed of plain reads, and peak resident memory.

use memmap2::MmapMut;
use std::hint::black_box;
use std::time::Instant;

/// Beyond every cache, and small enough for small machines.
const BUFFER: usize = 1 << 30;

/// Passes over the buffer; the best counts, as the limit is what the machine can do when nobody else asks.
const PASSES: usize = 5;

/// Bytes a second that so many threads read from memory, side by side; `None` where there is no memory to try with.
pub(crate) fn read_limit(threads: usize) -> Option<f64> {
    let mut buffer = MmapMut::map_anon(BUFFER).ok()?;
    // With small pages, looking up addresses is what would be measured. Not every system can do better.
    #[cfg(target_os = "linux")]
    let _ = buffer.advise(memmap2::Advice::HugePage);
    // Pages that were never written are one and the same, and in the cache.
    buffer.iter_mut().step_by(4096).enumerate().for_each(|(at, byte)| *byte = at as u8);
    let bytes: &[u8] = &buffer;
    let part = (bytes.len() / threads.max(1)).next_multiple_of(4096);
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for bytes in bytes.chunks(part) {
                scope.spawn(move || black_box(sum(bytes)));
            }
        });
        start.elapsed().as_secs_f64()
    };
    let best = (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min);
    Some(bytes.len() as f64 / best)
}

/// Bytes that come from memory together.
const LINE: usize = 64;

/// One word of every line, in eight independent lanes: reading a line whole would measure the adding, not the memory.
fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; 8];
    for lines in bytes.as_chunks::<LINE>().0.as_chunks::<8>().0 {
        for (lane, line) in lanes.iter_mut().zip(lines) {
            *lane = lane.wrapping_add(u64::from_le_bytes(line.as_chunks::<8>().0[0]));
        }
    }
    lanes.into_iter().fold(0, u64::wrapping_add)
}

/// Starts the count of peak memory anew, where the system can.
pub(crate) fn forget_peak() {
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that was resident at once since the start, or since [`forget_peak`].
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
