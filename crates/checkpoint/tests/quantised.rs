//! Folders whose weights come in few bits: what a program computes from them is what their numbers mean.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_tensor::quant::{Mode, Scheme, packed};
use safetensors::tensor::Dtype;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use support::*;

/// Codes, scales and biases as MLX has them, and their meaning.
fn mlx(
    scheme: Scheme,
    scales: Dtype,
    seed: usize,
    shape: &[usize],
) -> (Vec<(&'static str, Stored)>, Vec<f32>) {
    let (rows, columns) = (shape[0], shape[1]);
    let (bits, groups) = (scheme.bits(), columns / scheme.group());
    let mask = u8::MAX >> (8 - bits);
    let codes: Vec<u8> = random_bytes(seed, rows * columns).iter().map(|byte| byte & mask).collect();
    // The codes 0x7f and 0xff of 8-bit floats are no numbers.
    let codes: Vec<u8> = match scheme.mode() {
        Mode::MxFp8 => codes.iter().map(|code| code & 0xbf).collect(),
        _ => codes,
    };
    let words: Vec<u32> = codes.chunks(columns).flat_map(|row| packed::pack(row, bits).unwrap()).collect();
    let mut parts = vec![(
        "weight",
        Stored {
            dtype: Dtype::U32,
            shape: vec![rows, columns * bits as usize / 32],
            bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        },
    )];
    let (scale_values, bias_values) = match scheme.mode() {
        Mode::Affine => {
            let scale: Vec<f32> = numbers(seed + 1, rows * groups).iter().map(|x| x / 16.0).collect();
            let bias: Vec<f32> = numbers(seed + 2, rows * groups);
            parts.push(("scales", floats(scales, &[rows, groups], &scale)));
            parts.push(("biases", floats(scales, &[rows, groups], &bias)));
            (scale, bias)
        }
        mode => {
            // Around 2^-4 for powers of two, around 1 for e4m3.
            let base = if mode == Mode::NvFp4 { 0x30 } else { 121 };
            let bytes: Vec<u8> =
                random_bytes(seed + 1, rows * groups).iter().map(|byte| base + byte % 4).collect();
            let scale = bytes.iter().map(|&byte| scheme.scale(byte)).collect();
            parts.push(("scales", Stored { dtype: Dtype::U8, shape: vec![rows, groups], bytes }));
            (scale, vec![])
        }
    };
    let mut meaning = vec![0.0; rows * columns];
    for row in 0..rows {
        let groups = row * groups..(row + 1) * groups;
        let biases = if bias_values.is_empty() { &[] } else { &bias_values[groups.clone()] };
        let words = &words[row * words.len() / rows..(row + 1) * words.len() / rows];
        let out = &mut meaning[row * columns..(row + 1) * columns];
        scheme.dequantise(words, &scale_values[groups], biases, &mut Vec::new(), out).unwrap();
    }
    (parts, meaning)
}

#[test]
fn mlx_weights_are_taken_as_they_are() {
    let schemes = [
        (Mode::Affine, 4, 64, Dtype::BF16),
        (Mode::Affine, 8, 32, Dtype::F16),
        (Mode::Affine, 3, 32, Dtype::F32),
        (Mode::MxFp4, 4, 32, Dtype::U8),
        (Mode::MxFp8, 8, 32, Dtype::U8),
        (Mode::NvFp4, 4, 16, Dtype::U8),
    ];
    for (mode, bits, group, scales) in schemes {
        let scheme = Scheme::new(mode, bits, group).unwrap();
        let (stored, plain) = packed_and_plain(true, |seed, shape| mlx(scheme, scales, seed, shape));
        let mut config = llama_config();
        config["quantization"] = json!({"group_size": group, "bits": bits, "mode": mode.name()});
        let wanted = logits(folder(&llama_config(), &plain).path());
        assert_close(&logits(folder(&config, &stored).path()), &wanted, &format!("{mode}, {bits} bits"));
    }
}

#[test]
fn mlx_settings_may_differ_by_module() {
    let usual = Scheme::new(Mode::Affine, 4, 64).unwrap();
    let other = Scheme::new(Mode::Affine, 6, 32).unwrap();
    let at = RefCell::new(0);
    let (mut stored, plain) = packed_and_plain(false, |seed, shape| {
        *at.borrow_mut() += 1;
        mlx(if *at.borrow() == 1 { other } else { usual }, Dtype::BF16, seed, shape)
    });
    let module = "model.layers.0.self_attn.v_proj";
    for part in ["weight", "scales", "biases"] {
        stored.remove(&format!("{module}.{part}"));
    }
    stored.insert(format!("{module}.weight"), plain[&format!("{module}.weight")].clone());
    let mut config = llama_config();
    config["quantization"] = json!({"group_size": 64, "bits": 4, module: false,
        "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 6}});
    let wanted = logits(folder(&llama_config(), &plain).path());
    assert_close(&logits(folder(&config, &stored).path()), &wanted, "bits by module");
    config["quantization"]["bits"] = json!(8);
    let error = exported(folder(&config, &stored).path(), &options()).unwrap_err();
    assert!(error.contains("its Codes are"), "{error}");
}

/// How torchao's classes lay a matrix out.
#[derive(Clone, Copy, Debug)]
struct Torchao {
    class: &'static str,
    bits: u32,
    group: usize,
    zeros: bool,
    /// Signed halves, and zero points that are added: torchao's own kernels, in folders that transformers saves.
    added: bool,
}

impl Torchao {
    fn is_nibbles(self) -> bool {
        self.class == "Int4Tensor"
    }

    fn pack(self, seed: usize, shape: &[usize]) -> (Vec<(&'static str, Stored)>, Vec<f32>) {
        let (rows, columns, groups) = (shape[0], shape[1], shape[1] / self.group);
        let low = if self.is_nibbles() && !self.added { 0 } else { -(1i32 << (self.bits - 1)) };
        let range = 1i32 << self.bits;
        let random = random_bytes(seed, rows * columns);
        let numbers_of: Vec<i32> = random.iter().map(|&byte| low + i32::from(byte) % range).collect();
        let scales: Vec<f32> = numbers(seed + 1, rows * groups).iter().map(|x| x / 32.0).collect();
        let zeros: Vec<f32> = match self.zeros {
            true => random_bytes(seed + 2, rows * groups).iter().map(|&byte| f32::from(byte % 7)).collect(),
            false => vec![0.0; rows * groups],
        };
        let value = |at: usize| {
            let parameter = at / columns * groups + at % columns / self.group;
            match self.added {
                true => numbers_of[at] as f32 * scales[parameter] + zeros[parameter],
                false => (numbers_of[at] as f32 - zeros[parameter]) * scales[parameter],
            }
        };
        let meaning = (0..rows * columns).map(value).collect();
        // Classes of two a byte keep their parameters by group, then row.
        let transposed = |values: &[f32]| -> Vec<f32> {
            (0..groups)
                .flat_map(|group| (0..rows).map(move |row| row * groups + group))
                .map(|at| values[at])
                .collect()
        };
        let data = match self.is_nibbles() {
            true => numbers_of.chunks(2).map(|pair| (pair[0] & 15 | (pair[1] & 15) << 4) as u8).collect(),
            false => numbers_of.iter().map(|&number| number as i8 as u8).collect(),
        };
        let parts = match self.is_nibbles() {
            true => vec![
                ("_weight_qdata", Stored { dtype: Dtype::U8, shape: vec![rows, columns / 2], bytes: data }),
                ("_weight_scale", floats(Dtype::BF16, &[groups, rows], &transposed(&scales))),
                ("_weight_zero_point", floats(Dtype::BF16, &[groups, rows], &transposed(&zeros))),
            ],
            false => {
                let zero_bytes = zeros.iter().map(|&zero| zero as i8 as u8).collect();
                let zeros = Stored { dtype: Dtype::I8, shape: vec![rows, groups], bytes: zero_bytes };
                vec![
                    ("_weight_qdata", Stored { dtype: Dtype::I8, shape: vec![rows, columns], bytes: data }),
                    ("_weight_scale", floats(Dtype::BF16, &[rows, groups], &scales)),
                    ("_weight_zero_point", zeros),
                ]
            }
        };
        (parts, meaning)
    }

    fn metadata(self, stored: &Tensors) -> HashMap<String, String> {
        let target = json!({"_type": "torch.dtype", "_data": format!("int{}", self.bits)});
        let data = json!({"block_size": [1, self.group], "target_dtype": target});
        let description = json!({"_type": self.class, "_data": data});
        let names = stored.keys().filter_map(|name| name.strip_suffix("._weight_qdata"));
        names.map(|module| (format!("{module}.weight"), description.to_string())).collect()
    }
}

fn torchao_folder(stored: &Tensors, metadata: HashMap<String, String>) -> tempfile::TempDir {
    let folder = folder(&llama_config(), &BTreeMap::new());
    save(&folder.path().join("model.safetensors"), stored, Some(metadata));
    folder
}

#[test]
fn torchao_numbers_mean_what_they_say() {
    let int8 = Torchao { class: "Int8Tensor", bits: 8, group: 64, zeros: false, added: false };
    let intx = Torchao { class: "IntxUnpackedToInt8Tensor", bits: 4, group: 32, ..int8 };
    let int4 = Torchao { class: "Int4Tensor", zeros: true, ..intx };
    let cases = [
        int8,
        intx,
        Torchao { zeros: true, ..intx },
        Torchao { bits: 3, ..intx },
        // No packing has such groups; the numbers become floats.
        Torchao { group: 8, ..intx },
        int4,
        Torchao { added: true, ..int4 },
    ];
    for case in cases {
        let (stored, plain) = packed_and_plain(true, |seed, shape| case.pack(seed, shape));
        let wanted = logits(folder(&llama_config(), &plain).path());
        let folder = torchao_folder(&stored, case.metadata(&stored));
        if case.added {
            let mut config = llama_config();
            config["quantization_config"] = json!({"quant_method": "torchao"});
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        }
        assert_close(&logits(folder.path()), &wanted, &format!("{case:?}"));
    }
}

#[test]
fn quantised_weights_that_are_not_read_say_what_would_be() {
    let case = Torchao { class: "Float8Tensor", bits: 8, group: 64, zeros: false, added: false };
    let (stored, _) = packed_and_plain(true, |seed, shape| case.pack(seed, shape));
    let error = exported(torchao_folder(&stored, case.metadata(&stored)).path(), &options()).unwrap_err();
    assert!(error.contains("Float8Tensor are not read") && error.contains("Int4Tensor"), "{error}");
    let undescribed = exported(torchao_folder(&stored, HashMap::new()).path(), &options()).unwrap_err();
    assert!(undescribed.contains("does not say its class"), "{undescribed}");
    let wide = Torchao { class: "IntxUnpackedToInt8Tensor", ..case };
    let (stored, _) = packed_and_plain(true, |seed, shape| wide.pack(seed, shape));
    let narrow = Torchao { bits: 2, ..wide };
    let error = exported(torchao_folder(&stored, narrow.metadata(&stored)).path(), &options()).unwrap_err();
    assert!(error.contains("2 bits cannot"), "{error}");

    let mut config: Json = llama_config();
    config["quantization_config"] = json!({"quant_method": "quanto", "bits": 4});
    let mut tensors = plain_llama();
    let name = "model.layers.0.mlp.up_proj.weight";
    let codes = Stored { dtype: Dtype::I32, shape: vec![INNER, HIDDEN], bytes: vec![0; INNER * HIDDEN * 4] };
    tensors.insert(name.to_owned(), codes);
    let error = exported(folder(&config, &tensors).path(), &options()).unwrap_err();
    assert!(error.contains("`quanto` are not read"), "{error}");
    let error = exported(folder(&llama_config(), &tensors).path(), &options()).unwrap_err();
    assert!(error.contains("it is stored as I32"), "{error}");
}
