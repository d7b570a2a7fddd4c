//! The node that writes keys and values into the session's cache and attends over it, once there is room.

use super::{CacheView, Walk, WalkError, invalid};
use crate::dispatch::{Cached, MOST_SPANS, Region, View};
use crate::lower::{self, Cacheable, Lowering, Ring};
use pteron_ir::rules::SliceRange;
use pteron_ir::{Node, Op, ValueId};
use pteron_plan::{Layout, Storage};

/// A layer of a text's cache, and the tokens of the text that go there.
pub(super) struct Layer {
    /// Keys and values, row by row.
    pub(super) parts: [View; 2],
    /// The position of the first token.
    pub(super) start: usize,
    pub(super) tokens: usize,
    /// The number of the first among the tokens of all texts.
    pub(super) from: usize,
    pub(super) cache: CacheView,
}

/// Keys or values of a layer of a text's cache.
pub(super) fn part_of(
    (span, layer, values): (usize, usize, bool),
    cache: &CacheView,
    [heads, features]: [usize; 2],
) -> Option<View> {
    let region = Region::Cache(Cached { span, layer, values });
    let layout = Layout::row_major(&[1, heads, cache.rows, features])?;
    let number = (1 << 40) + 2 * (layer * MOST_SPANS + span) + usize::from(values);
    Some(View { region, offset: 0, dtype: cache.dtype, layout, storage: Storage::Heap(number) })
}

/// Some of the tokens of `[1, heads, tokens, features]`.
pub(super) fn tokens_of(view: View, start: usize, count: usize) -> Option<View> {
    let (moved, layout) = view.layout.slice(2, SliceRange { start, step: 1, count })?;
    Some(view.with(layout).moved(moved))
}

impl Layer {
    pub(super) fn ring(&self) -> Ring {
        Ring { slots: self.cache.slots, first: self.cache.first, window: self.cache.window }
    }

    /// Keys that are there with the new ones.
    pub(super) fn keys(&self) -> usize {
        self.start + self.tokens - self.cache.first
    }

    /// Rows in the dtype that the cache keeps.
    pub(super) fn kept(&self, on: &mut Lowering, rows: View) -> View {
        if rows.dtype == self.cache.dtype {
            return rows;
        }
        let converted = on.scratch(self.cache.dtype, rows.sizes());
        lower::cast(on, converted, rows);
        converted
    }

    /// Writes new keys and values.
    pub(super) fn write(&self, on: &mut Lowering, rows: [View; 2]) {
        let slots = self.cache.slots;
        for (target, rows) in self.parts.into_iter().zip(rows) {
            // A ring goes round once at most in a write.
            let mut done = 0;
            while done < self.tokens {
                let slot = if slots > 0 { (self.start + done) % slots } else { self.start + done };
                let room = if slots > 0 { slots - slot } else { self.tokens };
                let count = room.min(self.tokens - done);
                let parts = (tokens_of(target, slot, count), tokens_of(rows, done, count));
                if let (Some(to), Some(from)) = parts {
                    lower::copy(on, to, from, false);
                }
                done += count;
            }
        }
    }
}

impl Walk<'_> {
    /// Writes keys and values into the cache, and attends over it.
    pub(super) fn attend(&mut self, node: &Node, cache: CacheView) -> Result<(), WalkError> {
        let Op::UpdateAndAttend { q: queries, k: new_keys, v, position, layer_id, scale, .. } = &node.op
        else {
            return invalid("no cache is asked for");
        };
        let out = self.own(node)?;
        let (q, k, v) = (self.tensor(*queries)?, self.tensor(*new_keys)?, self.tensor(*v)?);
        let layer = layer_id.and_then(|layer| usize::try_from(layer).ok()).unwrap_or(0);
        let start = self.first_of(*position).and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        let &[_, heads, length, features] = k.sizes() else { return invalid("keys need four axes") };
        let parts = [false, true].map(|values| part_of((0, layer, values), &cache, [heads, features]));
        let [Some(key_part), Some(value_part)] = parts else { return invalid("too many axes") };
        let own = Layer { parts: [key_part, value_part], start, tokens: length, from: 0, cache };
        let scale = scale.unwrap_or(1.0);
        let place = (start, own.keys(), scale);
        let turned = self.turned_into((*queries, *new_keys), v, own.parts, (out, place, own.ring()));
        if turned == Some(true) {
            self.set_tensor(node.results[0], out);
            return Ok(());
        }
        let on = &mut self.lowering;
        if turned.is_none() {
            let rows = [own.kept(on, k), own.kept(on, v)];
            own.write(on, rows);
        }
        let place = (scale, true, own.keys());
        let attended = lower::attend(on, out, [q, key_part, value_part], None, place, own.ring());
        attended.ok_or_else(|| WalkError::Invalid("queries need four axes".into()))?;
        self.set_tensor(node.results[0], out);
        Ok(())
    }

    /// Turns queries and keys and writes keys and values in one dispatch, in place of two ropes; whether that attends too, or `None`
    /// where that cannot be.
    fn turned_into(
        &mut self,
        (q, k): (ValueId, ValueId),
        v: View,
        parts: [View; 2],
        (out, (start, keys, scale), ring): (View, (usize, usize, f32), Ring),
    ) -> Option<bool> {
        let (q_turned, k_turned) = (self.ropes.get(&q).cloned()?, self.ropes.get(&k).cloned()?);
        if !self.planned.is_read_once(q) || !self.planned.is_read_once(k) {
            return None;
        }
        let new = Cacheable { q: Some(&q_turned), k: &k_turned, v: Some(v) };
        let on = &mut self.lowering;
        let attends = lower::token(on, &new, parts, out, (start, keys, scale), ring).is_some();
        if !attends {
            lower::turn(on, &new, parts, (start, ring.slots))?;
        }
        self.merge_with(q_turned.step.min(k_turned.step));
        self.ropes.clear();
        Some(attends)
    }
}
