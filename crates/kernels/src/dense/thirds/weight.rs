//! A weight as three bf16 a number, in the order in which tiles are multiplied.

use super::block::Ahead;
use super::{COLUMNS, PARTS, TERMS, TILE};
use crate::dense::packed::Line;
use crate::path::Path;
use crate::view::View;

/// A matrix of [columns, inner]: tiles of 16 columns, for each the steps of 32 terms, for each its three parts.
pub(in super::super) struct Weight {
    lines: Vec<Line>,
    pub(super) inner: usize,
    pub(super) columns: usize,
    pub(super) steps: usize,
}

/// The three parts of a number, as their upper halves: each holds the next eight bits, and nothing is left.
pub(super) fn parts(value: f32) -> [u16; PARTS] {
    let upper = |value: f32| f32::from_bits(value.to_bits() & 0xffff_0000);
    let (first, rest) = (upper(value), value - upper(value));
    let (second, third) = (upper(rest), rest - upper(rest));
    [first, second, third].map(|part| (part.to_bits() >> 16) as u16)
}

impl Weight {
    /// Packs a matrix where a path has tiles and they pay; `None` elsewhere, and where an element is not finite.
    pub(in super::super) fn pack(path: Path, weight: &View<'_>) -> Option<Weight> {
        let (&[columns, inner], &[by_column, by_term]) = (weight.sizes(), weight.strides()) else {
            return None;
        };
        if path != Path::Amx || !path.is_available() || !pays(inner, columns) {
            return None;
        }
        let (tiles, steps) = (columns.div_ceil(COLUMNS), inner.div_ceil(TERMS));
        let bytes = tiles.checked_mul(steps)?.checked_mul(PARTS * TILE)?;
        let mut lines = vec![Line([0.0; 16]); bytes / size_of::<Line>()];
        let to: *mut u16 = lines.as_mut_ptr().cast();
        for column in 0..columns {
            let from = weight.data().cast::<f32>().wrapping_offset(column as isize * by_column);
            let tile = column / COLUMNS * steps;
            for term in 0..inner {
                // SAFETY: the element is inside the view.
                let value = unsafe { from.wrapping_offset(term as isize * by_term).read() };
                if !value.is_finite() {
                    return None;
                }
                let at = (tile + term / TERMS) * PARTS * TILE / 2;
                // Terms that are sixteen apart are a pair: so they come out of two vectors without a shuffle.
                let within = term % 16 * 2 * COLUMNS + column % COLUMNS * 2 + term % TERMS / 16;
                for (part, bits) in parts(value).into_iter().enumerate() {
                    // SAFETY: there is room for all parts of all tiles.
                    unsafe { to.add(at + part * TILE / 2 + within).write(bits) };
                }
            }
        }
        Some(Weight { lines, inner, columns, steps })
    }

    pub(in super::super) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Tiles of columns.
    pub(super) fn tiles(&self) -> usize {
        self.columns.div_ceil(COLUMNS)
    }

    /// The two tiles of columns from one on, as far as there are any.
    pub(super) fn ahead(&self, tile: usize) -> Ahead {
        let count = self.tiles().saturating_sub(tile).min(2);
        Ahead { from: self.at(tile, 0), lines: count * self.steps * PARTS * TILE / 64 }
    }

    /// Where the parts of a tile of columns begin, at a step.
    pub(super) fn at(&self, tile: usize, step: usize) -> *const u8 {
        self.lines.as_ptr().cast::<u8>().wrapping_add((tile * self.steps + step) * PARTS * TILE)
    }
}

/// Whether tiles are faster than vectors: in cycles for 16 rows, of which splitting takes its part however few columns there are.
fn pays(inner: usize, columns: usize) -> bool {
    let (tiles, steps) = (columns.div_ceil(COLUMNS), inner.div_ceil(TERMS));
    let by_tiles = steps.saturating_mul(150usize.saturating_add(tiles.saturating_mul(105)));
    let by_tiles = by_tiles.saturating_add(tiles.saturating_mul(60));
    let by_vectors = tiles.saturating_mul(COLUMNS).saturating_mul(inner).saturating_mul(16) / 26;
    inner > 0 && by_tiles < by_vectors
}
