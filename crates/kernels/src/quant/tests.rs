//! Every path against sums in f64 of what the tensor crate says that the codes stand for.

mod together;

use super::*;
use crate::path::Path;
use crate::pool::Pool;
use crate::trial::sized;
use half::{bf16, f16};
use pteron_tensor::quant::{Mode, Scheme};
use pteron_tensor::{Bytes, DType};
use together::bits_of;

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

/// Whole vectors at a time: byte by byte, this would be most of what a test takes under Miri.
fn bytes_of(dtype: DType, values: &[f32]) -> Vec<u8> {
    let halves = |half: fn(f32) -> u16| -> Vec<u16> { values.iter().map(|&value| half(value)).collect() };
    match dtype {
        DType::F32 => bytemuck::cast_slice(values).to_vec(),
        DType::F16 => bytemuck::cast_slice(&halves(|value| f16::from_f32(value).to_bits())).to_vec(),
        _ => bytemuck::cast_slice(&halves(|value| bf16::from_f32(value).to_bits())).to_vec(),
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
    case_of(scheme, stored, (matrices, n, k), |noise| noise.next() as u8)
}

/// As [`case`], of these bytes of codes.
fn case_of(
    scheme: (Mode, i32, i32),
    stored: DType,
    (matrices, n, k): (usize, usize, usize),
    byte: impl Fn(&mut Noise) -> u8,
) -> Case {
    let mut noise = Noise((n * 131 + k) as u64);
    let scheme = Scheme::new(scheme.0, scheme.1, scheme.2).unwrap();
    let rows = matrices * n;
    let words = k * scheme.bits() as usize / 32;
    let groups = k / scheme.group();
    let affine = scheme.mode() == Mode::Affine;
    let mut codes: Vec<u8> = (0..rows * words * 4).map(|_| byte(&mut noise)).collect();
    if scheme.mode() == Mode::MxFp8 {
        // All ones is NaN.
        codes.iter_mut().filter(|code| **code & 0x7f == 0x7f).for_each(|code| *code = 0x81);
    }
    let (scales, floats, biases) = if affine {
        let scales: Vec<f32> = (0..rows * groups).map(|_| 0.05 * noise.float()).collect();
        // Odd sizes count codes from the middle, as symmetric schemes do; their biases are known from the scales.
        let middle = -((1 << (scheme.bits() - 1)) as f32);
        let rounded = floats_of(stored, &bytes_of(stored, &scales));
        let biases: Vec<f32> = match n % 2 {
            0 => (0..rows * groups).map(|_| 0.3 * noise.float()).collect(),
            _ => rounded.iter().map(|scale| middle * scale).collect(),
        };
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
    for (row, out) in numbers.chunks_mut(k.max(1)).enumerate() {
        let biases = if affine { &of_biases[row * groups..][..groups] } else { &[] };
        let scales = &floats[row * groups..][..groups];
        scheme.dequantise(&row_words[row * words..][..words], scales, biases, &mut Vec::new(), out).unwrap();
    }
    let parts = QuantParts {
        codes: Bytes::copy_of(&codes),
        scales: Bytes::copy_of(&scales),
        scale_dtype: if affine { stored } else { DType::U8 },
        biases: biases.map_or(Biases::None, |biases| Biases::Each(Bytes::copy_of(&biases), stored)),
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

/// Runs a case with the weight as it lies and as it is arranged, and holds each output against its sum; the largest error as a
/// share of what was added up.
fn worst(case: &Case, pool: &Pool, run: &Run) -> f64 {
    let linear = QuantLinear::new(case.weight.clone(), run.input, run.path, run.precision).unwrap();
    let arranged = linear.clone().arranged();
    worst_of(case, pool, run, &linear).max(worst_of(case, pool, run, &arranged))
}

fn worst_of(case: &Case, pool: &Pool, run: &Run, linear: &QuantLinear) -> f64 {
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
            let inputs = &values[m * run.stride..][..k];
            let largest = inputs.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let (mut sum, mut added) = (0.0, 0.0);
            for (&x, &w) in inputs.iter().zip(&case.numbers[column * k..][..k]) {
                sum += f64::from(x) * f64::from(w);
                // Bytes round every input by a share of the largest one of its group.
                let rounded = if run.precision == Precision::Fast { largest } else { x };
                added += (f64::from(rounded) * f64::from(w)).abs();
            }
            let error = (f64::from(got[m * out_stride + column]) - sum).abs() / added.max(1e-30);
            assert!(!error.is_nan(), "{} row {m} column {column}", run.path);
            worst = worst.max(error);
        }
    }
    worst
}

/// The paths of this machine; says which are not run.
#[allow(clippy::print_stdout)]
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
fn tolerance(run: &Run) -> f64 {
    let rounded = match run.output {
        DType::F32 => 0.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1.0 / 256.0,
    };
    rounded
        + match run.precision {
            Precision::Exact => 2e-6,
            // Half a step of 127 to the largest input, all errors in one direction.
            Precision::Fast => 1.0 / 250.0,
        }
}

#[test]
fn every_path_scheme_and_precision_is_close_to_the_sum() {
    let pool = Pool::new(2);
    for path in paths() {
        for (at, scheme) in SCHEMES.into_iter().enumerate() {
            let dtypes = [
                (DType::F32, DType::F32, DType::F32),
                (DType::BF16, DType::BF16, DType::BF16),
                (DType::F16, DType::F16, DType::F32),
            ];
            for &(stored, input, output) in &dtypes[sized(0, at % 3)..sized(3, at % 3 + 1)] {
                for precision in [Precision::Exact, Precision::Fast] {
                    let short = [(2, 2, scheme.2.max(32) as usize)];
                    for &(rows, n, k) in sized(&[(1, 37, 384), (7, 19, 128), (35, 21, 1152)][..], &short[..])
                    {
                        let case = case(scheme, stored, 1, n, k);
                        let run = Run { path, precision, input, output, rows, stride: k + 5 };
                        let worst = worst(&case, &pool, &run);
                        assert!(
                            worst <= tolerance(&run),
                            "{path} {scheme:?} {precision:?} {stored} {input} {output} {rows}x{n}x{k}: {worst:e}"
                        );
                    }
                }
            }
        }
    }
}

/// Short, middling and long rows of the weight are added up four, one and two at a time; a number of them that none of these
/// divides has the rest of each as well.
#[test]
fn rows_of_every_length_are_close_to_the_sum() {
    let pool = Pool::new(2);
    for path in paths() {
        for &scheme in &SCHEMES[sized(0, 1)..sized(SCHEMES.len(), 2)] {
            for precision in [Precision::Exact, Precision::Fast] {
                for &k in &[128, 2176, 8320][..sized(3, 2)] {
                    let case = case(scheme, DType::BF16, 1, sized(23, 5), k);
                    let run =
                        Run { path, precision, input: DType::BF16, output: DType::F32, rows: 1, stride: k };
                    let worst = worst(&case, &pool, &run);
                    assert!(worst <= tolerance(&run), "{path} {scheme:?} {precision:?} {k}: {worst:e}");
                }
            }
        }
    }
}

/// Products that are added up in 16 bits must all fit, and lose nothing where they do: the largest codes there are meet
/// activations of which each is its group's largest, all of one sign.
#[test]
fn the_largest_codes_and_activations_overflow_nothing() {
    let pool = Pool::new(1);
    for path in paths() {
        for &scheme in &SCHEMES[..sized(SCHEMES.len(), 1)] {
            let byte = match scheme.0 {
                Mode::Affine => 0xff,
                Mode::MxFp8 => 0x7e,
                _ => 0x77,
            };
            // With biases of their own, and with codes that count from the middle.
            for n in sized(&[16, 17][..], &[3]).iter().copied() {
                let k = sized(384, scheme.2.max(32) as usize);
                let case = case_of(scheme, DType::F32, (1, n, k), |_| byte);
                let linear =
                    QuantLinear::new(case.weight.clone(), DType::F32, path, Precision::Fast).unwrap();
                for linear in [linear.clone().arranged(), linear] {
                    for (rows, x) in [(1, 1.0), (2, -1.0), (9, 1.0), (33, -1.0)] {
                        let got = bits_of(&linear, &pool, &vec![x; rows * k], rows);
                        for (at, got) in got.into_iter().enumerate() {
                            let weights = &case.numbers[at % n * k..][..k];
                            let want: f64 = weights.iter().map(|&w| f64::from(x) * f64::from(w)).sum();
                            let added: f64 = weights.iter().map(|&w| f64::from(w).abs()).sum();
                            let error = (f64::from(f32::from_bits(got)) - want).abs() / added.max(1e-30);
                            // Matrix tiles round activations otherwise.
                            let most = if linear.uses_tiles(rows) { 1.0 / 250.0 } else { 1e-5 };
                            assert!(error <= most, "{path} {scheme:?} {rows}x{n}: {error:e}");
                        }
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
            for (rows, n, groups) in
                (1..=sized(70, 3)).map(|rows| (rows, 1 + rows * 7 % sized(50, 6), 1 + rows % sized(9, 3)))
            {
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
                assert!(worst <= tolerance(&run), "{path} {precision:?} {rows}x{n}: {worst:e}");
            }
        }
    }
}

#[test]
fn tasks_of_several_panels_and_blocks() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for path in paths() {
            for (precision, output) in [(Precision::Fast, DType::BF16), (Precision::Exact, DType::F16)] {
                for (rows, n, k) in sized([(40, 333, 608), (17, 1100, 288)], [(9, 33, 64), (3, 70, 32)]) {
                    let case = case((Mode::Affine, 4, 32), DType::BF16, 1, n, k);
                    let run = Run { path, precision, input: DType::BF16, output, rows, stride: k };
                    let worst = worst(&case, &pool, &run);
                    assert!(worst <= tolerance(&run), "{path} {precision:?} {rows}x{n}x{k}: {worst:e}");
                }
            }
        }
    }
}

#[test]
fn picked_rows_meet_their_matrices() {
    let pool = Pool::new(2);
    let (n, k) = (21, 96);
    let case = case((Mode::Affine, 4, 32), DType::BF16, 3, n, k);
    let mut noise = Noise(3);
    let values: Vec<f32> = (0..4 * k).map(|_| noise.float()).collect();
    let mut x = Aligned::new(4 * k * 4);
    x.bytes().copy_from_slice(&bytes_of(DType::F32, &values));
    // More than a kernel for few rows takes, neighbours and others.
    let picks = [
        (0, 2),
        (1, 2),
        (3, 2),
        (1, 0),
        (2, 2),
        (0, 2),
        (3, 1),
        (2, 2),
        (0, 0),
        (3, 2),
        (1, 2),
        (2, 2),
        (0, 2),
    ];
    for path in paths() {
        let linear = QuantLinear::new(case.weight.clone(), DType::F32, path, Precision::Exact).unwrap();
        let mut prepared = Aligned::new(linear.picked_input_bytes(4));
        let rows = Rows::dense(x.bytes(), DType::F32, 4, k).unwrap();
        linear.prepare_picked_input(&pool, rows, prepared.bytes()).unwrap();
        let mut out = Aligned::new(picks.len() * n * 4);
        let rows = RowsMut::dense(out.bytes(), DType::F32, picks.len(), n).unwrap();
        let (inputs, matrices): (Vec<usize>, Vec<usize>) = picks.into_iter().unzip();
        let mut order = vec![0; picks.len()];
        let picked = Picked { inputs: &inputs, matrices: &matrices, order: &mut order };
        linear.run_picked(&pool, 4, prepared.bytes(), picked, rows).unwrap();
        let got = floats_of(DType::F32, out.bytes());
        for (row, &(input, matrix)) in picks.iter().enumerate() {
            for column in 0..n {
                let weights = &case.numbers[(matrix * n + column) * k..][..k];
                let products = values[input * k..][..k].iter().zip(weights);
                let want: f64 = products.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                assert!((f64::from(got[row * n + column]) - want).abs() < 1e-4, "{path} {row} {column}");
            }
        }
        let mut refused = |input: usize, matrix: usize| {
            let rows = RowsMut::dense(out.bytes(), DType::F32, 1, n).unwrap();
            let picked = Picked { inputs: &[input], matrices: &[matrix], order: &mut [0] };
            linear.run_picked(&pool, 4, prepared.bytes(), picked, rows).unwrap_err()
        };
        assert_eq!(refused(0, 3), LinearError::Index { what: "matrix", index: 3, count: 3 });
        assert_eq!(refused(4, 0), LinearError::Index { what: "input row", index: 4, count: 4 });
    }
}

#[test]
fn rows_come_back_as_the_numbers_they_stand_for() {
    let pool = Pool::new(2);
    for scheme in SCHEMES.into_iter().step_by(sized(1, 3)) {
        let case = case(scheme, DType::F32, 1, 9, 384);
        let mut out = Aligned::new(9 * 384 * 4);
        let rows = RowsMut::dense(out.bytes(), DType::F32, 9, 384).unwrap();
        case.weight.dequantise(&pool, 1.0, rows).unwrap();
        assert!(out.bytes() == bytes_of(DType::F32, &case.numbers), "{scheme:?}");
        let picks = [8, 0, 8, 3];
        let mut out = Aligned::new(picks.len() * 384 * 2);
        let rows = RowsMut::dense(out.bytes(), DType::BF16, picks.len(), 384).unwrap();
        case.weight.gather(&pool, &picks, rows).unwrap();
        let want: Vec<f32> =
            picks.iter().flat_map(|row| &case.numbers[row * 384..][..384]).copied().collect();
        assert!(out.bytes() == bytes_of(DType::BF16, &want), "{scheme:?}");
        let rows = RowsMut::dense(out.bytes(), DType::BF16, 1, 384).unwrap();
        assert!(case.weight.gather(&pool, &[9], rows).is_err());
    }
}

#[test]
fn what_is_not_finite_shows() {
    let pool = Pool::new(1);
    let case = case((Mode::Affine, 4, 32), DType::BF16, 1, 5, 64);
    for path in paths() {
        for precision in [Precision::Exact, Precision::Fast] {
            for rows in [1, 20] {
                for bad in [f32::NAN, f32::INFINITY] {
                    let mut values = vec![0.5; rows * 64];
                    values[63] = bad;
                    let mut x = Aligned::new(values.len() * 4);
                    x.bytes().copy_from_slice(&bytes_of(DType::F32, &values));
                    let linear = QuantLinear::new(case.weight.clone(), DType::F32, path, precision).unwrap();
                    let mut prepared = Aligned::new(linear.input_bytes(rows));
                    let x = Rows::dense(x.bytes(), DType::F32, rows, 64).unwrap();
                    linear.prepare_input(&pool, x, prepared.bytes()).unwrap();
                    let mut out = Aligned::new(rows * 5 * 4);
                    let sink = RowsMut::dense(out.bytes(), DType::F32, rows, 5).unwrap();
                    linear.run(&pool, prepared.bytes(), sink).unwrap();
                    let got = floats_of(DType::F32, out.bytes());
                    assert!(got[..5].iter().all(|value| !value.is_finite()), "{path} {precision:?} {bad}");
                    assert!(got[5..].iter().all(|value| value.is_finite()), "{path} {precision:?} {bad}");
                }
            }
        }
    }
}

#[test]
fn a_sum_of_nothing_is_zero() {
    let pool = Pool::new(1);
    let case = case((Mode::Affine, 4, 32), DType::F32, 1, 3, 0);
    for path in paths() {
        for rows in [0, 1, 20] {
            let linear = QuantLinear::new(case.weight.clone(), DType::F32, path, Precision::Exact).unwrap();
            linear.prepare_input(&pool, Rows::dense(&[], DType::F32, rows, 0).unwrap(), &mut []).unwrap();
            let mut out = Aligned::new(rows * 3 * 4);
            let sink = RowsMut::dense(out.bytes(), DType::F32, rows, 3).unwrap();
            linear.run(&pool, &[], sink).unwrap();
            assert!(floats_of(DType::F32, out.bytes()).iter().all(|&value| value == 0.0), "{path} {rows}");
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let scheme = Scheme::new(Mode::Affine, 4, 32).unwrap();
    let parts = |codes: usize, scales: usize, k: usize| QuantParts {
        codes: Bytes::zeroed(codes),
        scales: Bytes::zeroed(scales),
        scale_dtype: DType::F32,
        biases: Biases::Each(Bytes::zeroed(scales), DType::F32),
        scheme,
        matrices: 1,
        n: 2,
        k,
    };
    let weight = QuantWeight::new(parts(64, 16, 64)).unwrap();
    for bad in [
        parts(63, 16, 64),
        parts(64, 12, 64),
        parts(64, 16, 48),
        parts(64, 16, usize::MAX - 31),
        QuantParts { biases: Biases::None, ..parts(64, 16, 64) },
        QuantParts { scale_dtype: DType::I32, ..parts(64, 16, 64) },
        QuantParts { n: usize::MAX, ..parts(64, 16, 64) },
    ] {
        assert!(QuantWeight::new(bad).is_err());
    }
    let pool = Pool::new(1);
    let linear = QuantLinear::new(weight.clone(), DType::F32, Path::Scalar, Precision::Fast).unwrap();
    assert!(QuantLinear::new(weight.clone(), DType::I8, Path::Scalar, Precision::Fast).is_err());
    for path in Path::ALL.into_iter().filter(|path| !path.is_available()) {
        assert!(QuantLinear::new(weight.clone(), DType::F32, path, Precision::Fast).is_err());
    }
    let mut x = Aligned::new(4096);
    let mut prepared = Aligned::new(4096);
    let narrow = Rows::dense(x.bytes(), DType::F32, 1, 32).unwrap();
    assert!(linear.prepare_input(&pool, narrow, prepared.bytes()).is_err());
    let other = Rows::dense(x.bytes(), DType::BF16, 1, 64).unwrap();
    assert!(linear.prepare_input(&pool, other, prepared.bytes()).is_err());
    let good = Rows::dense(x.bytes(), DType::F32, 1, 64).unwrap();
    assert!(linear.prepare_input(&pool, good, &mut prepared.bytes()[..64]).is_err());
    assert!(linear.prepare_input(&pool, good, &mut prepared.bytes()[8..]).is_err());
    let wide = RowsMut::dense(x.bytes(), DType::F32, 1, 3).unwrap();
    assert!(linear.run(&pool, prepared.bytes(), wide).is_err());
    assert!(Rows::new(x.bytes(), DType::F32, 2, 64, 63).is_err());
    assert!(Rows::new(x.bytes(), DType::F32, usize::MAX, 64, 64).is_err());
    assert!(Rows::dense(&x.bytes()[1..], DType::F32, 1, 64).is_err());
    assert!(RowsMut::dense(x.bytes(), DType::I32, 1, 64).is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(sized(24, 3)))]

    #[test]
    fn any_shape_on_any_path(
        scheme in 0..SCHEMES.len(),
        path in 0..8usize,
        fast: bool,
        input in 0..3usize,
        (rows, n, blocks) in (1..sized(70usize, 5), 1..sized(90usize, 6), 1..sized(12usize, 3)),
    ) {
        let paths = Path::available();
        let path = paths[path % paths.len()];
        let input = [DType::F32, DType::F16, DType::BF16][input];
        let precision = if fast { Precision::Fast } else { Precision::Exact };
        let (mode, bits, group) = SCHEMES[scheme];
        let k = blocks * group.max(32) as usize;
        let case = case((mode, bits, group), DType::F16, 1, n, k);
        let run = Run { path, precision, input, output: DType::F32, rows, stride: k + 1 };
        let worst = worst(&case, &Pool::new(2), &run);
        proptest::prop_assert!(worst <= tolerance(&run), "{path} {precision:?}: {worst:e}");
    }
}
