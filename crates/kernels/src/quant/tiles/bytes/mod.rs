//! Weights and activations as bytes, with a scale for every row and block: twice the speed of bf16. The tiles
//! add up a block in i32; meanwhile vectors scale the sums before these and unpack the panels after them.

mod input;
mod panel;

use super::vector::store_part;
use super::{BLOCK, Job, PANEL, Part, Scratch, TILE, TILE_BYTES, UNIT};
use crate::amx::Configured;
use input::Places;
pub(super) use input::{input_bytes, prepare};
use panel::{Source, Unpacking};
use std::arch::x86_64::*;
use std::ops::Range;

/// Panels whose unpacked blocks stay in the innermost cache while activations pass.
const PANELS_AT_ONCE: usize = 2;
/// Sums of a tile.
const TILE_SUMS: usize = TILE * TILE;

/// Computes a part.
///
/// # Safety
/// The machine has what the AMX path asks for, the part exists, and nobody else uses its columns of the
/// output now.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,f16c")]
pub(super) unsafe fn multiply(job: &Job<'_>, part: &Part, scratch: &mut Scratch) {
    let Some(tiles) = Configured::new() else { return };
    let row_tiles = part.row_tiles();
    let places = Places::new(job.layout, job.rows);
    let (panels, sums, whole) = (scratch.panel(), scratch.sums(), scratch.group_sums().cast::<i32>());
    let first_strip = part.rows.start / TILE;
    let prepared = job.prepared.as_ptr();
    let source = Source::new(job.weight);
    let passes = Passes::of(job, part);
    let unpacking = |pass: usize| {
        let (block, panels_of) = passes.get(pass);
        // Two turns: one is multiplied while the other is unpacked.
        let to = panels.wrapping_add(pass % 2 * PANELS_AT_ONCE * PANEL * BLOCK);
        Unpacking::new(&source, panels_of, block, to)
    };
    // SAFETY: the prepared activations have a strip and its scales for every 16 rows; the scratch has room for
    // twice the blocks of two panels, for the sums of the part and for twice four tiles of whole numbers.
    unsafe {
        let mut now = unpacking(0);
        now.finish();
        for pass in 0..passes.len() {
            let (block, panels_of) = passes.get(pass);
            let (start, steps) = (block.start, block.len().div_ceil(UNIT));
            let mut next = (pass + 1 < passes.len()).then(|| unpacking(pass + 1));
            let products = row_tiles.div_ceil(2) * panels_of.len();
            let rows_meanwhile = (PANELS_AT_ONCE * PANEL).div_ceil(products.max(1));
            let of_pass = panels.add(pass % 2 * PANELS_AT_ONCE * PANEL * BLOCK);
            let mut waiting: Option<Waiting<'_>> = None;
            let mut turn = 0;
            for strip in (0..row_tiles).step_by(2) {
                for (panel, index) in panels_of.clone().enumerate() {
                    let strip_bytes = places.strip_bytes(start);
                    let x = prepared.add(places.strip(start, first_strip + strip));
                    // Each of the panels asks for its share of the next strips.
                    let lines = 2 * TILE / panels_of.len();
                    let operands = Operands {
                        panel: of_pass.add(panel * 2 * steps * TILE_BYTES),
                        x,
                        strip_bytes,
                        steps,
                        ahead: x.wrapping_add(2 * strip_bytes + panel * steps * lines * 64),
                        lines,
                    };
                    let whole = whole.add(turn * 4 * TILE_SUMS);
                    let strips = if row_tiles - strip >= 2 {
                        operands.two_by_two(&tiles, waiting.as_ref(), whole);
                        2
                    } else {
                        operands.two_by_one(&tiles, waiting.as_ref(), whole);
                        1
                    };
                    waiting = Some(Waiting {
                        whole,
                        to: sums.add(((index - part.panels.start) * row_tiles + strip) * 2 * TILE_SUMS),
                        of_weight: &now.scales[panel],
                        of_strips: prepared.add(places.scales(start, first_strip + strip)).cast(),
                        strips,
                        is_first: start == 0,
                    });
                    turn = 1 - turn;
                    if let Some(next) = &mut next {
                        next.advance(rows_meanwhile);
                    }
                }
            }
            if let Some(waiting) = waiting {
                waiting.scale_from(0);
            }
            if let Some(mut next) = next {
                next.finish();
                now = next;
            }
        }
        drop(tiles);
        store_part(job, part, sums);
    }
}

/// The order in which a part is computed: block by block along the row, in each block two panels at a time.
struct Passes {
    k: usize,
    panels: Range<usize>,
}

impl Passes {
    fn of(job: &Job<'_>, part: &Part) -> Passes {
        Passes { k: job.weight.k, panels: part.panels.clone() }
    }

    fn per_block(&self) -> usize {
        self.panels.len().div_ceil(PANELS_AT_ONCE)
    }

    fn len(&self) -> usize {
        self.k.div_ceil(BLOCK) * self.per_block()
    }

    /// The values and the panels of a pass.
    fn get(&self, pass: usize) -> (Range<usize>, Range<usize>) {
        let start = pass / self.per_block() * BLOCK;
        let panel = self.panels.start + pass % self.per_block() * PANELS_AT_ONCE;
        (start..self.k.min(start + BLOCK), panel..self.panels.end.min(panel + PANELS_AT_ONCE))
    }
}

/// What largest magnitude bytes are multiples of, and how often it goes into 1; NaN where it is not finite.
fn scale_and_inverse(largest: f32) -> (f32, f32) {
    if !largest.is_finite() {
        return (f32::NAN, 0.0);
    }
    // Below this, the reciprocal overflows; such values do not count beside any others.
    (largest / 127.0, if largest < 1e-35 { 0.0 } else { 127.0 / largest })
}

/// Four vectors of 16 as bytes. The result's 32 bits `4 * i + j` are values `4 * i..4 * i + 4` of vector `j`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn narrow(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> __m512i {
    _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d))
}

/// Tiles of sums in i32 that are still to be scaled and added: the panel's two, for one strip or two.
struct Waiting<'a> {
    whole: *const i32,
    to: *mut f32,
    of_weight: &'a [f32; PANEL],
    /// Scales of the activations, 16 a strip.
    of_strips: *const f32,
    strips: usize,
    is_first: bool,
}

impl Waiting<'_> {
    /// Scales the tiles from one on.
    ///
    /// # Safety
    /// All places are there, and nobody else uses the sums now.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn scale_from(&self, first: usize) {
        for tile in first..2 * self.strips {
            // SAFETY: the caller's promise.
            unsafe { self.scale(tile) };
        }
    }

    /// Scales one tile, if there is such a one.
    ///
    /// # Safety
    /// As for [`Waiting::scale_from`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn scale(&self, tile: usize) {
        if tile >= 2 * self.strips {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let of_strip = _mm512_loadu_ps(self.of_strips.add(tile / 2 * TILE));
            let of_weight = self.of_weight.as_ptr().add(tile % 2 * TILE);
            let (whole, to) = (self.whole.add(tile * TILE_SUMS), self.to.add(tile * TILE_SUMS));
            if self.is_first {
                for row in 0..TILE {
                    let sums = _mm512_cvtepi32_ps(_mm512_load_si512(whole.add(row * TILE).cast()));
                    let scaled = _mm512_mul_ps(sums, _mm512_set1_ps(*of_weight.add(row)));
                    _mm512_store_ps(to.add(row * TILE), _mm512_mul_ps(scaled, of_strip));
                }
            } else {
                for row in 0..TILE {
                    let sums = _mm512_cvtepi32_ps(_mm512_load_si512(whole.add(row * TILE).cast()));
                    let scaled = _mm512_mul_ps(sums, _mm512_set1_ps(*of_weight.add(row)));
                    let to = to.add(row * TILE);
                    _mm512_store_ps(to, _mm512_fmadd_ps(scaled, of_strip, _mm512_load_ps(to)));
                }
            }
        }
    }
}

/// A block of a panel and one or two strips of activations.
struct Operands {
    panel: *const u8,
    x: *const u8,
    strip_bytes: usize,
    /// Tiles along the row.
    steps: usize,
    /// What comes next, and how many lines of it are asked for in each step.
    ahead: *const u8,
    lines: usize,
}

impl Operands {
    /// Four tiles of sums: four products follow four loads. What waits is scaled meanwhile.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn two_by_two(&self, tiles: &Configured, waiting: Option<&Waiting<'_>>, whole: *mut i32) {
        let second_rows = self.panel.wrapping_add(self.steps * TILE_BYTES);
        let second_strip = self.x.wrapping_add(self.strip_bytes);
        // SAFETY: the operands have `steps` tiles each, and there is room for four tiles of sums.
        unsafe {
            tiles.zero::<0>();
            tiles.zero::<1>();
            tiles.zero::<2>();
            tiles.zero::<3>();
            for step in 0..self.steps {
                let at = step * TILE_BYTES;
                tiles.load::<4>(self.panel.add(at), 64);
                tiles.load::<6>(self.x.add(at), 64);
                tiles.multiply_i8::<0, 4, 6>();
                tiles.load::<5>(second_rows.add(at), 64);
                tiles.multiply_i8::<1, 5, 6>();
                tiles.load::<7>(second_strip.add(at), 64);
                tiles.multiply_i8::<2, 4, 7>();
                tiles.multiply_i8::<3, 5, 7>();
                for line in 0..self.lines {
                    let line = self.ahead.wrapping_add((step * self.lines + line) * 64);
                    _mm_prefetch::<_MM_HINT_T0>(line.cast());
                }
                if let Some(waiting) = waiting {
                    waiting.scale(step);
                }
            }
            if let Some(waiting) = waiting {
                waiting.scale_from(self.steps);
            }
            tiles.store::<0>(whole.cast(), 64);
            tiles.store::<1>(whole.add(TILE_SUMS).cast(), 64);
            tiles.store::<2>(whole.add(2 * TILE_SUMS).cast(), 64);
            tiles.store::<3>(whole.add(3 * TILE_SUMS).cast(), 64);
        }
    }

    /// Two tiles of sums, for a strip that is left over.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn two_by_one(&self, tiles: &Configured, waiting: Option<&Waiting<'_>>, whole: *mut i32) {
        let second_rows = self.panel.wrapping_add(self.steps * TILE_BYTES);
        // SAFETY: the operands have `steps` tiles each, and there is room for two tiles of sums.
        unsafe {
            tiles.zero::<0>();
            tiles.zero::<1>();
            for step in 0..self.steps {
                let at = step * TILE_BYTES;
                tiles.load::<4>(self.panel.add(at), 64);
                tiles.load::<6>(self.x.add(at), 64);
                tiles.multiply_i8::<0, 4, 6>();
                tiles.load::<5>(second_rows.add(at), 64);
                tiles.multiply_i8::<1, 5, 6>();
            }
            if let Some(waiting) = waiting {
                waiting.scale_from(0);
            }
            tiles.store::<0>(whole.cast(), 64);
            tiles.store::<1>(whole.add(TILE_SUMS).cast(), 64);
        }
    }
}
