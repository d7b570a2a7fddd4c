//! Running sums along one axis.

use super::lanes::{Lane, Number};
use crate::elementwise::walk::Walk;
use crate::path::Path;
use crate::pool::Pool;
use crate::split::in_parts;
use crate::view::{MAX_RANK, View, ViewMut};
use pteron_tensor::DType;

/// Which elements a running sum has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cumulative {
    /// Those behind an element instead of those before it.
    pub reverse: bool,
    /// The element itself, too.
    pub inclusive: bool,
}

/// Running sums along an axis: floats add in f64 and are rounded one by one, integers wrap. The output has the sizes
/// of `x` and may have another dtype.
///
/// # Panics
/// When sizes differ, the axis is none, or a dtype is f64.
pub fn cumsum(pool: &Pool, path: Path, out: &mut ViewMut<'_>, x: &View<'_>, axis: usize, which: Cumulative) {
    assert!(out.sizes() == x.sizes() && axis < x.sizes().len());
    assert!(x.dtype() != DType::F64 && out.dtype() != DType::F64, "f64 is not known here");
    if x.is_empty() {
        return;
    }
    let (length, from, to) = (x.sizes()[axis], x.strides()[axis], out.strides()[axis]);
    let mut sizes = [1usize; MAX_RANK];
    let rank = x.sizes().len();
    sizes[..rank].copy_from_slice(x.sizes());
    sizes[axis] = 1;
    let walk = Walk::new(&sizes[..rank], &[out.strides(), x.strides()]);
    in_parts(pool, x.len() / length, 1, length * 2, &|range| {
        let mut cursor = walk.cursor(range.start);
        for _ in range {
            let (mut float, mut int) = (0f64, 0i64);
            for step in 0..length {
                let at = (if which.reverse { length - 1 - step } else { step }) as isize;
                // SAFETY: elements along the axis are inside both views; lines of the output are disjoint.
                unsafe {
                    let element = (cursor.offset(1) + at * from) * x.dtype().size() as isize;
                    let place = (cursor.offset(0) + at * to) * out.dtype().size() as isize;
                    let element = x.data().offset(element);
                    let before = (float, int);
                    if x.dtype().is_float() {
                        float += f64::from(load::<f32>(path, element, x.dtype()));
                    } else {
                        int = int.wrapping_add(load::<i64>(path, element, x.dtype()));
                    }
                    let (float, int) = if which.inclusive { (float, int) } else { before };
                    let number = match x.dtype().is_float() {
                        true => Number::Float(float),
                        false => Number::Int(int as u64),
                    };
                    number.write(out.data().offset(place), out.dtype());
                }
            }
            cursor.advance(1);
        }
    });
}

/// # Safety
/// An element lies at `from`.
unsafe fn load<L: Lane>(path: Path, from: *const u8, dtype: DType) -> L {
    let mut one = [L::default()];
    // SAFETY: the caller's promise. A stride other than 1 keeps single elements off the vector code.
    unsafe { L::load(path, from, dtype, 0, 1, &mut one) };
    one[0]
}
