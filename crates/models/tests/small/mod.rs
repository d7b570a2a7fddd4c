//! Small models of every architecture, each with its twin in plain loops, and how they are run.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; whatever cannot be had fails its test

#[path = "../plain/mod.rs"]
mod plain;

use std::sync::Arc;

pub(crate) use plain::Decoder;
use plain::{Layer, powers};
use pteron_format::WriteOptions;
use pteron_ir::verify_module;
use pteron_models::architectures::Llama;
use pteron_models::blocks::{Activation, Llama3Scaling, RopeScaling, RopeSettings};
pub(crate) use pteron_models::shapes::tiny::*;
use pteron_models::{Architecture, Logits, Model, ModelOptions, WeightSource};
use pteron_runtime::{ArgumentKind, Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};

pub(crate) const VOCAB: usize = 40;
pub(crate) const HIDDEN: usize = 32;
pub(crate) const TOKENS: usize = 20;

pub(crate) fn tokens() -> Vec<usize> {
    (0..TOKENS).map(|at| (at * 7 + 3) % VOCAB).collect()
}

pub(crate) fn plain_layer(prefix: String) -> Layer {
    Layer {
        prefix,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        scale: 0.25,
        inverse_frequencies: powers(16, 10_000.0),
        beyond: None,
        window: usize::MAX,
        qkv_bias: false,
        head_norms: false,
        value_norms: false,
        values_are_keys: false,
        donor: None,
        inner: 64,
        layer_scalar: false,
    }
}

/// `theta^(-2i/d)` of such a layer.
pub(crate) fn frequencies() -> Vec<f32> {
    powers(16, 10_000.0)
}

pub(crate) fn plain(layers: usize, change: impl Fn(usize, Layer) -> Layer) -> Decoder {
    Decoder {
        prefix: "model",
        vocab: VOCAB,
        hidden: HIDDEN,
        eps: 1e-5,
        activation: Activation::Silu,
        gemma: false,
        norm_plus: 0.0,
        tied: true,
        cap: None,
        per_layer: None,
        layers: (0..layers).map(|at| change(at, plain_layer(format!("model.layers.{at}")))).collect(),
    }
}

pub(crate) fn plain_qwen(head_norms: bool) -> Decoder {
    let layer = |at, layer| Layer {
        kv_heads: 1,
        head_dim: 8,
        scale: 8f32.powf(-0.5),
        inverse_frequencies: powers(8, 1_000_000.0),
        window: if at >= 1 { 5 } else { usize::MAX },
        qkv_bias: !head_norms,
        head_norms,
        ..layer
    };
    Decoder { eps: 1e-6, tied: false, ..plain(3, layer) }
}

pub(crate) fn plain_gemma3() -> Decoder {
    let layer = |at: usize, layer| {
        let is_full = (at + 1).is_multiple_of(3);
        let frequencies = match is_full {
            true => powers(16, 1_000_000.0).iter().map(|f| f / 8.0).collect(),
            false => powers(16, 10_000.0),
        };
        Layer {
            scale: 20f32.powf(-0.5),
            inverse_frequencies: frequencies,
            window: if is_full { usize::MAX } else { 6 },
            head_norms: true,
            ..layer
        }
    };
    Decoder {
        eps: 1e-6,
        activation: Activation::GeluTanh,
        gemma: true,
        norm_plus: 1.0,
        cap: Some(5.0),
        ..plain(4, layer)
    }
}

pub(crate) fn plain_gemma4(small: bool) -> Decoder {
    let layer = |at: usize, layer: Layer| {
        let is_full = (at + 1).is_multiple_of(3);
        // Of 16 pairs in a head of 32 a quarter turns, at the frequencies of the whole head.
        let partial: Vec<f32> =
            powers(32, 1_000_000.0).iter().enumerate().map(|(i, f)| if i < 4 { *f } else { 0.0 }).collect();
        let shares = small && at >= 3;
        Layer {
            prefix: format!("model.layers.{at}"),
            kv_heads: if is_full { 1 } else { 2 },
            head_dim: if is_full { 32 } else { 16 },
            scale: 1.0,
            inverse_frequencies: if is_full { partial } else { powers(16, 10_000.0) },
            window: if is_full { usize::MAX } else { 6 },
            head_norms: true,
            value_norms: true,
            values_are_keys: is_full && !small,
            donor: shares.then_some(if is_full { 2 } else { 1 }),
            inner: if shares { 128 } else { 64 },
            layer_scalar: true,
            ..layer
        }
    };
    Decoder {
        prefix: "model",
        eps: 1e-6,
        activation: Activation::GeluTanh,
        gemma: true,
        cap: Some(30.0),
        per_layer: small.then_some(32),
        ..plain(6, layer)
    }
}

pub(crate) fn llama3_frequencies() -> Vec<f32> {
    // Wavelengths below 4 stay, above 16 they grow by 8, between they blend.
    let scaled = |f: &f32| {
        let w = std::f32::consts::TAU / f;
        match w {
            w if w < 4.0 => *f,
            w if w > 16.0 => f / 8.0,
            w => {
                let s = (16.0 / w - 1.0) / 3.0;
                f * ((1.0 - s) / 8.0 + s)
            }
        }
    };
    powers(16, 10_000.0).iter().map(scaled).collect()
}

/// Every architecture with its twin in plain loops.
pub(crate) fn cases() -> Vec<(&'static str, Box<dyn Architecture>, Decoder)> {
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 16,
    };
    let scaled =
        Llama { rope: RopeSettings { theta: 10_000.0, scaling: RopeScaling::Llama3(scaling) }, ..llama() };
    let mistral = Llama { sliding_window: Some(7), tie_word_embeddings: false, ..llama() };
    let plain_mistral = Decoder { tied: false, ..plain(2, |_, layer| Layer { window: 7, ..layer }) };
    let plain_scaled = plain(2, |_, layer| Layer { inverse_frequencies: llama3_frequencies(), ..layer });
    let mut cases: Vec<(&'static str, Box<dyn Architecture>, Decoder)> = vec![
        ("llama", Box::new(llama()), plain(2, |_, layer| layer)),
        ("llama3", Box::new(scaled), plain_scaled),
        ("mistral", Box::new(mistral), plain_mistral),
        ("qwen2", Box::new(qwen(false)), plain_qwen(false)),
        ("qwen3", Box::new(qwen(true)), plain_qwen(true)),
        ("gemma3", Box::new(gemma3()), plain_gemma3()),
        ("gemma4 dense", Box::new(gemma4()), plain_gemma4(false)),
        ("gemma4 small", Box::new(gemma4_small()), plain_gemma4(true)),
    ];
    for (name, activation) in [
        ("quick_gelu", Activation::QuickGelu),
        ("relu", Activation::Relu),
        ("relu2", Activation::SquaredRelu),
        ("sigmoid", Activation::Sigmoid),
        ("tanh", Activation::Tanh),
    ] {
        let other = Llama { hidden_act: activation, ..llama() };
        cases.push((name, Box::new(other), Decoder { activation, ..plain(2, |_, layer| layer) }));
    }
    cases
}

pub(crate) fn options(chunk: usize) -> ModelOptions {
    ModelOptions {
        activations: DType::F32,
        cache: DType::F32,
        context: 24,
        chunk,
        logits: Logits::All,
        ..ModelOptions::default()
    }
}

pub(crate) fn file(model: &Model) -> Bytes {
    verify_module(model.module()).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Bytes::copy_of(&bytes)
}

pub(crate) fn build(
    architecture: &dyn Architecture,
    source: Arc<dyn WeightSource>,
    options: ModelOptions,
) -> Model {
    Model::build(architecture, source, options).unwrap()
}

/// Logits that `forward` gives, the text given in chunks of that many tokens.
pub(crate) fn run(file: Bytes, chunk: usize) -> Vec<Vec<f32>> {
    run_chunks(file, tokens().chunks(chunk), None)
}

/// The same of some rows of each whole chunk.
pub(crate) fn run_rows(file: Bytes, chunk: usize, rows: &[usize]) -> Vec<Vec<f32>> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let rows: Value = HostTensor::from_slice(vec![rows.len()], &rows).unwrap().into();
    run_chunks(file, tokens().chunks_exact(chunk), Some(rows))
}

fn run_chunks<'t>(
    file: Bytes,
    chunks: impl Iterator<Item = &'t [usize]>,
    rows: Option<Value>,
) -> Vec<Vec<f32>> {
    let program = Program::load("model.pte", file, &[], &Options::default()).unwrap();
    let mut session = program.session().unwrap();
    let (mut found, mut start) = (Vec::new(), 0);
    for part in chunks {
        let ids: Vec<i64> = part.iter().map(|&token| token as i64).collect();
        let position: Value = match program.method("forward").unwrap().inputs[1].kind {
            ArgumentKind::Int => Value::Int(start),
            _ => HostTensor::from_slice(vec![1], &[start]).unwrap().into(),
        };
        start += part.len() as i64;
        let ids = HostTensor::from_slice(vec![1, ids.len()], &ids).unwrap();
        let inputs: Vec<Value> = [ids.into(), position].into_iter().chain(rows.clone()).collect();
        let outputs = session.run("forward", &inputs).unwrap();
        let logits = outputs[0].to_tensor().unwrap().unwrap();
        found.extend(logits.as_slice::<f32>().unwrap().chunks(VOCAB).map(<[f32]>::to_vec));
    }
    found
}

pub(crate) fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0.0, |largest, (a, b)| if (a - b).is_nan() { f32::NAN } else { largest.max((a - b).abs()) })
}
