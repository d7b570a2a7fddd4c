//! RMS normalisation, as models write it: `x * rsqrt(mean(x²) + eps)`, with or without a conversion to f32 around it,
//! then times a weight. Llama and Qwen convert back before the weight, Gemma multiplies by `1 + weight` in f32 and
//! converts back afterwards.
//!
//! The norm is taken first without its weight; the product with the weight, or the conversion back, is then taken into
//! it. The op computes in f32 and rounds once, where the cluster may have rounded twice.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::{Graph, Node, Op, ValueId};
use pteron_tensor::{DType, promote};

/// The pass.
pub const PASS: Pass = Pass { name: "rms-norm", doc: "makes clusters of RMS normalisation one op", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let made = match node.op {
        Op::Multiply { a, b } => with_weight(site, node, a, b)
            .or_else(|| with_weight(site, node, b, a))
            .or_else(|| core(site, node, a, b))
            .or_else(|| core(site, node, b, a)),
        // `x / sqrt(mean(x²) + eps)`
        Op::Divide { a, b } => {
            let &Op::Sqrt { x: sum } = site.definition(b)? else { return None };
            norm(site, node, a, sum)
        }
        Op::AsType { x, scalar_type } => converted_back(site, node, x, scalar_type),
        _ => None,
    };
    made.map(|value| vec![value])
}

/// `x * rsqrt(sum)`, or the reciprocal or power that is the same.
fn core(site: &mut Site<'_>, node: &Node, x: ValueId, scale: ValueId) -> Option<ValueId> {
    let sum = match *site.definition(scale)? {
        Op::Rsqrt { x } => x,
        Op::Reciprocal { x } => match *site.definition(x)? {
            Op::Sqrt { x } => x,
            _ => return None,
        },
        Op::Power { a, b } if site.number(b) == Some(-0.5) => a,
        _ => return None,
    };
    norm(site, node, x, sum)
}

/// The norm of `x`, where `sum` is its mean square plus a number.
fn norm(site: &mut Site<'_>, node: &Node, x: ValueId, sum: ValueId) -> Option<ValueId> {
    let (mean, eps) = site.terms(sum).into_iter().flatten().find_map(|(mean, eps)| {
        matches!(site.definition(mean), Some(Op::Mean { .. })).then_some((mean, eps))
    })?;
    let Some(&Op::Mean { x: square, ref axes, keepdims }) = site.definition(mean) else { return None };
    let axes = axes.clone().unwrap_or_default();
    if !is_square(site, square, x) {
        return site.left(PASS.name, node, "the mean is not of the square of what is scaled");
    }
    let rank = site.rank(x)?;
    let last = matches!(axes.as_slice(), [axis] if axis_of(i64::from(*axis), rank) == rank.checked_sub(1));
    if !last || !keepdims {
        return site.left(PASS.name, node, "the mean is not over the last axis, kept");
    }
    let Some(eps) = site.number(eps) else {
        return site.left(PASS.name, node, "what is added to the mean is no known number");
    };
    let made = site.append(Op::RMSNorm { x, weight: None, eps: eps as f32 })?;
    site.took(PASS.name, node, 5);
    Some(made)
}

fn is_square(site: &Site<'_>, value: ValueId, of: ValueId) -> bool {
    match site.definition(value) {
        Some(Op::Square { x }) => *x == of,
        Some(Op::Multiply { a, b }) => *a == of && *b == of,
        Some(Op::Power { a, b }) => *a == of && site.number(*b) == Some(2.0),
        _ => false,
    }
}

/// A norm without a weight that nobody else uses: what it is of, and its number.
fn plain_norm(site: &Site<'_>, value: ValueId) -> Option<(ValueId, f32)> {
    match site.definition(value)? {
        Op::RMSNorm { x, weight: None, eps } if site.uses(value) == 1 => Some((*x, *eps)),
        _ => None,
    }
}

/// `weight * norm(x)`, or `weight * convert(norm(convert(x)))`.
fn with_weight(site: &mut Site<'_>, node: &Node, weight: ValueId, normed: ValueId) -> Option<ValueId> {
    let (x, eps, between) = match plain_norm(site, normed) {
        Some((x, eps)) => (x, eps, None),
        None => {
            let (inner, dtype) = site.before_cast(normed).filter(|_| site.uses(normed) == 1)?;
            let (x, eps) = plain_norm(site, inner)?;
            (x, eps, Some(dtype))
        }
    };
    let ty = site.tensor(weight)?;
    let fits =
        ty.shape.len() == 1 && ty.shape[0].as_known().is_some() && ty.shape[0].as_known() == site.features(x);
    let weight_dtype = ty.dtype;
    if !fits || !weight_dtype.is_float() {
        return site.left(PASS.name, node, "what it is multiplied by is no weight of one number a feature");
    }
    let source = source_of(site, x);
    let out = site.dtype(*node.results.first()?)?;
    // The op's result has the dtype that its operands promote to: it must be the product's.
    let x = match between {
        None if promote(site.dtype(source)?, weight_dtype) == out => source,
        None => x,
        Some(dtype) if promote(dtype, weight_dtype) == out && site.dtype(source)? == dtype => source,
        Some(dtype) => {
            return site.left(
                PASS.name,
                node,
                format!("it is converted to {dtype}, which is not what came in"),
            );
        }
    };
    let made = site.append(Op::RMSNorm { x, weight: Some(weight), eps })?;
    site.took(PASS.name, node, if between.is_some() { 3 } else { 2 });
    Some(made)
}

/// What was converted to f32 for the norm alone, which the op does itself.
fn source_of(site: &Site<'_>, x: ValueId) -> ValueId {
    match site.before_cast(x) {
        Some((source, DType::F32)) if matches!(site.dtype(source), Some(DType::F16 | DType::BF16)) => source,
        _ => x,
    }
}

/// A norm of `convert(x)` converted back to the dtype of `x`: a norm of `x`.
fn converted_back(site: &mut Site<'_>, node: &Node, normed: ValueId, dtype: DType) -> Option<ValueId> {
    let &Op::RMSNorm { x, weight, eps } = site.definition(normed)? else { return None };
    let source = source_of(site, x);
    let wide = weight.is_some_and(|weight| site.dtype(weight) != Some(dtype));
    // A product with the weight may still come; it takes the conversion as well.
    if source == x || wide || site.dtype(source)? != dtype || site.uses(normed) != 1 {
        return None;
    }
    let made = site.append(Op::RMSNorm { x: source, weight, eps })?;
    site.took(PASS.name, node, 3);
    Some(made)
}
