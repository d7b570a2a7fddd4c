//! Norms against their formulas in f64, on every path.

use super::*;
use crate::trial::{Random, assert_close, dense, on_every_path, sized};
use half::bf16;
use pteron_tensor::DType;

fn formula(x: &[f32], w: Option<&[f32]>, b: Option<&[f32]>, width: usize, layer: bool, eps: f64) -> Vec<f64> {
    let row = |row: &[f32]| {
        let n = row.len() as f64;
        let mean = if layer { row.iter().map(|&x| f64::from(x)).sum::<f64>() / n } else { 0.0 };
        let square = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (square + eps).sqrt();
        let value = |(j, &x): (usize, &f32)| {
            let w = w.map_or(1.0, |w| f64::from(w[j]));
            (f64::from(x) - mean) * scale * w + b.map_or(0.0, |b| f64::from(b[j]))
        };
        row.iter().enumerate().map(value).collect::<Vec<_>>()
    };
    x.chunks(width.max(1)).flat_map(row).collect()
}

#[test]
fn norms_equal_their_formulas() {
    let mut random = Random::new(1);
    on_every_path(|path| {
        for (rows, width) in
            [(1, 1), (3, 7), (2, 64), (sized(5, 1), 129), (1, sized(2048, 40)), (0, 8), (4, 0)]
        {
            let (x, w, b) = (random.floats(rows * width), random.floats(width), random.floats(width));
            let (sizes, feature) = ([rows, width], [width]);
            let strides = dense(&sizes);
            let view = |x| View::new(x, DType::F32, 0, &sizes, &strides).unwrap();
            let factor = |x| View::new(x, DType::F32, 0, &feature, &[1]).unwrap();
            let (w8, b8) = (bytemuck::cast_slice(&w), bytemuck::cast_slice(&b));
            let mut out = vec![0f32; rows * width];
            let pool = Pool::new(2);
            for weighted in [false, true] {
                let (fw, fb) = (factor(w8), factor(b8));
                let (weight, bias) = (weighted.then_some(&fw), weighted.then_some(&fb));
                let (w, b) = (weighted.then_some(&w[..]), weighted.then_some(&b[..]));
                let bytes = bytemuck::cast_slice_mut(&mut out);
                let mut to = ViewMut::new(bytes, DType::F32, 0, &sizes, &strides).unwrap();
                rms_norm(&pool, path, &mut to, &view(bytemuck::cast_slice(&x)), weight, 1e-5);
                let want = formula(&x, w, None, width, false, f64::from(1e-5f32));
                assert_close(&out, &want, 2e-6, 1e-6, &format!("rms {rows}x{width} {path}"));
                let bytes = bytemuck::cast_slice_mut(&mut out);
                let mut to = ViewMut::new(bytes, DType::F32, 0, &sizes, &strides).unwrap();
                layer_norm(&pool, path, &mut to, &view(bytemuck::cast_slice(&x)), weight, bias, 1e-5);
                let want = formula(&x, w, b, width, true, f64::from(1e-5f32));
                assert_close(&out, &want, 4e-6, 2e-6, &format!("layer {rows}x{width} {path}"));
            }
        }
    });
}

#[test]
fn sums_are_kept_and_normed_in_their_own_dtype() {
    let mut random = Random::new(2);
    let width = 100;
    let [x, r]: [Vec<bf16>; 2] =
        [(); 2].map(|()| random.floats(3 * width).into_iter().map(bf16::from_f32).collect());
    let w = random.floats(width);
    on_every_path(|path| {
        let (sizes, strides) = ([3, width], [width as isize, 1]);
        let view = |x| View::new(bytemuck::cast_slice(x), DType::BF16, 0, &sizes, &strides).unwrap();
        let weight = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &sizes[1..], &[1]).unwrap();
        let (mut sum, mut out) = (vec![bf16::ZERO; 3 * width], vec![0f32; 3 * width]);
        add_rms_norm(
            &Pool::new(1),
            path,
            &mut ViewMut::new(bytemuck::cast_slice_mut(&mut sum), DType::BF16, 0, &sizes, &strides).unwrap(),
            &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes, &strides).unwrap(),
            &view(&x),
            &view(&r),
            Some(&weight),
            1e-6,
        );
        let want: Vec<bf16> =
            x.iter().zip(&r).map(|(x, r)| bf16::from_f32(x.to_f32() + r.to_f32())).collect();
        assert_eq!(sum, want);
        let sums: Vec<f32> = want.iter().map(|x| x.to_f32()).collect();
        let want = formula(&sums, Some(&w), None, width, false, 1e-6);
        assert_close(&out, &want, 2e-6, 1e-6, &format!("{path}"));
    });
}

/// Rows without elements may have any stride: nothing may be computed from it.
#[test]
fn rows_without_elements_lie_nowhere() {
    let (sizes, strides) = ([3, 0], [isize::MAX / 4, 1]);
    let view = View::new(&[], DType::F32, 0, &sizes, &strides).unwrap();
    let pool = Pool::new(1);
    on_every_path(|path| {
        let new = || ViewMut::new(&mut [], DType::F32, 0, &sizes, &strides).unwrap();
        rms_norm(&pool, path, &mut new(), &view, None, 1e-5);
        add_rms_norm(&pool, path, &mut new(), &mut new(), &view, &view, None, 1e-5);
        layer_norm(&pool, path, &mut new(), &view, None, None, 1e-5);
        crate::softmax::softmax(&pool, path, &mut new(), &view);
        let mut out = [0f32; 3];
        let mut to =
            ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &[3, 1], &[1, 1]).unwrap();
        crate::softmax::log_sum_exp(&pool, path, &mut to, &view);
        assert_eq!(out, [f32::NEG_INFINITY; 3]);
    });
}
