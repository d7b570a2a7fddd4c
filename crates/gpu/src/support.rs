//! Which ops have kernels: said of every node when a program is loaded, so that what has none runs elsewhere.

use crate::features::Features;
use crate::kernel::{MOST_FEATURES, MOST_KEY_FEATURES};
use crate::lower::Convolution;
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, OpKind, Ssa, TensorType, Type, TypeSource, ValueId};
use pteron_tensor::DType;
use pteron_tensor::quant::{Mode, Scheme};

/// The most axes of a tensor in a kernel.
const MOST_AXES: usize = 8;

/// Decimals of integers from which on powers of ten fit 64 bits.
const LEAST_DECIMALS: i32 = -18;

/// Whether an op folds axes to one element.
pub(crate) fn is_reduction(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Sum
            | OpKind::Mean
            | OpKind::Prod
            | OpKind::Max
            | OpKind::Min
            | OpKind::Any
            | OpKind::All
            | OpKind::Var
            | OpKind::Std
            | OpKind::LogSumExp
            | OpKind::Argmax
            | OpKind::Argmin
    )
}

/// Whether an op has kernels on a device of these features; else why not.
pub fn supports(op: &Op<Ssa>, types: &dyn TypeSource, features: &Features) -> Result<(), &'static str> {
    let tensor = |value: ValueId| match types.type_of(value) {
        Some(Type::Tensor(tensor)) => Some(tensor),
        _ => None,
    };
    let (mut wide, mut deep, mut double) = (false, false, false);
    op.for_each_tensor(|value| {
        if let Some(ty) = tensor(value) {
            wide |= ty.dtype.size() == 8;
            double |= ty.dtype == DType::F64;
            deep |= ty.shape.len() > MOST_AXES;
        }
    });
    let makes = match op {
        Op::AsType { scalar_type, .. } | Op::Full { scalar_type, .. } | Op::Tri { scalar_type, .. } => {
            Some(*scalar_type)
        }
        Op::FullLike { scalar_type, .. } | Op::ARange { scalar_type, .. } => *scalar_type,
        _ => None,
    };
    wide |= makes.is_some_and(|dtype| dtype.size() == 8);
    double |= makes == Some(DType::F64);
    if double {
        return Err("it has no kernels for f64");
    }
    if deep {
        return Err("a tensor has more axes than its kernels know");
    }
    let is_narrow = |value: ValueId| tensor(value).is_some_and(|ty| ty.dtype.size() < 8);
    let by_index = matches!(
        op,
        Op::Take { .. }
            | Op::TakeAlongAxis { .. }
            | Op::Gather { .. }
            | Op::IndexCopy { .. }
            | Op::GatherMm { .. }
            | Op::GatherQmm { .. }
            | Op::ItemInt { .. }
    ) || matches!(op, Op::ScatterAdd { x, updates, .. } if is_narrow(*x) && is_narrow(*updates));
    if wide && !features.int64 && !by_index && !is_view(op) {
        return Err("the device has no integers of 64 bits");
    }
    let float = |value: ValueId| tensor(value).is_some_and(|ty| ty.dtype.is_float());
    match op {
        Op::Noop {} | Op::ItemInt { .. } | Op::SymSize { .. } => Ok(()),
        Op::AddInt { .. } | Op::SubtractInt { .. } | Op::MultiplyInt { .. } => Ok(()),
        Op::FloorDivideInt { .. } | Op::ModInt { .. } => Ok(()),
        _ if is_view(op) || is_elementwise(op.kind()) || is_reduction(op.kind()) => Ok(()),
        Op::Round { x, decimals } if float(*x) || *decimals >= LEAST_DECIMALS => Ok(()),
        Op::Round { .. } => Err("it has no kernel for so large a unit"),
        Op::Full { .. } | Op::FullLike { .. } | Op::ARange { .. } => Ok(()),
        Op::Tri { .. } | Op::Tril { .. } | Op::Triu { .. } => Ok(()),
        Op::Concatenate { .. } | Op::Stack { .. } | Op::Tile { .. } | Op::Repeat { .. } => Ok(()),
        Op::AsStrided { .. } | Op::SliceUpdate { .. } => Ok(()),
        Op::Pad { .. } | Op::Roll { .. } | Op::Cumsum { .. } | Op::Median { .. } => Ok(()),
        Op::ScatterAdd { indices, .. } if tensor(*indices).is_some_and(is_index) => Ok(()),
        Op::RandomBits { seed: Some(_), .. } => Ok(()),
        Op::RandomBits { seed: None, .. } => Err("the session's generator is on the host"),
        Op::MetalKernel { name, inputs, .. } if name == "gated_delta_step" => {
            let features = inputs.first().and_then(|&keys| tensor(keys)?.shape.last()?.as_known());
            match features.is_some_and(|features| features <= MOST_KEY_FEATURES as i64) {
                true => Ok(()),
                false => Err("heads of this size have no kernel"),
            }
        }
        Op::MetalKernel { .. } => Err("this known kernel is the host's alone"),
        _ if Convolution::of(op).is_some_and(|what| what.fits()) => Ok(()),
        _ if Convolution::of(op).is_some() => Err("its border is larger than its kernels count"),
        Op::Take { index: IndexArg::Tensor(index), .. } if tensor(*index).is_some_and(is_index) => Ok(()),
        Op::Take { index: IndexArg::Literal(_) | IndexArg::Value(_), .. } => Ok(()),
        Op::TakeAlongAxis { indices, .. } if tensor(*indices).is_some_and(is_index) => Ok(()),
        Op::IndexCopy { indices, .. } if tensor(*indices).is_some_and(is_index) => Ok(()),
        // Parameters, the result, what is picked from, and what tells of indices outside their axes are seen too.
        Op::Gather { indices, .. } if indices.len() + 4 <= features.max_bindings as usize => {
            match indices.iter().all(|&index| tensor(index).is_some_and(is_index)) {
                true => Ok(()),
                false => Err("indices of this dtype have no kernel"),
            }
        }
        Op::Softmax { .. } => Ok(()),
        Op::RMSNorm { x, .. } | Op::LayerNorm { x, .. } | Op::Rope { x, .. } if float(*x) => Ok(()),
        Op::Addmm { .. } => Ok(()),
        Op::QuantizedMatmul { w, scales, biases, group_size, bits, mode, .. } => {
            let flat = tensor(*w).is_some_and(|ty| ty.shape.len() == 2);
            match flat && is_packed(tensor(*scales), biases.and_then(tensor), *group_size, *bits, mode) {
                true => Ok(()),
                false => Err("this form of quantised weights has no kernel"),
            }
        }
        Op::GatherQmm { w, scales, biases, group_size, bits, mode, lhs_indices, rhs_indices, .. } => {
            let are_indices =
                |picks: Option<ValueId>| picks.is_none_or(|picks| tensor(picks).is_some_and(is_index));
            let flat = tensor(*w).is_some_and(|ty| ty.shape.len() == 2);
            let fits =
                are_indices(*lhs_indices) && are_indices(*rhs_indices) && (flat || rhs_indices.is_some());
            match fits && is_packed(tensor(*scales), biases.and_then(tensor), *group_size, *bits, mode) {
                true => Ok(()),
                false => Err("this form of quantised weights has no kernel"),
            }
        }
        Op::GatherMm { lhs_indices, rhs_indices, .. }
            if [lhs_indices, rhs_indices]
                .into_iter()
                .flatten()
                .all(|&picks| tensor(picks).is_some_and(is_index)) =>
        {
            Ok(())
        }
        Op::GatherMm { .. } => Err("rows that indices pick have no kernel"),
        Op::Argsort { .. } | Op::Sort { .. } | Op::ArgPartition { .. } | Op::Partition { .. } => Ok(()),
        Op::Dequantize { scales, biases, group_size, bits, mode, .. }
            if is_packed(tensor(*scales), biases.and_then(tensor), *group_size, *bits, mode) =>
        {
            Ok(())
        }
        Op::Sdpa { q, k, v, .. } => {
            let fits = |value: ValueId| {
                tensor(value)
                    .and_then(|ty| ty.shape.last()?.as_known())
                    .is_some_and(|size| size <= MOST_FEATURES as i64)
            };
            let same = tensor(*k).map(|ty| ty.dtype) == tensor(*v).map(|ty| ty.dtype);
            match same && [*q, *k, *v].into_iter().all(fits) {
                true => Ok(()),
                false => Err("heads of this size have no kernel"),
            }
        }
        Op::UpdateAndAttend { q, k, v, layer_id: Some(_), scale: Some(_), .. } => {
            let fits = |value: ValueId| {
                tensor(value)
                    .and_then(|ty| ty.shape.last()?.as_known())
                    .is_some_and(|size| size <= MOST_FEATURES as i64)
            };
            match [*q, *k, *v].into_iter().all(fits) {
                true => Ok(()),
                false => Err("heads of this size have no kernel"),
            }
        }
        _ => Err("it has no kernel"),
    }
}

fn is_index(ty: &TensorType) -> bool {
    ty.dtype.is_int()
}

/// Rows of a mode: affine ones of 2 to 8 bits with a scale and a bias of one dtype a group, or floats of few bits with scales of one
/// byte.
fn is_packed(
    scales: Option<&TensorType>,
    biases: Option<&TensorType>,
    group: i32,
    bits: i32,
    mode: &str,
) -> bool {
    let Some(scales) = scales else { return false };
    match Mode::from_name(mode) {
        Ok(Mode::Affine) => {
            matches!(bits, 2..=6 | 8)
                && matches!(group, 16 | 32 | 64 | 128)
                && biases.is_some_and(|biases| biases.dtype == scales.dtype)
                && scales.dtype.is_float()
        }
        Ok(mode) => Scheme::new(mode, bits, group).is_ok() && scales.dtype == DType::U8 && biases.is_none(),
        Err(_) => false,
    }
}

fn is_view(op: &Op<Ssa>) -> bool {
    matches!(
        op,
        Op::IdCopy { .. }
            | Op::ExpandDims { .. }
            | Op::Squeeze { .. }
            | Op::Transpose { .. }
            | Op::BroadcastTo { .. }
            | Op::Slice { .. }
            | Op::Split { .. }
            | Op::Flip { .. }
            | Op::Reshape { .. }
            | Op::Contiguous { .. }
    )
}

fn is_elementwise(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::AsType
            | OpKind::Abs
            | OpKind::Neg
            | OpKind::Square
            | OpKind::Sign
            | OpKind::Floor
            | OpKind::Ceil
            | OpKind::Trunc
            | OpKind::Gelu
            | OpKind::Silu
            | OpKind::Sigmoid
            | OpKind::Tanh
            | OpKind::Erf
            | OpKind::Exp
            | OpKind::Expm1
            | OpKind::Log
            | OpKind::Log2
            | OpKind::Log10
            | OpKind::Log1p
            | OpKind::Sqrt
            | OpKind::Rsqrt
            | OpKind::Reciprocal
            | OpKind::Sin
            | OpKind::Cos
            | OpKind::Tan
            | OpKind::Arcsin
            | OpKind::Arccos
            | OpKind::Arctan
            | OpKind::Atan2
            | OpKind::Remainder
            | OpKind::FloorDivide
            | OpKind::Power
            | OpKind::Sinh
            | OpKind::Cosh
            | OpKind::Arcsinh
            | OpKind::Arccosh
            | OpKind::Arctanh
            | OpKind::LogicalNot
            | OpKind::BitwiseInvert
            | OpKind::Add
            | OpKind::Subtract
            | OpKind::Multiply
            | OpKind::Divide
            | OpKind::LogAddExp
            | OpKind::Maximum
            | OpKind::Minimum
            | OpKind::Less
            | OpKind::LessEqual
            | OpKind::Greater
            | OpKind::GreaterEqual
            | OpKind::Equal
            | OpKind::NotEqual
            | OpKind::LogicalAnd
            | OpKind::LogicalOr
            | OpKind::BitwiseAnd
            | OpKind::BitwiseOr
            | OpKind::BitwiseXor
            | OpKind::Where
            | OpKind::Clip
    )
}
