//! Products of f32 on matrix tiles of bf16: every number is the sum of three of 8 bits, exactly, and of the nine products of
//! parts the six largest are added. What is left out is at most 2^-23 of a product of two numbers, as much as two roundings.
//!
//! Six products of tiles take 96 cycles for 16 rows, 16 columns and 32 terms, which vectors multiply in 256. Weights are
//! split once, rows when they come; so that narrow weights, for which that is most of the work, are left to vectors.

mod block;
mod left;
mod split;
mod strip;
mod weight;

use super::many::each_item;
use super::packed::{Job, Origin, Rows};
use crate::pool::Pool;
use crate::split::{Shared, in_parts};
use left::Left;
use split::{halves, pair};
use strip::strip;
pub(super) use weight::Weight;

/// Terms of a tile.
pub(crate) const TERMS: usize = 32;
/// Rows of a tile at most.
const ROWS: usize = 16;
/// Columns of a tile.
const COLUMNS: usize = 16;
/// Parts of a number.
pub(crate) const PARTS: usize = 3;
/// Bytes of a tile.
pub(crate) const TILE: usize = 1024;
/// Floats of a tile of sums.
pub(crate) const SUMS: usize = ROWS * COLUMNS;
/// Steps of terms after which the next rows come: so many stay near together with their weights.
const NEAR_STEPS: usize = 16;
/// Columns behind which a caller's own pass over the results begins.
const PASS: usize = 256;
/// Bytes of split rows that a task multiplies with one column after the other.
const NEAR_ROWS: usize = 768 << 10;
/// Bytes of rows that all threads share.
const SHARED_ROWS: usize = 8 << 20;
/// Bytes of a weight that each thread can keep near: to read it twice costs less than rows that another thread has split.
const OWN_WEIGHT: usize = 2 << 20;

/// How rows are cut.
#[derive(Clone, Copy)]
struct Cut {
    /// Rows of a tile: as many in each, because a product takes time by them.
    height: usize,
    tiles: usize,
    /// Tiles that are multiplied together.
    block: usize,
    /// Whether threads share all rows and divide columns.
    by_columns: bool,
}

impl Cut {
    fn new(rows: usize, weight: &Weight, threads: usize) -> Cut {
        let tiles = rows.div_ceil(ROWS).max(1);
        let height = rows.div_ceil(tiles).max(1);
        let tiles = rows.div_ceil(height).max(1);
        let bytes = weight.steps * PARTS * TILE;
        let fits = tiles.saturating_mul(bytes) <= SHARED_ROWS;
        let is_large = weight.bytes() > OWN_WEIGHT && weight.tiles() >= 2 * threads;
        if threads > 1 && fits && tiles < 8 * threads && is_large {
            return Cut { height, tiles, block: tiles, by_columns: true };
        }
        let near = (NEAR_ROWS / bytes.max(1)).clamp(2, 16);
        let few = if threads > 1 { tiles.div_ceil(3 * threads).next_multiple_of(2) } else { near };
        Cut { height, tiles, block: near.min(few).min(tiles), by_columns: false }
    }

    /// Floats of split rows, and of what else one task works with.
    fn floats(&self, weight: &Weight, collected: bool) -> (usize, usize) {
        let left = Left::floats(self.block, weight.steps);
        let rows = if collected { self.height.saturating_mul(weight.inner) } else { 0 };
        let sums = self.block.next_multiple_of(2).saturating_mul(2 * SUMS);
        // Whole lines, so that tiles lie in them.
        (left, rows.next_multiple_of(16).saturating_add(sums))
    }
}

/// Floats of scratch.
pub(super) fn scratch_floats(rows: usize, weight: &Weight, collected: bool, threads: usize) -> usize {
    let cut = Cut::new(rows, weight, threads);
    let (left, own) = cut.floats(weight, collected);
    match cut.by_columns {
        true => left.saturating_add(own.saturating_mul(threads)),
        false => left.saturating_add(own).saturating_mul(threads),
    }
}

/// Computes a product.
///
/// # Safety
/// As [`super::packed::run`]; scratch begins at a line of the cache.
pub(super) unsafe fn run(pool: &Pool, job: &Job<'_>, weight: &Weight, source: &dyn Rows, scratch: *mut f32) {
    let cut = Cut::new(job.rows, weight, pool.threads());
    let (of_left, of_own) = cut.floats(weight, source.origin() != Origin::Dense);
    let cost = job.rows.saturating_mul(weight.columns).saturating_mul(weight.inner.max(1)) / 80;
    let collected = of_own - cut.block.next_multiple_of(2) * 2 * SUMS;
    let rows_of = |tile: usize| tile * cut.height..job.rows.min((tile + 1) * cut.height);
    if !cut.by_columns {
        let items = cut.tiles.div_ceil(cut.block);
        return each_item(pool, items, cost, scratch, of_left + of_own, &|item, scratch| {
            // Blocks of about the same size.
            let start = |item: usize| cut.tiles * item / items;
            let tiles = start(item)..start(item + 1);
            let left = Left::at(scratch, cut.height, weight);
            let own = scratch.wrapping_add(of_left);
            for (at, tile) in tiles.clone().enumerate() {
                // SAFETY: rows of the product; scratch has room as `Cut::floats` counts it.
                unsafe { left.split(at, rows_of(tile), source, own) };
            }
            let first = rows_of(tiles.start).start;
            let rows = first..rows_of(tiles.end - 1).end;
            // SAFETY: as above; rows belong to this item alone.
            unsafe { strip(job, weight, &left, rows, 0..weight.tiles(), own.wrapping_add(collected)) };
        });
    }
    let left = Left::at(scratch, cut.height, weight);
    let own = scratch.wrapping_add(of_left);
    let shared = Shared::new(own);
    let split = weight.steps * 160;
    let tasks = pool.threads().min(cut.tiles);
    in_parts(pool, tasks, 1, cut.tiles * split / tasks / 2, &|range| {
        for task in range {
            let part = |task: usize| cut.tiles * task / tasks;
            for tile in part(task)..part(task + 1) {
                // SAFETY: a task has tiles and room of its own.
                unsafe { left.split(tile, rows_of(tile), source, shared.get().add(task * of_own)) };
            }
        }
    });
    let pairs = weight.tiles().div_ceil(2);
    let items = pairs.min(3 * pool.threads());
    each_item(pool, items, cost, own, of_own, &|item, own| {
        let start = |item: usize| (pairs * item / items * 2).min(weight.tiles());
        // SAFETY: columns belong to this item alone; scratch has room as `Cut::floats` counts it.
        unsafe {
            strip(job, weight, &left, 0..job.rows, start(item)..start(item + 1), own.add(collected));
        }
    });
}
