//! The codes of several rows of a weight woven into each other, once, when it is loaded: a vector then holds eight neighbouring
//! nibbles of as many rows as it has lanes, which is what a panel is made of, without a shuffle. The weight is read as one
//! stream, whatever the number of rows of activations, and nothing is added across lanes.
//!
//! It is a copy beside the file's own bytes, in huge pages where the system has them; those of the file are not looked at
//! any more where vectors do all the work.

use super::memory::Memory;
use super::weight::QuantWeight;

/// A weight of nibbles by panels: for each, its codes, its scales and, where they are no multiple of those, its biases.
pub(super) struct Woven {
    codes: Memory,
    scales: Memory,
    biases: Option<Memory>,
    /// Rows of a panel; the last one of a matrix may have fewer, and repeats its last row.
    pub(super) lanes: usize,
    panels: usize,
    codes_of_panel: usize,
    scales_of_panel: usize,
}

/// Where the parts of a panel begin.
#[derive(Clone, Copy)]
pub(super) struct PanelAt {
    pub(super) codes: *const u8,
    pub(super) scales: *const u8,
    /// The scales where there are no biases.
    pub(super) biases: *const u8,
}

impl Woven {
    /// Weaves so many rows at a time; `None` where codes are no nibbles, or there is no memory for them.
    pub(super) fn new(weight: &QuantWeight, lanes: usize) -> Option<Woven> {
        if weight.scheme.bits() != 4 || weight.rows() == 0 || weight.k == 0 {
            return None;
        }
        let panels = weight.n.div_ceil(lanes);
        let all = weight.matrices.checked_mul(panels)?;
        let weave = |from: &[u8], row_bytes: usize, word: usize| -> Option<Memory> {
            let mut to = Memory::zeroed(all.checked_mul(row_bytes)?.checked_mul(lanes)?)?;
            each_chunk(to.bytes_mut(), row_bytes * lanes, |panel, to| {
                if panel < all {
                    let (matrix, first) = (panel / panels, panel % panels * lanes);
                    let row = |lane: usize| matrix * weight.n + (first + lane).min(weight.n - 1);
                    match word {
                        2 => words::<2>(from, row_bytes, row, lanes, to),
                        _ => words::<4>(from, row_bytes, row, lanes, to),
                    }
                }
            });
            Some(to)
        };
        let (of_codes, size) = (weight.row_bytes(), weight.stored.size());
        let of_scales = weight.groups() * size;
        let biases = match &weight.biases {
            Some(biases) => Some(weave(biases, of_scales, size)?),
            None => None,
        };
        Some(Woven {
            codes: weave(&weight.codes, of_codes, 4)?,
            scales: weave(&weight.scales, of_scales, size)?,
            biases,
            lanes,
            panels,
            codes_of_panel: of_codes * lanes,
            scales_of_panel: of_scales * lanes,
        })
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let biases = self.biases.as_ref().map_or(0, |biases| biases.bytes().len());
        self.codes.bytes().len() + self.scales.bytes().len() + biases
    }

    /// The panel of a matrix that begins with a row; behind the last one nothing may be read.
    pub(super) fn panel(&self, matrix: usize, row: usize) -> PanelAt {
        debug_assert!(row.is_multiple_of(self.lanes), "rows of a task begin with a panel");
        let panel = matrix * self.panels + row / self.lanes;
        let scales = self.scales.bytes().as_ptr().wrapping_add(panel * self.scales_of_panel);
        PanelAt {
            codes: self.codes.bytes().as_ptr().wrapping_add(panel * self.codes_of_panel),
            scales,
            biases: self
                .biases
                .as_ref()
                .map_or(scales, |biases| biases.bytes().as_ptr().wrapping_add(panel * self.scales_of_panel)),
        }
    }
}

impl std::fmt::Debug for Woven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Woven")
            .field("lanes", &self.lanes)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Does something for every whole chunk of bytes, on several threads where they are many: a model has all its weights woven
/// before its first answer.
fn each_chunk(bytes: &mut [u8], chunk: usize, work: impl Fn(usize, &mut [u8]) + Sync) {
    /// Bytes for which a thread is worth its start, and the most threads that memory has work for.
    const EACH: usize = 1 << 20;
    const MOST: usize = 8;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let threads = threads.min(bytes.len() / EACH).max(1);
    let chunks = bytes.len() / chunk;
    let per_thread = chunks.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        for (part, bytes) in bytes.chunks_mut(per_thread * chunk).enumerate() {
            let mut each = move || {
                for (at, bytes) in bytes.chunks_exact_mut(chunk).enumerate() {
                    work(part * per_thread + at, bytes);
                }
            };
            match threads {
                1 => each(),
                _ => drop(scope.spawn(each)),
            }
        }
    });
}

/// Writes the first word of every row, then the second, and so on.
fn words<const SIZE: usize>(
    from: &[u8],
    row_bytes: usize,
    row: impl Fn(usize) -> usize,
    lanes: usize,
    to: &mut [u8],
) {
    /// Words of a row that are read together: a line of the cache.
    const TOGETHER: usize = 16;
    let (to, _) = to.as_chunks_mut::<SIZE>();
    for (part, to) in to.chunks_mut(TOGETHER * lanes).enumerate() {
        for lane in 0..lanes {
            let start = row(lane) * row_bytes + part * TOGETHER * SIZE;
            let (words, _) = from[start..start + to.len() / lanes * SIZE].as_chunks::<SIZE>();
            for (to, word) in to[lane..].iter_mut().step_by(lanes).zip(words) {
                *to = *word;
            }
        }
    }
}
