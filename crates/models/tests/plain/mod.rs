//! Decoders in plain loops over f32, written from what the architectures are said to compute and sharing nothing with
//! the blocks: the judge of the graphs. No cache: every position is computed from the whole text.

#![allow(clippy::unwrap_used)] // a weight that is missing fails its test

use pteron_models::blocks::Activation;
use pteron_models::{Wanted, WeightSource};

/// One layer in plain words.
pub(crate) struct Layer {
    pub(crate) prefix: String,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) scale: f32,
    pub(crate) inverse_frequencies: Vec<f32>,
    /// The first position that turns by other frequencies, and those.
    pub(crate) beyond: Option<(usize, Vec<f32>)>,
    pub(crate) window: usize,
    pub(crate) qkv_bias: bool,
    pub(crate) head_norms: bool,
    pub(crate) value_norms: bool,
    pub(crate) values_are_keys: bool,
    /// The layer whose keys and values it uses.
    pub(crate) donor: Option<usize>,
    pub(crate) inner: usize,
    pub(crate) layer_scalar: bool,
}

/// A decoder in plain words.
pub(crate) struct Decoder {
    pub(crate) prefix: &'static str,
    pub(crate) vocab: usize,
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
    pub(crate) activation: Activation,
    /// Gemma: norms after attention and MLP too, embeddings scaled.
    pub(crate) gemma: bool,
    /// Added to the weights of norms.
    pub(crate) norm_plus: f32,
    pub(crate) tied: bool,
    pub(crate) cap: Option<f32>,
    pub(crate) per_layer: Option<usize>,
    pub(crate) layers: Vec<Layer>,
}

type Rows = Vec<Vec<f32>>;

struct Weights<'a>(&'a dyn WeightSource);

impl Weights<'_> {
    fn get(&self, name: &str, shape: &[usize]) -> Vec<f32> {
        let count = shape.iter().product();
        let mut values = vec![0.0; count];
        self.0.floats(Wanted::new(name, shape), 0, &mut values).unwrap();
        values
    }

    fn product(&self, x: &Rows, name: &str, outputs: usize) -> Rows {
        let inputs = x[0].len();
        let w = self.get(name, &[outputs, inputs]);
        let row = |x: &Vec<f32>| {
            (0..outputs).map(|o| (0..inputs).map(|i| x[i] * w[o * inputs + i]).sum::<f32>()).collect()
        };
        x.iter().map(row).collect()
    }
}

fn rms(x: &[f32], weight: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    x.iter().enumerate().map(|(i, x)| x * factor * weight.map_or(1.0, |weight| weight[i])).collect()
}

fn by_head(x: &Rows, head_dim: usize, change: impl Fn(&[f32]) -> Vec<f32>) -> Rows {
    x.iter().map(|row| row.chunks(head_dim).flat_map(&change).collect()).collect()
}

fn rotate(x: &Rows, layer: &Layer) -> Rows {
    let head_dim = layer.head_dim;
    let half = head_dim / 2;
    let turned = |(position, row): (usize, &Vec<f32>)| {
        let inverse = match &layer.beyond {
            Some((first, inverse)) if position >= *first => inverse,
            _ => &layer.inverse_frequencies,
        };
        let heads = row.chunks(head_dim).flat_map(|head| {
            let mut out = head.to_vec();
            for i in 0..half {
                let (sin, cos) = (position as f32 * inverse[i]).sin_cos();
                out[i] = head[i] * cos - head[i + half] * sin;
                out[i + half] = head[i + half] * cos + head[i] * sin;
            }
            out
        });
        heads.collect()
    };
    x.iter().enumerate().map(turned).collect()
}

fn add(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

fn map(x: &Rows, change: impl Fn(f32) -> f32) -> Rows {
    x.iter().map(|row| row.iter().map(|&x| change(x)).collect()).collect()
}

impl Decoder {
    /// Logits of every position.
    pub(crate) fn logits(&self, source: &dyn WeightSource, tokens: &[usize]) -> Rows {
        let weights = Weights(source);
        let (hidden, prefix) = (self.hidden, self.prefix);
        let norm = |x: &Rows, name: &str| -> Rows {
            let weight: Vec<f32> = weights.get(name, &[hidden]).iter().map(|w| w + self.norm_plus).collect();
            x.iter().map(|row| rms(row, Some(&weight), self.eps)).collect()
        };
        let table_name = format!("{prefix}.embed_tokens.weight");
        let table = weights.get(&table_name, &[self.vocab, hidden]);
        let factor = if self.gemma { (hidden as f32).sqrt() } else { 1.0 };
        let mut x: Rows = tokens
            .iter()
            .map(|&t| table[t * hidden..(t + 1) * hidden].iter().map(|x| x * factor).collect())
            .collect();
        let per_layer = self.per_layer.map(|size| self.per_layer_inputs(&weights, &x, tokens, size));
        let mut caches: Vec<(Rows, Rows)> = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let normed = norm(&x, &format!("{}.input_layernorm.weight", layer.prefix));
            let mut attended = self.attend(&weights, layer, &normed, &mut caches);
            let second = format!("{}.post_attention_layernorm.weight", layer.prefix);
            if self.gemma {
                attended = norm(&attended, &second);
            }
            x = add(&x, &attended);
            let before = match self.gemma {
                true => format!("{}.pre_feedforward_layernorm.weight", layer.prefix),
                false => second,
            };
            let normed = norm(&x, &before);
            let gate =
                weights.product(&normed, &format!("{}.mlp.gate_proj.weight", layer.prefix), layer.inner);
            let up = weights.product(&normed, &format!("{}.mlp.up_proj.weight", layer.prefix), layer.inner);
            let gate = map(&gate, |x| self.activate(x));
            let inner: Rows =
                gate.iter().zip(&up).map(|(g, u)| g.iter().zip(u).map(|(g, u)| g * u).collect()).collect();
            let mut fed = weights.product(&inner, &format!("{}.mlp.down_proj.weight", layer.prefix), hidden);
            if self.gemma {
                fed = norm(&fed, &format!("{}.post_feedforward_layernorm.weight", layer.prefix));
            }
            x = add(&x, &fed);
            if let (Some(inputs), Some(size)) = (&per_layer, self.per_layer) {
                let gate =
                    weights.product(&x, &format!("{}.per_layer_input_gate.weight", layer.prefix), size);
                let gated: Rows = gate
                    .iter()
                    .zip(inputs)
                    .map(|(gate, input)| {
                        let input = &input[number * size..(number + 1) * size];
                        gate.iter().zip(input).map(|(gate, input)| self.activate(*gate) * input).collect()
                    })
                    .collect();
                let mixed =
                    weights.product(&gated, &format!("{}.per_layer_projection.weight", layer.prefix), hidden);
                x = add(&x, &norm(&mixed, &format!("{}.post_per_layer_input_norm.weight", layer.prefix)));
            }
            if layer.layer_scalar {
                let scalar = weights.get(&format!("{}.layer_scalar", layer.prefix), &[1])[0];
                x = map(&x, |x| x * scalar);
            }
        }
        let x = norm(&x, &format!("{prefix}.norm.weight"));
        let head = if self.tied { &table_name } else { "lm_head.weight" };
        let logits = weights.product(&x, head, self.vocab);
        match self.cap {
            Some(cap) => map(&logits, |x| cap * (x / cap).tanh()),
            None => logits,
        }
    }

    fn activate(&self, x: f32) -> f32 {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        match self.activation {
            Activation::Silu => x * sigmoid(x),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            Activation::QuickGelu => x * sigmoid(1.702 * x),
            Activation::Relu => x.max(0.0),
            Activation::SquaredRelu => x.max(0.0).powi(2),
            Activation::Sigmoid => sigmoid(x),
            Activation::Tanh => x.tanh(),
            other => panic!("{other:?} has no plain form"),
        }
    }

    fn per_layer_inputs(&self, weights: &Weights<'_>, x: &Rows, tokens: &[usize], size: usize) -> Rows {
        let width = self.layers.len() * size;
        let table =
            weights.get(&format!("{}.embed_tokens_per_layer.weight", self.prefix), &[self.vocab, width]);
        let projected =
            weights.product(x, &format!("{}.per_layer_model_projection.weight", self.prefix), width);
        let weight = weights.get(&format!("{}.per_layer_projection_norm.weight", self.prefix), &[size]);
        let rows = tokens.iter().zip(&projected).map(|(&token, projected)| {
            let scaled: Vec<f32> = projected.iter().map(|x| x / (self.hidden as f32).sqrt()).collect();
            let normed = scaled.chunks(size).flat_map(|part| rms(part, Some(&weight), self.eps));
            let own = &table[token * width..(token + 1) * width];
            normed.zip(own).map(|(a, b)| (a + b * (size as f32).sqrt()) / 2.0f32.sqrt()).collect()
        });
        rows.collect()
    }

    fn attend(&self, weights: &Weights<'_>, layer: &Layer, x: &Rows, caches: &mut Vec<(Rows, Rows)>) -> Rows {
        let project = |which: &str, heads: usize| {
            let width = heads * layer.head_dim;
            let y = weights.product(x, &format!("{}.self_attn.{which}.weight", layer.prefix), width);
            match layer.qkv_bias {
                true => {
                    let bias = weights.get(&format!("{}.self_attn.{which}.bias", layer.prefix), &[width]);
                    y.iter().map(|row| row.iter().zip(&bias).map(|(y, b)| y + b).collect()).collect()
                }
                false => y,
            }
        };
        let head_norm = |x: Rows, which: &str| match layer.head_norms {
            true => {
                let name = format!("{}.self_attn.{which}.weight", layer.prefix);
                let weight: Vec<f32> =
                    weights.get(&name, &[layer.head_dim]).iter().map(|w| w + self.norm_plus).collect();
                by_head(&x, layer.head_dim, |head| rms(head, Some(&weight), self.eps))
            }
            false => x,
        };
        let queries = head_norm(project("q_proj", layer.heads), "q_norm");
        let queries = rotate(&queries, layer);
        let (keys, values) = match layer.donor {
            Some(donor) => caches[donor].clone(),
            None => {
                let raw = project("k_proj", layer.kv_heads);
                let values =
                    if layer.values_are_keys { raw.clone() } else { project("v_proj", layer.kv_heads) };
                let values = match layer.value_norms {
                    true => by_head(&values, layer.head_dim, |head| rms(head, None, self.eps)),
                    false => values,
                };
                let keys = rotate(&head_norm(raw, "k_norm"), layer);
                (keys, values)
            }
        };
        caches.push((keys.clone(), values.clone()));
        let (d, group) = (layer.head_dim, layer.heads / layer.kv_heads);
        let attended: Rows = (0..x.len())
            .map(|t| {
                let seen = (t + 1).saturating_sub(layer.window)..t + 1;
                (0..layer.heads)
                    .flat_map(|head| {
                        let kv = head / group * d;
                        let q = &queries[t][head * d..(head + 1) * d];
                        let score = |j: usize| {
                            layer.scale * q.iter().zip(&keys[j][kv..kv + d]).map(|(q, k)| q * k).sum::<f32>()
                        };
                        let scores: Vec<f32> = seen.clone().map(score).collect();
                        let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                        let weights: Vec<f32> = scores.iter().map(|s| (s - top).exp()).collect();
                        let sum: f32 = weights.iter().sum();
                        let (seen, values) = (seen.clone(), &values);
                        (0..d)
                            .map(move |i| {
                                seen.clone().zip(&weights).map(|(j, w)| w * values[j][kv + i]).sum::<f32>()
                                    / sum
                            })
                            .collect::<Vec<f32>>()
                    })
                    .collect()
            })
            .collect();
        weights.product(&attended, &format!("{}.self_attn.o_proj.weight", layer.prefix), self.hidden)
    }
}

/// `theta^(-2i/d)`.
pub(crate) fn powers(head_dim: usize, theta: f32) -> Vec<f32> {
    (0..head_dim / 2).map(|i| theta.powf(-2.0 * i as f32 / head_dim as f32)).collect()
}
