//! Families of experts: which layers have them, and how their routers choose.

use serde_json::Value;

use super::finish::{Finished, each_attention, gptj, granite_swa, hunyuan, only_full};
use super::read::{listed_still, size};
use super::{Decoder, Feed};
use crate::blocks::{
    Activation, Divisor, Experts, GroupScore, Groups, RopeScaling, Router, Scores, Scoring, Shared, Warmth,
    YarnScaling,
};
use crate::{Config, ConfigError};

/// Weights that are shares of the softmax of all.
pub(super) const SOFTMAX: Router = Router {
    scoring: Scoring::Softmax,
    bias: false,
    correction: false,
    groups: None,
    divisor: None,
    factor: 1.0,
};

/// The same, divided by the sum of those that were chosen.
pub(super) const NORMALISED: Router = Router { divisor: Some(Divisor::Sum(0.0)), ..SOFTMAX };

/// What says how many experts a token goes to, in most files.
pub(super) const PER_TOKEN: &str = "num_experts_per_tok";

/// Sizes of experts, checked.
pub(super) fn experts(
    config: &Config,
    count: (&[&str], usize),
    chosen: (&str, usize),
    inner: usize,
    activation: Activation,
    router: Router,
) -> Result<Experts, ConfigError> {
    let count = size(config, count.0, Some(count.1))?;
    let (key, chosen) = (chosen.0, config.size(chosen.0, Some(chosen.1))?);
    if chosen > count {
        return Err(ConfigError(format!("`{key}` is {chosen}, and there are {count} experts")));
    }
    if let Some(Groups { count: groups, chosen: best, by }) = router.groups {
        let size = count / groups;
        let fits = count.is_multiple_of(groups) && best <= groups && chosen <= best * size;
        if !fits || by == GroupScore::BestTwo && size < 2 {
            return Err(ConfigError(format!(
                "{count} experts in {groups} groups, of which {best} give {chosen}, cannot be"
            )));
        }
    }
    Ok(Experts {
        count,
        chosen,
        inner,
        activation,
        limit: None,
        biases: false,
        router,
        weighs_inputs: false,
        shared: None,
    })
}

/// What the row has read of the feed-forward networks.
pub(super) fn dense(decoder: &Decoder) -> (usize, Activation) {
    match decoder.layers.first().map(|layer| layer.feed) {
        Some(Feed::Mlp(kind)) => (kind.inner, kind.activation),
        _ => (1, Activation::Silu),
    }
}

pub(super) fn give(decoder: &mut Decoder, experts: Experts, has: impl Fn(usize) -> bool) {
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        if has(number) {
            layer.feed = Feed::Experts(experts);
        }
    }
}

pub(super) fn mixtral(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let count: (&[&str], usize) = (&["num_local_experts", "num_experts"], 8);
    give(decoder, experts(config, count, (PER_TOKEN, 2), inner, activation, NORMALISED)?, |_| true);
    Ok(())
}

pub(super) fn phimoe(config: &Config, decoder: &mut Decoder) -> Finished {
    let part = match config.get("router_jitter_noise").map(|value| (value, value.as_f64())) {
        None => 0.01,
        Some((_, Some(part))) if (0.0..=1.0).contains(&part) => part as f32,
        Some((value, _)) => return Err(ConfigError(format!("`router_jitter_noise` is {value}"))),
    };
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::Mixer(part), ..SOFTMAX };
    let of = experts(
        config,
        (&["num_local_experts", "num_experts"], 16),
        (PER_TOKEN, 2),
        inner,
        activation,
        router,
    )?;
    if of.chosen != 2 {
        return Err(ConfigError(format!("`num_experts_per_tok` is {}, where this family has 2", of.chosen)));
    }
    give(decoder, of, |_| true);
    // Scores are sharpened by numbers of their own, which published files have the same of for short texts and long ones.
    let parameters = config.rope_parameters()?;
    let number = |key: &str| parameters.and_then(|all| all.get(key)).and_then(Value::as_f64);
    for rope in &mut decoder.ropes {
        match (&mut rope.settings.scaling, number("short_mscale"), number("long_mscale")) {
            (RopeScaling::None, ..) => {}
            (RopeScaling::Long(scaling), Some(short), Some(long)) if short == long && short > 0.0 => {
                scaling.attention_factor = short;
            }
            _ => {
                return Err(ConfigError(
                    "rope parameters other than longrope with one `short_mscale` and `long_mscale` are not supported"
                        .into(),
                ));
            }
        }
    }
    Ok(())
}

/// So many of them beside, as one.
pub(super) fn shared(
    config: &Config,
    (key, usual): (&str, usize),
    inner: usize,
) -> Result<Option<Shared>, ConfigError> {
    let count = config.count(key, usual)?;
    Ok((count > 0).then_some(Shared { inner: inner * count, gated: false, biases: false }))
}

/// Layers of experts by `mlp_layer_types`, or else all but so many at the beginning.
pub(super) fn by_kind(config: &Config, layers: usize, first: usize) -> Result<Vec<bool>, ConfigError> {
    let key = "mlp_layer_types";
    let Some(value) = config.get(key) else { return Ok((0..layers).map(|layer| layer >= first).collect()) };
    let wrong = || ConfigError(format!("`{key}` does not name the kinds of {layers} layers"));
    let list = value.as_array().filter(|list| list.len() == layers).ok_or_else(wrong)?;
    let kinds = list.iter().map(|kind| match kind.as_str() {
        Some("sparse") => Ok(true),
        Some("dense") => Ok(false),
        _ => Err(ConfigError(format!("`{key}` names {kind}; known are dense and sparse"))),
    });
    kinds.collect()
}

/// Layers of experts among others: `decoder_sparse_step` and `mlp_only_layers`.
pub(super) fn sparse_layers(config: &Config, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let step = config.size("decoder_sparse_step", Some(1))?;
    let only = listed(config, "mlp_only_layers")?.unwrap_or_default();
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(step) && !only.contains(&layer)).collect())
}

pub(super) fn listed(config: &Config, key: &str) -> Result<Option<Vec<usize>>, ConfigError> {
    let Some(value) = config.get(key) else { return Ok(None) };
    let wrong = || ConfigError(format!("`{key}` is no list of layers"));
    let list = value.as_array().ok_or_else(wrong)?;
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    list.iter().map(|value| number(value).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
}

pub(super) fn qwen_router(config: &Config, usual: bool) -> Result<Router, ConfigError> {
    Ok(if config.flag("norm_topk_prob", usual)? { NORMALISED } else { SOFTMAX })
}

pub(super) fn qwen2_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    only_full(config, decoder)?;
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(1408))?;
    let of = experts(
        config,
        (&["num_experts"], 60),
        (PER_TOKEN, 4),
        inner,
        activation,
        qwen_router(config, false)?,
    )?;
    let shared = config.size("shared_expert_intermediate_size", Some(5632))?;
    let of = Experts { shared: Some(Shared { inner: shared, gated: true, biases: false }), ..of };
    let has = sparse_layers(config, decoder.layers.len())?;
    give(decoder, of, |number| has[number]);
    Ok(())
}

pub(super) fn qwen3_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(768))?;
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 128);
    let of = experts(config, count, (PER_TOKEN, 8), inner, activation, qwen_router(config, false)?)?;
    let has = sparse_layers(config, decoder.layers.len())?;
    give(decoder, of, |number| has[number]);
    Ok(())
}

pub(super) fn olmoe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 64);
    let of = experts(config, count, (PER_TOKEN, 8), inner, activation, qwen_router(config, false)?)?;
    give(decoder, of, |_| true);
    Ok(())
}

pub(super) fn granite_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::SoftmaxOfChosen, ..SOFTMAX };
    let of = experts(config, (&["num_local_experts"], 8), (PER_TOKEN, 2), inner, activation, router)?;
    give(decoder, of, |_| true);
    Ok(())
}

/// The same beside a network that all tokens go through.
pub(super) fn granite_shared(config: &Config, decoder: &mut Decoder) -> Finished {
    granite_moe(config, decoder)?;
    let inner = config.count("shared_intermediate_size", 0)?;
    let shared = (inner > 0).then_some(Shared { inner, gated: false, biases: false });
    for layer in &mut decoder.layers {
        if let Feed::Experts(of) = &mut layer.feed {
            of.shared = shared;
        }
    }
    Ok(())
}

pub(super) fn granite_moe_swa(config: &Config, decoder: &mut Decoder) -> Finished {
    granite_shared(config, decoder)?;
    granite_swa(config, decoder)
}

pub(super) fn ernie_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(1536))?;
    let divisor = Some(Divisor::AtLeast(config.number("moe_norm_min", 1e-12)?));
    let router = Router { correction: true, divisor, ..SOFTMAX };
    let of = experts(config, (&["moe_num_experts"], 64), ("moe_k", 6), inner, activation, router)?;
    let biases = config.flag("use_bias", false)?;
    let shared = shared(config, ("moe_num_shared_experts", 2), inner)?;
    let of = Experts { shared: shared.map(|shared| Shared { biases, ..shared }), ..of };
    let interval = config.size("moe_layer_interval", Some(1))?;
    let first = config.count("moe_layer_start_index", 1)?;
    let last = match config.get("moe_layer_end_index").and_then(Value::as_i64) {
        Some(-1) => usize::MAX,
        _ => config.count("moe_layer_end_index", usize::MAX)?,
    };
    let has = |layer: usize| (layer + 1).is_multiple_of(interval) && (first..=last).contains(&layer);
    give(decoder, of, has);
    Ok(())
}

/// Layers may send tokens to different numbers of experts.
pub(super) fn hunyuan_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    hunyuan(config, decoder)?;
    let (inner, activation) = dense(decoder);
    let layers = decoder.layers.len();
    let count: (&[&str], usize) = (&["num_experts"], 1);
    let key = "moe_topk";
    let of = |config: &Config| experts(config, count, (key, 1), inner, activation, NORMALISED);
    let all = match config.get(key) {
        Some(Value::Array(list)) if list.len() == layers => list
            .iter()
            .map(|chosen| {
                let mut config = config.clone();
                config.set(key, chosen.clone());
                of(&config)
            })
            .collect::<Result<Vec<_>, _>>()?,
        Some(Value::Array(list)) => {
            return Err(ConfigError(format!("`{key}` has {} numbers for {layers} layers", list.len())));
        }
        _ => vec![of(config)?; layers],
    };
    let shared = Some(Shared { inner, gated: false, biases: false });
    for (layer, of) in decoder.layers.iter_mut().zip(all) {
        layer.feed = Feed::Experts(Experts { shared, ..of });
    }
    Ok(())
}

pub(super) fn minimax_m2(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::Sigmoid, correction: true, ..NORMALISED };
    let count: (&[&str], usize) = (&["num_local_experts", "num_experts"], 256);
    give(decoder, experts(config, count, (PER_TOKEN, 8), inner, activation, router)?, |_| true);
    // Published files say the part of a head that turns by its features.
    if config.get("rotary_dim").is_some() {
        gptj(config, decoder)?;
    }
    Ok(())
}

pub(super) fn flex_olmo(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 7);
    let of = experts(config, count, (PER_TOKEN, 5), inner, activation, qwen_router(config, false)?)?;
    give(decoder, of, |_| true);
    Ok(())
}

pub(super) fn mellum(config: &Config, decoder: &mut Decoder) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(896))?;
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 64);
    let of = experts(config, count, (PER_TOKEN, 8), inner, activation, qwen_router(config, true)?)?;
    let has = by_kind(config, decoder.layers.len(), 0)?;
    give(decoder, of, |number| has[number]);
    Ok(())
}

pub(super) fn gpt_oss(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, _) = dense(decoder);
    let alpha = config.number("swiglu_alpha", 1.702)?;
    if alpha != 1.702 {
        return Err(ConfigError(format!("`swiglu_alpha` is {alpha}; only 1.702 is supported")));
    }
    let router = Router { scoring: Scoring::SoftmaxOfChosen, bias: true, ..SOFTMAX };
    let count: (&[&str], usize) = (&["num_local_experts", "num_experts"], 128);
    let of = experts(config, count, (PER_TOKEN, 4), inner, Activation::QuickGelu, router)?;
    let limit = Some(config.number("swiglu_limit", 7.0)?);
    give(decoder, Experts { limit, biases: true, ..of }, |_| true);
    each_attention(decoder, |_, heads| heads.scores = Scores { sinks: true, ..Scores::PLAIN });
    if config.rope_parameters()?.is_none() {
        for rope in &mut decoder.ropes {
            rope.settings.scaling = RopeScaling::Yarn(YarnScaling {
                factor: 32.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                truncate: false,
                original_context: 4096,
                attention_factor: YarnScaling::usual_attention_factor(32.0, 1.0),
            });
        }
    }
    Ok(())
}

/// Chunks of positions where queries turn; elsewhere queries that grow with their position.
pub(super) fn llama4(config: &Config, decoder: &mut Decoder) -> Finished {
    let layers = decoder.layers.len();
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::SigmoidOfChosen, ..SOFTMAX };
    let of = experts(config, (&["num_local_experts"], 16), (PER_TOKEN, 1), inner, activation, router)?;
    let of =
        Experts { weighs_inputs: true, shared: Some(Shared { inner, gated: false, biases: false }), ..of };
    let wide = config.size("intermediate_size_mlp", Some(16_384))?;
    let step = config.size("interleave_moe_layer_step", Some(1))?;
    let sparse = listed(config, "moe_layers")?;
    let has = |number: usize| match &sparse {
        Some(list) => list.contains(&number),
        None => (number + 1).is_multiple_of(step),
    };
    for layer in &mut decoder.layers {
        if let Feed::Mlp(kind) = &mut layer.feed {
            kind.inner = wide;
        }
    }
    give(decoder, of, has);
    let still = listed_still(config, layers)?;
    let chunks = chunked(config, &still)?;
    let chunk = match config.is_null("attention_chunk_size") {
        true => None,
        false => Some(config.size("attention_chunk_size", Some(8192))?),
    };
    if chunk.is_none() && chunks.contains(&true) {
        return Err(ConfigError("`attention_chunk_size` is null, and there are layers in chunks".into()));
    }
    let warms = config.flag("attn_temperature_tuning", true)?;
    let warmth = Warmth {
        amount: config.number("attn_scale", 0.1)?,
        step: config.size("floor_scale", Some(8192))? as f32,
        ahead: 1.0,
    };
    let longest = decoder.max_position_embeddings;
    each_attention(decoder, |number, heads| {
        if still[number] {
            heads.norms = None;
            heads.warmth = warms.then_some(warmth);
        }
        // A chunk as long as the context is none.
        let chunk = chunk.filter(|&chunk| chunks[number] && chunk < longest);
        heads.scores = Scores { chunk, ..Scores::PLAIN };
    });
    Ok(())
}

/// Which layers see only their chunk: those that turn, unless `layer_types` says otherwise.
fn chunked(config: &Config, still: &[bool]) -> Result<Vec<bool>, ConfigError> {
    let Some(value) = config.get("layer_types") else {
        return Ok(still.iter().map(|still| !still).collect());
    };
    let list = value.as_array().filter(|list| list.len() == still.len());
    let list =
        list.ok_or_else(|| ConfigError(format!("`layer_types` does not name {} layers", still.len())))?;
    let kinds = list.iter().map(|kind| match kind.as_str() {
        Some("chunked_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(ConfigError(format!("`layer_types` names {kind}, which is not supported"))),
    });
    kinds.collect()
}
