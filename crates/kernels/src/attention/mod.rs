//! Scaled dot-product attention with shared key heads, over keys and values where they lie: a cache of any layout, a
//! part of it, a ring, or pages. Softmax runs online over blocks of keys, so memory does not grow with their number.
//!
//! Few queries (a decode step) read keys and values once, straight into multiply-adds: the limit is memory, and
//! threads share heads and ranges of keys. Many queries (prefill) go through tiles of rows, whose limit is the
//! multiply-add units. A query that may see no key gives zeros.

mod block;
mod few;
mod many;
mod scratch;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiles;

use crate::path::Path;
use crate::pool::Pool;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;

pub use scratch::scratch_bytes;

/// Which keys a query sees.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// All of them.
    None,
    /// Query i sees key j when `j <= i + keys - queries`, and, with a window, `j > i + keys - queries - window`.
    Causal {
        /// How many keys back, the query's own counted; `None` is all.
        window: Option<usize>,
    },
    /// A tensor of [batch, heads, queries, keys], repeated by strides of 0: bool says whether to attend, a float is
    /// rounded to the queries' dtype and added to the scaled score.
    Tensor(View<'a>),
}

/// Keys and values that lie in rows of a ring: key j is in row `(first + j) % rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The row of the oldest key.
    pub first: usize,
    /// How many keys there are.
    pub live: usize,
}

/// Where the pages of a cache lie.
///
/// # Safety
/// Keys and values of every page that the cache has stay readable as long as this is borrowed, and nobody writes them: as
/// many rows of every head as the views of the first page say, at the same distances from where they begin.
pub unsafe trait PageTable: Sync {
    /// Where keys and values of a page begin.
    fn page(&self, number: usize) -> (*const u8, *const u8);
}

/// Keys and values whose rows lie in pages of equal size.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    /// Where they lie.
    pub table: &'a dyn PageTable,
    /// Rows of all pages together.
    pub rows: usize,
}

impl std::fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// What is attended to, and how.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// [batch, heads, queries, features], floats.
    pub q: View<'a>,
    /// [batch, shared heads, keys, features]; of one dtype with the values. In pages: those of the first one, batch 1.
    pub k: View<'a>,
    /// [batch, shared heads, keys, value features]; as the keys.
    pub v: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask<'a>,
    /// Where keys and values are a ring.
    pub ring: Option<Ring>,
    /// Where they lie in pages.
    pub pages: Option<Pages<'a>>,
}

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Independent sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values; divides the query heads.
    pub shared: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Features of a query and a key.
    pub features: usize,
    /// Features of a value.
    pub values: usize,
}

impl Sizes {
    /// Query rows that share a key head.
    fn rows(&self) -> usize {
        (self.heads / self.shared.max(1)).saturating_mul(self.queries)
    }
}

impl Attention<'_> {
    /// Sizes, from the tensors.
    ///
    /// # Panics
    /// When the tensors do not have four axes that fit each other.
    pub fn sizes(&self) -> Sizes {
        let (&[batch, heads, queries, features], &[_, shared, of_view, _]) = (self.q.sizes(), self.k.sizes())
        else {
            panic!("attention needs four axes");
        };
        let rows = self.pages.map_or(of_view, |pages| pages.rows);
        let keys = self.ring.map_or(rows, |ring| ring.live);
        let values = self.v.sizes()[3];
        let sizes = Sizes { batch, heads, shared, queries, keys, features, values };
        assert_eq!(self.k.sizes(), [batch, shared, of_view, features]);
        assert_eq!(self.v.sizes(), [batch, shared, of_view, values]);
        assert!(self.pages.is_none() || batch == 1 && of_view > 0, "pages hold rows of one sequence");
        assert!(shared > 0 && heads.is_multiple_of(shared) || heads == 0);
        assert!(self.ring.is_none_or(|ring| ring.live <= rows && (rows == 0 || ring.first < rows)));
        assert_eq!(self.k.dtype(), self.v.dtype());
        if let Mask::Tensor(mask) = self.mask {
            assert_eq!(mask.sizes(), [batch, heads, queries, keys]);
        }
        sizes
    }
}

/// Computes attention into `out` of [batch, heads, queries, value features]. `scratch` holds at least
/// [`scratch_bytes`] bytes for the same sizes and pool.
///
/// # Panics
/// When sizes do not fit, a dtype is no float of at most 32 bits (a mask may be bool), or scratch is too small.
pub fn attention(
    pool: &Pool,
    path: Path,
    out: &mut ViewMut<'_>,
    attention: &Attention<'_>,
    scratch: &mut [u8],
) {
    let sizes = attention.sizes();
    assert_eq!(out.sizes(), [sizes.batch, sizes.heads, sizes.queries, sizes.values]);
    assert!(scratch.len() >= scratch_bytes(&sizes, pool.threads()), "scratch is too small");
    if out.is_empty() {
        return;
    }
    let job = Job { attention, out, sizes, path };
    // Vectors that lie across two lines of the cache take twice as long.
    let skip = scratch.as_ptr().align_offset(64).min(scratch.len());
    let (_, scratch, _) = {
        // SAFETY: any bytes are floats.
        unsafe { scratch[skip..].align_to_mut::<f32>() }
    };
    if few::is_few(&job) { few::run(pool, &job, scratch) } else { many::run(pool, &job, scratch) }
}

/// A row of keys and values, and where the tensors begin that have it.
#[derive(Clone, Copy)]
struct Place {
    keys: *const u8,
    values: *const u8,
    row: usize,
}

/// One attention, checked.
struct Job<'a> {
    attention: &'a Attention<'a>,
    out: &'a ViewMut<'a>,
    sizes: Sizes,
    path: Path,
}

impl Job<'_> {
    /// Query head and query of a row of a shared head: rows of one query lie side by side.
    fn row(&self, shared: usize, row: usize) -> (usize, usize) {
        let group = self.sizes.heads / self.sizes.shared;
        (shared * group + row % group, row / group)
    }

    /// The keys that queries from `first` to `last` may see at all.
    fn visible(&self, first: usize, last: usize) -> std::ops::Range<usize> {
        let Sizes { keys, queries, .. } = self.sizes;
        let Mask::Causal { window } = self.attention.mask else { return 0..keys };
        let end = (last + 1 + keys).saturating_sub(queries).min(keys);
        let start = window.map_or(0, |window| (first + 1 + keys).saturating_sub(queries + window));
        start.min(end)..end
    }

    /// Where a key and its value lie, and how many keys follow it there.
    fn place(&self, key: usize) -> (Place, usize) {
        let Attention { k, v, ring, pages, .. } = self.attention;
        let of_view = k.sizes()[2];
        let rows = pages.map_or(of_view, |pages| pages.rows);
        let (at, left) = match ring {
            Some(ring) => {
                let at = (ring.first + key) % rows;
                (at, rows - at)
            }
            None => (key, self.sizes.keys - key),
        };
        let Some(pages) = pages else { return (Place { keys: k.data(), values: v.data(), row: at }, left) };
        let (keys, values) = pages.table.page(at / of_view);
        let row = at % of_view;
        (Place { keys, values, row }, left.min(of_view - row))
    }

    /// Loads a query, scaled, and pads it with zeros.
    ///
    /// # Safety
    /// `to` has room for `width` elements, at `step` from each other; indices are inside.
    unsafe fn load_query(
        &self,
        batch: usize,
        head: usize,
        query: usize,
        to: *mut f32,
        step: usize,
        width: usize,
    ) {
        let q = &self.attention.q;
        let s = q.strides();
        let first = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2];
        if q.dtype() == DType::F32 && s[3] == 1 && width == self.sizes.features {
            // SAFETY: the view has these elements; there is room for each.
            unsafe {
                let from = q.data().cast::<f32>().offset(first);
                for feature in 0..width {
                    to.add(feature * step).write(from.add(feature).read() * self.attention.scale);
                }
            }
            return;
        }
        for feature in 0..width {
            // SAFETY: the element lies in the view; there is room for it.
            unsafe {
                let value = if feature < self.sizes.features {
                    read(q.data(), q.dtype(), first + feature as isize * s[3]) * self.attention.scale
                } else {
                    0.0
                };
                to.add(feature * step).write(value);
            }
        }
    }

    /// Writes a result.
    ///
    /// # Safety
    /// `from` has the values' features; nobody else writes this query's.
    unsafe fn store(&self, batch: usize, head: usize, query: usize, from: *const f32, factor: f32) {
        let s = self.out.strides();
        let first = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2];
        if self.out.dtype() == DType::F32 && s[3] == 1 {
            // SAFETY: the view has these elements, and nobody else writes them.
            unsafe {
                let to = self.out.data().cast::<f32>().offset(first);
                (0..self.sizes.values).for_each(|at| to.add(at).write(from.add(at).read() * factor));
            }
            return;
        }
        for feature in 0..self.sizes.values {
            // SAFETY: the element lies in the view.
            unsafe {
                let at = first + feature as isize * s[3];
                write(self.out.data(), self.out.dtype(), at, from.add(feature).read() * factor);
            }
        }
    }

    /// Changes the score of one query and key as the mask says.
    ///
    /// # Safety
    /// Indices are inside their sizes.
    #[inline(always)]
    unsafe fn masked(&self, at: (usize, usize, usize), key: usize, score: f32) -> f32 {
        let (batch, head, query) = at;
        match self.attention.mask {
            Mask::None => score,
            Mask::Causal { window } => {
                let limit = query + self.sizes.keys; // shifted by the number of queries
                let after = key + self.sizes.queries > limit;
                let before = window.is_some_and(|window| key + self.sizes.queries + window <= limit);
                if after || before { f32::NEG_INFINITY } else { score }
            }
            Mask::Tensor(mask) => {
                let s = mask.strides();
                let at = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2];
                let at = at + key as isize * s[3];
                // SAFETY: the element lies in the view.
                unsafe {
                    if mask.dtype() == DType::Bool {
                        if mask.data().offset(at).read() == 0 { f32::NEG_INFINITY } else { score }
                    } else {
                        score + rounded(read(mask.data(), mask.dtype(), at), self.attention.q.dtype())
                    }
                }
            }
        }
    }

    /// Whether the mask hides a range of keys from a query, so that they need not be read. Only a tensor is asked:
    /// [`Job::visible`] has dealt with the others.
    fn is_hidden(&self, (batch, head, query): (usize, usize, usize), keys: std::ops::Range<usize>) -> bool {
        let Mask::Tensor(mask) = self.attention.mask else { return false };
        let s = mask.strides();
        let at = batch as isize * s[0] + head as isize * s[1] + query as isize * s[2];
        let (data, dtype) = (mask.data(), mask.dtype());
        keys.into_iter().all(|key| {
            let at = at + key as isize * s[3];
            // SAFETY: the element lies in the view.
            unsafe {
                match dtype {
                    DType::Bool => data.offset(at).read() == 0,
                    _ => read(data, dtype, at) == f32::NEG_INFINITY,
                }
            }
        })
    }

    /// Whether a tensor mask changes nothing for a query and a range of keys, so that scores stay as they are.
    fn is_plain(&self, (batch, head, query): (usize, usize, usize), keys: std::ops::Range<usize>) -> bool {
        let Mask::Tensor(mask) = self.attention.mask else { return false };
        let s = mask.strides();
        let at =
            batch as isize * s[0] + head as isize * s[1] + query as isize * s[2] + keys.start as isize * s[3];
        // SAFETY: the elements lie in the view, side by side where they are read as a slice.
        unsafe {
            match mask.dtype() {
                DType::Bool if s[3] == 1 => {
                    let bytes = std::slice::from_raw_parts(mask.data().offset(at), keys.len());
                    !bytes.contains(&0)
                }
                DType::Bool => {
                    (0..keys.len() as isize).all(|i| mask.data().offset(at + i * s[3]).read() != 0)
                }
                dtype => (0..keys.len() as isize).all(|i| read(mask.data(), dtype, at + i * s[3]) == 0.0),
            }
        }
    }

    /// Whether all of a range of keys is visible to queries from `first` to `last`, so that no mask is looked at.
    fn is_open(&self, first: usize, last: usize, keys: &std::ops::Range<usize>) -> bool {
        match self.attention.mask {
            Mask::None => true,
            Mask::Tensor(_) => false,
            Mask::Causal { window } => {
                let (all, queries) = (self.sizes.keys, self.sizes.queries);
                let after = keys.end - 1 + queries > first + all;
                let before = window.is_some_and(|window| keys.start + queries + window <= last + all);
                !after && !before
            }
        }
    }
}

/// One element as f32.
///
/// # Safety
/// It lies at this offset (in elements) and has this dtype.
#[inline(always)]
unsafe fn read(data: *const u8, dtype: DType, at: isize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F32 => data.cast::<f32>().offset(at).read(),
            DType::F16 => crate::convert::f16_to_f32(data.cast::<u16>().offset(at).read()),
            DType::BF16 => f32::from_bits(u32::from(data.cast::<u16>().offset(at).read()) << 16),
            other => panic!("{other} where floats of at most 32 bits are needed"),
        }
    }
}

/// # Safety
/// As [`read`], for writing.
#[inline(always)]
unsafe fn write(data: *mut u8, dtype: DType, at: isize, value: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F32 => data.cast::<f32>().offset(at).write(value),
            DType::F16 => data.cast::<u16>().offset(at).write(crate::convert::f32_to_f16(value)),
            DType::BF16 => data.cast::<u16>().offset(at).write(crate::convert::f32_to_bf16(value)),
            other => panic!("{other} where floats of at most 32 bits are needed"),
        }
    }
}

/// What a dtype keeps of a value.
#[inline(always)]
fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => crate::convert::f16_to_f32(crate::convert::f32_to_f16(value)),
        DType::BF16 => f32::from_bits(u32::from(crate::convert::f32_to_bf16(value)) << 16),
        _ => value,
    }
}
