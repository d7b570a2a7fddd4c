//! Which kernel computes an op, and what it is called with. The inverse, from kernels to ops, is the runtime's.

use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Dim, Node, Op, OpKind, Ssa, ValueId};
use pteron_tensor::{DType, HostTensor};

use super::calls::{Calls, Held, held_as};
use crate::assemble::ValueIndex;

type Done = Result<(), String>;

/// Ops of tensors of one dtype whose kernel takes them as they are: kind, kernel, overload.
#[rustfmt::skip] // one row a line
const ELEMENT_WISE: &[(OpKind, &str, &str)] = &[
    (OpKind::Abs, "aten::abs", "out"),
    (OpKind::Arccos, "aten::acos", "out"),
    (OpKind::Arccosh, "aten::acosh", "out"),
    (OpKind::Arcsin, "aten::asin", "out"),
    (OpKind::Arcsinh, "aten::asinh", "out"),
    (OpKind::Arctan, "aten::atan", "out"),
    (OpKind::Arctanh, "aten::atanh", "out"),
    (OpKind::Atan2, "aten::atan2", "out"),
    (OpKind::BitwiseAnd, "aten::bitwise_and", "Tensor_out"),
    (OpKind::BitwiseInvert, "aten::bitwise_not", "out"),
    (OpKind::BitwiseOr, "aten::bitwise_or", "Tensor_out"),
    (OpKind::BitwiseXor, "aten::bitwise_xor", "Tensor_out"),
    (OpKind::Ceil, "aten::ceil", "out"),
    (OpKind::Cos, "aten::cos", "out"),
    (OpKind::Cosh, "aten::cosh", "out"),
    (OpKind::Divide, "aten::div", "out"),
    (OpKind::Equal, "aten::eq", "Tensor_out"),
    (OpKind::Erf, "aten::erf", "out"),
    (OpKind::Exp, "aten::exp", "out"),
    (OpKind::Expm1, "aten::expm1", "out"),
    (OpKind::Floor, "aten::floor", "out"),
    (OpKind::FloorDivide, "aten::floor_divide", "out"),
    (OpKind::Greater, "aten::gt", "Tensor_out"),
    (OpKind::GreaterEqual, "aten::ge", "Tensor_out"),
    (OpKind::Less, "aten::lt", "Tensor_out"),
    (OpKind::LessEqual, "aten::le", "Tensor_out"),
    (OpKind::Log, "aten::log", "out"),
    (OpKind::Log10, "aten::log10", "out"),
    (OpKind::Log1p, "aten::log1p", "out"),
    (OpKind::Log2, "aten::log2", "out"),
    (OpKind::LogicalAnd, "aten::logical_and", "out"),
    (OpKind::LogicalNot, "aten::logical_not", "out"),
    (OpKind::LogicalOr, "aten::logical_or", "out"),
    (OpKind::Maximum, "aten::maximum", "out"),
    (OpKind::Minimum, "aten::minimum", "out"),
    (OpKind::Multiply, "aten::mul", "out"),
    (OpKind::Neg, "aten::neg", "out"),
    (OpKind::NotEqual, "aten::ne", "Tensor_out"),
    (OpKind::Power, "aten::pow", "Tensor_Tensor_out"),
    (OpKind::Reciprocal, "aten::reciprocal", "out"),
    (OpKind::Remainder, "aten::remainder", "Tensor_out"),
    (OpKind::Round, "aten::round", "out"),
    (OpKind::Rsqrt, "aten::rsqrt", "out"),
    (OpKind::Sigmoid, "aten::sigmoid", "out"),
    (OpKind::Sign, "aten::sign", "out"),
    (OpKind::Sin, "aten::sin", "out"),
    (OpKind::Sinh, "aten::sinh", "out"),
    (OpKind::Sqrt, "aten::sqrt", "out"),
    (OpKind::Tan, "aten::tan", "out"),
    (OpKind::Tanh, "aten::tanh", "out"),
    (OpKind::Trunc, "aten::trunc", "out"),
    (OpKind::Where, "aten::where", "self_out"),
];

/// Integers of the program: kind and kernel.
const INTEGERS: &[(OpKind, &str)] = &[
    (OpKind::AddInt, "executorch_prim::add"),
    (OpKind::SubtractInt, "executorch_prim::sub"),
    (OpKind::MultiplyInt, "executorch_prim::mul"),
    (OpKind::FloorDivideInt, "executorch_prim::floordiv"),
    (OpKind::ModInt, "executorch_prim::mod"),
];

/// Adds the calls of a node.
pub(super) fn node(calls: &mut Calls<'_>, node: &Node) -> Done {
    let &[out] = &node.results[..] else {
        return if node.results.is_empty() { Ok(()) } else { Err("it gives several values".into()) };
    };
    let kind = node.op.kind();
    if let Some(&(_, name, overload)) = ELEMENT_WISE.iter().find(|row| row.0 == kind) {
        return element_wise(calls, &node.op, out, (name, overload), &[]);
    }
    match &node.op {
        Op::Add { .. } | Op::Subtract { .. } => {
            let alpha = calls.int(1);
            let name = if kind == OpKind::Add { "aten::add" } else { "aten::sub" };
            element_wise(calls, &node.op, out, (name, "out"), &[alpha])
        }
        Op::Gelu { approximate, .. } => {
            let approximate = calls.string(if approximate == "tanh" { "tanh" } else { "none" });
            element_wise(calls, &node.op, out, ("aten::gelu", "out"), &[approximate])
        }
        Op::AsType { .. } => {
            let more = [calls.bool(false), calls.null()];
            element_wise(calls, &node.op, out, ("aten::_to_copy", "out"), &more)
        }
        Op::Clip { x, a_min, a_max } => clip(calls, *x, (*a_min, *a_max), out),
        Op::AddInt { a, b }
        | Op::SubtractInt { a, b }
        | Op::MultiplyInt { a, b }
        | Op::FloorDivideInt { a, b }
        | Op::ModInt { a, b } => {
            let name = INTEGERS.iter().find(|row| row.0 == kind).map_or("", |row| row.1);
            let operands = [calls.int_of(*a)?, calls.int_of(*b)?];
            let to = calls.result_number(out);
            calls.method.kernel(name, "Scalar", &[operands[0], operands[1], to]);
            Ok(())
        }
        Op::SymSize { a, dim } => {
            let (x, axis) = (calls.tensor(*a)?, calls.int((*dim).into()));
            let to = calls.result_number(out);
            calls.method.kernel("aten::sym_size", "int", &[x, axis, to]);
            Ok(())
        }
        Op::ItemInt { x } => {
            let x = calls.tensor(*x)?;
            let to = calls.result_number(out);
            calls.method.kernel("aten::_local_scalar_dense", "", &[x, to]);
            Ok(())
        }
        Op::Transpose { x, perm } => {
            let rank = calls.rank(*x)?;
            let perm = perm.iter().map(|&axis| counted(axis, rank)).collect::<Result<Vec<_>, _>>()?;
            let held = calls.permuted(*x, &perm)?;
            calls.hold(out, held);
            Ok(())
        }
        Op::Addmm { mat1, mat2, .. } => {
            let name = if calls.rank(*mat1)? == 2 { "aten::mm" } else { "aten::bmm" };
            let operands = [calls.tensor(*mat1)?, calls.tensor(*mat2)?];
            written(calls, out, name, "out", &operands)
        }
        Op::Mean { x, axes, keepdims } | Op::Sum { x, axes, keepdims } => {
            let (name, overload) =
                if kind == OpKind::Mean { ("aten::mean", "out") } else { ("aten::sum", "IntList_out") };
            let operands = reduced(calls, *x, axes.as_deref(), *keepdims)?;
            let dtype = calls.null();
            written(calls, out, name, overload, &[&operands[..], &[dtype]].concat())
        }
        Op::Max { x, axes, keepdims } | Op::Min { x, axes, keepdims } | Op::Any { x, axes, keepdims } => {
            let (name, overload) = match kind {
                OpKind::Max => ("aten::amax", "out"),
                OpKind::Min => ("aten::amin", "out"),
                _ => ("aten::any", "dims_out"),
            };
            let operands = reduced(calls, *x, axes.as_deref(), *keepdims)?;
            written(calls, out, name, overload, &operands)
        }
        Op::Var { x, axes, keepdims, ddof } => {
            let [x, axes, keepdims] = reduced(calls, *x, axes.as_deref(), *keepdims)?;
            let correction = calls.int((*ddof).into());
            written(calls, out, "aten::var", "correction_out", &[x, axes, correction, keepdims])
        }
        Op::Argmax { x, axis, keepdims } | Op::Argmin { x, axis, keepdims } => {
            let name = if kind == OpKind::Argmax { "aten::argmax" } else { "aten::argmin" };
            let operands = [calls.tensor(*x)?, calls.int((*axis).into()), calls.bool(*keepdims)];
            written(calls, out, name, "out", &operands)
        }
        Op::Softmax { x, axis, .. } => {
            let operands = [calls.tensor(*x)?, calls.int((*axis).into()), calls.bool(false)];
            written(calls, out, "aten::_softmax", "out", &operands)
        }
        Op::Cumsum { x, axis, .. } => {
            let operands = [calls.tensor(*x)?, calls.int((*axis).into()), calls.null()];
            written(calls, out, "aten::cumsum", "out", &operands)
        }
        Op::Reshape { x, shape } => reshape(calls, *x, shape, out),
        Op::Squeeze { x, dims } => {
            let rank = calls.rank(*x)?;
            let shape = &calls.ty(*x)?.shape;
            let dims = dims.as_deref().unwrap_or_default().iter().map(|&axis| counted(axis, rank));
            let dims = dims.collect::<Result<Vec<_>, _>>()?;
            // What is not known to have one element stays, whatever a run brings.
            let dims =
                dims.into_iter().filter(|&axis| shape[axis].as_known() == Some(1)).map(|axis| axis as i64);
            let dims: Vec<i64> = dims.collect();
            let operands = [calls.tensor(*x)?, calls.ints(&dims)];
            written(calls, out, "aten::squeeze_copy", "dims_out", &operands)
        }
        Op::ExpandDims { x, axis } => {
            let operands = [calls.tensor(*x)?, calls.int((*axis).into())];
            written(calls, out, "aten::unsqueeze_copy", "out", &operands)
        }
        Op::BroadcastTo { x, shape } => {
            let operands = [calls.tensor(*x)?, calls.ints_of(shape)?, calls.bool(false)];
            written(calls, out, "aten::expand_copy", "out", &operands)
        }
        Op::Tile { x, reps } => {
            let rank = calls.rank(*x)?;
            let lead = vec![IntArg::Literal(1); rank.saturating_sub(reps.len())];
            let operands = [calls.tensor(*x)?, calls.ints_of(&[&lead[..], &reps[..]].concat())?];
            written(calls, out, "aten::repeat", "out", &operands)
        }
        Op::Slice { x, axis, start, stop, step } => {
            let operands = sliced(calls, *axis, *start, *stop, *step)?;
            let x = calls.tensor(*x)?;
            written(calls, out, "aten::slice_copy", "Tensor_out", &[&[x][..], &operands].concat())
        }
        Op::SliceUpdate { dst, update, axis, start, stop, step } => {
            let operands = sliced(calls, *axis, *start, *stop, *step)?;
            let both = [calls.tensor(*dst)?, calls.tensor(*update)?];
            written(calls, out, "aten::slice_scatter", "out", &[&both[..], &operands].concat())
        }
        Op::AsStrided { x, shape, strides, offset } => {
            let offset = i64::try_from(*offset).map_err(|_| format!("an offset of {offset}"))?;
            let operands =
                [calls.tensor(*x)?, calls.ints_of(shape)?, calls.ints_of(strides)?, calls.int(offset)];
            written(calls, out, "aten::as_strided_copy", "out", &operands)
        }
        Op::Concatenate { tensors, axis } | Op::Stack { tensors, axis } => {
            let name = if kind == OpKind::Stack { "aten::stack" } else { "aten::cat" };
            let tensors = tensors.iter().map(|&x| calls.tensor(x)).collect::<Result<Vec<_>, _>>()?;
            let operands = [calls.method.tensors(&tensors), calls.int((*axis).into())];
            written(calls, out, name, "out", &operands)
        }
        Op::Pad { x, pad_width, constant_value, .. } => pad(calls, *x, pad_width, *constant_value, out),
        Op::Flip { x, axes } => {
            let axes: Vec<i64> = axes.iter().map(|&axis| axis.into()).collect();
            let operands = [calls.tensor(*x)?, calls.ints(&axes)];
            written(calls, out, "aten::flip", "out", &operands)
        }
        Op::Roll { x, shift, axes } => {
            let axes: Vec<i64> = axes.iter().map(|&axis| axis.into()).collect();
            let operands = [calls.tensor(*x)?, calls.ints_of(shift)?, calls.ints(&axes)];
            written(calls, out, "aten::roll", "out", &operands)
        }
        Op::Tril { x, k } => {
            let operands = [calls.tensor(*x)?, calls.int((*k).into())];
            written(calls, out, "aten::tril", "out", &operands)
        }
        Op::Take { x, index, axis } => take(calls, *x, *index, *axis, out),
        Op::TakeAlongAxis { x, indices, axis } => {
            let (axis, sparse) = (calls.int((*axis).into()), calls.bool(false));
            let operands = [calls.tensor(*x)?, axis, calls.tensor(*indices)?, sparse];
            written(calls, out, "aten::gather", "out", &operands)
        }
        Op::IndexCopy { dst, update, indices, axis } => {
            let mut list = vec![None; counted(*axis, calls.rank(*dst)?)?];
            list.push(Some(calls.tensor(*indices)?));
            let list = calls.method.optional_tensors(&list);
            let operands = [calls.tensor(*dst)?, list, calls.tensor(*update)?, calls.bool(false)];
            written(calls, out, "aten::index_put", "out", &operands)
        }
        Op::ScatterAdd { x, indices, updates, axis } => {
            let axis = calls.int((*axis).into());
            let operands = [calls.tensor(*x)?, axis, calls.tensor(*indices)?, calls.tensor(*updates)?];
            written(calls, out, "aten::scatter_add", "out", &operands)
        }
        Op::Gather { x, indices, axes, slice_sizes } => gather(calls, *x, indices, (axes, slice_sizes), out),
        Op::Prod { x, axes, keepdims } => {
            let axes = axes.as_deref().unwrap_or_default();
            let &[axis] = axes else {
                return Err("a product over several axes has no portable form".into());
            };
            let operands = [calls.tensor(*x)?, calls.int(axis.into()), calls.bool(*keepdims), calls.null()];
            written(calls, out, "aten::prod", "int_out", &operands)
        }
        Op::Sort { x, axis } | Op::ArgPartition { x, axis, .. } => {
            ascending(calls, *x, *axis, kind == OpKind::Sort, out)
        }
        Op::Full { shape, v: FloatArg::Value(number), .. } => {
            let operands = [calls.ints_of(shape)?, calls.number(*number)?];
            written(calls, out, "aten::full", "out", &operands)
        }
        Op::Full { shape, v: FloatArg::Literal(number), scalar_type } => {
            full(calls, shape, *number, *scalar_type, out)
        }
        Op::ARange { start, stop, step, .. } => {
            let operands = [calls.int_of(*start)?, calls.int_of(*stop)?, calls.int_of(*step)?];
            written(calls, out, "aten::arange", "start_out", &operands)
        }
        Op::Conv1D { x, w, stride, padding, dilation, groups } => {
            let lists = [&[*stride][..], &[*padding], &[*dilation], &[0]];
            convolution(calls, (*x, *w, out), lists, *groups, false)
        }
        Op::Conv2D { x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups } => {
            let lists = [
                &[*stride_h, *stride_w][..],
                &[*padding_h, *padding_w],
                &[*dilation_h, *dilation_w],
                &[0, 0],
            ];
            convolution(calls, (*x, *w, out), lists, *groups, false)
        }
        Op::ConvTranspose1D { x, w, stride, padding, dilation, output_padding, groups } => {
            let lists = [&[*stride][..], &[*padding], &[*dilation], &[*output_padding]];
            convolution(calls, (*x, *w, out), lists, *groups, true)
        }
        Op::ConvTranspose2D {
            x,
            w,
            stride_h,
            stride_w,
            padding_h,
            padding_w,
            dilation_h,
            dilation_w,
            output_padding_h,
            output_padding_w,
            groups,
        } => {
            let lists = [
                &[*stride_h, *stride_w][..],
                &[*padding_h, *padding_w],
                &[*dilation_h, *dilation_w],
                &[*output_padding_h, *output_padding_w],
            ];
            convolution(calls, (*x, *w, out), lists, *groups, true)
        }
        _ => Err("no portable operator computes it".into()),
    }
}

/// Calls a kernel that writes a result of the graph.
fn written(calls: &mut Calls<'_>, out: ValueId, name: &str, overload: &str, operands: &[ValueIndex]) -> Done {
    let to = calls.result(out)?;
    calls.call(name, overload, operands, to);
    Ok(())
}

/// An op of tensors alone, in whatever order their axes lie; `more` follows them.
fn element_wise(
    calls: &mut Calls<'_>,
    op: &Op<Ssa>,
    out: ValueId,
    (name, overload): (&str, &str),
    more: &[ValueIndex],
) -> Done {
    let mut operands = Vec::new();
    op.for_each_tensor(|value| operands.push(value));
    let (operands, order) = calls.laid(&operands)?;
    let to = calls.result_laid(out, order)?;
    calls.call(name, overload, &[&operands, more].concat(), to);
    Ok(())
}

fn clip(
    calls: &mut Calls<'_>,
    x: ValueId,
    (low, high): (Option<ValueId>, Option<ValueId>),
    out: ValueId,
) -> Done {
    let operands: Vec<ValueId> = [Some(x), low, high].into_iter().flatten().collect();
    let (operands, order) = calls.laid(&operands)?;
    let mut left = operands.into_iter();
    let mut arguments = Vec::new();
    for is_there in [true, low.is_some(), high.is_some()] {
        let operand = if is_there { left.next() } else { None };
        arguments.push(operand.unwrap_or_else(|| calls.null()));
    }
    let to = calls.result_laid(out, order)?;
    calls.call("aten::clamp", "Tensor_out", &arguments, to);
    Ok(())
}

/// What a kernel that folds axes takes first: the tensor, its axes, whether they stay.
fn reduced(
    calls: &mut Calls<'_>,
    x: ValueId,
    axes: Option<&[i32]>,
    keepdims: bool,
) -> Result<[ValueIndex; 3], String> {
    let rank = calls.rank(x)? as i64;
    let axes: Vec<i64> = match axes.unwrap_or_default() {
        [] => (0..rank).collect(),
        axes => axes.iter().map(|&axis| axis.into()).collect(),
    };
    Ok([calls.tensor(x)?, calls.ints(&axes), calls.bool(keepdims)])
}

fn reshape(calls: &mut Calls<'_>, x: ValueId, shape: &[IntArg<ValueId>], out: ValueId) -> Done {
    if let Held::Constant(tensor) = calls.held(x)?
        && let Some(shape) = calls.ty(out)?.known_shape()
    {
        let tensor = tensor.clone().reshaped(shape).map_err(|error| error.to_string())?;
        calls.hold(out, Held::Constant(tensor));
        return Ok(());
    }
    let operands = [calls.tensor(x)?, calls.ints_of(shape)?];
    written(calls, out, "aten::view_copy", "out", &operands)
}

fn sliced(
    calls: &mut Calls<'_>,
    axis: IntArg<ValueId>,
    start: IntArg<ValueId>,
    stop: IntArg<ValueId>,
    step: i32,
) -> Result<[ValueIndex; 4], String> {
    if step < 1 {
        return Err(format!("slices of step {step} have no portable form"));
    }
    Ok([calls.int_of(axis)?, calls.int_of(start)?, calls.int_of(stop)?, calls.int(step.into())])
}

/// Kernels take widths from the last axis to the first.
fn pad(calls: &mut Calls<'_>, x: ValueId, widths: &[IntArg<ValueId>], number: f32, out: ValueId) -> Done {
    let widths: Vec<IntArg<ValueId>> = widths.chunks(2).rev().flatten().copied().collect();
    let operands = [calls.tensor(x)?, calls.ints_of(&widths)?, calls.double(number.into())];
    written(calls, out, "aten::constant_pad_nd", "out", &operands)
}

fn take(
    calls: &mut Calls<'_>,
    x: ValueId,
    index: IndexArg<ValueId, ValueId>,
    axis: i32,
    out: ValueId,
) -> Done {
    let number = match index {
        IndexArg::Literal(number) => calls.int(number),
        IndexArg::Value(value) => calls.number(value)?,
        IndexArg::Tensor(index) => {
            let axis = counted(axis, calls.rank(x)?)?;
            let mut list = vec![None; axis];
            let held = held_as(calls.ty(index)?.dtype)?;
            let mut index = (calls.tensor(index)?, calls.ty(index)?);
            if !matches!(held, DType::I32 | DType::I64) {
                let wide = calls.fresh(DType::I64, index.1.shape.clone())?;
                calls.converted(index.0, wide);
                index.0 = wide;
            }
            list.push(Some(index.0));
            let operands = [calls.tensor(x)?, calls.method.optional_tensors(&list)];
            return written(calls, out, "aten::index", "Tensor_out", &operands);
        }
    };
    let operands = [calls.tensor(x)?, calls.int(axis.into()), number];
    written(calls, out, "aten::select_copy", "int_out", &operands)
}

/// Elements, or rows of them, at several indices: of the first axes, each.
fn gather(
    calls: &mut Calls<'_>,
    x: ValueId,
    indices: &[ValueId],
    (axes, slices): (&[i32], &[i32]),
    out: ValueId,
) -> Done {
    let shape = &calls.ty(x)?.shape;
    let is_whole = |(axis, dim): (usize, &Dim)| {
        let slice = slices.get(axis).copied().unwrap_or(0).into();
        if axis < axes.len() { slice == 1 } else { dim.as_known() == Some(slice) }
    };
    let in_turn = axes.iter().enumerate().all(|(at, &axis)| at as i32 == axis);
    if !in_turn || !shape.iter().enumerate().all(is_whole) {
        return Err("slices that are not whole rows at the first axes have no portable form".into());
    }
    let kept: Vec<Dim> = shape.get(axes.len()..).unwrap_or_default().to_vec();
    let ty = calls.ty(out)?;
    let picked = ty.shape.len().saturating_sub(shape.len());
    let picked = [&ty.shape[..picked], &kept].concat();
    let sizes = ty.shape.iter().map(|dim| dim.as_known()).collect::<Option<Vec<i64>>>();
    let sizes = sizes.ok_or("picked elements whose number is known at run time only")?;
    let mut list = Vec::new();
    for &index in indices {
        list.push(Some(calls.tensor(index)?));
    }
    let operands = [calls.tensor(x)?, calls.method.optional_tensors(&list)];
    let flat = calls.fresh(ty.dtype, picked)?;
    calls.call("aten::index", "Tensor_out", &operands, flat);
    let sizes = calls.ints(&sizes);
    written(calls, out, "aten::view_copy", "out", &[flat, sizes])
}

/// The smallest of all elements along an axis, in order: elements, or where they are.
fn ascending(calls: &mut Calls<'_>, x: ValueId, axis: i32, is_values: bool, out: ValueId) -> Done {
    let ty = calls.ty(x)?;
    let size = ty.shape.get(counted(axis, ty.shape.len())?).and_then(Dim::as_known);
    let size = size.ok_or("an axis is ordered whose size is known at run time only")?;
    let mut arguments = vec![calls.tensor(x)?, calls.int(size), calls.int(axis.into())];
    arguments.extend([calls.bool(false), calls.bool(true)]);
    let given = calls.result(out)?;
    let other = calls.fresh(if is_values { DType::I64 } else { ty.dtype }, ty.shape.clone())?;
    let both = if is_values { [given, other] } else { [other, given] };
    arguments.extend(both);
    arguments.push(calls.method.tensors(&both));
    calls.method.kernel("aten::topk", "values", &arguments);
    Ok(())
}

/// One number everywhere: where it is one element, from the file.
fn full(calls: &mut Calls<'_>, shape: &[IntArg<ValueId>], number: f64, dtype: DType, out: ValueId) -> Done {
    if shape.is_empty()
        && let Some(tensor) = one_number(number, held_as(dtype)?)
    {
        calls.hold(out, Held::Constant(tensor));
        return Ok(());
    }
    let operands = [calls.ints_of(shape)?, calls.double(number)];
    written(calls, out, "aten::full", "out", &operands)
}

/// A number as a tensor without axes, of the dtypes whose numbers Rust has.
fn one_number(number: f64, dtype: DType) -> Option<HostTensor> {
    let shape = Vec::new();
    match dtype {
        DType::F32 => HostTensor::from_slice(shape, &[number as f32]),
        DType::I64 => HostTensor::from_slice(shape, &[number as i64]),
        DType::I32 => HostTensor::from_slice(shape, &[number as i32]),
        DType::I16 => HostTensor::from_slice(shape, &[number as i16]),
        DType::I8 => HostTensor::from_slice(shape, &[number as i8]),
        DType::U8 => HostTensor::from_slice(shape, &[number as u8]),
        DType::Bool => HostTensor::from_bools(shape, &[number != 0.0]),
        _ => return None,
    }
    .ok()
}

/// Kernels have channels before rows; the catalogue has them last.
fn convolution(
    calls: &mut Calls<'_>,
    (x, w, out): (ValueId, ValueId, ValueId),
    [stride, padding, dilation, output_padding]: [&[i32]; 4],
    groups: i32,
    is_transposed: bool,
) -> Done {
    let rank = stride.len() + 2;
    let channels_first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let channels_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let input = calls.in_order_of(x, &channels_first)?;
    let weight = if is_transposed {
        inputs_first(calls, w, groups)?
    } else {
        calls.in_order_of(w, &channels_first)?
    };
    let mut arguments = vec![input, weight, calls.null()];
    for list in [stride, padding, dilation] {
        arguments.push(list_of(calls, list));
    }
    arguments.push(calls.bool(is_transposed));
    arguments.push(list_of(calls, output_padding));
    arguments.push(calls.int(groups.into()));
    let ty = calls.ty(out)?;
    let shape: Vec<Dim> = channels_first.iter().filter_map(|&axis| ty.shape.get(axis).cloned()).collect();
    let to = calls.fresh(ty.dtype, shape)?;
    calls.call("aten::convolution", "out", &arguments, to);
    calls.hold(out, Held::Turned(to, channels_last));
    Ok(())
}

fn list_of(calls: &mut Calls<'_>, list: &[i32]) -> ValueIndex {
    let list: Vec<i64> = list.iter().map(|&number| number.into()).collect();
    calls.ints(&list)
}

/// Kernels [outputs, places, inputs of a group] of a transposed convolution as [inputs, outputs of a group, places].
fn inputs_first(calls: &mut Calls<'_>, w: ValueId, groups: i32) -> Result<ValueIndex, String> {
    let rank = calls.rank(w)?;
    let order = |from: usize| [from + rank - 1, from].into_iter().chain(from + 1..from + rank - 1);
    if groups == 1 {
        return calls.in_order_of(w, &order(0).collect::<Vec<_>>());
    }
    let Held::Constant(kernels) = calls.held(w)?.clone() else {
        return Err("a transposed convolution in groups whose kernels are computed".into());
    };
    let groups = usize::try_from(groups).map_err(|_| format!("{groups} groups"))?;
    let shape = kernels.shape().to_vec();
    let outputs = shape[0].checked_div(groups).unwrap_or(0);
    let apart = [&[groups, outputs], &shape[1..]].concat();
    let joined = [&[groups * shape[rank - 1], outputs], &shape[1..rank - 1]].concat();
    let apart = kernels.reshaped(apart).map_err(|error| error.to_string())?;
    let turned: Vec<usize> = [0].into_iter().chain(order(1)).collect();
    let turned = super::calls::permuted(&apart, &turned)?;
    let turned = turned.reshaped(joined).map_err(|error| error.to_string())?;
    calls.constant(&turned)
}

/// An axis counted from the front.
fn counted(axis: i32, rank: usize) -> Result<usize, String> {
    let from_front = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    let found = usize::try_from(from_front).ok().filter(|axis| *axis < rank);
    found.ok_or_else(|| format!("there is no axis {axis}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_one_row() {
        let mut seen = std::collections::HashSet::new();
        assert!(ELEMENT_WISE.iter().all(|row| seen.insert(row.0)));
        assert!(INTEGERS.iter().all(|row| seen.insert(row.0)));
    }
}
