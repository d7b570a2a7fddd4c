//! Attention that models spell out, `softmax(q @ kᵀ * scale + mask) @ v`, as one op; and heads of keys and values
//! that were repeated for it, which the op shares by itself.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::{Graph, Node, Op, ValueId};
use pteron_tensor::DType;

/// The pass.
pub const PASS: Pass =
    Pass { name: "attention", doc: "makes spelled-out attention one op, without repeated heads", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let made = match node.op {
        Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, .. } => spelled_out(site, node, mat1, mat2),
        Op::Sdpa { q, k, v, scale, mask, causal } => {
            let (k, v) = shared_heads(site, k, v)?;
            let made = site.append(Op::Sdpa { q, k, v, scale, mask, causal })?;
            site.took("repeated heads", node, 7);
            Some(made)
        }
        _ => None,
    };
    made.map(|value| vec![value])
}

/// Keys as a transpose of a value; an earlier pass may have made one of the two that models write.
struct Keys {
    of: ValueId,
    perm: Vec<usize>,
}

/// The parts of scores before the softmax.
struct Scores {
    q: ValueId,
    k: Keys,
    scale: f64,
    mask: Option<ValueId>,
    nodes: usize,
}

fn spelled_out(site: &mut Site<'_>, node: &Node, weights: ValueId, v: ValueId) -> Option<ValueId> {
    let &Op::Softmax { x, axis, .. } = site.definition(site.without_cast(weights))? else { return None };
    let rank = site.rank(x)?;
    if rank != 4 || axis_of(i64::from(axis), rank)? != rank - 1 {
        return None;
    }
    let Some(scores) = scores(site, x) else {
        return site.left(PASS.name, node, "what the softmax is of is no product of queries and keys");
    };
    let dtype = site.dtype(scores.q)?;
    if site.dtype(*node.results.first()?) != Some(dtype)
        || site.dtype(scores.k.of) != Some(dtype)
        || site.dtype(v) != Some(dtype)
    {
        return site.left(PASS.name, node, "queries, keys, values and the result are not of one dtype");
    }
    if let Some(mask) = scores.mask
        && !matches!(site.dtype(mask), Some(mask) if mask == dtype)
    {
        return site.left(PASS.name, node, "its mask is of another dtype");
    }
    let Keys { of, perm } = scores.k;
    let k = match perm.iter().enumerate().all(|(at, &axis)| at == axis) {
        true => of,
        false => {
            site.append(Op::Transpose { x: of, perm: perm.iter().map(|&axis| axis as i32).collect() })?
        }
    };
    let (k, v) = shared_heads(site, k, v).unwrap_or((k, v));
    let op = Op::Sdpa { q: scores.q, k, v, scale: scores.scale as f32, mask: scores.mask, causal: false };
    let Some(made) = site.append(op) else {
        return site.left(PASS.name, node, "its shapes are not those of attention");
    };
    site.took(PASS.name, node, scores.nodes + 2);
    Some(made)
}

/// Queries, keys, scale and mask, from the outside in: mask, scale, product, each at most once but the scale.
fn scores(site: &Site<'_>, value: ValueId) -> Option<Scores> {
    let mut value = site.without_cast(value);
    let (mut mask, mut scale, mut nodes) = (None, 1.0, 1);
    for _ in 0..6 {
        match *site.definition(value)? {
            Op::Addmm { mat1, mat2, bias: None, alpha, .. } => {
                let (q, by_q) = scaled(site, mat1);
                let (k, by_k) = keys(site, mat2)?;
                return Some(Scores { q, k, scale: scale * f64::from(alpha) * by_q * by_k, mask, nodes });
            }
            // A scale outside the mask would scale it too.
            Op::Multiply { .. } | Op::Divide { .. } if mask.is_none() || scale == 1.0 => {
                let (inner, by) = scaled(site, value);
                if inner == value {
                    return None;
                }
                (value, scale) = (inner, scale * by);
            }
            Op::Add { a, b } if mask.is_none() && scale == 1.0 => {
                let is_score = |value: ValueId| {
                    let inner = scaled(site, value).0;
                    matches!(site.definition(inner), Some(Op::Addmm { .. }))
                };
                (value, mask) = if is_score(a) { (a, Some(b)) } else { (b, Some(a)) };
            }
            Op::AsType { x, scalar_type: DType::F32 } => value = x,
            _ => return None,
        }
        nodes += 1;
    }
    None
}

/// A value without the number that it is multiplied with or divided by, and that number.
fn scaled(site: &Site<'_>, value: ValueId) -> (ValueId, f64) {
    let quotient = match site.definition(value) {
        Some(Op::Divide { a, b }) => Some((*a, *b)),
        _ => None,
    };
    let product = site.factors(value).into_iter().flatten();
    let product = product.filter_map(|(x, number)| Some((x, site.number(number)?)));
    let quotient = quotient.and_then(|(x, number)| Some((x, 1.0 / site.number(number)?)));
    // A number of many elements may have widened what it met.
    product.chain(quotient).find(|(x, _)| site.same_type(*x, value)).unwrap_or((value, 1.0))
}

/// Keys that were turned for the product: what they are a transpose of, and which one once they are turned back.
/// Numbers that they were multiplied with are taken out.
fn keys(site: &Site<'_>, value: ValueId) -> Option<(Keys, f64)> {
    let (value, outer) = scaled(site, value);
    let Op::Transpose { x, perm } = site.definition(value)? else { return None };
    let mut perm = perm.iter().map(|&axis| axis_of(i64::from(axis), 4)).collect::<Option<Vec<usize>>>()?;
    if perm.len() != 4 {
        return None;
    }
    perm.swap(2, 3);
    let (of, inner) = scaled(site, *x);
    Some((Keys { of, perm }, outer * inner))
}

/// Keys and values before each head was repeated for several heads of queries.
fn shared_heads(site: &Site<'_>, k: ValueId, v: ValueId) -> Option<(ValueId, ValueId)> {
    let ((k, times), (v, same)) = (repeated(site, k)?, repeated(site, v)?);
    (times == same).then_some((k, v))
}

/// What a tensor of `[batch, heads * times, rows, features]` was before each head was repeated: `reshape(broadcast_to(
/// expand_dims(x, 2)))`.
fn repeated(site: &Site<'_>, value: ValueId) -> Option<(ValueId, i64)> {
    let value = match site.definition(value)? {
        Op::Contiguous { x } => *x,
        _ => value,
    };
    let Op::Reshape { x: wide, .. } = site.definition(value)? else { return None };
    let Op::BroadcastTo { x: narrow, .. } = site.definition(*wide)? else { return None };
    let x = match site.definition(*narrow)? {
        Op::ExpandDims { x, axis } if axis_of(i64::from(*axis), 5)? == 2 => *x,
        Op::Reshape { x, .. } => *x,
        _ => return None,
    };
    let (from, middle, wide, to) =
        (site.tensor(x)?, site.tensor(*narrow)?, site.tensor(*wide)?, site.tensor(value)?);
    let [batch, heads, rows, features] = from.shape.as_slice() else { return None };
    let times = wide.shape.get(2)?.clone();
    let one = pteron_ir::Dim::known(1);
    let with = |times: &pteron_ir::Dim| {
        [batch.clone(), heads.clone(), times.clone(), rows.clone(), features.clone()]
    };
    let all = heads.mul(&times)?;
    let fits = site.equal_dims(&middle.shape, &with(&one))
        && site.equal_dims(&wide.shape, &with(&times))
        && site.equal_dims(&to.shape, &[batch.clone(), all, rows.clone(), features.clone()]);
    fits.then_some((x, times.as_known()?))
}
