//! The off-graph key-value cache: what a session keeps for `UpdateAndAttend`, layer by layer, and attention over
//! it. A pure data structure; the interpreter owns one per session.
//!
//! A layer is a ring of slots, and position `p` lives in slot `p % slots`. A flat layer has a slot for every
//! position of the context and so never wraps; one with a window has as many as [`CacheLayer::extent`] says. Slots are stored in pages that come into
//! being when they are first written and are shared between clones until one side writes: a clone is a snapshot,
//! and costs what is written after it.

use super::attention::{HeadSizes, attend_head};
use super::{Computed, KernelError, ResultType, floats};
use crate::cache::{CacheLayer, CacheSpec};
use pteron_tensor::{DType, HostTensor};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// Slots of a page: small enough that copying one for a token is cheap, large enough to be rare.
const PAGE: usize = 64;

/// The off-graph cache of one session.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    capacity: usize,
    layers: Vec<Layer>,
    /// Set by the specification, or by the first write.
    dtype: Option<DType>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Layer {
    spec: CacheLayer,
    slots: usize,
    /// The longest write.
    max_write: usize,
    /// By slot / PAGE; missing ones hold zeros.
    pages: BTreeMap<usize, Arc<Page>>,
}

/// Keys and values of consecutive slots, each [slot, head, feature].
#[derive(Clone, Debug)]
struct Page {
    keys: HostTensor,
    values: HostTensor,
    /// The position that each slot holds.
    positions: [Option<usize>; PAGE],
}

impl Cache {
    /// An empty cache of a specification that has been checked; nothing is allocated before it is written.
    pub(crate) fn new(spec: &CacheSpec) -> Cache {
        let layers = spec.layers.iter().map(|layer| {
            let (slots, max_write) = layer.extent(spec);
            Layer { spec: layer.clone(), slots, max_write, pages: BTreeMap::new() }
        });
        Cache { capacity: spec.capacity, layers: layers.collect(), dtype: spec.dtype, len: 0 }
    }

    /// Positions written so far: one beyond the highest.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all pages, also of those that other clones share.
    pub(crate) fn bytes(&self) -> u64 {
        let pages = self.layers.iter().flat_map(|layer| layer.pages.values());
        pages.map(|page| (page.keys.bytes().len() + page.values.bytes().len()) as u64).sum()
    }

    /// Goes back to when `len` positions were written; says why where a ring has already given up positions
    /// that the next query would look at, and changes nothing then.
    pub(crate) fn rewind(&mut self, len: usize) -> Result<(), String> {
        if len > self.len {
            return Err(format!("the cache holds {} positions, not {len}", self.len));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let needed = layer.visible_from(len)..len;
            if let Some(lost) = needed.clone().find(|&position| layer.overwritten(position)) {
                return Err(format!(
                    "layer {index} with a window of {} needs positions {} to {len} and no longer holds {lost}",
                    layer.spec.window.unwrap_or(layer.slots),
                    needed.start,
                ));
            }
        }
        self.layers.iter_mut().for_each(|layer| layer.forget_from(len));
        self.len = len;
        Ok(())
    }

    /// Writes keys and values `[1, heads, T, features]` at `position` and attends with queries `[1, H, T,
    /// features]`, each of which sees itself and what came before it, as far as its layer's window goes.
    pub(crate) fn update_and_attend(
        &mut self,
        layer: usize,
        (position, is_ahead): (i64, bool),
        (q, k, v): (&HostTensor, &HostTensor, &HostTensor),
        scale: f32,
        out: &ResultType,
    ) -> Computed {
        let written = self.write(layer, position, k, v)?;
        self.layers[layer].attend(written, is_ahead, q, scale, out)
    }

    /// Stores keys and values; the positions that they got.
    fn write(
        &mut self,
        layer: usize,
        position: i64,
        k: &HostTensor,
        v: &HostTensor,
    ) -> Result<Range<usize>, KernelError> {
        let count = self.layers.len();
        let capacity = self.capacity;
        let Some(layer) = self.layers.get_mut(layer) else {
            return invalid(format!("the cache has {count} layers, layer {layer} is asked for"));
        };
        let (&[1, heads, length, features], true) = (k.shape(), k.shape() == v.shape()) else {
            return invalid(format!("keys {:?} and values {:?} of a cache differ", k.shape(), v.shape()));
        };
        if (heads, features) != (layer.spec.kv_heads, layer.spec.head_dim) {
            return invalid(format!(
                "the layer holds {} heads of {} features, {heads} of {features} are written",
                layer.spec.kv_heads, layer.spec.head_dim
            ));
        }
        let end = usize::try_from(position).ok().and_then(|position| position.checked_add(length));
        let Some(end) = end.filter(|&end| end <= capacity) else {
            return invalid(format!(
                "position {position} and {length} more exceed the capacity of {capacity}"
            ));
        };
        if length > layer.max_write {
            return invalid(format!("{length} positions in one write, {} at most", layer.max_write));
        }
        let positions = end - length..end;
        // A dtype that the caller left open is that of the first keys.
        let dtype = *self.dtype.get_or_insert(k.dtype());
        layer.store(positions.clone(), dtype, k, v)?;
        self.len = self.len.max(end);
        Ok(positions)
    }
}

impl Layer {
    /// The oldest position that a query at `position` sees.
    fn visible_from(&self, position: usize) -> usize {
        self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Gives up positions from `len` on, where each has a slot of its own. A ring keeps them: they say which ones are lost.
    fn forget_from(&mut self, len: usize) {
        if self.spec.window.is_some() {
            return;
        }
        self.pages.split_off(&len.div_ceil(PAGE));
        if let Some(page) = self.pages.get_mut(&(len / PAGE)) {
            Arc::make_mut(page).positions[len % PAGE..].fill(None);
        }
    }

    /// The page of a position, and its slot there.
    fn place(&self, position: usize) -> (usize, usize) {
        let slot = position % self.slots;
        (slot / PAGE, slot % PAGE)
    }

    /// Whether a position's slot has been given to a later one.
    fn overwritten(&self, position: usize) -> bool {
        let (page, slot) = self.place(position);
        self.pages.get(&page).and_then(|page| page.positions[slot]).is_some_and(|held| held > position)
    }

    fn store(
        &mut self,
        positions: Range<usize>,
        dtype: DType,
        k: &HostTensor,
        v: &HostTensor,
    ) -> Result<(), KernelError> {
        let (heads, features, length) = (self.spec.kv_heads, self.spec.head_dim, positions.len());
        let mut row = vec![0.0; features];
        for (t, position) in positions.enumerate() {
            let (page, slot) = self.place(position);
            let page = match self.pages.entry(page) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let zeros = HostTensor::zeros(dtype, vec![PAGE, heads, features])?;
                    entry.insert(Arc::new(Page {
                        keys: zeros.clone(),
                        values: zeros,
                        positions: [None; PAGE],
                    }))
                }
            };
            let page = Arc::make_mut(page);
            page.positions[slot] = Some(position);
            for head in 0..heads {
                let (from, to) = ((head * length + t) * features, (slot * heads + head) * features);
                floats::load(k, from, &mut row)?;
                floats::store(&row, &mut page.keys, to)?;
                floats::load(v, from, &mut row)?;
                floats::store(&row, &mut page.values, to)?;
            }
        }
        Ok(())
    }

    /// Keys and values of one head at consecutive positions, as floats; never written ones are zero.
    fn load(&self, positions: Range<usize>, head: usize) -> Result<(Vec<f32>, Vec<f32>), KernelError> {
        let features = self.spec.head_dim;
        let mut keys = vec![0.0; positions.len() * features];
        let mut values = keys.clone();
        for (t, position) in positions.enumerate() {
            let (page, slot) = self.place(position);
            let Some(page) = self.pages.get(&page) else { continue };
            let (from, to) = ((slot * self.spec.kv_heads + head) * features, t * features);
            match page.positions[slot] {
                Some(held) if held == position => {
                    floats::load(&page.keys, from, &mut keys[to..to + features])?;
                    floats::load(&page.values, from, &mut values[to..to + features])?;
                }
                Some(held) if held > position => {
                    return invalid(format!("position {position} has been overwritten by position {held}"));
                }
                _ => {} // a gap
            }
        }
        Ok((keys, values))
    }

    /// Tokens see up to themselves, or to the end of what was written.
    fn attend(
        &self,
        written: Range<usize>,
        is_ahead: bool,
        q: &HostTensor,
        scale: f32,
        out: &ResultType,
    ) -> Computed {
        let &[1, heads, queries, features] = q.shape() else {
            return invalid(format!("queries {:?} of a cache", q.shape()));
        };
        let (shared, length) = (self.spec.kv_heads, written.len());
        if features != self.spec.head_dim || queries != length || shared == 0 || heads % shared != 0 {
            return invalid(format!("queries {:?} over {shared} heads and {length} new keys", q.shape()));
        }
        let read = self.visible_from(written.start)..written.end;
        let sizes = HeadSizes { keys: read.len(), features, values: features };
        let q = floats::all(q)?;
        let mut result = vec![0.0; q.len()];
        let (size, group) = (queries * features, heads / shared);
        for head in 0..shared {
            let (keys, values) = self.load(read.clone(), head)?;
            for query_head in head * group..(head + 1) * group {
                let place = query_head * size..(query_head + 1) * size;
                let mask = |query: usize, scores: &mut [f32]| {
                    let position = written.start + query;
                    let end = if is_ahead { written.end } else { position + 1 };
                    let visible = self.visible_from(position)..end;
                    for (key, score) in read.clone().zip(scores) {
                        if !visible.contains(&key) {
                            *score = f32::NEG_INFINITY;
                        }
                    }
                };
                attend_head(sizes, &q[place.clone()], &keys, &values, scale, mask, &mut result[place]);
            }
        }
        floats::rounded(out, &result)
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::Invalid(message.into()))
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, random, ty};
    use super::*;
    use pteron_format::Limits;

    const HEADS: usize = 2;
    const FEATURES: usize = 4;
    /// More than fit.
    const ROWS: usize = 310;

    fn spec(window: Option<usize>, max_write: Option<usize>) -> CacheSpec {
        let layer = CacheLayer { kv_heads: HEADS, head_dim: FEATURES, window };
        CacheSpec { capacity: 300, layers: vec![layer; 2], max_write, dtype: None }
    }

    /// The rows of positions `at..at + length`, always the same for a position.
    fn rows(seed: u32, heads: usize, at: usize, length: usize) -> HostTensor {
        let all = random(seed, &[heads, ROWS, FEATURES]);
        let all = all.as_slice::<f32>().unwrap();
        let row = |head: usize, position: usize| &all[(head * ROWS + position) * FEATURES..][..FEATURES];
        let picked: Vec<f32> =
            (0..heads).flat_map(|head| (at..at + length).flat_map(move |p| row(head, p))).copied().collect();
        HostTensor::from_slice(vec![1, heads, length, FEATURES], &picked).unwrap()
    }

    fn step(cache: &mut Cache, layer: usize, at: usize, length: usize) -> Computed {
        let (q, k, v) = (rows(1, 4, at, length), rows(2, HEADS, at, length), rows(3, HEADS, at, length));
        let out = ty(DType::F32, q.shape());
        cache.update_and_attend(layer, (at as i64, false), (&q, &k, &v), 0.5, &out)
    }

    /// What a query at a position must see, from all rows ever written.
    fn want(position: usize, window: Option<usize>) -> Vec<f64> {
        let from = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let length = position + 1 - from;
        let (q, k, v) = (rows(1, 4, position, 1), rows(2, HEADS, from, length), rows(3, HEADS, from, length));
        let (q, k, v) = (as_f64(&q), as_f64(&k), as_f64(&v));
        let mut out = Vec::new();
        for head in 0..4 {
            let first = head / 2 * length;
            let weight = |key: usize| {
                let pairs = q[head * FEATURES..].iter().zip(&k[(first + key) * FEATURES..][..FEATURES]);
                (0.5 * pairs.map(|(a, b)| a * b).sum::<f64>()).exp()
            };
            let sum: f64 = (0..length).map(weight).sum();
            out.extend((0..FEATURES).map(|feature| {
                (0..length).map(|key| weight(key) * v[(first + key) * FEATURES + feature]).sum::<f64>() / sum
            }));
        }
        out
    }

    #[track_caller]
    fn check(got: Computed, at: usize, length: usize, window: Option<usize>) {
        let got = as_f64(&got.unwrap());
        for t in 0..length {
            let want = want(at + t, window);
            for (i, want) in want.iter().enumerate() {
                let (head, feature) = (i / FEATURES, i % FEATURES);
                let got = got[(head * length + t) * FEATURES + feature];
                assert!((got - want).abs() < 1e-5, "position {}, element {i}: {got}, not {want}", at + t);
            }
        }
    }

    #[test]
    fn flat_and_ring_layers_see_what_they_should() {
        let writes = [5, 3, 1, 1, 7, 2, 8, 1, 1, 1, 6, 8, 8, 1, 5, 8, 8, 3, 8, 8, 8];
        for window in [None, Some(1), Some(3), Some(8), Some(20), Some(250)] {
            let mut cache = Cache::new(&spec(window, Some(8)));
            let mut at = 0;
            for length in writes {
                for layer in 0..2 {
                    check(step(&mut cache, layer, at, length), at, length, window);
                }
                at += length;
                assert_eq!(cache.len(), at);
            }
        }
    }

    #[test]
    fn memory_follows_use_and_a_ring_stops_growing() {
        let mut cache = Cache::new(&spec(None, None));
        assert_eq!(cache.bytes(), 0);
        let page = (2 * PAGE * HEADS * FEATURES * 4) as u64;
        step(&mut cache, 0, 0, 10).unwrap();
        assert_eq!(cache.bytes(), page);
        step(&mut cache, 0, 10, 100).unwrap();
        assert_eq!(cache.bytes(), 2 * page);
        let mut ring = Cache::new(&spec(Some(20), Some(5)));
        (0..50).for_each(|i| drop(step(&mut ring, 1, i * 5, 5).unwrap()));
        assert_eq!(ring.bytes(), page);
    }

    #[test]
    fn clones_are_snapshots() {
        for window in [None, Some(6)] {
            let mut cache = Cache::new(&spec(window, Some(8)));
            check(step(&mut cache, 0, 0, 8), 0, 8, window);
            let snapshot = cache.clone();
            for at in 8..40 {
                check(step(&mut cache, 0, at, 1), at, 1, window);
            }
            let mut restored = snapshot;
            assert_eq!(restored.len(), 8);
            check(step(&mut restored, 0, 8, 4), 8, 4, window);
        }
    }

    #[test]
    fn a_rewind_goes_as_far_as_the_rings_allow() {
        let mut flat = Cache::new(&spec(None, None));
        step(&mut flat, 0, 0, 30).unwrap();
        flat.rewind(4).unwrap();
        assert_eq!(flat.len(), 4);
        check(step(&mut flat, 0, 4, 2), 4, 2, None);
        assert!(flat.rewind(7).is_err());
        step(&mut flat, 0, 6, 200).unwrap();
        let bytes = flat.bytes();
        flat.rewind(70).unwrap();
        assert_eq!(flat.bytes() * 2, bytes, "two pages of four");

        // 13 slots hold positions 17 to 29; a query at 22 looks back to 17, one at 21 no further than 16.
        let mut ring = Cache::new(&spec(Some(6), Some(8)));
        (0..30).for_each(|at| drop(step(&mut ring, 0, at, 1).unwrap()));
        assert!(ring.rewind(21).is_err());
        assert_eq!(ring.len(), 30);
        ring.rewind(22).unwrap();
        check(step(&mut ring, 0, 22, 8), 22, 8, Some(6));
        // Without the rewind the same write would have met overwritten positions.
        assert!(step(&mut ring, 0, 10, 1).is_err());
        // From the beginning everything is written again.
        ring.rewind(0).unwrap();
        check(step(&mut ring, 0, 0, 8), 0, 8, Some(6));
        check(step(&mut ring, 0, 8, 3), 8, 3, Some(6));
    }

    #[test]
    fn gaps_hold_zeros() {
        let mut cache = Cache::new(&spec(None, None));
        let got = as_f64(&step(&mut cache, 0, 1, 1).unwrap());
        let (q, k, v) = (as_f64(&rows(1, 4, 1, 1)), as_f64(&rows(2, 2, 1, 1)), as_f64(&rows(3, 2, 1, 1)));
        let score: f64 = q.iter().zip(&k[..FEATURES]).map(|(a, b)| a * b).sum::<f64>() * 0.5;
        let share = score.exp() / (score.exp() + 1.0);
        assert!((got[0] - v[0] * share).abs() < 1e-6);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut cache = Cache::new(&spec(Some(6), Some(4)));
        for (layer, at, length) in [(2, 0, 1), (0, 299, 2), (0, 0, 5)] {
            assert!(step(&mut cache, layer, at, length).is_err(), "{layer} {at} {length}");
        }
        let k = random(1, &[1, HEADS, 1, FEATURES]);
        let out = ty(DType::F32, k.shape());
        assert!(cache.update_and_attend(0, (-1, false), (&k, &k, &k), 1.0, &out).is_err());
        let wide = random(1, &[1, HEADS, 1, FEATURES + 1]);
        assert!(cache.update_and_attend(0, (0, false), (&wide, &wide, &wide), 1.0, &out).is_err());
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
        assert!(spec(Some(0), None).check(&Limits::default()).is_err());
    }

    #[test]
    fn keys_are_stored_in_the_dtype_of_the_cache() {
        let mut cache = Cache::new(&CacheSpec { dtype: Some(DType::F16), ..spec(None, None) });
        let got = as_f64(&step(&mut cache, 0, 0, 1).unwrap());
        let v = rows(3, HEADS, 0, 1);
        let rounded = half::f16::from_f32(v.as_slice::<f32>().unwrap()[0]).to_f64();
        assert_eq!(got[0], rounded);
    }
}
