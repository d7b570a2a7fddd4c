//! Which keys of a file's architecture are honoured, which change nothing, and which would be passed over in silence.
//!
//! A key that is known to change what the model computes, and that nothing here reads, is an error, unless it holds the
//! value that changes nothing. A key that nobody here knows is told.

use pteron_gguf::{Metadata, Value};

use super::names::Family;
use crate::left_out::shown as shown_name;

/// Keys that `configuration` reads in files of every family.
const READ: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
];

/// Keys that say what is said elsewhere, or what these families have no use for.
const IDLE: &[&str] = &[
    "attention.layer_norm_epsilon",
    "rope.scaling.finetuned",
    // The size of the vocabulary is that of the embedding.
    "vocab_size",
    // How the file was made.
    "tensor_data_layout",
];

/// Keys of experts beside their number: they mean nothing where there are none.
const OF_EXPERTS: [&str; 4] = ["expert_", "experts_", "moe_", "interleave_moe_"];

/// Those that change what is computed where there are some, each with the numbers that change nothing.
const MEANINGFUL_TO_EXPERTS: &[(&str, &[f64])] = &[
    ("expert_gating_func", &[0.0, 1.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("expert_group_used_count", &[0.0, 1.0]),
    ("expert_shared_count", &[0.0]),
    ("expert_shared_feed_forward_length", &[0.0]),
    ("expert_weights_scale", &[0.0, 1.0]),
    ("interleave_moe_layer_step", &[0.0, 1.0]),
    ("leading_dense_block_count", &[0.0]),
    ("moe_every_n_layers", &[0.0, 1.0]),
];

/// Keys that change what is computed, each with the numbers that change nothing; truth values count as 0 and 1.
const MEANINGFUL: &[(&str, &[f64])] = &[
    ("activation_sparsity_scale", &[0.0]),
    ("attention.causal", &[1.0]),
    ("attention.clamp_kqv", &[0.0]),
    ("attention.key_length_mla", &[0.0]),
    ("attention.key_length_swa", &[0.0]),
    ("attention.kv_lora_rank", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.output_scale", &[0.0, 1.0]),
    ("attention.q_lora_rank", &[0.0]),
    ("attention.scale", &[0.0]),
    ("attention.shared_kv_layers", &[0.0]),
    ("attention.sliding_window", &[0.0]),
    ("attention.sliding_window_pattern", &[0.0]),
    ("attention.temperature_scale", &[0.0]),
    ("attention.value_length_mla", &[0.0]),
    ("attention.value_length_swa", &[0.0]),
    ("attention.value_scale", &[0.0, 1.0]),
    ("attn_logit_softcapping", &[0.0]),
    ("classifier.output_labels", &[]),
    ("embedding_length_per_layer_input", &[0.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("expert_count", &[0.0]),
    ("final_logit_softcapping", &[0.0]),
    ("full_attention_interval", &[0.0, 1.0]),
    ("hidden_activation", &[]),
    ("logit_scale", &[0.0, 1.0]),
    ("nextn_predict_layers", &[0.0]),
    ("num_loops", &[0.0, 1.0]),
    ("pooling_type", &[0.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("rope.dimension_count_swa", &[0.0]),
    ("rope.dimension_sections", &[0.0]),
    ("rope.freq_base_swa", &[0.0]),
    ("rope.scaling.alpha", &[0.0, 1.0]),
    ("rope.scaling.attn_factor", &[1.0]),
    ("router_logit_softcapping", &[0.0]),
    ("swiglu_clamp_exp", &[0.0]),
    ("swin_norm", &[0.0]),
    ("use_parallel_residual", &[0.0]),
];

/// Beginnings of the keys of parts that none of these families has.
const PARTS: [&str; 8] =
    ["adapters.", "altup.", "attention.indexer.", "hyper_connection.", "kda.", "posnet.", "ssm.", "wkv."];

/// Keys that are named when there are more.
const NAMED: usize = 5;

/// What the sizes of a model make the usual value of some keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    pub(super) family: Family,
    /// Features of a head, by which scores are scaled.
    pub(super) head_dim: u64,
    /// Positions: a window as long as all of them is none.
    pub(super) context: u64,
}

impl Usual {
    fn is_read(&self, key: &str) -> bool {
        let row = self.family.0;
        READ.contains(&key) || row.read.contains(&key) || row.numbers.iter().any(|(read, _)| *read == key)
    }

    /// Whether a number under a key says what is done anyway.
    fn is_neutral(&self, key: &str, number: f64, neutral: &[f64]) -> bool {
        // The queries of Gemma 4 are normed, and not scaled.
        let is_scaled = self.family.0.model_type != "gemma4_text";
        let scale = if is_scaled { (self.head_dim as f64).sqrt().recip() } else { 1.0 };
        neutral.contains(&number)
            || key == "attention.scale" && (number / scale - 1.0).abs() < 1e-4
            || key == "attention.sliding_window" && number >= self.context as f64
    }

    /// An error that names a key which is not honoured though it changes the model; else what is said of keys that are
    /// not known.
    pub(super) fn check(&self, metadata: Metadata<'_>, architecture: &str) -> Result<Vec<String>, String> {
        let mut unknown = Vec::new();
        let count = metadata.integer(&format!("{architecture}.expert_count")).ok().flatten();
        let has_experts = count.is_some_and(|count| count > 0);
        for (full, value) in metadata.iter() {
            let Some(key) = full.strip_prefix(architecture).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let to_experts = if has_experts { MEANINGFUL_TO_EXPERTS } else { &[] };
            let row = MEANINGFUL.iter().chain(to_experts).find(|(meaningful, _)| *meaningful == key);
            let neutral = row.map(|&(_, neutral)| neutral);
            let of_part = PARTS.iter().any(|part| key.starts_with(part)).then_some(&[0.0][..]);
            match neutral.or(of_part) {
                _ if self.is_read(key) || IDLE.contains(&key) => {}
                Some(neutral) if all(&value, &|number| self.is_neutral(key, number, neutral)) => {}
                Some(_) => {
                    return Err(format!(
                        "{full:?} is {}, which changes what the model computes and is not supported",
                        shown(&value)
                    ));
                }
                None if !has_experts && OF_EXPERTS.iter().any(|start| key.starts_with(start)) => {}
                None => unknown.push(full),
            }
        }
        Ok(told(&unknown).into_iter().collect())
    }
}

/// Whether a value is a number, a truth value or a list of them, and each as wanted.
fn all(value: &Value<'_>, wanted: &dyn Fn(f64) -> bool) -> bool {
    if let Some(list) = value.as_array() {
        return list.values().all(|value| all(&value, wanted));
    }
    let number = value.as_f64().or_else(|| value.as_i64().map(|number| number as f64));
    number.or_else(|| value.as_bool().map(|truth| f64::from(u8::from(truth)))).is_some_and(wanted)
}

fn shown(value: &Value<'_>) -> String {
    let number = value.as_f64().map(|number| number.to_string());
    let number = number.or_else(|| value.as_i64().map(|number| number.to_string()));
    let number = number.or_else(|| value.as_bool().map(|truth| truth.to_string()));
    number.unwrap_or_else(|| if value.as_array().is_some() { "a list".into() } else { "a text".into() })
}

fn told(unknown: &[&str]) -> Option<String> {
    let more = unknown.len().saturating_sub(NAMED);
    let named: Vec<String> = unknown.iter().take(NAMED).map(|key| shown_name(key)).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!("the file has keys that are not known here and count for nothing: {}{rest}", named.join(", "))
    })
}
