//! What no column of a family's row can say: settings that change several parts at once, or by a rule of their own.

use serde_json::{Map, Value};

use super::row::ONE_NORM;
use super::{Decoder, Feed, Layer, LayerNorms, Mixing, RopeSpec, layouts};
use crate::architectures::LayerKind;
use crate::blocks::{
    Activation, Alibi, Biases, Heads, Llama3Scaling, MlpKind, NormKind, Pairs, RopeScaling, Scores, Warmth,
    YarnScaling,
};
use crate::{Config, ConfigError};

pub(super) type Finished = Result<(), ConfigError>;

/// Changes the attention of each layer.
pub(super) fn each_attention(decoder: &mut Decoder, mut change: impl FnMut(usize, &mut Heads)) {
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        if let Mixing::Heads(heads, _) = &mut layer.mixing {
            change(number, heads);
        }
    }
}

fn each_mlp(decoder: &mut Decoder, change: impl Fn(&mut MlpKind)) {
    for layer in &mut decoder.layers {
        if let Feed::Mlp(kind) = &mut layer.feed {
            change(kind);
        }
    }
}

fn each_layer(decoder: &mut Decoder, change: impl Fn(&mut Layer)) {
    decoder.layers.iter_mut().for_each(change);
}

/// An error where `layer_types` names a layer that slides.
pub(super) fn only_full(config: &Config, decoder: &mut Decoder) -> Finished {
    match config.layer_types(decoder.layers.len(), |_| LayerKind::Full)?.contains(&LayerKind::Sliding) {
        true => Err(ConfigError("`layer_types` names layers that slide, which is not supported".into())),
        false => Ok(()),
    }
}

/// First files say `gelu` and mean its tanh form.
pub(super) fn gemma(_: &Config, decoder: &mut Decoder) -> Finished {
    each_mlp(decoder, |kind| {
        if kind.activation == Activation::Gelu {
            kind.activation = Activation::GeluTanh;
        }
    });
    Ok(())
}

pub(super) fn one_norm_in_parallel(_: &Config, decoder: &mut Decoder) -> Finished {
    each_layer(decoder, |layer| {
        if layer.parallel {
            layer.norms = ONE_NORM;
        }
    });
    Ok(())
}

/// Rows for positions, as many as the context has.
fn learned_positions(decoder: &mut Decoder, first: usize) {
    decoder.embedding.positions = Some((decoder.max_position_embeddings + first, first));
}

pub(super) fn gpt2(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 0);
    let scales = config.flag("scale_attn_weights", true)?;
    let by_layer = config.flag("scale_attn_by_inverse_layer_idx", false)?;
    each_attention(decoder, |number, heads| {
        let scale = if scales { heads.scale } else { 1.0 };
        heads.scale = if by_layer { scale / (number as f32 + 1.0) } else { scale };
    });
    Ok(())
}

pub(super) fn bigcode(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 0);
    let scales = config.flag("scale_attn_weights", true)?;
    let shares = config.flag("multi_query", true)?;
    decoder.layout = if shares { &layouts::BIGCODE } else { &layouts::BIGCODE_HEADS };
    each_attention(decoder, |_, heads| {
        heads.kv_heads = if shares { 1 } else { heads.heads };
        heads.scale = if scales { heads.scale } else { 1.0 };
    });
    Ok(())
}

/// Layers by turns, of which some see a window; scores without a scale.
pub(super) fn gpt_neo(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 0);
    let layers = decoder.layers.len();
    let wrong = || ConfigError("`attention_types` is no list of kinds with how often they come".into());
    let is_local = |kind: &Value| match kind.as_str() {
        Some("global") => Ok(false),
        Some("local") => Ok(true),
        _ => Err(wrong()),
    };
    let mut locals = Vec::new();
    // What is listed layer by layer counts, then the short form.
    match (config.get("attention_layers"), config.get("attention_types")) {
        (Some(list), _) => {
            let kinds = list.as_array().ok_or_else(wrong)?;
            locals = kinds.iter().map(is_local).collect::<Result<_, _>>()?;
        }
        // Twelve times a global one and a local one.
        (None, None) => locals.extend((0..24).map(|layer| layer % 2 == 1)),
        (None, Some(list)) => {
            for item in list.as_array().ok_or_else(wrong)? {
                let kinds = item.get(0).and_then(Value::as_array).ok_or_else(wrong)?;
                let times = item.get(1).and_then(Value::as_u64).ok_or_else(wrong)? as usize;
                if kinds.is_empty() || times.saturating_mul(kinds.len()) > layers {
                    return Err(ConfigError(format!("`attention_types` does not name {layers} layers")));
                }
                for kind in std::iter::repeat_n(kinds, times).flatten() {
                    locals.push(is_local(kind)?);
                }
            }
        }
    }
    if locals.len() != layers {
        return Err(ConfigError(format!("`attention_types` does not name {layers} layers")));
    }
    let window = config.size("window_size", Some(256))?;
    each_attention(decoder, |number, heads| {
        heads.scale = 1.0;
        heads.window = locals[number].then_some(window);
    });
    Ok(())
}

pub(super) fn gptj(config: &Config, decoder: &mut Decoder) -> Finished {
    if config.is_null("rotary_dim") {
        return Err(ConfigError("`rotary_dim` is null, which is not supported".into()));
    }
    let dims = config.size("rotary_dim", Some(64))?;
    for rope in &mut decoder.ropes {
        if dims > rope.head_dim {
            let head_dim = rope.head_dim;
            return Err(ConfigError(format!("`rotary_dim` is {dims} where heads have {head_dim}")));
        }
        rope.dims = dims;
    }
    Ok(())
}

/// Heads lie in four parts.
pub(super) fn codegen(config: &Config, decoder: &mut Decoder) -> Finished {
    gptj(config, decoder)?;
    let heads = decoder.layers.iter().find_map(|layer| layer.mixing.heads()).map_or(0, |heads| heads.heads);
    match heads.is_multiple_of(4) {
        true => Ok(()),
        false => Err(ConfigError(format!("`n_head` is {heads}, no multiple of 4"))),
    }
}

/// One bias, in the last layer.
pub(super) fn neox_japanese(config: &Config, decoder: &mut Decoder) -> Finished {
    let times = config.size("intermediate_multiple_size", Some(4))?;
    let inner = decoder.hidden_size.saturating_mul(times);
    each_mlp(decoder, |kind| kind.inner = inner);
    let last = decoder.layers.len().saturating_sub(1);
    each_attention(decoder, |number, heads| heads.biases = Biases::of(false, number == last));
    Ok(())
}

/// Settings of attention in an object of their own. Models without scores by distance have learned positions, which no code of
/// transformers reads.
pub(super) fn mpt(config: &Config, decoder: &mut Decoder) -> Finished {
    let of = Config::new(config.get("attn_config").cloned().unwrap_or_else(|| Value::Object(Map::new())))?;
    for key in ["qk_ln", "prefix_lm", "attn_uses_sequence_id"] {
        of.refuse(key)?;
    }
    let (alibi, unbiased) = (of.flag("alibi", true)?, config.flag("no_bias", true)?);
    let (steepest, times) = (of.size("alibi_bias_max", Some(8))?, config.size("expansion_ratio", Some(4))?);
    let kind = of.get("attn_type").and_then(Value::as_str).unwrap_or("multihead_attention");
    if !alibi || !unbiased || steepest != 8 || times != 4 || kind != "multihead_attention" {
        return Err(ConfigError(format!(
            "`alibi` is {alibi}, `alibi_bias_max` {steepest}, `attn_type` {kind:?}, `no_bias` {unbiased} and `expansion_ratio` {times}; \
             only true, 8, \"multihead_attention\", true and 4 are supported"
        )));
    }
    let (scale, clip) = (of.optional_number("softmax_scale")?, of.optional_number("clip_qkv")?);
    each_attention(decoder, |_, heads| {
        heads.scores = Scores { alibi: Some(Alibi::Exact), ..Scores::PLAIN };
        heads.scale = scale.unwrap_or(heads.scale);
        heads.clip = clip;
    });
    Ok(())
}

/// Learned positions behind two that no text has.
pub(super) fn biogpt(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 2);
    scaled_rows(config, decoder)
}

fn scaled_rows(config: &Config, decoder: &mut Decoder) -> Finished {
    if config.flag("scale_embedding", true)? {
        decoder.embedding.factor = Some((decoder.hidden_size as f32).sqrt());
    }
    Ok(())
}

/// Positions as waves, from the third on.
pub(super) fn xglm(config: &Config, decoder: &mut Decoder) -> Finished {
    let hidden = decoder.hidden_size;
    if hidden < 4 || !hidden.is_multiple_of(2) {
        return Err(ConfigError(format!("`d_model` is {hidden}, where waves come in pairs")));
    }
    // The row of padding is empty, which no text meets where it is one of the first two.
    if config.count("pad_token_id", 1)? > 1 {
        return Err(ConfigError("`pad_token_id` is more than 1, which is not supported".into()));
    }
    decoder.embedding.waves = Some(2);
    scaled_rows(config, decoder)
}

/// Norms over sums, and none at the end; by `gelu` its tanh form is meant.
pub(super) fn openai_gpt(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 0);
    let activation = match config.get("afn").map(|name| name.as_str().unwrap_or_default()) {
        None | Some("gelu") => Activation::GeluTanh,
        Some("relu") => Activation::Relu,
        Some("silu" | "swish") => Activation::Silu,
        Some(other) => {
            return Err(ConfigError(format!("`afn` is {other:?}; known are gelu, relu, silu, swish")));
        }
    };
    each_mlp(decoder, |kind| kind.activation = activation);
    decoder.head.norm = false;
    Ok(())
}

pub(super) fn opt(config: &Config, decoder: &mut Decoder) -> Finished {
    learned_positions(decoder, 2);
    let width = config.size("word_embed_proj_dim", Some(decoder.hidden_size))?;
    decoder.embedding.width = Some(width).filter(|&width| width != decoder.hidden_size);
    if !config.flag("layer_norm_elementwise_affine", true)? {
        decoder.norm = NormKind::LayerBare;
    }
    let before = config.flag("do_layer_norm_before", true)?;
    decoder.head.norm = before && !config.flag("_remove_final_layer_norm", false)?;
    if !before {
        each_layer(decoder, |layer| {
            layer.norms = LayerNorms {
                before_attention: None,
                after_attention: Some("input_layernorm"),
                before_feed: None,
                after_feed: Some("post_attention_layernorm"),
                of_sums: true,
            };
        });
    }
    Ok(())
}

pub(super) fn bloom(_: &Config, decoder: &mut Decoder) -> Finished {
    each_attention(decoder, |_, heads| {
        heads.scores = Scores { alibi: Some(Alibi::Exact), ..Scores::PLAIN };
    });
    Ok(())
}

/// Three generations under one name.
pub(super) fn falcon(config: &Config, decoder: &mut Decoder) -> Finished {
    let newer = config.flag("new_decoder_architecture", false)?;
    let one_key = config.flag("multi_query", true)?;
    let parallel = config.flag("parallel_attn", true)?;
    let norms = match config.get("num_ln_in_parallel_attn").and_then(Value::as_u64) {
        None if newer => 2,
        None => 1,
        Some(norms @ (1 | 2)) => norms,
        Some(norms) => {
            return Err(ConfigError(format!("`num_ln_in_parallel_attn` is {norms}, neither 1 nor 2")));
        }
    };
    if newer != (norms == 2) && parallel && norms == 2 {
        return Err(ConfigError(
            "`num_ln_in_parallel_attn` is 2 without `new_decoder_architecture`, which is not supported"
                .into(),
        ));
    }
    if newer && !parallel {
        return Err(ConfigError(
            "`parallel_attn` is false with `new_decoder_architecture`, which is not supported".into(),
        ));
    }
    let alibi = config.flag("alibi", false)?;
    each_attention(decoder, |_, heads| {
        heads.kv_heads = match (newer, one_key) {
            (true, _) => heads.kv_heads,
            (false, true) => 1,
            (false, false) => heads.heads,
        };
        if alibi {
            heads.scores = Scores { alibi: Some(Alibi::Rounded), ..Scores::PLAIN };
        }
    });
    for layer in &mut decoder.layers {
        if let Mixing::Heads(_, rope) = &mut layer.mixing {
            *rope = rope.filter(|_| !alibi);
        }
        match (layer.parallel, norms) {
            (true, 2) => {
                layer.norms =
                    LayerNorms { before_attention: Some("ln_attn"), before_feed: Some("ln_mlp"), ..ONE_NORM };
            }
            (true, _) => layer.norms = ONE_NORM,
            (false, _) => {}
        }
    }
    Ok(())
}

/// The tokens that end a text, where the file does not name any.
pub(super) fn glm(_: &Config, decoder: &mut Decoder) -> Finished {
    if decoder.eos_token_id.is_empty() {
        decoder.eos_token_id = vec![151_329, 151_336, 151_338];
    }
    Ok(())
}

/// A base that grows by a fixed number, which files call dynamic.
pub(super) fn hunyuan(config: &Config, decoder: &mut Decoder) -> Finished {
    let Some(parameters) = config.rope_parameters()? else { return Ok(()) };
    let kind = parameters.get("rope_type").or_else(|| parameters.get("type")).and_then(Value::as_str);
    let alpha = parameters.get("alpha").and_then(Value::as_f64).filter(|&alpha| alpha != 0.0);
    if let (Some("dynamic"), Some(alpha)) = (kind, alpha) {
        for rope in &mut decoder.ropes {
            let dims = rope.head_dim as f64;
            let grown = f64::from(rope.settings.theta) * alpha.powf(dims / (dims - 2.0));
            if !grown.is_finite() || grown <= 0.0 {
                return Err(ConfigError(format!("rope parameters have the `alpha` {alpha}")));
            }
            rope.settings.theta = grown as f32;
        }
    }
    Ok(())
}

/// Sinks, and a base of its own for each layer; layers with 0 do not turn.
pub(super) fn granite_swa(config: &Config, decoder: &mut Decoder) -> Finished {
    each_attention(decoder, |_, heads| heads.scores = Scores { sinks: true, ..Scores::PLAIN });
    let (key, layers) = ("layer_rope_theta", decoder.layers.len());
    let Some(value) = config.get(key) else { return Ok(()) };
    let wrong = || ConfigError(format!("`{key}` does not have the bases of {layers} layers"));
    let list = value.as_array().filter(|list| list.len() == layers).ok_or_else(wrong)?;
    let Some(plain) = decoder.ropes.pop() else { return Ok(()) };
    for (layer, base) in decoder.layers.iter_mut().zip(list) {
        let base = base.as_f64().map(|base| base as f32).filter(|base| base.is_finite() && *base >= 0.0);
        let base = base.ok_or_else(wrong)?;
        let Mixing::Heads(_, rope) = &mut layer.mixing else { continue };
        *rope = (base > 0.0).then(|| {
            let known = decoder.ropes.iter().position(|known| known.settings.theta == base);
            known.unwrap_or_else(|| {
                let mut spec = RopeSpec { name: format!("rope {base}").into(), ..plain.clone() };
                spec.settings.theta = base;
                decoder.ropes.push(spec);
                decoder.ropes.len() - 1
            })
        });
    }
    Ok(())
}

/// Heads in pairs, of which one is taken from the other the more the deeper the layer.
pub(super) fn diffllama(_: &Config, decoder: &mut Decoder) -> Finished {
    let eps = decoder.eps;
    let mut odd = None;
    each_attention(decoder, |number, heads| {
        let start = (0.8 - 0.6 * (-0.3 * number as f64).exp()) as f32;
        heads.pairs = Some(Pairs { start, eps });
        odd = odd.or(Some(heads.kv_heads).filter(|count| !count.is_multiple_of(2)));
    });
    match odd {
        Some(heads) => {
            Err(ConfigError(format!("`num_key_value_heads` is {heads}, where heads come in pairs")))
        }
        None => Ok(()),
    }
}

/// Long wavelengths are stretched unless the file says otherwise, and three tokens end a text.
pub(super) fn cwm(config: &Config, decoder: &mut Decoder) -> Finished {
    if decoder.eos_token_id.is_empty() {
        decoder.eos_token_id = vec![128_001, 128_008, 128_009];
    }
    if config.rope_parameters()?.is_none() {
        stretched(decoder, 1_000_000.0, 16.0);
    }
    Ok(())
}

/// Norms behind both halves where the file does not say otherwise, and scores as usual.
pub(super) fn hyperclovax(config: &Config, decoder: &mut Decoder) -> Finished {
    if config.flag("use_post_norm", true)? {
        each_layer(decoder, |layer| {
            layer.norms.after_attention = Some("post_norm1");
            layer.norms.after_feed = Some("post_norm2");
        });
    }
    let scale = config.optional_number("attention_multiplier")?;
    each_attention(decoder, |_, heads| heads.scale = scale.unwrap_or(heads.scale));
    Ok(())
}

/// Llama 3's scaling over a first context of 8,192.
fn stretched(decoder: &mut Decoder, theta: f32, factor: f32) {
    for rope in &mut decoder.ropes {
        rope.settings.theta = theta;
        rope.settings.scaling = RopeScaling::Llama3(Llama3Scaling {
            factor,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 8192,
        });
    }
}

/// Long wavelengths are stretched unless the file says otherwise.
pub(super) fn apertus(config: &Config, decoder: &mut Decoder) -> Finished {
    if config.rope_parameters()?.is_some() {
        return Ok(());
    }
    stretched(decoder, 12_000_000.0, 8.0);
    Ok(())
}

pub(super) fn bitnet(_: &Config, decoder: &mut Decoder) -> Finished {
    let eps = decoder.eps;
    each_attention(decoder, |_, heads| heads.sub_norm = Some(eps));
    each_mlp(decoder, |kind| kind.sub_norm = Some(eps));
    Ok(())
}

/// Queries that grow with their position, and YaRN unless the file says otherwise.
pub(super) fn ministral3(config: &Config, decoder: &mut Decoder) -> Finished {
    let number = |key: &str| {
        let parameters = config.rope_parameters()?;
        Ok::<_, ConfigError>(parameters.and_then(|all| all.get(key)).and_then(Value::as_f64))
    };
    let (amount, step) = match config.rope_parameters()? {
        Some(_) => (number("llama_4_scaling_beta")?, number("original_max_position_embeddings")?),
        None => {
            for rope in &mut decoder.ropes {
                rope.settings.theta = 1_000_000.0;
                rope.settings.scaling = RopeScaling::Yarn(YarnScaling {
                    factor: 16.0,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                    truncate: true,
                    original_context: 16_384,
                    attention_factor: 1.0,
                });
            }
            (Some(0.1), Some(16_384.0))
        }
    };
    let (Some(amount), Some(step)) = (amount, step.filter(|&step| step >= 1.0)) else {
        return Err(ConfigError(
            "rope parameters lack `llama_4_scaling_beta` or `original_max_position_embeddings`".into(),
        ));
    };
    let warmth = Warmth { amount: amount as f32, step: step as f32, ahead: 0.0 };
    each_attention(decoder, |_, heads| heads.warmth = Some(warmth));
    Ok(())
}
