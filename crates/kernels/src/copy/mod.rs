//! Moving elements between layouts: transposes, slices, concatenation, broadcasts and padding are all one copy
//! between two strided views, or a few. Elements are moved as they are, whatever their dtype; only sizes count.

mod transpose;

use crate::elementwise::walk::{Cursor, Walk};
use crate::pool::Pool;
use crate::split::in_parts;
use crate::view::{View, ViewMut};

/// Copies all elements to the same places of another layout. The views have the same sizes and dtypes of one size,
/// and do not overlap.
///
/// # Panics
/// When sizes or the size of elements differ.
pub fn copy(pool: &Pool, out: &mut ViewMut<'_>, x: &View<'_>) {
    assert_eq!(out.sizes(), x.sizes());
    assert_eq!(out.dtype().size(), x.dtype().size());
    if out.is_empty() {
        return;
    }
    let size = out.dtype().size();
    let walk = Walk::new(out.sizes(), &[out.strides(), x.strides()]);
    if let Some(plan) = transpose::Transpose::of(&walk) {
        // SAFETY: the walk is that of the two views, whose elements are all there.
        return unsafe { plan.run(pool, out.data(), x.data(), size) };
    }
    let inner = walk.inner();
    let cost = if walk.inner_stride(1) == 1 { size / 8 + 1 } else { 2 };
    in_parts(pool, out.len(), 4096 / size, cost, &|range| {
        let (mut cursor, mut left) = (walk.cursor(range.start), range.len());
        while left > 0 {
            let count = left.min(cursor.left_in_row());
            debug_assert!(count <= inner);
            // SAFETY: `count` elements from the cursor on lie in both views; ranges are disjoint.
            unsafe { copy_run(&walk, &cursor, out.data(), x.data(), size, count) };
            cursor.advance(count);
            left -= count;
        }
    });
}

/// Writes one element, given as its bytes, everywhere.
///
/// # Panics
/// When `value` is not as long as an element.
pub fn fill(pool: &Pool, out: &mut ViewMut<'_>, value: &[u8]) {
    assert_eq!(value.len(), out.dtype().size());
    if out.is_empty() {
        return;
    }
    let mut bits = [0u64];
    bytemuck::cast_slice_mut::<u64, u8>(&mut bits)[..value.len()].copy_from_slice(value);
    let walk = Walk::new(out.sizes(), &[out.strides()]);
    in_parts(pool, out.len(), 4096, 1, &|range| {
        let (mut cursor, mut left) = (walk.cursor(range.start), range.len());
        while left > 0 {
            let count = left.min(cursor.left_in_row());
            // SAFETY: `count` elements from the cursor on lie in the output; ranges are disjoint; `bits` begins with
            // the element and is aligned for every size.
            unsafe {
                let to = out.data().offset(cursor.offset(0) * value.len() as isize);
                move_run(to, walk.inner_stride(0), bits.as_ptr().cast(), 0, value.len(), count);
            }
            cursor.advance(count);
            left -= count;
        }
    });
}

/// # Safety
/// `count` elements of the cursor's row lie in both views.
unsafe fn copy_run(walk: &Walk, cursor: &Cursor<'_>, out: *mut u8, x: *const u8, size: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let to = out.offset(cursor.offset(0) * size as isize);
        let from = x.offset(cursor.offset(1) * size as isize);
        move_run(to, walk.inner_stride(0), from, walk.inner_stride(1), size, count);
    }
}

/// Copies `count` elements of `size` bytes between two strides.
///
/// # Safety
/// All elements lie in memory that may be read and written, aligned for their size, and do not overlap.
pub(crate) unsafe fn move_run(
    to: *mut u8,
    to_stride: isize,
    from: *const u8,
    from_stride: isize,
    size: usize,
    count: usize,
) {
    unsafe fn each<T: Copy>(
        to: *mut u8,
        to_stride: isize,
        from: *const u8,
        from_stride: isize,
        count: usize,
    ) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        // SAFETY: the caller's promise.
        unsafe {
            match (to_stride, from_stride) {
                (1, 1) => from.copy_to_nonoverlapping(to, count),
                (1, 0) => {
                    let value = from.read();
                    (0..count).for_each(|i| to.add(i).write(value));
                }
                _ => {
                    for i in 0..count as isize {
                        to.offset(i * to_stride).write(from.offset(i * from_stride).read());
                    }
                }
            }
        }
    }
    // SAFETY: passed on.
    unsafe {
        match size {
            1 => each::<u8>(to, to_stride, from, from_stride, count),
            2 => each::<u16>(to, to_stride, from, from_stride, count),
            4 => each::<u32>(to, to_stride, from, from_stride, count),
            _ => each::<u64>(to, to_stride, from, from_stride, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, dense, sized};
    use pteron_tensor::DType;

    fn check(sizes: &[usize], order: &[usize], dtype: DType) {
        // A dense tensor whose axes are read in another order.
        let stored: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
        let steps = dense(&stored);
        let mut strides = vec![0; sizes.len()];
        order.iter().zip(&steps).for_each(|(&axis, &step)| strides[axis] = step);
        let (count, size) = (sizes.iter().product::<usize>(), dtype.size());
        let x: Vec<u64> = (0..count as u64 + 1).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let x: &[u8] = &bytemuck::cast_slice(&x)[..count * size];
        let mut out = vec![0u64; count + 1];
        let out: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut out)[..count * size];
        let to = dense(sizes);
        copy(
            &Pool::new(2),
            &mut ViewMut::new(out, dtype, 0, sizes, &to).unwrap(),
            &View::new(x, dtype, 0, sizes, &strides).unwrap(),
        );
        for at in 0..count {
            let (mut left, mut place) = (at, 0);
            for axis in (0..sizes.len()).rev() {
                place += left % sizes[axis] * strides[axis] as usize;
                left /= sizes[axis];
            }
            assert_eq!(
                out[at * size..][..size],
                x[place * size..][..size],
                "{sizes:?} {order:?} {dtype} {at}"
            );
        }
    }

    #[test]
    fn every_order_of_axes_and_size_of_elements() {
        let mut random = Random::new(1);
        for _ in 0..sized(80, 8) {
            let rank = 1 + random.below(4);
            let sizes: Vec<usize> = (0..rank).map(|_| random.below(sized(40, 7))).collect();
            let mut order: Vec<usize> = (0..rank).collect();
            (0..rank).for_each(|i| order.swap(i, random.below(rank)));
            for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
                check(&sizes, &order, dtype);
            }
        }
        check(&sized([300, 257], [40, 35]), &[1, 0], DType::F32);
        check(&sized([5, 130, 4, 64], [2, 9, 3, 6]), &[0, 2, 1, 3], DType::BF16);
    }

    #[test]
    fn fills_and_flips() {
        let mut out = [0u16; 12];
        let bytes = bytemuck::cast_slice_mut(&mut out);
        fill(&Pool::new(1), &mut ViewMut::new(bytes, DType::U16, 1, &[3, 2], &[4, 1]).unwrap(), &[7, 0]);
        assert_eq!(out, [0, 7, 7, 0, 0, 7, 7, 0, 0, 7, 7, 0]);
        let (x, mut out) = ([1u8, 2, 3], [0u8; 3]);
        copy(
            &Pool::new(1),
            &mut ViewMut::new(&mut out, DType::U8, 0, &[3], &[1]).unwrap(),
            &View::new(&x, DType::U8, 2, &[3], &[-1]).unwrap(),
        );
        assert_eq!(out, [3, 2, 1]);
    }
}
