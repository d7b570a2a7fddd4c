//! Chains of views and conversions as one: transposes compose, of several reshapes the last one counts, and a
//! conversion to a dtype that holds every number of the one before leaves no trace.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Graph, Node, Op, ValueId};
use pteron_tensor::DType;

/// The pass.
pub const PASS: Pass =
    Pass { name: "views", doc: "makes chains of transposes, reshapes and conversions one", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let &[result] = node.results.as_slice() else { return None };
    let made = match &node.op {
        Op::Transpose { x, perm } => transposed_twice(site, *x, perm)?,
        Op::AsType { x, scalar_type } => converted_twice(site, *x, *scalar_type)?,
        Op::Reshape { x, .. } | Op::ExpandDims { x, .. } => reshaped_twice(site, *x, result)?,
        op => {
            let x = site.squeezed(op)?;
            reshaped_twice(site, x, result)?
        }
    };
    site.took(PASS.name, node, 2);
    Some(vec![made])
}

fn transposed_twice(site: &mut Site<'_>, x: ValueId, second: &[i32]) -> Option<ValueId> {
    let Op::Transpose { x: source, perm: first } = site.definition(x)? else { return None };
    let (source, rank) = (*source, first.len());
    let first: Vec<usize> = first.iter().map(|&axis| axis_of(axis.into(), rank)).collect::<Option<_>>()?;
    let second: Vec<usize> = second.iter().map(|&axis| axis_of(axis.into(), rank)).collect::<Option<_>>()?;
    let perm: Vec<usize> = second.iter().map(|&axis| first[axis]).collect();
    if perm.iter().enumerate().all(|(at, &axis)| at == axis) {
        return Some(source);
    }
    site.append(Op::Transpose { x: source, perm: perm.iter().map(|&axis| axis as i32).collect() })
}

fn converted_twice(site: &mut Site<'_>, x: ValueId, dtype: DType) -> Option<ValueId> {
    let (source, between) = site.before_cast(x)?;
    let from = site.dtype(source)?;
    if !holds(between, from) {
        return None;
    }
    if from == dtype {
        return Some(source);
    }
    site.append(Op::AsType { x: source, scalar_type: dtype })
}

/// Whether a dtype holds every number of another.
fn holds(wide: DType, narrow: DType) -> bool {
    /// Bits of an integer without its sign, and whether it has one.
    fn integer(dtype: DType) -> Option<(usize, bool)> {
        match dtype {
            DType::Bool => Some((1, false)),
            dtype if dtype.is_int() => {
                let signed = !dtype.is_unsigned();
                Some((dtype.size() * 8 - usize::from(signed), signed))
            }
            _ => None,
        }
    }
    /// Bits of whole numbers that a float holds exactly.
    fn digits(dtype: DType) -> Option<usize> {
        match dtype {
            DType::F64 => Some(53),
            DType::F32 => Some(24),
            DType::F16 => Some(11),
            DType::BF16 => Some(8),
            _ => None,
        }
    }
    match (integer(wide), integer(narrow)) {
        _ if wide == narrow => true,
        // Anything that is not zero becomes true.
        _ if wide == DType::Bool => false,
        (Some((wide, has_sign)), Some((narrow, signed))) => wide >= narrow && (has_sign || !signed),
        (None, Some((narrow, _))) => digits(wide).is_some_and(|digits| digits >= narrow),
        (Some(_), None) => false,
        (None, None) => {
            wide == DType::F64 || (wide == DType::F32 && matches!(narrow, DType::F16 | DType::BF16))
        }
    }
}

/// One reshape for two views that keep the order of elements, where the middle one has no other use.
fn reshaped_twice(site: &mut Site<'_>, x: ValueId, result: ValueId) -> Option<ValueId> {
    let source = match site.definition(x)? {
        Op::Reshape { x, .. } | Op::ExpandDims { x, .. } => *x,
        op => site.squeezed(op)?,
    };
    if site.uses(x) != 1 {
        return None;
    }
    if site.same_type(source, result) {
        return Some(source);
    }
    let dims = site.tensor(result)?.shape.clone();
    let shape = written(site, &dims)?;
    let made = site.append(Op::Reshape { x: source, shape })?;
    site.same_type(made, result).then_some(made)
}

/// A shape as arguments: numbers, and either integers that are in scope or one size that follows from the others. Not
/// both: an integer that turns out to be 0 leaves the other open.
fn written(site: &Site<'_>, dims: &[Dim]) -> Option<Vec<IntArg<ValueId>>> {
    let open: Vec<&Dim> = dims.iter().filter(|dim| dim.as_known().is_none()).collect();
    let follows = open.len() == 1 && !dims.iter().any(|dim| dim.as_known() == Some(0));
    let arg = |dim: &Dim| match dim.as_known() {
        Some(size) => Some(IntArg::Literal(size)),
        None if follows => Some(IntArg::Literal(-1)),
        None => site.int_of(dim).map(IntArg::Value),
    };
    dims.iter().map(arg).collect()
}
