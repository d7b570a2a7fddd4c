//! Codes in bf16, which holds them exactly, and activations as sums of as many bf16 as they need: the tiles
//! add up one group at a time in f32, and vectors scale the sums of the groups and add the biases.

use super::input::Places;
use super::panel::{self, Values, unpack};
use super::vector::store_part;
use super::{BLOCK, Job, PANEL, Part, Scratch, TILE, TILE_BYTES};
use crate::amx::Configured;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most groups of a block.
const GROUPS: usize = BLOCK / 16;

/// Computes a part.
///
/// # Safety
/// The machine has what the AMX path asks for, the part exists, and nobody else uses its columns of the
/// output now.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,f16c")]
pub(super) unsafe fn multiply(job: &Job<'_>, part: &Part, scratch: &mut Scratch) {
    let Some(tiles) = Configured::new() else { return };
    let weight = job.weight;
    let row_tiles = part.row_tiles();
    let places = Places::new(job.layout, job.tiles, job.rows);
    let panel_sums = row_tiles * 2 * TILE * TILE;
    let (panel, sums, group_sums) = (scratch.panel(), scratch.sums(), scratch.group_sums());
    let first_strip = part.rows.start / TILE;
    // SAFETY: the prepared activations have a strip for every 16 rows; the scratch has room for a panel's
    // block, for the sums of the part and for those of a block's groups.
    unsafe {
        for start in (0..weight.k).step_by(BLOCK) {
            let block = start..weight.k.min(start + BLOCK);
            for (index, first) in part.panels.clone().map(|panel| panel * PANEL).enumerate() {
                unpack(weight, first, block.clone(), Values::Elements, panel);
                let factors = Factors::new(job, first, block.clone());
                for strip in 0..row_tiles {
                    let x = job.prepared.as_ptr().add(places.strip(start, first_strip + strip));
                    add_groups(&tiles, &factors, job.tiles.terms, panel, x, group_sums);
                    let of_groups = job.prepared.as_ptr().add(places.sums(first_strip + strip)).cast::<f32>();
                    let of_groups =
                        of_groups.add(if job.tiles.sums { factors.first_group * TILE } else { 0 });
                    let to = sums.add(index * panel_sums + strip * 2 * TILE * TILE);
                    factors.scale(group_sums, of_groups, to, start == 0);
                }
            }
        }
        drop(tiles);
        store_part(job, part, sums);
    }
}

/// Scales and biases of a panel's block.
struct Factors {
    first_group: usize,
    groups: usize,
    /// Tiles of a group along the row; groups of 16 have one, of which half is zero.
    steps: usize,
    /// Whether two groups share a tile of activations.
    halves: bool,
    has_biases: bool,
    /// Where the second 16 rows of the panel start.
    half_bytes: usize,
    scales: [[f32; GROUPS]; PANEL],
    biases: [[f32; GROUPS]; PANEL],
}

impl Factors {
    fn new(job: &Job<'_>, first: usize, block: Range<usize>) -> Factors {
        let weight = job.weight;
        let group = weight.scheme.group();
        let mut factors = Factors {
            first_group: block.start / group,
            // A group may be longer than a block; then it is scaled in parts.
            groups: block.len().div_ceil(group),
            steps: (group.min(BLOCK) / 32).max(1),
            halves: group == 16,
            has_biases: weight.has_biases(),
            half_bytes: panel::half_bytes(weight, block.len(), Values::Elements),
            scales: [[0.0; GROUPS]; PANEL],
            biases: [[0.0; GROUPS]; PANEL],
        };
        // The bias of a group counts once, with its first part.
        let starts_group = block.start.is_multiple_of(group);
        for row in 0..PANEL.min(weight.n - first) {
            for of_block in 0..factors.groups {
                let (scale, bias) = weight.scale_and_bias(first + row, factors.first_group + of_block);
                factors.scales[row][of_block] = scale;
                factors.biases[row][of_block] = if starts_group { bias } else { 0.0 };
            }
        }
        factors
    }

    /// Adds the scaled sums of the groups and the biases to a strip's sums.
    #[target_feature(enable = "avx512f")]
    unsafe fn scale(&self, group_sums: *const f32, of_groups: *const f32, to: *mut f32, is_first: bool) {
        for row in 0..PANEL {
            // SAFETY: two tiles of sums for the strip, and as many for every group.
            unsafe {
                let to = to.add(row * TILE);
                let mut sum = if is_first { _mm512_setzero_ps() } else { _mm512_loadu_ps(to) };
                for group in 0..self.groups {
                    let of_group = _mm512_loadu_ps(group_sums.add((group * PANEL + row) * TILE));
                    sum = _mm512_fmadd_ps(_mm512_set1_ps(self.scales[row][group]), of_group, sum);
                }
                if self.has_biases {
                    for group in 0..self.groups {
                        let values = _mm512_loadu_ps(of_groups.add(group * TILE));
                        sum = _mm512_fmadd_ps(_mm512_set1_ps(self.biases[row][group]), values, sum);
                    }
                }
                _mm512_storeu_ps(to, sum);
            }
        }
    }
}

/// Adds up the products of every group of a block for one strip of activations.
///
/// # Safety
/// The panel and the strip have the block's tiles; there is room for two tiles of sums a group.
unsafe fn add_groups(
    tiles: &Configured,
    factors: &Factors,
    terms: usize,
    panel: *const u8,
    x: *const u8,
    sums: *mut f32,
) {
    let second_rows = panel.wrapping_add(factors.half_bytes);
    for group in 0..factors.groups {
        // SAFETY: the caller's promise.
        unsafe {
            tiles.zero::<0>();
            tiles.zero::<1>();
            for step in group * factors.steps..(group + 1) * factors.steps {
                tiles.load::<4>(panel.add(step * TILE_BYTES), 64);
                tiles.load::<5>(second_rows.add(step * TILE_BYTES), 64);
                let x_step = if factors.halves { step / 2 } else { step };
                for term in 0..terms {
                    tiles.load::<6>(x.add((x_step * terms + term) * TILE_BYTES), 64);
                    tiles.multiply_bf16::<0, 4, 6>();
                    tiles.multiply_bf16::<1, 5, 6>();
                }
            }
            let to = sums.add(group * PANEL * TILE);
            tiles.store::<0>(to.cast(), 64);
            tiles.store::<1>(to.add(TILE * TILE).cast(), 64);
        }
    }
}
