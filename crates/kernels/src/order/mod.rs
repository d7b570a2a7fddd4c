//! Putting elements in order along one axis: ascending, stable, NaN last, -0 equal to 0. Each element becomes an
//! unsigned number of the same order with its index behind it, so that sorting is one of plain integers.

use crate::elementwise::walk::Walk;
use crate::pool::Pool;
use crate::split::Shared;
use crate::view::{MAX_RANK, View, ViewMut};
use pteron_tensor::DType;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much order is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All elements ascending.
    Sorted,
    /// The element of this rank in its sorted place, smaller or equal ones before it, the others behind it.
    Partitioned(usize),
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// The elements.
    Values,
    /// Their indices along the axis, as u32.
    Indices,
}

/// Bytes of scratch for lines of this length.
pub fn scratch_bytes(length: usize, threads: usize) -> usize {
    length.saturating_mul(16).saturating_mul(threads).saturating_add(16)
}

/// Orders each line of `x` along an axis. The output has the sizes of `x`, and its dtype or u32.
///
/// # Panics
/// When sizes or dtypes do not fit, the axis is none, a line is longer than u32 counts, or scratch is too small.
pub fn order(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    axis: usize,
    order: Order,
    ordered: Ordered,
    scratch: &mut [u8],
) {
    assert!(out.sizes() == x.sizes() && axis < x.sizes().len());
    assert_eq!(out.dtype(), if ordered == Ordered::Indices { DType::U32 } else { x.dtype() });
    let length = x.sizes()[axis];
    assert!(u32::try_from(length).is_ok(), "a line has too many elements");
    assert!(scratch.len() >= scratch_bytes(length, pool.threads()), "scratch is too small");
    if x.is_empty() {
        return;
    }
    if let Order::Partitioned(rank) = order {
        assert!(rank < length, "no element has this rank");
    }
    let mut sizes = [1usize; MAX_RANK];
    let rank = x.sizes().len();
    sizes[..rank].copy_from_slice(x.sizes());
    sizes[axis] = 1;
    let walk = Walk::new(&sizes[..rank], &[out.strides(), x.strides()]);
    let lines = x.len() / length;
    let (_, keys, _) = {
        // SAFETY: any bytes are integers.
        unsafe { scratch.align_to_mut::<u128>() }
    };
    let keys = Shared::new(keys.as_mut_ptr());
    let next = AtomicUsize::new(0);
    let tasks = if x.len() < 4096 { 1 } else { pool.threads().min(lines) };
    pool.run(tasks, &|task| {
        // SAFETY: every task has its own part of the scratch, which was checked to be large enough.
        let keys = unsafe { std::slice::from_raw_parts_mut(keys.get().add(task * length), length) };
        loop {
            let line = next.fetch_add(1, Ordering::Relaxed);
            if line >= lines {
                return;
            }
            let cursor = walk.cursor(line);
            let line = Line {
                x: x.data().wrapping_offset(cursor.offset(1) * x.dtype().size() as isize),
                out: out.data().wrapping_offset(cursor.offset(0) * out.dtype().size() as isize),
                from: x.strides()[axis],
                to: out.strides()[axis],
                dtype: x.dtype(),
                ordered,
            };
            // SAFETY: the line is inside both views, and nobody else writes it.
            unsafe {
                if x.dtype().size() == 8 {
                    line.run(
                        order,
                        keys,
                        |key, index| u128::from(key) << 32 | u128::from(index),
                        |pair| pair as u32,
                    );
                } else {
                    let keys: &mut [u64] = &mut bytemuck::cast_slice_mut(keys)[..length];
                    line.run(order, keys, |key, index| key << 32 | u64::from(index), |pair| pair as u32);
                }
            }
        }
    });
}

struct Line {
    x: *const u8,
    out: *mut u8,
    from: isize,
    to: isize,
    dtype: DType,
    ordered: Ordered,
}

impl Line {
    /// # Safety
    /// As many elements as there are keys lie along both lines.
    unsafe fn run<K: Ord + Copy>(
        &self,
        order: Order,
        keys: &mut [K],
        pair: impl Fn(u64, u32) -> K,
        index: impl Fn(K) -> u32,
    ) {
        let size = self.dtype.size() as isize;
        for (i, key) in keys.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let bits = unsafe { key_of(self.x.offset(i as isize * self.from * size), self.dtype) };
            *key = pair(bits, i as u32);
        }
        match order {
            Order::Sorted => keys.sort_unstable(),
            Order::Partitioned(rank) => {
                keys.select_nth_unstable(rank);
            }
        }
        for (i, &key) in keys.iter().enumerate() {
            let from = index(key);
            // SAFETY: the caller's promise; an index is one of the line.
            unsafe {
                match self.ordered {
                    Ordered::Indices => self.out.cast::<u32>().offset(i as isize * self.to).write(from),
                    Ordered::Values => {
                        let from = self.x.offset(from as isize * self.from * size);
                        let to = self.out.offset(i as isize * self.to * size);
                        crate::copy::move_run(to, 1, from, 1, size as usize, 1);
                    }
                }
            }
        }
    }
}

/// An unsigned number of the same order.
///
/// # Safety
/// An element lies at `at`.
unsafe fn key_of(at: *const u8, dtype: DType) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool | DType::U8 => at.read().into(),
            DType::U16 => at.cast::<u16>().read().into(),
            DType::U32 => at.cast::<u32>().read().into(),
            DType::U64 => at.cast::<u64>().read(),
            DType::I8 => (at.cast::<i8>().read() as u8 ^ 0x80).into(),
            DType::I16 => (at.cast::<i16>().read() as u16 ^ 0x8000).into(),
            DType::I32 => (at.cast::<i32>().read() as u32 ^ 0x8000_0000).into(),
            DType::I64 => at.cast::<i64>().read() as u64 ^ (1 << 63),
            DType::F16 => float_key(crate::convert::f16_to_f32(at.cast::<u16>().read())),
            DType::BF16 => float_key(f32::from_bits(u32::from(at.cast::<u16>().read()) << 16)),
            DType::F32 => float_key(at.cast::<f32>().read()),
            DType::F64 => {
                let x = at.cast::<f64>().read();
                let bits = (x + 0.0).to_bits();
                if x.is_nan() {
                    u64::MAX
                } else if bits >> 63 == 1 {
                    !bits
                } else {
                    bits | 1 << 63
                }
            }
        }
    }
}

fn float_key(x: f32) -> u64 {
    // Adding 0 makes -0 a 0.
    let bits = (x + 0.0).to_bits();
    let key = if x.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, dense};

    #[test]
    fn lines_are_sorted_stably_along_any_axis() {
        let mut random = Random::new(1);
        for (sizes, axis) in
            [(vec![7], 0), (vec![3, 50], 1), (vec![50, 3], 0), (vec![2, 300, 4], 1), (vec![0, 3], 0)]
        {
            let count: usize = sizes.iter().product();
            let x: Vec<f32> = (0..count)
                .map(|_| match random.below(10) {
                    0 => f32::NAN,
                    1 => -0.0,
                    2 => 0.0,
                    3 => f32::NEG_INFINITY,
                    _ => (random.float() * 8.0).round(),
                })
                .collect();
            let strides = dense(&sizes);
            let pool = Pool::new(2);
            let mut scratch = vec![0u8; scratch_bytes(sizes[axis], 2)];
            let view = View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes, &strides).unwrap();
            let (mut values, mut indices) = (vec![0f32; count], vec![0u32; count]);
            let mut to =
                ViewMut::new(bytemuck::cast_slice_mut(&mut values), DType::F32, 0, &sizes, &strides).unwrap();
            order(&pool, &mut to, &view, axis, Order::Sorted, Ordered::Values, &mut scratch);
            let mut to =
                ViewMut::new(bytemuck::cast_slice_mut(&mut indices), DType::U32, 0, &sizes, &strides)
                    .unwrap();
            order(&pool, &mut to, &view, axis, Order::Sorted, Ordered::Indices, &mut scratch);
            if count == 0 {
                continue;
            }
            let step = strides[axis] as usize;
            for first in (0..count).filter(|at| (at / step).is_multiple_of(sizes[axis])) {
                let mut want: Vec<usize> = (0..sizes[axis]).collect();
                want.sort_by(|&a, &b| {
                    let (a, b) = (x[first + a * step], x[first + b * step]);
                    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
                });
                for (i, want) in want.into_iter().enumerate() {
                    assert_eq!(indices[first + i * step] as usize, want);
                    assert_eq!(values[first + i * step].to_bits(), x[first + want * step].to_bits());
                }
            }
        }
    }

    #[test]
    fn every_dtype_keeps_its_order_and_partitions_split() {
        let (x, mut out) = ([3i64, i64::MIN, -1, i64::MAX, 0], [0i64; 5]);
        let mut scratch = vec![0u8; scratch_bytes(5, 1)];
        let view = View::new(bytemuck::cast_slice(&x), DType::I64, 0, &[5], &[1]).unwrap();
        let mut to = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::I64, 0, &[5], &[1]).unwrap();
        order(&Pool::new(1), &mut to, &view, 0, Order::Partitioned(3), Ordered::Values, &mut scratch);
        assert!(out[3] == 3 && out[4] == i64::MAX && out[..3].iter().all(|&x| x < 3));
        let (x, mut out) = ([5i8, -128, 127, -1, 0], [0i8; 5]);
        let view = View::new(bytemuck::cast_slice(&x), DType::I8, 0, &[5], &[1]).unwrap();
        let mut to = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::I8, 0, &[5], &[1]).unwrap();
        order(&Pool::new(1), &mut to, &view, 0, Order::Sorted, Ordered::Values, &mut scratch);
        assert_eq!(out, [-128, -1, 0, 5, 127]);
    }
}
