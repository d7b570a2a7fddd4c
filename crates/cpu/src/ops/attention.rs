//! Scaled dot-product attention over keys and values where they lie.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::run::Run;
use crate::step::Kernel;
use pteron_ir::{Dim, Op, ValueId};
use pteron_kernels::attention::{Attention, Mask, Sizes, attention, scratch_bytes};
use pteron_kernels::view::View;
use pteron_tensor::DType;

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
    let kernel: Kernel = Box::new(move |run| {
        let mut scratch = run.lend(scratch)?;
        let (q, k, v) = (run.view(q)?, run.view(k)?, run.view(v)?);
        let scores = [q.sizes()[0], q.sizes()[1], q.sizes()[2], k.sizes()[2]];
        let spread = match mask {
            Some(mask) => Some(
                run.slot(mask)
                    .layout
                    .broadcast_to(&scores)
                    .ok_or_else(|| invalid("a mask that does not fit"))?,
            ),
            None => None,
        };
        let mask = match (mask, &spread) {
            (Some(mask), Some(layout)) => {
                let view = run.view(mask)?;
                // SAFETY: the mask's own elements, some of them more than once.
                Mask::Tensor(unsafe {
                    View::from_raw(view.data(), view.dtype(), layout.sizes(), layout.strides())
                })
            }
            _ if causal => Mask::Causal { window: None },
            _ => Mask::None,
        };
        attention(
            run.pool,
            path,
            &mut run.target(result)?,
            &Attention { q, k, v, scale, mask, ring: None, pages: None },
            &mut scratch,
        );
        Ok(())
    });
    if node.is_static {
        return Some(Compiled::Compute(kernel));
    }
    let node = node.node.clone();
    Some(Compiled::Whole(Box::new(move |run| {
        match plain_sizes(run, q, k, v, mask).filter(|_| !(causal && mask.is_some())) {
            Some(sizes) => run.place_result(&node, result, &sizes)?,
            None => run.prepare(&node)?,
        }
        kernel(run)
    })))
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
