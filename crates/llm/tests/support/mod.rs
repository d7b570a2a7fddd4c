//! Tiny language models with random weights, one for each kind of cache, and a vocabulary of single characters.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; whatever cannot be had fails its test

use pteron_cpu::Cpu;
use pteron_format::WriteOptions;
use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFormat};
use pteron_llm::{Decoder, DecoderOptions, Draw, LanguageModel, Next, Voice};
use pteron_models::architectures::{self, Gemma3, Llama};
use pteron_models::blocks::{LongScaling, RopeScaling, RopeSettings};
use pteron_models::shapes::tiny;
use pteron_models::{
    Architecture, Config, KvCache, Logits, Model, ModelOptions, Position, Quantization, RandomWeights,
};
use pteron_runtime::{Options, Precision, Program, RunControl};
use pteron_template::ChatTemplate;
use pteron_tensor::{Bytes, DType};
use serde_json::{Value, json};
use std::sync::Arc;

/// Characters and turn marks.
pub(crate) const VOCAB: usize = 70;
pub(crate) const CONTEXT: usize = 256;
pub(crate) const CHUNK: usize = 8;
/// Positions that a sliding layer sees.
pub(crate) const WINDOW: usize = 6;

/// What the caches are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caches {
    /// As long as the context.
    Plain,
    /// Rings in most layers.
    Ring,
    /// Outside the graph, with sliding layers.
    OffGraph,
    /// Outside the graph, as long as the context.
    PlainOffGraph,
    /// A state space beside attention in every layer.
    States,
    /// The delta rule in one layer, attention in the other.
    Delta,
}

pub(crate) const ALL: [Caches; 6] =
    [Caches::Plain, Caches::Ring, Caches::OffGraph, Caches::PlainOffGraph, Caches::States, Caches::Delta];

/// A family by its configuration, of the sizes that the others have.
fn family(name: &str, settings: Value) -> Box<dyn Architecture> {
    let mut config = json!({
        "model_type": name, "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": false, "bos_token_id": null, "eos_token_id": 67,
    });
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let config = Config::new(config).unwrap();
    architectures::family(name).unwrap().read(&config).unwrap()
}

fn llama() -> Llama {
    Llama {
        vocab_size: VOCAB,
        max_position_embeddings: CONTEXT,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_id: vec![67],
        ..tiny::llama()
    }
}

fn gemma3() -> Gemma3 {
    Gemma3 {
        vocab_size: VOCAB,
        sliding_window: WINDOW,
        max_position_embeddings: CONTEXT,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_id: vec![67],
        ..tiny::gemma3()
    }
}

/// A program with such caches that takes the position as what `export` writes takes it.
pub(crate) fn file(caches: Caches, logits: Logits, context: usize) -> Bytes {
    file_told(caches, logits, context, Position::Number)
}

/// A program with such caches that is told the position so.
pub(crate) fn file_told(caches: Caches, logits: Logits, context: usize, position: Position) -> Bytes {
    file_of(caches, logits, context, position, 7)
}

fn file_of(caches: Caches, logits: Logits, context: usize, position: Position, seed: u64) -> Bytes {
    let architecture: Box<dyn Architecture> = match caches {
        Caches::Plain | Caches::PlainOffGraph => Box::new(llama()),
        Caches::Ring | Caches::OffGraph => Box::new(gemma3()),
        Caches::States => {
            let sizes =
                json!({"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_state": 16, "mamba_n_groups": 2});
            family("falcon_h1", sizes)
        }
        Caches::Delta => {
            let heads = json!({
                "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
                "linear_value_head_dim": 16, "head_dim": 16, "layer_types": ["linear_attention", "full_attention"],
            });
            family("qwen3_5_text", heads)
        }
    };
    let kv = match caches {
        Caches::Plain | Caches::Ring => KvCache::InGraph,
        _ => KvCache::OffGraph,
    };
    let (activations, cache) = (DType::F32, DType::F32);
    let options = ModelOptions {
        activations,
        cache,
        context,
        chunk: CHUNK,
        beside: if position == Position::Each { 3 * CHUNK } else { 0 },
        logits,
        kv,
        position,
        ..ModelOptions::default()
    };
    let model = Model::build(architecture.as_ref(), Arc::new(RandomWeights::new(seed)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Bytes::copy_of(&bytes)
}

/// A program that can be asked for the logits of any token, on a backend that is built in; another seed gives another model.
pub(crate) fn asked(caches: Caches, backend: &str, seed: u64) -> LanguageModel {
    let mut options = Options { backend: Some(backend.to_owned()), ..Options::default() };
    options.registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    let file = file_of(caches, Logits::Selected, CONTEXT, Position::Number, seed);
    LanguageModel::new(Program::load("tiny.pte", file, &[], &options).unwrap()).unwrap()
}

/// A program whose sessions have so many positions unless they are asked for others, on the reference backend.
pub(crate) fn growing(session_context: usize) -> LanguageModel {
    let options = ModelOptions {
        context: CONTEXT,
        session_context: Some(session_context),
        chunk: CHUNK,
        kv: KvCache::OffGraph,
        ..ModelOptions::default()
    };
    let model = Model::build(&llama(), Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    let program = Program::load("tiny.pte", Bytes::copy_of(&bytes), &[], &Options::default()).unwrap();
    LanguageModel::new(program).unwrap()
}

/// Positions up to which a text is short for a model with longrope.
pub(crate) const BORDER: usize = 20;

/// A model with longrope that reads so many tokens at once, on a backend that is built in.
pub(crate) fn longrope(backend: &str, kv: KvCache, chunk: usize) -> LanguageModel {
    longrope_giving(Logits::Last, backend, kv, chunk)
}

/// The same, asked for the logits of any token.
pub(crate) fn longrope_asked(backend: &str, kv: KvCache, chunk: usize) -> LanguageModel {
    longrope_giving(Logits::Selected, backend, kv, chunk)
}

fn longrope_giving(logits: Logits, backend: &str, kv: KvCache, chunk: usize) -> LanguageModel {
    let scaling = LongScaling {
        short: (0..8).map(|pair| 1.0 + 0.1 * pair as f32).collect(),
        long: (0..8).map(|pair| 2.0 + pair as f32).collect(),
        original_context: BORDER,
        attention_factor: 1.1,
    };
    let rope = RopeSettings { theta: 10_000.0, scaling: RopeScaling::Long(scaling) };
    let (activations, cache, context) = (DType::F32, DType::F32, CONTEXT);
    let options = ModelOptions { activations, cache, context, chunk, logits, kv, ..ModelOptions::default() };
    let llama = Llama { rope, ..llama() };
    let model = Model::build(&llama, Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    let mut options = Options { backend: Some(backend.to_owned()), ..Options::default() };
    options.registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    LanguageModel::new(Program::load("tiny.pte", Bytes::copy_of(&bytes), &[], &options).unwrap()).unwrap()
}

/// A program that is told the position so, on the reference backend.
pub(crate) fn model_told(caches: Caches, position: Position) -> LanguageModel {
    let file = file_told(caches, Logits::Last, CONTEXT, position);
    LanguageModel::new(Program::load("tiny.pte", file, &[], &Options::default()).unwrap()).unwrap()
}

/// That program on the reference backend.
pub(crate) fn model(caches: Caches) -> LanguageModel {
    model_with(caches, Logits::Last, CONTEXT)
}

/// One model of each kind of cache on each backend that is built in, with its name.
pub(crate) fn models() -> impl Iterator<Item = (String, LanguageModel)> {
    let on = |backend: &'static str| {
        ALL.into_iter().map(move |caches| {
            let mut options = Options { backend: Some(backend.to_owned()), ..Options::default() };
            options.registry.add(Arc::new(Cpu::new(1, None).unwrap()));
            let program =
                Program::load("tiny.pte", file(caches, Logits::Last, CONTEXT), &[], &options).unwrap();
            (format!("{caches:?} on {backend}"), LanguageModel::new(program).unwrap())
        })
    };
    ["reference", "cpu"].into_iter().flat_map(on)
}

/// A model with packed matrices on the cpu backend, rounded as `run` and `chat` do it.
pub(crate) fn packed(
    architecture: &dyn Architecture,
    quantization: Quantization,
    activations: DType,
    kv: KvCache,
) -> LanguageModel {
    let (context, chunk) = (CONTEXT, CHUNK);
    let options = ModelOptions {
        activations,
        cache: activations,
        context,
        chunk,
        quantization,
        kv,
        ..ModelOptions::default()
    };
    let model = Model::build(architecture, Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    let mut options = Options { precision: Precision::Fast, ..Options::default() };
    options.registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    LanguageModel::new(Program::load("tiny.pte", Bytes::copy_of(&bytes), &[], &options).unwrap()).unwrap()
}

pub(crate) fn model_with(caches: Caches, logits: Logits, context: usize) -> LanguageModel {
    let program = Program::load("tiny.pte", file(caches, logits, context), &[], &Options::default()).unwrap();
    LanguageModel::new(program).unwrap()
}

pub(crate) fn decoder(model: &LanguageModel) -> Decoder {
    Decoder::new(model, &DecoderOptions::default()).unwrap()
}

/// The scores after a text.
pub(crate) fn read(decoder: &mut Decoder, tokens: &[u32]) -> Vec<f32> {
    match decoder.read(tokens, &Draw::default(), &RunControl::default()).unwrap() {
        Next::Scores(scores) => scores.clone(),
        Next::Token(token) => panic!("token {token} where scores were wanted"),
    }
}

/// A text of that many tokens; another seed gives another one.
pub(crate) fn text(tokens: usize, seed: usize) -> Vec<u32> {
    (0..tokens).map(|at| ((at * at * 7 + at * 13 + seed * 29 + 5) % 64) as u32).collect()
}

/// Single characters, byte-level spelled, and turn marks.
pub(crate) fn tokenizer() -> Tokenizer {
    let characters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let mut vocabulary: serde_json::Map<String, serde_json::Value> =
        characters.iter().enumerate().map(|(id, c)| (c.to_string(), id.into())).collect();
    // Space and line end, as byte-level vocabularies spell them.
    vocabulary.insert("\u{120}".to_owned(), 62.into());
    vocabulary.insert("\u{10a}".to_owned(), 63.into());
    let marks = ["<|turn|>", "<|system|>", "<|user|>", "<|end|>", "<|assistant|>", "<|unk|>"];
    let added: Vec<serde_json::Value> = (64..).zip(marks).map(|(id, mark)| added(id, mark)).collect();
    let level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false
    });
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    });
    let config = TokenizerConfig::default();
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

fn added(id: u32, content: &str) -> serde_json::Value {
    serde_json::json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    })
}

/// A chat template that marks turns.
const TEMPLATE: &str = "{% for message in messages %}<|turn|><|{{ message.role }}|>{{ message.content }}<|end|>\
     {% endfor %}{% if add_generation_prompt %}<|turn|><|assistant|>{% endif %}";

/// The vocabulary with a chat template.
pub(crate) fn voice() -> Voice {
    Voice { template: Some(ChatTemplate::new(TEMPLATE).unwrap()), ..Voice::new(tokenizer()) }
}
