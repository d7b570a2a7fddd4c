//! What the known Metal kernels compute; their shapes have been checked. Sums run in f32, results are rounded
//! once, as the Metal sources do.

use super::super::matmul::{by_column, dot};
use super::super::{Computed, KernelError, ResultType, floats};
use pteron_tensor::HostTensor;
use pteron_tensor::quant::{BlockFormat, QuantError};

/// Per time step, with an f32 state of [value feature, key feature] a head: the state fades by `g`, moves toward
/// `v` where it meets `k`, by `beta`, and is read at `q`. Inputs q, k, v, g, beta, state, T.
pub(super) fn gated_delta_step(
    inputs: &[&HostTensor],
    results: &[ResultType],
) -> Result<Vec<HostTensor>, KernelError> {
    let &[batches, steps, key_heads, dk] = inputs[0].shape() else { return Err(shapes()) };
    let &[_, _, heads, dv] = inputs[2].shape() else { return Err(shapes()) };
    if floats::indices(inputs[6])? != [steps as i64] {
        return Err(KernelError::Invalid(format!("T is not the {steps} time steps of q")));
    }
    let (q, k, v) = (floats::all(inputs[0])?, floats::all(inputs[1])?, floats::all(inputs[2])?);
    let (g, beta) = (floats::all(inputs[3])?, floats::all(inputs[4])?);
    let mut state = floats::all(inputs[5])?.into_owned();
    let mut y = vec![0.0; v.len()];
    for (head, state) in state.chunks_exact_mut((dv * dk).max(1)).enumerate().take(batches * heads) {
        let (batch, head) = (head / heads, head % heads);
        for step in batch * steps..(batch + 1) * steps {
            let key = (step * key_heads + head * key_heads / heads) * dk;
            let (q, k) = (&q[key..key + dk], &k[key..key + dk]);
            let gate = step * heads + head;
            let row = gate * dv;
            for (feature, state) in state.chunks_exact_mut(dk).enumerate() {
                state.iter_mut().for_each(|s| *s *= g[gate]);
                let delta = (v[row + feature] - dot(state, k)) * beta[gate];
                state.iter_mut().zip(k).for_each(|(s, k)| *s += k * delta);
                y[row + feature] = dot(state, q);
            }
        }
    }
    Ok(vec![floats::rounded(&results[0], &y)?, floats::rounded(&results[1], &state)?])
}

pub(super) fn tq_norm(x: &HostTensor, out: &ResultType) -> Computed {
    let features = x.shape().last().map_or(1, |&size| size.max(1));
    let norms: Vec<f32> = floats::all(x)?.chunks_exact(features).map(|row| dot(row, row).sqrt()).collect();
    floats::rounded(out, &norms)
}

/// A code counts the boundaries below its value; of two codes the first is in the high nibble.
pub(super) fn tq4_compress(values: &HostTensor, boundaries: &HostTensor, out: &ResultType) -> Computed {
    let boundaries = floats::all(boundaries)?;
    let code = |value: f32| boundaries.iter().filter(|&&boundary| value > boundary).count() as u8;
    let bytes: Vec<u8> =
        floats::all(values)?.chunks_exact(2).map(|pair| code(pair[0]) << 4 | code(pair[1])).collect();
    Ok(HostTensor::from_slice(out.shape.clone(), &bytes)?)
}

/// Inputs packed codes, norms, centroids.
pub(super) fn tq_dequant(inputs: &[&HostTensor], out: &ResultType) -> Computed {
    let (norms, mut centroids) = (floats::all(inputs[1])?, floats::all(inputs[2])?.into_owned());
    // The source holds its centroids in the dtype of the result.
    floats::round_to(out.dtype, &mut centroids);
    let packed = inputs[0].as_slice::<u8>()?;
    let bytes = packed.len() / norms.len().max(1);
    let rows = packed.chunks_exact(bytes.max(1)).zip(norms.iter());
    let values: Vec<f32> = rows
        .flat_map(|(row, norm)| {
            let codes = row.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            codes.map(|code| centroids[usize::from(code)] * norm).collect::<Vec<_>>()
        })
        .collect();
    floats::rounded(out, &values)
}

/// Inputs x, weight and perhaps bias.
pub(super) fn gguf_linear(format: BlockFormat, inputs: &[&HostTensor], out: &ResultType) -> Computed {
    let (&[columns, row_bytes], weight) = (inputs[1].shape(), inputs[1].as_slice::<u8>()?) else {
        return Err(shapes());
    };
    let inner = row_bytes / format.block_bytes() * format.block_len();
    let mut product = vec![0.0; out.shape.iter().product()];
    by_column(&floats::all(inputs[0])?, &mut product, (inner, columns), |column, row| {
        format.dequantise(&weight[column * row_bytes..][..row_bytes], row).map_err(refused)
    })?;
    if let Some(bias) = inputs.get(2) {
        let bias = floats::all(bias)?;
        for row in product.chunks_exact_mut(columns.max(1)) {
            row.iter_mut().zip(bias.iter()).for_each(|(sum, bias)| *sum += bias);
        }
    }
    floats::rounded(out, &product)
}

/// An index outside the weight is an error; of the sources only Q4_K's looks, and gives zeros.
pub(super) fn gguf_embedding(
    format: BlockFormat,
    weight: &HostTensor,
    indices: &HostTensor,
    out: &ResultType,
) -> Computed {
    let &[size, row_bytes] = weight.shape() else { return Err(shapes()) };
    let weight = weight.as_slice::<u8>()?;
    let mut tensor = HostTensor::zeros(out.dtype, out.shape.clone())?;
    let mut row = vec![0.0; row_bytes / format.block_bytes() * format.block_len()];
    for (at, index) in floats::indices(indices)?.into_iter().enumerate() {
        let picked = usize::try_from(index).ok().filter(|&index| index < size);
        let picked = picked.ok_or(KernelError::Index { index, size })?;
        format.dequantise(&weight[picked * row_bytes..][..row_bytes], &mut row).map_err(refused)?;
        floats::store(&row, &mut tensor, at * row.len())?;
    }
    Ok(tensor)
}

fn shapes() -> KernelError {
    KernelError::Invalid("operands of other ranks than were recognised".into())
}

fn refused(error: QuantError) -> KernelError {
    KernelError::Invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::super::trial::{as_f64, assert_close, f32s, random, ty};
    use super::*;
    use pteron_tensor::DType;

    #[test]
    fn the_delta_rule_equals_its_recurrence() {
        let (steps, key_heads, heads, dk, dv) = (3, 2, 4, 32, 5);
        let shapes: [&[usize]; 6] = [
            &[2, steps, key_heads, dk],
            &[2, steps, key_heads, dk],
            &[2, steps, heads, dv],
            &[2, steps, heads],
            &[2, steps, heads],
            &[2, heads, dv, dk],
        ];
        let tensors: Vec<HostTensor> =
            shapes.iter().enumerate().map(|(i, shape)| random(i as u32, shape)).collect();
        let [q, k, v, g, beta, state]: [Vec<f64>; 6] = std::array::from_fn(|i| as_f64(&tensors[i]));
        let (mut ys, mut states) = (vec![0.0; v.len()], state);
        for (b, h) in (0..2).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            for t in 0..steps {
                let gate = (b * steps + t) * heads + h;
                let key = ((b * steps + t) * key_heads + h / 2) * dk;
                for d in 0..dv {
                    let s = &mut states[((b * heads + h) * dv + d) * dk..][..dk];
                    s.iter_mut().for_each(|s| *s *= g[gate]);
                    let memory: f64 = (0..dk).map(|i| s[i] * k[key + i]).sum();
                    let delta = (v[gate * dv + d] - memory) * beta[gate];
                    (0..dk).for_each(|i| s[i] += delta * k[key + i]);
                    ys[gate * dv + d] = (0..dk).map(|i| s[i] * q[key + i]).sum();
                }
            }
        }
        let count = HostTensor::from_slice(vec![], &[steps as i32]).unwrap();
        let inputs: Vec<&HostTensor> = tensors.iter().chain([&count]).collect();
        let results = [ty(DType::F32, shapes[2]), ty(DType::F32, shapes[5])];
        let [y, state]: [HostTensor; 2] = gated_delta_step(&inputs, &results).unwrap().try_into().unwrap();
        assert_close(Ok(y), &ys);
        assert_close(Ok(state), &states);
        let wrong = HostTensor::from_slice(vec![], &[steps as i32 + 1]).unwrap();
        let inputs: Vec<&HostTensor> = tensors.iter().chain([&wrong]).collect();
        assert!(gated_delta_step(&inputs, &results).is_err());
    }

    #[test]
    fn codes_compress_and_come_back() {
        let boundaries: Vec<f32> = (0..15).map(|i| i as f32 - 7.0).collect();
        let values = f32s(&[1, 4], &[-100.0, -7.0, -6.9, 8.0]);
        let packed = tq4_compress(&values, &f32s(&[15], &boundaries), &ty(DType::U8, &[1, 2])).unwrap();
        // A value on a boundary is not above it.
        assert_eq!(packed.as_slice::<u8>().unwrap(), [0x00, 0x1f]);
        let centroids: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let (norms, centroids) = (f32s(&[1, 1], &[0.5]), f32s(&[16], &centroids));
        let out = tq_dequant(&[&packed, &norms, &centroids], &ty(DType::F32, &[1, 4]));
        assert_close(out, &[0.0, 0.0, 0.5, 7.5]);
        assert_close(tq_norm(&f32s(&[2, 2], &[3.0, 4.0, 0.0, 0.0]), &ty(DType::F32, &[2, 1])), &[5.0, 0.0]);
    }

    #[test]
    fn gguf_products_and_rows_equal_the_dequantised_ones() {
        for format in [BlockFormat::Q4K, BlockFormat::Q5K, BlockFormat::Q6K] {
            let bytes = 2 * format.block_bytes();
            let mut weight: Vec<u8> = (0..3 * bytes).map(|i| (i * 131 + i / 7) as u8).collect();
            // Scales that are neither NaN nor huge.
            for block in weight.chunks_mut(format.block_bytes()) {
                let at: &[usize] = if format == BlockFormat::Q6K { &[208] } else { &[0, 2] };
                at.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&[0x00, 0x10]));
            }
            let mut numbers = vec![0.0; 3 * 512];
            for (row, out) in weight.chunks(bytes).zip(numbers.chunks_mut(512)) {
                format.dequantise(row, out).unwrap();
            }
            let weight = HostTensor::from_slice(vec![3, bytes], &weight).unwrap();
            let (x, bias) = (random(1, &[2, 512]), random(2, &[3]));
            let (x64, bias64) = (as_f64(&x), as_f64(&bias));
            let product = |i: usize| {
                let sum: f64 =
                    (0..512).map(|k| x64[i / 3 * 512 + k] * f64::from(numbers[i % 3 * 512 + k])).sum();
                sum + bias64[i % 3]
            };
            let got = gguf_linear(format, &[&x, &weight, &bias], &ty(DType::F32, &[2, 3]));
            assert_close(got, &(0..6).map(product).collect::<Vec<_>>());
            let indices = HostTensor::from_slice(vec![2], &[2i64, 0]).unwrap();
            let want: Vec<f64> = numbers[1024..].iter().chain(&numbers[..512]).map(|&x| x.into()).collect();
            assert_close(gguf_embedding(format, &weight, &indices, &ty(DType::F32, &[2, 512])), &want);
            let outside = HostTensor::from_slice(vec![1], &[3i32]).unwrap();
            let got = gguf_embedding(format, &weight, &outside, &ty(DType::F32, &[1, 512]));
            assert!(matches!(got, Err(KernelError::Index { index: 3, size: 3 })));
        }
    }
}
