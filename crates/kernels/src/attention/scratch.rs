//! How much memory an attention needs beside its tensors, and how tasks share it.

use super::Sizes;
use super::few;
use super::many;

/// Bytes of scratch for any attention of these or smaller sizes with a pool of so many threads, whatever path and mask.
pub fn scratch_bytes(sizes: &Sizes, threads: usize) -> usize {
    let floats = few::scratch_floats(sizes, threads).max(many::scratch_floats(sizes, threads));
    // Room to align.
    floats.saturating_mul(4).saturating_add(64)
}

/// Rounds up to whole vectors of the widest path.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}
