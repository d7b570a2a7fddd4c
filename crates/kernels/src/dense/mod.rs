//! Products of dense matrices: `out = alpha * a @ b + beta * bias`, in f32 sums rounded once, in batches. The right
//! matrix is a weight as it lies in its file: [inner, columns], or [columns, inner] read through strides, as linear
//! layers have it.
//!
//! Few rows (a decode step) read the weight once, straight into multiply-adds: the limit is memory. Many rows go
//! through tiles that keep sums in registers; what is broadcast is always the operand whose rows are dense along
//! the inner axis, so that a weight is never transposed.

#[cfg(target_arch = "x86_64")]
mod amx;
mod few;
mod finish;
mod many;
pub(crate) mod micro;
pub mod packed;
mod strip;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod thirds;

use crate::elementwise::walk::Walk;
use crate::path::Path;
use crate::pool::Pool;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;

/// The most rows for which reading the weight once is what counts. So few give each what it would give alone, to the last
/// bit: the terms of a sum are added in one order, however many rows there are.
pub const FEW_ROWS: usize = 8;

/// What is multiplied and added. All tensors have the batch axes of the output; one that is repeated along an axis
/// has stride 0 there.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// [.., rows, inner].
    pub a: View<'a>,
    /// [.., inner, columns], dense along one of the two to be fast.
    pub b: View<'a>,
    /// Of the output's sizes.
    pub bias: Option<View<'a>>,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the bias; with 0 the bias is not looked at.
    pub beta: f32,
}

impl<'a> Product<'a> {
    /// The plain product.
    pub fn new(a: View<'a>, b: View<'a>) -> Product<'a> {
        Product { a, b, bias: None, alpha: 1.0, beta: 1.0 }
    }
}

/// Bytes of scratch that a product needs, of these sizes or fewer rows, whatever the layout, path and batch.
pub fn scratch_bytes(rows: usize, inner: usize, columns: usize, threads: usize) -> usize {
    let floats = few::scratch_floats(rows, inner).max(many::scratch_floats(rows, inner, columns, threads));
    floats.saturating_mul(4).saturating_add(64)
}

/// Computes a product. The output is [.., rows, columns] and overlaps no operand.
///
/// # Panics
/// When sizes do not fit, a dtype is no float of at most 32 bits, or scratch is smaller than [`scratch_bytes`].
pub fn product(pool: &Pool, path: Path, out: &mut ViewMut<'_>, product: &Product<'_>, scratch: &mut [u8]) {
    let rank = out.sizes().len();
    assert!(rank >= 2, "matrices have two axes");
    let (batch, &[rows, columns]) = out.sizes().split_at(rank - 2) else { return };
    let Product { a, b, bias, .. } = product;
    assert_eq!((a.sizes().len(), b.sizes().len()), (rank, rank));
    let inner = a.sizes()[rank - 1];
    assert!(a.sizes()[..rank - 2] == *batch && b.sizes()[..rank - 2] == *batch);
    assert!(a.sizes()[rank - 2] == rows && b.sizes()[rank - 2..] == [inner, columns]);
    assert!(bias.is_none_or(|bias| bias.sizes() == out.sizes()));
    for dtype in [a.dtype(), b.dtype(), out.dtype()].into_iter().chain(bias.map(|bias| bias.dtype())) {
        assert!(
            matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
            "{dtype} is no float of at most 32 bits"
        );
    }
    assert!(scratch.len() >= scratch_bytes(rows, inner, columns, pool.threads()), "scratch is too small");
    if out.is_empty() {
        return;
    }
    let bias = bias.filter(|_| product.beta != 0.0);
    let plane = |strides: &[isize]| [strides[rank - 2], strides[rank - 1]];
    let skip = scratch.as_ptr().align_offset(64);
    let (_, floats, _) = {
        // SAFETY: any bytes are floats.
        unsafe { scratch[skip..].align_to_mut::<f32>() }
    };
    let none = [0isize; crate::view::MAX_RANK];
    let bias_strides = bias.as_ref().map_or(&none[..rank], |bias| bias.strides());
    let all = [out.strides(), a.strides(), b.strides(), bias_strides].map(|strides| &strides[..rank - 2]);
    let walk = Walk::new(batch, &all);
    let mut cursor = walk.cursor(0);
    for _ in 0..batch.iter().product() {
        let at = |data: *const u8, operand: usize, dtype: DType| {
            data.wrapping_offset(cursor.offset(operand) * dtype.size() as isize)
        };
        let one = One {
            out: Plane::new(at(out.data(), 0, out.dtype()), out.dtype(), plane(out.strides())),
            a: Plane::new(at(a.data(), 1, a.dtype()), a.dtype(), plane(a.strides())),
            b: Plane::new(at(b.data(), 2, b.dtype()), b.dtype(), plane(b.strides())),
            bias: bias.map(|bias| {
                Plane::new(at(bias.data(), 3, bias.dtype()), bias.dtype(), plane(bias.strides()))
            }),
            alpha: product.alpha,
            beta: product.beta,
            rows,
            inner,
            columns,
            path,
        };
        one.run(pool, floats);
        cursor.advance(1);
    }
}

/// One matrix of a batch.
#[derive(Clone, Copy)]
struct Plane {
    data: *mut u8,
    dtype: DType,
    /// Elements between rows, and between columns.
    strides: [isize; 2],
}

// SAFETY: the planes of a product are parts of views that it borrows; tasks write disjoint parts of the output.
unsafe impl Send for Plane {}
// SAFETY: as above.
unsafe impl Sync for Plane {}

impl Plane {
    fn new(data: *const u8, dtype: DType, strides: [isize; 2]) -> Plane {
        Plane { data: data.cast_mut(), dtype, strides }
    }

    /// Where an element lies.
    fn at(&self, row: usize, column: usize) -> *mut u8 {
        let at = row as isize * self.strides[0] + column as isize * self.strides[1];
        self.data.wrapping_offset(at * self.dtype.size() as isize)
    }
}

/// One product of two matrices, checked.
#[derive(Clone, Copy)]
struct One {
    out: Plane,
    a: Plane,
    b: Plane,
    bias: Option<Plane>,
    alpha: f32,
    beta: f32,
    rows: usize,
    inner: usize,
    columns: usize,
    path: Path,
}

impl One {
    fn run(&self, pool: &Pool, scratch: &mut [f32]) {
        let (by_inner, by_column) = (self.b.strides[0] == 1 || self.inner == 1, self.b.strides[1] == 1);
        #[cfg(target_arch = "x86_64")]
        if by_inner && amx::fits(self) {
            return amx::run(pool, self, scratch);
        }
        match (self.rows <= FEW_ROWS, by_inner, by_column) {
            (true, true, _) => few::by_inner(pool, self, scratch),
            (true, _, true) => few::by_column(pool, self, scratch),
            (_, true, _) => many::by_inner(pool, self, scratch),
            _ => many::by_column(pool, self, scratch),
        }
    }
}
