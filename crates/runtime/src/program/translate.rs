//! Portable operators as nodes of a graph: those that stand between delegates and mean the same there, number by number.

use super::method::ValuePlan;
use crate::Value;
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, Type, ValueId};
use pteron_tensor::DType;

/// An argument of an operator.
pub(super) enum Operand {
    /// A tensor, as a value of the graph.
    Tensor(ValueId),
    /// What the file fixes.
    Fixed(Value),
}

/// The node that gives what an operator gives; `None` where there is none that is sure to.
pub(super) fn node(
    operator: &str,
    operands: &[Operand],
    ty: impl Fn(ValueId) -> Option<Type>,
) -> Option<Op<Ssa>> {
    use Operand::{Fixed, Tensor};
    // Sums and products of f32 are rounded once, however wide they are computed.
    let floats = |values: [&ValueId; 2]| {
        let is_float =
            |value: &ValueId| matches!(ty(*value), Some(Type::Tensor(ty)) if ty.dtype == DType::F32);
        values.into_iter().all(is_float)
    };
    match (operator, operands) {
        ("aten::add.out", [Tensor(a), Tensor(b), Fixed(Value::Int(1) | Value::None)]) if floats([a, b]) => {
            Some(Op::Add { a: *a, b: *b })
        }
        ("aten::sub.out", [Tensor(a), Tensor(b), Fixed(Value::Int(1) | Value::None)]) if floats([a, b]) => {
            Some(Op::Subtract { a: *a, b: *b })
        }
        ("aten::mul.out", [Tensor(a), Tensor(b)]) if floats([a, b]) => Some(Op::Multiply { a: *a, b: *b }),
        ("aten::view_copy.out", [Tensor(x), Fixed(Value::Ints(sizes))]) if known(ty(*x)?) => {
            // A size that is left open is the operator's to find out.
            let sizes = sizes.iter().map(|&size| (size >= 0).then_some(IntArg::Literal(size)));
            Some(Op::Reshape { x: *x, shape: sizes.collect::<Option<_>>()? })
        }
        ("aten::permute_copy.out", [Tensor(x), Fixed(Value::Ints(axes))]) => {
            let axes = axes.iter().map(|&axis| i32::try_from(axis).ok().filter(|axis| *axis >= 0));
            Some(Op::Transpose { x: *x, perm: axes.collect::<Option<_>>()? })
        }
        _ => None,
    }
}

fn known(ty: Type) -> bool {
    matches!(ty, Type::Tensor(ty) if ty.known_shape().is_some())
}

/// The value of an argument that is no tensor, where the file fixes it; `is_fixed` says that nothing writes a value.
pub(super) fn fixed(values: &[ValuePlan], value: usize, is_fixed: impl Fn(usize) -> bool) -> Option<Value> {
    match &values[value] {
        ValuePlan::Value(fixed) if is_fixed(value) => Some(fixed.clone()),
        ValuePlan::Ints(items) => {
            let items = items.iter().map(|&item| match &values[item] {
                ValuePlan::Value(Value::Int(number)) if is_fixed(item) => Some(*number),
                _ => None,
            });
            Some(Value::Ints(items.collect::<Option<_>>()?))
        }
        _ => None,
    }
}
