//! What every op of the catalogue is on MLX: one exhaustive match, so that the compiler names what is missing when an
//! op is added. Type rules have checked shapes and dtypes before an op comes here, and said what its results are.
//!
//! Where MLX's own function strays from what programs mean (an axis of a scalar, 16-bit sums, reads beyond the end of
//! a tensor, casts that C++ leaves open), the op is put together from several of its functions. Indices that only the
//! data tell are checked by [`Guard`]s: the read is made safe, and whether it had to be is told after the run.

mod attention;
mod elementwise;
mod index;
mod kernels;
mod linear;
mod metal;
mod reduce;
mod shape;

pub(crate) use attention::{attend, compute_dtype};
pub(crate) use elementwise::scalar_tensor;

use crate::calls::{Call, Mlx};
use crate::error::{MlxError, invalid};
use crate::ffi::{Array, Attributes, DeviceKind, Shared};
use crate::values::{ArrayType, Tensor, Values};
use linear::Axes;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::{DType, Scalar};

/// Something that only the data tell, and that an op cannot have.
#[derive(Debug)]
pub(crate) struct Guard {
    /// One i64: the number that is wrong, or [`Guard::FINE`].
    pub(crate) found: Array,
    /// What is wrong then, with `{}` in the number's place.
    pub(crate) problem: String,
    /// What it looks at, where that is what a compiled piece takes.
    pub(crate) taken: Option<TakenIndices>,
}

/// Indices that a compiled piece takes, and what they are held to: who calls it may know them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenIndices {
    /// Their place among what the piece takes.
    pub(crate) number: usize,
    pub(crate) least: i64,
    pub(crate) most: i64,
}

impl Guard {
    /// What a guard finds where nothing is wrong.
    pub(crate) const FINE: i64 = i64::MIN;
}

/// What an op is given: its operands by value, the types of its results, and where its guards go.
pub(crate) struct Operands<'a> {
    pub(crate) mlx: Mlx,
    pub(crate) values: &'a Values,
    pub(crate) results: &'a [ArrayType],
    pub(crate) guards: &'a mut Vec<Guard>,
}

/// One array, or why not.
type Lowered = Result<Array, MlxError>;

impl<'a> Operands<'a> {
    fn tensor(&self, value: ValueId) -> Result<&'a Tensor, MlxError> {
        self.values.tensor(value)
    }

    fn array(&self, value: ValueId) -> Result<&'a Array, MlxError> {
        Ok(&self.values.tensor(value)?.array)
    }

    fn ty(&self, value: ValueId) -> Result<&'a ArrayType, MlxError> {
        Ok(&self.values.tensor(value)?.ty)
    }

    fn maybe(&self, value: Option<ValueId>) -> Result<Option<&'a Array>, MlxError> {
        value.map(|value| self.array(value)).transpose()
    }

    fn int(&self, arg: &IntArg<ValueId>) -> Result<i64, MlxError> {
        self.values.int(arg)
    }

    fn ints(&self, args: &[IntArg<ValueId>]) -> Result<Vec<i64>, MlxError> {
        args.iter().map(|arg| self.int(arg)).collect()
    }

    fn number(&self, arg: &FloatArg<ValueId>) -> Result<Scalar, MlxError> {
        self.values.number(arg)
    }

    /// The type of the first result.
    fn out(&self) -> &'a ArrayType {
        &self.results[0]
    }

    fn on_cpu(&self) -> bool {
        self.mlx.device.kind == DeviceKind::Cpu
    }

    fn unary(&self, call: Call, x: ValueId) -> Lowered {
        self.mlx.one(call, &[self.array(x)?], &[])
    }

    fn binary(&self, call: Call, a: ValueId, b: ValueId) -> Lowered {
        self.mlx.one(call, &[self.array(a)?, self.array(b)?], &[])
    }

    fn cast(&self, x: &Array, dtype: DType) -> Lowered {
        self.mlx.one(Call::AsType, &[x], &[dtype.code().into()])
    }

    /// A tensor in f32 where it has 16 bits: MLX's CPU code would sum in those.
    fn widened(&self, x: ValueId) -> Lowered {
        let tensor = self.tensor(x)?;
        if matches!(tensor.ty.dtype, DType::F16 | DType::BF16) {
            self.cast(&tensor.array, DType::F32)
        } else {
            tensor.array.share()
        }
    }

    /// A tensor in f32 where it has 16 bits or no fraction: MLX folds integers as integers.
    fn floats(&self, x: ValueId) -> Lowered {
        match self.ty(x)?.dtype {
            DType::F64 => self.array(x)?.share(),
            _ => self.cast(self.array(x)?, DType::F32),
        }
    }

    fn reshape(&self, x: &Array, shape: &[usize]) -> Lowered {
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        self.mlx.one(Call::Reshape, &[x], &sizes)
    }

    /// One number, as a tensor without axes.
    fn constant(&self, value: Scalar, dtype: DType) -> Lowered {
        self.mlx.copy(&scalar_tensor(value, dtype)?)
    }

    fn full(&self, value: Scalar, ty: &ArrayType) -> Lowered {
        self.mlx.one(Call::Full, &[&self.constant(value, ty.dtype)?], &ty.ints())
    }
}

/// Computes an op: arrays of exactly the types of `operands.results`. Ops that give numbers, have bodies or reach
/// into the session are for whoever runs the graph.
pub(crate) fn lower(op: &Op<Ssa>, operands: &mut Operands<'_>) -> Result<Vec<Array>, MlxError> {
    // MLX has its own mind about empty tensors; there is nothing to compute in them.
    if operands.results.iter().all(|ty| ty.count() == 0) {
        return operands.results.iter().map(|ty| operands.full(Scalar::Int(0), ty)).collect();
    }
    let arrays = compute(op, operands)?;
    if arrays.len() != operands.results.len() {
        return invalid(format!("{} results where {} are declared", arrays.len(), operands.results.len()));
    }
    let settled = arrays.into_iter().zip(operands.results).map(|(array, ty)| settle(operands, array, ty));
    settled.collect()
}

/// The array in exactly the type that the op's rule gives.
fn settle(on: &Operands<'_>, array: Array, ty: &ArrayType) -> Lowered {
    let (dtype, shape) = array.ty().ok_or(MlxError::DType)?;
    let array = if dtype == ty.dtype { array } else { on.cast(&array, ty.dtype)? };
    if shape == ty.shape {
        return Ok(array);
    }
    if pteron_tensor::element_count(&shape) == Some(ty.count()) {
        return on.reshape(&array, &ty.shape);
    }
    invalid(format!("MLX gives {shape:?} where {ty} is right"))
}

fn compute(op: &Op<Ssa>, on: &mut Operands<'_>) -> Result<Vec<Array>, MlxError> {
    let result = match op {
        Op::Noop {} => return Ok(Vec::new()),
        Op::IdCopy { x } => on.array(*x)?.share(),
        Op::Contiguous { x } => on.unary(Call::Contiguous, *x),

        // Numbers to numbers.
        Op::Abs { x } => on.unary(Call::Abs, *x),
        Op::Neg { x } => on.unary(Call::Negative, *x),
        Op::Square { x } => on.unary(Call::Square, *x),
        Op::Sign { x } => on.unary(Call::Sign, *x),
        Op::Floor { x } => elementwise::rounded(on, Call::Floor, *x),
        Op::Ceil { x } => elementwise::rounded(on, Call::Ceil, *x),
        Op::Trunc { x } => elementwise::rounded(on, Call::Trunc, *x),
        Op::Round { x, decimals } => elementwise::round(on, *x, *decimals),
        Op::Gelu { x, approximate } => elementwise::gelu(on, *x, approximate == "tanh"),
        Op::Silu { x } => elementwise::silu(on, *x),
        Op::Sigmoid { x } => elementwise::sigmoid(on, *x),
        Op::Erf { x } => on.unary(Call::Erf, *x),
        Op::Exp { x } => on.unary(Call::Exp, *x),
        Op::Expm1 { x } => on.unary(Call::Expm1, *x),
        Op::Log { x } => on.unary(Call::Log, *x),
        Op::Log2 { x } => on.unary(Call::Log2, *x),
        Op::Log10 { x } => on.unary(Call::Log10, *x),
        Op::Log1p { x } => on.unary(Call::Log1p, *x),
        Op::Sqrt { x } => on.unary(Call::Sqrt, *x),
        Op::Rsqrt { x } => on.unary(Call::Rsqrt, *x),
        Op::Reciprocal { x } => on.unary(Call::Reciprocal, *x),
        Op::Sin { x } => on.unary(Call::Sin, *x),
        Op::Cos { x } => on.unary(Call::Cos, *x),
        Op::Tan { x } => on.unary(Call::Tan, *x),
        Op::Arcsin { x } => on.unary(Call::Arcsin, *x),
        Op::Arccos { x } => on.unary(Call::Arccos, *x),
        Op::Arctan { x } => on.unary(Call::Arctan, *x),
        Op::Sinh { x } => on.unary(Call::Sinh, *x),
        Op::Cosh { x } => on.unary(Call::Cosh, *x),
        Op::Tanh { x } => on.unary(Call::Tanh, *x),
        Op::Arcsinh { x } => on.unary(Call::Arcsinh, *x),
        Op::Arccosh { x } => on.unary(Call::Arccosh, *x),
        Op::Arctanh { x } => on.unary(Call::Arctanh, *x),
        Op::LogicalNot { x } => on.unary(Call::LogicalNot, *x),
        Op::BitwiseInvert { x } => on.unary(Call::BitwiseInvert, *x),
        Op::AsType { x, scalar_type } => elementwise::as_type(on, *x, *scalar_type),

        // Two numbers to one.
        Op::Add { a, b } => on.binary(Call::Add, *a, *b),
        Op::Subtract { a, b } => on.binary(Call::Subtract, *a, *b),
        Op::Multiply { a, b } => on.binary(Call::Multiply, *a, *b),
        Op::Divide { a, b } => on.binary(Call::Divide, *a, *b),
        Op::FloorDivide { a, b } => elementwise::floor_divide(on, *a, *b),
        Op::Remainder { a, b } => elementwise::remainder(on, *a, *b),
        Op::Power { a, b } => on.binary(Call::Power, *a, *b),
        Op::Maximum { a, b } => on.binary(Call::Maximum, *a, *b),
        Op::Minimum { a, b } => on.binary(Call::Minimum, *a, *b),
        Op::Atan2 { a, b } => on.binary(Call::Arctan2, *a, *b),
        Op::LogAddExp { a, b } => on.mlx.one(Call::LogAddExp, &[&on.widened(*a)?, &on.widened(*b)?], &[]),
        Op::Less { a, b } => on.binary(Call::Less, *a, *b),
        Op::LessEqual { a, b } => on.binary(Call::LessEqual, *a, *b),
        Op::Greater { a, b } => on.binary(Call::Greater, *a, *b),
        Op::GreaterEqual { a, b } => on.binary(Call::GreaterEqual, *a, *b),
        Op::Equal { a, b } => on.binary(Call::Equal, *a, *b),
        Op::NotEqual { a, b } => on.binary(Call::NotEqual, *a, *b),
        Op::LogicalAnd { a, b } => on.binary(Call::LogicalAnd, *a, *b),
        Op::LogicalOr { a, b } => on.binary(Call::LogicalOr, *a, *b),
        Op::BitwiseAnd { a, b } => on.binary(Call::BitwiseAnd, *a, *b),
        Op::BitwiseOr { a, b } => on.binary(Call::BitwiseOr, *a, *b),
        Op::BitwiseXor { a, b } => on.binary(Call::BitwiseXor, *a, *b),
        Op::Where { condition, x, y } => {
            on.mlx.one(Call::Where, &[on.array(*condition)?, on.array(*x)?, on.array(*y)?], &[])
        }
        Op::Clip { x, a_min: None, a_max: None } => on.array(*x)?.share(),
        Op::Clip { x, a_min, a_max } => {
            // All three in the dtype that they share: MLX would take the bounds one by one.
            let shared = |value: ValueId| on.cast(on.array(value)?, on.out().dtype);
            let (least, most) = (a_min.map(shared).transpose()?, a_max.map(shared).transpose()?);
            let arrays = [Some(&shared(*x)?), least.as_ref(), most.as_ref()];
            on.mlx.with(Call::Clip, &arrays, Attributes::default())
        }

        // Numbers to tensors.
        Op::Full { v, .. } | Op::FullLike { v, .. } => on.full(on.number(v)?, on.out()),
        Op::ARange { start, step, .. } => elementwise::arange(on, start, step),
        Op::Tri { n, m, k, scalar_type } => {
            let ints = [on.int(n)?, on.int(m)?, (*k).into(), scalar_type.code().into()];
            on.mlx.one(Call::Tri, &[], &ints)
        }
        Op::Tril { x, k } => on.mlx.one(Call::Tril, &[on.array(*x)?], &[(*k).into()]),
        Op::Triu { x, k } => on.mlx.one(Call::Triu, &[on.array(*x)?], &[(*k).into()]),

        // Folding axes.
        Op::Sum { x, axes, .. } => {
            reduce::fold(on, Call::Sum, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        Op::Prod { x, axes, .. } => reduce::fold(on, Call::Prod, on.widened(*x)?, *x, axes.as_deref(), &[]),
        Op::Mean { x, axes, .. } => reduce::fold(on, Call::Mean, on.floats(*x)?, *x, axes.as_deref(), &[]),
        Op::Var { x, axes, ddof, .. } => {
            reduce::fold(on, Call::Var, on.floats(*x)?, *x, axes.as_deref(), &[(*ddof).into()])
        }
        Op::Std { x, axes, ddof, .. } => {
            reduce::fold(on, Call::Std, on.floats(*x)?, *x, axes.as_deref(), &[(*ddof).into()])
        }
        Op::Max { x, axes, .. } => {
            reduce::fold(on, Call::Max, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        Op::Min { x, axes, .. } => {
            reduce::fold(on, Call::Min, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        Op::Median { x, axes, .. } => {
            reduce::fold(on, Call::Median, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        Op::Any { x, axes, .. } => {
            reduce::fold(on, Call::Any, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        Op::All { x, axes, .. } => {
            reduce::fold(on, Call::All, on.array(*x)?.share()?, *x, axes.as_deref(), &[])
        }
        // Of nothing; MLX has no such sum.
        Op::LogSumExp { x, .. } if on.ty(*x)?.count() == 0 => {
            on.full(Scalar::Float(f64::NEG_INFINITY), on.out())
        }
        Op::LogSumExp { x, axes, .. } => {
            reduce::fold(on, Call::LogSumExp, on.floats(*x)?, *x, axes.as_deref(), &[])
        }
        Op::Argmax { x, axis, .. } => reduce::along(on, Call::Argmax, on.array(*x)?, *x, *axis, &[1]),
        Op::Argmin { x, axis, .. } => reduce::along(on, Call::Argmin, on.array(*x)?, *x, *axis, &[1]),
        Op::Cumsum { x, axis, reverse, inclusive } => {
            let ints = [(*reverse).into(), (*inclusive).into()];
            reduce::along(on, Call::Cumsum, &on.widened(*x)?, *x, *axis, &ints)
        }
        Op::Softmax { x, axis, .. } => reduce::along(on, Call::Softmax, &on.floats(*x)?, *x, *axis, &[]),
        Op::RMSNorm { x, weight, eps } => {
            let arrays = [Some(on.array(*x)?), on.maybe(*weight)?];
            on.mlx.with(
                Call::RmsNorm,
                &arrays,
                Attributes { floats: &[(*eps).into()], ..Attributes::default() },
            )
        }
        Op::LayerNorm { x, weight, bias, eps } => {
            let arrays = [Some(on.array(*x)?), on.maybe(*weight)?, on.maybe(*bias)?];
            on.mlx.with(
                Call::LayerNorm,
                &arrays,
                Attributes { floats: &[(*eps).into()], ..Attributes::default() },
            )
        }

        // Order along an axis.
        Op::Sort { x, axis } => reduce::along(on, Call::Sort, on.array(*x)?, *x, *axis, &[]),
        Op::Argsort { x, axis } => reduce::along(on, Call::Argsort, on.array(*x)?, *x, *axis, &[]),
        Op::Partition { x, kth, axis } => {
            reduce::along(on, Call::Partition, on.array(*x)?, *x, *axis, &[on.int(kth)?])
        }
        Op::ArgPartition { x, kth, axis } => {
            reduce::along(on, Call::ArgPartition, on.array(*x)?, *x, *axis, &[on.int(kth)?])
        }

        // Shapes.
        Op::Reshape { x, .. } | Op::Squeeze { x, .. } | Op::ExpandDims { x, .. } => {
            on.reshape(on.array(*x)?, &on.out().shape)
        }
        Op::BroadcastTo { x, .. } => on.mlx.one(Call::BroadcastTo, &[on.array(*x)?], &on.out().ints()),
        Op::Transpose { x, perm } => shape::transpose(on, *x, perm),
        Op::AsStrided { x, strides, offset, .. } => shape::as_strided(on, *x, strides, *offset),
        Op::Tile { x, reps } => on.mlx.one(Call::Tile, &[on.array(*x)?], &on.ints(reps)?),
        Op::Repeat { x, repeats, axis } => {
            let axis = shape::axis_of((*axis).into(), on.ty(*x)?.shape.len());
            on.mlx.one(Call::Repeat, &[on.array(*x)?], &[on.int(repeats)?, axis as i64])
        }
        Op::Split { x, axis, .. } => return shape::split(on, *x, *axis),
        Op::Slice { x, axis, start, stop, step } => shape::slice(on, *x, axis, start, stop, *step),
        Op::SliceUpdate { dst, update, axis, start, stop, step } => {
            shape::slice_update(on, (*dst, *update), axis, start, stop, *step)
        }
        Op::Concatenate { tensors, axis } => shape::join(on, Call::Concatenate, tensors, *axis),
        Op::Stack { tensors, axis } => shape::join(on, Call::Stack, tensors, *axis),
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
        Op::Addmm { mat1, mat2, bias, alpha, beta } => linear::addmm(on, *mat1, *mat2, *bias, *alpha, *beta),
        Op::GatherMm { a, b, lhs_indices, rhs_indices, sorted_indices, sorted_indices_flag } => {
            let sorted = linear::sorted(on, *sorted_indices, sorted_indices_flag.as_ref())?;
            linear::gather_mm(on, *a, *b, (*lhs_indices, *rhs_indices), sorted)
        }
        Op::Conv1D { x, w, stride, padding, dilation, groups } => {
            let axes = Axes { stride: &[*stride], padding: &[*padding], dilation: &[*dilation], extra: None };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        #[rustfmt::skip]
        Op::Conv2D {
            x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups,
        } => {
            let (stride, padding) = (&[*stride_h, *stride_w], &[*padding_h, *padding_w]);
            let axes = Axes { stride, padding, dilation: &[*dilation_h, *dilation_w], extra: None };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        #[rustfmt::skip]
        Op::Conv3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
            groups,
        } => {
            let (stride, padding) = (&[*stride_d, *stride_h, *stride_w], &[*padding_d, *padding_h, *padding_w]);
            let axes = Axes { stride, padding, dilation: &[*dilation_d, *dilation_h, *dilation_w], extra: None };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        Op::ConvTranspose1D { x, w, stride, padding, dilation, output_padding, groups } => {
            let extra: Option<&[i32]> = Some(&[*output_padding]);
            let axes = Axes { stride: &[*stride], padding: &[*padding], dilation: &[*dilation], extra };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        #[rustfmt::skip]
        Op::ConvTranspose2D {
            x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, output_padding_h,
            output_padding_w, groups,
        } => {
            let (stride, padding) = (&[*stride_h, *stride_w], &[*padding_h, *padding_w]);
            let extra: Option<&[i32]> = Some(&[*output_padding_h, *output_padding_w]);
            let axes = Axes { stride, padding, dilation: &[*dilation_h, *dilation_w], extra };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        #[rustfmt::skip]
        Op::ConvTranspose3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
            output_padding_d, output_padding_h, output_padding_w, groups,
        } => {
            let (stride, padding) = (&[*stride_d, *stride_h, *stride_w], &[*padding_d, *padding_h, *padding_w]);
            let extra: Option<&[i32]> = Some(&[*output_padding_d, *output_padding_h, *output_padding_w]);
            let axes = Axes { stride, padding, dilation: &[*dilation_d, *dilation_h, *dilation_w], extra };
            linear::conv(on, *x, *w, &axes, *groups)
        }
        Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale, .. } => {
            let weights = linear::Quantized { w: *w, scales: *scales, biases: *biases, mode };
            linear::dequantize(on, &weights, *global_scale, *group_size, *bits)
        }
        Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } => {
            let weights = linear::Quantized { w: *w, scales: *scales, biases: *biases, mode };
            linear::quantized_matmul(on, *x, &weights, *transpose, *group_size, *bits)
        }
        #[rustfmt::skip]
        Op::GatherQmm {
            x, w, scales, mode, biases, lhs_indices, rhs_indices, transpose, group_size, bits, sorted_indices,
            sorted_indices_flag,
        } => {
            let sorted = linear::sorted(on, *sorted_indices, sorted_indices_flag.as_ref())?;
            let weights = linear::Quantized { w: *w, scales: *scales, biases: *biases, mode };
            let form = linear::Form { transpose: *transpose, group_size: *group_size, bits: *bits, sorted };
            linear::gather_qmm(on, *x, &weights, (*lhs_indices, *rhs_indices), form)
        }

        // Positions and attention.
        Op::Rope { x, dims, offset, freqs, traditional, base, scale } => {
            let ints = [(*dims).into(), (*traditional).into()];
            attention::rope(on, *x, offset, *freqs, &ints, &[(*base).into(), (*scale).into()])
        }
        Op::Sdpa { q, k, v, scale, mask, causal } => {
            attention::sdpa(on, (*q, *k, *v), *mask, *causal, *scale)
        }

        Op::RandomBits { seed: Some(seed), width, .. } => {
            let Scalar::Int(seed) = on.values.scalar(*seed)? else {
                return invalid("a seed that is no integer");
            };
            random_bits(on, &on.mlx.copy(&elementwise::random_key(seed as u64)?)?, *width)
        }
        Op::MetalKernel { inputs, .. } => return kernels::metal_kernel(on, op, inputs),

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
        | Op::RandomBits { seed: None, .. } => return invalid("handled by whoever runs the graph"),

        Op::AddRmsNorm { .. }
        | Op::Projections { .. }
        | Op::GatedProjection { .. }
        | Op::RopeUpdate { .. }
        | Op::PackedEmbedding { .. } => {
            return invalid("expanded when the program is loaded");
        }
    };
    Ok(vec![result?])
}

/// Random bits by a key.
fn random_bits(on: &Operands<'_>, key: &Array, width: i32) -> Lowered {
    let ints: Vec<i64> = [width.into()].into_iter().chain(on.out().ints()).collect();
    on.mlx.one(Call::RandomBits, &[key], &ints)
}

/// Random bits without a seed: the key that the session keeps, and the bits.
pub(crate) fn draw(on: &Operands<'_>, key: &Array, width: i32) -> Result<(Array, Array), MlxError> {
    let pairs = on.mlx.one(Call::RandomBits, &[key], &[4, 2, 2])?;
    let row = |at: i64| {
        let row = on.mlx.one(Call::Slice, &[&pairs], &[at, 0, at + 1, 2, 1, 1])?;
        on.reshape(&row, &[2])
    };
    Ok((row(0)?, random_bits(on, &row(1)?, width)?))
}

/// The key of a generator at its seed.
pub(crate) fn key_of(mlx: &Mlx, seed: u64) -> Result<Shared, MlxError> {
    mlx.place(&elementwise::random_key(seed)?)
}
