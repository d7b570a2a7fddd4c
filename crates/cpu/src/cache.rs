//! The off-graph key-value cache of a session: what `UpdateAndAttend` writes to and attends over, layer by layer.
//!
//! Position `p` of a layer lies in row `p % rows` of a list of pages, which attention reads where they lie. Pages are made
//! when they are first written, up to what the layer may hold; from then on a layer with a window goes round. A journal of
//! the rows that runs write over makes their writes take effect as a whole or not at all. Clones share the pages, and a
//! write copies those that it touches.

use crate::fault::of_run;
use crate::pages::{PAGE_ROWS, Page, PageLayout, PageStore};
use pteron_format::Limits;
use pteron_kernels::attention::{PageTable, Pages, Ring};
use pteron_kernels::copy::copy;
use pteron_kernels::elementwise::Chain;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::{CacheLayer, CacheSpec, Error, KernelError, NodeError, Result};
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// The off-graph cache of one session.
#[derive(Clone)]
pub(crate) struct Cache {
    capacity: usize,
    layers: Vec<Layer>,
    /// Set by the specification, or by the first keys.
    dtype: Option<DType>,
    /// Positions written when runs last took effect: one beyond the highest.
    len: usize,
    /// The same, with what runs have written since.
    pending_len: usize,
    journal: Journal,
    casts: Casts,
    store: Arc<PageStore>,
    most_bytes: u64,
}

/// The conversions of what is written to what is stored, made when they are first needed.
#[derive(Clone)]
struct Casts {
    path: Path,
    made: Vec<(DType, Arc<Chain>)>,
}

impl Casts {
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

#[derive(Clone)]
struct Layer {
    spec: CacheLayer,
    /// Positions that it holds at once, and the longest write.
    most_rows: usize,
    max_write: usize,
    /// Rows of a page.
    page_rows: usize,
    /// In the order of their rows, as far as positions were written.
    pages: Vec<Arc<Page>>,
}

/// What runs since the last commit wrote over, oldest first, and the pages that they made. Its memory is kept from run
/// to run.
#[derive(Default)]
struct Journal {
    entries: Vec<Entry>,
    held: Vec<usize>,
    bytes: Vec<u8>,
    /// Layers that grew, with the pages that they had.
    grown: Vec<(usize, usize)>,
}

impl Clone for Journal {
    /// Snapshots are taken between runs, when there is nothing to undo.
    fn clone(&self) -> Journal {
        Journal::default()
    }
}

/// Rows of a page of a layer as they were: where the journal has what they held, and where their bytes lie, if they had
/// any.
struct Entry {
    layer: usize,
    page: usize,
    rows: Range<usize>,
    held_at: usize,
    bytes: Option<Range<usize>>,
}

impl Journal {
    fn clear(&mut self) {
        self.entries.clear();
        self.held.clear();
        self.bytes.clear();
        self.grown.clear();
    }

    /// Keeps rows of a page that are about to be written.
    fn save(
        &mut self,
        (layer, page): (usize, usize),
        contents: &Page,
        layout: PageLayout,
        rows: Range<usize>,
    ) {
        let held = &contents.held[rows.clone()];
        let (held_at, bytes_at) = (self.held.len(), self.bytes.len());
        let had_any = held.iter().any(|&held| held > 0);
        self.held.extend_from_slice(held);
        if had_any {
            contents.parts(layout, rows.clone()).for_each(|part| self.bytes.extend_from_slice(part));
        }
        let bytes = had_any.then_some(bytes_at..self.bytes.len());
        self.entries.push(Entry { layer, page, rows, held_at, bytes });
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

/// Keys and values to be written, [1, head, position, feature].
pub(crate) struct Written<'w> {
    pub(crate) keys: View<'w>,
    pub(crate) values: View<'w>,
}

fn invalid(message: String) -> NodeError {
    NodeError::Kernel(KernelError::Invalid(message))
}

fn no_memory() -> NodeError {
    invalid("no memory is left for another page of the off-graph cache".to_owned())
}

impl Cache {
    /// An empty cache; nothing is allocated before it is written.
    pub(crate) fn new(spec: &CacheSpec, path: Path, store: Arc<PageStore>, limits: &Limits) -> Result<Cache> {
        spec.check(limits)?;
        let layers = spec.layers.iter().map(|layer| {
            let (most_rows, max_write) = layer.extent(spec);
            let page_rows = most_rows.clamp(1, PAGE_ROWS);
            Layer { spec: layer.clone(), most_rows, max_write, page_rows, pages: Vec::new() }
        });
        Ok(Cache {
            capacity: spec.capacity,
            layers: layers.collect(),
            dtype: spec.dtype,
            len: 0,
            pending_len: 0,
            journal: Journal::default(),
            casts: Casts { path, made: Vec::new() },
            store,
            most_bytes: limits.live_bytes,
        })
    }

    /// Positions written by runs that took effect: one beyond the highest.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of its pages. One that clones share counts for each of them in equal parts, so that the sum over all of them
    /// is what they hold together.
    pub(crate) fn bytes(&self) -> u64 {
        let pages = self.layers.iter().flat_map(|layer| &layer.pages);
        pages.map(|page| page.len() as u64 / Arc::strong_count(page) as u64).sum()
    }

    /// Makes what runs wrote permanent.
    pub(crate) fn commit(&mut self) {
        self.len = self.pending_len;
        self.journal.clear();
    }

    /// The cache with what runs wrote made permanent.
    pub(crate) fn committed(mut self) -> Cache {
        self.commit();
        self
    }

    /// Puts back what runs since the last commit wrote over, and gives up the pages that they made.
    pub(crate) fn roll_back(&mut self) {
        self.pending_len = self.len;
        for (layer, pages) in self.journal.grown.iter().rev() {
            self.layers[*layer].pages.truncate(*pages);
        }
        for entry in self.journal.entries.iter().rev() {
            let (layer, Some(dtype)) = (&mut self.layers[entry.layer], self.dtype) else { continue };
            let layout = layer.layout(dtype);
            // One that is gone was made by these runs; one that is there was their own when they wrote it.
            let Some(page) = layer.pages.get_mut(entry.page).and_then(Page::own) else { continue };
            let held = &self.journal.held[entry.held_at..][..entry.rows.len()];
            page.held[entry.rows.clone()].copy_from_slice(held);
            match &entry.bytes {
                Some(bytes) => page.put_back(layout, entry.rows.clone(), &self.journal.bytes[bytes.clone()]),
                None => page.clear(layout, entry.rows.clone()),
            }
        }
        self.journal.clear();
    }

    /// Goes back to when `len` positions were written; says why where a layer has already given up positions that the
    /// next query would look at, and changes nothing then.
    pub(crate) fn rewind(&mut self, len: usize) -> Result<(), String> {
        for (index, layer) in self.layers.iter().enumerate() {
            let oldest = layer.visible_from(len);
            if let Some((lost, _)) = layer.overwritten(oldest..len) {
                return Err(format!(
                    "layer {index} with a window of {} needs positions {oldest} to {len} and no longer holds {lost}",
                    layer.spec.window.unwrap_or(layer.most_rows),
                ));
            }
        }
        // What can fail comes first.
        for layer in &mut self.layers {
            if let Some(page) = layer.cut_by(len) {
                layer.own(page).map_err(|error| error.to_string())?;
            }
        }
        if let Some(dtype) = self.dtype {
            self.layers.iter_mut().for_each(|layer| layer.forget_from(len, dtype));
        }
        (self.len, self.pending_len) = (len, len);
        Ok(())
    }

    /// Writes keys and values at `position`; where those lie that its queries may see.
    pub(crate) fn write(
        &mut self,
        pool: &Pool,
        layer: usize,
        position: i64,
        written: &Written<'_>,
    ) -> Result<Live<'_>, NodeError> {
        let count = self.layers.len();
        let Some(target) = self.layers.get(layer) else {
            return Err(invalid(format!("the cache has {count} layers, layer {layer} is asked for")));
        };
        let positions = target.positions_of(position, written, self.capacity)?;
        // A dtype that the caller left open is that of the first keys.
        let dtype = *self.dtype.get_or_insert(written.keys.dtype());
        let oldest = target.visible_from(positions.start);
        if let Some((lost, by)) = target.overwritten(oldest..positions.start) {
            return Err(invalid(format!("position {lost} has been overwritten by position {by}")));
        }
        self.make_room(layer, positions.end, dtype)?;
        let target = &mut self.layers[layer];
        let layout = target.layout(dtype);
        for position in target.stale(oldest..positions.start) {
            // Nobody wrote it, so it is zero; its row still has what was there a round before.
            let (number, row) = target.place(position);
            let page = target.own(number)?;
            self.journal.save((layer, number), page, layout, row..row + 1);
            page.clear(layout, row..row + 1);
            page.held[row] = position + 1;
        }
        let mut from = 0;
        while from < positions.len() {
            let position = positions.start + from;
            let (number, row) = target.place(position);
            let rows = row..row + target.run_at(position).min(positions.len() - from);
            let (count, spec) = (rows.len(), target.spec.clone());
            let page = target.own(number)?;
            self.journal.save((layer, number), page, layout, rows.clone());
            store(pool, &mut self.casts, &spec, (page, layout, rows.clone(), dtype), written, from);
            rows.zip(position + 1..).for_each(|(row, held)| page.held[row] = held);
            from += count;
        }
        self.pending_len = self.pending_len.max(positions.end);
        Ok(target.live(oldest..positions.end, dtype))
    }

    /// Makes pages until positions of a layer up to `end` have rows, or all rows are there that it may have.
    fn make_room(&mut self, number: usize, end: usize, dtype: DType) -> Result<(), NodeError> {
        let layer = &self.layers[number];
        let (pages, layout) = (end.min(layer.most_rows).div_ceil(layer.page_rows), layer.layout(dtype));
        if pages <= layer.pages.len() {
            return Ok(());
        }
        let held: usize = self.layers.iter().flat_map(|layer| &layer.pages).map(|page| page.len()).sum();
        let more = layout.bytes().and_then(|bytes| bytes.checked_mul(pages - layer.pages.len()));
        let found = (held as u64).saturating_add(more.map_or(u64::MAX, |more| more as u64));
        let (Some(bytes), true) = (layout.bytes(), found <= self.most_bytes) else {
            let (what, limit) = ("the off-graph cache", "live_bytes");
            return Err(of_run(Error::Limit { what, limit, found, allowed: self.most_bytes }));
        };
        let layer = &mut self.layers[number];
        self.journal.grown.push((number, layer.pages.len()));
        while layer.pages.len() < pages {
            layer.pages.push(Arc::new(self.store.zeroed(bytes).ok_or_else(no_memory)?));
        }
        Ok(())
    }
}

impl Layer {
    /// The oldest position that a query at `position` sees.
    fn visible_from(&self, position: usize) -> usize {
        self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The positions that keys and values get, if they fit the layer.
    fn positions_of(
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

    fn layout(&self, dtype: DType) -> PageLayout {
        let row_bytes = self.spec.head_dim.saturating_mul(dtype.size());
        PageLayout { heads: self.spec.kv_heads, rows: self.page_rows, row_bytes }
    }

    /// The page of a position, and its row there.
    fn place(&self, position: usize) -> (usize, usize) {
        let row = position % self.most_rows.max(1);
        (row / self.page_rows, row % self.page_rows)
    }

    /// How many positions from this one on lie side by side in a page.
    fn run_at(&self, position: usize) -> usize {
        let row = position % self.most_rows.max(1);
        (self.page_rows - row % self.page_rows).min(self.most_rows - row)
    }

    /// What the row of a position holds: one more than a position, or 0.
    fn held(&self, position: usize) -> usize {
        let (page, row) = self.place(position);
        self.pages.get(page).map_or(0, |page| page.held[row])
    }

    /// A page to be written; a copy in its place where a clone shares it.
    fn own(&mut self, page: usize) -> Result<&mut Page, NodeError> {
        self.pages.get_mut(page).and_then(Page::own).ok_or_else(no_memory)
    }

    /// The page that has positions on both sides of `len`, where each position has a row of its own: what lies behind `len`
    /// cannot be given up with the whole page.
    fn cut_by(&self, len: usize) -> Option<usize> {
        let (page, row) = (len / self.page_rows, len % self.page_rows);
        let behind = self.pages.get(page).filter(|_| row > 0 && self.spec.window.is_none())?;
        behind.held[row..].iter().any(|&held| held > 0).then_some(page)
    }

    /// Gives up positions from `len` on; a layer that goes round cannot.
    fn forget_from(&mut self, len: usize, dtype: DType) {
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
    fn overwritten(&self, mut positions: Range<usize>) -> Option<(usize, usize)> {
        self.spec.window?;
        let lost = positions.find(|&position| self.held(position) > position + 1)?;
        Some((lost, self.held(lost) - 1))
    }

    /// Those of some positions whose row still belongs to an earlier one.
    fn stale(&self, positions: Range<usize>) -> Vec<usize> {
        // A layer that does not go round has a row for every position.
        let positions = if self.spec.window.is_some() { positions } else { 0..0 };
        positions.filter(|&position| (1..=position).contains(&self.held(position))).collect()
    }

    /// The rows of positions that are held.
    fn live(&self, positions: Range<usize>, dtype: DType) -> Live<'_> {
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

/// Of keys or values of a page, [1, head, row, feature].
fn strides(spec: &CacheLayer, rows: usize) -> [isize; 4] {
    [0, (rows * spec.head_dim) as isize, spec.head_dim as isize, 1]
}

/// Writes positions `from..` of keys and values into rows of a page.
fn store(
    pool: &Pool,
    casts: &mut Casts,
    spec: &CacheLayer,
    (page, layout, rows, dtype): (&mut Page, PageLayout, Range<usize>, DType),
    written: &Written<'_>,
    from: usize,
) {
    let sizes = [1, spec.kv_heads, rows.len(), spec.head_dim];
    let strides = strides(spec, layout.rows);
    for (first, source) in [(0, &written.keys), (layout.values_at(), &written.values)] {
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
