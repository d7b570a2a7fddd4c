//! Elements by index: taking, gathering, placing and adding. An index may be negative once; one that is still outside
//! its axis is an error, found before anything is written.

#[cfg(test)]
mod tests;

use crate::copy::move_run;
use crate::elementwise::walk::Walk;
use crate::pool::Pool;
use crate::split::in_parts;
use crate::view::{MAX_RANK, View, ViewMut};
use pteron_tensor::DType;

/// An index outside its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexError {
    /// As it was given.
    pub index: i64,
    /// Of the axis.
    pub size: usize,
}

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "index {} is outside an axis of size {}", self.index, self.size)
    }
}

impl std::error::Error for IndexError {}

/// One index as a number. Beyond i64 no index is inside anything; saturating keeps it outside.
///
/// # Safety
/// An element lies at this offset (in elements) and has this dtype.
unsafe fn read(data: *const u8, dtype: DType, at: isize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool | DType::U8 => data.offset(at).read().into(),
            DType::U16 => data.cast::<u16>().offset(at).read().into(),
            DType::U32 => data.cast::<u32>().offset(at).read().into(),
            DType::U64 => data.cast::<u64>().offset(at).read().try_into().unwrap_or(i64::MAX),
            DType::I8 => data.cast::<i8>().offset(at).read().into(),
            DType::I16 => data.cast::<i16>().offset(at).read().into(),
            DType::I32 => data.cast::<i32>().offset(at).read().into(),
            DType::I64 => data.cast::<i64>().offset(at).read(),
            other => panic!("{other} where integers are needed"),
        }
    }
}

/// The position that an index means.
fn position(index: i64, size: usize) -> Result<usize, IndexError> {
    let from_front = if index < 0 { index.wrapping_add(size as i64) } else { index };
    match usize::try_from(from_front) {
        Ok(position) if position < size => Ok(position),
        _ => Err(IndexError { index, size }),
    }
}

/// Looks at every index. Each distinct element of the view is inside `size` afterwards.
fn check(indices: &View<'_>, size: usize) -> Result<(), IndexError> {
    if indices.is_empty() {
        return Ok(());
    }
    let walk = Walk::new(indices.sizes(), &[indices.strides()]);
    if walk.is_constant(0) {
        // SAFETY: a view that is not empty has its first element.
        return position(unsafe { read(indices.data(), indices.dtype(), 0) }, size).map(|_| ());
    }
    let mut cursor = walk.cursor(0);
    for _ in 0..indices.len() {
        // SAFETY: the element is inside the view.
        position(unsafe { read(indices.data(), indices.dtype(), cursor.offset(0)) }, size)?;
        cursor.advance(1);
    }
    Ok(())
}

/// Calls `each` with the position that every index means, in row-major order, until one is outside an axis of `size`.
///
/// # Errors
/// When an index is outside; those before it have been told then.
///
/// # Panics
/// When the indices are not integers.
pub fn for_each_position(
    indices: &View<'_>,
    size: usize,
    mut each: impl FnMut(usize),
) -> Result<(), IndexError> {
    if indices.is_empty() {
        return Ok(());
    }
    let walk = Walk::new(indices.sizes(), &[indices.strides()]);
    let mut cursor = walk.cursor(0);
    for _ in 0..indices.len() {
        // SAFETY: the element is inside the view.
        each(position(unsafe { read(indices.data(), indices.dtype(), cursor.offset(0)) }, size)?);
        cursor.advance(1);
    }
    Ok(())
}

/// One element of a tensor of integers, counted in row-major order. `None` where there is no such element, where the
/// elements are no integers, and beyond i64.
pub fn integer_at(view: &View<'_>, at: usize) -> Option<i64> {
    let dtype = view.dtype();
    if dtype.is_float() || dtype == DType::Bool || at >= view.len() {
        return None;
    }
    let walk = Walk::new(view.sizes(), &[view.strides()]);
    // SAFETY: the element is inside the view.
    let number = unsafe { read(view.data(), dtype, walk.cursor(at).offset(0)) };
    (dtype != DType::U64 || number != i64::MAX).then_some(number)
}

/// The position of an index that has been checked.
///
/// # Safety
/// As [`read`].
unsafe fn checked(data: *const u8, dtype: DType, at: isize, size: usize) -> isize {
    // SAFETY: the caller's promise.
    let index = unsafe { read(data, dtype, at) };
    // Clamped, so that memory that changes meanwhile cannot lead outside.
    position(index, size).unwrap_or(0) as isize
}

/// `out[.., indices.., ..] = x[.., index, ..]`: the axis is replaced by those of the index tensor. Sizes of the output
/// are x's before the axis, the index tensor's, x's behind the axis.
///
/// # Errors
/// When an index is outside.
///
/// # Panics
/// When sizes or sizes of elements do not fit.
pub fn take(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    indices: &View<'_>,
    axis: usize,
) -> Result<(), IndexError> {
    let (rank, count) = (x.sizes().len(), indices.sizes().len());
    assert!(axis < rank && out.dtype().size() == x.dtype().size());
    assert_eq!(out.sizes().len(), rank - 1 + count);
    let (before, behind) = (&x.sizes()[..axis], &x.sizes()[axis + 1..]);
    assert!(out.sizes()[..axis] == *before && out.sizes()[axis + count..] == *behind);
    assert_eq!(&out.sizes()[axis..axis + count], indices.sizes());
    let size = x.sizes()[axis];
    check(indices, size)?;
    // Along the axes of the index tensor only the index moves.
    let (mut from, mut by) = ([0isize; 2 * MAX_RANK], [0isize; 2 * MAX_RANK]);
    from[..axis].copy_from_slice(&x.strides()[..axis]);
    from[axis + count..axis + count + behind.len()].copy_from_slice(&x.strides()[axis + 1..]);
    by[axis..axis + count].copy_from_slice(indices.strides());
    pick(
        pool,
        out,
        x,
        indices,
        &from[..rank - 1 + count],
        &by[..rank - 1 + count],
        (size, x.strides()[axis]),
    );
    Ok(())
}

/// `out[i.., j, ..] = x[i.., indices[i.., j, ..], ..]`: `x` and the indices have the output's sizes, repeated by strides
/// of 0, except `x` along the axis.
///
/// # Errors
/// When an index is outside.
///
/// # Panics
/// When sizes or sizes of elements do not fit.
pub fn take_along_axis(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    indices: &View<'_>,
    axis: usize,
) -> Result<(), IndexError> {
    let rank = x.sizes().len();
    assert!(axis < rank && out.dtype().size() == x.dtype().size());
    assert_eq!(out.sizes(), indices.sizes());
    assert!((0..rank).all(|at| at == axis || x.sizes()[at] == out.sizes()[at]));
    let size = x.sizes()[axis];
    check(indices, size)?;
    let mut from = [0isize; MAX_RANK];
    from[..rank].copy_from_slice(x.strides());
    from[axis] = 0;
    pick(pool, out, x, indices, &from[..rank], indices.strides(), (size, x.strides()[axis]));
    Ok(())
}

/// Copies elements of `x` whose place is that of the walk plus an index times the axis' stride.
fn pick(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    indices: &View<'_>,
    from: &[isize],
    by: &[isize],
    (size, step): (usize, isize),
) {
    if out.is_empty() {
        return;
    }
    let walk = Walk::new(out.sizes(), &[out.strides(), from, by]);
    let bytes = out.dtype().size();
    // Where the index stays along the innermost axis, whole runs are copied.
    let whole = walk.inner_stride(2) == 0;
    in_parts(pool, out.len(), 1, if whole { bytes / 8 + 1 } else { 4 }, &|range| {
        let (mut cursor, mut left) = (walk.cursor(range.start), range.len());
        while left > 0 {
            let count = if whole { left.min(cursor.left_in_row()) } else { 1 };
            // SAFETY: the elements are inside the views; indices have been checked; ranges are disjoint.
            unsafe {
                let at = checked(indices.data(), indices.dtype(), cursor.offset(2), size);
                let from = x.data().offset((cursor.offset(1) + at * step) * bytes as isize);
                let to = out.data().offset(cursor.offset(0) * bytes as isize);
                move_run(to, walk.inner_stride(0), from, walk.inner_stride(1), bytes, count);
            }
            cursor.advance(count);
            left -= count;
        }
    });
}

/// One slice of `x` per element of the indices, which all have the output's leading sizes (repeated by strides of 0); the
/// output's other sizes are the slice's. A slice begins at the index on the listed axes and at 0 on the others.
///
/// # Errors
/// When a slice would leave `x`.
///
/// # Panics
/// When sizes or sizes of elements do not fit.
pub fn gather(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    indices: &[View<'_>],
    axes: &[usize],
) -> Result<(), IndexError> {
    let (rank, bytes) = (x.sizes().len(), out.dtype().size());
    assert!(indices.len() == axes.len() && axes.iter().all(|&axis| axis < rank));
    assert_eq!(bytes, x.dtype().size());
    let lead = out.sizes().len().checked_sub(rank).unwrap_or_else(|| panic!("the output ends with a slice"));
    let (batch, slice) = out.sizes().split_at(lead);
    assert!(indices.iter().all(|indices| indices.sizes() == batch));
    assert!(axes.iter().enumerate().all(|(at, axis)| !axes[..at].contains(axis)), "an axis is listed once");
    assert!(slice.iter().zip(x.sizes()).all(|(part, whole)| part <= whole), "a slice is part of the operand");
    if out.is_empty() {
        return Ok(());
    }
    for (indices, &axis) in indices.iter().zip(axes) {
        // A slice of size n may begin at the last place but n - 1.
        let starts = (x.sizes()[axis] + 1).saturating_sub(slice[axis]);
        check_starts(indices, starts, x.sizes()[axis], slice[axis])?;
    }
    let order = Walk::new(batch, &[&out.strides()[..lead]]);
    let walk = Walk::new(slice, &[&out.strides()[lead..], x.strides()]);
    let length: usize = slice.iter().product();
    in_parts(pool, batch.iter().product(), 1, length * bytes / 8 + 8, &|range| {
        for at in range {
            let mut from = 0;
            for (indices, &axis) in indices.iter().zip(axes) {
                let place = Walk::new(batch, &[indices.strides()]).cursor(at).offset(0);
                // SAFETY: the index is inside its view and has been checked.
                from += unsafe { checked(indices.data(), indices.dtype(), place, x.sizes()[axis]) }
                    * x.strides()[axis];
            }
            let to = order.cursor(at).offset(0);
            let (mut cursor, mut left) = (walk.cursor(0), length);
            while left > 0 {
                let count = left.min(cursor.left_in_row());
                // SAFETY: the slice is inside both views; slices of the output are disjoint.
                unsafe {
                    let to = out.data().offset((to + cursor.offset(0)) * bytes as isize);
                    let from = x.data().offset((from + cursor.offset(1)) * bytes as isize);
                    move_run(to, walk.inner_stride(0), from, walk.inner_stride(1), bytes, count);
                }
                cursor.advance(count);
                left -= count;
            }
        }
    });
    Ok(())
}

/// Looks at every start of a slice.
fn check_starts(indices: &View<'_>, starts: usize, size: usize, slice: usize) -> Result<(), IndexError> {
    let walk = Walk::new(indices.sizes(), &[indices.strides()]);
    let mut cursor = walk.cursor(0);
    for _ in 0..indices.len() {
        // SAFETY: the element is inside the view.
        let start = position(unsafe { read(indices.data(), indices.dtype(), cursor.offset(0)) }, size)?;
        if start >= starts {
            return Err(IndexError { index: (start + slice) as i64 - 1, size });
        }
        cursor.advance(1);
    }
    Ok(())
}

/// `out[.., indices[j], ..] = update[.., j, ..]` along an axis; the rest of `out` stays. Of equal indices the last one
/// stays. Both have one size of elements.
///
/// # Errors
/// When an index is outside; nothing is written then.
///
/// # Panics
/// When sizes do not fit.
pub fn put(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    update: &View<'_>,
    indices: &View<'_>,
    axis: usize,
) -> Result<(), IndexError> {
    let rank = out.sizes().len();
    assert!(axis < rank && out.dtype().size() == update.dtype().size());
    assert_eq!(indices.sizes(), [update.sizes()[axis]]);
    assert!((0..rank).all(|at| at == axis || update.sizes()[at] == out.sizes()[at]));
    let size = out.sizes()[axis];
    check(indices, size)?;
    let mut sizes = [1usize; MAX_RANK];
    sizes[..rank].copy_from_slice(update.sizes());
    sizes[axis] = 1;
    for row in 0..indices.len() {
        let bytes = out.dtype().size() as isize;
        // SAFETY: the row is inside the index view, its position inside the output's axis; the row's elements are inside
        // both tensors.
        unsafe {
            let at = checked(indices.data(), indices.dtype(), row as isize * indices.strides()[0], size);
            let to = out.data().offset(at * out.strides()[axis] * bytes);
            let from = update.data().offset(row as isize * update.strides()[axis] * bytes);
            crate::copy::copy(
                pool,
                &mut ViewMut::from_raw(to, out.dtype(), &sizes[..rank], out.strides()),
                &View::from_raw(from, update.dtype(), &sizes[..rank], update.strides()),
            );
        }
    }
    Ok(())
}

/// `out[.., indices[..], ..] += updates[..]` along an axis, in the output's dtype, which the updates share. Indices and
/// updates have the same sizes (repeated by strides of 0), which on other axes may be less than the output's.
///
/// # Errors
/// When an index is outside; nothing is written then.
///
/// # Panics
/// When sizes or dtypes do not fit.
pub fn scatter_add(
    out: &mut ViewMut<'_>,
    updates: &View<'_>,
    indices: &View<'_>,
    axis: usize,
) -> Result<(), IndexError> {
    let rank = out.sizes().len();
    assert!(axis < rank && out.dtype() == updates.dtype());
    assert_eq!(indices.sizes(), updates.sizes());
    assert!((0..rank).all(|at| at == axis || updates.sizes()[at] <= out.sizes()[at]));
    let (size, step) = (out.sizes()[axis], out.strides()[axis]);
    check(indices, size)?;
    if updates.is_empty() {
        return Ok(());
    }
    let mut around = [0isize; MAX_RANK];
    around[..rank].copy_from_slice(out.strides());
    around[axis] = 0;
    let walk = Walk::new(updates.sizes(), &[&around[..rank], updates.strides(), indices.strides()]);
    let mut cursor = walk.cursor(0);
    for _ in 0..updates.len() {
        // SAFETY: elements are inside their views, and the index has been checked; one thread does it all, because equal
        // indices meet in one element.
        unsafe {
            let at = checked(indices.data(), indices.dtype(), cursor.offset(2), size);
            add_one(out, cursor.offset(0) + at * step, updates, cursor.offset(1));
        }
        cursor.advance(1);
    }
    Ok(())
}

/// # Safety
/// Both offsets (in elements) are inside; the views have one dtype.
unsafe fn add_one(out: &mut ViewMut<'_>, to: isize, updates: &View<'_>, from: isize) {
    macro_rules! add {
        ($T:ty, |$a:ident, $b:ident| $sum:expr) => {{
            // SAFETY: the caller's promise.
            unsafe {
                let place = out.data().cast::<$T>().offset(to);
                let ($a, $b) = (place.read(), updates.data().cast::<$T>().offset(from).read());
                place.write($sum);
            }
        }};
    }
    match out.dtype() {
        DType::Bool => add!(u8, |a, b| u8::from(a != 0 || b != 0)),
        DType::U8 | DType::I8 => add!(u8, |a, b| a.wrapping_add(b)),
        DType::U16 | DType::I16 => add!(u16, |a, b| a.wrapping_add(b)),
        DType::U32 | DType::I32 => add!(u32, |a, b| a.wrapping_add(b)),
        DType::U64 | DType::I64 => add!(u64, |a, b| a.wrapping_add(b)),
        DType::F16 => add!(half::f16, |a, b| half::f16::from_f32(a.to_f32() + b.to_f32())),
        DType::BF16 => add!(half::bf16, |a, b| half::bf16::from_f32(a.to_f32() + b.to_f32())),
        DType::F32 => add!(f32, |a, b| a + b),
        DType::F64 => add!(f64, |a, b| a + b),
    }
}
