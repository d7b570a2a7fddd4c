//! Tiny checkpoints that tests write themselves, and what programs made from them compute.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; whatever cannot be had fails its test

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use half::{bf16, f16};
use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value as Json, json};

pub(crate) const VOCAB: usize = 40;
pub(crate) const HIDDEN: usize = 64;
pub(crate) const INNER: usize = 128;

/// A tensor as a file stores it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Tensors = BTreeMap<String, Stored>;

/// Numbers that f16 and bf16 hold as they are: multiples of 1/64 below 1.
pub(crate) fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u64 * 7919 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) % 127
    };
    (0..count).map(|_| (next() as f32 - 63.0) / 64.0).collect()
}

pub(crate) fn floats(dtype: Dtype, shape: &[usize], values: &[f32]) -> Stored {
    let bytes = match dtype {
        Dtype::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        Dtype::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    Stored { dtype, shape: shape.to_vec(), bytes }
}

/// The `config.json` of a Llama of one layer.
pub(crate) fn llama_config() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"
    })
}

/// Names and shapes of its weights.
pub(crate) fn llama_shapes() -> Vec<(String, Vec<usize>)> {
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        (layer("input_layernorm"), vec![HIDDEN]),
        (layer("self_attn.q_proj"), vec![HIDDEN, HIDDEN]),
        (layer("self_attn.k_proj"), vec![HIDDEN / 2, HIDDEN]),
        (layer("self_attn.v_proj"), vec![HIDDEN / 2, HIDDEN]),
        (layer("self_attn.o_proj"), vec![HIDDEN, HIDDEN]),
        (layer("post_attention_layernorm"), vec![HIDDEN]),
        (layer("mlp.gate_proj"), vec![INNER, HIDDEN]),
        (layer("mlp.up_proj"), vec![INNER, HIDDEN]),
        (layer("mlp.down_proj"), vec![HIDDEN, INNER]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]),
    ]
}

/// Its weights as floats of that type, each through `change` first.
pub(crate) fn llama(dtype: Dtype, change: impl Fn(&str, &[usize], Vec<f32>) -> Vec<f32>) -> Tensors {
    let tensor = |(at, (name, shape)): (usize, (String, Vec<usize>))| {
        let values = change(&name, &shape, numbers(at, shape.iter().product()));
        (name, floats(dtype, &shape, &values))
    };
    llama_shapes().into_iter().enumerate().map(tensor).collect()
}

pub(crate) fn plain_llama() -> Tensors {
    llama(Dtype::F32, |_, _, values| values)
}

pub(crate) fn save(path: &Path, tensors: &Tensors, metadata: Option<HashMap<String, String>>) {
    fn view(tensor: &Stored) -> TensorView<'_> {
        TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()
    }
    let views: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), view(tensor))).collect();
    std::fs::write(path, safetensors::serialize(views, metadata).unwrap()).unwrap();
}

/// Writes a folder with one weight file.
pub(crate) fn folder(config: &Json, tensors: &Tensors) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    save(&folder.path().join("model.safetensors"), tensors, None);
    folder
}

pub(crate) fn options() -> ExportOptions {
    ExportOptions { activations: DType::F32, context: Some(16), chunk: Some(8), ..ExportOptions::default() }
}

pub(crate) fn exported(path: &Path, options: &ExportOptions) -> Result<Bytes, String> {
    let checkpoint = Checkpoint::open(path).map_err(|error| error.to_string())?;
    let export = Export::new(&checkpoint, options).map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    export.write(&mut file, &mut |_| ()).map_err(|error| error.to_string())?;
    Ok(Bytes::copy_of(&file))
}

/// Logits after a text, given in two inputs.
pub(crate) fn logits(path: &Path) -> Vec<f32> {
    logits_of(exported(path, &options()).unwrap())
}

/// The same of a program.
pub(crate) fn logits_of(program: Bytes) -> Vec<f32> {
    let program = Program::load("model.pte", program, &[], &Options::default());
    let mut session = program.unwrap().session().unwrap();
    let mut logits = Vec::new();
    for (tokens, start) in [(&[3i64, 17, 5, 30, 8][..], 0i64), (&[1, 39, 22][..], 5)] {
        let last = HostTensor::from_slice(vec![1], &[tokens.len() as i64 - 1]).unwrap();
        let tokens = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
        let inputs: [Value; 3] = [tokens.into(), Value::Int(start), last.into()];
        let outputs = session.run("forward", &inputs).unwrap();
        logits = outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec();
    }
    logits
}

pub(crate) fn assert_close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= 1e-4 * largest, "{what}: {got} is not {want}");
    }
}

/// Matrices of the layer; the others stay floats.
pub(crate) fn is_packed(name: &str) -> bool {
    name.ends_with("_proj.weight")
}

/// A checkpoint with matrices through `pack`, which gives the parts by suffix and what they mean; and its plain twin.
pub(crate) fn packed_and_plain(
    every: bool,
    pack: impl Fn(usize, &[usize]) -> (Vec<(&'static str, Stored)>, Vec<f32>),
) -> (Tensors, Tensors) {
    let parts: RefCell<Tensors> = RefCell::default();
    let count = RefCell::new(100);
    let plain = llama(Dtype::F32, |name, shape, values| {
        if shape.len() != 2 || !(every || is_packed(name)) {
            return values;
        }
        *count.borrow_mut() += 1;
        let (stored, meaning) = pack(*count.borrow(), shape);
        let module = name.strip_suffix("weight").unwrap();
        parts
            .borrow_mut()
            .extend(stored.into_iter().map(|(part, tensor)| (format!("{module}{part}"), tensor)));
        meaning
    });
    let mut stored = parts.into_inner();
    for (name, tensor) in &plain {
        if tensor.shape.len() != 2 || !(every || is_packed(name)) {
            stored.insert(name.clone(), tensor.clone());
        }
    }
    (stored, plain)
}

pub(crate) fn random_bytes(seed: usize, count: usize) -> Vec<u8> {
    numbers(seed, count).iter().map(|x| (x * 64.0) as i32 as u8).collect()
}
