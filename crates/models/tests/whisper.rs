//! A small Whisper against plain loops over f64: encoder, keys and values, decoder in every chunking, alignment.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use std::sync::Arc;

use pteron_format::WriteOptions;
use pteron_ir::verify::verify_module;
use pteron_models::architectures::Whisper;
use pteron_models::blocks::Activation;
use pteron_models::{Config, Model, ModelOptions, Quantization, RandomWeights, Wanted, WeightSource};
use pteron_runtime::{Options, Program, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use serde_json::json;

const TOKENS: [i64; 9] = [3, 17, 5, 5, 30, 2, 8, 11, 29];
const CLOSE: f64 = 2e-4;

fn whisper() -> Whisper {
    with(json!({}))
}

/// The same, but for some of its settings.
fn with(settings: serde_json::Value) -> Whisper {
    let mut config = json!({
        "vocab_size": 40, "num_mel_bins": 6, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_layers": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 64,
        "max_source_positions": 10, "max_target_positions": 12, "alignment_heads": [[2, 1], [0, 0], [0, 1]],
    });
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    Whisper::read(&Config::new(config).unwrap()).unwrap()
}

type Rows = Vec<Vec<f64>>;

/// The same model in loops, from what is said of it.
struct Plain<'a> {
    source: &'a dyn WeightSource,
    sizes: Whisper,
}

impl Plain<'_> {
    fn get(&self, name: &str, shape: &[usize]) -> Vec<f64> {
        let mut values = vec![0.0; shape.iter().product()];
        self.source.floats(Wanted::new(name, shape), 0, &mut values).unwrap();
        values.into_iter().map(f64::from).collect()
    }

    fn linear(&self, x: &Rows, name: &str, outputs: usize, biased: bool) -> Rows {
        let inputs = x[0].len();
        let weight = self.get(&format!("{name}.weight"), &[outputs, inputs]);
        let bias = if biased { self.get(&format!("{name}.bias"), &[outputs]) } else { vec![0.0; outputs] };
        let row = |x: &Vec<f64>| {
            let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
            weight.chunks(inputs).zip(&bias).map(|(row, bias)| dot(row) + bias).collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, x: &Rows, name: &str) -> Rows {
        let size = x[0].len();
        let (weight, bias) =
            (self.get(&format!("{name}.weight"), &[size]), self.get(&format!("{name}.bias"), &[size]));
        let row = |x: &Vec<f64>| {
            let mean = x.iter().sum::<f64>() / size as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
            let scaled = x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
            scaled.zip(weight.iter().zip(&bias)).map(|(x, (w, b))| x * w + b).collect()
        };
        x.iter().map(row).collect()
    }

    /// What queries see, and the scores of every head.
    fn attend(&self, q: &Rows, k: &Rows, v: &Rows, heads: usize, causal: bool) -> (Rows, Vec<Rows>) {
        let size = q[0].len() / heads;
        let mut out = vec![vec![0.0; q[0].len()]; q.len()];
        let mut all = Vec::new();
        for head in 0..heads {
            let part = head * size..(head + 1) * size;
            let mut scores = Rows::new();
            for (at, query) in q.iter().enumerate() {
                let dot = |key: &Vec<f64>| {
                    query[part.clone()].iter().zip(&key[part.clone()]).map(|(a, b)| a * b).sum::<f64>()
                };
                let row: Vec<f64> = k.iter().map(|key| dot(key) / (size as f64).sqrt()).collect();
                let seen = if causal { at + 1 } else { row.len() };
                let most = row[..seen].iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = row[..seen].iter().map(|score| (score - most).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for (weight, value) in weights.iter().zip(v) {
                    for feature in part.clone() {
                        out[at][feature] += weight / sum * value[feature];
                    }
                }
                scores.push(row);
            }
            all.push(scores);
        }
        (out, all)
    }

    fn add(a: &Rows, b: &Rows) -> Rows {
        a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
    }

    fn feed_forward(&self, x: &Rows, name: &str, inner: usize) -> Rows {
        let wide = self.linear(
            &self.norm(x, &format!("{name}.final_layer_norm")),
            &format!("{name}.fc1"),
            inner,
            true,
        );
        let activation = match self.sizes.activation_function {
            Activation::Relu => |x: f64| x.max(0.0),
            _ => gelu,
        };
        let wide: Rows = wide.iter().map(|row| row.iter().map(|&x| activation(x)).collect()).collect();
        Plain::add(x, &self.linear(&wide, &format!("{name}.fc2"), x[0].len(), true))
    }

    fn convolution(&self, x: &Rows, name: &str, stride: usize) -> Rows {
        let (width, channels) = (self.sizes.d_model, x[0].len());
        let weight = self.get(&format!("{name}.weight"), &[width, channels, 3]);
        let bias = self.get(&format!("{name}.bias"), &[width]);
        let column = |at: usize| -> Vec<f64> {
            let output = |out: usize| {
                let mut sum = bias[out];
                for tap in 0..3 {
                    let Some(row) = (at + tap).checked_sub(1).and_then(|at| x.get(at)) else { continue };
                    for (channel, x) in row.iter().enumerate() {
                        sum += weight[(out * channels + channel) * 3 + tap] * x;
                    }
                }
                gelu(sum)
            };
            (0..width).map(output).collect()
        };
        (0..x.len()).step_by(stride).map(column).collect()
    }

    fn encode(&self, features: &Rows) -> Rows {
        let (width, heads) = (self.sizes.d_model, self.sizes.encoder_attention_heads);
        let x = self.convolution(features, "model.encoder.conv1", 1);
        let x = self.convolution(&x, "model.encoder.conv2", 2);
        let positions = self.get("model.encoder.embed_positions.weight", &[x.len(), width]);
        let positions: Rows = positions.chunks(width).map(<[f64]>::to_vec).collect();
        let mut x = Plain::add(&x, &positions);
        for layer in 0..self.sizes.encoder_layers {
            let name = format!("model.encoder.layers.{layer}");
            let normed = self.norm(&x, &format!("{name}.self_attn_layer_norm"));
            let project = |which: &str, biased| {
                self.linear(&normed, &format!("{name}.self_attn.{which}"), width, biased)
            };
            let (q, k, v) = (project("q_proj", true), project("k_proj", false), project("v_proj", true));
            let (seen, _) = self.attend(&q, &k, &v, heads, false);
            x = Plain::add(&x, &self.linear(&seen, &format!("{name}.self_attn.out_proj"), width, true));
            x = self.feed_forward(&x, &name, self.sizes.encoder_ffn_dim);
        }
        self.norm(&x, "model.encoder.layer_norm")
    }

    /// Logits of every position, and the scores of every layer and head against the sound.
    fn decode(&self, hidden: &Rows) -> (Rows, Vec<Vec<Rows>>) {
        let (width, heads) = (self.sizes.d_model, self.sizes.decoder_attention_heads);
        let table = self.get("model.decoder.embed_tokens.weight", &[self.sizes.vocab_size, width]);
        let positions =
            self.get("model.decoder.embed_positions.weight", &[self.sizes.max_target_positions, width]);
        let row = |table: &[f64], at: usize| table[at * width..(at + 1) * width].to_vec();
        let words: Rows = TOKENS.iter().map(|&token| row(&table, token as usize)).collect();
        let places: Rows = (0..TOKENS.len()).map(|at| row(&positions, at)).collect();
        let mut x = Plain::add(&words, &places);
        let mut scores = Vec::new();
        for layer in 0..self.sizes.decoder_layers {
            let name = format!("model.decoder.layers.{layer}");
            for (attention, causal) in [("self_attn", true), ("encoder_attn", false)] {
                let normed = self.norm(&x, &format!("{name}.{attention}_layer_norm"));
                let from = if causal { &normed } else { hidden };
                let project = |x: &Rows, which: &str, biased| {
                    self.linear(x, &format!("{name}.{attention}.{which}"), width, biased)
                };
                let (q, k, v) = (
                    project(&normed, "q_proj", true),
                    project(from, "k_proj", false),
                    project(from, "v_proj", true),
                );
                let (seen, all) = self.attend(&q, &k, &v, heads, causal);
                x = Plain::add(&x, &project(&seen, "out_proj", true));
                if !causal {
                    scores.push(all);
                }
            }
            x = self.feed_forward(&x, &name, self.sizes.decoder_ffn_dim);
        }
        let x = self.norm(&x, "model.decoder.layer_norm");
        let dot = |x: &Vec<f64>, row: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let head = match self.sizes.tie_word_embeddings {
            true => table,
            false => self.get("proj_out.weight", &[self.sizes.vocab_size, width]),
        };
        (x.iter().map(|x| head.chunks(width).map(|row| dot(x, row)).collect()).collect(), scores)
    }
}

/// By the error function, as a series that is exact enough for what small models give.
fn gelu(x: f64) -> f64 {
    let (z, mut term, mut sum) = (x / 2f64.sqrt(), x / 2f64.sqrt(), 0.0);
    if z.abs() > 5.0 {
        return if x > 0.0 { x } else { 0.0 };
    }
    for n in 0..120 {
        sum += term / f64::from(2 * n + 1);
        term *= -z * z / f64::from(n + 1);
    }
    x * 0.5 * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * sum)
}

fn program(options: ModelOptions) -> Program {
    program_of(&whisper(), options)
}

fn program_of(whisper: &Whisper, options: ModelOptions) -> Program {
    let model = Model::build(whisper, Arc::new(RandomWeights::new(7)), options).unwrap();
    verify_module(model.module()).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Program::load("whisper.pte", Bytes::copy_of(&bytes), &[], &Options::default()).unwrap()
}

fn options() -> ModelOptions {
    ModelOptions {
        activations: DType::F32,
        cache: DType::F32,
        context: 12,
        chunk: 12,
        ..ModelOptions::default()
    }
}

/// Frames of features, and the same band by band.
fn features() -> (Rows, Value) {
    let frames: Rows = (0..20)
        .map(|frame| (0..6).map(|band| f64::from((frame * 7 + band * 3) % 11) / 11.0 - 0.4).collect())
        .collect();
    let bands: Vec<f32> =
        (0..6).flat_map(|band| frames.iter().map(move |frame| frame[band] as f32)).collect();
    (frames, HostTensor::from_slice(vec![1, 6, 20], &bands).unwrap().into())
}

fn floats(value: &Value) -> Vec<f64> {
    let tensor = value.to_tensor().unwrap().unwrap();
    tensor.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect()
}

fn largest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, x| if x.is_nan() { f64::NAN } else { most.max(x) })
}

fn inputs(tokens: &[i64], position: i64, cross: &[Value]) -> Vec<Value> {
    let mut inputs: Vec<Value> = vec![
        HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap().into(),
        HostTensor::from_slice(vec![1], &[position]).unwrap().into(),
    ];
    inputs.extend(cross.iter().cloned());
    inputs
}

fn heard(session: &mut Session) -> (Value, Vec<Value>) {
    let hidden = session.run("encoder", &[features().1]).unwrap().remove(0);
    let cross = session.run("cross_kv", std::slice::from_ref(&hidden)).unwrap();
    (hidden, cross)
}

#[test]
fn every_method_computes_what_plain_loops_do() {
    as_in_loops(whisper());
}

#[test]
fn layers_have_other_activations_and_scores_a_matrix_of_their_own() {
    as_in_loops(with(json!({
        "activation_function": "relu", "tie_word_embeddings": false, "scale_embedding": true,
        "encoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    })));
}

fn as_in_loops(whisper: Whisper) {
    let program = program_of(&whisper, options());
    let source = RandomWeights::new(7);
    let plain = Plain { source: &source, sizes: whisper };
    let hidden = plain.encode(&features().0);
    let (logits, scores) = plain.decode(&hidden);
    let mut session = program.session().unwrap();
    let (encoded, cross) = heard(&mut session);
    let difference = largest(&floats(&encoded), &hidden.concat());
    assert!(difference < CLOSE, "encoder: off by {difference}");
    assert_eq!(cross.len(), 6);
    // The whole text, parts of it, and token by token, all behind the same sound; a text that begins anew forgets the last.
    for chunk in [9, 4, 1] {
        for (number, part) in TOKENS.chunks(chunk).enumerate() {
            let at = number * chunk;
            let given = session.run("decoder", &inputs(part, at as i64, &cross)).unwrap();
            let difference = largest(&floats(&given[0]), &logits[at + part.len() - 1]);
            assert!(difference < CLOSE, "decoder by {chunk}, at {at}: off by {difference}");
        }
    }
    let given = session.run("alignment", &inputs(&TOKENS, 0, &cross)).unwrap();
    for (output, [layer, head]) in given.iter().zip([[2, 1], [0, 0], [0, 1]]) {
        let difference = largest(&floats(output), &scores[layer][head].concat());
        assert!(difference < CLOSE, "head {head} of layer {layer}: off by {difference}");
    }
}

#[test]
fn eight_bits_stay_close() {
    let quantization =
        Quantization { scheme: Some("8w".parse().unwrap()), group: Some(32), ..Quantization::default() };
    let exact = program(options());
    let packed = program(ModelOptions { quantization, ..options() });
    let logits = |program: &Program| {
        let mut session = program.session().unwrap();
        let (_, cross) = heard(&mut session);
        floats(&session.run("decoder", &inputs(&TOKENS, 0, &cross)).unwrap()[0])
    };
    let (exact, packed) = (logits(&exact), logits(&packed));
    let size = exact.iter().map(|x| x.abs()).fold(0.0, f64::max);
    let difference = largest(&exact, &packed);
    assert!(difference > 0.0 && difference < 0.05 * size, "off by {difference} of {size}");
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let good = json!({
        "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_layers": 1,
        "decoder_attention_heads": 2, "decoder_ffn_dim": 64,
    });
    let read = |key: &str, value: serde_json::Value| {
        let mut config = good.clone();
        config[key] = value;
        Whisper::read(&Config::new(config).unwrap()).map_err(|error| error.to_string())
    };
    assert!(read("vocab_size", json!(51_865)).is_ok());
    for (key, value) in [
        ("d_model", json!(33)),
        ("d_model", json!(0)),
        ("encoder_layers", json!(1 << 20)),
        ("alignment_heads", json!([[1, 0]])),
        ("alignment_heads", json!([[0]])),
        ("alignment_heads", json!("all")),
        ("activation_function", json!("none of these")),
    ] {
        let message = read(key, value.clone()).unwrap_err();
        assert!(message.contains(key), "{key} {value}: {message}");
    }
}
