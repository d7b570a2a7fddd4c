//! One layer of a cache: its pages, which position lies in which row of them, and where attention finds them.

use super::written::{Written, strides};
use crate::fault::invalid;
use crate::pages::{PAGE_ROWS, Page, PageLayout};
use pteron_kernels::attention::{PageTable, Pages, Ring};
use pteron_kernels::view::View;
use pteron_runtime::{CacheLayer, NodeError};
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct Layer {
    pub(super) spec: CacheLayer,
    /// Positions that it holds at once, and the longest write.
    pub(super) most_rows: usize,
    max_write: usize,
    /// Rows of a page.
    pub(super) page_rows: usize,
    /// In the order of their rows, as far as positions were written.
    pub(super) pages: Vec<Arc<Page>>,
}

pub(super) fn no_memory() -> NodeError {
    invalid("no memory is left for another page of the off-graph cache")
}

impl Layer {
    pub(super) fn new(spec: &CacheLayer, most_rows: usize, max_write: usize) -> Layer {
        let page_rows = most_rows.clamp(1, PAGE_ROWS);
        Layer { spec: spec.clone(), most_rows, max_write, page_rows, pages: Vec::new() }
    }

    /// The oldest position that a query at `position` sees.
    pub(super) fn visible_from(&self, position: usize) -> usize {
        self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The positions that keys and values get, if they fit the layer.
    pub(super) fn positions_of(
        &self,
        position: i64,
        written: &Written<'_>,
        capacity: usize,
    ) -> Result<Range<usize>, NodeError> {
        let (keys, values) = (written.keys.sizes(), written.values.sizes());
        let (&[1, heads, length, features], true) = (keys, keys == values) else {
            return Err(invalid(format!("keys {keys:?} and values {values:?} of a cache differ")));
        };
        if (heads, features) != (self.spec.kv_heads, self.spec.head_dim) {
            return Err(invalid(format!(
                "the layer holds {} heads of {} features, {heads} of {features} are written",
                self.spec.kv_heads, self.spec.head_dim
            )));
        }
        let end = usize::try_from(position).ok().and_then(|position| position.checked_add(length));
        let Some(end) = end.filter(|&end| end <= capacity) else {
            return Err(invalid(format!(
                "position {position} and {length} more exceed the capacity of {capacity}"
            )));
        };
        if length > self.max_write {
            return Err(invalid(format!("{length} positions in one write, {} at most", self.max_write)));
        }
        Ok(end - length..end)
    }

    pub(super) fn layout(&self, dtype: DType) -> PageLayout {
        let row_bytes = self.spec.head_dim.saturating_mul(dtype.size());
        PageLayout { heads: self.spec.kv_heads, rows: self.page_rows, row_bytes }
    }

    /// The page of a position, and its row there.
    pub(super) fn place(&self, position: usize) -> (usize, usize) {
        let row = position % self.most_rows.max(1);
        (row / self.page_rows, row % self.page_rows)
    }

    /// How many positions from this one on lie side by side in a page.
    pub(super) fn run_at(&self, position: usize) -> usize {
        let row = position % self.most_rows.max(1);
        (self.page_rows - row % self.page_rows).min(self.most_rows - row)
    }

    /// What the rows of some positions hold, as many at a time as lie side by side: the first of these positions, and one
    /// more than a position, or 0, for each. Those without a page are left out.
    fn held(&self, positions: Range<usize>) -> impl Iterator<Item = (usize, &[usize])> {
        let mut at = positions.start;
        std::iter::from_fn(move || {
            while at < positions.end {
                let (first, count) = (at, self.run_at(at).min(positions.end - at));
                let (page, row) = self.place(first);
                at += count;
                if let Some(page) = self.pages.get(page) {
                    return Some((first, &page.held[row..row + count]));
                }
            }
            None
        })
    }

    /// A page to be written; a copy in its place where a clone shares it.
    pub(super) fn own(&mut self, page: usize) -> Result<&mut Page, NodeError> {
        self.pages.get_mut(page).and_then(Page::own).ok_or_else(no_memory)
    }

    /// The page that has positions on both sides of `len`, where each position has a row of its own: what lies behind `len`
    /// cannot be given up with the whole page.
    pub(super) fn cut_by(&self, len: usize) -> Option<usize> {
        let (page, row) = (len / self.page_rows, len % self.page_rows);
        let behind = self.pages.get(page).filter(|_| row > 0 && self.spec.window.is_none())?;
        behind.held[row..].iter().any(|&held| held > 0).then_some(page)
    }

    /// Gives up positions from `len` on; a layer that goes round cannot.
    pub(super) fn forget_from(&mut self, len: usize, dtype: DType) {
        if self.spec.window.is_some() {
            return;
        }
        let (layout, row) = (self.layout(dtype), len % self.page_rows);
        if let Some(page) = self.cut_by(len).and_then(|page| Page::own(&mut self.pages[page])) {
            page.clear(layout, row..layout.rows);
            page.held[row..].fill(0);
        }
        self.pages.truncate(len.div_ceil(self.page_rows));
    }

    /// The first of some positions whose row has been given to a later one, and that one. Only a layer with a window
    /// goes round.
    pub(super) fn overwritten(&self, positions: Range<usize>) -> Option<(usize, usize)> {
        self.spec.window?;
        self.held(positions).find_map(|(first, held)| {
            let (lost, held) = (first..).zip(held).find(|&(position, &held)| held > position + 1)?;
            Some((lost, held - 1))
        })
    }

    /// Those of some positions whose row still belongs to an earlier one.
    pub(super) fn stale(&self, positions: Range<usize>) -> Vec<usize> {
        // A layer that does not go round has a row for every position.
        let positions = if self.spec.window.is_some() { positions } else { 0..0 };
        let rows = self.held(positions).flat_map(|(first, held)| (first..).zip(held));
        rows.filter(|&(position, held)| (1..=position).contains(held)).map(|(position, _)| position).collect()
    }

    /// The rows of positions that are held.
    pub(super) fn live(&self, positions: Range<usize>, dtype: DType) -> Live<'_> {
        let rows = if self.pages.is_empty() { 0 } else { self.page_rows };
        Live {
            layer: self,
            layout: self.layout(dtype),
            dtype,
            sizes: [1, self.spec.kv_heads, rows, self.spec.head_dim],
            strides: strides(&self.spec, self.page_rows),
            ring: Ring { first: positions.start % self.most_rows.max(1), live: positions.len() },
            window: self.spec.window,
        }
    }
}

/// Where the keys and values of one call lie.
pub(crate) struct Live<'c> {
    layer: &'c Layer,
    layout: PageLayout,
    dtype: DType,
    /// Of one page.
    sizes: [usize; 4],
    strides: [isize; 4],
    pub(crate) ring: Ring,
    pub(crate) window: Option<usize>,
}

impl Live<'_> {
    /// The keys of the first page, [1, head, row, feature].
    pub(crate) fn keys(&self) -> View<'_> {
        self.view(0)
    }

    /// The values of the first page.
    pub(crate) fn values(&self) -> View<'_> {
        self.view(self.layout.values_at())
    }

    /// All pages.
    pub(crate) fn pages(&self) -> Pages<'_> {
        Pages { table: self, rows: self.layer.most_rows }
    }

    fn view(&self, offset: usize) -> View<'_> {
        let first = self.layer.pages.first().map_or(std::ptr::dangling::<u64>().cast(), |page| page.data());
        // SAFETY: a page has so many rows of every head, and nobody writes it while this borrows the cache; where there is
        // no page there are no rows.
        unsafe { View::from_raw(first.wrapping_add(offset), self.dtype, &self.sizes, &self.strides) }
    }
}

// SAFETY: all pages of a layer are laid out alike, and while this borrows the cache they stay and nobody writes them: a
// page that others hold too is copied before it is written.
unsafe impl PageTable for Live<'_> {
    fn page(&self, number: usize) -> (*const u8, *const u8) {
        let keys = self.layer.pages[number].data();
        (keys, keys.wrapping_add(self.layout.values_at()))
    }
}
