//! Families of experts whose choice is corrected by a stored number (DeepSeek V3 and those near it), and DeepSeek's latent attention.

use serde_json::Value;

use super::finish::Finished;
use super::sparse::{PER_TOKEN, SOFTMAX, by_kind, dense, experts, give, shared};
use super::{Decoder, Mixing, RopeSpec};
use crate::blocks::{
    Biases, Divisor, Experts, GroupScore, Groups, Latent, RopeScaling, Router, Scoring, Shared, YarnScaling,
};
use crate::config::RopeKeys;
use crate::{Config, ConfigError};

/// Sizes of latent attention where a file does not say them.
#[derive(Clone, Copy)]
struct Ranks {
    queries: usize,
    keys: usize,
    still: usize,
    turning: usize,
    value: usize,
}

const DEEPSEEK: Ranks = Ranks { queries: 1536, keys: 512, still: 128, turning: 64, value: 128 };

/// Latent attention in all layers.
fn latent(config: &Config, decoder: &mut Decoder, usual: Ranks, interleaved: bool) -> Finished {
    let q_rank = match config.is_null("q_lora_rank") {
        true => None,
        false => Some(config.size("q_lora_rank", Some(usual.queries))?),
    };
    let still = config.size("qk_nope_head_dim", Some(usual.still))?;
    let turning = config.size("qk_rope_head_dim", Some(usual.turning))?;
    let keys = RopeKeys::usual(10_000.0);
    let (settings, _) = config.rope_of(&keys, decoder.max_position_embeddings)?;
    let mut scale = ((still + turning) as f32).powf(-0.5);
    if let Some(parameters) = config.rope_parameters()?.filter(|_| settings.scaling != RopeScaling::None) {
        let number = |key: &str| parameters.get(key).and_then(Value::as_f64);
        if let Some(more) = number("mscale_all_dim").filter(|&more| more != 0.0) {
            let factor =
                number("factor").ok_or_else(|| ConfigError("rope parameters lack `factor`".into()))?;
            scale *= (YarnScaling::usual_attention_factor(factor, more) as f32).powi(2);
        }
    }
    decoder.ropes = vec![RopeSpec {
        name: "rope".into(),
        dims: turning,
        head_dim: turning,
        settings,
        interleaved,
        backwards: false,
    }];
    let kv_rank = config.size("kv_lora_rank", Some(usual.keys))?;
    let value = config.size("v_head_dim", Some(usual.value))?;
    for layer in &mut decoder.layers {
        if let Mixing::Heads(heads, _) = layer.mixing {
            let latent = Latent {
                heads: heads.heads,
                q_rank,
                kv_rank,
                still,
                turning,
                value,
                scale,
                biases: heads.biases != Biases::None,
                // Their norms have this number whatever the others have.
                eps: 1e-6,
            };
            layer.mixing = Mixing::Latent(latent, 0);
        }
    }
    Ok(())
}

pub(super) fn deepseek_v2(config: &Config, decoder: &mut Decoder) -> Finished {
    latent(config, decoder, DEEPSEEK, true)?;
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(1407))?;
    let groups = match config.get("topk_method").map(|method| method.as_str().unwrap_or_default()) {
        None | Some("greedy") => None,
        Some("group_limited_greedy") => Some(Groups {
            count: config.size("n_group", None)?,
            chosen: config.size("topk_group", None)?,
            by: GroupScore::Best,
        }),
        Some(other) => {
            return Err(ConfigError(format!("`topk_method` is {other:?}, which is not supported")));
        }
    };
    let factor = config.number("routed_scaling_factor", 1.0)?;
    let router = Router { groups, factor, ..SOFTMAX };
    if config.get("num_experts_per_tok").is_none() {
        return Err(ConfigError("`num_experts_per_tok` is missing".into()));
    }
    let of = experts(
        config,
        (&["n_routed_experts", "num_experts"], 64),
        (PER_TOKEN, 1),
        inner,
        activation,
        router,
    )?;
    let biases = config.flag("mlp_bias", false)?;
    let shared = shared(config, ("n_shared_experts", 2), inner)?.map(|shared| Shared { biases, ..shared });
    let of = Experts { shared, ..of };
    let first = config.count("first_k_dense_replace", 0)?;
    give(decoder, of, |number| number >= first);
    Ok(())
}

/// Experts of a family whose choice is corrected, where a file does not say them.
struct Corrected {
    /// Features inside each.
    inner: usize,
    /// How many there are, by which keys.
    count: (&'static [&'static str], usize),
    /// How many a token goes to.
    chosen: usize,
    /// Groups, and how many of them are chosen.
    groups: (usize, usize),
    /// Whether weights are divided by their sum.
    normalised: bool,
    /// What weights are multiplied by.
    factor: f32,
    /// How many all tokens go through, by which key.
    shared: (&'static str, usize),
}

const V3: Corrected = Corrected {
    inner: 2048,
    count: (&["n_routed_experts", "num_local_experts"], 256),
    chosen: 8,
    groups: (8, 4),
    normalised: true,
    factor: 2.5,
    shared: ("n_shared_experts", 1),
};

/// GLM 4.5, and what is near it.
const GLM: Corrected = Corrected { inner: 1408, count: (V3.count.0, 128), groups: (1, 1), factor: 1.0, ..V3 };

/// Sigmoids, a correction of the choice, groups by their two best.
fn corrected(
    config: &Config,
    decoder: &mut Decoder,
    usual: &Corrected,
    has: impl Fn(usize) -> bool,
) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(usual.inner))?;
    let groups = Groups {
        count: config.size("n_group", Some(usual.groups.0))?,
        chosen: config.size("topk_group", Some(usual.groups.1))?,
        by: GroupScore::BestTwo,
    };
    let normalised = config.flag("norm_topk_prob", usual.normalised)?;
    let router = Router {
        scoring: Scoring::Sigmoid,
        bias: false,
        correction: true,
        groups: Some(groups).filter(|groups| groups.count > 1),
        divisor: normalised.then_some(Divisor::Sum(1e-20)),
        factor: config.number("routed_scaling_factor", usual.factor)?,
    };
    let of = experts(config, usual.count, (PER_TOKEN, usual.chosen), inner, activation, router)?;
    let of = Experts { shared: shared(config, usual.shared, inner)?, ..of };
    give(decoder, of, has);
    Ok(())
}

/// Layers of experts behind so many others.
fn behind(config: &Config, usual: usize) -> Result<impl Fn(usize) -> bool + use<>, ConfigError> {
    let first = config.count("first_k_dense_replace", usual)?;
    Ok(move |number| number >= first)
}

pub(super) fn deepseek_v3(config: &Config, decoder: &mut Decoder) -> Finished {
    latent(config, decoder, DEEPSEEK, config.flag("rope_interleave", true)?)?;
    corrected(config, decoder, &V3, behind(config, 3)?)
}

/// DeepSeek V3's attention without experts.
pub(super) fn youtu(config: &Config, decoder: &mut Decoder) -> Finished {
    latent(config, decoder, DEEPSEEK, config.flag("rope_interleave", true)?)
}

/// The same in halves, with rows, what layers add and logits that are scaled.
pub(super) fn minicpm3(config: &Config, decoder: &mut Decoder) -> Finished {
    let heads = decoder.layers.iter().find_map(|layer| layer.mixing.heads()).map_or(1, |heads| heads.heads);
    let value = (decoder.hidden_size / heads.max(1)).max(1);
    latent(config, decoder, Ranks { queries: 768, keys: 256, still: 64, turning: 32, value }, false)?;
    let depth = (decoder.layers.len() as f32).sqrt();
    if !config.is_null("scale_depth") {
        let scale = config.number("scale_depth", 1.4)?;
        decoder.layers.iter_mut().for_each(|layer| layer.factor = scale / depth);
    }
    if !config.is_null("dim_model_base") {
        decoder.head.factor = config.size("dim_model_base", Some(256))? as f32 / decoder.hidden_size as f32;
    }
    Ok(())
}

pub(super) fn glm4_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    corrected(config, decoder, &GLM, behind(config, 1)?)
}

pub(super) fn glm4_moe_lite(config: &Config, decoder: &mut Decoder) -> Finished {
    let ranks = Ranks { queries: 768, still: 192, value: 256, ..DEEPSEEK };
    let keys = RopeKeys { partial: Some(("partial_rotary_factor", 1.0)), ..RopeKeys::usual(10_000.0) };
    let (_, part) = config.rope_of(&keys, decoder.max_position_embeddings)?;
    if part != 1.0 {
        return Err(ConfigError(format!("`partial_rotary_factor` is {part}, which is not supported")));
    }
    latent(config, decoder, ranks, config.flag("rope_interleave", true)?)?;
    let usual = Corrected { inner: 1536, count: (V3.count.0, 64), chosen: 4, factor: 1.8, ..GLM };
    let has = by_kind(config, decoder.layers.len(), 1)?;
    corrected(config, decoder, &usual, |number| has[number])
}

pub(super) fn dots1(config: &Config, decoder: &mut Decoder) -> Finished {
    for key in ["n_routed_experts", "n_shared_experts", PER_TOKEN] {
        if config.get(key).is_none() {
            return Err(ConfigError(format!("`{key}` is missing")));
        }
    }
    corrected(config, decoder, &Corrected { normalised: false, ..GLM }, behind(config, 0)?)
}

pub(super) fn solar_open(config: &Config, decoder: &mut Decoder) -> Finished {
    corrected(config, decoder, &Corrected { inner: 1280, ..GLM }, |_| true)
}

pub(super) fn exaone_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let usual = Corrected {
        inner: 1024,
        count: (&["num_experts"], 64),
        factor: 2.5,
        shared: ("num_shared_experts", 1),
        ..GLM
    };
    let first = config.count("first_k_dense_replace", 1)?;
    let has = by_kind(config, decoder.layers.len(), first)?;
    corrected(config, decoder, &usual, |number| has[number])
}

/// Trinity: queries of layers that see all do not turn.
pub(super) fn afmoe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(1408))?;
    let router = Router {
        scoring: Scoring::Sigmoid,
        correction: true,
        divisor: Some(Divisor::Sum(1e-20)),
        factor: config.number("route_scale", 1.0)?,
        ..SOFTMAX
    };
    let of = experts(config, (&["num_experts"], 64), (PER_TOKEN, 6), inner, activation, router)?;
    let of = Experts { shared: shared(config, ("num_shared_experts", 2), inner)?, ..of };
    let dense = config.count("num_dense_layers", 1)?;
    give(decoder, of, |number| number >= dense);
    if config.flag("mup_enabled", false)? {
        decoder.embedding.factor = Some((decoder.hidden_size as f32).sqrt());
    }
    for layer in &mut decoder.layers {
        if let Mixing::Heads(heads, rope) = &mut layer.mixing {
            heads.gated = true;
            *rope = rope.filter(|_| heads.window.is_some());
        }
    }
    Ok(())
}
