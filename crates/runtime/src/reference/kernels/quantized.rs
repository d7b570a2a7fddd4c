//! Quantised weights: Dequantize, QuantizedMatmul and GatherQmm, in every mode. Rows are dequantised as they are
//! needed; products sum in f32, where MLX's CPU code sums in 16 bits and so loses everything beyond 256 ones.

use super::matmul::{self, Matrices, by_column, by_inner_rows};
use super::{Computed, KernelError, Operands, floats};
use pteron_ir::ValueId;
use pteron_tensor::HostTensor;
use pteron_tensor::quant::{Mode, QuantError, Scheme};
use std::cell::RefCell;

/// The fields that describe quantised weights, as the three ops have them.
#[derive(Clone, Copy)]
pub(super) struct WeightFields<'a> {
    pub(super) w: ValueId,
    pub(super) scales: ValueId,
    pub(super) biases: Option<ValueId>,
    pub(super) group_size: i32,
    pub(super) bits: i32,
    pub(super) mode: &'a str,
}

pub(super) fn dequantize(
    operands: &Operands<'_>,
    fields: WeightFields<'_>,
    global_scale: Option<ValueId>,
) -> Computed {
    let weights = Quantized::new(operands, fields, true)?;
    // MLX divides the global scale by the largest e4m3 scale times the largest e2m1 element.
    let global = match operands.maybe(global_scale)? {
        Some(global) => floats::all(global)?.first().map_or(1.0, |&scale| scale / (448.0 * 6.0)),
        None => 1.0,
    };
    let mut out = HostTensor::zeros(operands.out().dtype, operands.out().shape.clone())?;
    let mut row = vec![0.0; weights.row_len];
    for index in 0..weights.row_count() {
        weights.row(index, &mut row)?;
        row.iter_mut().for_each(|value| *value *= global);
        floats::store(&row, &mut out, index * weights.row_len)?;
    }
    Ok(out)
}

pub(super) fn quantized_matmul(
    operands: &Operands<'_>,
    x: ValueId,
    fields: WeightFields<'_>,
    transpose: bool,
) -> Computed {
    gather_qmm(operands, x, fields, transpose, (None, None))
}

/// `indices` are those of the left and of the right operand.
pub(super) fn gather_qmm(
    operands: &Operands<'_>,
    x: ValueId,
    fields: WeightFields<'_>,
    transpose: bool,
    indices: (Option<ValueId>, Option<ValueId>),
) -> Computed {
    let x = operands.tensor(x)?;
    let weights = Quantized::new(operands, fields, transpose)?;
    let (lhs, rhs) = (operands.maybe(indices.0)?, operands.maybe(indices.1)?);
    let batch = weights.packed.shape();
    let picks = matmul::picks(lhs, rhs, matmul::left(x).batch, &batch[..batch.len().saturating_sub(2)])?;
    floats::rounded(operands.out(), &matmul::multiply(x, &weights, &picks)?)
}

/// Packed weights, of which rows can be had as floats.
struct Quantized<'a> {
    scheme: Scheme,
    packed: &'a HostTensor,
    scales: &'a HostTensor,
    biases: Option<&'a HostTensor>,
    /// Rows are output columns: `x @ w^T`.
    transpose: bool,
    /// Rows of one matrix.
    rows: usize,
    /// Values of a row.
    row_len: usize,
    buffers: RefCell<Buffers>,
}

/// What one row needs besides its result; kept from row to row.
#[derive(Default)]
struct Buffers {
    codes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl<'a> Quantized<'a> {
    fn new(
        operands: &'a Operands<'_>,
        fields: WeightFields<'_>,
        transpose: bool,
    ) -> Result<Quantized<'a>, KernelError> {
        let scheme = Mode::from_name(fields.mode)
            .and_then(|mode| Scheme::new(mode, fields.bits, fields.group_size))
            .map_err(refused)?;
        let packed = operands.tensor(fields.w)?;
        let (rows, words) = match packed.shape() {
            [.., rows, words] => (*rows, *words),
            [words] => (1, *words),
            [] => return Err(KernelError::Invalid("packed weights need an axis".into())),
        };
        Ok(Quantized {
            scheme,
            packed,
            scales: operands.tensor(fields.scales)?,
            biases: operands.maybe(fields.biases)?,
            transpose,
            rows,
            row_len: scheme.row_len(words),
            buffers: RefCell::default(),
        })
    }

    fn row_count(&self) -> usize {
        self.packed.shape().iter().rev().skip(1).product()
    }

    /// The numbers of one row, counted over all matrices.
    fn row(&self, index: usize, out: &mut [f32]) -> Result<(), KernelError> {
        let words = self.packed.shape().last().map_or(0, |&words| words);
        let row = &self.packed.as_slice::<u32>()?[index * words..][..words];
        let groups = self.row_len / self.scheme.group();
        let Buffers { codes, scales, biases } = &mut *self.buffers.borrow_mut();
        scales.resize(groups, 0.0);
        if self.scheme.mode() == Mode::Affine {
            floats::load(self.scales, index * groups, scales)?;
        } else {
            let stored = &self.scales.as_slice::<u8>()?[index * groups..][..groups];
            scales.iter_mut().zip(stored).for_each(|(scale, &byte)| *scale = self.scheme.scale(byte));
        }
        if let Some(stored) = self.biases {
            biases.resize(groups, 0.0);
            floats::load(stored, index * groups, biases)?;
        }
        self.scheme.dequantise(row, scales, biases, codes, out).map_err(refused)
    }
}

impl Matrices for Quantized<'_> {
    fn columns(&self) -> usize {
        if self.transpose { self.rows } else { self.row_len }
    }

    fn multiply(&self, index: usize, rows: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
        let first = index * self.rows;
        if self.transpose {
            let sizes = (self.row_len, self.rows);
            return by_column(rows, out, sizes, |column, weight| self.row(first + column, weight));
        }
        by_inner_rows(rows, out, (self.rows, self.row_len), |range, block| {
            range
                .zip(block.chunks_exact_mut(self.row_len))
                .try_for_each(|(row, out)| self.row(first + row, out))
        })
    }
}

fn refused(error: QuantError) -> KernelError {
    KernelError::Invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, assert_close, f32s, random, run, v};
    use super::*;
    use pteron_tensor::quant::packed;
    use pteron_tensor::{DType, promote};

    const MODES: [(&str, i32, i32); 11] = [
        ("affine", 2, 32),
        ("affine", 3, 64),
        ("affine", 4, 16),
        ("affine", 4, 128),
        ("affine", 5, 32),
        ("affine", 6, 64),
        ("affine", 8, 32),
        ("affine", 8, 128),
        ("mxfp4", 4, 32),
        ("nvfp4", 4, 16),
        ("mxfp8", 8, 32),
    ];

    fn fields(mode: &str, bits: i32, group_size: i32) -> WeightFields<'_> {
        WeightFields {
            w: v(0),
            scales: v(1),
            biases: (mode == "affine").then_some(v(2)),
            group_size,
            bits,
            mode,
        }
    }

    /// Packed weights, scales, biases (or scales again), and the numbers that they stand for.
    fn weights(mode: &str, bits: i32, group: i32, shape: &[usize]) -> ([HostTensor; 3], Vec<f64>) {
        let (&len, lead) = shape.split_last().unwrap();
        let rows: usize = lead.iter().product();
        let mask = ((1u32 << bits) - 1) as u8;
        // e4m3fn code 0x7f is NaN; the low bits of a product never make it.
        let codes: Vec<u8> = (0..rows * len).map(|j| (j * 37 + j / 11) as u8 & mask & 0xbf).collect();
        let words: Vec<u32> =
            codes.chunks(len).flat_map(|row| packed::pack(row, bits as u32).unwrap()).collect();
        let with = |last: usize| [lead, &[last]].concat();
        let w = HostTensor::from_slice(with(len * bits as usize / 32), &words).unwrap();
        let groups = with(len / group as usize);
        let count = rows * len / group as usize;
        let scheme = Scheme::new(Mode::from_name(mode).unwrap(), bits, group).unwrap();
        if mode == "affine" {
            let (scales, biases) = (random(5, &groups), random(6, &groups));
            let (s, b) = (as_f64(&scales), as_f64(&biases));
            let number = |j: usize| f64::from(codes[j]) * s[j / group as usize] + b[j / group as usize];
            return ([w, scales, biases], (0..codes.len()).map(number).collect());
        }
        let bytes: Vec<u8> = (0..count)
            .map(|g| if mode == "nvfp4" { 0x30 + g as u8 % 16 } else { 125 + g as u8 % 4 })
            .collect();
        let element =
            if bits == 4 { pteron_tensor::quant::codes::e2m1 } else { pteron_tensor::quant::codes::e4m3fn };
        let number =
            |j: usize| f64::from(element(codes[j])) * f64::from(scheme.scale(bytes[j / group as usize]));
        let scales = HostTensor::from_slice(groups, &bytes).unwrap();
        ([w, scales.clone(), scales], (0..codes.len()).map(number).collect())
    }

    #[test]
    fn every_mode_dequantises() {
        for (mode, bits, group) in MODES {
            let ([w, scales, biases], want) = weights(mode, bits, group, &[2, 3, 256]);
            let got = run(&[&w, &scales, &biases], &[(DType::F32, &[2, 3, 256])], |operands| {
                dequantize(operands, fields(mode, bits, group), None)
            });
            assert_close(got, &want);
        }
    }

    #[test]
    fn a_global_scale_of_2688_is_1() {
        let ([w, scales, _], want) = weights("nvfp4", 4, 16, &[2, 64]);
        for (global, factor) in [(2688.0, 1.0), (1344.0, 0.5)] {
            let global = f32s(&[], &[global]);
            let got = run(&[&w, &scales, &global], &[(DType::F32, &[2, 64])], |operands| {
                dequantize(operands, fields("nvfp4", 4, 16), Some(v(2)))
            });
            assert_close(got, &want.iter().map(|x| x * factor).collect::<Vec<_>>());
        }
    }

    #[test]
    fn products_of_every_mode_both_ways_round() {
        for (mode, bits, group) in MODES {
            for transpose in [true, false] {
                // 70 inner rows cross a block border.
                let (inner, outer) = if transpose { (256, 70) } else { (70, 256) };
                let ([w, scales, biases], numbers) = weights(mode, bits, group, &[70, 256]);
                let x = random(3, &[2, 3, inner]);
                let got = run(&[&w, &scales, &biases, &x], &[(DType::F32, &[2, 3, outer])], |operands| {
                    quantized_matmul(operands, v(3), fields(mode, bits, group), transpose)
                });
                let x = as_f64(&x);
                let number =
                    |k: usize, n: usize| numbers[if transpose { n * inner + k } else { k * outer + n }];
                let sum = |i: usize| {
                    (0..inner).map(|k| x[i / outer * inner + k] * number(k, i % outer)).sum::<f64>()
                };
                // Sums reach thousands for 8-bit codes; what is measured is the share of what was added up.
                let size = |i: usize| {
                    (0..inner).map(|k| (x[i / outer * inner + k] * number(k, i % outer)).abs()).sum::<f64>()
                };
                for (i, got) in as_f64(&got.unwrap()).iter().enumerate() {
                    assert!(
                        (got - sum(i)).abs() <= 1e-6 * size(i),
                        "{mode} {bits} {group} {transpose}: {got}, not {}",
                        sum(i)
                    );
                }
            }
        }
    }

    #[test]
    fn picks_choose_quantised_matrices() {
        let ([w, scales, biases], numbers) = weights("affine", 4, 32, &[3, 4, 32]);
        let x = random(3, &[2, 1, 32]);
        let rhs = HostTensor::from_slice(vec![2, 2], &[2i32, 0, 2, 1]).unwrap();
        let lhs = HostTensor::from_slice(vec![2, 1], &[0i32, 1]).unwrap();
        let got = run(&[&w, &scales, &biases, &x, &lhs, &rhs], &[(DType::F32, &[2, 2, 1, 4])], |operands| {
            gather_qmm(operands, v(3), fields("affine", 4, 32), true, (Some(v(4)), Some(v(5))))
        });
        let x = as_f64(&x);
        let want = [(0, 2), (0, 0), (1, 2), (1, 1)].iter().flat_map(|(l, r)| {
            (0..4)
                .map(|n| (0..32).map(|k| x[l * 32 + k] * numbers[(r * 4 + n) * 32 + k]).sum())
                .collect::<Vec<f64>>()
        });
        assert_close(got, &want.collect::<Vec<_>>());
    }

    #[test]
    fn sums_run_in_f32_whatever_the_dtypes() {
        let ones = [half::bf16::ONE; 4096];
        let x = HostTensor::from_slice(vec![1, 4096], &ones).unwrap();
        let w = HostTensor::from_slice(vec![1, 1024], &[0x0101_0101u32; 1024]).unwrap();
        let scales = HostTensor::from_slice(vec![1, 128], &[half::f16::ONE; 128]).unwrap();
        let biases = HostTensor::zeros(DType::F16, vec![1, 128]).unwrap();
        let dtype = promote(DType::BF16, DType::F16);
        let got = run(&[&w, &scales, &biases, &x], &[(dtype, &[1, 1])], |operands| {
            quantized_matmul(operands, v(3), fields("affine", 8, 32), true)
        });
        assert_close(got, &[4096.0]);
    }
}
