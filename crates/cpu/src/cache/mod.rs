//! The off-graph key-value cache of a session: what `UpdateAndAttend` writes to and attends over, layer by layer.
//!
//! Position `p` of a layer lies in row `p % rows` of a list of pages, which attention reads where they lie. Pages are made
//! when they are first written, up to what the layer may hold; from then on a layer with a window goes round. A journal of
//! the rows that runs write over makes their writes take effect as a whole or not at all. Clones share the pages, and a
//! write copies those that it touches.

mod journal;
mod layer;
mod written;

pub(crate) use written::Written;

use crate::fault::{invalid, of_run};
use crate::pages::PageStore;
use journal::Journal;
use layer::{Layer, Live, no_memory};
use pteron_format::Limits;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_runtime::{CacheSpec, Error, NodeError, Result, RunControl};
use pteron_tensor::DType;
use std::sync::Arc;
use written::Casts;

/// Whose keys and values a run writes.
pub(crate) enum Caches<'r> {
    /// There is none.
    None,
    /// That of the session.
    One(&'r mut Cache),
    /// Those of all sessions of a flat batch, in the order of their tokens.
    Several(Vec<SpanCache<'r>>),
}

/// One session of a flat batch.
pub(crate) struct SpanCache<'r> {
    pub(crate) cache: &'r mut Cache,
    /// How many of the run's tokens are its own.
    pub(crate) tokens: usize,
    pub(crate) control: &'r RunControl,
}

impl<'r> Caches<'r> {
    /// Takes them out for the time of a step.
    pub(crate) fn take(&mut self) -> Caches<'r> {
        std::mem::replace(self, Caches::None)
    }
}

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

impl Cache {
    /// An empty cache; nothing is allocated before it is written.
    pub(crate) fn new(spec: &CacheSpec, path: Path, store: Arc<PageStore>, limits: &Limits) -> Result<Cache> {
        spec.check(limits)?;
        let layers = spec.layers.iter().map(|layer| {
            let (most_rows, max_write) = layer.extent(spec);
            Layer::new(layer, most_rows, max_write)
        });
        Ok(Cache {
            capacity: spec.capacity,
            layers: layers.collect(),
            dtype: spec.dtype,
            len: 0,
            pending_len: 0,
            journal: Journal::default(),
            casts: Casts::new(path),
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
        self.journal.put_back(&mut self.layers, self.dtype);
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
            written.store(pool, &mut self.casts, &spec, (page, layout, rows.clone(), dtype), from);
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
        self.journal.grown(number, layer.pages.len());
        while layer.pages.len() < pages {
            layer.pages.push(Arc::new(self.store.zeroed(bytes).ok_or_else(no_memory)?));
        }
        Ok(())
    }
}
