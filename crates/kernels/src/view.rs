//! Tensors as kernels see them: a place in memory, a dtype, sizes and strides in elements. Whoever makes a view
//! proves once that every element lies inside the memory, and that those to write are distinct; kernels then go
//! without checks.

use pteron_tensor::DType;
use std::marker::PhantomData;

/// The most axes that a view may have; programs cannot have more either.
pub const MAX_RANK: usize = 16;

/// A tensor to read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: *const u8,
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [isize],
    memory: PhantomData<&'a [u8]>,
}

/// A tensor to write. No two of its elements share memory, and a kernel writes through `&mut ViewMut` alone, so that
/// two threads cannot write one without `unsafe`:
///
/// ```compile_fail,E0499
/// use pteron_kernels::{copy::fill, pool::Pool, view::ViewMut};
/// use pteron_tensor::DType;
///
/// let mut bytes = [0; 4];
/// let mut out = ViewMut::new(&mut bytes, DType::U8, 0, &[4], &[1]).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| fill(&Pool::new(1), &mut out, &[1]));
///     scope.spawn(|| fill(&Pool::new(1), &mut out, &[2]));
/// });
/// ```
#[derive(Debug)]
pub struct ViewMut<'a> {
    data: *mut u8,
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [isize],
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `View` only reads memory that it borrows shared, as `&[u8]` does.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: a `ViewMut` has the only access to the elements that it borrows, as `&mut [u8]` does.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: what a shared reference gives without `unsafe` only reads: sizes, strides and `as_view`; writing takes
// `&mut`. The pointer, too, is only a number until somebody uses it, which takes `unsafe`: a kernel whose tasks share
// one view says there why their elements are disjoint.
unsafe impl Sync for ViewMut<'_> {}

impl<'a> View<'a> {
    /// A view into `bytes` whose first element is at `offset` (in elements). `None` when an element would lie
    /// outside, when the bytes are not aligned for the dtype, when there are too many axes, or more elements than
    /// can be counted.
    pub fn new(
        bytes: &'a [u8],
        dtype: DType,
        offset: usize,
        sizes: &'a [usize],
        strides: &'a [isize],
    ) -> Option<View<'a>> {
        let data = bytes.as_ptr();
        let start = first_byte(data, bytes.len(), dtype, offset, sizes, strides)?;
        Some(View { data: data.wrapping_add(start), dtype, sizes, strides, memory: PhantomData })
    }

    /// A view of memory that the caller answers for.
    ///
    /// # Safety
    /// Every element that sizes and strides reach from `data` (the first element) lies in one allocation that
    /// stays readable for `'a`, and is aligned for the dtype. It is not written meanwhile, except by a kernel
    /// that documents that its output may be the very same elements. There are at most [`MAX_RANK`] axes, with a
    /// stride each, and the number of elements fits `usize`.
    pub unsafe fn from_raw(
        data: *const u8,
        dtype: DType,
        sizes: &'a [usize],
        strides: &'a [isize],
    ) -> View<'a> {
        View { data, dtype, sizes, strides, memory: PhantomData }
    }

    /// Where the first element is.
    pub fn data(&self) -> *const u8 {
        self.data
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size of every axis, outermost first.
    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    /// Elements between neighbours along every axis.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(self.sizes, self.strides)
    }

    /// Whether each run along the last axis has its elements side by side.
    pub fn has_dense_rows(&self) -> bool {
        self.sizes.last().is_none_or(|&size| size <= 1) || self.strides.last() == Some(&1)
    }
}

impl<'a> ViewMut<'a> {
    /// A view into `bytes` whose first element is at `offset` (in elements). `None` as for [`View::new`], and when
    /// two elements could share memory: each stride must be larger than what the axes of smaller strides span.
    pub fn new(
        bytes: &'a mut [u8],
        dtype: DType,
        offset: usize,
        sizes: &'a [usize],
        strides: &'a [isize],
    ) -> Option<ViewMut<'a>> {
        let data = bytes.as_mut_ptr();
        let start = first_byte(data, bytes.len(), dtype, offset, sizes, strides)?;
        if !are_distinct(sizes, strides) {
            return None;
        }
        Some(ViewMut { data: data.wrapping_add(start), dtype, sizes, strides, memory: PhantomData })
    }

    /// A view of memory that the caller answers for.
    ///
    /// # Safety
    /// As for [`View::from_raw`], and the elements are writable, distinct, and used by nobody else for `'a`
    /// (except as the same elements of an operand, where the kernel allows it).
    pub unsafe fn from_raw(
        data: *mut u8,
        dtype: DType,
        sizes: &'a [usize],
        strides: &'a [isize],
    ) -> ViewMut<'a> {
        debug_assert!(sizes.len() == strides.len() && sizes.len() <= MAX_RANK);
        debug_assert!(are_distinct(sizes, strides), "elements of {sizes:?} at {strides:?} share memory");
        ViewMut { data, dtype, sizes, strides, memory: PhantomData }
    }

    /// Where the first element is.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size of every axis, outermost first.
    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    /// Elements between neighbours along every axis.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(self.sizes, self.strides)
    }

    /// Whether each run along the last axis has its elements side by side.
    pub fn has_dense_rows(&self) -> bool {
        self.sizes.last().is_none_or(|&size| size <= 1) || self.strides.last() == Some(&1)
    }

    /// The same elements to read.
    pub fn as_view(&self) -> View<'_> {
        View {
            data: self.data,
            dtype: self.dtype,
            sizes: self.sizes,
            strides: self.strides,
            memory: PhantomData,
        }
    }
}

/// Row-major strides of `sizes`, written to `strides`.
///
/// # Panics
/// When the two differ in length.
pub fn row_major(sizes: &[usize], strides: &mut [isize]) {
    assert_eq!(sizes.len(), strides.len());
    let mut step = 1isize;
    for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
        *stride = step;
        step = step.saturating_mul(isize::try_from(size).unwrap_or(isize::MAX));
    }
}

fn is_contiguous(sizes: &[usize], strides: &[isize]) -> bool {
    let mut step = 1isize;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size == 0 {
            return true;
        }
        if size > 1 {
            if stride != step {
                return false;
            }
            step *= size as isize;
        }
    }
    true
}

/// The byte at which the first element lies, if all elements lie inside `len` bytes.
fn first_byte(
    data: *const u8,
    len: usize,
    dtype: DType,
    offset: usize,
    sizes: &[usize],
    strides: &[isize],
) -> Option<usize> {
    if sizes.len() != strides.len() || sizes.len() > MAX_RANK {
        return None;
    }
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
    let (mut low, mut high) = (isize::try_from(offset).ok()?, isize::try_from(offset).ok()?);
    for (&size, &stride) in sizes.iter().zip(strides) {
        let reach = stride.checked_mul(isize::try_from(size - 1).ok()?)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    let end = usize::try_from(high).ok()?.checked_add(1)?.checked_mul(dtype.size())?;
    let aligned = (data as usize).is_multiple_of(dtype.size());
    (low >= 0 && end <= len && aligned).then(|| offset * dtype.size())
}

/// Whether no two elements can share memory, judged by the strides alone: in the order of their strides, each axis
/// steps over all that the ones before it span.
fn are_distinct(sizes: &[usize], strides: &[isize]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut axes = [(0usize, 0usize); MAX_RANK];
    let mut count = 0;
    for (&size, &stride) in sizes.iter().zip(strides).filter(|&(&size, _)| size > 1) {
        axes[count] = (stride.unsigned_abs(), size);
        count += 1;
    }
    axes[..count].sort_unstable();
    let mut span = 0usize;
    axes[..count].iter().all(|&(stride, size)| {
        let steps_over = stride > span;
        span = span.saturating_add(stride.saturating_mul(size - 1));
        steps_over
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_never_leaves_its_bytes() {
        let bytes: Vec<u32> = vec![0; 12];
        let bytes: &[u8] = bytemuck::cast_slice(&bytes);
        let of = |offset, sizes: &'static [usize], strides: &'static [isize]| {
            View::new(bytes, DType::F32, offset, sizes, strides).is_some()
        };
        assert!(of(0, &[3, 4], &[4, 1]));
        assert!(!of(1, &[3, 4], &[4, 1]));
        assert!(of(11, &[3, 4], &[-4, -1]));
        assert!(!of(10, &[3, 4], &[-4, -1]));
        assert!(of(0, &[1 << 40, 4], &[0, 1]));
        assert!(of(99, &[0, usize::MAX], &[1, 1]));
        assert!(!of(0, &[usize::MAX, 2], &[isize::MAX, 1]));
        assert!(View::new(&bytes[1..], DType::F32, 0, &[1], &[1]).is_none());
        assert!(!of(0, &[1 << 40, 1 << 40, 2], &[0, 0, 1]), "more elements than can be counted");
    }

    #[test]
    fn elements_to_write_never_share_memory() {
        let mut bytes = [0u8; 64];
        let mut of = |offset, sizes: &'static [usize], strides: &'static [isize]| {
            ViewMut::new(&mut bytes, DType::U8, offset, sizes, strides).is_some()
        };
        assert!(!of(0, &[4], &[0]), "one element four times");
        assert!(!of(0, &[3, 4], &[0, 1]), "one row three times");
        assert!(!of(0, &[3, 4], &[2, 1]), "rows that overlap");
        assert!(!of(0, &[2, 2], &[1, 1]), "two ways to one element");
        assert!(!of(8, &[3, 4], &[-2, 1]), "the same backwards");
        assert!(!of(0, &[4, 3, 2], &[3, 4, 12]), "columns that meet other rows");
        assert!(of(0, &[3, 4], &[4, 1]));
        assert!(of(0, &[4, 3], &[1, 4]), "transposed");
        assert!(of(11, &[3, 4], &[-4, -1]), "backwards");
        assert!(of(0, &[3, 4], &[7, 2]), "with gaps");
        assert!(of(0, &[1, 4, 1], &[0, 1, 0]), "an axis of one element goes nowhere");
        assert!(of(0, &[3, 0], &[0, 0]), "nothing shares nothing");
        assert!(of(0, &[], &[]));
    }
}
