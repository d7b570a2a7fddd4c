//! Speed of products with quantised weights, beside what the machine can do at most.
//!
//! `cargo run --release -p pteron-kernels --example bench_quant [decode|prefill|curve] [path=NAME] [threads=N]
//! [bits=N] [group=N] [rows=N] [precision=fast|exact] [shape=NxK] [form=woven|filed]`
//!
//! Decoding reads each weight once: its figure is GB/s, and its limit a plain read of the same memory.
//! Prefill multiplies: its figure is TOP/s, and its limit what the tiles do on data in registers. The curve shows
//! what few rows cost beside one: ms of a product, how many times that of one row, and the share of the read limit
//! at which the weight passes; codes there count from the middle. Weights lie
//! in huge pages and are cycled through, so that none is in a cache when its turn comes. Every figure is the
//! best of several.

#![allow(clippy::print_stdout, unsafe_code)]

use memmap2::{Advice, MmapMut};
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::quant::{
    Biases, LinearError, Precision, QuantLinear, QuantParts, QuantWeight, Rows, RowsMut,
};
use pteron_tensor::quant::{Mode, Scheme};
use pteron_tensor::{ByteOwner, Bytes, DType};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of weights that decoding cycles through.
const WEIGHT_BYTES: usize = 400 << 20;
/// How long, and at least how often, each figure is taken.
const SECONDS: f64 = 0.8;
const REPEATS: usize = 5;
const SHAPES: [(usize, usize); 6] =
    [(2048, 2048), (8192, 2048), (2048, 8192), (576, 1536), (1536, 576), (262144, 1536)];

/// Rows of the curve, how many weights in turn make one figure of it, and how long all of it is repeated.
const CURVE: [usize; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64];
const CURVE_WEIGHTS: usize = 4;
const CURVE_SECONDS: f64 = 6.0;

struct Mapped(MmapMut);

impl ByteOwner for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What the arguments choose.
struct Choice {
    arguments: Vec<String>,
}

impl Choice {
    fn value(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, Box<dyn Error>> {
        self.value(name).map_or(Ok(default), |value| Ok(value.parse()?))
    }

    fn names(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument == name)
    }

    fn wants(&self, name: &str, other: &str) -> bool {
        self.names(name) || !self.names(other) && !self.names("curve")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let choice = Choice { arguments: std::env::args().skip(1).collect() };
    let paths = match choice.value("path") {
        Some(name) => vec![Path::parse(name)?.check()?],
        None => Path::available().into_iter().filter(|&path| path != Path::Scalar).collect(),
    };
    let precisions = match choice.value("precision") {
        Some("exact") => vec![Precision::Exact],
        Some("fast") => vec![Precision::Fast],
        _ => vec![Precision::Fast, Precision::Exact],
    };
    let shapes = match choice.value("shape").and_then(|shape| shape.split_once('x')) {
        Some((n, k)) => vec![(n.parse()?, k.parse()?)],
        None => SHAPES.to_vec(),
    };
    let threads = match choice.value("threads") {
        Some(threads) => vec![threads.parse()?],
        None => vec![1, 2],
    };
    let (bits, group) = (choice.number("bits", 4)?, choice.number("group", 64)?);
    let scheme = Scheme::new(Mode::Affine, bits as i32, group as i32)?;
    let woven = choice.value("form") != Some("filed");
    let memory = weights_memory()?;
    for threads in threads {
        let pool = Pool::new(threads);
        if choice.wants("decode", "prefill") {
            let read = read_limit(&memory, &pool);
            println!("read limit, {threads} threads: {read:.1} GB/s");
            for &(n, k) in &shapes {
                for &path in &paths {
                    for &precision in &precisions {
                        decode(&memory, &pool, scheme, (n, k), How { path, precision, woven }, read)?;
                    }
                }
            }
        }
        if choice.names("curve") {
            let read = read_limit(&memory, &pool);
            for &(n, k) in &shapes {
                for &path in &paths {
                    for &precision in &precisions {
                        curve(&memory, &pool, scheme, (n, k), How { path, precision, woven }, read)?;
                    }
                }
            }
        }
        if choice.wants("prefill", "decode") {
            let rows = choice.number("rows", 512)?;
            let limit = tile_limit(&pool);
            println!("bf16 tile limit, {threads} threads: {limit:.2} TOP/s");
            for &(n, k) in shapes.iter().filter(|shape| shape.0 <= 8192) {
                for &path in &paths {
                    for &precision in &precisions {
                        prefill(&memory, &pool, scheme, (n, k, rows), How { path, precision, woven }, limit)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// How products are computed.
#[derive(Clone, Copy)]
struct How {
    path: Path,
    precision: Precision,
    /// Whether the weight is brought into the order of the kernels first.
    woven: bool,
}

impl How {
    fn bind(self, weight: QuantWeight) -> Result<QuantLinear, LinearError> {
        let linear = QuantLinear::new(weight, DType::BF16, self.path, self.precision)?;
        Ok(if self.woven { linear.arranged() } else { linear })
    }
}

fn weights_memory() -> Result<Arc<dyn ByteOwner>, Box<dyn Error>> {
    let mut map = MmapMut::map_anon(WEIGHT_BYTES)?;
    // Where the system has no huge pages, the read limit shows it.
    let _ = map.advise(Advice::HugePage);
    let mut state = 1u64;
    for word in map.chunks_exact_mut(8) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // As f16 and as bf16 near one or a hundredth of it: scales that are subnormal numbers, as no weight's are, take the
        // processor a hundred times as long.
        word.copy_from_slice(&((state >> 8) & 0x00ff_00ff_00ff_00ff | 0x3c00_3c00_3c00_3c00).to_le_bytes());
    }
    Ok(Arc::new(Mapped(map)))
}

fn best(mut one: impl FnMut() -> f64) -> f64 {
    let start = Instant::now();
    let (mut best, mut count) = (0.0, 0);
    while count < REPEATS || start.elapsed().as_secs_f64() < SECONDS {
        best = one().max(best);
        count += 1;
    }
    best
}

fn read_limit(memory: &Arc<dyn ByteOwner>, pool: &Pool) -> f64 {
    let words: &[u64] = bytemuck::cast_slice(memory.bytes());
    let tasks = 64 * pool.threads();
    let part = words.len() / tasks;
    best(|| {
        let total = AtomicU64::new(0);
        let start = Instant::now();
        pool.run(tasks, &|task| {
            total.fetch_add(sum(&words[task * part..][..part]), Ordering::Relaxed);
        });
        black_box(total);
        (tasks * part * 8) as f64 / start.elapsed().as_secs_f64() / 1e9
    })
}

fn sum(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the machine has AVX-512.
        return unsafe { sum_avx512(words) };
    }
    sum_plain(words)
}

#[inline(always)]
fn sum_plain(words: &[u64]) -> u64 {
    let mut sums = [0u64; 64];
    for words in words.chunks_exact(64) {
        sums.iter_mut().zip(words).for_each(|(sum, &word)| *sum = sum.wrapping_add(word));
    }
    sums.iter().fold(0, |sum, &word| sum.wrapping_add(word))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(words: &[u64]) -> u64 {
    sum_plain(words)
}

#[cfg(target_arch = "x86_64")]
fn tile_limit(pool: &Pool) -> f64 {
    use pteron_kernels::amx::Configured;
    const STEPS: usize = 20_000;
    if !Path::Amx.is_available() {
        return f64::NAN;
    }
    best(|| {
        let start = Instant::now();
        pool.run(pool.threads(), &|_| {
            let Some(tiles) = Configured::new() else { return };
            tiles.zero::<4>();
            tiles.zero::<5>();
            tiles.zero::<6>();
            tiles.zero::<7>();
            for _ in 0..STEPS {
                tiles.multiply_bf16::<0, 4, 6>();
                tiles.multiply_bf16::<1, 4, 7>();
                tiles.multiply_bf16::<2, 5, 6>();
                tiles.multiply_bf16::<3, 5, 7>();
            }
        });
        (pool.threads() * STEPS * 4 * 16 * 16 * 32 * 2) as f64 / start.elapsed().as_secs_f64() / 1e12
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn tile_limit(_pool: &Pool) -> f64 {
    f64::NAN
}

/// As many weights of a shape as the memory holds.
fn weights(
    memory: &Arc<dyn ByteOwner>,
    scheme: Scheme,
    (n, k): (usize, usize),
    most: usize,
    centred: bool,
) -> Result<Vec<QuantWeight>, Box<dyn Error>> {
    let codes = n * k * scheme.bits() as usize / 8;
    let scales = n * k / scheme.group() * 2;
    let part = |at: usize, len: usize| Bytes::shared(memory.clone(), at..at + len).ok_or("memory too small");
    let size = codes + 2 * scales;
    let count = (memory.bytes().len() / size).clamp(1, most);
    let weight = |i: usize| -> Result<QuantWeight, Box<dyn Error>> {
        let at = i * size;
        Ok(QuantWeight::new(QuantParts {
            codes: part(at, codes)?,
            scales: part(at + codes, scales)?,
            scale_dtype: DType::BF16,
            biases: match centred {
                true => Biases::Centre,
                false => Biases::Each(part(at + codes + scales, scales)?, DType::BF16),
            },
            scheme,
            matrices: 1,
            n,
            k,
        })?)
    };
    (0..count).map(weight).collect()
}

/// Memory for activations, aligned as kernels want it.
struct Buffer(MmapMut);

impl Buffer {
    fn new(len: usize) -> Result<Buffer, Box<dyn Error>> {
        let map = MmapMut::map_anon(len.max(1))?;
        let _ = map.advise(Advice::HugePage);
        Ok(Buffer(map))
    }

    /// Activations in bf16: both signs, none zero.
    fn activations(count: usize) -> Result<Buffer, Box<dyn Error>> {
        let mut buffer = Buffer::new(2 * count)?;
        for (i, value) in buffer.0.chunks_exact_mut(2).enumerate() {
            value.copy_from_slice(&(0x3f00 | ((i * 40503) >> 4) as u16 & 0x80ff).to_le_bytes());
        }
        Ok(buffer)
    }
}

fn decode(
    memory: &Arc<dyn ByteOwner>,
    pool: &Pool,
    scheme: Scheme,
    (n, k): (usize, usize),
    how: How,
    read: f64,
) -> Result<(), Box<dyn Error>> {
    let linears = weights(memory, scheme, (n, k), usize::MAX, false)?
        .into_iter()
        .map(|weight| how.bind(weight))
        .collect::<Result<Vec<_>, _>>()?;
    let x = Buffer::activations(k)?;
    let mut out = Buffer::new(n * 4)?;
    let mut prepared = Buffer::new(linears[0].input_bytes(1))?;
    let bytes: usize = linears.iter().map(|linear| linear.weight().matrix_bytes()).sum();
    let mut failed = None;
    let speed = best(|| {
        let start = Instant::now();
        for linear in &linears {
            let result = Rows::dense(&x.0, DType::BF16, 1, k)
                .and_then(|x| linear.prepare_input(pool, x, &mut prepared.0))
                .and_then(|()| RowsMut::dense(&mut out.0, DType::F32, 1, n))
                .and_then(|out| linear.run(pool, &prepared.0, out));
            failed = failed.take().or(result.err());
        }
        bytes as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    println!(
        "decode  {n:6}x{k:<5} {}b g{} {:8} {:?} {:2} threads {speed:6.2} GB/s  {:.2} of the limit",
        scheme.bits(),
        scheme.group(),
        how.path.name(),
        how.precision,
        pool.threads(),
        speed / read
    );
    Ok(())
}

fn prefill(
    memory: &Arc<dyn ByteOwner>,
    pool: &Pool,
    scheme: Scheme,
    (n, k, rows): (usize, usize, usize),
    how: How,
    limit: f64,
) -> Result<(), Box<dyn Error>> {
    let weight = weights(memory, scheme, (n, k), 1, false)?.remove(0);
    let linear = how.bind(weight)?;
    let x = Buffer::activations(rows * k)?;
    let mut out = Buffer::new(rows * n * 2)?;
    let mut prepared = Buffer::new(linear.input_bytes(rows))?;
    let mut failed = None;
    let mut preparing = f64::INFINITY;
    let speed = best(|| {
        let start = Instant::now();
        let result = Rows::dense(&x.0, DType::BF16, rows, k)
            .and_then(|x| linear.prepare_input(pool, x, &mut prepared.0));
        preparing = preparing.min(start.elapsed().as_secs_f64());
        let result = result
            .and_then(|()| RowsMut::dense(&mut out.0, DType::BF16, rows, n))
            .and_then(|out| linear.run(pool, &prepared.0, out));
        failed = failed.take().or(result.err());
        (2 * n * k * rows) as f64 / start.elapsed().as_secs_f64() / 1e12
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    println!(
        "prefill {n:6}x{k:<5} {rows} rows {}b g{} {:8} {:?} {:2} threads {speed:6.3} TOP/s  \
         {:.2} of the limit, preparing {:.0} us",
        scheme.bits(),
        scheme.group(),
        how.path.name(),
        how.precision,
        pool.threads(),
        speed / limit,
        preparing * 1e6
    );
    Ok(())
}

fn curve(
    memory: &Arc<dyn ByteOwner>,
    pool: &Pool,
    scheme: Scheme,
    (n, k): (usize, usize),
    how: How,
    read: f64,
) -> Result<(), Box<dyn Error>> {
    let linears = weights(memory, scheme, (n, k), usize::MAX, true)?
        .into_iter()
        .map(|weight| how.bind(weight))
        .collect::<Result<Vec<_>, _>>()?;
    let most = CURVE[CURVE.len() - 1];
    let x = Buffer::activations(most * k)?;
    let mut out = Buffer::new(most * n * 2)?;
    let mut prepared =
        Buffer::new(CURVE.iter().map(|&rows| linears[0].input_bytes(rows)).max().unwrap_or(0))?;
    let mut next = 0;
    let mut seconds = [f64::INFINITY; CURVE.len()];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < CURVE_SECONDS {
        for (seconds, &rows) in seconds.iter_mut().zip(&CURVE) {
            let start = Instant::now();
            for _ in 0..CURVE_WEIGHTS {
                let linear = &linears[next % linears.len()];
                next += 1;
                linear.prepare_input(pool, Rows::dense(&x.0, DType::BF16, rows, k)?, &mut prepared.0)?;
                linear.run(pool, &prepared.0, RowsMut::dense(&mut out.0, DType::BF16, rows, n)?)?;
            }
            *seconds = seconds.min(start.elapsed().as_secs_f64() / CURVE_WEIGHTS as f64);
        }
    }
    let (name, precision, threads) = (how.path.name(), how.precision, pool.threads());
    println!(
        "curve   {n}x{k} {}b g{} {name} {precision:?} {threads} threads, read limit {read:.1} GB/s",
        scheme.bits(),
        scheme.group()
    );
    for (&rows, &time) in CURVE.iter().zip(&seconds) {
        let share = linears[0].weight().matrix_bytes() as f64 / time / 1e9 / read;
        println!(
            "{rows:4} rows {:8.3} ms  {:6.2} times one row  {share:.2} of the limit",
            time * 1e3,
            time / seconds[0]
        );
    }
    Ok(())
}
