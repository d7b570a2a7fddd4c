//! The off-graph key-value cache of a session: what `UpdateAndAttend` writes to and attends over, layer by layer.
//!
//! Position `p` of a layer lies in row `p % rows` of a region for keys and one for values, [head, row, feature], so that
//! attention reads both where they lie. Regions grow with the text, up to what the layer may hold; from then on a layer
//! with a window goes round. A journal of the rows that runs write over makes their writes take effect as a whole or not
//! at all. Clones share the regions until one side writes.

use crate::fault::of_run;
use crate::memory::Memory;
use pteron_format::Limits;
use pteron_kernels::attention::Ring;
use pteron_kernels::copy::copy;
use pteron_kernels::elementwise::Chain;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::{CacheLayer, CacheSpec, Error, KernelError, NodeError, Result};
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// Rows that a layer begins with.
const FIRST_ROWS: usize = 64;

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
    rows: usize,
    keys: Arc<Memory>,
    values: Arc<Memory>,
    /// One more than the position that each row holds; 0 where nothing was written yet, and the row is zero.
    held: Vec<usize>,
}

/// What runs since the last commit wrote over, oldest first. Its memory is kept from run to run.
#[derive(Default)]
struct Journal {
    entries: Vec<Entry>,
    held: Vec<usize>,
    bytes: Vec<u8>,
}

impl Clone for Journal {
    /// Snapshots are taken between runs, when there is nothing to undo.
    fn clone(&self) -> Journal {
        Journal::default()
    }
}

/// Rows of a layer as they were: where the journal has what they held, and where their bytes begin, if they had any.
struct Entry {
    layer: usize,
    rows: Range<usize>,
    held_at: usize,
    bytes_at: Option<usize>,
}

impl Journal {
    fn clear(&mut self) {
        self.entries.clear();
        self.held.clear();
        self.bytes.clear();
    }

    /// Keeps rows that are about to be written.
    fn save(&mut self, number: usize, layer: &mut Layer, rows: Range<usize>, dtype: DType) {
        let held = &layer.held[rows.clone()];
        let bytes_at = held.iter().any(|&held| held > 0).then_some(self.bytes.len());
        self.entries.push(Entry { layer: number, rows: rows.clone(), held_at: self.held.len(), bytes_at });
        self.held.extend_from_slice(held);
        if bytes_at.is_some() {
            layer.for_each_part(rows, dtype, |part| self.bytes.extend_from_slice(part));
        }
    }
}

/// Where the keys and values of one call lie.
pub(crate) struct Live<'c> {
    keys: &'c Memory,
    values: &'c Memory,
    dtype: DType,
    sizes: [usize; 4],
    strides: [isize; 4],
    pub(crate) ring: Ring,
    pub(crate) window: Option<usize>,
}

impl Live<'_> {
    /// All rows of the keys, [1, head, row, feature].
    pub(crate) fn keys(&self) -> View<'_> {
        self.view(self.keys)
    }

    /// All rows of the values.
    pub(crate) fn values(&self) -> View<'_> {
        self.view(self.values)
    }

    fn view(&self, region: &Memory) -> View<'_> {
        // SAFETY: the region has so many rows of every head, and nobody writes it while this borrows the cache.
        unsafe { View::from_raw(region.bytes().as_ptr(), self.dtype, &self.sizes, &self.strides) }
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

impl Cache {
    /// An empty cache; nothing is allocated before it is written.
    pub(crate) fn new(spec: &CacheSpec, path: Path, limits: &Limits) -> Result<Cache> {
        spec.check(limits)?;
        let layers = spec.layers.iter().map(|layer| {
            let (most_rows, max_write) = layer.extent(spec);
            let empty = Arc::new(Memory::zeroed(0));
            Layer {
                spec: layer.clone(),
                most_rows,
                max_write,
                rows: 0,
                keys: empty.clone(),
                values: empty,
                held: Vec::new(),
            }
        });
        Ok(Cache {
            capacity: spec.capacity,
            layers: layers.collect(),
            dtype: spec.dtype,
            len: 0,
            pending_len: 0,
            journal: Journal::default(),
            casts: Casts { path, made: Vec::new() },
            most_bytes: limits.live_bytes,
        })
    }

    /// Positions written by runs that took effect: one beyond the highest.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all regions, also of those that clones share.
    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| (layer.keys.len() + layer.values.len()) as u64).sum()
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

    /// Puts back what runs since the last commit wrote over.
    pub(crate) fn roll_back(&mut self) {
        self.pending_len = self.len;
        for entry in self.journal.entries.iter().rev() {
            let (Some(layer), Some(dtype)) = (self.layers.get_mut(entry.layer), self.dtype) else { continue };
            let held = &self.journal.held[entry.held_at..][..entry.rows.len()];
            layer.held[entry.rows.clone()].copy_from_slice(held);
            let mut bytes = entry.bytes_at.map(|at| &self.journal.bytes[at..]);
            layer.for_each_part(entry.rows.clone(), dtype, |part| match &mut bytes {
                Some(bytes) => {
                    let (old, rest) = bytes.split_at(part.len());
                    part.copy_from_slice(old);
                    *bytes = rest;
                }
                None => part.fill(0),
            });
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
        let (count, others) = (self.layers.len(), self.bytes());
        let Some(target) = self.layers.get_mut(layer) else {
            return Err(invalid(format!("the cache has {count} layers, layer {layer} is asked for")));
        };
        let positions = target.positions_of(position, written, self.capacity)?;
        // A dtype that the caller left open is that of the first keys.
        let dtype = *self.dtype.get_or_insert(written.keys.dtype());
        target.make_room(positions.end, dtype, others, self.most_bytes)?;
        target.make_own();
        let oldest = target.visible_from(positions.start);
        if let Some((lost, by)) = target.overwritten(oldest..positions.start) {
            return Err(invalid(format!("position {lost} has been overwritten by position {by}")));
        }
        for position in target.stale(oldest..positions.start) {
            // Nobody wrote it, so it is zero; its row still has what was there a round before.
            let row = position % target.rows;
            self.journal.save(layer, target, row..row + 1, dtype);
            target.for_each_part(row..row + 1, dtype, |part| part.fill(0));
            target.held[row] = position + 1;
        }
        let mut from = 0;
        while from < positions.len() {
            let (position, row) = (positions.start + from, (positions.start + from) % target.rows);
            let count = (target.rows - row).min(positions.len() - from);
            self.journal.save(layer, target, row..row + count, dtype);
            target.store(pool, &mut self.casts, row..row + count, dtype, written, from);
            (row..row + count).zip(position + 1..).for_each(|(row, held)| target.held[row] = held);
            from += count;
        }
        self.pending_len = self.pending_len.max(positions.end);
        Ok(target.live(oldest..positions.end, dtype))
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

    /// Grows until positions up to `end` have rows, or all rows are there that the layer may have.
    fn make_room(&mut self, end: usize, dtype: DType, others: u64, most: u64) -> Result<(), NodeError> {
        let wanted = end.min(self.most_rows);
        if wanted <= self.rows {
            return Ok(());
        }
        let rows = wanted.max(self.rows.saturating_mul(2)).max(FIRST_ROWS).min(self.most_rows);
        let (heads, features) = (self.spec.kv_heads, self.spec.head_dim);
        let bytes = heads
            .checked_mul(rows)
            .and_then(|count| count.checked_mul(features))
            .and_then(|count| count.checked_mul(dtype.size()));
        let found = others.saturating_add(bytes.map_or(u64::MAX, |bytes| 2 * bytes as u64));
        let (Some(bytes), true) = (bytes, found <= most) else {
            let (what, limit) = ("the off-graph cache", "live_bytes");
            return Err(of_run(Error::Limit { what, limit, found, allowed: most }));
        };
        let (old, new) = (self.rows * features * dtype.size(), rows * features * dtype.size());
        for region in [&mut self.keys, &mut self.values] {
            let mut grown = Memory::zeroed(bytes);
            for head in 0..if old > 0 { heads } else { 0 } {
                let from = &region.bytes()[head * old..][..old];
                grown.bytes_mut()[head * new..][..old].copy_from_slice(from);
            }
            *region = Arc::new(grown);
        }
        self.rows = rows;
        self.held.resize(rows, 0);
        Ok(())
    }

    /// Copies regions that a clone shares.
    fn make_own(&mut self) {
        for region in [&mut self.keys, &mut self.values] {
            if Arc::get_mut(region).is_none() {
                *region = Arc::new(Memory::clone(region));
            }
        }
    }

    /// The first of some positions whose row has been given to a later one, and that one. Only a layer with a window
    /// goes round.
    fn overwritten(&self, mut positions: Range<usize>) -> Option<(usize, usize)> {
        if self.spec.window.is_none() || self.rows == 0 {
            return None;
        }
        let lost = positions.find(|&position| self.held[position % self.rows] > position + 1)?;
        Some((lost, self.held[lost % self.rows] - 1))
    }

    /// Those of some positions whose row still belongs to an earlier one.
    fn stale(&self, positions: Range<usize>) -> Vec<usize> {
        let is_stale = |&position: &usize| {
            let held = self.held[position % self.rows];
            held > 0 && held <= position
        };
        // A layer that does not go round has a row for every position.
        let positions = if self.spec.window.is_some() { positions } else { 0..0 };
        positions.filter(is_stale).collect()
    }

    /// Calls `f` for the bytes of some rows, head by head, keys before values.
    fn for_each_part(&mut self, rows: Range<usize>, dtype: DType, mut f: impl FnMut(&mut [u8])) {
        let row = self.spec.head_dim * dtype.size();
        for region in [&mut self.keys, &mut self.values] {
            let Some(region) = Arc::get_mut(region) else { continue };
            for head in 0..self.spec.kv_heads {
                let first = head * self.rows;
                f(&mut region.bytes_mut()[(first + rows.start) * row..(first + rows.end) * row]);
            }
        }
    }

    /// Writes positions `from..` of keys and values into rows.
    fn store(
        &mut self,
        pool: &Pool,
        casts: &mut Casts,
        rows: Range<usize>,
        dtype: DType,
        written: &Written<'_>,
        from: usize,
    ) {
        let (heads, features) = (self.spec.kv_heads, self.spec.head_dim);
        let sizes = [1, heads, rows.len(), features];
        let strides = self.strides();
        for (region, source) in [(&mut self.keys, &written.keys), (&mut self.values, &written.values)] {
            let Some(region) = Arc::get_mut(region) else { continue };
            let first = source.strides()[2] * from as isize * source.dtype().size() as isize;
            let to = region.as_mut_ptr().wrapping_add(rows.start * features * dtype.size());
            // SAFETY: positions from `from` on are a part of the source; the rows are in the region, which is ours
            // alone, for every head.
            let (part, mut target) = unsafe {
                (
                    View::from_raw(
                        source.data().wrapping_offset(first),
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

    /// The rows of positions that are held.
    fn live(&self, positions: Range<usize>, dtype: DType) -> Live<'_> {
        let (heads, features) = (self.spec.kv_heads, self.spec.head_dim);
        Live {
            keys: &self.keys,
            values: &self.values,
            dtype,
            sizes: [1, heads, self.rows, features],
            strides: self.strides(),
            ring: Ring { first: positions.start % self.rows.max(1), live: positions.len() },
            window: self.spec.window,
        }
    }

    fn strides(&self) -> [isize; 4] {
        [0, (self.rows * self.spec.head_dim) as isize, self.spec.head_dim as isize, 1]
    }
}
