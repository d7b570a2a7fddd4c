//! Scaled dot-product attention over keys and values where they lie.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::joint::Joint;
use crate::run::Run;
use crate::step::Kernel;
use pteron_ir::{Dim, Op, ValueId};
use pteron_kernels::attention::{Attention, Mask, Sizes, attention, scratch_bytes};
use pteron_kernels::copy::copy;
use pteron_kernels::path::Path;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Storage;
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::sync::Arc;

/// Queries of lanes that are taken together: so many read keys and values once.
const MOST_QUERIES: usize = 16;

pub(super) fn sdpa(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::Sdpa { q, k, v, scale, mask, causal } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let float = |value: ValueId| planner.dtype(value).filter(|dtype| dtype.is_float() && dtype.size() <= 4);
    let (_, of_k, of_v, _) = (float(q)?, float(k)?, float(v)?, float(result)?);
    if of_k != of_v
        || mask.is_some_and(|mask| float(mask).is_none() && planner.dtype(mask) != Some(DType::Bool))
    {
        return None;
    }
    let sizes = most_sizes(planner, q, k, v)?;
    let scratch = planner.reserve(node.number, scratch_bytes(&sizes, planner.lower.threads));
    let path = planner.lower.path;
    let is_given = |value: ValueId| {
        matches!(planner.storage[planner.lifetimes.root(value).0 as usize], Storage::Input(_))
    };
    // Lanes are given the same keys and values where their texts are about one sound.
    let may_share = mask.is_none() && !causal && is_given(k) && is_given(v) && !planner.lower.invariant_rows;
    let sdpa = Arc::new(Sdpa { q, k, v, scale, mask, causal, result, scratch, path });
    let joint = sdpa.clone();
    if node.is_static {
        let alone: Kernel = Box::new(move |run| sdpa.alone(run));
        return Some(match may_share {
            true => Compiled::Joint(alone, Box::new(move |lanes| joint.together(lanes))),
            false => Compiled::Compute(alone),
        });
    }
    let node = node.node.clone();
    Some(Compiled::Whole(Box::new(move |run| {
        match plain_sizes(run, q, k, v, mask).filter(|_| !(causal && mask.is_some())) {
            Some(sizes) => run.place_result(&node, result, &sizes)?,
            None => run.prepare(&node)?,
        }
        sdpa.alone(run)
    })))
}

/// A node of attention.
struct Sdpa {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    scale: f32,
    mask: Option<ValueId>,
    causal: bool,
    result: ValueId,
    scratch: usize,
    path: Path,
}

impl Sdpa {
    fn alone(&self, run: &Run<'_>) -> Result<(), NodeError> {
        let mut scratch = run.lend(self.scratch)?;
        let (q, k, v) = (run.view(self.q)?, run.view(self.k)?, run.view(self.v)?);
        let scores = [q.sizes()[0], q.sizes()[1], q.sizes()[2], k.sizes()[2]];
        let spread = match self.mask {
            Some(mask) => Some(
                run.slot(mask)
                    .layout
                    .broadcast_to(&scores)
                    .ok_or_else(|| invalid("a mask that does not fit"))?,
            ),
            None => None,
        };
        let mask = match (self.mask, &spread) {
            (Some(mask), Some(layout)) => {
                let view = run.view(mask)?;
                // SAFETY: the mask's own elements, some of them more than once.
                Mask::Tensor(unsafe {
                    View::from_raw(view.data(), view.dtype(), layout.sizes(), layout.strides())
                })
            }
            _ if self.causal => Mask::Causal { window: None },
            _ => Mask::None,
        };
        let looked_at = Attention { q, k, v, scale: self.scale, mask, ring: None, pages: None };
        attention(run.pool, self.path, &mut run.target(self.result)?, &looked_at, &mut scratch);
        Ok(())
    }

    /// Queries of several lanes to keys and values that are the same memory are queries of one, so that these are read once.
    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        if !self.see_the_same(lanes)? {
            return lanes.runs().try_for_each(|run| self.alone(run));
        }
        let queries = |run: &Run<'_>| run.slot(self.q).layout.sizes()[2];
        lanes.by_rows(MOST_QUERIES, queries, |part, batch| {
            if let Some(run) = part.only() {
                return self.alone(run);
            }
            let first = part.first();
            let (q, k, v) = (first.view(self.q)?, first.view(self.k)?, first.view(self.v)?);
            let (heads, features, values) = (q.sizes()[1], q.sizes()[3], v.sizes()[3]);
            let sizes = Sizes {
                batch: 1,
                heads,
                shared: k.sizes()[1],
                queries: part.rows,
                keys: k.sizes()[2],
                features,
                values,
            };
            let of_result = first.dtype(self.result)?;
            let (pool, rows) = (first.pool, heads * part.rows);
            let bytes = [
                rows * features * q.dtype().size(),
                rows * values * of_result.size(),
                scratch_bytes(&sizes, pool.threads()),
            ];
            let (_, _, mut pieces) = batch.begin(bytes);
            let [of_q, of_out, scratch] = bytes.map(|bytes| pieces.next(bytes));
            let (of_q, of_out) = (of_q.as_mut_ptr(), of_out.as_mut_ptr());
            // Rows of a lane among those of all: each head has them behind each other.
            let place = |at: usize, count: usize, width: usize| {
                let strides = [rows * width, part.rows * width, width, 1].map(|stride| stride as isize);
                ([1, heads, count, width], strides, at * width)
            };
            let mut at = 0;
            for run in part.runs() {
                let own = run.view(self.q)?;
                let (sizes, strides, offset) = place(at, own.sizes()[2], features);
                // SAFETY: rows of the first piece, which has as many as all lanes together.
                let mut rows = unsafe {
                    ViewMut::from_raw(of_q.add(offset * q.dtype().size()), q.dtype(), &sizes, &strides)
                };
                copy(pool, &mut rows, &own);
                at += own.sizes()[2];
            }
            let (all, strides, _) = place(0, part.rows, features);
            // SAFETY: all rows of the first piece, which nobody writes any more.
            let q = unsafe { View::from_raw(of_q, q.dtype(), &all, &strides) };
            let (all, strides, _) = place(0, part.rows, values);
            // SAFETY: all rows of the second piece.
            let mut out = unsafe { ViewMut::from_raw(of_out, of_result, &all, &strides) };
            let looked_at =
                Attention { q, k, v, scale: self.scale, mask: Mask::None, ring: None, pages: None };
            attention(pool, self.path, &mut out, &looked_at, scratch);
            let mut at = 0;
            for run in part.runs() {
                let mut target = run.target(self.result)?;
                let (sizes, strides, offset) = place(at, target.sizes()[2], values);
                // SAFETY: rows of the second piece, which nobody writes any more.
                let rows = unsafe {
                    View::from_raw(of_out.add(offset * of_result.size()), of_result, &sizes, &strides)
                };
                copy(pool, &mut target, &rows);
                at += sizes[2];
            }
            Ok(())
        })
    }

    /// Whether all lanes look at one memory, from queries of one shape but for their number.
    fn see_the_same(&self, lanes: &Joint<'_, '_>) -> Result<bool, NodeError> {
        let mut first = None;
        for run in lanes.runs() {
            let (q, k, v) = (run.view(self.q)?, run.view(self.k)?, run.view(self.v)?);
            let (&[batch, heads, _, features], [1, ..], [1, ..]) = (q.sizes(), k.sizes(), v.sizes()) else {
                return Ok(false);
            };
            let memory = [k, v].map(|view| (view.data(), view.sizes(), view.strides()));
            let own = (batch, heads, features, q.dtype(), memory);
            if batch != 1 || *first.get_or_insert(own) != own {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The sizes of a result for which nothing else need be looked at. Keys and values grow with every token, and
/// the rule, which also answers for all other cases, would allocate for each.
fn plain_sizes(
    run: &Run<'_>,
    q: ValueId,
    k: ValueId,
    v: ValueId,
    mask: Option<ValueId>,
) -> Option<[usize; 4]> {
    let sizes = |value| <[usize; 4]>::try_from(run.slot(value).layout.sizes()).ok();
    let ([batch, heads, queries, features], keys, values) = (sizes(q)?, sizes(k)?, sizes(v)?);
    let shared = keys[1];
    let fits = keys == [batch, shared, keys[2], features]
        && values[..3] == keys[..3]
        && shared > 0
        && heads.is_multiple_of(shared);
    let spread = |mask| run.slot(mask).layout.broadcast_to(&[batch, heads, queries, keys[2]]).is_some();
    (fits && mask.is_none_or(spread)).then_some([batch, heads, queries, values[3]])
}

/// The largest sizes that the tensors can have.
pub(super) fn most_sizes(planner: &Planner<'_>, q: ValueId, k: ValueId, v: ValueId) -> Option<Sizes> {
    let most = |dim: &Dim| usize::try_from(planner.types.symbols.upper(dim)?).ok();
    let dims = |value: ValueId| match planner.types.tensor(value)?.shape.as_slice() {
        [a, b, c, d] => Some([most(a)?, most(b)?, most(c)?, most(d)?]),
        _ => None,
    };
    let ([batch, heads, queries, features], [_, shared, keys, _], [.., values]) =
        (dims(q)?, dims(k)?, dims(v)?);
    Some(Sizes { batch, heads, shared, queries, keys, features, values })
}
