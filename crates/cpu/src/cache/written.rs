//! Keys and values on their way into the pages of a cache, in the dtype that it stores.

use crate::pages::{Page, PageLayout};
use pteron_kernels::copy::copy;
use pteron_kernels::elementwise::Chain;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::CacheLayer;
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// Keys and values to be written, [1, head, position, feature].
pub(crate) struct Written<'w> {
    pub(crate) keys: View<'w>,
    pub(crate) values: View<'w>,
}

/// The conversions of what is written to what is stored, made when they are first needed.
#[derive(Clone)]
pub(super) struct Casts {
    path: Path,
    made: Vec<(DType, Arc<Chain>)>,
}

impl Casts {
    pub(super) fn new(path: Path) -> Casts {
        Casts { path, made: Vec::new() }
    }

    /// The conversion between two dtypes; `None` where they are one, or cannot be converted.
    fn get(&mut self, from: DType, to: DType) -> Option<Arc<Chain>> {
        if from == to {
            return None;
        }
        if let Some((_, made)) = self.made.iter().find(|(known, _)| *known == from) {
            return Some(made.clone());
        }
        let made = Arc::new(Chain::cast(from, to, self.path)?);
        self.made.push((from, made.clone()));
        Some(made)
    }
}

impl Written<'_> {
    /// Writes positions `from..` of keys and values into rows of a page.
    pub(super) fn store(
        &self,
        pool: &Pool,
        casts: &mut Casts,
        spec: &CacheLayer,
        (page, layout, rows, dtype): (&mut Page, PageLayout, Range<usize>, DType),
        from: usize,
    ) {
        let sizes = [1, spec.kv_heads, rows.len(), spec.head_dim];
        let strides = strides(spec, layout.rows);
        for (first, source) in [(0, &self.keys), (layout.values_at(), &self.values)] {
            let offset = source.strides()[2] * from as isize * source.dtype().size() as isize;
            let to = page.data_mut().wrapping_add(first + rows.start * layout.row_bytes);
            // SAFETY: positions from `from` on are a part of the source; the rows are in the page, which is ours alone, for
            // every head.
            let (part, mut target) = unsafe {
                (
                    View::from_raw(
                        source.data().wrapping_offset(offset),
                        source.dtype(),
                        &sizes,
                        source.strides(),
                    ),
                    ViewMut::from_raw(to, dtype, &sizes, &strides),
                )
            };
            match casts.get(source.dtype(), dtype) {
                Some(cast) => cast.run(pool, &mut target, &[part]),
                None => copy(pool, &mut target, &part),
            }
        }
    }
}

/// Of keys or values of a page, [1, head, row, feature].
pub(super) fn strides(spec: &CacheLayer, rows: usize) -> [isize; 4] {
    [0, (rows * spec.head_dim) as isize, spec.head_dim as isize, 1]
}
