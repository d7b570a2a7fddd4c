//! Constant folding: arithmetic and conversions of constants are done now and stored in the file, where the result is
//! small. Numbers are rounded as backends round them: to f32, then to the dtype.

use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights, numbers};
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Graph, Node, Op, Ssa, ValueId};
use pteron_tensor::{DType, HostTensor, element_count};

/// The pass.
pub const PASS: Pass = Pass { name: "fold", doc: "computes small constants now", run };

/// Elements that are computed now at most: what is larger would make the file grow.
const MOST_ELEMENTS: usize = 1 << 20;
/// Elements of a fill or a range, which cost a backend nothing to make, that are stored instead.
const MOST_MADE: usize = 1 << 10;

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let &[result] = node.results.as_slice() else { return None };
    let ty = site.tensor(result)?;
    let (dtype, shape) = (ty.dtype, ty.known_shape()?);
    let (like, tensor) = folded(site, &node.op, dtype, &shape)?;
    let value = site.add_constant(&like, "folded", tensor);
    site.took(PASS.name, node, 1);
    Some(vec![value])
}

/// The name of a constant that a result is made of, and the result.
fn folded(site: &Site<'_>, op: &Op<Ssa>, dtype: DType, shape: &[usize]) -> Option<(String, HostTensor)> {
    let count = element_count(shape)?;
    let of = |value: ValueId| {
        let data = site.data(value).filter(|data| data.len() <= MOST_ELEMENTS)?;
        Some((site.constant_name(value)?.to_owned(), data))
    };
    let both = |a: ValueId, b: ValueId, compute: fn(f64, f64) -> f64| {
        let ((name, a), (_, b)) = (of(a)?, of(b)?);
        let alike = a.dtype() == b.dtype() || (a.dtype().is_float() && b.dtype().is_float());
        let values =
            if alike && count <= MOST_ELEMENTS { broadcast(a, b, shape, compute)? } else { return None };
        Some((name, numbers::tensor(dtype, shape, &values)?))
    };
    match op {
        Op::AsType { x, .. } => {
            let (name, x) = of(*x)?;
            Some((name, numbers::tensor(dtype, shape, &numbers::floats(x)?)?))
        }
        Op::Reshape { x, .. } | Op::ExpandDims { x, .. } | Op::Squeeze { x, .. } => {
            let (name, x) = of(*x)?;
            Some((name, x.clone().reshaped(shape.to_vec()).ok()?))
        }
        Op::Neg { x } => {
            let (name, x) = of(*x)?;
            let values: Vec<f64> = numbers::floats(x)?.iter().map(|value| -value).collect();
            Some((name, numbers::tensor(dtype, shape, &values)?))
        }
        Op::Add { a, b } => both(*a, *b, |a, b| a + b),
        Op::Subtract { a, b } => both(*a, *b, |a, b| a - b),
        Op::Multiply { a, b } => both(*a, *b, |a, b| a * b),
        Op::Divide { a, b } if dtype.is_float() => both(*a, *b, |a, b| a / b),
        Op::Full { v: FloatArg::Literal(number), .. } if count <= MOST_MADE => {
            Some(("_full".to_owned(), numbers::tensor(dtype, shape, &vec![*number; count])?))
        }
        Op::ARange {
            start: IntArg::Literal(start),
            stop: IntArg::Literal(_),
            step: IntArg::Literal(step),
            ..
        } if count <= MOST_MADE => {
            let at = |index: usize| Some(start.checked_add(step.checked_mul(index as i64)?)? as f64);
            let values = (0..count).map(at).collect::<Option<Vec<f64>>>()?;
            Some(("_range".to_owned(), numbers::tensor(dtype, shape, &values)?))
        }
        _ => None,
    }
}

/// `compute` over two tensors that broadcast to a shape. Sums, differences, products and quotients of f32 that are
/// computed in f64 and rounded are the ones that f32 gives.
fn broadcast(
    a: &HostTensor,
    b: &HostTensor,
    shape: &[usize],
    compute: fn(f64, f64) -> f64,
) -> Option<Vec<f64>> {
    let strides = |tensor: &HostTensor| -> Option<Vec<usize>> {
        let lead = shape.len().checked_sub(tensor.rank())?;
        let mut strides = vec![0; shape.len()];
        let mut stride = 1usize;
        for (axis, &size) in tensor.shape().iter().enumerate().rev() {
            if size != 1 && size != shape[lead + axis] {
                return None;
            }
            strides[lead + axis] = if size == 1 { 0 } else { stride };
            stride = stride.checked_mul(size)?;
        }
        Some(strides)
    };
    let (by_a, by_b) = (strides(a)?, strides(b)?);
    let (a, b) = (numbers::floats(a)?, numbers::floats(b)?);
    let count = element_count(shape)?;
    let mut values = Vec::with_capacity(count);
    let mut index = vec![0usize; shape.len()];
    for _ in 0..count {
        let at = |strides: &[usize]| {
            index.iter().zip(strides).map(|(index, stride)| index * stride).sum::<usize>()
        };
        values.push(compute(*a.get(at(&by_a))?, *b.get(at(&by_b))?));
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Some(values)
}
