//! The off-graph cache on the device: by layer, keys and values by head in rows of features. A flat layer has a row for every
//! position and grows with the text; one with a window is a ring of slots.
//!
//! Positions behind the last one are nobody's, so that taking back what was appended is a matter of numbers. Where a write goes over
//! rows that still count, they are put aside first.

use crate::ffi::{Buffer, Device, Purpose};
use pteron_gpu::{CacheView, Cached, Written};
use pteron_runtime::backend::Rewind;
use pteron_runtime::{CacheSpec, Error, Result};
use pteron_tensor::DType;
use std::sync::Arc;

/// Rows that a layer begins with.
const FIRST_ROWS: usize = 256;

/// What a session's cache is, besides its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    dtype: Option<DType>,
    len: usize,
    /// By layer: one beyond the highest position that was ever written.
    ends: Vec<usize>,
}

/// Memory of one layer.
#[derive(Clone, Default)]
struct Layer {
    /// Keys and values.
    parts: Option<[Arc<Buffer>; 2]>,
    rows: usize,
}

/// A session's cache.
pub(crate) struct DeviceCache {
    device: Arc<Device>,
    spec: CacheSpec,
    committed: Contents,
    current: Contents,
    layers: Vec<Layer>,
    /// By layer: what was there before the runs since the last commit, where they write over it.
    aside: Vec<Option<Layer>>,
}

/// A cache at one moment. Its memory is shared until somebody writes.
#[derive(Clone)]
pub(crate) struct CacheSnapshot {
    contents: Contents,
    layers: Vec<Layer>,
}

fn refused<T>(message: String) -> Result<T> {
    Err(Error::Cache(message))
}

impl DeviceCache {
    pub(crate) fn new(device: &Arc<Device>, spec: &CacheSpec) -> DeviceCache {
        let count = spec.layers.len();
        let contents = Contents { dtype: spec.dtype, len: 0, ends: vec![0; count] };
        DeviceCache {
            device: device.clone(),
            spec: spec.clone(),
            committed: contents.clone(),
            current: contents,
            layers: vec![Layer::default(); count],
            aside: vec![None; count],
        }
    }

    /// The memory of a part of a layer.
    pub(crate) fn part(&self, part: Cached) -> Option<&Buffer> {
        let parts = self.layers.get(part.layer)?.parts.as_ref()?;
        Some(&parts[usize::from(part.values)])
    }

    /// Makes room for what is written, and says how the layer lies then.
    pub(crate) fn admit(&mut self, written: &Written) -> Result<CacheView> {
        let &Written { layer: at, position, length, heads, features, dtype, .. } = written;
        let count = self.spec.layers.len();
        let Some(spec) = self.spec.layers.get(at).cloned() else {
            return refused(format!("it has {count} layers, layer {at} is asked for"));
        };
        if (heads, features) != (spec.kv_heads, spec.head_dim) {
            return refused(format!(
                "the layer holds {} heads of {} features, {heads} of {features} are written",
                spec.kv_heads, spec.head_dim
            ));
        }
        let capacity = self.spec.capacity;
        let end = usize::try_from(position).ok().and_then(|position| position.checked_add(length));
        let Some(end) = end.filter(|&end| end <= capacity) else {
            return refused(format!(
                "position {position} and {length} more exceed the capacity of {capacity}"
            ));
        };
        let (slots, max_write) = spec.extent(&self.spec);
        if length > max_write {
            return refused(format!("{length} positions in one write, {max_write} at most"));
        }
        let start = end - length;
        let window = spec.window.unwrap_or(0);
        let first = if window > 0 { (start + 1).saturating_sub(window) } else { 0 };
        let highest = self.current.ends[at].max(end);
        if window > 0 && first + slots < highest {
            let held = highest - 1 - (highest - 1 - first) % slots;
            return refused(format!("position {first} has been overwritten by position {held}"));
        }
        let dtype = *self.current.dtype.get_or_insert(dtype);
        let needed = if window > 0 { slots } else { end };
        let row = features * dtype.size();
        self.grow(at, needed, slots, heads * row)?;
        let overwrites = start < self.committed.len || (window > 0 && end > slots);
        if overwrites {
            self.put_aside(at)?;
        }
        self.separate(at)?;
        // Positions that were left out hold zeros.
        if start > self.current.ends[at] || start > self.current.len {
            let gap = self.current.ends[at].min(self.current.len)..start;
            self.clear(at, gap, slots, (heads, row))?;
        }
        self.current.ends[at] = highest;
        self.current.len = self.current.len.max(end);
        let rows = self.layers[at].rows;
        Ok(CacheView { dtype, rows, slots: if window > 0 { slots } else { 0 }, first, window })
    }

    /// Gives a layer room for so many rows of each head.
    fn grow(&mut self, at: usize, needed: usize, slots: usize, row_of_all: usize) -> Result<()> {
        let old = self.layers[at].clone();
        if old.parts.is_some() && old.rows >= needed {
            return Ok(());
        }
        let rows = needed.max(FIRST_ROWS).next_power_of_two().min(slots).max(needed);
        let heads = self.spec.layers[at].kv_heads;
        let row = (row_of_all / heads.max(1)) as u64;
        let bytes = rows as u64 * row_of_all as u64;
        if bytes > self.device.adapter.features.max_binding {
            return refused(format!(
                "{bytes} bytes of a layer are more than a kernel of this device can see"
            ));
        }
        let part = |old: Option<&Arc<Buffer>>, old_rows: usize| -> Result<Arc<Buffer>> {
            let new = Buffer::new(&self.device, bytes, Purpose::Compute, "a cache")?;
            new.clear(0, bytes)?;
            if let Some(old) = old {
                let each = old_rows as u64 * row;
                let parts: Vec<_> =
                    (0..heads as u64).map(|head| (head * each, head * rows as u64 * row, each)).collect();
                old.copy_parts(&new, &parts)?;
            }
            Ok(Arc::new(new))
        };
        let both = old.parts.as_ref();
        let parts =
            [part(both.map(|parts| &parts[0]), old.rows)?, part(both.map(|parts| &parts[1]), old.rows)?];
        self.layers[at] = Layer { parts: Some(parts), rows };
        Ok(())
    }

    /// Keeps what a layer holds for a rollback.
    fn put_aside(&mut self, at: usize) -> Result<()> {
        if self.aside[at].is_none() {
            self.aside[at] = Some(self.copied(at)?);
        }
        Ok(())
    }

    fn copied(&self, at: usize) -> Result<Layer> {
        let layer = &self.layers[at];
        let parts = match &layer.parts {
            None => None,
            Some([keys, values]) => {
                Some([Arc::new(keys.duplicate("a cache")?), Arc::new(values.duplicate("a cache")?)])
            }
        };
        Ok(Layer { parts, rows: layer.rows })
    }

    /// Takes a copy of a layer that snapshots share.
    fn separate(&mut self, at: usize) -> Result<()> {
        let is_shared = self.layers[at].parts.iter().flatten().any(|part| Arc::strong_count(part) > 1);
        if is_shared {
            self.layers[at] = self.copied(at)?;
        }
        Ok(())
    }

    fn clear(
        &self,
        at: usize,
        gap: std::ops::Range<usize>,
        slots: usize,
        (heads, row): (usize, usize),
    ) -> Result<()> {
        let layer = &self.layers[at];
        for part in layer.parts.iter().flatten() {
            for head in 0..heads {
                let places = gap.clone().rev().take(slots).map(|position| position % slots.max(1));
                for slot in places {
                    part.clear(((head * layer.rows + slot) * row) as u64, row as u64)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self) {
        self.committed = self.current.clone();
        self.aside.iter_mut().for_each(|aside| *aside = None);
    }

    pub(crate) fn rollback(&mut self) {
        self.current = self.committed.clone();
        for (layer, aside) in self.layers.iter_mut().zip(&mut self.aside) {
            if let Some(old) = aside.take() {
                *layer = old;
            }
        }
    }

    /// Whether nothing was written since the last commit.
    pub(crate) fn is_settled(&self) -> bool {
        self.current == self.committed && self.aside.iter().all(Option::is_none)
    }

    /// Positions that are there for good.
    pub(crate) fn len(&self) -> usize {
        self.committed.len
    }

    pub(crate) fn rewind(&mut self, len: usize) -> Result<Rewind> {
        let held = self.committed.len;
        if len > held {
            return refused(format!("it holds {held} positions, not {len}"));
        }
        for (index, layer) in self.spec.layers.iter().enumerate() {
            let Some(window) = layer.window else { continue };
            let (slots, _) = layer.extent(&self.spec);
            let from = (len + 1).saturating_sub(window);
            if from < len && from + slots < self.committed.ends[index] {
                let reason = format!(
                    "layer {index} with a window of {window} needs positions {from} to {len} and no longer holds {from}"
                );
                return Ok(Rewind::Replay { from: 0, reason });
            }
        }
        self.committed.len = len;
        for (end, layer) in self.committed.ends.iter_mut().zip(&self.spec.layers) {
            // A ring keeps what it was given: that says which positions are lost.
            if layer.window.is_none() || len == 0 {
                *end = len.min(*end);
            }
        }
        self.current = self.committed.clone();
        Ok(Rewind::Done)
    }

    pub(crate) fn snapshot(&self) -> CacheSnapshot {
        CacheSnapshot { contents: self.committed.clone(), layers: self.layers.clone() }
    }

    pub(crate) fn restore(&mut self, snapshot: &CacheSnapshot) {
        self.committed = snapshot.contents.clone();
        self.current = snapshot.contents.clone();
        self.layers = snapshot.layers.clone();
        self.aside.iter_mut().for_each(|aside| *aside = None);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().flat_map(|layer| layer.parts.iter().flatten()).map(|part| part.bytes).sum()
    }
}
