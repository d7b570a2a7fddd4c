//! Times the f32 kernels of models that are no language models, at the sizes that those of `bench/make_vision.py` have: best of
//! several runs each.
//!
//! `cargo run --release -p pteron-kernels --example bench_vision [PATH] [THREADS] [WORD IN THE NAME]`

#![allow(clippy::print_stdout)] // prints its table

use pteron_kernels::attention::{self, Attention, Mask};
use pteron_kernels::convolution::packed::{Filters, convolution};
use pteron_kernels::convolution::{Axis, Direction, Shape};
use pteron_kernels::dense::packed::{Panels, product};
use pteron_kernels::epilogue::Epilogue;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut, row_major};
use pteron_tensor::DType;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map_or(Ok(Path::best()), |name| Path::parse(&name).and_then(Path::check));
    let threads = arguments.next().map_or(Ok(1), |count| count.parse());
    let word = arguments.next().unwrap_or_default();
    let (path, threads) = match (path, threads) {
        (Ok(path), Ok(threads)) => (path, threads),
        (Err(error), _) => return println!("{error}"),
        _ => return println!("the second argument is a number of threads"),
    };
    let pool = Pool::new(threads);
    println!("path {path}, {} threads", pool.threads());
    println!("{:<44}{:>10}{:>10}", "kernel", "us", "GFLOP/s");
    let show = |name: String, work: f64, run: &mut dyn FnMut()| {
        if name.contains(&word) {
            let time = best(run);
            println!("{name:<44}{:>10.1}{:>10.1}", time * 1e6, work / time / 1e9);
        }
    };
    products(&pool, path, &show);
    convolutions(&pool, path, &show);
    attentions(&pool, path, &show);
}

/// Prints what a kernel of so many operations takes.
type Show<'a> = &'a dyn Fn(String, f64, &mut dyn FnMut());

/// Seconds of the best of several runs.
fn best(run: &mut dyn FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for round in 0.. {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
        if round >= 4 && begin.elapsed().as_secs_f64() > 0.25 {
            break;
        }
    }
    best
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 2_654_435_761 % 1000) as f32 - 500.0) / 500.0).collect()
}

fn view<'a>(list: &'a [f32], sizes: &'a [usize], strides: &'a mut Vec<isize>) -> View<'a> {
    strides.resize(sizes.len(), 0);
    row_major(sizes, strides);
    View::new(bytemuck::cast_slice(list), DType::F32, 0, sizes, strides)
        .expect("as many numbers as sizes say")
}

fn view_mut<'a>(list: &'a mut [f32], sizes: &'a [usize], strides: &'a mut Vec<isize>) -> ViewMut<'a> {
    strides.resize(sizes.len(), 0);
    row_major(sizes, strides);
    ViewMut::new(bytemuck::cast_slice_mut(list), DType::F32, 0, sizes, strides)
        .expect("as many numbers as sizes say")
}

fn products(pool: &Pool, path: Path, show: Show<'_>) {
    for (what, sizes) in [
        ("bert", &[(128, 512, 512), (128, 512, 2048), (128, 2048, 512)][..]),
        ("vit", &[(197, 192, 192), (197, 192, 768), (197, 768, 192)]),
        ("whisper", &[(1500, 384, 384), (1500, 384, 1536), (1500, 1536, 384)]),
        (
            "mobilenet",
            &[
                (12544, 32, 16),
                (12544, 16, 96),
                (3136, 96, 24),
                (3136, 24, 144),
                (784, 144, 32),
                (784, 32, 192),
                (196, 192, 64),
                (196, 64, 384),
                (196, 384, 96),
                (196, 96, 576),
                (49, 576, 160),
                (49, 160, 960),
                (49, 960, 320),
                (49, 320, 1280),
            ],
        ),
    ] {
        for &(rows, inner, columns) in sizes {
            let (a, w) = (numbers(rows * inner), numbers(columns * inner));
            let mut out = vec![0f32; rows * columns];
            let (of_a, of_w, of_out) = ([rows, inner], [columns, inner], [rows, columns]);
            let mut strides = [vec![], vec![], vec![]];
            let [for_a, for_w, for_out] = &mut strides;
            let panels = Panels::pack(path, &view(&w, &of_w, for_w)).expect("a matrix that can be counted");
            let (a, mut out) = (view(&a, &of_a, for_a), view_mut(&mut out, &of_out, for_out));
            let mut scratch = vec![0u8; panels.scratch_bytes(rows, pool.threads())];
            let name = format!("{what} product {rows} {inner} {columns}");
            show(name, 2.0 * (rows * inner * columns) as f64, &mut || {
                product(pool, &mut out, &a, &panels, &Epilogue::default(), &mut scratch);
            });
        }
    }
}

fn convolutions(pool: &Pool, path: Path, show: Show<'_>) {
    // Input, channels, filters, kernel, stride, groups.
    for (what, list) in [
        (
            "resnet",
            &[
                (224, 3, 64, 7, 2, 1),
                (56, 64, 64, 3, 1, 1),
                (56, 64, 128, 3, 2, 1),
                (56, 64, 128, 1, 2, 1),
                (28, 128, 128, 3, 1, 1),
                (28, 128, 256, 3, 2, 1),
                (14, 256, 256, 3, 1, 1),
                (14, 256, 512, 3, 2, 1),
                (7, 512, 512, 3, 1, 1),
            ][..],
        ),
        (
            "mobilenet",
            &[
                (224, 3, 32, 3, 2, 1),
                (112, 32, 32, 3, 1, 32),
                (112, 96, 96, 3, 2, 96),
                (56, 144, 144, 3, 1, 144),
                (56, 144, 144, 3, 2, 144),
                (28, 192, 192, 3, 1, 192),
                (28, 192, 192, 3, 2, 192),
                (14, 384, 384, 3, 1, 384),
                (14, 576, 576, 3, 1, 576),
                (14, 576, 576, 3, 2, 576),
                (7, 960, 960, 3, 1, 960),
            ],
        ),
        ("vit", &[(224, 3, 192, 16, 16, 1)]),
    ] {
        for &(size, channels, filters, kernel, stride, groups) in list {
            let padding = if kernel == stride { 0 } else { kernel / 2 };
            let result = (size + 2 * padding - kernel) / stride + 1;
            let shape = Shape {
                batch: 1,
                input: &[size; 2],
                kernel: &[kernel; 2],
                output: &[result; 2],
                axes: &[Axis { stride, padding, dilation: 1 }; 2],
                channels,
                filters,
                groups,
                direction: Direction::Plain,
            };
            run_convolution(pool, path, show, what, &shape);
        }
    }
    for (size, channels, filters, stride) in [(3000, 80, 384, 1), (3000, 384, 384, 2)] {
        let shape = Shape {
            batch: 1,
            input: &[size],
            kernel: &[3],
            output: &[(size - 1) / stride + 1],
            axes: &[Axis { stride, padding: 1, dilation: 1 }],
            channels,
            filters,
            groups: 1,
            direction: Direction::Plain,
        };
        run_convolution(pool, path, show, "whisper", &shape);
    }
}

fn run_convolution(pool: &Pool, path: Path, show: Show<'_>, what: &str, shape: &Shape<'_>) {
    let full = |first: usize, middle: &[usize], last: usize| [&[first], middle, &[last]].concat();
    let of_x = full(1, shape.input, shape.channels);
    let of_w = full(shape.filters, shape.kernel, shape.channels / shape.groups);
    let of_out = full(1, shape.output, shape.filters);
    let (x, w) = (numbers(of_x.iter().product()), numbers(of_w.iter().product()));
    let mut out = vec![0f32; of_out.iter().product()];
    let work = 2.0 * (out.len() * w.len() / shape.filters) as f64;
    let mut strides = [vec![], vec![], vec![]];
    let [for_x, for_w, for_out] = &mut strides;
    let filters = Filters::pack(path, &view(&w, &of_w, for_w), shape).expect("filters that can be counted");
    let (x, mut out) = (view(&x, &of_x, for_x), view_mut(&mut out, &of_out, for_out));
    let mut scratch = vec![0u8; filters.scratch_bytes(shape, pool.threads())];
    let (input, kernel, stride) = (shape.input[0], shape.kernel[0], shape.axes[0].stride);
    let kind = if shape.groups > 1 { "depthwise" } else { "convolution" };
    let name = format!("{what} {kind} {input} {} {} {kernel}/{stride}", shape.channels, shape.filters);
    show(name, work, &mut || {
        convolution(pool, &mut out, &x, &filters, shape, &Epilogue::default(), &mut scratch);
    });
}

fn attentions(pool: &Pool, path: Path, show: Show<'_>) {
    for (what, heads, length, features) in
        [("vit", 3, 197, 64), ("bert", 8, 128, 64), ("whisper", 6, 1500, 64)]
    {
        let count = heads * length * features;
        let (q, k, v) = (numbers(count), numbers(count), numbers(count));
        let sizes = [1, heads, length, features];
        // Heads side by side in a row, as they come from one projection.
        let strides = [0, features as isize, (heads * features) as isize, 1];
        let mut out = vec![0f32; count];
        let [q, k, v] = [&q, &k, &v].map(|list| {
            View::new(bytemuck::cast_slice(list), DType::F32, 0, &sizes, &strides)
                .expect("numbers for all sizes")
        });
        let job = Attention { q, k, v, scale: 0.1, mask: Mask::None, ring: None, pages: None };
        let mut scratch = vec![0u8; attention::scratch_bytes(&job.sizes(), pool.threads())];
        let mut out = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes, &strides)
            .expect("numbers for all sizes");
        let work = 4.0 * (heads * length * length * features) as f64;
        show(format!("{what} attention {heads} x {length} of {features}"), work, &mut || {
            attention::attention(pool, path, &mut out, &job, &mut scratch);
        });
    }
}
