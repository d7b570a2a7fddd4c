//! The copy whose two sides have their dense axes in different places: square tiles, so that the lines of cache that
//! one side touches are used whole before they leave.

use crate::elementwise::walk::Walk;
use crate::pool::Pool;
use crate::split::{Shared, in_parts};

/// Rows and columns of a tile.
const TILE: usize = 32;

/// Two axes that change places, and the axes around them.
pub(super) struct Transpose {
    /// Size, stride of the output and of the input, outermost first.
    outer: Axes,
    /// The axis along which the input is dense.
    rows: Axis,
    /// The axis along which the output is dense.
    columns: Axis,
}

#[derive(Clone, Copy, Default)]
struct Axis {
    size: usize,
    to: isize,
    from: isize,
}

/// Axes in a list without a heap.
#[derive(Clone, Copy, Default)]
struct Axes {
    axes: [Axis; crate::view::MAX_RANK],
    len: usize,
}

impl Transpose {
    /// The plan of a walk over an output and an input, if it is such a copy and large enough.
    pub(super) fn of(walk: &Walk) -> Option<Transpose> {
        let axis = |at: usize| {
            let (size, strides) = walk.axis(at);
            Axis { size, to: strides[0], from: strides[1] }
        };
        let last = walk.rank() - 1;
        let columns = axis(last);
        if columns.to != 1 || columns.from == 1 || columns.size < 4 {
            return None;
        }
        let dense = (0..last).find(|&at| axis(at).from == 1 && axis(at).size >= 4)?;
        let mut outer = Axes::default();
        for at in (0..last).filter(|&at| at != dense) {
            outer.axes[outer.len] = axis(at);
            outer.len += 1;
        }
        Some(Transpose { outer, rows: axis(dense), columns })
    }

    /// # Safety
    /// All elements that the walk reaches are there; the output's are distinct and nobody else's.
    pub(super) unsafe fn run(&self, pool: &Pool, out: *mut u8, x: *const u8, size: usize) {
        let outer = &self.outer.axes[..self.outer.len];
        let count: usize = outer.iter().map(|axis| axis.size).product();
        let bands = self.rows.size.div_ceil(TILE);
        let (out, x) = (Shared::new(out), Shared::new(x.cast_mut()));
        in_parts(pool, count * bands, 1, TILE * self.columns.size, &|range| {
            for item in range {
                let (mut left, band) = (item / bands, item % bands * TILE);
                let (mut to, mut from) = (band as isize * self.rows.to, band as isize * self.rows.from);
                for axis in outer.iter().rev() {
                    let at = (left % axis.size) as isize;
                    left /= axis.size;
                    (to, from) = (to + at * axis.to, from + at * axis.from);
                }
                let rows = TILE.min(self.rows.size - band);
                // SAFETY: the band lies inside both sides; bands are disjoint.
                unsafe {
                    let (to, from) =
                        (out.get().offset(to * size as isize), x.get().offset(from * size as isize));
                    match size {
                        1 => self.band::<u8>(to, from, rows),
                        2 => self.band::<u16>(to, from, rows),
                        4 => self.band::<u32>(to, from, rows),
                        _ => self.band::<u64>(to, from, rows),
                    }
                }
            }
        });
    }

    /// # Safety
    /// `rows` rows and all columns from the pointers on lie in both sides.
    unsafe fn band<T: Copy>(&self, to: *mut u8, from: *const u8, rows: usize) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        for column in (0..self.columns.size).step_by(TILE) {
            let columns = TILE.min(self.columns.size - column);
            for row in 0..rows {
                // SAFETY: the caller's promise.
                unsafe {
                    let to = to.offset(row as isize * self.rows.to).add(column);
                    let from = from.add(row).offset(column as isize * self.columns.from);
                    for i in 0..columns {
                        to.add(i).write(from.offset(i as isize * self.columns.from).read());
                    }
                }
            }
        }
    }
}
