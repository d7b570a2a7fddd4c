//! The off-graph key-value cache as MLX arrays, layer by layer, and attention over it.
//!
//! A layer is a ring of slots, and position `p` lives in slot `p % slots`. A flat layer has a slot for every position
//! of the context and never wraps; one with a window has `window + max_write - 1`, which lets the longest write and the
//! windows of all its queries exist at once. Arrays grow in steps as slots are first used. Cloning shares them, and an
//! array that only one cache holds is updated in place.

use crate::calls::{Call, Mlx};
use crate::error::{MlxError, invalid};
use crate::ffi::Array;
use crate::lower::{attend, compute_dtype, scalar_tensor};
use crate::values::{ArrayType, Held, Tensor};
use pteron_runtime::{CacheLayer, CacheSpec};
use pteron_tensor::{DType, HostTensor, Scalar, promote};
use std::ops::Range;

/// Slots by which a layer grows.
const GROWTH: usize = 256;

/// The off-graph cache of one session.
#[derive(Clone, Debug)]
pub(crate) struct Cache<A = Held> {
    capacity: usize,
    layers: Vec<Layer<A>>,
    /// Set by the specification, or by the first write.
    dtype: Option<DType>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Layer<A> {
    spec: CacheLayer,
    slots: usize,
    /// The longest write.
    max_write: usize,
    /// Keys and values, each [1, head, slot, feature], of the slots so far.
    arrays: Option<[A; 2]>,
    room: usize,
    /// The position that each slot of a ring holds.
    positions: Vec<Option<usize>>,
}

impl<A> Cache<A> {
    /// An empty cache; nothing is allocated before it is written.
    pub(crate) fn new(spec: &CacheSpec) -> Result<Cache<A>, MlxError> {
        if let Some(dtype) = spec.dtype.filter(|dtype| !dtype.is_float()) {
            return invalid(format!("a cache cannot store {dtype}"));
        }
        let layers = spec.layers.iter().map(|layer| {
            let (slots, max_write) = match layer.window {
                Some(0) => return invalid("a window of no positions"),
                Some(window) => {
                    let max_write = spec.max_write.unwrap_or(window).max(1);
                    (window.saturating_add(max_write - 1), max_write)
                }
                None => (spec.capacity, spec.capacity),
            };
            let spec = layer.clone();
            Ok(Layer { spec, slots, max_write, arrays: None, room: 0, positions: Vec::new() })
        });
        Ok(Cache {
            capacity: spec.capacity,
            layers: layers.collect::<Result<_, _>>()?,
            dtype: spec.dtype,
            len: 0,
        })
    }

    /// Positions written so far: one beyond the highest.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all arrays, also of those that other clones share.
    pub(crate) fn bytes(&self) -> u64 {
        let size = self.dtype.map_or(0, DType::size);
        let cells = |layer: &Layer<A>| 2 * layer.room * layer.spec.kv_heads * layer.spec.head_dim * size;
        self.layers.iter().map(|layer| cells(layer) as u64).sum()
    }

    /// The same with other holders of the arrays.
    pub(crate) fn map<B>(self, to: &mut impl FnMut(A) -> Result<B, MlxError>) -> Result<Cache<B>, MlxError> {
        let layers = self.layers.into_iter().map(|layer| {
            let Layer { spec, slots, max_write, arrays, room, positions } = layer;
            let arrays = match arrays {
                Some([keys, values]) => Some([to(keys)?, to(values)?]),
                None => None,
            };
            Ok(Layer { spec, slots, max_write, arrays, room, positions })
        });
        let layers = layers.collect::<Result<_, MlxError>>()?;
        Ok(Cache { capacity: self.capacity, layers, dtype: self.dtype, len: self.len })
    }

    /// Goes back to when `len` positions were written; says why where a ring has already given up positions that the
    /// next query would look at, and changes nothing then.
    pub(crate) fn rewind(&mut self, len: usize) -> Result<(), String> {
        if len > self.len {
            return Err(format!("the cache holds {} positions, not {len}", self.len));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let needed = layer.visible_from(len)..len;
            if let Some(lost) = needed.clone().find(|&position| layer.overwritten(position).is_some()) {
                return Err(format!(
                    "layer {index} with a window of {} needs positions {} to {len} and no longer holds {lost}",
                    layer.spec.window.unwrap_or(layer.slots),
                    needed.start,
                ));
            }
        }
        self.len = len;
        Ok(())
    }
}

impl Cache {
    /// Writes keys and values `[1, heads, T, features]` at `position` and attends with queries `[1, H, T, features]`,
    /// each of which sees itself and what came before it, as far as its layer's window goes.
    pub(crate) fn update_and_attend(
        &mut self,
        mlx: &Mlx,
        layer: usize,
        position: i64,
        [q, k, v]: [&Tensor; 3],
        scale: f32,
        out: &ArrayType,
    ) -> Result<Array, MlxError> {
        let (count, capacity) = (self.layers.len(), self.capacity);
        let Some(layer) = self.layers.get_mut(layer) else {
            return invalid(format!("the cache has {count} layers, layer {layer} is asked for"));
        };
        let (&[1, heads, length, features], true) = (k.ty.shape.as_slice(), k.ty.shape == v.ty.shape) else {
            return invalid(format!("keys {} and values {} of a cache differ", k.ty, v.ty));
        };
        if (heads, features) != (layer.spec.kv_heads, layer.spec.head_dim) {
            return invalid(format!(
                "the layer holds {} heads of {} features, {heads} of {features} are written",
                layer.spec.kv_heads, layer.spec.head_dim
            ));
        }
        let queries_fit = matches!(q.ty.shape.as_slice(), &[1, query_heads, queries, query_features]
            if queries == length && query_features == features && heads > 0 && query_heads % heads == 0);
        if !queries_fit {
            return invalid(format!("queries {} over {heads} heads and {length} new keys", q.ty));
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
        let written = end - length..end;
        // A dtype that the caller left open is that of the first keys.
        let dtype = *self.dtype.get_or_insert(k.ty.dtype);
        layer.store(mlx, &written, dtype, [k, v])?;
        self.len = self.len.max(end);
        let compute = compute_dtype(mlx, promote(q.ty.dtype, dtype));
        let cast = |array: &Array, dtype: DType| mlx.one(Call::AsType, &[array], &[dtype.code().into()]);
        let read = layer.visible_from(written.start)..end;
        let [keys, values] = layer.load(mlx, &read, dtype)?;
        let operands = [cast(&q.array, compute)?, cast(&keys, compute)?, cast(&values, compute)?];
        let mask = layer.mask(mlx, &written, &read)?;
        let causal = length > 1 && mask.is_none();
        cast(&attend(mlx, &operands, mask.as_ref(), causal, scale)?, out.dtype)
    }
}

impl<A> Layer<A> {
    /// The oldest position that a query at `position` sees.
    fn visible_from(&self, position: usize) -> usize {
        self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The later position that a position's slot has been given to.
    fn overwritten(&self, position: usize) -> Option<usize> {
        let held = self.positions.get(position % self.slots.max(1)).copied().flatten();
        held.filter(|&held| held > position)
    }
}

impl Layer<Held> {
    /// The slots of consecutive positions, as runs without a wrap; fewer positions than slots make at most two.
    fn runs(&self, positions: &Range<usize>) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut at = positions.start;
        while at < positions.end {
            let slot = at % self.slots;
            let count = (positions.end - at).min(self.slots - slot);
            runs.push(slot..slot + count);
            at += count;
        }
        runs
    }

    fn sizes(&self, slots: usize) -> [i64; 4] {
        [1, self.spec.kv_heads as i64, slots as i64, self.spec.head_dim as i64]
    }

    /// Starts, stops and steps of a run of slots.
    fn bounds(&self, run: &Range<usize>) -> Vec<i64> {
        let (mut starts, mut stops) = ([0; 4], self.sizes(0));
        (starts[2], stops[2]) = (run.start as i64, run.end as i64);
        [starts, stops, [1; 4]].concat()
    }

    fn store(
        &mut self,
        mlx: &Mlx,
        written: &Range<usize>,
        dtype: DType,
        tensors: [&Tensor; 2],
    ) -> Result<(), MlxError> {
        let runs = self.runs(written);
        let highest = runs.iter().map(|run| run.end).max().unwrap_or(0);
        let mut arrays = self.grown(mlx, highest, dtype)?;
        for (array, tensor) in arrays.iter_mut().zip(tensors) {
            let new = mlx.one(Call::AsType, &[&tensor.array], &[dtype.code().into()])?;
            let mut from = 0;
            for run in &runs {
                let part = mlx.one(Call::Slice, &[&new], &self.bounds(&(from..from + run.len())))?;
                *array = mlx.one(Call::SliceUpdate, &[array, &part], &self.bounds(run))?.into();
                from += run.len();
            }
        }
        self.arrays = Some(arrays);
        if self.spec.window.is_some() {
            self.positions.resize(self.slots, None);
            for position in written.clone() {
                self.positions[position % self.slots] = Some(position);
            }
        }
        Ok(())
    }

    /// The arrays with room for that many slots; new ones hold zeros.
    fn grown(&mut self, mlx: &Mlx, slots: usize, dtype: DType) -> Result<[Held; 2], MlxError> {
        let room = slots.next_multiple_of(GROWTH).min(self.slots).max(self.room);
        let zeros = |slots: usize| {
            let zero = mlx.copy(&scalar_tensor(Scalar::Int(0), dtype)?)?;
            mlx.one(Call::Full, &[&zero], &self.sizes(slots))
        };
        let (old, held) = (self.arrays.clone(), self.room);
        let arrays = match old {
            None => [zeros(room)?.into(), zeros(room)?.into()],
            Some(arrays) if room == held => arrays,
            Some([keys, values]) => {
                let more = zeros(room - held)?;
                let longer =
                    |array: &Array| mlx.one(Call::Concatenate, &[array, &more], &[2]).map(Held::from);
                [longer(&keys)?, longer(&values)?]
            }
        };
        // The old ones are only held by what is made of them, so that it may take their memory.
        self.arrays = None;
        self.room = room;
        Ok(arrays)
    }

    /// Keys and values of consecutive positions; never written ones are zero.
    fn load(&self, mlx: &Mlx, positions: &Range<usize>, dtype: DType) -> Result<[Array; 2], MlxError> {
        if let Some((position, by)) =
            positions.clone().find_map(|position| Some((position, self.overwritten(position)?)))
        {
            return invalid(format!("position {position} has been overwritten by position {by}"));
        }
        let gaps = self.gaps(positions);
        let runs = self.runs(positions);
        let Some(arrays) = &self.arrays else { return invalid("nothing has been written") };
        let read = |array: &Array| {
            let parts = runs.iter().map(|run| mlx.one(Call::Slice, &[array], &self.bounds(run)));
            let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
            let whole = match parts.len() {
                1 => parts.remove(0),
                _ => mlx.one(Call::Concatenate, &parts.iter().collect::<Vec<_>>(), &[2])?,
            };
            let Some(held) = &gaps else { return Ok(whole) };
            let zero = mlx.copy(&scalar_tensor(Scalar::Int(0), dtype)?)?;
            mlx.one(Call::Where, &[&mlx.copy(held)?, &whole, &zero], &[])
        };
        Ok([read(&arrays[0])?, read(&arrays[1])?])
    }

    /// Which positions a ring holds, where it does not hold all; a slot may still hold an older one.
    fn gaps(&self, positions: &Range<usize>) -> Option<HostTensor> {
        self.spec.window?;
        let held: Vec<bool> = positions
            .clone()
            .map(|position| self.positions.get(position % self.slots).copied().flatten() == Some(position))
            .collect();
        if held.iter().all(|&held| held) {
            return None;
        }
        HostTensor::from_bools(vec![1, 1, held.len(), 1], &held).ok()
    }

    /// Which keys each of several queries sees, where a window ends before the oldest key.
    fn mask(
        &self,
        mlx: &Mlx,
        written: &Range<usize>,
        read: &Range<usize>,
    ) -> Result<Option<Array>, MlxError> {
        if written.len() <= 1 || self.visible_from(written.end - 1) <= read.start {
            return Ok(None);
        }
        let seen: Vec<bool> = written
            .clone()
            .flat_map(|query| {
                let visible = self.visible_from(query)..query + 1;
                read.clone().map(move |key| visible.contains(&key))
            })
            .collect();
        let mask = HostTensor::from_bools(vec![written.len(), read.len()], &seen)?;
        mlx.copy(&mask).map(Some)
    }
}
