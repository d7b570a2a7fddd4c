//! Attention, caches that it writes, and rotary embeddings.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Op, ValueId};

use super::{Call, Given, Held, Lifter, Table, one};
use crate::draft::{Int, Part, Step, problem};

pub(super) const TABLE: Table = &[
    ("sdpa_with_kv_cache.default", |l, call| {
        let [q, k, v] = [l.tensor(call, 0)?, l.tensor(call, 1)?, l.tensor(call, 2)?];
        let start = l.int(call, 5)?;
        let keys = l.cached(call, 3, k, start)?;
        let values = l.cached(call, 4, v, start)?;
        l.attend(call, [q, keys, values], start, [7, 9, 10])
    }),
    ("update_cache.default", |l, call| {
        let (new, start) = (l.tensor(call, 0)?, l.int(call, 2)?);
        one(l.cached(call, 1, new, start)?)
    }),
    ("llama.custom_sdpa.default", |l, call| {
        let sides = [l.tensor(call, 0)?, l.tensor(call, 1)?, l.tensor(call, 2)?];
        let start = l.int(call, 3)?;
        l.attend(call, sides, start, [4, 6, 7])
    }),
    ("et_vk.sdpa.default", |l, call| {
        let [q, k, v] = [l.tensor(call, 0)?, l.tensor(call, 1)?, l.tensor(call, 2)?];
        let mask = l.maybe_tensor(call, 3)?;
        let scale = l.scale(call, 4, q)?;
        one(l.emit(Op::Sdpa { q, k, v, scale, mask, causal: false })?)
    }),
    ("et_vk.apply_rotary_emb.default", |l, call| {
        let (cos, sin) = (l.for_heads(call, 2)?, l.for_heads(call, 3)?);
        let (q, k) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
        Ok(Given::Tensors(vec![l.turned_pairs(q, cos, sin)?, l.turned_pairs(k, cos, sin)?]))
    }),
    ("et_vk.apply_rotary_emb_hf.default", |l, call| {
        let (q, k, start) = (l.tensor(call, 0)?, l.tensor(call, 1)?, l.int(call, 4)?);
        let count = l.size(q, POSITIONS)?;
        let stop = l.plus(start, count)?;
        let part = |l: &mut Lifter<'_>, at| -> Step<ValueId> {
            let x = l.tensor(call, at)?;
            let x = l.cut(x, 0, start, stop, 1)?;
            l.emit(Op::ExpandDims { x, axis: 1 })
        };
        let (cos, sin) = (part(l, 2)?, part(l, 3)?);
        Ok(Given::Tensors(vec![l.turned_halves(q, cos, sin)?, l.turned_halves(k, cos, sin)?]))
    }),
    ("et_vk.apply_rotary_emb_interleaved.default", |l, call| {
        let (x, angles) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
        l.of_rank(x, 3)?;
        let half = l.half(x)?;
        let shape = vec![l.size(x, 1)?, half, IntArg::Literal(2)];
        let angles = l.emit(Op::Reshape { x: angles, shape })?;
        let part = |l: &mut Lifter<'_>, index| {
            l.emit(Op::Take { x: angles, index: IndexArg::Literal(index), axis: 2 })
        };
        let (cos, sin) = (part(l, 0)?, part(l, 1)?);
        one(l.turned_pairs(x, cos, sin)?)
    }),
];

/// Positions of queries and caches `[batch, positions, heads, features]`.
const POSITIONS: usize = 1;
const HEADS_FIRST: [i32; 4] = [0, 2, 1, 3];

impl Lifter<'_> {
    /// One behind the last position of tokens that begin at `start`.
    fn end(&mut self, tokens: ValueId, start: Int) -> Step<Int> {
        let count = self.size(tokens, POSITIONS)?;
        self.plus(start, count)
    }

    /// A cache with what a call adds to it, which is what it holds from then on.
    fn cached(&mut self, call: &Call<'_>, at: usize, new: ValueId, start: Int) -> Step<ValueId> {
        let (id, _) = self.argument(call, at)?;
        let cache = self.tensor(call, at)?;
        self.of_rank(cache, 4)?;
        self.of_rank(new, 4)?;
        // The operator takes no other sizes, and a node would repeat what has one.
        let (old, given) = (&self.ty(Part::Main, cache)?.shape, &self.ty(Part::Main, new)?.shape);
        if [0, 2, 3].iter().any(|&axis: &usize| old[axis] != given[axis]) {
            return problem("a cache of other sizes than what is written to it");
        }
        let dtype = self.dtype(cache)?;
        let new = self.cast(new, dtype)?;
        let (axis, stop) = (IntArg::Literal(POSITIONS as i64), self.end(new, start)?);
        let cache = self.emit(Op::SliceUpdate { dst: cache, update: new, axis, start, stop, step: 1 })?;
        self.hold(id, Held::Tensor(cache))?;
        Ok(cache)
    }

    fn scale(&mut self, call: &Call<'_>, at: usize, q: ValueId) -> Step<f32> {
        if let Some(scale) = self.maybe_float(call, at)? {
            return Ok(scale as f32);
        }
        let Some(last) = self.rank(q)?.checked_sub(1) else { return problem("queries without dims") };
        match self.size(q, last)? {
            IntArg::Literal(features) if features > 0 => Ok((features as f32).sqrt().recip()),
            _ => problem("queries of an unknown number of features"),
        }
    }

    /// What queries find in caches; mask, whether it is causal, and scale are arguments of the call.
    fn attend(
        &mut self,
        call: &Call<'_>,
        [q, k, v]: [ValueId; 3],
        start: Int,
        [mask, causal, scale]: [usize; 3],
    ) -> Step<Given> {
        let scale = self.scale(call, scale, q)?;
        let (mask, causal) = (self.maybe_tensor(call, mask)?, self.flag(call, causal)?);
        if mask.is_some() && causal {
            return problem("attention with a mask that is causal besides");
        }
        for side in [q, k, v] {
            self.of_rank(side, 4)?;
        }
        let stop = match mask {
            None => Some(self.end(q, start)?),
            Some(_) => None,
        };
        let seen = |l: &mut Self, x: ValueId| -> Step<ValueId> {
            let x = match stop {
                Some(stop) => l.cut(x, POSITIONS, IntArg::Literal(0), stop, 1)?,
                None => x,
            };
            l.emit(Op::Transpose { x, perm: HEADS_FIRST.to_vec() })
        };
        let (k, v) = (seen(self, k)?, seen(self, v)?);
        let q = self.emit(Op::Transpose { x: q, perm: HEADS_FIRST.to_vec() })?;
        let x = self.emit(Op::Sdpa { q, k, v, scale, mask, causal })?;
        one(self.emit(Op::Transpose { x, perm: HEADS_FIRST.to_vec() })?)
    }

    /// Cosines or sines `[positions, features]` against `[batch, positions, heads, features]`.
    fn for_heads(&mut self, call: &Call<'_>, at: usize) -> Step<ValueId> {
        let x = self.tensor(call, at)?;
        self.of_rank(x, 2)?;
        self.emit(Op::ExpandDims { x, axis: 1 })
    }

    /// Half of the last axis.
    fn half(&mut self, x: ValueId) -> Step<Int> {
        let Some(last) = self.rank(x)?.checked_sub(1) else {
            return problem("features of a tensor without dims");
        };
        let size = self.size(x, last)?;
        self.divided(size, 2)
    }

    /// Each pair of features turned by its angle.
    fn turned_pairs(&mut self, x: ValueId, cos: ValueId, sin: ValueId) -> Step<ValueId> {
        let whole = self.sizes(x)?;
        let half = self.half(x)?;
        let last = whole.len() - 1;
        let mut shape = whole[..last].to_vec();
        shape.extend([half, IntArg::Literal(2)]);
        let pairs = self.emit(Op::Reshape { x, shape })?;
        let axis = whole.len() as i32;
        let part = |l: &mut Self, index| l.emit(Op::Take { x: pairs, index: IndexArg::Literal(index), axis });
        let (first, second) = (part(self, 0)?, part(self, 1)?);
        let (a, b) =
            (self.emit(Op::Multiply { a: first, b: cos })?, self.emit(Op::Multiply { a: second, b: sin })?);
        let real = self.emit(Op::Subtract { a, b })?;
        let (a, b) =
            (self.emit(Op::Multiply { a: first, b: sin })?, self.emit(Op::Multiply { a: second, b: cos })?);
        let imaginary = self.emit(Op::Add { a, b })?;
        let both = self.emit(Op::Stack { tensors: vec![real, imaginary], axis })?;
        self.emit(Op::Reshape { x: both, shape: whole })
    }

    /// Features of the first half turned with those of the second; those beyond the angles stay.
    fn turned_halves(&mut self, x: ValueId, cos: ValueId, sin: ValueId) -> Step<ValueId> {
        let last = self.rank(x)?.saturating_sub(1);
        let (size, turned) = (self.size(x, last)?, self.size(cos, 2)?);
        let (near, far) = (IntArg::Literal(0), IntArg::Literal(i64::MAX));
        let (front, rest) = match size == turned {
            true => (x, None),
            false => (self.cut(x, last, near, turned, 1)?, Some(self.cut(x, last, turned, far, 1)?)),
        };
        let half = self.half(front)?;
        let (first, second) = (self.cut(front, last, near, half, 1)?, self.cut(front, last, half, far, 1)?);
        let minus = self.emit(Op::Neg { x: second })?;
        let across = self.emit(Op::Concatenate { tensors: vec![minus, first], axis: last as i32 })?;
        let (a, b) =
            (self.emit(Op::Multiply { a: front, b: cos })?, self.emit(Op::Multiply { a: across, b: sin })?);
        let value = self.emit(Op::Add { a, b })?;
        match rest {
            Some(rest) => self.emit(Op::Concatenate { tensors: vec![value, rest], axis: last as i32 }),
            None => Ok(value),
        }
    }
}
