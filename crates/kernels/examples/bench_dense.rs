//! Times the dense kernels, best of several runs each: products against the crate `gemm`, matrix-vector products and
//! attention against the bytes that they read.
//!
//! `cargo run --release -p pteron-kernels --example bench_dense [PATH] [THREADS]`

#![allow(clippy::print_stdout, unsafe_code)] // prints its table, and calls the peer

use half::bf16;
use pteron_kernels::attention::{self, Attention, Mask};
use pteron_kernels::dense::{self, Product};
use pteron_kernels::elementwise::{BinaryOp, Chain, UnaryOp};
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut, row_major};
use pteron_tensor::DType;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map_or(Ok(Path::best()), |name| Path::parse(&name).and_then(Path::check));
    let threads = arguments.next().map_or(Ok(2), |count| count.parse());
    let (path, threads) = match (path, threads) {
        (Ok(path), Ok(threads)) => (path, threads),
        (Err(error), _) => return println!("{error}"),
        _ => return println!("the second argument is a number of threads"),
    };
    let pool = Pool::new(threads);
    println!("path {path}, {} threads", pool.threads());
    products(&pool, path);
    vectors(&pool, path);
    decode(&pool, path);
    prefill(&pool, path);
    elements(&pool, path);
}

/// Seconds of the best of several runs.
fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for round in 0.. {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
        if round >= 4 && begin.elapsed().as_secs_f64() > 0.6 {
            break;
        }
    }
    best
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 2_654_435_761 % 1000) as f32 - 500.0) / 500.0).collect()
}

fn halves(count: usize) -> Vec<bf16> {
    numbers(count).into_iter().map(bf16::from_f32).collect()
}

/// One product of an [m, k] matrix with a weight of [n, k] or [k, n].
#[allow(clippy::too_many_arguments)]
fn multiply(
    pool: &Pool,
    path: Path,
    (m, k, n): (usize, usize, usize),
    a: &[u8],
    b: &[u8],
    dtype: DType,
    transposed: bool,
    out: &mut [f32],
    scratch: &mut [u8],
) {
    let (a_sizes, b_sizes, sizes) = ([m, k], [k, n], [m, n]);
    let b_strides = if transposed { [1, k as isize] } else { [n as isize, 1] };
    let (a_strides, strides) = ([k as isize, 1], [n as isize, 1]);
    let (Some(a), Some(b), Some(mut out)) = (
        View::new(a, dtype, 0, &a_sizes, &a_strides),
        View::new(b, dtype, 0, &b_sizes, &b_strides),
        ViewMut::new(bytemuck::cast_slice_mut(out), DType::F32, 0, &sizes, &strides),
    ) else {
        return println!("sizes do not fit");
    };
    dense::product(pool, path, &mut out, &Product::new(a, b), scratch);
}

fn products(pool: &Pool, path: Path) {
    println!("{:<34}{:>12}{:>12}{:>12}", "product (m, k, n)", "GFLOP/s", "gemm", "ratio");
    for (m, k, n) in [(512, 2048, 2048), (128, 576, 1536), (64, 2048, 8192), (512, 64, 512)] {
        let (a, b) = (numbers(m * k), numbers(k * n));
        let mut out = vec![0f32; m * n];
        let mut scratch = vec![0u8; dense::scratch_bytes(m, k, n, pool.threads())];
        let work = 2.0 * (m * k * n) as f64 / 1e9;
        for transposed in [true, false] {
            let ours = best(|| {
                let (a, b) = (bytemuck::cast_slice(&a), bytemuck::cast_slice(&b));
                multiply(pool, path, (m, k, n), a, b, DType::F32, transposed, &mut out, &mut scratch);
            });
            let parallel = match pool.threads() {
                1 => gemm::Parallelism::None,
                threads => gemm::Parallelism::Rayon(threads),
            };
            let (row, column) = if transposed { (1, k as isize) } else { (n as isize, 1) };
            // SAFETY: pointers, sizes and strides are those of the three vectors.
            let theirs = best(|| unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    out.as_mut_ptr(),
                    1,
                    n as isize,
                    false,
                    a.as_ptr(),
                    1,
                    k as isize,
                    b.as_ptr(),
                    column,
                    row,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    parallel,
                );
            });
            let kind = if transposed { "f32, weight [n, k]" } else { "f32, weight [k, n]" };
            println!(
                "{:<34}{:>12.1}{:>12.1}{:>12.2}",
                format!("{kind} {m},{k},{n}"),
                work / ours,
                work / theirs,
                theirs / ours
            );
        }
        let (a, b) = (halves(m * k), halves(k * n));
        let ours = best(|| {
            let (a, b) = (bytemuck::cast_slice(&a), bytemuck::cast_slice(&b));
            multiply(pool, path, (m, k, n), a, b, DType::BF16, true, &mut out, &mut scratch);
        });
        println!("{:<34}{:>12.1}", format!("bf16, weight [n, k] {m},{k},{n}"), work / ours);
    }
}

fn vectors(pool: &Pool, path: Path) {
    println!("{:<34}{:>12}", "matrix and vector", "GB/s");
    let (k, n) = (2048, 32768);
    let mut out = vec![0f32; n];
    let mut scratch = vec![0u8; dense::scratch_bytes(1, k, n, pool.threads())];
    let x = halves(k);
    let w = halves(k * n);
    for transposed in [true, false] {
        let time = best(|| {
            let (x, w) = (bytemuck::cast_slice(&x), bytemuck::cast_slice(&w));
            multiply(pool, path, (1, k, n), x, w, DType::BF16, transposed, &mut out, &mut scratch);
        });
        let kind = if transposed { "bf16, weight [n, k]" } else { "bf16, weight [k, n]" };
        println!("{kind:<34}{:>12.1}", (k * n * 2) as f64 / time / 1e9);
    }
}

/// Attention over a cache of [1, shared, keys, features].
fn attend(
    pool: &Pool,
    path: Path,
    (heads, shared, queries, keys, features): (usize, usize, usize, usize, usize),
) -> f64 {
    let (q, k, v) = (
        halves(heads * queries * features),
        halves(shared * keys * features),
        halves(shared * keys * features),
    );
    let (q_sizes, k_sizes) = ([1, heads, queries, features], [1, shared, keys, features]);
    let (mut q_strides, mut k_strides) = ([0; 4], [0; 4]);
    row_major(&q_sizes, &mut q_strides);
    row_major(&k_sizes, &mut k_strides);
    let mut out = vec![bf16::ZERO; heads * queries * features];
    let (Some(q), Some(k), Some(v)) = (
        View::new(bytemuck::cast_slice(&q), DType::BF16, 0, &q_sizes, &q_strides),
        View::new(bytemuck::cast_slice(&k), DType::BF16, 0, &k_sizes, &k_strides),
        View::new(bytemuck::cast_slice(&v), DType::BF16, 0, &k_sizes, &k_strides),
    ) else {
        return f64::NAN;
    };
    let job = Attention { q, k, v, scale: 0.1, mask: Mask::Causal { window: None }, ring: None, pages: None };
    let mut scratch = vec![0u8; attention::scratch_bytes(&job.sizes(), pool.threads())];
    best(|| {
        let bytes = bytemuck::cast_slice_mut(&mut out);
        if let Some(mut out) = ViewMut::new(bytes, DType::BF16, 0, &q_sizes, &q_strides) {
            attention::attention(pool, path, &mut out, &job, &mut scratch);
        }
    })
}

fn decode(pool: &Pool, path: Path) {
    println!("{:<34}{:>12}{:>12}", "attention of one query, bf16", "us", "GB/s");
    for (heads, shared, keys, features) in
        [(32, 8, 2048, 64), (32, 8, 16384, 64), (8, 1, 2048, 256), (9, 3, 2048, 64), (16, 8, 8192, 128)]
    {
        let time = attend(pool, path, (heads, shared, 1, keys, features));
        let bytes = (shared * keys * features * 4) as f64;
        let what = format!("{heads}/{shared} heads, {keys} keys of {features}");
        println!("{what:<34}{:>12.1}{:>12.1}", time * 1e6, bytes / time / 1e9);
    }
}

fn prefill(pool: &Pool, path: Path) {
    println!("{:<34}{:>12}{:>12}", "causal attention of a prompt, bf16", "ms", "GFLOP/s");
    for (heads, shared, length, features) in [(32, 8, 512, 64), (32, 8, 2048, 64), (8, 1, 2048, 256)] {
        let time = attend(pool, path, (heads, shared, length, length, features));
        let work = 2.0 * (heads * length * length * features) as f64;
        let what = format!("{heads}/{shared} heads, {length} of {features}");
        println!("{what:<34}{:>12.2}{:>12.1}", time * 1e3, work / time / 1e9);
    }
}

fn elements(pool: &Pool, path: Path) {
    println!("{:<34}{:>12}{:>12}", "element by element, f32", "ns each", "GB/s");
    let count = 1 << 14;
    let x = numbers(count);
    let mut out = vec![0f32; count];
    let (sizes, strides) = ([count], [1]);
    let ops = [
        UnaryOp::Exp,
        UnaryOp::Silu,
        UnaryOp::GeluTanh,
        UnaryOp::Gelu,
        UnaryOp::Tanh,
        UnaryOp::Log,
        UnaryOp::Sin,
    ];
    for op in ops {
        let Some(chain) = Chain::unary(op, DType::F32, DType::F32, path) else { continue };
        let time = best(|| {
            let input = View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes, &strides);
            let output = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes, &strides);
            if let (Some(input), Some(mut output)) = (input, output) {
                chain.run(pool, &mut output, &[input]);
            }
        });
        println!("{:<34}{:>12.3}", format!("{op:?}"), time / count as f64 * 1e9);
    }
    for dtype in [DType::F32, DType::BF16] {
        let Some(chain) = Chain::binary(BinaryOp::Add, [dtype; 2], dtype, path) else { continue };
        let x = vec![0u8; count * dtype.size()];
        let mut out = vec![0u8; count * dtype.size()];
        let time = best(|| {
            let input = View::new(&x, dtype, 0, &sizes, &strides);
            let output = ViewMut::new(&mut out, dtype, 0, &sizes, &strides);
            if let (Some(input), Some(mut output)) = (input, output) {
                chain.run(pool, &mut output, &[input, input]);
            }
        });
        let bytes = (3 * count * dtype.size()) as f64;
        println!(
            "{:<34}{:>12.3}{:>12.1}",
            format!("Add of {dtype}"),
            time / count as f64 * 1e9,
            bytes / time / 1e9
        );
    }
}
