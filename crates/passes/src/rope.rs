//! Rotary position embedding in the form of Hugging Face: `x * cos + rotate_half(x) * sin`, where the angles are
//! positions times inverse periods, twice over.
//!
//! The op takes the position of the first row and counts on from there, so that a pattern is taken only where the
//! positions are a range by construction: `arange(n)`, or `arange(n) + offset`. Positions that a caller passes in as a
//! tensor may be any, and are left.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights, numbers};
use pteron_ir::op::{FloatArg, IntArg, OffsetArg};
use pteron_ir::{Graph, Node, Op, Ssa, ValueId};
use pteron_tensor::{DType, HostTensor};

/// The pass.
pub const PASS: Pass = Pass { name: "rope", doc: "makes rotate-half position embedding one op", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

/// What positions begin with.
enum Start {
    Zero,
    Int(ValueId),
    Tensor(ValueId),
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let Op::Add { a, b } = node.op else { return None };
    let (x, cos, sin) = rotated(site, a, b).or_else(|| rotated(site, b, a))?;
    let features = site.features(x)?;
    let Some(angles) = angles(site, x, cos, sin) else {
        return site.left(
            PASS.name,
            node,
            "its factors are not the cosine and sine of the same angles, one row a position",
        );
    };
    let Some((positions, inverse)) = positions_and_periods(site, angles) else {
        return site.left(
            PASS.name,
            node,
            "its angles are not positions times stored inverse periods, twice over",
        );
    };
    let Some(start) = start(site, positions) else {
        return site.left(PASS.name, node, "its positions are not a range by construction");
    };
    let name = site.constant_name(inverse)?.to_owned();
    let Some(periods) = site.data(inverse).and_then(periods) else {
        return site.left(PASS.name, node, "its inverse periods are not f32, or one of them is 0");
    };
    if i64::try_from(periods.len()).ok() != Some(features / 2) {
        return site.left(PASS.name, node, "it has another number of periods than pairs of features");
    }
    let periods = site.add_constant(&name, "periods", periods);
    let offset = match start {
        Start::Int(value) => OffsetArg::Value(value),
        Start::Tensor(value) => OffsetArg::Tensor(value),
        Start::Zero => OffsetArg::Tensor(site.add_constant(
            "_rope",
            "zero",
            HostTensor::from_slice(vec![], &[0i32]).ok()?,
        )),
    };
    let made = site.append(Op::Rope {
        x,
        dims: i32::try_from(features).ok()?,
        offset,
        freqs: Some(periods),
        traditional: false,
        base: 10000.0,
        scale: 1.0,
    })?;
    site.took(PASS.name, node, 7);
    Some(vec![made])
}

/// `x`, `cos` and `sin` of `x * cos + rotate_half(x) * sin`.
fn rotated(site: &Site<'_>, straight: ValueId, turned: ValueId) -> Option<(ValueId, ValueId, ValueId)> {
    let (half, sin) = site
        .factors(turned)
        .into_iter()
        .flatten()
        .find_map(|(half, sin)| Some((turned_halves(site, half)?, sin)))?;
    let (x, cos) = site.factors(straight).into_iter().flatten().find(|(x, _)| *x == half)?;
    Some((x, cos, sin))
}

/// `x` of `concatenate([-x[.., h..], x[.., ..h]])`, where h is half of its features.
fn turned_halves(site: &Site<'_>, value: ValueId) -> Option<ValueId> {
    let Op::Concatenate { tensors, axis } = site.definition(value)? else { return None };
    let &[negative, low] = tensors.as_slice() else { return None };
    let Op::Neg { x: high } = site.definition(negative)? else { return None };
    let (x, rank) = (sliced(site, low)?, site.rank(value)?);
    let half = site.features(x.0)? / 2;
    let last = axis_of(i64::from(*axis), rank)? + 1 == rank;
    let above = sliced(site, *high)?;
    let whole = site.features(x.0)? == 2 * half;
    (last && whole && x == (x.0, 0, half) && above.0 == x.0 && above.1 == half && above.2 >= 2 * half)
        .then_some(x.0)
}

/// A slice of the last axis: of what, from where to where.
fn sliced(site: &Site<'_>, value: ValueId) -> Option<(ValueId, i64, i64)> {
    match site.definition(value)? {
        Op::Slice {
            x,
            axis: IntArg::Literal(axis),
            start: IntArg::Literal(start),
            stop: IntArg::Literal(stop),
            step: 1,
        } => {
            let rank = site.rank(*x)?;
            (axis_of(*axis, rank)? + 1 == rank && *start >= 0 && *stop >= 0).then_some((*x, *start, *stop))
        }
        _ => None,
    }
}

/// The angles of a cosine and a sine that broadcast over `x`: one row a position.
fn angles(site: &Site<'_>, x: ValueId, cos: ValueId, sin: ValueId) -> Option<ValueId> {
    let of = |value: ValueId| {
        let value = site.without_unit_axes(value);
        let value = site.without_unit_axes(site.without_cast(value));
        match site.definition(value)? {
            Op::Cos { x } | Op::Sin { x } => {
                Some((*x, matches!(site.definition(value), Some(Op::Cos { .. }))))
            }
            _ => None,
        }
    };
    let ((of_cos, true), (of_sin, false)) = (of(cos)?, of(sin)?) else { return None };
    let shape = &site.tensor(x)?.shape;
    // Rows along the second last axis of `x`, nothing before it.
    let rows = |value: ValueId| {
        let Some(ty) = site.tensor(value) else { return false };
        let (rank, lead) = (ty.shape.len(), ty.shape.len().saturating_sub(2));
        rank >= 2
            && rank <= shape.len()
            && ty.shape[..lead].iter().all(|dim| dim.as_known() == Some(1))
            && site.equal_dims(&ty.shape[lead..], &shape[shape.len() - 2..])
    };
    (of_cos == of_sin && rows(cos) && rows(sin)).then_some(of_cos)
}

/// Positions and inverse periods of `concatenate([f, f])`, where `f` is their product.
fn positions_and_periods(site: &Site<'_>, angles: ValueId) -> Option<(ValueId, ValueId)> {
    let Op::Concatenate { tensors, axis } = site.definition(angles)? else { return None };
    let &[first, second] = tensors.as_slice() else { return None };
    let rank = site.rank(angles)?;
    if first != second || axis_of(i64::from(*axis), rank)? + 1 != rank {
        return None;
    }
    let is_stored = |value: ValueId| site.data(value).is_some();
    let product = site.factors(first).into_iter().flatten().find_map(|(positions, inverse)| {
        let inverse = site.without_unit_axes(inverse);
        (is_stored(inverse) && site.features(inverse) == site.features(first)).then_some((positions, inverse))
    });
    product.or_else(|| outer_product(site, first))
}

/// The same as a product of matrices, `inverse[h, 1] @ positions[1, n]`, turned.
fn outer_product(site: &Site<'_>, value: ValueId) -> Option<(ValueId, ValueId)> {
    let Op::Transpose { x, perm } = site.definition(value)? else { return None };
    let rank = perm.len();
    let mut swapped: Vec<usize> = (0..rank).collect();
    swapped.swap(rank.checked_sub(2)?, rank - 1);
    let perm = perm.iter().map(|&axis| axis_of(axis.into(), rank)).collect::<Option<Vec<usize>>>()?;
    let Some(&Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, .. }) = site.definition(*x) else {
        return None;
    };
    // A sum over one product.
    let inner = site.features(mat1)? == 1;
    let inverse = site.without_unit_axes(through_broadcast(site, mat1));
    let one_row = site
        .tensor(inverse)?
        .known_shape()
        .is_some_and(|shape| shape.iter().filter(|size| **size != 1).count() <= 1);
    (perm == swapped && inner && one_row && site.data(inverse).is_some()).then_some((mat2, inverse))
}

/// What is repeated over axes that had size 1 and still have.
fn through_broadcast(site: &Site<'_>, value: ValueId) -> ValueId {
    match site.definition(value) {
        Some(Op::BroadcastTo { x, .. }) if site.same_shape(*x, value) => *x,
        _ => value,
    }
}

/// What a range of positions begins with, if it is one.
fn start(site: &Site<'_>, positions: ValueId) -> Option<Start> {
    let mut value = positions;
    // Small integers are exact in f32.
    for _ in 0..8 {
        value = site.without_unit_axes(site.without_cast(value));
    }
    let range = |value: ValueId| is_range_from_zero(site.definition(site.without_cast(value)));
    match site.definition(value)? {
        op if is_range_from_zero(Some(op)) => Some(Start::Zero),
        Op::ARange { start: IntArg::Value(first), step: IntArg::Literal(1), .. } => Some(Start::Int(*first)),
        Op::Add { a, b } => {
            let offset = if range(*a) {
                *b
            } else if range(*b) {
                *a
            } else {
                return None;
            };
            offset_of(site, offset)
        }
        _ => None,
    }
}

fn is_range_from_zero(op: Option<&Op<Ssa>>) -> bool {
    matches!(op, Some(Op::ARange { start: IntArg::Literal(0), step: IntArg::Literal(1), .. }))
}

/// A single integer that is added to all positions.
fn offset_of(site: &Site<'_>, value: ValueId) -> Option<Start> {
    let value = site.without_unit_axes(site.without_cast(value));
    if let Some(Op::Full { v: FloatArg::Value(number), .. }) = site.definition(value) {
        return Some(Start::Int(*number));
    }
    let ty = site.tensor(value)?;
    let single = ty.shape.iter().all(|dim| dim.as_known() == Some(1));
    (single && matches!(ty.dtype, DType::I32 | DType::I64)).then_some(Start::Tensor(value))
}

/// Periods, which the op takes where models store their inverses.
fn periods(inverse: &HostTensor) -> Option<HostTensor> {
    if inverse.dtype() != DType::F32 {
        return None;
    }
    let values = numbers::floats(inverse)?;
    if values.contains(&0.0) {
        return None;
    }
    let periods: Vec<f64> = values.iter().map(|value| f64::from(1.0 / *value as f32)).collect();
    numbers::tensor(DType::F32, &[periods.len()], &periods)
}
