//! Families of experts: which layers have them, how their routers choose, and DeepSeek's latent attention.

use serde_json::Value;

use super::finish::{Finished, each_attention, only_full};
use super::read::listed_still;
use super::{Decoder, Feed, Mixing, RopeSpec};
use crate::blocks::{
    Activation, Biases, Experts, GroupScore, Groups, Latent, RopeScaling, Router, Scores, Scoring, Shared,
    Warmth, YarnScaling,
};
use crate::config::RopeKeys;
use crate::{Config, ConfigError};

/// Weights that are shares of the softmax of all.
pub(super) const SOFTMAX: Router = Router {
    scoring: Scoring::Softmax,
    bias: false,
    correction: false,
    groups: None,
    normalised: None,
    factor: 1.0,
};

/// The same, divided by the sum of those that were chosen.
const NORMALISED: Router = Router { normalised: Some(0.0), ..SOFTMAX };

/// Sizes of experts, checked.
pub(super) fn experts(
    config: &Config,
    (count_keys, count): (&[&str], usize),
    chosen: usize,
    inner: usize,
    activation: Activation,
    router: Router,
) -> Result<Experts, ConfigError> {
    let key = count_keys.iter().find(|key| config.get(key).is_some()).or(count_keys.first());
    let key = key.copied().unwrap_or_default();
    let count = config.size(key, Some(count))?;
    let chosen = config.size("num_experts_per_tok", Some(chosen))?;
    if chosen > count {
        return Err(ConfigError(format!("`num_experts_per_tok` is {chosen}, and there are {count} experts")));
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
    give(decoder, experts(config, count, 2, inner, activation, NORMALISED)?, |_| true);
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
    let of = experts(config, (&["num_local_experts", "num_experts"], 16), 2, inner, activation, router)?;
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
    let of = experts(config, (&["num_experts"], 60), 4, inner, activation, qwen_router(config, false)?)?;
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
    let of = experts(config, count, 8, inner, activation, qwen_router(config, false)?)?;
    let has = sparse_layers(config, decoder.layers.len())?;
    give(decoder, of, |number| has[number]);
    Ok(())
}

pub(super) fn olmoe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let count: (&[&str], usize) = (&["num_experts", "num_local_experts"], 64);
    let of = experts(config, count, 8, inner, activation, qwen_router(config, false)?)?;
    give(decoder, of, |_| true);
    Ok(())
}

pub(super) fn granite_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::SoftmaxOfChosen, ..SOFTMAX };
    let of = experts(config, (&["num_local_experts"], 8), 2, inner, activation, router)?;
    give(decoder, of, |_| true);
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
    let of = experts(config, count, 4, inner, Activation::QuickGelu, router)?;
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

/// Latent attention in all layers.
fn latent(config: &Config, decoder: &mut Decoder, q_rank: Option<usize>, interleaved: bool) -> Finished {
    let q_rank = match config.is_null("q_lora_rank") {
        true => None,
        false => Some(config.size("q_lora_rank", q_rank)?),
    };
    let still = config.size("qk_nope_head_dim", Some(128))?;
    let turning = config.size("qk_rope_head_dim", Some(64))?;
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
        name: "rope",
        dims: turning,
        head_dim: turning,
        settings,
        interleaved,
        backwards: false,
    }];
    let (kv_rank, value) = (config.size("kv_lora_rank", Some(512))?, config.size("v_head_dim", Some(128))?);
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

fn shared(config: &Config, usual: usize, inner: usize) -> Result<Option<Shared>, ConfigError> {
    let count = config.count("n_shared_experts", usual)?;
    Ok((count > 0).then_some(Shared { inner: inner * count, gated: false, biases: false }))
}

pub(super) fn deepseek_v2(config: &Config, decoder: &mut Decoder) -> Finished {
    latent(config, decoder, Some(1536), true)?;
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
    let of = experts(config, (&["n_routed_experts", "num_experts"], 64), 1, inner, activation, router)?;
    let biases = config.flag("mlp_bias", false)?;
    let shared = shared(config, 2, inner)?.map(|shared| Shared { biases, ..shared });
    let of = Experts { shared, ..of };
    let first = config.count("first_k_dense_replace", 0)?;
    give(decoder, of, |number| number >= first);
    Ok(())
}

/// Sigmoids, a correction of the choice, groups by their two best.
fn corrected(config: &Config, groups: (usize, usize), factor: f32) -> Result<Router, ConfigError> {
    let groups = Groups {
        count: config.size("n_group", Some(groups.0))?,
        chosen: config.size("topk_group", Some(groups.1))?,
        by: GroupScore::BestTwo,
    };
    Ok(Router {
        scoring: Scoring::Sigmoid,
        bias: false,
        correction: true,
        groups: Some(groups).filter(|groups| groups.count > 1),
        normalised: config.flag("norm_topk_prob", true)?.then_some(1e-20),
        factor: config.number("routed_scaling_factor", factor)?,
    })
}

pub(super) fn deepseek_v3(config: &Config, decoder: &mut Decoder) -> Finished {
    latent(config, decoder, Some(1536), config.flag("rope_interleave", true)?)?;
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(2048))?;
    let router = corrected(config, (8, 4), 2.5)?;
    let count: (&[&str], usize) = (&["n_routed_experts", "num_local_experts"], 256);
    let of = experts(config, count, 8, inner, activation, router)?;
    let of = Experts { shared: shared(config, 1, inner)?, ..of };
    let first = config.count("first_k_dense_replace", 3)?;
    give(decoder, of, |number| number >= first);
    Ok(())
}

pub(super) fn glm4_moe(config: &Config, decoder: &mut Decoder) -> Finished {
    let (_, activation) = dense(decoder);
    let inner = config.size("moe_intermediate_size", Some(1408))?;
    let router = corrected(config, (1, 1), 1.0)?;
    let count: (&[&str], usize) = (&["n_routed_experts", "num_local_experts"], 128);
    let of = experts(config, count, 8, inner, activation, router)?;
    let of = Experts { shared: shared(config, 1, inner)?, ..of };
    let first = config.count("first_k_dense_replace", 1)?;
    give(decoder, of, |number| number >= first);
    Ok(())
}

/// Chunks of positions where queries turn; elsewhere queries that grow with their position.
pub(super) fn llama4(config: &Config, decoder: &mut Decoder) -> Finished {
    let layers = decoder.layers.len();
    let (inner, activation) = dense(decoder);
    let router = Router { scoring: Scoring::SigmoidOfChosen, ..SOFTMAX };
    let of = experts(config, (&["num_local_experts"], 16), 1, inner, activation, router)?;
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
