//! Attention against the plain formula in f64: random sizes, layouts, masks and dtypes, on every path.

use super::*;
use crate::trial::{Random, assert_close, on_every_path, sized};
use half::{bf16, f16};

/// A tensor of four axes in some layout, as the bytes of a dtype and as the f32 that these hold.
struct Tensor {
    bytes: Vec<u64>,
    values: Vec<f32>,
    sizes: [usize; 4],
    strides: [isize; 4],
    dtype: DType,
}

impl Tensor {
    /// `swapped` puts the third axis before the second in memory.
    fn new(random: &mut Random, sizes: [usize; 4], dtype: DType, swapped: bool) -> Tensor {
        let count = sizes.iter().product::<usize>();
        let mut values = random.floats(count);
        let mut bytes = vec![0u64; count.div_ceil(2) + 1];
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
        let [_, b, c, d] = sizes.map(|size| size as isize);
        let strides = if swapped { [b * c * d, d, b * d, 1] } else { [b * c * d, c * d, d, 1] };
        Tensor { bytes, values, sizes, strides, dtype }
    }

    fn view(&self) -> View<'_> {
        View::new(bytemuck::cast_slice(&self.bytes), self.dtype, 0, &self.sizes, &self.strides).unwrap()
    }

    fn at(&self, index: [usize; 4]) -> f64 {
        let at: isize = index.iter().zip(self.strides).map(|(&i, stride)| i as isize * stride).sum();
        self.values[at as usize].into()
    }
}

/// `see` changes a score, given (batch, head, query, key), or makes it -inf.
fn formula(
    sizes: Sizes,
    [q, k, v]: [&Tensor; 3],
    first: usize,
    see: impl Fn([usize; 4], f64) -> f64,
) -> Vec<f64> {
    let mut out = Vec::new();
    let rows = k.sizes[2];
    for (b, h, i) in (0..sizes.batch)
        .flat_map(|b| (0..sizes.heads).flat_map(move |h| (0..sizes.queries).map(move |i| (b, h, i))))
    {
        let shared = h / (sizes.heads / sizes.shared);
        let weights: Vec<f64> = (0..sizes.keys)
            .map(|j| {
                let row = (first + j) % rows;
                let dot: f64 =
                    (0..sizes.features).map(|d| q.at([b, h, i, d]) * k.at([b, shared, row, d])).sum();
                see([b, h, i, j], 0.3 * dot).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..sizes.values).map(|d| {
            let term = |j: usize| {
                let value = v.at([b, shared, (first + j) % rows, d]);
                if weights[j] == 0.0 { 0.0 } else { weights[j] * value }
            };
            if sum == 0.0 { 0.0 } else { (0..sizes.keys).map(term).sum::<f64>() / sum }
        }));
    }
    out
}

fn attend(path: Path, threads: usize, attention_of: &Attention<'_>) -> Vec<f32> {
    let sizes = attention_of.sizes();
    let shape = [sizes.batch, sizes.heads, sizes.queries, sizes.values];
    let mut out = vec![f32::NAN; shape.iter().product()];
    let strides = crate::trial::dense(&shape);
    let mut scratch = vec![0xffu8; scratch_bytes(&sizes, threads)];
    let mut view = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &shape, &strides).unwrap();
    attention(&Pool::new(threads), path, &mut view, attention_of, &mut scratch);
    out
}

#[test]
fn every_kind_equals_the_formula() {
    let mut random = Random::new(7);
    on_every_path(|path| {
        for round in 0..sized(30, 5) {
            let shared = 1 + random.below(sized(3, 2));
            let features = [4, 5, 16, 32, 64, 96][random.below(sized(6, 3))];
            let queries = [1, 1, 2, 5, 17, 60][random.below(sized(6, 3))];
            let long = if round % 10 == 0 { sized(700, 0) } else { 0 };
            let keys = queries + random.below(sized(120, 6)) + long;
            let sizes = Sizes {
                batch: 1 + random.below(sized(2, 1)),
                heads: shared * (1 + random.below(sized(4, 2))),
                shared,
                queries,
                keys,
                features,
                values: [features, 16, 7, 48][random.below(sized(4, 3))],
            };
            let dtype = [DType::F32, DType::F16, DType::BF16][round % 3];
            let rows = keys + random.below(3);
            let q_dtype = if round % 2 == 0 { dtype } else { DType::F32 };
            let q_sizes = [sizes.batch, sizes.heads, queries, features];
            let q = Tensor::new(&mut random, q_sizes, q_dtype, round % 2 == 0);
            let k = Tensor::new(&mut random, [sizes.batch, shared, rows, features], dtype, round % 4 < 2);
            let v = Tensor::new(&mut random, [sizes.batch, shared, rows, sizes.values], dtype, round % 4 < 2);
            let first = random.below(rows);
            let window = 1 + random.below(keys);
            // Some masks hide a third, some next to nothing.
            let odds = if round % 4 < 2 { 3 } else { 500 };
            let bits: Vec<u8> = (0..keys * queries).map(|_| u8::from(random.below(odds) > 0)).collect();
            let added: Vec<f32> = random
                .floats(keys)
                .iter()
                .map(|&x| if x > 0.8 { f32::NEG_INFINITY } else { (x * 8.0).round() / 8.0 })
                .collect();
            let mask_sizes = [sizes.batch, sizes.heads, queries, keys];
            let bool_strides = [0, 0, keys as isize, 1];
            let bools = View::new(&bits, DType::Bool, 0, &mask_sizes, &bool_strides).unwrap();
            let floats =
                View::new(bytemuck::cast_slice(&added), DType::F32, 0, &mask_sizes, &[0, 0, 0, 1]).unwrap();
            let base = Attention {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                scale: 0.3,
                mask: Mask::None,
                ring: Some(Ring { first, live: keys }),
                pages: None,
            };
            const HIDDEN: f64 = f64::NEG_INFINITY;
            let last = |i: usize| i + keys - queries;
            let what = format!("round {round} {sizes:?} {dtype} {path}");
            // Matrix tiles round the weights to bf16.
            let tiles = path == Path::Amx && q_dtype == DType::BF16;
            let (relative, absolute) = if tiles { (4e-3, 2e-3) } else { (2e-5, 4e-6) };
            let mut kinds = 0..5;
            let mut check = |mask: Mask<'_>, see: &dyn Fn([usize; 4], f64) -> f64| {
                // Under Miri each round has one of the five.
                if kinds.next() != Some(round % 5) && cfg!(miri) {
                    return;
                }
                let got = attend(path, 1 + round % 3, &Attention { mask, ..base });
                assert_close(&got, &formula(sizes, [&q, &k, &v], first, see), relative, absolute, &what);
            };
            check(Mask::None, &|_, score| score);
            check(Mask::Causal { window: None }, &|[_, _, i, j], s| if j <= last(i) { s } else { HIDDEN });
            check(Mask::Causal { window: Some(window) }, &|[_, _, i, j], s| {
                if j <= last(i) && j + window > last(i) { s } else { HIDDEN }
            });
            check(Mask::Tensor(bools), &|[_, _, i, j], s| if bits[i * keys + j] != 0 { s } else { HIDDEN });
            check(Mask::Tensor(floats), &|[_, _, _, j], s| s + f64::from(added[j]));
        }
    });
}

#[test]
fn ranges_of_keys_are_merged() {
    let mut random = Random::new(9);
    let keys = sized(3000, 520);
    let q = Tensor::new(&mut random, [1, 1, 1, 16], DType::F32, false);
    let k = Tensor::new(&mut random, [1, 1, keys, 16], DType::F32, false);
    let v = Tensor::new(&mut random, [1, 1, keys, 16], DType::F32, false);
    let job = Attention {
        q: q.view(),
        k: k.view(),
        v: v.view(),
        scale: 0.3,
        mask: Mask::None,
        ring: None,
        pages: None,
    };
    on_every_path(|path| {
        let whole: Vec<f64> = attend(path, 1, &job).into_iter().map(f64::from).collect();
        assert_close(&attend(path, 3, &job), &whole, 2e-5, 4e-6, &format!("{path}"));
    });
}

#[test]
fn nothing_in_sight_gives_zeros_and_nothing_out_of_sight_leaks() {
    let mut random = Random::new(8);
    on_every_path(|path| {
        for queries in [1, 3, sized(40, 10)] {
            let q = Tensor::new(&mut random, [1, 2, queries, 16], DType::F32, false);
            let k = Tensor::new(&mut random, [1, 2, 5, 16], DType::F32, false);
            let mut v = Tensor::new(&mut random, [1, 2, 5, 16], DType::F32, false);
            bytemuck::cast_slice_mut::<u64, f32>(&mut v.bytes)[4 * 16..5 * 16].fill(f32::NAN);
            // The last key is hidden from all; the last query sees nothing.
            let mut bits = vec![1u8; queries * 5];
            (0..queries).for_each(|i| bits[i * 5 + 4] = 0);
            bits[(queries - 1) * 5..].fill(0);
            let sizes = [1, 2, queries, 5];
            let mask = View::new(&bits, DType::Bool, 0, &sizes, &[0, 0, 5, 1]).unwrap();
            let job = Attention {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                scale: 1.0,
                mask: Mask::Tensor(mask),
                ring: None,
                pages: None,
            };
            let got = attend(path, 1, &job);
            assert!(got[..queries * 16].iter().all(|x| x.is_finite()), "{path} {queries}");
            assert!(got[(queries - 1) * 16..queries * 16].iter().all(|&x| x == 0.0), "{path} {queries}");
        }
    });
}

#[test]
fn scratch_for_the_largest_sizes_is_enough_for_all() {
    let most = Sizes { batch: 2, heads: 32, shared: 32, queries: 512, keys: 4096, features: 64, values: 64 };
    for threads in [1, 2, 16] {
        let bytes = scratch_bytes(&most, threads);
        for (batch, queries, keys) in [(1, 1, 1), (1, 16, 4096), (2, 16, 4096), (1, 17, 300), (2, 512, 512)] {
            assert!(scratch_bytes(&Sizes { batch, queries, keys, ..most }, threads) <= bytes);
        }
    }
}

#[test]
fn scratch_of_sizes_that_overflow_is_more_than_anybody_has() {
    let sizes = Sizes { batch: 1, heads: 1, shared: 1, queries: 16, keys: 1, features: 1 << 60, values: 16 };
    assert_eq!(scratch_bytes(&sizes, 1), usize::MAX);
    assert_eq!(scratch_bytes(&Sizes { queries: 64, ..sizes }, 1), usize::MAX);
}

/// Keys and values of one sequence, cut into pages: [head, row, feature] each, keys before values.
struct Cut {
    pages: Vec<Vec<u64>>,
    values_at: usize,
}

impl Cut {
    fn new([k, v]: [&Tensor; 2], rows: usize) -> Cut {
        let [_, heads, all, features] = k.sizes;
        let size = k.dtype.size();
        let values_at = heads * rows * features * size;
        let pages = (0..all.div_ceil(rows)).map(|page| {
            let mut words = vec![u64::MAX; (values_at + heads * rows * v.sizes[3] * size).div_ceil(8)];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            for (tensor, to) in [(k, 0), (v, values_at)] {
                let wide = tensor.sizes[3] * size;
                for (head, row) in (0..heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
                    if page * rows + row < all {
                        let from = head as isize * tensor.strides[1]
                            + (page * rows + row) as isize * tensor.strides[2];
                        let from = &bytemuck::cast_slice::<u64, u8>(&tensor.bytes)[from as usize * size..];
                        bytes[to + (head * rows + row) * wide..][..wide].copy_from_slice(&from[..wide]);
                    }
                }
            }
            words
        });
        Cut { pages: pages.collect(), values_at }
    }
}

// SAFETY: the pages are owned, and nobody writes them.
unsafe impl PageTable for Cut {
    fn page(&self, number: usize) -> (*const u8, *const u8) {
        let keys = self.pages[number].as_ptr().cast::<u8>();
        (keys, keys.wrapping_add(self.values_at))
    }
}

#[test]
fn pages_give_what_one_piece_gives() {
    let mut random = Random::new(10);
    on_every_path(|path| {
        // Where blocks of keys begin at the same ones, nothing changes; elsewhere sums are taken in another order. Odd
        // ones have a window.
        let cases = [(1, 64, 0), (1, 64, 70), (sized(60, 5), 64, 0), (3, 10, 25), (sized(60, 5), 24, 9)];
        for (round, (queries, of_page, first)) in cases.into_iter().enumerate() {
            let (shared, features) = (2, sized(32, 16));
            let keys = queries + sized(700, 70);
            let rows = keys + 3;
            let dtype = [DType::F32, DType::BF16, DType::F16][round % 3];
            let q = Tensor::new(&mut random, [1, 2 * shared, queries, features], DType::F32, false);
            let k = Tensor::new(&mut random, [1, shared, rows, features], dtype, false);
            let v = Tensor::new(&mut random, [1, shared, rows, features], dtype, true);
            let whole = Attention {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                scale: 0.3,
                mask: Mask::Causal { window: (round % 2 == 1).then_some(100) },
                ring: Some(Ring { first, live: keys }),
                pages: None,
            };
            let cut = Cut::new([&k, &v], of_page);
            let sizes = [1, shared, of_page, features];
            let strides = crate::trial::dense(&sizes);
            let bytes: &[u8] = bytemuck::cast_slice(&cut.pages[0]);
            let paged = Attention {
                k: View::new(&bytes[..cut.values_at], dtype, 0, &sizes, &strides).unwrap(),
                v: View::new(&bytes[cut.values_at..], dtype, 0, &sizes, &strides).unwrap(),
                pages: Some(Pages { table: &cut, rows }),
                ..whole
            };
            let (want, got) = (attend(path, 2, &whole), attend(path, 2, &paged));
            let what = format!("{path}, {queries} queries, pages of {of_page}, from {first}");
            if of_page % 64 == 0 && first == 0 && round % 2 == 0 {
                assert_eq!(want, got, "{what}");
            }
            let want: Vec<f64> = want.into_iter().map(f64::from).collect();
            assert_close(&got, &want, 2e-5, 4e-6, &what);
        }
    });
}
