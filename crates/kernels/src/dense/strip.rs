//! Some rows times some panels: tiles of sums that stay in registers over a span of terms. Spans are short enough that their part of
//! a panel, and of the rows, stay in the second cache while tile after tile reads them; between two spans sums lie in scratch, so
//! that the terms of each are added in one order, whatever the cut.

use super::micro::with_rows;
use super::packed::{Job, Line};
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Terms of a span at most, where rows do not come in longer pieces. A panel of three vectors of 16 has 108 KiB of them.
pub(super) const TERMS: usize = 576;

/// Into how many spans rows of pieces of so many terms are cut.
pub(super) fn spans(inner: usize, piece: usize) -> usize {
    let (pieces, most) = (inner / piece.max(1), (TERMS / piece.max(1)).max(1));
    pieces.div_ceil(most).max(1)
}

/// Where the rows of a strip lie.
#[derive(Clone, Copy)]
pub(super) enum Left {
    /// The first of them; all are dense along the inner axis and so far apart.
    Dense(*const f32, usize),
    /// The addresses of their pieces, `[pieces][rows]`, and the terms of each.
    Pieces(*const *const f32, usize),
}

/// Some rows times some panels.
pub(super) struct Strip<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) lines: &'a [Line],
    pub(super) out: *mut f32,
    pub(super) left: Left,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    /// Room for the sums of all rows and vectors where there is more than one span.
    pub(super) between: *mut f32,
}

/// What the tiles of a panel have in common.
struct Part {
    terms: Range<usize>,
    /// The panel's first vector, and how many are before it in the strip.
    first: usize,
    before: usize,
    is_first: bool,
    is_last: bool,
}

impl Kernel for Strip<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let inner = self.job.panels.inner();
        let piece = match self.left {
            Left::Dense(..) => 1,
            Left::Pieces(_, terms) => terms,
        };
        let spans = spans(inner, piece);
        let begin = |span: usize| inner / piece * span / spans * piece;
        let strip = self.job.panels.vectors(self.panels.start).0;
        for span in 0..spans {
            let terms = begin(span)..begin(span + 1);
            for panel in self.panels.clone() {
                let (first, width) = self.job.panels.vectors(panel);
                let (before, is_first, is_last) = (first - strip, span == 0, span + 1 == spans);
                let part = Part { terms: terms.clone(), first, before, is_first, is_last };
                let most = (S::ACCUMULATORS / width).clamp(1, 12);
                // Tiles of about the same height: one row alone takes nearly as long as four.
                let tiles = self.rows.len().div_ceil(most);
                // The next panel's part of this span, or the next span's of the first: as many tiles as a panel has vectors ask for
                // their share, a line of the cache a term.
                let next = match panel + 1 < self.panels.end {
                    true => self.panel::<S>(panel + 1, terms.start),
                    false => self.panel::<S>(self.panels.start, terms.end % inner.max(1)),
                };
                for at in 0..tiles {
                    let start = self.rows.len() * at / tiles;
                    let rows = self.rows.len() * (at + 1) / tiles - start;
                    let ahead = match at < width {
                        true => (next.wrapping_add(at * terms.len() * 16), 16),
                        // What it has itself: nothing is fetched.
                        false => (self.panel::<S>(panel, terms.start), 0),
                    };
                    // SAFETY: rows and panels are inside, as whoever made this kernel says.
                    unsafe {
                        match width {
                            3 => with_rows!(8, rows, M => self.tile::<S, M, 3>(start, &part, ahead)),
                            2 => with_rows!(12, rows, M => self.tile::<S, M, 2>(start, &part, ahead)),
                            _ => with_rows!(12, rows, M => self.tile::<S, M, 1>(start, &part, ahead)),
                        }
                    }
                }
            }
        }
    }
}

impl Strip<'_> {
    /// A panel, from a term on.
    #[inline(always)]
    fn panel<S: Simd>(&self, panel: usize, term: usize) -> *const f32 {
        let panels = self.job.panels;
        let (first, width) = panels.vectors(panel);
        let at = first * panels.inner() + term * width;
        self.lines.as_ptr().cast::<f32>().wrapping_add(at * S::LANES)
    }

    /// A tile of `M` rows from `start` on and `N` vectors of columns.
    ///
    /// # Safety
    /// They are inside; the instruction set is there.
    #[inline(always)]
    unsafe fn tile<S: Simd, const M: usize, const N: usize>(
        &self,
        start: usize,
        part: &Part,
        ahead: (*const f32, usize),
    ) {
        let Job { panels, row, column, epilogue, .. } = self.job;
        let Part { terms, first, before, is_first, is_last } = part;
        let pitch = panels.columns().div_ceil(S::LANES) * S::LANES;
        // SAFETY: the caller's promise; a panel lies behind those before it, all of its vectors padded with zeros; the sums of every
        // row and vector have a place between spans.
        unsafe {
            let place =
                |m: usize, n: usize| self.between.wrapping_add((start + m) * pitch + (before + n) * S::LANES);
            let mut sums = [[S::splat(0.0); N]; M];
            if !is_first {
                for (m, sums) in sums.iter_mut().enumerate() {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        *sum = S::load(place(m, n));
                    }
                }
            }
            let b =
                self.lines.as_ptr().cast::<f32>().add((first * panels.inner() + terms.start * N) * S::LANES);
            match self.left {
                Left::Dense(a, stride) => {
                    let a = a.add(start * stride + terms.start);
                    add::<S, M, N>(
                        &mut sums,
                        terms.len(),
                        std::array::from_fn(|m| a.add(m * stride)),
                        b,
                        ahead,
                    );
                }
                Left::Pieces(list, length) => {
                    for piece in 0..terms.len() / length.max(1) {
                        let list = list.add((terms.start / length + piece) * self.rows.len() + start);
                        let rows = std::array::from_fn(|m| list.add(m).read());
                        let b = b.add(piece * length * N * S::LANES);
                        let ahead = (ahead.0.wrapping_add(piece * length * ahead.1), ahead.1);
                        add::<S, M, N>(&mut sums, length, rows, b, ahead);
                    }
                }
            }
            for (m, sums) in sums.into_iter().enumerate() {
                for (n, sum) in sums.into_iter().enumerate() {
                    if !is_last {
                        S::store(place(m, n), sum);
                        continue;
                    }
                    let own = (first + n) * S::LANES;
                    let count = (panels.columns() - own).min(S::LANES);
                    let (column, at) = (column + own, (self.rows.start + start + m) * row + column + own);
                    let value = epilogue.apply::<S>(sum, column, at, count);
                    match count == S::LANES {
                        true => S::store(self.out.add(at), value),
                        false => S::store_first(self.out.add(at), value, count),
                    }
                }
            }
        }
    }
}

/// Adds `sum over j of a[i][j] * b[j * N vectors ..]` for `M` rows and `N` vectors of columns; where there are registers left, it asks
/// for a line of the cache a term.
///
/// # Safety
/// The instruction set of `S` is there; rows have `terms` elements, `b` has as many rows of `N` vectors.
#[inline(always)]
unsafe fn add<S: Simd, const M: usize, const N: usize>(
    sums: &mut [[S::F; N]; M],
    terms: usize,
    a: [*const f32; M],
    b: *const f32,
    (ahead, step): (*const f32, usize),
) {
    // Each stays in a register. Worked out from one another with every term, they would be more instructions than fit beside the
    // multiply-adds.
    let a = a.map(S::opaque);
    let (mut b, mut ahead) = (b, ahead);
    // SAFETY: the caller's promise.
    unsafe {
        let mut of_registers = *sums;
        for j in 0..terms {
            let columns: [S::F; N] = std::array::from_fn(|n| S::load(b.add(n * S::LANES)));
            b = b.wrapping_add(N * S::LANES);
            if N > 2 {
                S::prefetch(ahead);
                ahead = ahead.wrapping_add(step);
            }
            for (a, sums) in a.iter().zip(&mut of_registers) {
                let factor = S::splat(a.add(j).read());
                for (sum, columns) in sums.iter_mut().zip(columns) {
                    *sum = S::fma(factor, columns, *sum);
                }
            }
        }
        *sums = of_registers;
    }
}
