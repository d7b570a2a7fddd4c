//! Products against sums in f64: random sizes, layouts and dtypes, on every path.

use super::*;
use crate::trial::{Random, assert_close, dense, on_every_path, sized};
use half::{bf16, f16};

/// Values as a dtype keeps them, and its bytes.
fn stored(random: &mut Random, count: usize, dtype: DType) -> (Vec<f32>, Vec<u64>) {
    let mut values = random.floats(count);
    let mut bytes = vec![0u64; count.div_ceil(2) + 8];
    let raw: &mut [u8] = bytemuck::cast_slice_mut(&mut bytes);
    for (i, value) in values.iter_mut().enumerate() {
        match dtype {
            DType::F16 => {
                raw[2 * i..][..2].copy_from_slice(&f16::from_f32(*value).to_ne_bytes());
                *value = f16::from_f32(*value).to_f32();
            }
            DType::BF16 => {
                raw[2 * i..][..2].copy_from_slice(&bf16::from_f32(*value).to_ne_bytes());
                *value = bf16::from_f32(*value).to_f32();
            }
            _ => raw[4 * i..][..4].copy_from_slice(&value.to_ne_bytes()),
        }
    }
    (values, bytes)
}

fn multiply(path: Path, threads: usize, sizes: &[usize], product_of: &Product<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; sizes.iter().product()];
    let strides = dense(sizes);
    let (rank, inner) = (sizes.len(), *product_of.a.sizes().last().unwrap());
    let mut scratch = vec![0xffu8; scratch_bytes(sizes[rank - 2], inner, sizes[rank - 1], threads)];
    let mut to = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, sizes, &strides).unwrap();
    product(&Pool::new(threads), path, &mut to, product_of, &mut scratch);
    out
}

#[test]
fn every_layout_and_dtype_equals_the_sums() {
    let mut random = Random::new(3);
    on_every_path(|path| {
        for round in 0..sized(90, 10) {
            let rows = [1, 2, 5, 8, 9, 17, 50, 100][random.below(sized(8, 5))];
            let inner = [1, 3, 16, 40, 64, 96, 385, 800][random.below(sized(8, 4))];
            let columns = [1, 4, 16, 31, 48, 64, 100, 130][random.below(sized(8, 4))];
            let dtypes = [DType::F32, DType::F16, DType::BF16];
            let (a_type, b_type) = if round % 3 == 0 {
                (DType::BF16, DType::BF16)
            } else {
                (dtypes[random.below(3)], dtypes[random.below(3)])
            };
            let batch = 1 + random.below(2);
            let (a, a_bytes) = stored(&mut random, batch * rows * inner, a_type);
            let (b, b_bytes) = stored(&mut random, inner * columns, b_type);
            let layout = round % 5;
            let (i, c) = (inner as isize, columns as isize);
            let b_strides = match layout {
                0..=2 => [0, 1, i],
                _ => [0, c, 1],
            };
            let a_strides =
                if layout == 4 { [i * rows as isize, 1, rows as isize] } else { [i * rows as isize, i, 1] };
            let bias = random.floats(columns);
            let sizes = [batch, rows, columns];
            let (a_sizes, b_sizes) = ([batch, rows, inner], [batch, inner, columns]);
            let with_bias = round % 2 == 0;
            let job = Product {
                a: View::new(bytemuck::cast_slice(&a_bytes), a_type, 0, &a_sizes, &a_strides).unwrap(),
                b: View::new(bytemuck::cast_slice(&b_bytes), b_type, 0, &b_sizes, &b_strides).unwrap(),
                bias: with_bias.then(|| {
                    View::new(bytemuck::cast_slice(&bias), DType::F32, 0, &sizes, &[0, 0, 1]).unwrap()
                }),
                alpha: 0.5,
                beta: 2.0,
            };
            let got = multiply(path, 1 + round % 3, &sizes, &job);
            let want: Vec<f64> = (0..batch * rows * columns)
                .map(|at| {
                    let (n, r, c) = (at / (rows * columns), at / columns % rows, at % columns);
                    let term = |j: usize| {
                        let x = a[n * rows * inner + r * a_strides[1] as usize + j * a_strides[2] as usize];
                        f64::from(x) * f64::from(b[j * b_strides[1] as usize + c * b_strides[2] as usize])
                    };
                    let sum: f64 = (0..inner).map(term).sum();
                    0.5 * sum + if with_bias { 2.0 * f64::from(bias[c]) } else { 0.0 }
                })
                .collect();
            let what = format!("{rows} x {inner} x {columns}, {a_type} {b_type}, layout {layout}, {path}");
            assert_close(&got, &want, 1e-5, 2e-6 * (inner as f64).sqrt() + 1e-6, &what);
        }
    });
}

#[test]
fn no_terms_give_the_bias_and_beta_0_hides_it() {
    on_every_path(|path| {
        for rows in [2, 20] {
            let (a_sizes, b_sizes, sizes) = ([rows, 0], [0, 3], [rows, 3]);
            let bias = [1f32, f32::NAN, 3.0];
            let job = |beta, b_strides| Product {
                a: View::new(&[], DType::F32, 0, &a_sizes, &[0, 1]).unwrap(),
                b: View::new(&[], DType::F32, 0, &b_sizes, b_strides).unwrap(),
                bias: Some(View::new(bytemuck::cast_slice(&bias), DType::F32, 0, &sizes, &[0, 1]).unwrap()),
                alpha: 1.0,
                beta,
            };
            for strides in [&[1, 0], &[3, 1]] {
                assert_eq!(multiply(path, 1, &sizes, &job(0.0, strides)), vec![0.0; rows * 3]);
                let got = multiply(path, 1, &sizes, &job(2.0, strides));
                assert!(got[0] == 2.0 && got[1].is_nan() && got[rows * 3 - 1] == 6.0);
            }
        }
    });
}

#[test]
fn scratch_of_sizes_that_overflow_is_more_than_anybody_has() {
    assert_eq!(scratch_bytes(16, 1 << 60, 4, 1), usize::MAX);
    assert_eq!(scratch_bytes(8, 1 << 61, 4, 1), usize::MAX);
}

/// What lanes that are multiplied together rest on.
#[test]
fn few_rows_give_each_what_it_gives_alone_to_the_last_bit() {
    let mut random = Random::new(5);
    on_every_path(|path| {
        let sizes = sized([(96, 130), (75, 48), (40, 31)], [(9, 18), (7, 16), (5, 3)]);
        for ((inner, columns), b_type) in sizes.into_iter().zip([DType::F32, DType::BF16, DType::F16]) {
            let (_, a) = stored(&mut random, FEW_ROWS * inner, b_type);
            let (_, b) = stored(&mut random, inner * columns, b_type);
            let (i, c) = (inner as isize, columns as isize);
            for b_strides in [[1, i], [c, 1]] {
                let of = |first: usize, rows: usize| {
                    let (left, right, strides) = ([rows, inner], [inner, columns], [i, 1]);
                    let a = bytemuck::cast_slice(&a);
                    let a = View::new(a, b_type, first * inner, &left, &strides).unwrap();
                    let b = View::new(bytemuck::cast_slice(&b), b_type, 0, &right, &b_strides).unwrap();
                    multiply(path, 2, &[rows, columns], &Product::new(a, b))
                };
                for rows in sized(2, FEW_ROWS)..=FEW_ROWS {
                    let together = of(0, rows);
                    for (row, given) in together.chunks_exact(columns).enumerate() {
                        assert!(
                            given == of(row, 1),
                            "{path}: row {row} of {rows}, {inner} x {columns} {b_type}"
                        );
                    }
                }
            }
        }
    });
}

/// Sums of packed weights, whatever the number of columns leaves of a panel; a row gives the same bits beside any others.
#[test]
fn packed_weights_equal_the_sums_and_rows_do_not_see_each_other() {
    use crate::epilogue::Epilogue;
    let mut random = Random::new(5);
    on_every_path(|path| {
        for (rows, inner, columns) in [
            (1, 1, 1),
            (3, 5, 16),
            (12, 40, 17),
            (25, 64, 33),
            (49, 30, 70),
            (sized(130, 20), sized(385, 20), 100),
            (9, sized(1200, 30), sized(600, 40)),
            // More than one block of rows, each with sums that wait between spans of terms.
            (sized(230, 20), sized(1733, 30), sized(130, 40)),
        ] {
            let (a, w) = (random.floats(rows * inner), random.floats(columns * inner));
            let (of_a, of_w, of_out) = ([rows, inner], [columns, inner], [rows, columns]);
            let strides = [dense(&of_a), dense(&of_w), dense(&of_out)];
            let view = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &of_w, &strides[1]).unwrap();
            let panels = packed::Panels::pack(path, &view).unwrap();
            assert!(panels.bytes() >= w.len() * 4);
            let product = |rows: usize, threads: usize| {
                let (mut out, of_a, of_out) =
                    (vec![f32::NAN; rows * columns], [rows, inner], [rows, columns]);
                let a = View::new(bytemuck::cast_slice(&a), DType::F32, 0, &of_a, &strides[0]).unwrap();
                let bytes = bytemuck::cast_slice_mut(&mut out);
                let mut to = ViewMut::new(bytes, DType::F32, 0, &of_out, &strides[2]).unwrap();
                let (pool, epilogue) = (Pool::new(threads), Epilogue::default());
                let mut scratch = vec![0xffu8; panels.scratch_bytes(rows, threads)];
                packed::product(&pool, &mut to, &a, &panels, &epilogue, &mut scratch);
                out
            };
            let out = product(rows, 3);
            let at = |row: usize, column: usize| -> f64 {
                (0..inner).map(|j| f64::from(a[row * inner + j]) * f64::from(w[column * inner + j])).sum()
            };
            let want: Vec<f64> = (0..rows * columns).map(|i| at(i / columns, i % columns)).collect();
            assert_close(&out, &want, 1e-4, 1e-4, &format!("{rows} x {inner} x {columns} on {path}"));
            let fewer = rows.div_ceil(2);
            assert_eq!(product(fewer, 1), out[..fewer * columns], "{rows} x {inner} x {columns} on {path}");
        }
    });
}

/// What is not finite has no parts that tiles could multiply, and what is nearly not must not become so; both are their row's own
/// business. Everything else is right to f32, by whatever parts it is multiplied.
#[test]
fn packed_weights_keep_the_precision_and_the_limits_of_f32() {
    use crate::epilogue::Epilogue;
    let mut random = Random::new(11);
    let (rows, inner, columns) = (37, 70, 83);
    let mut a = random.floats(rows * inner);
    let mut w = random.floats(columns * inner);
    // Factors of 0 for what is infinite, too.
    w.iter_mut().step_by(inner * 3).for_each(|w| *w = 0.0);
    a[2 * inner] = f32::INFINITY;
    a[17 * inner + 40] = f32::NAN;
    // A NaN without a bit in its upper half.
    a[18 * inner + 69] = f32::from_bits(0x7f80_0001);
    (a[20 * inner + 1], a[20 * inner + 2]) = (f32::INFINITY, f32::NEG_INFINITY);
    a[30 * inner..31 * inner].fill(0.0);
    a[30 * inner + 7] = f32::MAX;
    a[36 * inner..].iter_mut().for_each(|a| *a *= 1e-36);
    let (of_a, of_w, of_out) = ([rows, inner], [columns, inner], [rows, columns]);
    let strides = [dense(&of_a), dense(&of_w), dense(&of_out)];
    on_every_path(|path| {
        let view = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &of_w, &strides[1]).unwrap();
        let panels = packed::Panels::pack(path, &view).unwrap();
        let mut out = vec![0f32; rows * columns];
        let left = View::new(bytemuck::cast_slice(&a), DType::F32, 0, &of_a, &strides[0]).unwrap();
        let bytes = bytemuck::cast_slice_mut(&mut out);
        let mut to = ViewMut::new(bytes, DType::F32, 0, &of_out, &strides[2]).unwrap();
        let mut scratch = vec![0xffu8; panels.scratch_bytes(rows, 2)];
        packed::product(&Pool::new(2), &mut to, &left, &panels, &Epilogue::default(), &mut scratch);
        for (at, &got) in out.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let product = |j: usize| f64::from(a[row * inner + j]) * f64::from(w[column * inner + j]);
            let want: f64 = (0..inner).map(product).sum();
            let size: f64 = (0..inner).map(|j| product(j).abs()).sum();
            let same = f64::from(got) == want || got.is_nan() && want.is_nan();
            let near = (f64::from(got) - want).abs() <= 1e-6 * size + 1e-36;
            assert!(same || near, "row {row}, column {column} on {path}: {got} and not {want}");
        }
    });
}
