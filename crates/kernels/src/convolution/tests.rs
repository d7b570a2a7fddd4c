//! Convolutions against the textbook formula: every output, every tap, every channel.

use super::*;
use crate::epilogue::Epilogue;
use crate::trial::{Random, assert_close, dense, on_every_path, sized};
use pteron_tensor::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The textbook formula, by scattering for the transposed kind.
fn formula(shape: &Shape<'_>, x: &[f32], w: &[f32]) -> Vec<f64> {
    let coordinates = |mut at: usize, sizes: &[usize]| -> Vec<i64> {
        let mut list: Vec<i64> = sizes
            .iter()
            .rev()
            .map(|n| {
                let i = at % n;
                at /= n;
                i as i64
            })
            .collect();
        list.reverse();
        list
    };
    let (depth, filters) = (shape.depth(), shape.filters / shape.groups);
    let mut out = vec![0.0; shape.batch * shape.positions() * shape.filters];
    for (i, t, o) in (0..shape.pixels())
        .flat_map(|i| (0..shape.taps()).flat_map(move |t| (0..shape.positions()).map(move |o| (i, t, o))))
    {
        let (at, tap, to) =
            (coordinates(i, shape.input), coordinates(t, shape.kernel), coordinates(o, shape.output));
        let meets = (0..shape.axes.len()).all(|axis| {
            let Axis { stride, padding, dilation } = shape.axes[axis];
            let (from, target) = match shape.direction {
                Direction::Plain => (to[axis], at[axis]),
                Direction::Transposed => (at[axis], to[axis]),
            };
            from * stride as i64 + tap[axis] * dilation as i64 - padding as i64 == target
        });
        if !meets {
            continue;
        }
        for n in 0..shape.batch {
            for f in 0..shape.filters {
                for c in 0..depth {
                    let x = x[(n * shape.pixels() + i) * shape.channels + f / filters * depth + c];
                    let w = w[(f * shape.taps() + t) * depth + c];
                    out[(n * shape.positions() + o) * shape.filters + f] += f64::from(x) * f64::from(w);
                }
            }
        }
    }
    out
}

#[test]
fn every_kind_equals_the_textbook_formula() {
    let mut random = Random::new(4);
    on_every_path(|path| {
        for round in 0..sized(48, 8) {
            let count = 1 + round % 3;
            // The formula looks at every input for every output.
            let spare = sized([9, 4, 2], [4, 2, 1])[count - 1];
            let direction = if round % 2 == 0 { Direction::Plain } else { Direction::Transposed };
            let (mut input, mut kernel, mut output, mut axes) = (vec![], vec![], vec![], vec![]);
            for _ in 0..count {
                let axis = Axis {
                    stride: 1 + random.below(3),
                    padding: random.below(4 - count),
                    dilation: 1 + random.below(sized(2, 1)),
                };
                let taps = if round % 7 == 0 { 1 } else { 1 + random.below(sized(3, 2)) };
                let axis = if round % 7 == 0 { Axis { stride: 1, padding: 0, dilation: 1 } } else { axis };
                let reach = axis.dilation * (taps - 1) + 1;
                let size = reach + 2 * axis.padding + random.below(spare);
                let result = match direction {
                    Direction::Plain => (size + 2 * axis.padding - reach) / axis.stride + 1,
                    Direction::Transposed => (size - 1) * axis.stride + reach - 2 * axis.padding,
                };
                input.push(size);
                kernel.push(taps);
                output.push(result);
                axes.push(axis);
            }
            let groups = [1, 2, 3][random.below(3)];
            let (channels, filters) = match round % 4 {
                3 => (groups, groups),
                _ => (groups * (1 + random.below(sized(9, 3))), groups * (1 + random.below(sized(20, 3)))),
            };
            let shape = Shape {
                batch: 1 + random.below(2),
                input: &input,
                kernel: &kernel,
                output: &output,
                axes: &axes,
                channels,
                filters,
                groups,
                direction,
            };
            let x = random.floats(shape.batch * shape.pixels() * channels);
            let w = random.floats(filters * shape.taps() * shape.depth());
            let full = |first: usize, middle: &[usize], last: usize| [&[first], middle, &[last]].concat();
            let sizes = [
                full(shape.batch, &output, filters),
                full(shape.batch, &input, channels),
                full(filters, &kernel, shape.depth()),
            ];
            let strides = [dense(&sizes[0]), dense(&sizes[1]), dense(&sizes[2])];
            let mut out = vec![f32::NAN; sizes[0].iter().product()];
            let mut scratch = vec![0xffu8; scratch_bytes(&shape, 2)];
            convolution(
                &Pool::new(2),
                path,
                &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes[0], &strides[0])
                    .unwrap(),
                &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes[1], &strides[1]).unwrap(),
                &View::new(bytemuck::cast_slice(&w), DType::F32, 0, &sizes[2], &strides[2]).unwrap(),
                &shape,
                &mut scratch,
            );
            let (mut want, what) = (formula(&shape, &x, &w), format!("round {round} {shape:?} {path}"));
            assert_close(&out, &want, 1e-5, 1e-5, &what);

            // The same with packed filters, and what follows a sum.
            let (bias, residual) = (random.floats(filters), random.floats(out.len()));
            let seen: Vec<AtomicUsize> = (0..out.len()).map(|_| AtomicUsize::new(0)).collect();
            let then = |rows: Range<usize>, columns: Range<usize>| {
                for row in rows {
                    columns.clone().for_each(|column| {
                        seen[row * filters + column].fetch_add(1, Ordering::Relaxed);
                    });
                }
            };
            let epilogue = Epilogue {
                bias: (round % 2 == 0).then_some(&bias[..]),
                residual: (round % 3 == 0).then_some(&residual[..]),
                low: (round % 5 < 3).then_some(-0.25),
                high: (round % 5 > 0).then_some(0.5),
                then: Some(&then),
            };
            for (at, want) in want.iter_mut().enumerate() {
                *want += epilogue.bias.map_or(0.0, |bias| f64::from(bias[at % filters]));
                *want += epilogue.residual.map_or(0.0, |residual| f64::from(residual[at]));
                *want = epilogue.low.map_or(*want, |low| want.max(low.into()));
                *want = epilogue.high.map_or(*want, |high| want.min(high.into()));
            }
            let w = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &sizes[2], &strides[2]).unwrap();
            let packed_filters = packed::Filters::pack(path, &w, &shape).unwrap();
            let mut scratch = vec![0xffu8; packed_filters.scratch_bytes(&shape, 2)];
            out.fill(f32::NAN);
            packed::convolution(
                &Pool::new(2),
                &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes[0], &strides[0])
                    .unwrap(),
                &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes[1], &strides[1]).unwrap(),
                &packed_filters,
                &shape,
                &epilogue,
                &mut scratch,
            );
            assert_close(&out, &want, 1e-5, 1e-5, &what);
            assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{what}");
        }
    });
}

/// Three taps a line, strides of 1 and 2, borders, and more channels than vectors hold: the case that has code of its own.
#[test]
fn depthwise_convolutions_of_three_taps_equal_the_textbook_formula() {
    let mut random = Random::new(9);
    on_every_path(|path| {
        for (high, wide, channels, stride, padding) in [
            (1, 3, 16, 1, 1),
            (5, 9, 37, 1, 1),
            (2, 8, 64, 2, 1),
            (4, 4, 130, 1, 0),
            (6, 11, 33, 2, 0),
            (3, 7, 80, 1, 2),
        ] {
            let (input, kernel) = ([high, wide], [if high == 1 { 1 } else { 3 }, 3]);
            let axes = [
                Axis { stride, padding: if high == 1 { 0 } else { padding }, dilation: 1 },
                Axis { stride, padding, dilation: 1 },
            ];
            let size = |axis: usize| (input[axis] + 2 * axes[axis].padding - kernel[axis]) / stride + 1;
            let output = [size(0), size(1)];
            let (batch, groups, filters) = (2, channels, channels);
            let shape = Shape {
                batch,
                input: &input,
                kernel: &kernel,
                output: &output,
                axes: &axes,
                channels,
                filters,
                groups,
                direction: Direction::Plain,
            };
            let (mut x, w) =
                (random.floats(batch * high * wide * channels), random.floats(channels * shape.taps()));
            // What lies outside of the input is nothing, and not zero times something.
            x[0] = f32::INFINITY;
            let sizes = [[batch, output[0], output[1], channels], [batch, high, wide, channels]];
            let (strides, of_w) = (sizes.map(|sizes| dense(&sizes)), [channels, kernel[0], 3, 1]);
            let w_strides = dense(&of_w);
            let weights = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &of_w, &w_strides).unwrap();
            let filters = packed::Filters::pack(path, &weights, &shape).unwrap();
            let mut out = vec![f32::NAN; sizes[0].iter().product()];
            packed::convolution(
                &Pool::new(2),
                &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes[0], &strides[0])
                    .unwrap(),
                &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes[1], &strides[1]).unwrap(),
                &filters,
                &shape,
                &Epilogue::default(),
                &mut [],
            );
            assert_close(&out, &formula(&shape, &x, &w), 1e-5, 1e-5, &format!("{shape:?} {path}"));
        }
    });
}

/// Sums of many taps and channels for many filters, collected and as they lie: what matrix tiles compute where there are any.
#[test]
fn wide_convolutions_equal_the_textbook_formula() {
    let mut random = Random::new(12);
    on_every_path(|path| {
        let cases = [
            (3, 2, 12, 20, 3, 1, 2),
            (7, 9, 40, 70, 3, 1, 1),
            (9, 6, 33, 96, 3, 2, 1),
            (5, 7, 80, 100, 1, 1, 1),
            (6, 5, 96, 140, 3, 1, 2),
        ];
        for (high, wide, channels, filters, taps, stride, groups) in cases.into_iter().take(sized(5, 1)) {
            let (input, kernel) = ([high, wide], [taps; 2]);
            let axes = [Axis { stride, padding: taps / 2, dilation: 1 }; 2];
            let output = input.map(|size| (size + taps / 2 * 2 - taps) / stride + 1);
            let batch = 2;
            let shape = Shape {
                batch,
                input: &input,
                kernel: &kernel,
                output: &output,
                axes: &axes,
                channels,
                filters,
                groups,
                direction: Direction::Plain,
            };
            let depth = channels / groups;
            let x = random.floats(batch * high * wide * channels);
            let w = random.floats(filters * taps * taps * depth);
            let (of_x, of_w) = ([batch, high, wide, channels], [filters, taps, taps, depth]);
            let of_out = [batch, output[0], output[1], filters];
            let strides = [dense(&of_x), dense(&of_w), dense(&of_out)];
            let weights = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &of_w, &strides[1]).unwrap();
            let packed_filters = packed::Filters::pack(path, &weights, &shape).unwrap();
            let residual = random.floats(of_out.iter().product());
            let epilogue = Epilogue { residual: Some(&residual), low: Some(-1.0), ..Epilogue::default() };
            let mut want = formula(&shape, &x, &w);
            for (want, residual) in want.iter_mut().zip(&residual) {
                *want = (*want + f64::from(*residual)).max(-1.0);
            }
            for threads in [1, 2, 5] {
                let mut scratch = vec![0xffu8; packed_filters.scratch_bytes(&shape, threads)];
                let mut out = vec![f32::NAN; residual.len()];
                let bytes = bytemuck::cast_slice_mut(&mut out);
                packed::convolution(
                    &Pool::new(threads),
                    &mut ViewMut::new(bytes, DType::F32, 0, &of_out, &strides[2]).unwrap(),
                    &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &of_x, &strides[0]).unwrap(),
                    &packed_filters,
                    &shape,
                    &epilogue,
                    &mut scratch,
                );
                assert_close(&out, &want, 1e-5, 3e-5, &format!("{shape:?} on {path}, {threads} threads"));
            }
        }
    });
}

/// Channels enough that inputs are read where they lie, in one to three axes, and more terms than a span has: every number of threads
/// gives the same bytes.
#[test]
fn inputs_read_where_they_lie_equal_the_textbook_formula() {
    use Direction::{Plain, Transposed};
    /// Sizes, taps, stride, padding, dilation; channels, filters, groups.
    type Case<'a> = (Direction, &'a [usize], &'a [usize], [usize; 3], [usize; 3]);
    let cases: [Case<'_>; 9] = [
        (Plain, &[5, 6], &[3, 3], [1, 1, 1], [80, 50, 1]),
        (Plain, &[7, 5], &[3, 3], [2, 1, 1], [66, 130, 1]),
        (Plain, &[9, 8], &[3, 2], [1, 2, 2], [48, 40, 2]),
        (Plain, &[6, 5], &[1, 1], [2, 0, 1], [600, 33, 1]),
        (Plain, &[70], &[3], [1, 1, 1], [300, 20, 1]),
        (Plain, &[3, 4, 5], &[2, 3, 3], [1, 1, 1], [34, 18, 1]),
        (Plain, &[12, 11], &[5, 5], [3, 2, 1], [16, 17, 1]),
        (Transposed, &[4, 5], &[3, 3], [2, 1, 1], [72, 24, 1]),
        (Transposed, &[9], &[4], [3, 1, 1], [64, 48, 3]),
    ];
    let mut random = Random::new(31);
    on_every_path(|path| {
        for (direction, input, kernel, [stride, padding, dilation], [depth, columns, groups]) in
            cases.into_iter().take(sized(cases.len(), 1))
        {
            let (batch, channels, filters) = (2, depth * groups, columns * groups);
            let axes = vec![Axis { stride, padding, dilation }; input.len()];
            let output: Vec<usize> = (0..input.len())
                .map(|axis| {
                    let reach = dilation * (kernel[axis] - 1) + 1;
                    match direction {
                        Plain => (input[axis] + 2 * padding - reach) / stride + 1,
                        Transposed => (input[axis] - 1) * stride + reach - 2 * padding,
                    }
                })
                .collect();
            let axes = &axes[..];
            let shape =
                Shape { batch, input, kernel, output: &output, axes, channels, filters, groups, direction };
            let full = |first: usize, middle: &[usize], last: usize| [&[first], middle, &[last]].concat();
            let (of_x, of_w) = (full(batch, input, channels), full(filters, kernel, depth));
            let of_out = full(batch, &output, filters);
            let strides = [dense(&of_x), dense(&of_w), dense(&of_out)];
            let x = random.floats(of_x.iter().product());
            let w = random.floats(of_w.iter().product());
            let bias = random.floats(filters);
            let weights = View::new(bytemuck::cast_slice(&w), DType::F32, 0, &of_w, &strides[1]).unwrap();
            let packed_filters = packed::Filters::pack(path, &weights, &shape).unwrap();
            let epilogue = Epilogue { bias: Some(&bias), high: Some(3.0), ..Epilogue::default() };
            let mut want = formula(&shape, &x, &w);
            for (at, want) in want.iter_mut().enumerate() {
                *want = (*want + f64::from(bias[at % filters])).min(3.0);
            }
            let run = |threads: usize| {
                let mut scratch = vec![0xffu8; packed_filters.scratch_bytes(&shape, threads)];
                let mut out = vec![f32::NAN; want.len()];
                let bytes = bytemuck::cast_slice_mut(&mut out);
                packed::convolution(
                    &Pool::new(threads),
                    &mut ViewMut::new(bytes, DType::F32, 0, &of_out, &strides[2]).unwrap(),
                    &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &of_x, &strides[0]).unwrap(),
                    &packed_filters,
                    &shape,
                    &epilogue,
                    &mut scratch,
                );
                out
            };
            let (alone, what) = (run(1), format!("{shape:?} on {path}"));
            assert_close(&alone, &want, 1e-5, 3e-5, &what);
            for threads in [2, 5] {
                assert_eq!(run(threads), alone, "{what}, {threads} threads");
            }
        }
    });
}

#[test]
fn sizes_that_no_number_counts_are_refused() {
    let axes = [Axis { stride: 1, padding: 0, dilation: 1 }; 2];
    // The product of the input's sizes is 0 again.
    let shape = Shape {
        batch: 1,
        input: &[1 << 32, 1 << 32],
        kernel: &[1, 1],
        output: &[1, 1],
        axes: &axes,
        channels: 1,
        filters: 1,
        groups: 1,
        direction: Direction::Plain,
    };
    let (nothing, one, w) = ([0usize; 4], [1usize; 4], [1f32]);
    let result = std::panic::catch_unwind(|| {
        let (mut out, mut scratch) = ([0f32], vec![0; 1 << 20]);
        convolution(
            &Pool::new(1),
            Path::Scalar,
            &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &one, &[1; 4]).unwrap(),
            &View::new(&[], DType::F32, 0, &nothing, &[1; 4]).unwrap(),
            &View::new(bytemuck::cast_slice(&w), DType::F32, 0, &one, &[1; 4]).unwrap(),
            &shape,
            &mut scratch,
        );
    });
    assert!(result.is_err());
}
