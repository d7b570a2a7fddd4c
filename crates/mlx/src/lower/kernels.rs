//! The Metal kernels that exporters write, known by name, template arguments and shapes; the source in a file is never
//! looked at. On Apple's GPUs they are Metal kernels of ours ([`super::metal`]), elsewhere what they compute is put
//! together from MLX's own functions: in f32, rounded once.

use super::index::checked_from_front;
use super::metal;
use super::shape::part;
use super::{Guard, Lowered, Operands};
use crate::calls::Call;
use crate::error::{MlxError, invalid};
use crate::ffi::{Array, DeviceKind};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_runtime::reference::{KnownKernel, known_kernel};
use pteron_tensor::quant::BlockFormat;
use pteron_tensor::{DType, HostTensor, Scalar};

/// Computes a node.
pub(super) fn metal_kernel(
    on: &mut Operands<'_>,
    op: &Op<Ssa>,
    inputs: &[ValueId],
) -> Result<Vec<Array>, MlxError> {
    let kernel = known_kernel(op, on.values).map_err(MlxError::Invalid)?;
    if on.mlx.device.kind == DeviceKind::Metal {
        return metal::run(on, kernel, inputs);
    }
    match (kernel, inputs) {
        (KnownKernel::GatedDeltaStep, _) => gated_delta_step(on, inputs),
        (KnownKernel::TqNorm, &[x]) => Ok(vec![tq_norm(on, x)?]),
        (KnownKernel::Tq4Compress, &[values, boundaries]) => Ok(vec![tq4_compress(on, values, boundaries)?]),
        (KnownKernel::TqDequant, &[packed, norms, centroids]) => {
            Ok(vec![tq_dequant(on, packed, norms, centroids)?])
        }
        (KnownKernel::GgufLinear(format), &[x, weight, ref bias @ ..]) => {
            Ok(vec![gguf_linear(on, format, x, weight, bias.first().copied())?])
        }
        (KnownKernel::GgufEmbedding(format), &[weight, indices]) => {
            Ok(vec![gguf_embedding(on, format, weight, indices)?])
        }
        _ => invalid("operands of other numbers than were recognised"),
    }
}

/// Short names for what the kernels below are written in.
impl Operands<'_> {
    fn f32(&self, x: ValueId) -> Lowered {
        self.cast(self.array(x)?, DType::F32)
    }

    fn call(&self, call: Call, a: &Array, b: &Array) -> Lowered {
        self.mlx.one(call, &[a, b], &[])
    }

    fn byte(&self, value: u8) -> Lowered {
        self.constant(Scalar::Int(value.into()), DType::U8)
    }

    /// `(x >> shift) & mask` of bytes.
    fn bits(&self, x: &Array, shift: u8, mask: u8) -> Lowered {
        let shifted =
            if shift == 0 { x.share()? } else { self.call(Call::RightShift, x, &self.byte(shift)?)? };
        self.call(Call::BitwiseAnd, &shifted, &self.byte(mask)?)
    }

    fn concatenated(&self, arrays: &[&Array], axis: i64) -> Lowered {
        self.mlx.one(Call::Concatenate, arrays, &[axis])
    }
}

/// Per time step, with a state of [value feature, key feature] a head: the state fades by `g`, moves toward `v` where
/// it meets `k`, by `beta`, and is read at `q`. Inputs q, k, v, g, beta, state, T.
fn gated_delta_step(on: &mut Operands<'_>, inputs: &[ValueId]) -> Result<Vec<Array>, MlxError> {
    let &[q, k, v, g, beta, state, steps] = inputs else {
        return invalid("other inputs than were recognised");
    };
    let (&[batches, count, key_heads, dk], &[_, _, heads, dv]) =
        (on.ty(q)?.shape.as_slice(), on.ty(v)?.shape.as_slice())
    else {
        return invalid("operands of other ranks than were recognised");
    };
    check_steps(on, steps, count)?;
    let shared = (heads / key_heads) as i64;
    let spread = |x: ValueId| on.mlx.one(Call::Repeat, &[&on.f32(x)?], &[shared, 2]);
    let (q, k, v, g, beta) = (spread(q)?, spread(k)?, on.f32(v)?, on.f32(g)?, on.f32(beta)?);
    let mut state = on.f32(state)?;
    let mut ys = Vec::with_capacity(count);
    for step in 0..count {
        let row = |x: &Array, shape: &[usize], as_shape: &[usize]| {
            on.reshape(&part(on, x, shape, 1, step, step + 1)?, as_shape)
        };
        let (keys, gates) = ([batches, count, heads, dk], [batches, count, heads]);
        let (q, k) = (row(&q, &keys, &[batches, heads, 1, dk])?, row(&k, &keys, &[batches, heads, 1, dk])?);
        let v = row(&v, &[batches, count, heads, dv], &[batches, heads, dv, 1])?;
        let g = row(&g, &gates, &[batches, heads, 1, 1])?;
        let beta = row(&beta, &gates, &[batches, heads, 1, 1])?;
        let read = |state: &Array, at: &Array| {
            let summed = on.mlx.one(Call::Sum, &[&on.call(Call::Multiply, state, at)?], &[0, 3])?;
            on.reshape(&summed, &[batches, heads, dv, 1])
        };
        state = on.call(Call::Multiply, &state, &g)?;
        let delta = on.call(Call::Multiply, &on.call(Call::Subtract, &v, &read(&state, &k)?)?, &beta)?;
        state = on.call(Call::Add, &state, &on.call(Call::Multiply, &delta, &k)?)?;
        ys.push(on.reshape(&read(&state, &q)?, &[batches, heads, dv])?);
    }
    let y = on.mlx.one(Call::Stack, &ys.iter().collect::<Vec<_>>(), &[1])?;
    Ok(vec![y, state])
}

/// The tensor that tells the number of time steps must tell the truth.
pub(super) fn check_steps(on: &mut Operands<'_>, steps: ValueId, count: usize) -> Result<(), MlxError> {
    let number = |value: i64| on.constant(Scalar::Int(value), DType::I64);
    let told = on.cast(on.array(steps)?, DType::I64)?;
    let wrong = on.call(Call::NotEqual, &told, &number(count as i64)?)?;
    let found = on.mlx.one(Call::Where, &[&wrong, &told, &number(Guard::FINE)?], &[])?;
    let problem = format!("T is {{}}, not the {count} time steps of q");
    on.guards.push(Guard { found, problem, taken: None });
    Ok(())
}

fn tq_norm(on: &Operands<'_>, x: ValueId) -> Lowered {
    let last = on.ty(x)?.shape.len() as i64 - 1;
    let squares = on.mlx.one(Call::Square, &[&on.f32(x)?], &[])?;
    on.mlx.one(Call::Sqrt, &[&on.mlx.one(Call::Sum, &[&squares], &[0, last])?], &[])
}

/// A code counts the boundaries below its value; of two codes the first is in the high nibble.
fn tq4_compress(on: &Operands<'_>, values: ValueId, boundaries: ValueId) -> Lowered {
    let shape = &on.ty(values)?.shape;
    let columns = on.reshape(&on.f32(values)?, &[shape.as_slice(), &[1]].concat())?;
    let above = on.call(Call::Greater, &columns, &on.f32(boundaries)?)?;
    let codes = on.mlx.one(Call::Sum, &[&on.cast(&above, DType::U8)?], &[0, shape.len() as i64])?;
    let pairs = [&on.out().shape[..], &[2]].concat();
    let codes = on.reshape(&on.cast(&codes, DType::U8)?, &pairs)?;
    let (high, low) =
        (part(on, &codes, &pairs, pairs.len() - 1, 0, 1)?, part(on, &codes, &pairs, pairs.len() - 1, 1, 2)?);
    on.call(Call::Add, &on.call(Call::Multiply, &high, &on.byte(16)?)?, &low)
}

fn tq_dequant(on: &mut Operands<'_>, packed: ValueId, norms: ValueId, centroids: ValueId) -> Lowered {
    let out = on.out();
    let pairs = [on.ty(packed)?.shape.as_slice(), &[1]].concat();
    let packed = on.array(packed)?;
    let (high, low) = (on.bits(packed, 4, 15)?, on.bits(packed, 0, 15)?);
    let codes =
        on.concatenated(&[&on.reshape(&high, &pairs)?, &on.reshape(&low, &pairs)?], pairs.len() as i64 - 1)?;
    let codes = on.cast(&on.reshape(&codes, &out.shape)?, DType::I32)?;
    // The source holds its centroids in the dtype of the result.
    let centroids = on.cast(&on.cast(on.array(centroids)?, out.dtype)?, DType::F32)?;
    // A code has four bits and there are sixteen centroids.
    let values = on.mlx.one(Call::Take, &[&centroids, &codes], &[0])?;
    on.call(Call::Multiply, &values, &on.f32(norms)?)
}

fn gguf_linear(
    on: &Operands<'_>,
    format: BlockFormat,
    x: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
) -> Lowered {
    let &[columns, bytes] = on.ty(weight)?.shape.as_slice() else {
        return invalid("a weight of another rank");
    };
    let rows = dequantised(on, format, on.array(weight)?, columns, bytes)?;
    let product = on.call(Call::Matmul, &on.f32(x)?, &on.mlx.one(Call::Transpose, &[&rows], &[1, 0])?)?;
    match bias {
        Some(bias) => on.call(Call::Add, &product, &on.f32(bias)?),
        None => Ok(product),
    }
}

fn gguf_embedding(on: &mut Operands<'_>, format: BlockFormat, weight: ValueId, indices: ValueId) -> Lowered {
    let &[size, bytes] = on.ty(weight)?.shape.as_slice() else { return invalid("a weight of another rank") };
    let count = on.ty(indices)?.count();
    let picks = checked_from_front(on, indices, size)?;
    let picks = on.reshape(&picks, &[count])?;
    let rows = on.mlx.one(Call::Take, &[on.array(weight)?, &picks], &[0])?;
    dequantised(on, format, &rows, count, bytes)
}

/// Rows of blocks as rows of f32.
fn dequantised(on: &Operands<'_>, format: BlockFormat, rows: &Array, count: usize, bytes: usize) -> Lowered {
    let blocks = Blocks { on, lead: count * (bytes / format.block_bytes()), size: format.block_bytes() };
    let whole = on.reshape(rows, &[blocks.lead, blocks.size])?;
    let values = match format {
        BlockFormat::Q4K => blocks.q45_k(&whole, false)?,
        BlockFormat::Q5K => blocks.q45_k(&whole, true)?,
        BlockFormat::Q6K => blocks.q6_k(&whole)?,
        format => return invalid(format!("no known kernel reads blocks of {format:?}")),
    };
    on.reshape(&values, &[count, bytes / format.block_bytes() * format.block_len()])
}

/// Blocks of one format: `lead` of `size` bytes each.
struct Blocks<'a, 'b> {
    on: &'a Operands<'b>,
    lead: usize,
    size: usize,
}

impl Blocks<'_, '_> {
    fn bytes(&self, blocks: &Array, from: usize, to: usize) -> Lowered {
        part(self.on, blocks, &[self.lead, self.size], 1, from, to)
    }

    /// Bytes as elements of another dtype, as f32.
    fn numbers(&self, bytes: &Array, dtype: DType) -> Lowered {
        let whole = self.on.mlx.one(Call::Contiguous, &[bytes], &[])?;
        let viewed = self.on.mlx.one(Call::View, &[&whole], &[dtype.code().into()])?;
        self.on.cast(&viewed, DType::F32)
    }

    /// Eight groups of 32, each with a scale and a minimum of 6 bits.
    fn q45_k(&self, blocks: &Array, fifth_bit: bool) -> Lowered {
        let on = self.on;
        let scale = self.numbers(&self.bytes(blocks, 0, 2)?, DType::F16)?;
        let least = self.numbers(&self.bytes(blocks, 2, 4)?, DType::F16)?;
        let packed = [self.bytes(blocks, 4, 8)?, self.bytes(blocks, 8, 12)?, self.bytes(blocks, 12, 16)?];
        // The upper two bits of the first groups' bytes belong to the last groups.
        let six = |first: &Array, nibble_shift: u8| {
            let upper = on.call(Call::Multiply, &on.bits(first, 6, 3)?, &on.byte(16)?)?;
            let last = on.call(Call::Add, &on.bits(&packed[2], nibble_shift, 15)?, &upper)?;
            let codes = on.concatenated(&[&on.bits(first, 0, 63)?, &last], 1)?;
            on.cast(&codes, DType::F32)
        };
        let scales = on.call(Call::Multiply, &scale, &six(&packed[0], 0)?)?;
        let minima = on.call(Call::Multiply, &least, &six(&packed[1], 4)?)?;
        let nibbles = on.reshape(&self.bytes(blocks, self.size - 128, self.size)?, &[self.lead, 4, 1, 32])?;
        let codes = on.concatenated(&[&on.bits(&nibbles, 0, 15)?, &on.bits(&nibbles, 4, 15)?], 2)?;
        let mut codes = on.reshape(&codes, &[self.lead, 8, 32])?;
        if fifth_bit {
            let bits = on.reshape(&self.bytes(blocks, 16, 48)?, &[self.lead, 1, 32])?;
            let group: Vec<u8> = (0..8).collect();
            let group = on.mlx.copy(&HostTensor::from_slice(vec![8, 1], &group)?)?;
            let bit = on.bits(&on.call(Call::RightShift, &bits, &group)?, 0, 1)?;
            codes = on.call(Call::Add, &codes, &on.call(Call::Multiply, &bit, &on.byte(16)?)?)?;
        }
        let group = |x: &Array| on.reshape(x, &[self.lead, 8, 1]);
        let scaled = on.call(Call::Multiply, &group(&scales)?, &on.cast(&codes, DType::F32)?)?;
        on.call(Call::Subtract, &scaled, &group(&minima)?)
    }

    /// Two halves of four rows of 32, and a scale for every 16.
    fn q6_k(&self, blocks: &Array) -> Lowered {
        let on = self.on;
        let low = on.reshape(&self.bytes(blocks, 0, 128)?, &[self.lead, 2, 1, 2, 32])?;
        let low = on.concatenated(&[&on.bits(&low, 0, 15)?, &on.bits(&low, 4, 15)?], 2)?;
        let low = on.reshape(&low, &[self.lead, 2, 4, 32])?;
        let high = on.reshape(&self.bytes(blocks, 128, 192)?, &[self.lead, 2, 1, 32])?;
        let shifts = on.mlx.copy(&HostTensor::from_slice(vec![4, 1], &[0u8, 2, 4, 6])?)?;
        let high = on.bits(&on.call(Call::RightShift, &high, &shifts)?, 0, 3)?;
        let codes = on.call(Call::Add, &low, &on.call(Call::Multiply, &high, &on.byte(16)?)?)?;
        let codes = on.cast(&on.reshape(&codes, &[self.lead, 16, 16])?, DType::F32)?;
        let codes = on.call(Call::Subtract, &codes, &on.constant(Scalar::Int(32), DType::F32)?)?;
        let scales = self.numbers(&self.bytes(blocks, 192, 208)?, DType::I8)?;
        let scale = self.numbers(&self.bytes(blocks, 208, 210)?, DType::F16)?;
        let scales = on.reshape(&on.call(Call::Multiply, &scale, &scales)?, &[self.lead, 16, 1])?;
        on.call(Call::Multiply, &scales, &codes)
    }
}
