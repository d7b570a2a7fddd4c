//! Kernels over rows: tensors whose last axis is dense, visited row by row, in whatever layout the other axes have.

use crate::elementwise::walk::Walk;
use crate::pool::Pool;
use crate::split::in_parts;

/// Calls `f` with the offset (in elements) of the row in each of several tensors, for every row, on several threads
/// where that pays. `sizes` and `strides` are those of the axes but the last; `cost` is that of a row, in
/// nanoseconds.
pub(crate) fn each_row<const N: usize>(
    pool: &Pool,
    sizes: &[usize],
    strides: [&[isize]; N],
    cost: usize,
    f: &(dyn Fn([isize; N]) + Sync),
) {
    let walk = Walk::new(sizes, &strides);
    in_parts(pool, sizes.iter().product(), 1, cost, &|range| {
        let mut cursor = walk.cursor(range.start);
        for _ in range {
            f(std::array::from_fn(|operand| cursor.offset(operand)));
            cursor.advance(1);
        }
    });
}

/// All axes but the last.
pub(crate) fn outer<T>(list: &[T]) -> &[T] {
    &list[..list.len().saturating_sub(1)]
}

/// Calls a generic function with the Rust type of a float dtype. Panics for another dtype: the kernels that use it
/// say so.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $call:expr) => {
        match $dtype {
            pteron_tensor::DType::F32 => {
                type $T = f32;
                $call
            }
            pteron_tensor::DType::F16 => {
                type $T = half::f16;
                $call
            }
            pteron_tensor::DType::BF16 => {
                type $T = half::bf16;
                $call
            }
            other => panic!("{other} where floats of at most 32 bits are needed"),
        }
    };
}
pub(crate) use with_float;
