//! Portable operators as nodes of a graph: those that stand between delegates and mean the same there. Elements are moved
//! alike, and what is computed is rounded once on both sides, but for means and attention, which are rounded as the backend
//! rounds its own.
//! Numbers have 32 bits in a graph; one that does not fit is an error there, as it is for every delegate that takes it.

mod attention;
mod quantized;

use super::method::ValuePlan;
use crate::Value;
use crate::backend::{Backend, Support};
use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Graph, Node, Op, Ssa, TensorType, Type, ValueId, infer};
use pteron_tensor::DType;

/// An argument of an operator.
pub(super) enum Operand {
    /// A tensor, as a value of the graph.
    Tensor(ValueId),
    /// An integer that the graph computes.
    Number(ValueId),
    /// What the file fixes.
    Fixed(Value),
    /// A list of tensors.
    Tensors(Vec<ValueId>),
    /// A list of integers, of which some are computed.
    Ints(Vec<IntArg<ValueId>>),
}

/// A graph that operators are added to.
pub(super) struct Nodes<'g> {
    pub(super) graph: &'g mut Graph,
    pub(super) backend: &'g dyn Backend,
}

impl Nodes<'_> {
    /// Appends a node that gives one value; `None` where its rule or the backend has something against it.
    fn append(&mut self, op: Op<Ssa>) -> Option<ValueId> {
        let types = infer(&op, &self.graph.values, &mut self.graph.symbols).ok()?;
        let [ty] = <[Type; 1]>::try_from(types).ok()?;
        if self.backend.supports(&op, &self.graph.values) != Support::Native {
            return None;
        }
        let value = self.graph.add_value(ty);
        self.graph.body.nodes.push(Node { op, results: vec![value], place: None });
        Some(value)
    }

    fn tensor(&self, value: ValueId) -> Option<&TensorType> {
        match self.graph.ty(value)? {
            Type::Tensor(ty) => Some(ty),
            _ => None,
        }
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        Some(self.tensor(value)?.dtype)
    }

    fn rank(&self, value: ValueId) -> Option<usize> {
        Some(self.tensor(value)?.shape.len())
    }

    /// The size of an axis, where it is known.
    fn size(&self, value: ValueId, axis: usize) -> Option<i64> {
        self.tensor(value)?.shape.get(axis)?.as_known()
    }

    /// An axis counted from the front.
    fn axis(&self, value: ValueId, axis: &Operand) -> Option<usize> {
        counted(fixed_int(axis)?, self.rank(value)?)
    }

    /// A number of the file as a tensor of no axes, where f32 holds it.
    fn scalar(&mut self, number: &Value) -> Option<ValueId> {
        let number = match number {
            Value::Int(number) => *number as f64,
            Value::Float(number) => *number,
            _ => return None,
        };
        let is_exact = f64::from(number as f32) == number;
        let v = FloatArg::Literal(number);
        is_exact.then(|| self.append(Op::Full { shape: Vec::new(), v, scalar_type: DType::F32 }))?
    }

    /// Whether operands are of one dtype in which sums and products are rounded once, however wide they are computed.
    fn computes_alike(&self, operands: [ValueId; 2]) -> bool {
        let [a, b] = operands.map(|value| self.dtype(value));
        a == b && matches!(a, Some(DType::F32 | DType::I32 | DType::I64))
    }
}

/// Appends what gives the same as an operator; the values that it gives, those of inputs that it writes first. `None` where
/// nothing is sure to: what was appended is of no use then.
pub(super) fn append(operator: &str, operands: &[Operand], nodes: &mut Nodes<'_>) -> Option<Vec<ValueId>> {
    use Operand::{Fixed, Tensor};
    match (operator, operands) {
        ("llama::update_cache.out", [Tensor(new), Tensor(cache), start]) => {
            let updated = attention::update(nodes, *cache, *new, start)?;
            // Nobody reads the other result.
            let scalar_type = nodes.dtype(*cache)?;
            let (shape, v) = (vec![IntArg::Literal(1)], FloatArg::Literal(0.0));
            Some(vec![updated, nodes.append(Op::Full { shape, v, scalar_type })?])
        }
        (
            "llama::custom_sdpa.out",
            [Tensor(q), Tensor(k), Tensor(v), start, mask, _, Fixed(causal), scale],
        ) => attention::attend(nodes, [*q, *k, *v], start, (mask, causal, scale)).map(|out| vec![out]),
        (
            "llama::sdpa_with_kv_cache.out",
            [
                Tensor(q),
                Tensor(k),
                Tensor(v),
                Tensor(keys),
                Tensor(values),
                start,
                _,
                mask,
                _,
                Fixed(causal),
                scale,
            ],
        ) => {
            let keys = attention::update(nodes, *keys, *k, start)?;
            let values = attention::update(nodes, *values, *v, start)?;
            let out = attention::attend(nodes, [*q, keys, values], start, (mask, causal, scale))?;
            Some(vec![keys, values, out])
        }
        _ => append_one(operator, operands, nodes).map(|value| vec![value]),
    }
}

/// The same of operators that give one value and write no input.
fn append_one(operator: &str, operands: &[Operand], nodes: &mut Nodes<'_>) -> Option<ValueId> {
    use Operand::{Fixed, Number, Tensor, Tensors};
    match (operator, operands) {
        ("aten::add.out" | "aten::sub.out", [Tensor(a), Tensor(b), Fixed(Value::Int(1) | Value::None)])
        | ("aten::mul.out", [Tensor(a), Tensor(b)])
            if nodes.computes_alike([*a, *b]) =>
        {
            nodes.append(arithmetic(operator, *a, *b)?)
        }
        ("aten::div.out", [Tensor(a), Tensor(b)])
            if [a, b].iter().all(|x| nodes.dtype(**x) == Some(DType::F32)) =>
        {
            nodes.append(Op::Divide { a: *a, b: *b })
        }
        (
            "aten::add.Scalar_out" | "aten::sub.Scalar_out",
            [Tensor(a), Fixed(number), Fixed(Value::Int(1) | Value::None)],
        )
        | ("aten::mul.Scalar_out" | "aten::div.Scalar_out", [Tensor(a), Fixed(number)])
            if nodes.dtype(*a) == Some(DType::F32) =>
        {
            let b = nodes.scalar(number)?;
            nodes.append(arithmetic(operator, *a, b)?)
        }
        ("aten::mean.out", [Tensor(x), axes, Fixed(Value::Bool(keepdims)), Fixed(_)])
            if nodes.dtype(*x) == Some(DType::F32) =>
        {
            let axes = fixed_axes(axes)?;
            let axes = if axes.is_empty() { None } else { Some(axes) };
            nodes.append(Op::Mean { x: *x, axes, keepdims: *keepdims })
        }
        (
            "aten::view_copy.out" | "aten::_unsafe_view.out" | "executorch_prim::et_view.default",
            [Tensor(x), sizes],
        ) => nodes.append(Op::Reshape { x: *x, shape: ints(sizes)? }),
        ("aten::squeeze_copy.dim_out", [Tensor(x), axis]) => squeeze(nodes, *x, &[fixed_int(axis)?]),
        ("aten::squeeze_copy.dims_out", [Tensor(x), axes]) => squeeze(nodes, *x, &fixed_ints(axes)?),
        ("aten::unsqueeze_copy.out", [Tensor(x), axis]) => {
            let axis = counted(fixed_int(axis)?, nodes.rank(*x)? + 1)?;
            nodes.append(Op::ExpandDims { x: *x, axis: axis as i32 })
        }
        ("aten::expand_copy.out", [Tensor(x), sizes, Fixed(_)]) => expand(nodes, *x, &fixed_ints(sizes)?),
        ("aten::permute_copy.out", [Tensor(x), axes]) => {
            let rank = nodes.rank(*x)?;
            let axes = fixed_ints(axes)?.into_iter().map(|axis| Some(counted(axis, rank)? as i32));
            nodes.append(Op::Transpose { x: *x, perm: axes.collect::<Option<_>>()? })
        }
        ("aten::transpose_copy.int_out", [Tensor(x), a, b]) => {
            let (a, b) = (nodes.axis(*x, a)?, nodes.axis(*x, b)?);
            let mut perm: Vec<i32> = (0..nodes.rank(*x)? as i32).collect();
            perm.swap(a, b);
            nodes.append(Op::Transpose { x: *x, perm })
        }
        ("aten::slice_copy.Tensor_out", [Tensor(x), axis, start, stop, step]) => {
            let axis = IntArg::Literal(nodes.axis(*x, axis)? as i64);
            let step = i32::try_from(fixed_int(step)?).ok().filter(|step| *step > 0)?;
            let (start, stop) = (bound(start, 0)?, bound(stop, i32::MAX.into())?);
            nodes.append(Op::Slice { x: *x, axis, start, stop, step })
        }
        ("aten::select_copy.int_out", [Tensor(x), axis, index]) => {
            let (axis, index) = (nodes.axis(*x, axis)?, fixed_int(index)?);
            let is_inside = nodes.size(*x, axis).is_none_or(|size| (-size..size).contains(&index));
            let index = IndexArg::Literal(index);
            is_inside.then(|| nodes.append(Op::Take { x: *x, index, axis: axis as i32 }))?
        }
        ("aten::index.Tensor_out", [Tensor(x), Tensors(list)]) => match list.as_slice() {
            [rows] if matches!(nodes.dtype(*rows)?, DType::I32 | DType::I64) => {
                nodes.append(Op::Take { x: *x, index: IndexArg::Tensor(*rows), axis: 0 })
            }
            _ => None,
        },
        ("aten::embedding.out", [Tensor(table), Tensor(rows), ..])
            if nodes.rank(*table)? == 2 && matches!(nodes.dtype(*rows)?, DType::I32 | DType::I64) =>
        {
            nodes.append(Op::Take { x: *table, index: IndexArg::Tensor(*rows), axis: 0 })
        }
        (
            "quantized_decomposed::embedding_byte.out"
            | "quantized_decomposed::embedding_byte.dtype_out"
            | "quantized_decomposed::embedding_4bit.out"
            | "quantized_decomposed::embedding_4bit.dtype_out"
            | "quantized_decomposed::embedding_2bit.out"
            | "quantized_decomposed::embedding_2bit.dtype_out",
            [Tensor(weight), Tensor(scales), zeros, Fixed(_), Fixed(_), Tensor(rows), ..],
        ) => {
            let bits = match operator {
                name if name.contains("4bit") => 4,
                name if name.contains("2bit") => 2,
                _ => 8,
            };
            quantized::embedding(nodes, [*weight, *scales, *rows], zeros, bits)
        }
        ("aten::cat.out", [Tensors(list), axis]) => concatenate(nodes, list, axis),
        (
            "aten::clone.out"
            | "aten::alias_copy.out"
            | "aten::detach_copy.out"
            | "aten::lift_fresh_copy.out"
            | "aten::_to_copy.out"
            | "dim_order_ops::_clone_dim_order.out"
            | "dim_order_ops::_to_dim_order_copy.out",
            [Tensor(x), ..],
        ) => nodes.append(Op::IdCopy { x: *x }),
        ("aten::sym_size.int", [Tensor(x), axis]) => {
            let dim = nodes.axis(*x, axis)? as i32;
            nodes.append(Op::SymSize { a: *x, dim })
        }
        ("aten::_local_scalar_dense", [Tensor(x)]) if matches!(nodes.dtype(*x)?, DType::I32 | DType::I64) => {
            let is_one = nodes.tensor(*x)?.shape.iter().all(|dim| dim.as_known() == Some(1));
            is_one.then(|| nodes.append(Op::ItemInt { x: *x }))?
        }
        (
            "executorch_prim::add.Scalar"
            | "executorch_prim::sub.Scalar"
            | "executorch_prim::mul.Scalar"
            | "executorch_prim::floordiv.Scalar",
            [a @ (Number(_) | Fixed(Value::Int(_))), b @ (Number(_) | Fixed(Value::Int(_)))],
        ) => {
            let (a, b) = (int(a)?, int(b)?);
            nodes.append(match operator {
                "executorch_prim::add.Scalar" => Op::AddInt { a, b },
                "executorch_prim::sub.Scalar" => Op::SubtractInt { a, b },
                "executorch_prim::mul.Scalar" => Op::MultiplyInt { a, b },
                _ => Op::FloorDivideInt { a, b },
            })
        }
        _ => None,
    }
}

/// The node of an operator of two tensors.
fn arithmetic(operator: &str, a: ValueId, b: ValueId) -> Option<Op<Ssa>> {
    match operator.strip_prefix("aten::")?.split('.').next()? {
        "add" => Some(Op::Add { a, b }),
        "sub" => Some(Op::Subtract { a, b }),
        "mul" => Some(Op::Multiply { a, b }),
        "div" => Some(Op::Divide { a, b }),
        _ => None,
    }
}

/// Drops those of the axes that have one element; of each it must be known whether it has.
fn squeeze(nodes: &mut Nodes<'_>, x: ValueId, axes: &[i64]) -> Option<ValueId> {
    let rank = nodes.rank(x)?;
    let mut dims = Vec::new();
    for &axis in axes {
        let axis = counted(axis, rank)?;
        if nodes.size(x, axis)? == 1 {
            dims.push(axis as i32);
        }
    }
    // A list without axes stands for all of them.
    match dims.is_empty() {
        true => nodes.append(Op::IdCopy { x }),
        false => nodes.append(Op::Squeeze { x, dims: Some(dims) }),
    }
}

fn expand(nodes: &mut Nodes<'_>, x: ValueId, sizes: &[i64]) -> Option<ValueId> {
    let lead = sizes.len().checked_sub(nodes.rank(x)?)?;
    let size = |(at, &size): (usize, &i64)| match size {
        -1 => nodes.size(x, at.checked_sub(lead)?),
        size => Some(size),
    };
    let shape = sizes.iter().enumerate().map(|pair| size(pair).map(IntArg::Literal));
    let shape = shape.collect::<Option<_>>()?;
    nodes.append(Op::BroadcastTo { x, shape })
}

fn concatenate(nodes: &mut Nodes<'_>, list: &[ValueId], axis: &Operand) -> Option<ValueId> {
    let first = *list.first()?;
    let (dtype, rank, axis) = (nodes.dtype(first)?, nodes.rank(first)?, nodes.axis(first, axis)?);
    // The operator skips tensors without elements that have one axis, whatever the others have.
    let is_plain = |value: &ValueId| {
        nodes.dtype(*value) == Some(dtype)
            && nodes.rank(*value) == Some(rank)
            && (rank > 1 || nodes.size(*value, 0).is_some_and(|size| size > 0))
    };
    let tensors = list.to_vec();
    list.iter().all(is_plain).then(|| nodes.append(Op::Concatenate { tensors, axis: axis as i32 }))?
}

/// A bound of a slice; what is beyond every axis is its end.
fn bound(operand: &Operand, absent: i64) -> Option<IntArg<ValueId>> {
    match operand {
        Operand::Fixed(Value::None) => Some(IntArg::Literal(absent)),
        Operand::Fixed(Value::Int(number)) => {
            Some(IntArg::Literal((*number).clamp(i32::MIN.into(), i32::MAX.into())))
        }
        other => int(other),
    }
}

fn int(operand: &Operand) -> Option<IntArg<ValueId>> {
    match operand {
        Operand::Number(value) => Some(IntArg::Value(*value)),
        other => fixed_int(other).map(IntArg::Literal),
    }
}

fn ints(operand: &Operand) -> Option<Vec<IntArg<ValueId>>> {
    match operand {
        Operand::Ints(items) => Some(items.clone()),
        other => Some(fixed_ints(other)?.into_iter().map(IntArg::Literal).collect()),
    }
}

fn fixed_int(operand: &Operand) -> Option<i64> {
    match operand {
        Operand::Fixed(Value::Int(number)) => Some(*number),
        _ => None,
    }
}

fn fixed_ints(operand: &Operand) -> Option<Vec<i64>> {
    match operand {
        Operand::Fixed(Value::Ints(items)) => Some(items.clone()),
        Operand::Ints(items) => {
            let items = items.iter().map(|item| match item {
                IntArg::Literal(number) => Some(*number),
                IntArg::Value(_) => None,
            });
            items.collect()
        }
        _ => None,
    }
}

fn fixed_axes(operand: &Operand) -> Option<Vec<i32>> {
    match operand {
        Operand::Fixed(Value::None) => Some(Vec::new()),
        other => fixed_ints(other)?.into_iter().map(|axis| i32::try_from(axis).ok()).collect(),
    }
}

fn counted(axis: i64, rank: usize) -> Option<usize> {
    let at = if axis < 0 { axis.checked_add(rank as i64)? } else { axis };
    usize::try_from(at).ok().filter(|&at| at < rank)
}

/// A number, a text or a list of numbers that the file fixes; `is_fixed` says that nothing writes a value.
pub(super) fn fixed(values: &[ValuePlan], value: usize, is_fixed: impl Fn(usize) -> bool) -> Option<Value> {
    match &values[value] {
        ValuePlan::Value(fixed) if is_fixed(value) => Some(fixed.clone()),
        _ => None,
    }
}
