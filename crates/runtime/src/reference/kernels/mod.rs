//! One kernel per op: scalar, safe, obvious. Type rules have already checked shapes and dtypes and computed the
//! results' types when a kernel runs, so a kernel only computes. Floats are computed in f64 (sums of products in
//! f32) and rounded once, integers in i128 and wrapped once.
//!
//! [`compute`] is the table of contents: one arm per op, each short enough to say what the op computes or where.

mod attention;
pub(crate) mod cache;
mod conv;
mod create;
mod elementwise;
mod floats;
mod functions;
mod index;
mod lanes;
mod matmul;
pub(crate) mod metal;
mod norm;
mod offsets;
mod operands;
mod order;
mod quantized;
pub(crate) mod random;
mod reduce;
mod rope;
mod scalar;
mod shape;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(test)]
mod trial;

pub(crate) use lanes::cast;
pub use operands::KernelError;
pub(crate) use operands::{Computed, Datum, Operands, ResultType};
pub(crate) use scalar::compute_scalar;

use attention::SdpaFields;
use conv::{Direction, axes, conv};
use elementwise::{bits2, compare, float, float2, number, number2, rounding, truth, truth2};
use functions::{erf, gelu, gelu_tanh, maximum, minimum, sign};
use pteron_ir::{Op, Ssa};
use pteron_tensor::HostTensor;
use quantized::WeightFields;
use rope::RopeFields;
use std::cmp::Ordering::{Equal, Greater, Less};

/// The tensors that an op gives. Ops that give numbers go to [`compute_scalar`]; those that need more than their
/// operands (bodies, the session's cache and generator) are the interpreter's, and so are those that stand for others.
pub(crate) fn compute(op: &Op<Ssa>, operands: &mut Operands<'_>) -> Result<Vec<HostTensor>, KernelError> {
    let on = operands;
    let result = match op {
        Op::Noop {} => return Ok(Vec::new()),
        Op::IdCopy { x } | Op::Contiguous { x } => on.take(*x),

        // Numbers to numbers.
        Op::Abs { x } => number(on, *x, f64::abs, i128::abs),
        Op::Neg { x } => number(on, *x, |x| -x, |x| -x),
        Op::Square { x } => number(on, *x, |x| x * x, |x| x.wrapping_mul(x)),
        Op::Sign { x } => number(on, *x, sign, i128::signum),
        Op::Floor { x } => rounding(on, *x, f64::floor),
        Op::Ceil { x } => rounding(on, *x, f64::ceil),
        Op::Trunc { x } => rounding(on, *x, f64::trunc),
        Op::Round { x, decimals } => elementwise::round(on, *x, *decimals),
        Op::Gelu { x, approximate } if approximate == "tanh" => float(on, *x, gelu_tanh),
        Op::Gelu { x, .. } => float(on, *x, gelu),
        Op::Silu { x } => float(on, *x, functions::silu),
        Op::Sigmoid { x } => float(on, *x, functions::sigmoid),
        Op::Erf { x } => float(on, *x, erf),
        Op::Exp { x } => float(on, *x, f64::exp),
        Op::Expm1 { x } => float(on, *x, f64::exp_m1),
        Op::Log { x } => float(on, *x, f64::ln),
        Op::Log2 { x } => float(on, *x, f64::log2),
        Op::Log10 { x } => float(on, *x, f64::log10),
        Op::Log1p { x } => float(on, *x, f64::ln_1p),
        Op::Sqrt { x } => float(on, *x, f64::sqrt),
        Op::Rsqrt { x } => float(on, *x, |x| 1.0 / x.sqrt()),
        Op::Reciprocal { x } => float(on, *x, f64::recip),
        Op::Sin { x } => float(on, *x, f64::sin),
        Op::Cos { x } => float(on, *x, f64::cos),
        Op::Tan { x } => float(on, *x, f64::tan),
        Op::Arcsin { x } => float(on, *x, f64::asin),
        Op::Arccos { x } => float(on, *x, f64::acos),
        Op::Arctan { x } => float(on, *x, f64::atan),
        Op::Sinh { x } => float(on, *x, f64::sinh),
        Op::Cosh { x } => float(on, *x, f64::cosh),
        Op::Tanh { x } => float(on, *x, f64::tanh),
        Op::Arcsinh { x } => float(on, *x, f64::asinh),
        Op::Arccosh { x } => float(on, *x, f64::acosh),
        Op::Arctanh { x } => float(on, *x, f64::atanh),
        Op::LogicalNot { x } => truth(on, *x, |x| !x),
        Op::BitwiseInvert { x } => elementwise::invert(on, *x),
        Op::AsType { x, scalar_type } => cast(on.tensor(*x)?, *scalar_type),

        // Two numbers to one.
        Op::Add { a, b } => number2(on, *a, *b, |a, b| a + b, i128::wrapping_add),
        Op::Subtract { a, b } => number2(on, *a, *b, |a, b| a - b, i128::wrapping_sub),
        Op::Multiply { a, b } => number2(on, *a, *b, |a, b| a * b, i128::wrapping_mul),
        Op::Divide { a, b } => float2(on, *a, *b, |a, b| a / b),
        Op::FloorDivide { a, b } => number2(on, *a, *b, functions::floor_divide, functions::floor_divide_int),
        Op::Remainder { a, b } => number2(on, *a, *b, functions::remainder, functions::remainder_int),
        Op::Power { a, b } => number2(on, *a, *b, f64::powf, functions::power_int),
        Op::Maximum { a, b } => number2(on, *a, *b, maximum, maximum),
        Op::Minimum { a, b } => number2(on, *a, *b, minimum, minimum),
        Op::Atan2 { a, b } => float2(on, *a, *b, f64::atan2),
        Op::LogAddExp { a, b } => float2(on, *a, *b, functions::log_add_exp),
        Op::Less { a, b } => compare(on, *a, *b, |order| order == Some(Less)),
        Op::LessEqual { a, b } => compare(on, *a, *b, |order| matches!(order, Some(Less | Equal))),
        Op::Greater { a, b } => compare(on, *a, *b, |order| order == Some(Greater)),
        Op::GreaterEqual { a, b } => compare(on, *a, *b, |order| matches!(order, Some(Greater | Equal))),
        Op::Equal { a, b } => compare(on, *a, *b, |order| order == Some(Equal)),
        Op::NotEqual { a, b } => compare(on, *a, *b, |order| order != Some(Equal)),
        Op::LogicalAnd { a, b } => truth2(on, *a, *b, |a, b| a && b),
        Op::LogicalOr { a, b } => truth2(on, *a, *b, |a, b| a || b),
        Op::BitwiseAnd { a, b } => bits2(on, *a, *b, |a, b| a & b),
        Op::BitwiseOr { a, b } => bits2(on, *a, *b, |a, b| a | b),
        Op::BitwiseXor { a, b } => bits2(on, *a, *b, |a, b| a ^ b),
        Op::Where { condition, x, y } => elementwise::choose(on, *condition, *x, *y),
        Op::Clip { x, a_min, a_max } => elementwise::clip(on, *x, *a_min, *a_max),

        // Numbers to tensors.
        Op::Full { v, .. } | Op::FullLike { v, .. } => create::full(on, v),
        Op::ARange { start, step, .. } => create::arange(on, start, step),
        Op::Tri { k, .. } => create::tri(on, *k),
        Op::Tril { x, k } => create::lower(on, *x, *k),
        Op::Triu { x, k } => create::upper(on, *x, *k),

        // Folding axes.
        Op::Sum { x, axes, .. } => reduce::sum(on, *x, axes.as_deref()),
        Op::Prod { x, axes, .. } => reduce::product(on, *x, axes.as_deref()),
        Op::Mean { x, axes, .. } => reduce::mean(on, *x, axes.as_deref()),
        Op::Var { x, axes, ddof, .. } => reduce::variance(on, *x, axes.as_deref(), *ddof, |square| square),
        Op::Std { x, axes, ddof, .. } => reduce::variance(on, *x, axes.as_deref(), *ddof, f64::sqrt),
        Op::Max { x, axes, .. } => reduce::max(on, *x, axes.as_deref()),
        Op::Min { x, axes, .. } => reduce::min(on, *x, axes.as_deref()),
        Op::Argmax { x, axis, .. } => reduce::arg(on, *x, *axis, Greater),
        Op::Argmin { x, axis, .. } => reduce::arg(on, *x, *axis, Less),
        Op::Median { x, axes, .. } => reduce::median(on, *x, axes.as_deref()),
        Op::Any { x, axes, .. } => reduce::any(on, *x, axes.as_deref()),
        Op::All { x, axes, .. } => reduce::all(on, *x, axes.as_deref()),
        Op::Cumsum { x, axis, reverse, inclusive } => reduce::cumsum(on, *x, *axis, *reverse, *inclusive),
        Op::LogSumExp { x, axes, .. } => norm::log_sum_exp(on, *x, axes.as_deref()),
        Op::Softmax { x, axis, .. } => norm::softmax(on, *x, *axis),
        Op::RMSNorm { x, weight, eps } => norm::rms_norm(on, *x, *weight, *eps),
        Op::LayerNorm { x, weight, bias, eps } => norm::layer_norm(on, *x, *weight, *bias, *eps),

        // Order along an axis.
        Op::Sort { x, axis } | Op::Partition { x, axis, .. } => order::sort(on, *x, *axis),
        Op::Argsort { x, axis } | Op::ArgPartition { x, axis, .. } => order::argsort(on, *x, *axis),

        // Shapes.
        Op::Reshape { x, .. } | Op::Squeeze { x, .. } | Op::ExpandDims { x, .. } => shape::reshaped(on, *x),
        Op::BroadcastTo { x, .. } => shape::broadcast(on, *x),
        Op::Transpose { x, perm } => shape::transpose(on, *x, perm),
        Op::AsStrided { x, strides, offset, .. } => shape::as_strided(on, *x, strides, *offset),
        Op::Tile { x, reps } => shape::tile(on, *x, reps),
        Op::Repeat { x, repeats, axis } => shape::repeat(on, *x, repeats, *axis),
        Op::Split { x, axis, .. } => return shape::split(on, *x, *axis),
        Op::Slice { x, axis, start, stop, step } => shape::slice(on, *x, axis, start, stop, *step),
        Op::SliceUpdate { dst, update, axis, start, stop, step } => {
            shape::slice_update(on, (*dst, *update), axis, start, stop, *step)
        }
        Op::Concatenate { tensors, axis } => shape::concatenate(on, tensors, *axis),
        Op::Stack { tensors, axis } => shape::stack(on, tensors, *axis),
        Op::Pad { x, pad_width, mode, constant_value } => {
            shape::pad(on, *x, pad_width, mode, *constant_value)
        }
        Op::Roll { x, shift, axes } => shape::roll(on, *x, shift, axes),
        Op::Flip { x, axes } => shape::flip(on, *x, axes),

        // Elements by index.
        Op::Take { x, index, axis } => index::take(on, *x, index, *axis),
        Op::TakeAlongAxis { x, indices, axis } => index::take_along_axis(on, *x, *indices, *axis),
        Op::Gather { x, indices, axes, slice_sizes } => index::gather(on, *x, indices, axes, slice_sizes),
        Op::IndexCopy { dst, update, indices, axis } => {
            index::index_copy(on, (*dst, *update), *indices, *axis)
        }
        Op::ScatterAdd { x, indices, updates, axis } => {
            index::scatter_add(on, (*x, *indices, *updates), *axis)
        }

        // Sums of products.
        Op::Addmm { mat1, mat2, bias, alpha, beta } => matmul::addmm(on, *mat1, *mat2, *bias, *alpha, *beta),
        Op::GatherMm { a, b, lhs_indices, rhs_indices, .. } => {
            matmul::gather_mm(on, *a, *b, *lhs_indices, *rhs_indices)
        }
        Op::Conv1D { x, w, stride, padding, dilation, groups } => {
            conv(on, *x, *w, &axes([*stride], [*padding], [*dilation]), *groups, Direction::Plain)
        }
        #[rustfmt::skip]
        Op::Conv2D {
            x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups,
        } => {
            let axes = axes([*stride_h, *stride_w], [*padding_h, *padding_w], [*dilation_h, *dilation_w]);
            conv(on, *x, *w, &axes, *groups, Direction::Plain)
        }
        #[rustfmt::skip]
        Op::Conv3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
            groups,
        } => {
            let (padding, dilation) = ([*padding_d, *padding_h, *padding_w], [*dilation_d, *dilation_h, *dilation_w]);
            conv(on, *x, *w, &axes([*stride_d, *stride_h, *stride_w], padding, dilation), *groups, Direction::Plain)
        }
        Op::ConvTranspose1D { x, w, stride, padding, dilation, groups, .. } => {
            conv(on, *x, *w, &axes([*stride], [*padding], [*dilation]), *groups, Direction::Transposed)
        }
        #[rustfmt::skip]
        Op::ConvTranspose2D {
            x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, ..
        } => {
            let axes = axes([*stride_h, *stride_w], [*padding_h, *padding_w], [*dilation_h, *dilation_w]);
            conv(on, *x, *w, &axes, *groups, Direction::Transposed)
        }
        #[rustfmt::skip]
        Op::ConvTranspose3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
            groups, ..
        } => {
            let (padding, dilation) = ([*padding_d, *padding_h, *padding_w], [*dilation_d, *dilation_h, *dilation_w]);
            let axes = axes([*stride_d, *stride_h, *stride_w], padding, dilation);
            conv(on, *x, *w, &axes, *groups, Direction::Transposed)
        }
        Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale, .. } => {
            let (group_size, bits) = (*group_size, *bits);
            let weights = WeightFields { w: *w, scales: *scales, biases: *biases, group_size, bits, mode };
            quantized::dequantize(on, weights, *global_scale)
        }
        Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } => {
            let (group_size, bits) = (*group_size, *bits);
            let weights = WeightFields { w: *w, scales: *scales, biases: *biases, group_size, bits, mode };
            quantized::quantized_matmul(on, *x, weights, *transpose)
        }
        #[rustfmt::skip]
        Op::GatherQmm {
            x, w, scales, mode, biases, lhs_indices, rhs_indices, transpose, group_size, bits, ..
        } => {
            let (group_size, bits) = (*group_size, *bits);
            let weights = WeightFields { w: *w, scales: *scales, biases: *biases, group_size, bits, mode };
            quantized::gather_qmm(on, *x, weights, *transpose, (*lhs_indices, *rhs_indices))
        }

        // Positions and attention.
        Op::Rope { x, dims, offset, freqs, traditional, base, scale } => {
            let (traditional, base, scale) = (*traditional, *base, *scale);
            rope::rope(on, *x, &RopeFields { dims: *dims, offset, freqs: *freqs, traditional, base, scale })
        }
        Op::Sdpa { q, k, v, scale, mask, causal } => {
            let fields = SdpaFields { scale: *scale, mask: *mask, causal: *causal };
            attention::sdpa(on, (*q, *k, *v), &fields)
        }

        Op::RandomBits { seed: Some(seed), .. } => random::seeded(on, *seed),
        Op::MetalKernel { inputs, .. } => return metal::metal_kernel(on, op, inputs),

        Op::ItemInt { .. }
        | Op::SymSize { .. }
        | Op::AddInt { .. }
        | Op::SubtractInt { .. }
        | Op::MultiplyInt { .. }
        | Op::FloorDivideInt { .. }
        | Op::ModInt { .. }
        | Op::If { .. }
        | Op::Scan { .. }
        | Op::UpdateAndAttend { .. }
        | Op::RandomBits { seed: None, .. }
        | Op::AddRmsNorm { .. }
        | Op::Projections { .. }
        | Op::GatedProjection { .. }
        | Op::RopeUpdate { .. }
        | Op::PackedEmbedding { .. } => {
            return Err(KernelError::Invalid("handled by the interpreter".into()));
        }
    };
    Ok(vec![result?])
}
