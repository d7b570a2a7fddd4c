//! A configuration and the row of its family as a decoder.

use super::row::{Factor, Flag, HeadDim, HeadNormRow, RopeRow, Row, Scale, Still, Windows};
use super::{Decoder, Embedding, Feed, Head, Layer, Mixing, RopeSpec};
use crate::architectures::{LayerKind, every_nth_full};
use crate::blocks::{Activation, Biases, HeadNorms, Heads, MlpKind, RopeSettings, Scores};
use crate::{Config, ConfigError};

impl Row {
    /// The model that a configuration describes.
    pub fn read(&self, config: &Config) -> Result<Decoder, ConfigError> {
        for key in self.refused {
            config.refuse(key)?;
        }
        let sizes = &self.sizes;
        let hidden = size(config, self.keys.hidden, Some(sizes.hidden))?;
        let heads = size(config, self.keys.heads, Some(sizes.heads))?;
        let count = layers(config, self.keys.layers, sizes.layers)?;
        let context = size(config, self.keys.context, Some(sizes.context))?;
        let eps = match self.eps {
            ("", eps) => eps,
            (key, otherwise) => config.number(key, otherwise)?,
        };
        let head_dim = self.head_dim(config, hidden, heads)?;
        let kinds = self.kinds(config, count)?;
        let window = self.window(config, &kinds)?;
        let plain = self.heads(config, (heads, head_dim), eps)?;
        let (ropes, rope_of) = self.ropes(config, head_dim, context)?;
        let still = self.still_layers(config, &kinds)?;
        let feed = Feed::Mlp(self.mlp(config, hidden)?);
        let layer = |number: usize| {
            let kind = kinds[number];
            let heads = Heads { window: window.filter(|_| kind == LayerKind::Sliding), ..plain };
            let rope = rope_of(kind).filter(|_| !still[number]);
            Ok(Layer {
                norms: self.norms,
                parallel: self.parallel.read(config)?,
                factor: self.residual.read(config, hidden)?,
                mixing: Mixing::Heads(heads, rope),
                feed,
            })
        };
        let factor = match self.embedding {
            Factor::One => None,
            factor => Some(factor.read(config, hidden)?),
        };
        let mut decoder = Decoder {
            stem: "model",
            vocab_size: config.size("vocab_size", Some(sizes.vocab))?,
            hidden_size: hidden,
            embedding: Embedding {
                width: None,
                factor,
                norm: self.embedding_norm,
                positions: None,
                waves: None,
                kinds: None,
            },
            norm: self.norm,
            eps,
            layers: (0..count).map(layer).collect::<Result<_, ConfigError>>()?,
            ropes,
            head: Head {
                norm: true,
                tied: config.tied(self.tied)?,
                bias: self.head_bias.read(config)?,
                factor: self.logits.read(config, hidden)?,
                soft_cap: match self.logit_cap {
                    Some(otherwise) => cap(config, "final_logit_softcapping", otherwise)?,
                    None => None,
                },
            },
            wide_sums: self.wide_sums,
            max_position_embeddings: context,
            bos_token_id: config.bos(self.ends.0)?,
            eos_token_id: config.eos(self.ends.1)?,
            delay: None,
            layout: self.layout,
        };
        (self.finish)(config, &mut decoder)?;
        Ok(decoder)
    }

    fn head_dim(&self, config: &Config, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
        let shared = hidden / heads;
        let head_dim = match self.sizes.head_dim {
            HeadDim::Said => config.size("head_dim", Some(shared.max(1)))?,
            HeadDim::Usual(usual) => config.size("head_dim", Some(usual))?,
            HeadDim::Shared => shared,
        };
        match head_dim {
            0 => Err(ConfigError(format!("{heads} heads of {hidden} features have none each"))),
            head_dim => Ok(head_dim),
        }
    }

    fn heads(
        &self,
        config: &Config,
        (heads, head_dim): (usize, usize),
        eps: f32,
    ) -> Result<Heads, ConfigError> {
        let is_null = self.keys.kv_heads.iter().any(|key| config.is_null(key));
        let usual = self.sizes.kv_heads.filter(|_| !is_null).unwrap_or(heads);
        let kv_heads = size(config, self.keys.kv_heads, Some(usual))?;
        let plain = Heads::new(heads, kv_heads, head_dim);
        let norms = match self.head_norms {
            Some(HeadNormRow { when, kind, span, after_rope }) if when.read(config)? => {
                Some(HeadNorms { eps, kind, span, after_rope, values: false })
            }
            _ => None,
        };
        let clip = match self.clip {
            Some(key) => config.optional_number(key)?,
            None => None,
        };
        let cap = match self.score_cap {
            Some(otherwise) => cap(config, "attn_logit_softcapping", otherwise)?,
            None => None,
        };
        Ok(Heads {
            scale: match self.scale {
                Scale::RootOfHead => plain.scale,
                Scale::Key(key, otherwise) => config.number(key, otherwise)?,
                Scale::RootOfKey(key, otherwise) => config.number(key, otherwise)?.powf(-0.5),
            },
            biases: Biases::of(self.qkv_bias.read(config)?, self.out_bias.read(config)?),
            norms,
            clip,
            scores: Scores { cap, ..Scores::PLAIN },
            ..plain
        })
    }

    fn mlp(&self, config: &Config, hidden: usize) -> Result<MlpKind, ConfigError> {
        let usual = self.sizes.inner.unwrap_or(4 * hidden);
        Ok(MlpKind {
            inner: size(config, self.keys.inner, Some(usual))?,
            gated: self.gated,
            activation: self.activation(config)?,
            biases: self.mlp_bias.read(config)?,
            out_bias: false,
            sub_norm: None,
            factors: (1.0, 1.0),
            cutoff: None,
        })
    }

    fn activation(&self, config: &Config) -> Result<Activation, ConfigError> {
        let (key, otherwise) = self.activation;
        match config.get(key).and_then(serde_json::Value::as_str) {
            _ if key.is_empty() => Ok(otherwise),
            // Only where it is the family's own: elsewhere files have no weights for it.
            Some("xielu") if otherwise == Activation::Xielu => Ok(otherwise),
            _ => config.activation(key, otherwise),
        }
    }

    /// The kinds of all layers.
    fn kinds(&self, config: &Config, layers: usize) -> Result<Vec<LayerKind>, ConfigError> {
        let all = |kind| vec![kind; layers];
        match self.windows {
            Windows::None => Ok(all(LayerKind::Full)),
            Windows::All(otherwise) => {
                let said = config.get("sliding_window").is_some();
                let slides = said || otherwise.is_some() && !config.is_null("sliding_window");
                Ok(all(if slides { LayerKind::Sliding } else { LayerKind::Full }))
            }
            Windows::Types(_, key, otherwise) => {
                // A list of kinds goes before a pattern, which is a text in some files.
                let key = key.filter(|_| config.get("layer_types").is_none());
                let pattern = key.map_or(Ok(otherwise), |key| config.size(key, Some(otherwise)))?;
                let kinds = every_nth_full(layers, pattern);
                config.layer_types(layers, |layer| kinds[layer])
            }
            Windows::AllButFirst(_, pattern) => config.layer_types(layers, |layer| match layer % pattern {
                0 => LayerKind::Full,
                _ => LayerKind::Sliding,
            }),
            Windows::From(_, first) => {
                let first = config.count("max_window_layers", first)?;
                let slides = !config.is_null("sliding_window");
                config.layer_types(layers, |layer| match slides && layer >= first {
                    true => LayerKind::Sliding,
                    false => LayerKind::Full,
                })
            }
            Windows::AllTypes(_) => {
                let slides = !config.is_null("sliding_window");
                let kind = if slides { LayerKind::Sliding } else { LayerKind::Full };
                config.layer_types(layers, |_| kind)
            }
            Windows::Switched(_) => {
                let first = config.count("max_window_layers", 28)?;
                let slides = switched_on(config)?;
                let kind = |layer| match slides && layer >= first {
                    true => LayerKind::Sliding,
                    false => LayerKind::Full,
                };
                config.layer_types(layers, kind)
            }
        }
    }

    /// The window of layers that slide.
    fn window(&self, config: &Config, kinds: &[LayerKind]) -> Result<Option<usize>, ConfigError> {
        let slides = kinds.contains(&LayerKind::Sliding);
        match self.windows {
            Windows::None => Ok(None),
            Windows::All(otherwise) => match slides {
                true => config.size("sliding_window", otherwise).map(Some),
                false => Ok(None),
            },
            Windows::Switched(_) if slides && !switched_on(config)? => Err(ConfigError(
                "`layer_types` names layers that slide, and `use_sliding_window` switches the window off"
                    .into(),
            )),
            Windows::Types(otherwise, ..)
            | Windows::AllButFirst(otherwise, _)
            | Windows::From(otherwise, _)
            | Windows::AllTypes(otherwise)
            | Windows::Switched(otherwise) => {
                if slides && config.is_null("sliding_window") {
                    return Err(ConfigError(
                        "`sliding_window` is null, and there are layers that slide".into(),
                    ));
                }
                config.size("sliding_window", Some(otherwise)).map(Some)
            }
        }
    }

    /// All rotary positions, and those of a kind of layer.
    #[allow(clippy::type_complexity)] // a list and what points into it
    fn ropes(
        &self,
        config: &Config,
        head_dim: usize,
        context: usize,
    ) -> Result<(Vec<RopeSpec>, fn(LayerKind) -> Option<usize>), ConfigError> {
        let spec = |name: &'static str, dims, settings, interleaved, backwards| RopeSpec {
            name: name.into(),
            dims,
            head_dim,
            settings,
            interleaved,
            backwards,
        };
        match self.rope {
            RopeRow::None => Ok((Vec::new(), |_| None)),
            RopeRow::One { keys, interleaved, backwards } => {
                let (settings, part) = config.rope_of(&keys, context)?;
                let dims = (head_dim as f64 * part) as usize;
                Ok((vec![spec("rope", dims, settings, interleaved, backwards)], |_| Some(0)))
            }
            RopeRow::ByKind(full, local) => {
                let of = |kind, theta| config.rope_by_kind(kind, RopeSettings::plain(theta), context);
                let local = of(LayerKind::Sliding, local)?;
                let full = of(LayerKind::Full, full)?;
                let ropes = vec![
                    spec("local_rope", head_dim, local, false, false),
                    spec("rope", head_dim, full, false, false),
                ];
                Ok((ropes, |kind| Some(usize::from(kind == LayerKind::Full))))
            }
        }
    }

    /// Which layers do not turn.
    fn still_layers(&self, config: &Config, kinds: &[LayerKind]) -> Result<Vec<bool>, ConfigError> {
        match self.still {
            Still::None => Ok(vec![false; kinds.len()]),
            Still::Full => {
                let some_slide = !config.is_null("sliding_window");
                Ok(kinds.iter().map(|kind| some_slide && *kind == LayerKind::Full).collect())
            }
            Still::Listed => listed_still(config, kinds.len()),
        }
    }
}

/// Layers that `no_rope_layers` says 0 of, or else every n-th.
pub(super) fn listed_still(config: &Config, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let listed = config.get("no_rope_layers").and_then(serde_json::Value::as_array);
    match listed.filter(|list| !list.is_empty()) {
        Some(list) if list.len() == layers => list
            .iter()
            .map(|value| match (value.as_u64(), value.as_bool()) {
                (Some(number), _) => Ok(number == 0),
                (None, Some(turns)) => Ok(!turns),
                _ => Err(ConfigError("`no_rope_layers` is no list of numbers".into())),
            })
            .collect(),
        Some(_) => Err(ConfigError(format!("`no_rope_layers` does not name {layers} layers"))),
        None => {
            let interval = config.size("no_rope_layer_interval", Some(4))?;
            Ok((1..=layers).map(|layer| layer.is_multiple_of(interval)).collect())
        }
    }
}

fn switched_on(config: &Config) -> Result<bool, ConfigError> {
    Ok(Flag::Key("use_sliding_window", false).read(config)? && !config.is_null("sliding_window"))
}

/// A magnitude that numbers stay below; none where the file says null.
fn cap(config: &Config, key: &str, otherwise: Option<f32>) -> Result<Option<f32>, ConfigError> {
    Ok(config.optional_number(key)?.or(otherwise.filter(|_| !config.is_null(key))))
}

/// A size under the first of several keys that is there.
pub(super) fn size(config: &Config, keys: &[&str], otherwise: Option<usize>) -> Result<usize, ConfigError> {
    let key = keys.iter().find(|key| config.get(key).is_some()).or(keys.first());
    config.size(key.copied().unwrap_or_default(), otherwise)
}

fn layers(config: &Config, keys: &[&str], otherwise: usize) -> Result<usize, ConfigError> {
    let key = keys.iter().find(|key| config.get(key).is_some()).or(keys.first());
    config.layers_by(key.copied().unwrap_or_default(), otherwise)
}
