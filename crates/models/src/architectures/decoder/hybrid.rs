//! Families that keep states of all tokens so far, in all layers or in some: which layers are of which kind, and their sizes.

use serde_json::Value;

use super::finish::{Finished, each_attention};
use super::row::{ONE_NORM, TWO_NORMS};
use super::sparse::{self, PER_TOKEN, give};
use super::{Beside, Decoder, Feed, LayerNorms, Mixing, layouts};
use crate::blocks::{
    Activation, Delta, Divisor, Experts, GatedNorm, Lru, MlpKind, Router, Scoring, Selective, SelectiveNorms,
    Shared, ShortConv, Ssm,
};
use crate::config::MOST_LAYERS;
use crate::{Config, ConfigError};

/// The kinds that a file lists under that key, one a layer, or what `kind` says of each. Some files have older names.
fn kinds(
    config: &Config,
    key: &str,
    layers: usize,
    kind: impl Fn(usize) -> &'static str,
) -> Result<Vec<String>, ConfigError> {
    let Some(value) = config.get(key) else { return Ok((0..layers).map(|at| kind(at).to_owned()).collect()) };
    let wrong = || ConfigError(format!("`{key}` does not name the kinds of {layers} layers"));
    let list = value.as_array().filter(|list| list.len() == layers).ok_or_else(wrong)?;
    let name = |value: &Value| {
        Ok(match value.as_str().ok_or_else(wrong)? {
            "attention" => "full_attention",
            "mamba" | "mamba2" => "linear_attention",
            other => other,
        }
        .to_owned())
    };
    list.iter().map(name).collect()
}

fn unknown(key: &str, kind: &str) -> ConfigError {
    ConfigError(format!("`{key}` names {kind:?}, which is not supported"))
}

/// Gives layers that are no attention another mixing.
fn mix(decoder: &mut Decoder, key: &str, kinds: &[String], other: (&str, Mixing)) -> Finished {
    for (layer, kind) in decoder.layers.iter_mut().zip(kinds) {
        match kind.as_str() {
            "full_attention" => {}
            kind if kind == other.0 => layer.mixing = other.1,
            kind => return Err(unknown(key, kind)),
        }
    }
    Ok(())
}

/// Tokens that a convolution sees.
fn taps(config: &Config, key: &str, otherwise: usize) -> Result<usize, ConfigError> {
    match config.size(key, Some(otherwise))? {
        1 => Err(ConfigError(format!("`{key}` is 1, where a convolution sees more than its own token"))),
        taps if taps > 64 => Err(ConfigError(format!("`{key}` is {taps}, at most 64 are built"))),
        taps => Ok(taps),
    }
}

/// A size that may be left to the file's other sizes.
fn auto(config: &Config, key: &str, otherwise: usize) -> Result<usize, ConfigError> {
    match config.get(key).and_then(Value::as_str) {
        Some("auto") => Ok(otherwise),
        _ => config.size(key, Some(otherwise)),
    }
}

fn short_convs(config: &Config, decoder: &mut Decoder) -> Finished {
    let listed = sparse::listed(config, "full_attn_idxs")?;
    let kind = |at: usize| match &listed {
        Some(list) if !list.contains(&at) => "conv",
        _ => "full_attention",
    };
    let kinds = kinds(config, "layer_types", decoder.layers.len(), kind)?;
    let conv = ShortConv { taps: taps(config, "conv_L_cache", 3)?, biases: config.flag("conv_bias", false)? };
    if let Some(tied) = config.get("tie_embedding").and_then(Value::as_bool) {
        decoder.head.tied = tied;
    }
    mix(decoder, "layer_types", &kinds, ("conv", Mixing::Conv(conv)))
}

pub(super) fn lfm2(config: &Config, decoder: &mut Decoder) -> Finished {
    let inner = config.size("block_ff_dim", Some(sparse::dense(decoder).0))?;
    let inner = match config.flag("block_auto_adjust_ff_dim", true)? {
        false => inner,
        true if config.is_null("block_ffn_dim_multiplier") => 2 * inner / 3,
        true => {
            let by = f64::from(config.number("block_ffn_dim_multiplier", 1.0)?);
            let multiple = config.size("block_multiple_of", Some(256))?;
            ((by * (2 * inner / 3) as f64) as usize).div_ceil(multiple) * multiple
        }
    };
    for layer in &mut decoder.layers {
        layer.feed = Feed::Mlp(MlpKind::gated(inner.max(1), Activation::Silu));
    }
    short_convs(config, decoder)
}

pub(super) fn lfm2_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let inner = config.size("moe_intermediate_size", Some(1792))?;
    let router = Router {
        scoring: Scoring::Sigmoid,
        bias: false,
        correction: config.flag("use_expert_bias", true)?,
        groups: None,
        divisor: config.flag("norm_topk_prob", true)?.then_some(Divisor::Sum(1e-6)),
        factor: config.number("routed_scaling_factor", 1.0)?,
    };
    let of =
        sparse::experts(config, (&["num_experts"], 32), (PER_TOKEN, 4), inner, Activation::Silu, router)?;
    let dense = config.count("num_dense_layers", 2)?;
    give(decoder, of, |number| number >= dense);
    short_convs(config, decoder)
}

/// The keys of a state space, and what they say otherwise.
struct SsmKeys {
    heads: (&'static str, usize),
    head_dim: &'static str,
    groups: (&'static str, usize),
    state: (&'static str, usize),
    taps: &'static str,
    conv_bias: &'static str,
    bias: &'static str,
    activation: &'static str,
}

/// What hybrids call them.
const HYBRID: SsmKeys = SsmKeys {
    heads: ("mamba_n_heads", 128),
    head_dim: "mamba_d_head",
    groups: ("mamba_n_groups", 1),
    state: ("mamba_d_state", 256),
    taps: "mamba_d_conv",
    conv_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
    activation: "hidden_act",
};

const MAMBA2: SsmKeys = SsmKeys {
    heads: ("num_heads", 128),
    head_dim: "head_dim",
    groups: ("n_groups", 8),
    state: ("state_size", 128),
    taps: "conv_kernel",
    conv_bias: "use_conv_bias",
    bias: "use_bias",
    activation: "hidden_act",
};

const NEMOTRON: SsmKeys = SsmKeys {
    heads: ("mamba_num_heads", 128),
    head_dim: "mamba_head_dim",
    state: ("ssm_state_size", 128),
    bias: "mamba_proj_bias",
    activation: "mamba_hidden_act",
    ..MAMBA2
};

/// A state space whose heads have so many features together.
fn ssm(config: &Config, keys: &SsmKeys, inner: Option<usize>, eps: f32) -> Result<Ssm, ConfigError> {
    steps_without_limit(config)?;
    let heads = config.size(keys.heads.0, Some(keys.heads.1))?;
    let head_dim = auto(config, keys.head_dim, inner.map_or(64, |inner| inner / heads).max(1))?;
    let groups = config.size(keys.groups.0, Some(keys.groups.1))?;
    if inner.is_some_and(|inner| inner != heads * head_dim) || !heads.is_multiple_of(groups) {
        let features = inner.unwrap_or(heads * head_dim);
        return Err(ConfigError(format!(
            "{heads} heads of {head_dim} features in {groups} groups are not {features} features"
        )));
    }
    let bias = config.flag(keys.bias, false)?;
    Ok(Ssm {
        heads,
        head_dim,
        groups,
        state: config.size(keys.state.0, Some(keys.state.1))?,
        taps: taps(config, keys.taps, 4)?,
        conv_bias: config.flag(keys.conv_bias, true)?,
        activation: config.activation(keys.activation, Activation::Silu)?,
        biases: (bias, bias),
        norm: Some(GatedNorm { eps, groups, before_gate: false }),
        least_step: 0.0,
        factor: 1.0,
        factors: [1.0; 5],
    })
}

/// Limits of steps are kept by some programs for prompts and not for what follows them; no published file has any.
fn steps_without_limit(config: &Config) -> Finished {
    let Some(limit) = config.get("time_step_limit") else { return Ok(()) };
    // Python writes infinity in a way that JSON does not have; readers make null, a text or a huge number of it.
    let is_open = |most: &Value| most.as_f64().is_none_or(|most| most >= f64::from(f32::MAX));
    match limit.as_array().map(Vec::as_slice) {
        Some([least, most]) if least.as_f64() == Some(0.0) && is_open(most) => Ok(()),
        _ => Err(ConfigError(format!("`time_step_limit` is {limit}, which is not supported"))),
    }
}

/// Layers of one norm and nothing behind their mixing.
fn only_mixing(decoder: &mut Decoder, mixing: Mixing) {
    for layer in &mut decoder.layers {
        layer.mixing = mixing;
        layer.feed = Feed::None;
        layer.norms = ONE_NORM;
    }
}

pub(super) fn mamba2(config: &Config, decoder: &mut Decoder) -> Finished {
    let inner = config.size("expand", Some(2))? * decoder.hidden_size;
    let ssm = ssm(config, &MAMBA2, Some(inner), decoder.eps)?;
    only_mixing(decoder, Mixing::Ssm(ssm));
    Ok(())
}

fn selective(config: &Config, decoder: &Decoder, jamba: bool) -> Result<Selective, ConfigError> {
    let key = |mamba: &'static str, of_jamba: &'static str| if jamba { of_jamba } else { mamba };
    let expanded = config.size(key("expand", "mamba_expand"), Some(2))?.saturating_mul(decoder.hidden_size);
    let inner = if jamba { expanded } else { config.size("intermediate_size", Some(expanded))? };
    let rank = auto(config, key("time_step_rank", "mamba_dt_rank"), decoder.hidden_size.div_ceil(16))?;
    Ok(Selective {
        inner,
        state: config.size(key("state_size", "mamba_d_state"), Some(16))?,
        rank,
        taps: taps(config, key("conv_kernel", "mamba_d_conv"), 4)?,
        conv_bias: config.flag(key("use_conv_bias", "mamba_conv_bias"), true)?,
        activation: config.activation("hidden_act", Activation::Silu)?,
        biases: config.flag(key("use_bias", "mamba_proj_bias"), false)?,
        norms: jamba.then_some(SelectiveNorms { eps: decoder.eps, weighted: true }),
    })
}

pub(super) fn mamba(config: &Config, decoder: &mut Decoder) -> Finished {
    let of = selective(config, decoder, false)?;
    only_mixing(decoder, Mixing::Selective(of));
    Ok(())
}

pub(super) fn falcon_mamba(config: &Config, decoder: &mut Decoder) -> Finished {
    let eps = config.number("mixer_rms_eps", 1e-6)?;
    let norms = Some(SelectiveNorms { eps, weighted: false });
    let of = Selective { norms, ..selective(config, decoder, false)? };
    only_mixing(decoder, Mixing::Selective(of));
    Ok(())
}

/// Every n-th layer, from a first one on.
fn period(
    config: &Config,
    (period, offset): (&str, &str),
    otherwise: (usize, usize),
) -> Result<(usize, usize), ConfigError> {
    let pair = (config.size(period, Some(otherwise.0))?, config.count(offset, otherwise.1)?);
    match pair.1 < pair.0 {
        true => Ok(pair),
        false => {
            Err(ConfigError(format!("`{offset}` is {}, and there are {} layers in a period", pair.1, pair.0)))
        }
    }
}

pub(super) fn jamba(config: &Config, decoder: &mut Decoder) -> Finished {
    let of = Mixing::Selective(selective(config, decoder, true)?);
    let attends = period(config, ("attn_layer_period", "attn_layer_offset"), (8, 4))?;
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        if number % attends.0 != attends.1 {
            layer.mixing = of;
        }
    }
    let (inner, activation) = sparse::dense(decoder);
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 16);
    let of = sparse::experts(config, count, (PER_TOKEN, 2), inner, activation, sparse::SOFTMAX)?;
    let chooses = period(config, ("expert_layer_period", "expert_layer_offset"), (2, 1))?;
    // One expert is none: such layers are plain, and their files say so.
    give(decoder, of, |number| of.count > 1 && number % chooses.0 == chooses.1);
    Ok(())
}

pub(super) fn granite_hybrid(config: &Config, decoder: &mut Decoder) -> Finished {
    let layers = decoder.layers.len();
    let inner = config.size("mamba_expand", Some(2))? * decoder.hidden_size;
    let ssm = ssm(config, &HYBRID, Some(inner), decoder.eps)?;
    let key = if config.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let kinds = kinds(config, key, layers, |_| "linear_attention")?;
    if config.get("position_embedding_type").and_then(Value::as_str) != Some("rope") {
        for layer in &mut decoder.layers {
            if let Mixing::Heads(_, rope) = &mut layer.mixing {
                *rope = None;
            }
        }
    }
    mix(decoder, key, &kinds, ("linear_attention", Mixing::Ssm(ssm)))?;
    let (inner, activation) = sparse::dense(decoder);
    let shared = config.size("shared_intermediate_size", Some(1024))?;
    if config.count("num_local_experts", 8)? == 0 {
        for layer in &mut decoder.layers {
            layer.feed = Feed::Mlp(MlpKind::gated(shared, activation));
        }
        return Ok(());
    }
    let router = Router { scoring: Scoring::SoftmaxOfChosen, ..sparse::SOFTMAX };
    let of = sparse::experts(config, (&["num_local_experts"], 8), (PER_TOKEN, 2), inner, activation, router)?;
    give(
        decoder,
        Experts { shared: Some(Shared { inner: shared, gated: false, biases: false }), ..of },
        |_| true,
    );
    Ok(())
}

pub(super) fn bamba(config: &Config, decoder: &mut Decoder) -> Finished {
    let inner = config.size("mamba_expand", Some(2))? * decoder.hidden_size;
    let ssm = ssm(config, &HYBRID, Some(inner), decoder.eps)?;
    let attends = sparse::listed(config, "attn_layer_indices")?.unwrap_or_default();
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        if !attends.contains(&number) {
            layer.mixing = Mixing::Ssm(ssm);
        }
    }
    Ok(())
}

/// Numbers of a list, all of them 1 where there is none.
fn factors<const N: usize>(config: &Config, key: &str) -> Result<[f32; N], ConfigError> {
    let Some(value) = config.get(key) else { return Ok([1.0; N]) };
    let wrong = || ConfigError(format!("`{key}` is no list of {N} numbers"));
    let list = value.as_array().ok_or_else(wrong)?;
    let list: Option<Vec<f32>> = list.iter().map(|value| Some(value.as_f64()? as f32)).collect();
    list.and_then(|list| list.try_into().ok()).ok_or_else(wrong)
}

pub(super) fn falcon_h1(config: &Config, decoder: &mut Decoder) -> Finished {
    let expanded = config.size("mamba_expand", Some(2))? * decoder.hidden_size;
    let inner = match config.is_null("mamba_d_ssm") {
        true => expanded,
        false => config.size("mamba_d_ssm", Some(1024))?,
    };
    let of = ssm(config, &HYBRID, Some(inner), decoder.eps)?;
    let norm = GatedNorm {
        eps: decoder.eps,
        groups: of.groups,
        before_gate: config.flag("mamba_norm_before_gate", true)?,
    };
    let of = Ssm {
        biases: (of.biases.0, config.flag("projectors_bias", false)?),
        norm: config.flag("mamba_rms_norm", false)?.then_some(norm),
        factor: config.number("ssm_in_multiplier", 1.0)?,
        factors: factors(config, "ssm_multipliers")?,
        ..of
    };
    let [of_gate, of_down] = factors(config, "mlp_multipliers")?;
    let beside = |heads| {
        Ok::<_, ConfigError>(Beside {
            heads,
            inwards: config.number("attention_in_multiplier", 1.0)?,
            outwards: config.number("attention_out_multiplier", 1.0)?,
            of_states: config.number("ssm_out_multiplier", 1.0)?,
        })
    };
    // Keys times a number give scores times that number.
    let of_keys = config.number("key_multiplier", 1.0)?;
    each_attention(decoder, |_, heads| heads.scale *= of_keys);
    for layer in &mut decoder.layers {
        if let Mixing::Heads(heads, rope) = layer.mixing {
            layer.mixing = Mixing::Both(beside(heads)?, rope, of);
        }
        if let Feed::Mlp(kind) = &mut layer.feed {
            kind.factors = (of_gate, of_down);
        }
    }
    Ok(())
}

/// Layers that are one thing each: a state space, attention, or a network.
pub(super) fn nemotron_h(config: &Config, decoder: &mut Decoder) -> Finished {
    config.refuse("sliding_window")?;
    config.refuse("use_bias")?;
    let of = ssm(config, &NEMOTRON, None, decoder.eps)?;
    let of = Ssm { least_step: config.number("time_step_min", 0.001)?, ..of };
    let key = ["layers_block_type", "layer_types"].into_iter().find(|key| config.get(key).is_some());
    let listed = key.and_then(|key| config.get(key)).and_then(Value::as_array).map(Vec::len);
    let pattern = config.get("hybrid_override_pattern").and_then(Value::as_str).unwrap_or_default();
    let kinds = match key {
        Some(key) => kinds(config, key, listed.unwrap_or_default(), |_| "")?,
        None => pattern.chars().map(kind_of).collect(),
    };
    // The list counts, whatever the file says of their number.
    let Some(layer) = decoder.layers.first().filter(|_| (1..=MOST_LAYERS).contains(&kinds.len())).cloned()
    else {
        return Err(ConfigError("`layers_block_type` names no layers, or too many".into()));
    };
    decoder.layers = vec![layer; kinds.len()];
    for (layer, kind) in decoder.layers.iter_mut().zip(&kinds) {
        layer.norms = TWO_NORMS;
        match kind.as_str() {
            "linear_attention" => (layer.mixing, layer.feed) = (Mixing::Ssm(of), Feed::None),
            "full_attention" => layer.feed = Feed::None,
            "mlp" => layer.mixing = Mixing::None,
            kind => return Err(unknown("layers_block_type", kind)),
        }
    }
    Ok(())
}

/// The kind that a letter of a pattern stands for.
fn kind_of(letter: char) -> String {
    match letter {
        'M' => "linear_attention".to_owned(),
        '*' => "full_attention".to_owned(),
        '-' => "mlp".to_owned(),
        'E' => "moe".to_owned(),
        other => other.to_string(),
    }
}

fn delta_layers(config: &Config, decoder: &mut Decoder) -> Finished {
    let layers = decoder.layers.len();
    let delta = Delta {
        key_heads: config.size("linear_num_key_heads", Some(16))?,
        value_heads: config.size("linear_num_value_heads", Some(32))?,
        key_dim: config.size("linear_key_head_dim", Some(128))?,
        value_dim: config.size("linear_value_head_dim", Some(128))?,
        taps: taps(config, "linear_conv_kernel_dim", 4)?,
        activation: config.activation("hidden_act", Activation::Silu)?,
        eps: decoder.eps,
    };
    let Delta { key_heads, value_heads, key_dim, .. } = delta;
    if !value_heads.is_multiple_of(key_heads) || !key_dim.is_multiple_of(32) {
        return Err(ConfigError(format!(
            "{key_heads} heads of {key_dim} features for {value_heads} heads of values: heads go into heads, and features are a multiple of 32"
        )));
    }
    let interval = config.size("full_attention_interval", Some(4))?;
    let kind = |at: usize| match (at + 1).is_multiple_of(interval) {
        true => "full_attention",
        false => "linear_attention",
    };
    let kinds = kinds(config, "layer_types", layers, kind)?;
    each_attention(decoder, |_, heads| heads.gated = true);
    mix(decoder, "layer_types", &kinds, ("linear_attention", Mixing::Delta(delta)))
}

fn delta_experts(config: &Config, decoder: &mut Decoder, usual: [usize; 4]) -> Finished {
    let [count, chosen, inner, shared] = usual;
    let (_, activation) = sparse::dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(inner))?;
    let shared = config.size("shared_expert_intermediate_size", Some(shared))?;
    let router = sparse::qwen_router(config, true)?;
    let of =
        sparse::experts(config, (&["num_experts"], count), (PER_TOKEN, chosen), inner, activation, router)?;
    let of = Experts { shared: Some(Shared { inner: shared, gated: true, biases: false }), ..of };
    let has = sparse::sparse_layers(config, decoder.layers.len())?;
    give(decoder, of, |number| has[number]);
    Ok(())
}

pub(super) fn qwen3_next(config: &Config, decoder: &mut Decoder) -> Finished {
    delta_layers(config, decoder)?;
    delta_experts(config, decoder, [512, 10, 512, 512])
}

pub(super) fn qwen3_5(config: &Config, decoder: &mut Decoder) -> Finished {
    delta_layers(config, decoder)
}

pub(super) fn qwen3_5_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    // Published files are those of a model that sees, which keep experts together; those of the text model alone do not.
    if config.is_wrapped() {
        decoder.layout = &layouts::QWEN3_5_MOE;
    }
    delta_layers(config, decoder)?;
    delta_experts(config, decoder, [256, 8, 512, 512])
}

pub(super) fn recurrent_gemma(config: &Config, decoder: &mut Decoder) -> Finished {
    let width = match config.is_null("lru_width") {
        true => decoder.hidden_size,
        false => config.size("lru_width", Some(decoder.hidden_size))?,
    };
    let heads = config.size("num_attention_heads", Some(10))?;
    if !width.is_multiple_of(heads) {
        return Err(ConfigError(format!("`lru_width` is {width}, in {heads} parts")));
    }
    let (inner, activation) = sparse::dense(decoder);
    let lru = Lru { width, heads, taps: taps(config, "conv1d_width", 4)?, activation };
    let window = config.size("attention_window_size", Some(2048))?;
    let pattern: Vec<&str> = match config.get("block_types").map(|value| (value, value.as_array())) {
        None => vec!["recurrent", "recurrent", "attention"],
        Some((_, Some(list))) if !list.is_empty() => list.iter().filter_map(Value::as_str).collect(),
        Some((value, _)) => return Err(ConfigError(format!("`block_types` is {value}"))),
    };
    each_attention(decoder, |_, heads| heads.window = Some(window));
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        match pattern.get(number % pattern.len().max(1)) {
            Some(&"attention") => {}
            Some(&"recurrent") => layer.mixing = Mixing::Lru(lru),
            kind => return Err(unknown("block_types", kind.copied().unwrap_or_default())),
        }
        layer.norms = LayerNorms { before_feed: Some("channel_pre_norm"), ..layer.norms };
        // Files count the features of both halves of a gated network.
        layer.feed = Feed::Mlp(MlpKind { inner: inner / 2, biases: true, ..MlpKind::gated(1, activation) });
    }
    decoder.head.soft_cap = Some(config.number("logits_soft_cap", 30.0)?);
    // The factor is kept in bf16 whatever the weights are.
    let root = (decoder.hidden_size as f32).sqrt();
    decoder.embedding.factor = Some(f32::from(half::bf16::from_f32(root)));
    Ok(())
}
