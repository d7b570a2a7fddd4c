//! The node that writes keys and values into the session's cache and attends over it, once there is room.

use super::{CacheView, Walk, WalkError, invalid};
use crate::dispatch::{Cached, Region, View};
use crate::lower::{self, Cacheable, Ring};
use pteron_ir::{Node, Op, ValueId};
use pteron_plan::{Layout, Storage};

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
        let Some(layout) = Layout::row_major(&[1, heads, cache.rows, features]) else {
            return invalid("too many axes");
        };
        let part = |values: bool| View {
            region: Region::Cache(Cached { layer, values }),
            offset: 0,
            dtype: cache.dtype,
            layout,
            storage: Storage::Heap((1 << 40) + 2 * layer + usize::from(values)),
        };
        let ring = Ring { slots: cache.slots, first: cache.first, window: cache.window };
        let (keys, scale) = (start + length - cache.first, scale.unwrap_or(1.0));
        let (parts, place) = ([part(false), part(true)], (start, keys, scale));
        let turned = self.turned_into((*queries, *new_keys), v, parts, (out, place, ring));
        let is_turned = match turned {
            Some(true) => {
                self.set_tensor(node.results[0], out);
                return Ok(());
            }
            Some(false) => true,
            None => false,
        };
        let on = &mut self.lowering;
        let written = if is_turned { Vec::new() } else { vec![(part(false), k), (part(true), v)] };
        for (target, rows) in written {
            let rows = if rows.dtype == cache.dtype {
                rows
            } else {
                let converted = on.scratch(cache.dtype, rows.sizes());
                lower::cast(on, converted, rows);
                converted
            };
            // A ring goes round once at most in a write.
            let mut done = 0;
            while done < length {
                let slot = if cache.slots > 0 { (start + done) % cache.slots } else { start + done };
                let room = if cache.slots > 0 { cache.slots - slot } else { length };
                let count = room.min(length - done);
                let slice = |view: View, start: usize| {
                    let range = pteron_ir::rules::SliceRange { start, step: 1, count };
                    view.layout.slice(2, range).map(|(moved, layout)| view.with(layout).moved(moved))
                };
                if let (Some(to), Some(from)) = (slice(target, slot), slice(rows, done)) {
                    lower::copy(on, to, from, false);
                }
                done += count;
            }
        }
        let attended = lower::attend(on, out, [q, part(false), part(true)], None, (scale, true, keys), ring);
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
        let new = Cacheable { q: Some(&q_turned), k: &k_turned, is_emitted: true, v: Some(v) };
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
