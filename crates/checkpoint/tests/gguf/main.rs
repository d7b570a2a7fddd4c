//! GGUF files as checkpoints: what their blocks compute, what travels beside them, what is wrong with others.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod keys;
mod split;
mod tiny;

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use pteron_checkpoint::Checkpoint;
use pteron_companion::TokenizerFormat;
use pteron_format::WriteOptions;
use pteron_gguf::{TensorType, Value, Writer};
use pteron_models::{
    Form, Handling, Logits, Model, ModelOptions, Packing, Part, Quantization, Wanted, WeightError,
    WeightSource,
};
use pteron_runtime::{Options, Program};
use pteron_tensor::quant::packed;
use pteron_tensor::{Bytes, DType, HostTensor};
use tiny::*;

/// The same weights, all as floats.
struct Unpacked(Arc<dyn WeightSource>);

impl WeightSource for Unpacked {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        self.0.form(wanted).map(|_| Form::Floats)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        self.0.read(wanted, elements, out)
    }
}

fn options() -> ModelOptions {
    ModelOptions {
        activations: DType::F32,
        cache: DType::F32,
        context: 16,
        chunk: 8,
        logits: Logits::All,
        ..ModelOptions::default()
    }
}

fn file(model: &Model) -> Bytes {
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
    Bytes::copy_of(&file)
}

fn logits(checkpoint: &Checkpoint, weights: Arc<dyn WeightSource>) -> Vec<f32> {
    let model = Model::build(checkpoint.architecture.as_ref(), weights, options()).unwrap();
    let program = Program::load("model.pte", file(&model), &[], &Options::default()).unwrap();
    let mut session = program.session().unwrap();
    let tokens: Vec<i64> = (0..7).map(|at| at * 5 % VOCAB as i64).collect();
    let inputs = [
        HostTensor::from_slice(vec![1, tokens.len()], &tokens).unwrap().into(),
        HostTensor::from_slice(vec![1], &[0i64]).unwrap().into(),
    ];
    let outputs = session.run("forward", &inputs).unwrap();
    outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn packed_blocks_compute_what_their_floats_do() {
    for (ty, scales) in TYPES {
        let checkpoint = open(&llama(ty, scales).finish()).unwrap();
        let packed = logits(&checkpoint, checkpoint.weights.clone());
        let plain = logits(&checkpoint, Arc::new(Unpacked(checkpoint.weights.clone())));
        let size = plain.iter().fold(0.0f32, |size, value| size.max(value.abs()));
        let difference = packed.iter().zip(&plain).fold(0.0f32, |d, (a, b)| d.max((a - b).abs()));
        assert!(size > 1e-3 && difference < 1e-5 * size.max(1.0), "{ty}: off by {difference} of {size}");
    }
}

/// The numbers that the parts of a packed weight stand for.
fn dequantised(weights: &dyn WeightSource, name: &str, shape: [usize; 2], packing: Packing) -> Vec<f32> {
    let part = |part: Part| {
        let mut bytes = Vec::new();
        weights.packed(Wanted::new(name, &shape), packing, part, &mut bytes).unwrap();
        bytes
    };
    let floats = |bytes: Vec<u8>| -> Vec<f32> {
        match packing.scale_dtype() {
            DType::F16 => bytes.chunks(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            DType::U8 => bytes.iter().map(|&byte| packing.scheme().scale(byte)).collect(),
            _ => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        }
    };
    let scheme = packing.scheme();
    let codes = part(Part::Codes);
    let codes: Vec<u32> = codes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    let scales = floats(part(Part::Scales));
    let half = (1u32 << (scheme.bits() - 1)) as f32;
    let biases: Vec<f32> = match (packing.zero_points(), packing.is_centred()) {
        (true, _) => floats(part(Part::Biases)),
        (false, true) => scales.iter().map(|scale| -half * scale).collect(),
        // Floats have none.
        (false, false) => Vec::new(),
    };
    let (words, groups) = (packed::words(shape[1], scheme.bits()).unwrap(), shape[1] / scheme.group());
    let row = |at: usize| {
        let mut out = vec![0.0; shape[1]];
        let (codes, scales) = (&codes[at * words..][..words], &scales[at * groups..][..groups]);
        let biases = biases.get(at * groups..(at + 1) * groups).unwrap_or(&[]);
        scheme.dequantise(codes, scales, biases, &mut vec![], &mut out).unwrap();
        out
    };
    (0..shape[0]).flat_map(row).collect()
}

#[test]
fn packing_loses_nothing() {
    for (ty, scales) in TYPES {
        let checkpoint = open(&llama(ty, scales).finish()).unwrap();
        for (name, shape) in [
            ("model.layers.0.self_attn.q_proj.weight", [HIDDEN, HIDDEN]),
            ("model.layers.0.mlp.down_proj.weight", [HIDDEN, INNER]),
        ] {
            let Form::Packed(packing) = checkpoint.weights.form(Wanted::new(name, &shape)).unwrap() else {
                assert!(ty.starts_with(['F', 'B']), "{ty} is packed");
                continue;
            };
            let mut wanted = vec![0.0; shape[0] * shape[1]];
            checkpoint.weights.floats(Wanted::new(name, &shape), 0, &mut wanted).unwrap();
            assert_eq!(dequantised(checkpoint.weights.as_ref(), name, shape, packing), wanted, "{ty} {name}");
        }
    }
}

#[test]
fn rows_of_queries_and_keys_are_moved_back() {
    let bytes = llama("F32", &[]).finish();
    let (checkpoint, file) = (open(&bytes).unwrap(), read(&bytes));
    for (name, stored, heads) in [("q_proj", "attn_q", HEADS), ("k_proj", "attn_k", KV_HEADS)] {
        let tensor = file.tensor(&format!("blk.0.{stored}.weight")).unwrap();
        let rows = tensor.shape()[0];
        let mut in_file = vec![0.0; tensor.elements()];
        file.decode(tensor, 0..in_file.len(), &mut in_file).unwrap();
        let name = format!("model.layers.0.self_attn.{name}.weight");
        let mut got = vec![0.0; in_file.len()];
        checkpoint.weights.floats(Wanted::new(&name, &[rows, HIDDEN]), 0, &mut got).unwrap();
        let half = rows / heads / 2;
        for (row, got) in got.chunks(HIDDEN).enumerate() {
            let (head, which, pair) = (row / (2 * half), row / half % 2, row % half);
            let place = head * 2 * half + 2 * pair + which;
            assert_eq!(got, &in_file[place * HIDDEN..][..HIDDEN], "{name} row {row}");
        }
        // Any part is that part of the whole.
        let mut part = vec![0.0; 1000];
        checkpoint.weights.floats(Wanted::new(&name, &[rows, HIDDEN]), 77, &mut part).unwrap();
        assert_eq!(part, got[77..1077]);
    }
}

#[test]
fn portable_programs_requantise_groups_of_16_and_say_what_that_cost() {
    for (ty, scales, is_kept, bound) in
        [("Q6_K", &[208][..], false, 0.01), ("Q3_K", &[108], false, 0.06), ("Q4_K", &[0, 2], true, 0.0)]
    {
        let checkpoint = open(&llama(ty, scales).finish()).unwrap();
        let quantization = Quantization { portable: true, ..Quantization::default() };
        let options = ModelOptions { quantization, ..options() };
        let model =
            Model::build(checkpoint.architecture.as_ref(), checkpoint.weights.clone(), options).unwrap();
        file(&model);
        let reports = model.reports();
        assert_eq!(reports.len(), 8, "{ty}");
        for report in reports {
            assert!(report.bytes_before.unwrap() > 0 && report.bytes_after > 0);
            match report.handling {
                Handling::Kept(packing) => assert!(is_kept && packing.is_portable(), "{ty} {}", report.name),
                Handling::Quantised(packing, deviation) => {
                    assert!(!is_kept && packing.is_portable(), "{ty} {}", report.name);
                    let error = deviation.relative_rms;
                    assert!(error > 0.0 && error < bound, "{ty} {}: {error}", report.name);
                }
            }
        }
    }
}

#[test]
fn the_tokenizer_travels_as_a_file_without_tensors() {
    let checkpoint = open(&llama("Q4_0", &[0]).finish()).unwrap();
    let tokenizer = checkpoint.tokenizer.unwrap();
    assert_eq!(tokenizer.format, TokenizerFormat::Gguf);
    assert_eq!((tokenizer.config.add_bos, tokenizer.config.add_eos), (Some(true), None));
    let tokens: Vec<(&str, &str)> =
        tokenizer.config.tokens.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
    assert_eq!(tokens, [("bos_token", "<1>"), ("eos_token", "<2>")]);
    let file = read(&tokenizer.bytes);
    assert_eq!(file.tensors().len(), 0);
    let is_strange = |key: &str| !key.starts_with("tokenizer.ggml.") && key != "general.architecture";
    assert!(!file.metadata().iter().any(|(key, _)| is_strange(key)));
    assert_eq!(file.metadata().array("tokenizer.ggml.tokens").unwrap().unwrap().len(), VOCAB);
    assert_eq!(checkpoint.chat_templates.default.as_deref(), Some("{{ messages }}"));
    assert_eq!(checkpoint.chat_templates.named["tools"], "{{ tools }}");
    let facts = checkpoint.architecture.facts();
    assert_eq!((facts.bos, facts.eos, facts.vocab_size), (Some(1), vec![2, 3], VOCAB));
    assert_eq!((checkpoint.origin.format.as_str(), checkpoint.origin.name.as_str()), ("gguf", "tiny"));
}

/// Why a file cannot be opened or built.
fn problem(writer: &Writer) -> String {
    match open(&writer.finish()) {
        Err(error) => error.to_string(),
        Ok(checkpoint) => {
            let built = Model::build(checkpoint.architecture.as_ref(), checkpoint.weights, options());
            built.err().unwrap().to_string()
        }
    }
}

#[test]
fn what_cannot_be_built_is_named() {
    let sound = llama("Q4_0", &[0]);
    let cases = [
        (without(&sound, &["blk.0.ffn_up.weight"]), "blk.0.ffn_up.weight"),
        (without(&sound, &["token_embd.weight"]), "token_embd.weight is missing"),
        (without(&sound, &["llama.block_count"]), "llama.block_count"),
        (without(&sound, &["general.architecture"]), "no architecture"),
        (
            with(&sound, "general.architecture", Value::String(b"mamba")),
            "`mamba` is not known; known are llama",
        ),
        (
            with(&sound, "llama.feed_forward_length", Value::U32(512)),
            "[256, 256], the configuration asks for [512, 256]",
        ),
        (with(&sound, "llama.attention.head_count_kv", Value::U32(1)), "blk.0.attn_k.weight"),
        (with(&sound, "llama.rope.dimension_count", Value::U32(32)), "rope.dimension_count"),
        (with(&sound, "llama.embedding_length", Value::String(b"wide")), "a whole number is needed"),
        (with(&sound, "llama.block_count", Value::U32(u32::MAX)), "llama.block_count"),
        (with(&sound, "llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)), "is NaN"),
    ];
    for (writer, want) in cases {
        let error = problem(&writer);
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
    for name in
        ["blk.0.ffn_gate_inp.weight", "blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", "position_embd.weight"]
    {
        let mut stranger = without(&sound, &[]);
        let floats = TensorType::from_name("F32").unwrap();
        stranger.tensor(name, &[HIDDEN], floats, vec![0; HIDDEN * 4]).unwrap();
        let error = problem(&stranger);
        assert!(error.contains(name), "{error}");
    }
    let mut other = without(&sound, &["blk.0.ffn_up.weight"]);
    let ty = TensorType::from_name("Q8_K").unwrap();
    other.tensor("blk.0.ffn_up.weight", &[INNER, HIDDEN], ty, vec![0; INNER * 292]).unwrap();
    let error = problem(&other);
    assert!(error.contains("Q8_K") && error.contains("blk.0.ffn_up.weight"), "{error}");
}

#[test]
fn changed_headers_are_models_or_errors() {
    let bytes = llama("Q4_0", &[0]).finish();
    let header = read(&bytes).tensors().map(|tensor| tensor.range().start).min().unwrap();
    let mut noise = Noise(42);
    let (mut refused, mut built) = (0, 0);
    for _ in 0..300 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + noise.byte() % 3 {
            // Past the counts, which fail at once.
            let at = 24 + (usize::from(noise.byte()) << 8 | usize::from(noise.byte())) % (header - 24);
            bytes[at] = noise.byte();
        }
        let Ok(checkpoint) = open(&bytes) else {
            refused += 1;
            continue;
        };
        match Model::build(checkpoint.architecture.as_ref(), checkpoint.weights, options()) {
            Ok(_) => built += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && built > 10, "{refused} refused, {built} built");
}
