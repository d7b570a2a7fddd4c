//! Weights as others publish them in few bits: GPTQ, AWQ, compressed-tensors, 8-bit floats, bitsandbytes. What a program computes
//! from them is what their numbers mean; parts that contradict each other are named.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_tensor::quant::codes::e4m3fn;
use safetensors::tensor::Dtype;
use serde_json::{Value as Json, json};
use support::*;

type Parts = Vec<(&'static str, Stored)>;

const GROUP: usize = 32;

fn words(shape: &[usize], words: &[u32]) -> Stored {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Stored { dtype: Dtype::I32, shape: shape.to_vec(), bytes }
}

/// A list as `[columns, rows]`.
fn turned<T: Copy>(rows: usize, columns: usize, list: &[T]) -> Vec<T> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| row * columns + column))
        .map(|at| list[at])
        .collect()
}

/// Codes one behind the other, whatever words they begin and end in.
fn streamed(bits: u32, codes: &[u32]) -> Vec<u32> {
    let bit = |at: usize| codes[at / bits as usize] >> (at % bits as usize) & 1;
    let all: Vec<u32> = (0..codes.len() * bits as usize).map(bit).collect();
    all.chunks(32).map(|word| word.iter().rev().fold(0, |word, bit| word << 1 | bit)).collect()
}

/// Codes side by side in words along a list; `order` says which code stands at each place.
fn packed_words(bits: u32, codes: &[u32], order: &[usize]) -> Vec<u32> {
    let word = |codes: &[u32]| {
        order.iter().enumerate().fold(0, |word, (place, &of)| word | codes[of] << (bits as usize * place))
    };
    codes.chunks(order.len()).map(word).collect()
}

fn in_order(bits: u32) -> Vec<usize> {
    (0..32 / bits as usize).collect()
}

/// Codes, zeros and scales of a matrix, and what they mean where columns belong to groups as `group_of` says.
struct Numbers {
    rows: usize,
    columns: usize,
    codes: Vec<u32>,
    zeros: Vec<u32>,
    scales: Vec<f32>,
    meaning: Vec<f32>,
}

impl Numbers {
    fn new(
        seed: usize,
        shape: &[usize],
        bits: u32,
        symmetric: bool,
        group_of: impl Fn(usize) -> usize,
    ) -> Numbers {
        let (rows, columns, groups) = (shape[0], shape[1], shape[1] / GROUP);
        let mask = (1u32 << bits) - 1;
        let random = |seed: usize, count: usize| -> Vec<u32> {
            random_bytes(seed, count).iter().map(|&byte| u32::from(byte) & mask).collect()
        };
        let codes = random(seed, rows * columns);
        let zeros = match symmetric {
            true => vec![1 << (bits - 1); rows * groups],
            false => random(seed + 2, rows * groups),
        };
        let scales: Vec<f32> = numbers(seed + 1, rows * groups).iter().map(|x| x / 64.0).collect();
        let meaning = (0..rows * columns)
            .map(|at| {
                let parameter = at / columns * groups + group_of(at % columns);
                (codes[at] as f32 - zeros[parameter] as f32) * scales[parameter]
            })
            .collect();
        Numbers { rows, columns, codes, zeros, scales, meaning }
    }

    fn groups(&self) -> usize {
        self.columns / GROUP
    }
}

fn check(block: &Json, what: &str, pack: impl Fn(usize, &[usize]) -> (Parts, Vec<f32>)) {
    let (stored, plain) = packed_and_plain(false, pack);
    let mut config = llama_config();
    config["quantization_config"] = block.clone();
    let wanted = logits(folder(&llama_config(), &plain).path());
    assert_close(&logits(folder(&config, &stored).path()), &wanted, what);
}

fn gptq(numbers: &Numbers, bits: u32, less: u32, order: Option<Vec<u32>>) -> Parts {
    let (rows, columns, groups) = (numbers.rows, numbers.columns, numbers.groups());
    // Words run down the inputs, side by side for every output.
    let by_row: Vec<u32> = numbers.codes.chunks(columns).flat_map(|row| streamed(bits, row)).collect();
    let words_of = |codes: usize| codes * bits as usize / 32;
    let mask = (1u32 << bits) - 1;
    let zeros: Vec<u32> =
        turned(rows, groups, &numbers.zeros).iter().map(|&zero| zero.wrapping_sub(less) & mask).collect();
    let mut parts = vec![
        ("qweight", words(&[words_of(columns), rows], &turned(rows, words_of(columns), &by_row))),
        ("qzeros", words(&[groups, words_of(rows)], &streamed(bits, &zeros))),
        ("scales", floats(Dtype::F16, &[groups, rows], &turned(rows, groups, &numbers.scales))),
    ];
    let plain = || (0..columns as u32).map(|column| column / GROUP as u32).collect();
    parts.push(("g_idx", words(&[columns], &order.unwrap_or_else(plain))));
    parts
}

#[test]
fn gptq_numbers_mean_what_they_say() {
    for (bits, symmetric, form) in [
        (4, true, "gptq"),
        (4, false, "gptq"),
        (8, false, "gptq_v2"),
        (2, false, "gptq"),
        (3, false, "gptq"),
        (3, true, "gptq_v2"),
    ] {
        let block =
            json!({"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": form});
        check(&block, &format!("{bits} bits, symmetric {symmetric}, {form}"), |seed, shape| {
            let numbers = Numbers::new(seed, shape, bits, symmetric, |column| column / GROUP);
            (gptq(&numbers, bits, u32::from(form == "gptq"), None), numbers.meaning)
        });
    }
}

/// Columns that were quantised in the order of their weight have groups that are no neighbours.
#[test]
fn gptq_groups_may_be_anywhere() {
    let block = json!({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": true});
    check(&block, "desc_act", |seed, shape| {
        let groups = shape[1] / GROUP;
        let group_of = |column: usize| column % groups;
        let numbers = Numbers::new(seed, shape, 4, false, group_of);
        let order = (0..shape[1]).map(|column| group_of(column) as u32).collect();
        (gptq(&numbers, 4, 1, Some(order)), numbers.meaning)
    });
}

#[test]
fn awq_numbers_mean_what_they_say() {
    let block =
        json!({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": true});
    check(&block, "awq", |seed, shape| {
        let numbers = Numbers::new(seed, shape, 4, false, |column| column / GROUP);
        let (rows, columns, groups) = (shape[0], shape[1], numbers.groups());
        // Eight outputs in a word: the even ones, then the odd ones.
        let order = [0, 2, 4, 6, 1, 3, 5, 7];
        let codes = packed_words(4, &turned(rows, columns, &numbers.codes), &order);
        let zeros = packed_words(4, &turned(rows, groups, &numbers.zeros), &order);
        let parts = vec![
            ("qweight", words(&[columns, rows / 8], &codes)),
            ("qzeros", words(&[groups, rows / 8], &zeros)),
            ("scales", floats(Dtype::F16, &[groups, rows], &turned(rows, groups, &numbers.scales))),
        ];
        (parts, numbers.meaning)
    });
}

#[test]
fn compressed_tensors_mean_what_they_say() {
    for (bits, symmetric) in [(4, true), (4, false), (8, true)] {
        let weights = json!({"num_bits": bits, "type": "int", "group_size": GROUP, "symmetric": symmetric});
        let block = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}}});
        check(&block, &format!("{bits} bits, symmetric {symmetric}"), |seed, shape| {
            let numbers = Numbers::new(seed, shape, bits, symmetric, |column| column / GROUP);
            let (rows, columns, groups) = (shape[0], shape[1], numbers.groups());
            let per_word = 32 / bits as usize;
            let sizes = [rows as i64, columns as i64].iter().flat_map(|size| size.to_le_bytes()).collect();
            let mut parts = vec![
                (
                    "weight_packed",
                    words(&[rows, columns / per_word], &packed_words(bits, &numbers.codes, &in_order(bits))),
                ),
                ("weight_scale", floats(Dtype::BF16, &[rows, groups], &numbers.scales)),
                ("weight_shape", Stored { dtype: Dtype::I64, shape: vec![2], bytes: sizes }),
            ];
            if !symmetric {
                // Words run down the rows.
                let down = packed_words(bits, &turned(rows, groups, &numbers.zeros), &in_order(bits));
                let across = turned(groups, rows / per_word, &down);
                parts.push(("weight_zero_point", words(&[rows / per_word, groups], &across)));
            }
            (parts, numbers.meaning)
        });
    }
    let block = json!({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {}});
    check(&block, "bytes with a scale a row", |seed, shape| {
        let (rows, columns) = (shape[0], shape[1]);
        let bytes = random_bytes(seed, rows * columns);
        let scales: Vec<f32> = numbers(seed + 1, rows).iter().map(|x| x / 64.0).collect();
        let meaning =
            bytes.iter().enumerate().map(|(at, &byte)| f32::from(byte as i8) * scales[at / columns]);
        let meaning = meaning.collect();
        let weight = Stored { dtype: Dtype::I8, shape: shape.to_vec(), bytes };
        (vec![("weight", weight), ("weight_scale", floats(Dtype::BF16, &[rows, 1], &scales))], meaning)
    });
}

/// A scale for blocks, which need not divide the matrix, for rows, and for all.
#[test]
fn floats_of_8_bits_mean_what_they_say() {
    let (down, across) = (24, 40);
    let block = json!({"quant_method": "fp8", "weight_block_size": [down, across]});
    let compressed =
        json!({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}});
    type Sizes = fn(usize, usize) -> Vec<usize>;
    let cases: [(&Json, &str, Sizes); 4] = [
        (&block, "weight_scale_inv", |rows, columns| vec![rows.div_ceil(24), columns.div_ceil(40)]),
        (&block, "weight_scale_inv", |_, _| vec![]),
        (&compressed, "weight_scale", |rows, _| vec![rows, 1]),
        (&compressed, "weight_scale", |_, _| vec![1]),
    ];
    for (block, part, sizes) in cases {
        check(block, &format!("{part} {:?}", sizes(64, 64)), |seed, shape| {
            let (rows, columns) = (shape[0], shape[1]);
            // The codes 0x7f and 0xff are no numbers.
            let bytes: Vec<u8> = random_bytes(seed, rows * columns).iter().map(|byte| byte & 0xbf).collect();
            let sizes = sizes(rows, columns);
            let count = sizes.iter().product();
            let scales: Vec<f32> = numbers(seed + 1, count).iter().map(|x| x / 8.0).collect();
            let scale = |at: usize| match (count, sizes.as_slice()) {
                (1, _) => scales[0],
                (_, [_, 1]) => scales[at / columns],
                _ => scales[at / columns / down * columns.div_ceil(across) + at % columns / across],
            };
            let meaning = bytes.iter().enumerate().map(|(at, &byte)| e4m3fn(byte) * scale(at)).collect();
            let weight = Stored { dtype: Dtype::F8_E4M3, shape: shape.to_vec(), bytes };
            (vec![("weight", weight), (part, floats(Dtype::F32, &sizes, &scales))], meaning)
        });
    }
}

#[test]
fn four_bits_of_bitsandbytes_mean_what_they_say() {
    let block = json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"});
    for nested in [false, true] {
        check(&block, &format!("nested {nested}"), |seed, shape| {
            let count = shape[0] * shape[1];
            let (size, nested_size, mean) = (64, 16, 0.25f32);
            let bytes = random_bytes(seed, count / 2);
            let table: Vec<f32> = (0..16).map(|code| (code as f32 - 7.0) / 8.0).collect();
            let blocks = count / size;
            let outer_table: Vec<f32> = (0..256).map(|code| (code as f32 - 128.0) / 128.0).collect();
            let outer: Vec<f32> =
                numbers(seed + 3, blocks.div_ceil(nested_size)).iter().map(|x| x / 4.0).collect();
            let codes = random_bytes(seed + 1, blocks);
            let largest: Vec<f32> = match nested {
                true => (0..blocks)
                    .map(|at| outer_table[usize::from(codes[at])] * outer[at / nested_size] + mean)
                    .collect(),
                false => numbers(seed + 1, blocks),
            };
            let code = |at: usize| if at.is_multiple_of(2) { bytes[at / 2] >> 4 } else { bytes[at / 2] & 15 };
            let meaning = (0..count).map(|at| table[usize::from(code(at))] * largest[at / size]).collect();
            let state = json!({"quant_type": "nf4", "blocksize": size, "dtype": "bfloat16", "shape": shape,
                "nested_blocksize": nested_size, "nested_offset": mean, "nested_dtype": "float32"});
            let text =
                |text: String| Stored { dtype: Dtype::U8, shape: vec![text.len()], bytes: text.into_bytes() };
            let mut parts = vec![
                ("weight", Stored { dtype: Dtype::U8, shape: vec![count / 2, 1], bytes: bytes.clone() }),
                ("weight.quant_map", floats(Dtype::F32, &[16], &table)),
                ("weight.quant_state.bitsandbytes__nf4", text(state.to_string())),
            ];
            if nested {
                parts.push(("weight.absmax", Stored { dtype: Dtype::U8, shape: vec![blocks], bytes: codes }));
                parts.push(("weight.nested_absmax", floats(Dtype::F32, &[outer.len()], &outer)));
                parts.push(("weight.nested_quant_map", floats(Dtype::F32, &[256], &outer_table)));
            } else {
                parts.push(("weight.absmax", floats(Dtype::F32, &[blocks], &largest)));
            }
            (parts, meaning)
        });
    }
}

/// What the configuration declares and a tensor contradicts is an error that names the tensor.
#[test]
fn parts_that_do_not_fit_are_named() {
    let numbers = |seed, shape: &[usize]| Numbers::new(seed, shape, 4, false, |column| column / GROUP);
    let name = "model.layers.0.mlp.up_proj";
    let (stored, _) = packed_and_plain(false, |seed, shape| {
        let numbers = numbers(seed, shape);
        (gptq(&numbers, 4, 1, None), numbers.meaning)
    });
    let refused = |bits: u32, change: &dyn Fn(&mut Tensors)| {
        let mut stored = stored.clone();
        change(&mut stored);
        let mut config = llama_config();
        config["quantization_config"] = json!({"quant_method": "gptq", "bits": bits, "group_size": GROUP});
        exported(folder(&config, &stored).path(), &options()).unwrap_err()
    };
    let error = refused(8, &|_| ());
    assert!(error.contains("its qweight is I32"), "{error}");
    let error = refused(5, &|_| ());
    assert!(error.contains("5 bits are not read"), "{error}");
    let error = refused(4, &|stored| drop(stored.remove(&format!("{name}.scales"))));
    assert!(error.contains(&format!("{name}.scales")), "{error}");
    let error = refused(4, &|stored| {
        stored.insert(format!("{name}.g_idx"), words(&[HIDDEN], &[1000; HIDDEN]));
    });
    assert!(error.contains("names group 1000"), "{error}");
    let error = refused(4, &|stored| {
        stored.insert(format!("{name}.scales"), floats(Dtype::F16, &[3, INNER], &[0.5; 3 * INNER]));
    });
    assert!(error.contains("its scales are [3, 128]"), "{error}");
}
