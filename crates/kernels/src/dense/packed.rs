//! Products with a weight of f32 that was packed once: panels of a few vectors of columns, each dense from the first term to
//! the last, so that a tile of sums is a run of loads, broadcasts and multiply-adds in its registers (`strip`); or, where a
//! machine has matrix tiles and they pay, numbers in parts of bf16 (`thirds`). A row's numbers depend on nothing but the row:
//! sums run over all terms in order, however rows are cut into tiles and tasks.
//!
//! A tile of AVX-512 is 8 rows of 3 vectors or 12 of 2: 24 multiply-adds for 11 or 14 loads, where two of each fit a cycle. With
//! 16 registers (AVX2) it is 6 rows of 2: 12 for 8.

use super::many::each_item;
use super::strip::{Left, Strip, TERMS, spans};
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
/// Bytes of rows, in a span of their terms, that stay near while a larger weight streams by.
const NEAR_ROWS: usize = 3 << 17;

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
        self.scratch(rows, Origin::Dense, threads)
    }

    /// Bytes of scratch for so many rows from there.
    pub(crate) fn scratch(&self, rows: usize, origin: Origin, threads: usize) -> usize {
        let floats = match &self.form {
            Form::Vectors(_) => match self.task_floats(rows, origin) {
                (0, 0) => return 0,
                (left, sums) => left.saturating_add(sums).saturating_mul(threads),
            },
            #[cfg(target_arch = "x86_64")]
            Form::Tiles(weight) => {
                super::thirds::scratch_floats(rows, weight, origin != Origin::Dense, threads)
            }
        };
        floats.saturating_mul(4).saturating_add(64)
    }

    /// Floats of a task, in whole lines: for what it multiplies of the left matrix, and for sums between two spans of terms.
    fn task_floats(&self, rows: usize, origin: Origin) -> (usize, usize) {
        let block = self.block_rows(rows, origin);
        let left = match origin {
            Origin::Dense => 0,
            Origin::Copied => block.saturating_mul(self.inner),
            Origin::Pieces(terms) => {
                let addresses = block.saturating_mul(self.inner / terms.max(1));
                addresses.saturating_mul(size_of::<*const f32>() / 4).next_multiple_of(16) + terms
            }
        };
        let sums = match spans(self.inner, origin.piece()) {
            1 => 0,
            _ => self.columns.next_multiple_of(self.lanes).saturating_mul(block),
        };
        (left.next_multiple_of(16), sums.next_multiple_of(16))
    }

    /// Rows that are multiplied with one panel after the other.
    fn block_rows(&self, rows: usize, origin: Origin) -> usize {
        let weight = self.inner.saturating_mul(self.columns).saturating_mul(4);
        let terms = match origin {
            // All terms of a row are copied at once.
            Origin::Copied => self.inner,
            _ => self.inner.min(TERMS.max(origin.piece())),
        };
        let block = match weight <= NEAR_WEIGHT {
            true => 2 * ROWS,
            false => (NEAR_ROWS / terms.saturating_mul(4).max(1)).max(ROWS),
        };
        block.min(rows).max(1)
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
    pub(super) fn vectors(&self, panel: usize) -> (usize, usize) {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// They lie in memory, dense along the inner axis.
    Dense,
    /// They are copied together.
    Copied,
    /// They lie in memory in pieces of so many terms, which divide the inner axis.
    Pieces(usize),
}

impl Origin {
    /// Terms that are not parted.
    fn piece(self) -> usize {
        match self {
            Origin::Pieces(terms) => terms,
            _ => 1,
        }
    }
}

/// The rows of a product.
pub(crate) trait Rows: Sync {
    /// Where they come from.
    fn origin(&self) -> Origin;
    /// Rows that are dense along the inner axis, and the distance between them: where they lie, or in scratch with room for
    /// `rows.len()` of them.
    fn rows(&self, rows: Range<usize>, scratch: *mut f32) -> (*const f32, usize);
    /// Where rows come in pieces: writes where those begin, `[pieces][rows]`; a piece of which there is nothing is `nothing`, zeros.
    fn pieces(&self, _rows: Range<usize>, _nothing: *const f32, _to: *mut *const f32) {}
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
        scratch.len() >= job.panels.scratch(job.rows, source.origin(), pool.threads()),
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
    let origin = source.origin();
    let block = job.panels.block_rows(job.rows, origin);
    let (of_left, of_sums) = job.panels.task_floats(job.rows, origin);
    // About as many multiply-adds as one core does in a nanosecond.
    let cost = job.rows.saturating_mul(columns).saturating_mul(inner.max(1)) / 40;
    let count = job.panels.count();
    let lines = match &job.panels.form {
        Form::Vectors(lines) => lines,
        #[cfg(target_arch = "x86_64")]
        Form::Tiles(_) => return,
    };
    each_item(pool, row_parts * panel_parts, cost, scratch, of_left + of_sums, &|item, scratch: *mut f32| {
        let (row_part, panel_part) = (item / panel_parts, item % panel_parts);
        let part = |at: usize, all: usize, parts: usize| all * at / parts;
        let rows = part(row_part, job.rows, row_parts)..part(row_part + 1, job.rows, row_parts);
        let panels = part(panel_part, count, panel_parts)..part(panel_part + 1, count, panel_parts);
        let columns = job.panels.columns_of(&panels);
        let blocks = rows.len().div_ceil(block);
        for at in 0..blocks {
            let start = |at: usize| rows.start + part(at, rows.len(), blocks);
            let rows = start(at)..start(at + 1);
            let left = match origin {
                Origin::Dense | Origin::Copied => {
                    let (first, stride) = source.rows(rows.clone(), scratch);
                    Left::Dense(first, stride)
                }
                Origin::Pieces(terms) => {
                    let nothing = scratch.wrapping_add(of_left - terms.next_multiple_of(16));
                    // SAFETY: the room for what is multiplied ends with as many floats.
                    unsafe { nothing.write_bytes(0, terms) };
                    source.pieces(rows.clone(), nothing, scratch.cast());
                    Left::Pieces(scratch.cast_const().cast(), terms)
                }
            };
            let (out, panels) = (job.out.get(), panels.clone());
            let between = scratch.wrapping_add(of_left);
            let strip = Strip { job, lines, out, left, rows: rows.clone(), panels, between };
            on(path, strip);
            if let Some(then) = job.epilogue.then {
                then(rows, job.column + columns.start..job.column + columns.end);
            }
        }
    });
}

/// Rows of a matrix as they lie.
struct Lying {
    data: Shared<f32>,
    stride: usize,
}

impl Rows for Lying {
    fn origin(&self) -> Origin {
        Origin::Dense
    }

    fn rows(&self, rows: Range<usize>, _: *mut f32) -> (*const f32, usize) {
        (self.data.get().wrapping_add(rows.start * self.stride), self.stride)
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
