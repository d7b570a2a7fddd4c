//! Products with a weight of f32 that was packed once: panels of a few vectors of columns, each dense from the first term to
//! the last, so that a tile of sums is a run of loads, broadcasts and multiply-adds that never leaves its registers; or, where a
//! machine has matrix tiles and they pay, numbers in parts of bf16 (`thirds`). A row's numbers depend on nothing but the row:
//! sums run over all terms in order, however rows are cut into tiles and tasks.
//!
//! A tile of AVX-512 is 8 rows of 3 vectors or 12 of 2: 24 multiply-adds for 11 or 14 loads, where two of each fit a cycle. With
//! 16 registers (AVX2) it is 6 rows of 2: 12 for 8.

use super::many::each_item;
use super::micro::{tile, with_rows};
use crate::epilogue::Epilogue;
use crate::path::Path;
use crate::pool::Pool;
use crate::simd::{Kernel, Simd, on};
use crate::split::Shared;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;
use std::ops::Range;

/// Rows that whole tiles of every width divide.
const ROWS: usize = 24;
/// Bytes of a weight that stays near while rows stream by.
const NEAR_WEIGHT: usize = 256 << 10;
/// Bytes of rows that stay near while a larger weight streams by.
const NEAR_ROWS: usize = 5 << 18;

/// A line of the cache, so that panels begin at one.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Line(pub(super) [f32; 16]);

/// How a matrix is packed.
enum Form {
    /// Panels of vectors.
    Vectors(Vec<Line>),
    /// For matrix tiles.
    #[cfg(target_arch = "x86_64")]
    Tiles(super::thirds::Weight),
}

/// A matrix of [columns, inner] in panels.
pub struct Panels {
    form: Form,
    inner: usize,
    columns: usize,
    path: Path,
    lanes: usize,
    /// The most vectors of a panel.
    widest: usize,
}

impl std::fmt::Debug for Panels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Panels of {} columns by {} terms for {}", self.columns, self.inner, self.path)
    }
}

/// Lanes of a path, and vectors of its panels: three where the sums of eight rows have registers.
struct Widths;
impl Kernel for Widths {
    type Output = (usize, usize);
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (usize, usize) {
        (S::LANES, if S::ACCUMULATORS >= 24 { 3 } else { 2 })
    }
}

impl Panels {
    /// Packs a matrix for a path; `None` where its elements cannot be counted.
    ///
    /// # Panics
    /// When it is no matrix of f32.
    pub fn pack(path: Path, weight: &View<'_>) -> Option<Panels> {
        assert_eq!(weight.dtype(), DType::F32, "panels are of f32");
        let (&[columns, inner], &[by_column, by_term]) = (weight.sizes(), weight.strides()) else {
            panic!("a matrix has two axes");
        };
        let (lanes, widest) = on(path, Widths);
        #[cfg(target_arch = "x86_64")]
        if let Some(weight) = super::thirds::Weight::pack(path, weight) {
            return Some(Panels { form: Form::Tiles(weight), inner, columns, path, lanes, widest });
        }
        let floats = columns.checked_next_multiple_of(lanes)?.checked_mul(inner)?;
        let mut lines = vec![Line([0.0; 16]); floats.div_ceil(16)];
        let to: *mut f32 = lines.as_mut_ptr().cast();
        let mut packed = Panels { form: Form::Vectors(Vec::new()), inner, columns, path, lanes, widest };
        for panel in 0..packed.count() {
            let (first, width) = packed.vectors(panel);
            let columns = first * lanes..columns.min((first + width) * lanes);
            for column in columns.clone() {
                let from = weight.data().cast::<f32>().wrapping_offset(column as isize * by_column);
                let to = to.wrapping_add(first * lanes * inner + column - columns.start);
                for term in 0..inner {
                    // SAFETY: the element is inside the view; the panel has room for all columns of its vectors.
                    unsafe {
                        to.add(term * width * lanes)
                            .write(from.wrapping_offset(term as isize * by_term).read());
                    }
                }
            }
        }
        packed.form = Form::Vectors(lines);
        Some(packed)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Vectors(lines) => lines.len() * size_of::<Line>(),
            #[cfg(target_arch = "x86_64")]
            Form::Tiles(weight) => weight.bytes(),
        }
    }

    /// Bytes of scratch for a product of so many rows, of a matrix as it lies.
    pub fn scratch_bytes(&self, rows: usize, threads: usize) -> usize {
        self.scratch(rows, false, threads)
    }

    /// Bytes of scratch for so many rows, which are collected first or are not.
    pub(crate) fn scratch(&self, rows: usize, collected: bool, threads: usize) -> usize {
        let floats = match &self.form {
            Form::Vectors(_) if !collected => return 0,
            Form::Vectors(_) => {
                block_rows(rows, self.inner, self.columns).saturating_mul(self.inner).saturating_mul(threads)
            }
            #[cfg(target_arch = "x86_64")]
            Form::Tiles(weight) => super::thirds::scratch_floats(rows, weight, collected, threads),
        };
        floats.saturating_mul(4).saturating_add(64)
    }

    /// Terms of a sum.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Columns of the result.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Panels of three vectors, and of two; what is left is one vector.
    fn widths(&self) -> (usize, usize) {
        let vectors = self.columns.div_ceil(self.lanes);
        // As few of two as leave a multiple of three.
        let pairs = if self.widest == 3 && vectors > 1 { [0, 2, 1][vectors % 3] } else { vectors / 2 };
        let wide = if self.widest == 3 { vectors.saturating_sub(2 * pairs) / 3 } else { 0 };
        (wide, pairs)
    }

    fn count(&self) -> usize {
        let (wide, pairs) = self.widths();
        wide + pairs + usize::from(3 * wide + 2 * pairs < self.columns.div_ceil(self.lanes))
    }

    /// The first vector of a panel, and how many it has.
    fn vectors(&self, panel: usize) -> (usize, usize) {
        let (wide, pairs) = self.widths();
        match panel.checked_sub(wide) {
            None => (3 * panel, 3),
            Some(narrow) if narrow < pairs => (3 * wide + 2 * narrow, 2),
            Some(_) => (3 * wide + 2 * pairs, 1),
        }
    }

    /// The columns of some panels.
    fn columns_of(&self, panels: &Range<usize>) -> Range<usize> {
        let start = |panel: usize| match panel == self.count() {
            true => self.columns,
            false => self.vectors(panel).0 * self.lanes,
        };
        start(panels.start)..start(panels.end)
    }
}

/// Where the rows of a product come from.
pub(crate) trait Rows: Sync {
    /// Rows that are dense along the inner axis, and the distance between them: where they lie, or in scratch with room for
    /// `rows.len()` of them.
    fn rows(&self, rows: Range<usize>, scratch: *mut f32) -> (*const f32, usize);
    /// Whether they need that room.
    fn are_collected(&self) -> bool;
}

/// A product into some columns of an output.
pub(crate) struct Job<'a> {
    pub(crate) panels: &'a Panels,
    pub(crate) rows: usize,
    /// Of the output, as are the columns of a row.
    pub(crate) out: Shared<f32>,
    pub(crate) row: usize,
    /// The first column that is written.
    pub(crate) column: usize,
    pub(crate) epilogue: Epilogue<'a>,
}

/// Rows that are multiplied with one panel after the other.
fn block_rows(rows: usize, inner: usize, columns: usize) -> usize {
    let weight = inner.saturating_mul(columns).saturating_mul(4);
    let block = match weight <= NEAR_WEIGHT {
        true => 2 * ROWS,
        false => (NEAR_ROWS / (inner * 4).max(1)).max(ROWS),
    };
    block.min(rows).max(1)
}

/// Into how many parts rows and panels are cut: the larger operand first, so that it is read once.
fn cut(rows: usize, panels: &Panels, threads: usize) -> (usize, usize) {
    let (count, wanted) = (panels.count(), 3 * threads);
    if threads == 1 {
        return (1, 1);
    }
    let by_rows = |wanted: usize| wanted.min(rows / ROWS).max(1);
    if rows < panels.columns {
        let parts = wanted.min(count);
        return (by_rows(wanted.div_ceil(parts)), parts);
    }
    let parts = by_rows(wanted);
    (parts, wanted.div_ceil(parts).min(count))
}

/// Computes a product. Scratch holds [`Panels::scratch`] and may begin anywhere.
///
/// # Safety
/// The output has the rows and columns that the job names, and nobody else touches those that it writes; the epilogue was checked
/// against it.
pub(crate) unsafe fn run(pool: &Pool, job: &Job<'_>, source: &dyn Rows, scratch: &mut [u8]) {
    assert!(
        scratch.len() >= job.panels.scratch(job.rows, source.are_collected(), pool.threads()),
        "scratch is too small"
    );
    let skip = scratch.as_ptr().align_offset(64).min(scratch.len());
    let scratch = scratch[skip..].as_mut_ptr().cast();
    #[cfg(target_arch = "x86_64")]
    if let Form::Tiles(weight) = &job.panels.form {
        // SAFETY: the caller's promise; scratch was checked, and begins at a line.
        return unsafe { super::thirds::run(pool, job, weight, source, scratch) };
    }
    let Panels { inner, columns, path, .. } = *job.panels;
    let (row_parts, panel_parts) = cut(job.rows, job.panels, pool.threads());
    let block = block_rows(job.rows, inner, columns);
    let own = if source.are_collected() { block * inner } else { 0 };
    // About as many multiply-adds as one core does in a nanosecond.
    let cost = job.rows.saturating_mul(columns).saturating_mul(inner.max(1)) / 40;
    let count = job.panels.count();
    let lines = match &job.panels.form {
        Form::Vectors(lines) => lines,
        #[cfg(target_arch = "x86_64")]
        Form::Tiles(_) => return,
    };
    each_item(pool, row_parts * panel_parts, cost, scratch, own, &|item, scratch| {
        let (row_part, panel_part) = (item / panel_parts, item % panel_parts);
        let part = |at: usize, all: usize, parts: usize| all * at / parts;
        let rows = part(row_part, job.rows, row_parts)..part(row_part + 1, job.rows, row_parts);
        let panels = part(panel_part, count, panel_parts)..part(panel_part + 1, count, panel_parts);
        let columns = job.panels.columns_of(&panels);
        let blocks = rows.len().div_ceil(block);
        for at in 0..blocks {
            let start = |at: usize| rows.start + part(at, rows.len(), blocks);
            let rows = start(at)..start(at + 1);
            let (a, stride) = source.rows(rows.clone(), scratch);
            let strip = Strip {
                job,
                lines,
                out: job.out.get(),
                a,
                stride,
                rows: rows.clone(),
                panels: panels.clone(),
            };
            on(path, strip);
            if let Some(then) = job.epilogue.then {
                then(rows, job.column + columns.start..job.column + columns.end);
            }
        }
    });
}

/// Some rows times some panels.
struct Strip<'a> {
    job: &'a Job<'a>,
    lines: &'a [Line],
    out: *mut f32,
    /// The first of the rows.
    a: *const f32,
    stride: usize,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl Kernel for Strip<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for panel in self.panels.clone() {
            let (first, width) = self.job.panels.vectors(panel);
            let most = (S::ACCUMULATORS / width).clamp(1, 12);
            // Tiles of about the same height: one row alone takes nearly as long as four.
            let tiles = self.rows.len().div_ceil(most);
            for at in 0..tiles {
                let start = self.rows.len() * at / tiles;
                let rows = self.rows.len() * (at + 1) / tiles - start;
                // SAFETY: rows and panels are inside, as whoever made this kernel says.
                unsafe {
                    match width {
                        3 => with_rows!(8, rows, M => self.tile::<S, M, 3>(start, first)),
                        2 => with_rows!(12, rows, M => self.tile::<S, M, 2>(start, first)),
                        _ => with_rows!(12, rows, M => self.tile::<S, M, 1>(start, first)),
                    }
                }
            }
        }
    }
}

impl Strip<'_> {
    /// A tile of `M` rows from `start` on and `N` vectors of columns from `first` on.
    ///
    /// # Safety
    /// They are inside; the instruction set is there.
    #[inline(always)]
    unsafe fn tile<S: Simd, const M: usize, const N: usize>(&self, start: usize, first: usize) {
        let Job { panels, row, column, epilogue, .. } = self.job;
        // SAFETY: the caller's promise; a panel lies behind those before it, all of its vectors padded with zeros.
        unsafe {
            let b = self.lines.as_ptr().cast::<f32>().add(first * S::LANES * panels.inner);
            let a = self.a.add(start * self.stride);
            let sums = tile::<S, f32, M, N>(panels.inner, a, self.stride, 1, b, N * S::LANES);
            for (m, sums) in sums.into_iter().enumerate() {
                for (n, sum) in sums.into_iter().enumerate() {
                    let own = (first + n) * S::LANES;
                    let count = (panels.columns - own).min(S::LANES);
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

/// Rows of a matrix as they lie.
struct Lying {
    data: Shared<f32>,
    stride: usize,
}

impl Rows for Lying {
    fn rows(&self, rows: Range<usize>, _: *mut f32) -> (*const f32, usize) {
        (self.data.get().wrapping_add(rows.start * self.stride), self.stride)
    }

    fn are_collected(&self) -> bool {
        false
    }
}

/// `out = a @ weight^T` and the epilogue: `a` of [rows, inner] with dense rows, `out` of [rows, columns] without gaps, both f32.
///
/// # Panics
/// When sizes or dtypes do not fit, or scratch is smaller than [`Panels::scratch_bytes`].
pub fn product(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    a: &View<'_>,
    panels: &Panels,
    epilogue: &Epilogue<'_>,
    scratch: &mut [u8],
) {
    let (&[rows, inner], &[stride, _]) = (a.sizes(), a.strides()) else { panic!("a matrix has two axes") };
    assert!(a.dtype() == DType::F32 && out.dtype() == DType::F32, "products of f32");
    assert!(inner == panels.inner && *out.sizes() == [rows, panels.columns], "sizes that fit");
    assert!(a.has_dense_rows() && stride >= 0 && out.is_contiguous(), "dense rows");
    epilogue.check(rows, panels.columns);
    if out.is_empty() {
        return;
    }
    let source = Lying { data: Shared::new(a.data().cast::<f32>().cast_mut()), stride: stride as usize };
    let (out, row) = (Shared::new(out.data().cast()), panels.columns);
    let job = Job { panels, rows, out, row, column: 0, epilogue: *epilogue };
    // SAFETY: the output is borrowed by this call, and has those rows and columns.
    unsafe { run(pool, &job, &source, scratch) };
}
