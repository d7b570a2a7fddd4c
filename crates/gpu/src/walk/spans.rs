//! Texts that are read side by side: what depends on where a token is, its rope and the cache of its text, is done text by text, and
//! everything else once for the tokens of all.

use super::attend::{Layer, part_of, tokens_of};
use super::products::RopeTurns;
use super::{CacheView, Walk, WalkError, invalid};
use crate::dispatch::View;
use crate::lower::{self, Cacheable, Turned, Turns};
use pteron_ir::op::OffsetArg;
use pteron_ir::{Node, Op, Ssa, ValueId};
use pteron_plan::Layout;

/// A rope that turns the tokens of each text from its own position on, and is still to be lowered.
pub(super) struct SpannedRope {
    result: ValueId,
    step: usize,
    x: View,
    out: View,
    dims: usize,
    turns: RopeTurns,
}

impl SpannedRope {
    /// The rope of one text's tokens.
    fn turned(&self, (start, from, tokens): (usize, usize, usize)) -> Option<Turned> {
        let RopeTurns { freqs, traditional, radians, scale, .. } = &self.turns;
        Some(Turned {
            dispatch: None,
            step: self.step,
            x: tokens_of(self.x, from, tokens)?,
            out: tokens_of(self.out, from, tokens)?,
            dims: self.dims,
            offset: start as i64,
            freqs: *freqs,
            traditional: *traditional,
            radians: radians.clone(),
            scale: *scale,
        })
    }
}

/// The same memory for `[1, heads, tokens, features]`, token by token: what is one text's lies together.
fn by_token(view: View) -> Result<View, WalkError> {
    let &[1, heads, tokens, features] = view.sizes() else { return invalid("queries need four axes") };
    let layout = Layout::row_major(&[1, tokens, heads, features]);
    let layout = layout.and_then(|layout| layout.permute([0, 2, 1, 3].into_iter()));
    layout.map(|layout| view.with(layout)).ok_or_else(|| WalkError::Invalid("too many axes".into()))
}

impl Walk<'_> {
    /// Whether an op turns the tokens of each text from its own position on.
    pub(super) fn turns_by_span(&self, op: &Op<Ssa>) -> Result<bool, WalkError> {
        let (Op::Rope { x, offset, .. }, false) = (op, self.spans.is_empty()) else { return Ok(false) };
        let is_one = match offset {
            OffsetArg::Value(_) => true,
            OffsetArg::Tensor(offset) => self.tensor(*offset)?.layout.len() == 1,
        };
        if !is_one {
            return Ok(false);
        }
        match (self.tensor(*x)?.sizes(), self.spans.iter().all(|span| span.tokens == 1)) {
            (&[1, _, tokens, _], true) if tokens == self.spans.len() => Ok(true),
            _ => invalid("texts side by side turn one token each"),
        }
    }

    /// Puts such a rope off until something else is lowered.
    pub(super) fn spanned_rope(
        &mut self,
        result: ValueId,
        op: &Op<Ssa>,
        out: View,
    ) -> Result<View, WalkError> {
        let Op::Rope { x, .. } = op else { return invalid("the op turns nothing") };
        let (x, out) = (self.tensor(*x)?, by_token(out)?);
        let (dims, turns) = self.turns(op, &x)?;
        let step = self.lowering.step;
        self.spanned.push(SpannedRope { result, step, x, out, dims, turns });
        Ok(out)
    }

    /// Lowers ropes that were put off.
    pub(super) fn turn_spans(&mut self) {
        for rope in std::mem::take(&mut self.spanned) {
            let from = self.lowering.dispatches.len();
            for (number, span) in self.spans.iter().enumerate() {
                if let Some(turned) = rope.turned((span.start, number, span.tokens)) {
                    let turns = Turns { offset: Err(turned.offset), ..rope.turns.of(turned.dims) };
                    lower::rope(&mut self.lowering, turned.out, turned.x, &turns);
                }
            }
            self.lowering.side_by_side(from);
            self.merge_with(rope.step);
        }
    }

    /// Writes keys and values of each text into its cache, and attends over that.
    pub(super) fn attend_spans(&mut self, node: &Node, caches: &[CacheView]) -> Result<(), WalkError> {
        let Op::UpdateAndAttend { q: queries, k: new_keys, v, layer_id, scale, .. } = &node.op else {
            return invalid("no cache is asked for");
        };
        let out = by_token(self.own(node)?)?;
        let (heads, features) = match *self.tensor(*new_keys)?.sizes() {
            [_, heads, _, features] => (heads, features),
            _ => return invalid("keys need four axes"),
        };
        let layer = layer_id.and_then(|layer| usize::try_from(layer).ok()).unwrap_or(0);
        let scale = scale.unwrap_or(1.0);
        let mut from = 0;
        let mut layers = Vec::with_capacity(caches.len());
        for (number, (span, cache)) in self.spans.iter().zip(caches).enumerate() {
            let parts =
                [false, true].map(|values| part_of((number, layer, values), cache, [heads, features]));
            let [Some(keys), Some(values)] = parts else { return invalid("too many axes") };
            layers.push(Layer {
                parts: [keys, values],
                start: span.start,
                tokens: span.tokens,
                from,
                cache: *cache,
            });
            from += span.tokens;
        }
        let v = self.tensor(*v)?;
        if !self.token_each((*queries, *new_keys), v, &layers, (out, scale))? {
            self.turn_spans();
            let (q, k) = (self.tensor(*queries)?, self.tensor(*new_keys)?);
            self.rows_each([q, k, v], &layers, (out, scale))?;
        }
        self.set_tensor(node.results[0], out);
        Ok(())
    }

    /// One token of each text in one dispatch each, ropes and attention in it; false where that cannot be, and nothing is lowered.
    fn token_each(
        &mut self,
        (q, k): (ValueId, ValueId),
        v: View,
        layers: &[Layer],
        (out, scale): (View, f32),
    ) -> Result<bool, WalkError> {
        let both = match self.spanned.as_slice() {
            [one, other] if (one.result, other.result) == (q, k) => Some((one, other)),
            [one, other] if (other.result, one.result) == (q, k) => Some((other, one)),
            _ => None,
        };
        let Some((q_rope, k_rope)) = both else { return Ok(false) };
        if !self.planned.is_read_once(q) || !self.planned.is_read_once(k) {
            return Ok(false);
        }
        let first = self.lowering.dispatches.len();
        for layer in layers {
            let place = (layer.start, layer.from, layer.tokens);
            let own = (q_rope.turned(place), k_rope.turned(place), tokens_of(v, layer.from, layer.tokens));
            let ((Some(q), Some(k), Some(v)), Some(out)) = (own, tokens_of(out, layer.from, layer.tokens))
            else {
                return invalid("texts have more tokens than there are");
            };
            let new = Cacheable { q: Some(&q), k: &k, v: Some(v) };
            let place = (layer.start, layer.keys(), scale);
            if lower::token(&mut self.lowering, &new, layer.parts, out, place, layer.ring()).is_none() {
                self.lowering.dispatches.truncate(first);
                return Ok(false);
            }
        }
        let step = q_rope.step.min(k_rope.step);
        self.lowering.side_by_side(first);
        self.spanned.clear();
        self.merge_with(step);
        Ok(true)
    }

    /// Keys and values written text by text, then attention text by text.
    fn rows_each(
        &mut self,
        [q, k, v]: [View; 3],
        layers: &[Layer],
        (out, scale): (View, f32),
    ) -> Result<(), WalkError> {
        let of = |view: View, layer: &Layer| {
            let own = tokens_of(view, layer.from, layer.tokens);
            own.ok_or_else(|| WalkError::Invalid("texts have more tokens than there are".into()))
        };
        let on = &mut self.lowering;
        let mut rows = Vec::with_capacity(layers.len());
        for layer in layers {
            rows.push([layer.kept(on, of(k, layer)?), layer.kept(on, of(v, layer)?)]);
        }
        let first = on.dispatches.len();
        layers.iter().zip(rows).for_each(|(layer, rows)| layer.write(on, rows));
        on.side_by_side(first);
        let first = on.dispatches.len();
        let mut apart = Vec::new();
        for layer in layers {
            let (q, own) = (of(q, layer)?, of(out, layer)?);
            // A text's own rows lie together where it has one token.
            let target = if own.layout.is_row_major() { own } else { on.scratch(own.dtype, own.sizes()) };
            let [keys, values] = layer.parts;
            let place = (scale, true, layer.keys());
            let attended = lower::attend(on, target, [q, keys, values], None, place, layer.ring());
            attended.ok_or_else(|| WalkError::Invalid("queries need four axes".into()))?;
            if !own.layout.is_row_major() {
                apart.push((own, target));
            }
        }
        // Where one takes several dispatches, the later ones wait for the first.
        if on.dispatches.len() - first == layers.len() {
            on.side_by_side(first);
        }
        let first = on.dispatches.len();
        apart.into_iter().for_each(|(own, target)| lower::copy(on, own, target, false));
        on.side_by_side(first);
        Ok(())
    }
}
