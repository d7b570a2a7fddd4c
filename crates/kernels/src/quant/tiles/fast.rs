//! Weights and activations in bf16, sums in f32 along the whole row: the tiles do everything.

use super::input::Places;
use super::panel::{Values, unpack};
use super::vector::store_part;
use super::{BLOCK, Job, PANEL, Part, Scratch, TILE, TILE_BYTES, UNIT};
use crate::amx::Configured;

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
    let (panel_sums, panel) = (row_tiles * 2 * TILE * TILE, scratch.panel());
    let sums = scratch.sums();
    // SAFETY: the prepared activations have a strip for every 16 rows; the scratch has room for a panel's
    // block and for the sums of the part.
    unsafe {
        for start in (0..weight.k).step_by(BLOCK) {
            let block = start..weight.k.min(start + BLOCK);
            let steps = block.len().div_ceil(UNIT) * 2;
            let strip_bytes = places.strip_bytes(start);
            let strips = job.prepared.as_ptr().add(places.strip(start, part.rows.start / TILE));
            for (index, first) in part.panels.clone().map(|panel| panel * PANEL).enumerate() {
                unpack(weight, first, block.clone(), Values::Numbers, panel);
                let sums = sums.add(index * panel_sums);
                let mut strip = 0;
                while strip < row_tiles {
                    let x = strips.add(strip * strip_bytes);
                    let to = sums.add(strip * 2 * TILE * TILE);
                    let operands = Operands { panel, x, strip_bytes, to, is_first: start == 0, steps };
                    if row_tiles - strip >= 2 {
                        operands.two_by_two(&tiles);
                    } else {
                        operands.two_by_one(&tiles);
                    }
                    strip += 2;
                }
            }
        }
        drop(tiles);
        store_part(job, part, sums);
    }
}

/// A block of a panel and one or two strips of activations.
struct Operands {
    panel: *const u8,
    x: *const u8,
    strip_bytes: usize,
    to: *mut f32,
    is_first: bool,
    /// Tiles along the row.
    steps: usize,
}

impl Operands {
    /// Tile of sums `index`: two of the panel for each strip.
    fn sums(&self, index: usize) -> *mut u8 {
        self.to.wrapping_add(index * TILE * TILE).cast()
    }

    /// Four tiles of sums: four products follow four loads.
    #[inline]
    unsafe fn two_by_two(&self, tiles: &Configured) {
        let second_rows = self.panel.wrapping_add(self.steps * TILE_BYTES);
        let second_strip = self.x.wrapping_add(self.strip_bytes);
        // SAFETY: the operands have `steps` tiles each, and four tiles of sums.
        unsafe {
            if self.is_first {
                tiles.zero::<0>();
                tiles.zero::<1>();
                tiles.zero::<2>();
                tiles.zero::<3>();
            } else {
                tiles.load::<0>(self.sums(0), 64);
                tiles.load::<1>(self.sums(1), 64);
                tiles.load::<2>(self.sums(2), 64);
                tiles.load::<3>(self.sums(3), 64);
            }
            for step in 0..self.steps {
                let at = step * TILE_BYTES;
                tiles.load::<4>(self.panel.add(at), 64);
                tiles.load::<6>(self.x.add(at), 64);
                tiles.multiply_bf16::<0, 4, 6>();
                tiles.load::<5>(second_rows.add(at), 64);
                tiles.multiply_bf16::<1, 5, 6>();
                tiles.load::<7>(second_strip.add(at), 64);
                tiles.multiply_bf16::<2, 4, 7>();
                tiles.multiply_bf16::<3, 5, 7>();
            }
            tiles.store::<0>(self.sums(0), 64);
            tiles.store::<1>(self.sums(1), 64);
            tiles.store::<2>(self.sums(2), 64);
            tiles.store::<3>(self.sums(3), 64);
        }
    }

    /// Two tiles of sums, for a strip that is left over.
    #[inline]
    unsafe fn two_by_one(&self, tiles: &Configured) {
        let second_rows = self.panel.wrapping_add(self.steps * TILE_BYTES);
        // SAFETY: the operands have `steps` tiles each, and two tiles of sums.
        unsafe {
            if self.is_first {
                tiles.zero::<0>();
                tiles.zero::<1>();
            } else {
                tiles.load::<0>(self.sums(0), 64);
                tiles.load::<1>(self.sums(1), 64);
            }
            for step in 0..self.steps {
                let at = step * TILE_BYTES;
                tiles.load::<4>(self.panel.add(at), 64);
                tiles.load::<6>(self.x.add(at), 64);
                tiles.multiply_bf16::<0, 4, 6>();
                tiles.load::<5>(second_rows.add(at), 64);
                tiles.multiply_bf16::<1, 5, 6>();
            }
            tiles.store::<0>(self.sums(0), 64);
            tiles.store::<1>(self.sums(1), 64);
        }
    }
}
