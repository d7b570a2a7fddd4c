//! Small GGUF files, made here, with every kind of block.

use std::io::Write;

use half::{bf16, f16};
use pteron_checkpoint::{Checkpoint, CheckpointError};
use pteron_gguf::{Gguf, Limits, TensorType, Value, ValueType, Writer};
use pteron_tensor::Bytes;

pub(crate) const VOCAB: usize = 20;
pub(crate) const HIDDEN: usize = 256;
pub(crate) const HEADS: usize = 4;
pub(crate) const KV_HEADS: usize = 2;
pub(crate) const INNER: usize = 256;

/// The types of blocks, and where each keeps its f16 scales.
pub(crate) const TYPES: [(&str, &[usize]); 28] = [
    ("F32", &[]),
    ("F16", &[]),
    ("BF16", &[]),
    ("Q4_0", &[0]),
    ("Q4_1", &[0, 2]),
    ("Q5_0", &[0]),
    ("Q5_1", &[0, 2]),
    ("Q8_0", &[0]),
    ("Q2_K", &[80, 82]),
    ("Q3_K", &[108]),
    ("Q4_K", &[0, 2]),
    ("Q5_K", &[0, 2]),
    ("Q6_K", &[208]),
    ("Q1_0", &[0]),
    ("Q2_0", &[0]),
    ("TQ1_0", &[52]),
    ("TQ2_0", &[64]),
    ("IQ1_S", &[0]),
    ("IQ1_M", &[]),
    ("IQ2_XXS", &[0]),
    ("IQ2_XS", &[0]),
    ("IQ2_S", &[0]),
    ("IQ3_XXS", &[0]),
    ("IQ3_S", &[0]),
    ("IQ4_NL", &[0]),
    ("IQ4_XS", &[0]),
    ("MXFP4", &[]),
    ("NVFP4", &[]),
];

/// A plain generator: the same numbers for the same seed.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u8
    }

    fn unit(&mut self) -> f32 {
        f32::from(self.byte()) / 128.0 - 1.0
    }
}

/// Blocks of random codes with scales of a sane size, or small random floats.
fn blocks(ty: TensorType, scales: &[usize], elements: usize, noise: &mut Noise) -> Vec<u8> {
    let mut small = || 0.1 * noise.unit();
    match ty.name() {
        "F32" => (0..elements).flat_map(|_| small().to_le_bytes()).collect(),
        "F16" => (0..elements).flat_map(|_| f16::from_f32(small()).to_le_bytes()).collect(),
        "BF16" => (0..elements).flat_map(|_| bf16::from_f32(small()).to_le_bytes()).collect(),
        _ => {
            let len = elements / ty.block_len() * ty.block_bytes();
            let mut bytes: Vec<u8> = (0..len).map(|_| noise.byte()).collect();
            // K-quants have whole numbers as factors of their own.
            let size = if ty.block_len() == 256 { 0.0002 } else { 0.004 };
            for block in bytes.chunks_mut(ty.block_bytes()) {
                for &at in scales {
                    let scale = f16::from_f32(size * noise.unit()).to_le_bytes();
                    block[at..at + 2].copy_from_slice(&scale);
                }
                match ty.name() {
                    // The exponent of a small power of two.
                    "MXFP4" => block[0] = 118 + block[0] % 4,
                    "NVFP4" => block[..4].iter_mut().for_each(|scale| *scale = 16 + *scale % 16),
                    // An f16 in the upper nibbles of four words.
                    "IQ1_M" => {
                        let scale = f16::from_f32(0.01).to_bits();
                        for (i, at) in [49, 51, 53, 55].into_iter().enumerate() {
                            block[at] = block[at] & 15 | ((scale >> (4 * i) & 15) << 4) as u8;
                        }
                    }
                    _ => {}
                }
            }
            bytes
        }
    }
}

/// A Llama of one layer whose matrices have that type.
pub(crate) fn llama(ty: &str, scales: &[usize]) -> Writer {
    let mut writer = Writer::new();
    writer.put("general.architecture", Value::String(b"llama")).unwrap();
    writer.put("general.name", Value::String(b"tiny")).unwrap();
    for (key, number) in [
        ("context_length", 64),
        ("embedding_length", HIDDEN),
        ("block_count", 1),
        ("feed_forward_length", INNER),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("rope.dimension_count", HIDDEN / HEADS),
    ] {
        writer.put(&format!("llama.{key}"), Value::U32(number as u32)).unwrap();
    }
    writer.put("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)).unwrap();
    tokenizer(&mut writer);
    let mut noise = Noise(7);
    let ty = TensorType::from_name(ty).unwrap();
    let kv_rows = HIDDEN / HEADS * KV_HEADS;
    for (name, rows, columns) in [
        ("token_embd", VOCAB, HIDDEN),
        ("blk.0.attn_q", HIDDEN, HIDDEN),
        ("blk.0.attn_k", kv_rows, HIDDEN),
        ("blk.0.attn_v", kv_rows, HIDDEN),
        ("blk.0.attn_output", HIDDEN, HIDDEN),
        ("blk.0.ffn_gate", INNER, HIDDEN),
        ("blk.0.ffn_up", INNER, HIDDEN),
        ("blk.0.ffn_down", HIDDEN, INNER),
    ] {
        let data = blocks(ty, scales, rows * columns, &mut noise);
        writer.tensor(&format!("{name}.weight"), &[rows, columns], ty, data).unwrap();
    }
    let floats = TensorType::from_name("F32").unwrap();
    for name in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
        let data = (0..HIDDEN).flat_map(|_| (1.0 + 0.1 * noise.unit()).to_le_bytes()).collect();
        writer.tensor(&format!("{name}.weight"), &[HIDDEN], floats, data).unwrap();
    }
    writer
}

fn tokenizer(writer: &mut Writer) {
    let tokens: Vec<String> = (0..VOCAB).map(|id| format!("<{id}>")).collect();
    let tokens: Vec<Value<'_>> = tokens.iter().map(|token| Value::String(token.as_bytes())).collect();
    writer.put("tokenizer.ggml.model", Value::String(b"gpt2")).unwrap();
    writer.put_array("tokenizer.ggml.tokens", ValueType::String, &tokens).unwrap();
    for (role, id) in [("bos", 1), ("eos", 2), ("eot", 3), ("padding", u32::MAX)] {
        writer.put(&format!("tokenizer.ggml.{role}_token_id"), Value::U32(id)).unwrap();
    }
    writer.put("tokenizer.ggml.add_bos_token", Value::Bool(true)).unwrap();
    writer.put("tokenizer.chat_template", Value::String(b"{{ messages }}")).unwrap();
    writer.put("tokenizer.chat_template.tools", Value::String(b"{{ tools }}")).unwrap();
}

pub(crate) fn read(bytes: &[u8]) -> Gguf {
    Gguf::read(Bytes::copy_of(bytes), &Limits::default()).unwrap()
}

/// Opens bytes as a file.
pub(crate) fn open(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let mut file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Checkpoint::open(file.path())
}

/// The file without some keys and tensors.
pub(crate) fn without(writer: &Writer, dropped: &[&str]) -> Writer {
    changed(writer, dropped, |_| None)
}

/// The file with another value under a key.
pub(crate) fn with(writer: &Writer, key: &str, value: Value<'static>) -> Writer {
    changed(writer, &[], |candidate| (candidate == key).then_some(value))
}

fn changed(writer: &Writer, dropped: &[&str], other: impl Fn(&str) -> Option<Value<'static>>) -> Writer {
    let file = read(&writer.finish());
    let mut out = Writer::new();
    for (key, value) in file.metadata().iter().filter(|(key, _)| !dropped.contains(key)) {
        out.put(key, other(key).unwrap_or(value)).unwrap();
    }
    for tensor in file.tensors().filter(|tensor| !dropped.contains(&tensor.name())) {
        let data = file.data(tensor).unwrap().to_vec();
        out.tensor(tensor.name(), tensor.shape(), tensor.ty(), data).unwrap();
    }
    out
}
