//! Every path against sums in f64 of what the tensor crate says that the codes stand for.

use super::*;
use crate::path::Path;
use crate::pool::Pool;
use half::{bf16, f16};
use pteron_tensor::quant::{Mode, Scheme};
use pteron_tensor::{Bytes, DType};

/// A plain generator: the same numbers in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }
}

fn bytes_of(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect(),
    }
}

fn floats_of(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let half = |at: &[u8]| [at[0], at[1]];
    match dtype {
        DType::F32 => bytes.chunks(4).map(|at| f32::from_le_bytes([at[0], at[1], at[2], at[3]])).collect(),
        DType::F16 => bytes.chunks(2).map(|at| f16::from_le_bytes(half(at)).to_f32()).collect(),
        _ => bytes.chunks(2).map(|at| bf16::from_le_bytes(half(at)).to_f32()).collect(),
    }
}

/// A weight with what its codes stand for, by the tensor crate.
struct Case {
    weight: QuantWeight,
    numbers: Vec<f32>,
}

fn case(scheme: (Mode, i32, i32), stored: DType, matrices: usize, n: usize, k: usize) -> Case {
    let mut noise = Noise((n * 131 + k) as u64);
    let scheme = Scheme::new(scheme.0, scheme.1, scheme.2).unwrap();
    let rows = matrices * n;
    let words = k * scheme.bits() as usize / 32;
    let groups = k / scheme.group();
    let affine = scheme.mode() == Mode::Affine;
    let mut codes: Vec<u8> = (0..rows * words * 4).map(|_| noise.next() as u8).collect();
    if scheme.mode() == Mode::MxFp8 {
        // All ones is NaN.
        codes.iter_mut().filter(|code| **code & 0x7f == 0x7f).for_each(|code| *code = 0x81);
    }
    let (scales, floats, biases) = if affine {
        let scales: Vec<f32> = (0..rows * groups).map(|_| 0.05 * noise.float()).collect();
        let biases: Vec<f32> = (0..rows * groups).map(|_| 0.3 * noise.float()).collect();
        let (scales, biases) = (bytes_of(stored, &scales), bytes_of(stored, &biases));
        (scales.clone(), floats_of(stored, &scales), Some(biases))
    } else {
        let base = if scheme.mode() == Mode::NvFp4 { 0x28 } else { 120 };
        let scales: Vec<u8> = (0..rows * groups).map(|_| base + (noise.next() % 8) as u8).collect();
        let floats = scales.iter().map(|&scale| scheme.scale(scale)).collect();
        (scales, floats, None)
    };
    let of_biases = biases.as_ref().map(|biases| floats_of(stored, biases)).unwrap_or_default();
    let row_words: Vec<u32> =
        codes.chunks(4).map(|at| u32::from_le_bytes([at[0], at[1], at[2], at[3]])).collect();
    let mut numbers = vec![0.0; rows * k];
    for (row, out) in numbers.chunks_mut(k).enumerate() {
        let biases = if affine { &of_biases[row * groups..][..groups] } else { &[] };
        let scales = &floats[row * groups..][..groups];
        scheme.dequantise(&row_words[row * words..][..words], scales, biases, &mut Vec::new(), out).unwrap();
    }
    let parts = QuantParts {
        codes: Bytes::copy_of(&codes),
        scales: Bytes::copy_of(&scales),
        scale_dtype: if affine { stored } else { DType::U8 },
        biases: biases.map(|biases| (Bytes::copy_of(&biases), stored)),
        scheme,
        matrices,
        n,
        k,
    };
    Case { weight: QuantWeight::new(parts).unwrap(), numbers }
}

/// Memory that starts at a multiple of 64.
struct Aligned(Vec<[u64; 8]>, usize);

impl Aligned {
    fn new(len: usize) -> Aligned {
        #[repr(align(64))]
        #[derive(Clone, Copy)]
        struct Line([u64; 8]);
        let _ = Line([0; 8]).0;
        Aligned(vec![[0x5555_5555_5555_5555; 8]; len.div_ceil(64) + 1], len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.1;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        let skip = bytes.as_ptr().align_offset(64);
        &mut bytes[skip..skip + len]
    }
}

struct Run {
    path: Path,
    precision: Precision,
    input: DType,
    output: DType,
    rows: usize,
    stride: usize,
}

/// Runs a case and holds each output against its sum; the largest error as a share of what was added up.
fn worst(case: &Case, pool: &Pool, run: &Run) -> f64 {
    let (n, k) = (case.weight.n(), case.weight.k());
    let mut noise = Noise(7 + run.rows as u64);
    let values: Vec<f32> = (0..run.rows * run.stride)
        .map(|i| if i % run.stride < k { noise.float() * (1.0 + (i % 5) as f32) } else { f32::NAN })
        .collect();
    let bytes = bytes_of(run.input, &values);
    let values = floats_of(run.input, &bytes);
    let mut aligned = Aligned::new(bytes.len());
    aligned.bytes().copy_from_slice(&bytes);
    let x = Rows::new(aligned.bytes(), run.input, run.rows, k, run.stride).unwrap();
    let linear = QuantLinear::new(case.weight.clone(), run.input, run.path, run.precision).unwrap();
    let mut prepared = Aligned::new(linear.input_bytes(run.rows));
    linear.prepare_input(pool, x, prepared.bytes()).unwrap();
    let out_stride = n + 3;
    let mut out = Aligned::new(run.rows * out_stride * run.output.size());
    let untouched = out.bytes().to_vec();
    let rows = RowsMut::new(out.bytes(), run.output, run.rows, n, out_stride).unwrap();
    linear.run(pool, prepared.bytes(), rows).unwrap();
    let size = run.output.size();
    let mut worst = 0.0f64;
    let got = floats_of(run.output, out.bytes());
    for m in 0..run.rows {
        for column in 0..out_stride {
            let at = (m * out_stride + column) * size;
            if column >= n {
                assert_eq!(out.bytes()[at..at + size], untouched[at..at + size], "beside the output");
                continue;
            }
            let products = values[m * run.stride..][..k].iter().zip(&case.numbers[column * k..][..k]);
            let (mut sum, mut added) = (0.0, 0.0);
            for (&x, &w) in products {
                sum += f64::from(x) * f64::from(w);
                added += (f64::from(x) * f64::from(w)).abs();
            }
            let error = (f64::from(got[m * out_stride + column]) - sum).abs() / added.max(1e-30);
            assert!(!error.is_nan(), "{} row {m} column {column}", run.path);
            worst = worst.max(error);
        }
    }
    worst
}

/// The paths of this machine; says which are not run.
fn paths() -> Vec<Path> {
    for path in Path::ALL.into_iter().filter(|path| !path.is_available()) {
        println!("not run: {path}, which this machine lacks");
    }
    Path::available()
}

const SCHEMES: [(Mode, i32, i32); 17] = [
    (Mode::Affine, 4, 16),
    (Mode::Affine, 4, 32),
    (Mode::Affine, 4, 64),
    (Mode::Affine, 4, 128),
    (Mode::Affine, 2, 16),
    (Mode::Affine, 2, 64),
    (Mode::Affine, 3, 32),
    (Mode::Affine, 3, 128),
    (Mode::Affine, 5, 64),
    (Mode::Affine, 6, 32),
    (Mode::Affine, 6, 128),
    (Mode::Affine, 8, 16),
    (Mode::Affine, 8, 32),
    (Mode::Affine, 8, 64),
    (Mode::MxFp4, 4, 32),
    (Mode::NvFp4, 4, 16),
    (Mode::MxFp8, 8, 32),
];

/// Rounding of the output and of activations, as a share of what is added up.
fn tolerance(precision: Precision, output: DType) -> f64 {
    let rounded = match output {
        DType::F32 => 0.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1.0 / 256.0,
    };
    rounded + if precision == Precision::Exact { 2e-6 } else { 8e-3 }
}

#[test]
fn every_path_scheme_and_precision_is_close_to_the_sum() {
    let pool = Pool::new(2);
    for path in paths() {
        for scheme in SCHEMES {
            for (stored, input, output) in [
                (DType::F32, DType::F32, DType::F32),
                (DType::BF16, DType::BF16, DType::BF16),
                (DType::F16, DType::F16, DType::F32),
            ] {
                for precision in [Precision::Exact, Precision::Fast] {
                    for (rows, n, k) in [(1, 37, 384), (6, 19, 128), (21, 33, 256)] {
                        let case = case(scheme, stored, 1, n, k);
                        let run = Run { path, precision, input, output, rows, stride: k + 5 };
                        let worst = worst(&case, &pool, &run);
                        assert!(
                            worst <= tolerance(precision, output),
                            "{path} {scheme:?} {precision:?} {stored} {input} {output} {rows}x{n}x{k}: {worst:e}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_number_of_rows_and_every_tail() {
    let pool = Pool::new(2);
    for path in paths() {
        for precision in [Precision::Exact, Precision::Fast] {
            for (rows, n, groups) in (1..=70).map(|rows| (rows, 1 + rows * 7 % 50, 1 + rows % 9)) {
                let case = case((Mode::Affine, 4, 32), DType::BF16, 1, n, groups * 32);
                let run = Run {
                    path,
                    precision,
                    input: DType::BF16,
                    output: DType::F32,
                    rows,
                    stride: groups * 32,
                };
                let worst = worst(&case, &pool, &run);
                assert!(worst <= tolerance(precision, DType::F32), "{path} {precision:?} {rows}x{n}: {worst:e}");
            }
        }
    }
}
