//! Products of many rows on matrix tiles.
//!
//! Rows of the weight are the left operand, as they lie; activations are the right one, arranged once by
//! [`prepare`]. A task takes some panels of 32 rows of the weight and all activations (in chunks of
//! [`CHUNK_ROWS`]), block by block along the row: it unpacks a panel's block into the innermost cache and
//! multiplies it with every 32 rows of activations, two tiles by two, so that four products follow four
//! loads.

mod exact;
mod fast;
mod input;
mod panel;
mod vector;

use super::Precision;
use super::layout::{InputLayout, TileLayout};
use super::rows::Sink;
use super::weight::QuantWeight;
use crate::pool::Pool;
use std::cell::RefCell;
use std::ops::Range;

pub(super) use input::{input_bytes, prepare};

/// Rows and columns of a tile of sums.
const TILE: usize = 16;
/// Bytes of a tile.
const TILE_BYTES: usize = 1024;
/// Values that two tiles take along a row; the unit in which codes are unpacked.
const UNIT: usize = 64;
/// Rows of the weight in a panel: two tiles.
const PANEL: usize = 2 * TILE;
/// Values along the row in a block: a panel's block is 16 kB of bf16.
const BLOCK: usize = 256;
/// Rows of activations whose sums are kept at a time.
const CHUNK_ROWS: usize = 512;
/// Most panels of a task: as many use a block of activations while it is in the second cache.
const TASK_PANELS: usize = 8;

/// A product to compute.
pub(super) struct Job<'a> {
    pub(super) weight: &'a QuantWeight,
    pub(super) layout: &'a InputLayout,
    pub(super) tiles: TileLayout,
    /// Activations as [`prepare`] left them.
    pub(super) prepared: &'a [u8],
    /// How many rows they are.
    pub(super) rows: usize,
    pub(super) out: Sink,
}

/// What one task computes: some panels of the weight with one chunk of activations.
struct Part {
    panels: Range<usize>,
    rows: Range<usize>,
}

impl Part {
    /// Tiles of activations of the part.
    fn row_tiles(&self) -> usize {
        self.rows.len().div_ceil(TILE)
    }
}

/// Computes all rows of the first matrix with all rows of activations.
pub(super) fn run(job: &Job<'_>, precision: Precision, pool: &Pool) {
    let panels = job.weight.n.div_ceil(PANEL);
    let per_task = panels.div_ceil(pool.threads() * 4).clamp(1, TASK_PANELS);
    let tasks = panels.div_ceil(per_task);
    for first in (0..job.rows).step_by(CHUNK_ROWS) {
        let rows = first..job.rows.min(first + CHUNK_ROWS);
        pool.run(tasks, &|task| {
            let part =
                Part { panels: task * per_task..panels.min((task + 1) * per_task), rows: rows.clone() };
            with_scratch(|scratch| {
                // SAFETY: a layout for tiles is chosen only on the AMX path, which was checked when the
                // linear was made; the edge checked the sizes, and each task has its own columns of the
                // output.
                unsafe {
                    match precision {
                        Precision::Fast => fast::multiply(job, &part, scratch),
                        Precision::Exact => exact::multiply(job, &part, scratch),
                    }
                }
            });
        });
    }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// What a thread works in: an unpacked block of a panel, and sums.
struct Scratch {
    panel: Vec<Line>,
    sums: Vec<Line>,
    /// Sums of the groups of one block, where these are scaled one by one.
    group_sums: Vec<Line>,
}

impl Scratch {
    const fn new() -> Scratch {
        Scratch { panel: Vec::new(), sums: Vec::new(), group_sums: Vec::new() }
    }

    fn panel(&mut self) -> *mut u8 {
        self.panel.as_mut_ptr().cast()
    }

    fn group_sums(&mut self) -> *mut f32 {
        self.group_sums.as_mut_ptr().cast()
    }

    fn sums(&mut self) -> *mut f32 {
        self.sums.as_mut_ptr().cast()
    }
}

/// Lends the thread's scratch memory, which is allocated at its first use and never again.
fn with_scratch(work: impl FnOnce(&mut Scratch)) {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        // Groups of 16 take twice the room.
        scratch.panel.resize(2 * PANEL * BLOCK * 2 / 64, Line([0; 64]));
        scratch.group_sums.resize(BLOCK / 16 * PANEL * TILE * 4 / 64, Line([0; 64]));
        scratch.sums.resize(TASK_PANELS * PANEL * CHUNK_ROWS * 4 / 64, Line([0; 64]));
        work(scratch);
    });
}
