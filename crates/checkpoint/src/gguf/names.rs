//! How llama.cpp names and changes the tensors of each family.

use super::parts::Parts;

/// What a family's files do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Rows of queries and keys lie in neighbouring pairs.
    Llama,
    /// As published.
    Qwen2,
    /// As published.
    Qwen3,
    /// Norms have 1 added.
    Gemma3,
    /// As published.
    Gemma4,
}

use Family::{Gemma3, Gemma4, Llama, Qwen2, Qwen3};

/// The architectures that are read, by their names in files.
pub(super) const KNOWN: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "gemma4"];

const ALL: &[Family] = &[Llama, Qwen2, Qwen3, Gemma3, Gemma4];
const NORMED_HEADS: &[Family] = &[Qwen3, Gemma3, Gemma4];
const TWO_NORMS: &[Family] = &[Llama, Qwen2, Qwen3];
const FOUR_NORMS: &[Family] = &[Gemma3, Gemma4];

/// Modules of a layer: as published, in files, and who has them.
const MODULES: &[(&str, &str, &[Family])] = &[
    ("input_layernorm", "attn_norm", ALL),
    ("post_attention_layernorm", "ffn_norm", TWO_NORMS),
    ("post_attention_layernorm", "post_attention_norm", FOUR_NORMS),
    ("pre_feedforward_layernorm", "ffn_norm", FOUR_NORMS),
    ("post_feedforward_layernorm", "post_ffw_norm", FOUR_NORMS),
    ("self_attn.q_proj", "attn_q", ALL),
    ("self_attn.k_proj", "attn_k", ALL),
    ("self_attn.v_proj", "attn_v", ALL),
    ("self_attn.o_proj", "attn_output", ALL),
    ("self_attn.q_norm", "attn_q_norm", NORMED_HEADS),
    ("self_attn.k_norm", "attn_k_norm", NORMED_HEADS),
    ("mlp.gate_proj", "ffn_gate", ALL),
    ("mlp.up_proj", "ffn_up", ALL),
    ("mlp.down_proj", "ffn_down", ALL),
    ("layer_scalar", "layer_output_scale", &[Gemma4]),
    ("per_layer_input_gate", "inp_gate", &[Gemma4]),
    ("per_layer_projection", "proj", &[Gemma4]),
    ("post_per_layer_input_norm", "post_norm", &[Gemma4]),
];

/// The same outside of layers.
const TOP: &[(&str, &str, &[Family])] = &[
    ("embed_tokens", "token_embd", ALL),
    ("norm", "output_norm", ALL),
    ("lm_head", "output", ALL),
    ("embed_tokens_per_layer", "per_layer_token_embd", &[Gemma4]),
    ("per_layer_model_projection", "per_layer_model_proj", &[Gemma4]),
    ("per_layer_projection_norm", "per_layer_proj_norm", &[Gemma4]),
];

/// Tensors that say how positions turn; the second is an old name of what the configuration says as well.
const ROPE: [&str; 2] = ["rope_freqs", "attn_rot_embd"];

/// Whether a tensor says how positions turn.
pub(super) fn is_rope(tensor: &str) -> bool {
    let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
    ROPE.contains(&module.rsplit('.').next().unwrap_or(module))
}

impl Family {
    pub(super) fn of(architecture: &str) -> Option<Family> {
        Some(match architecture {
            "llama" => Llama,
            "qwen2" => Qwen2,
            "qwen3" => Qwen3,
            "gemma3" => Gemma3,
            "gemma4" => Gemma4,
            _ => return None,
        })
    }

    /// Whether a norm's weight is stored with 1 added, where the architecture wants it without.
    pub(super) fn adds_one(self, name: &str) -> bool {
        self == Gemma3 && name.ends_with("norm.weight")
    }

    /// Whether rows of that weight lie in neighbouring pairs.
    pub(super) fn pairs_rows(self, name: &str) -> bool {
        self == Llama && (name.contains(".q_proj.") || name.contains(".k_proj."))
    }

    /// The name in the file of a weight that an architecture asks for; nothing where the family has no such weight.
    pub(super) fn tensor_name(self, name: &str) -> Option<String> {
        let rest = name.strip_prefix("model.").unwrap_or(name);
        let stored = |table: &[(&str, &'static str, &[Family])], module: &str| {
            let row = table.iter().find(|(published, _, has)| *published == module && has.contains(&self));
            row.map(|&(_, stored, _)| stored)
        };
        if let Some((layer, rest)) = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
            let layer: u32 = layer.parse().ok()?;
            // Published without a kind, because it is no module there.
            let (module, kind) =
                if rest == "layer_scalar" { (rest, "weight") } else { rest.rsplit_once('.')? };
            return Some(format!("blk.{layer}.{}.{kind}", stored(MODULES, module)?));
        }
        let (module, kind) = rest.rsplit_once('.')?;
        Some(format!("{}.{kind}", stored(TOP, module)?))
    }

    /// An error that names a tensor which the family's graph would leave out although the model computes with it:
    /// experts, biases, norms of a kin that borrows the architecture's name.
    pub(super) fn check_tensors(self, file: &Parts) -> Result<(), String> {
        let biased_attention = file.tensor("blk.0.attn_output.bias").is_some();
        let biased_mlp = file.tensor("blk.0.ffn_down.bias").is_some();
        for tensor in file.tensors() {
            let name = tensor.name();
            let (module, kind) = name.rsplit_once('.').unwrap_or((name, ""));
            let (table, module) = match module.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
                Some((_, module)) => (MODULES, module),
                None => (TOP, module),
            };
            let is_known = match kind {
                "weight" => {
                    let has =
                        |&(_, stored, has): &(&str, &str, &[Family])| stored == module && has.contains(&self);
                    table.iter().any(has) || ROPE.contains(&module)
                }
                "bias" => match (self, module) {
                    (Llama, "attn_q" | "attn_k" | "attn_v" | "attn_output") => biased_attention,
                    (Llama, "ffn_gate" | "ffn_up" | "ffn_down") => biased_mlp,
                    (Qwen2, "attn_q" | "attn_k" | "attn_v") => true,
                    _ => false,
                },
                _ => false,
            };
            if !is_known {
                return Err(format!(
                    "the tensor {name} belongs to a kind of model that is not built here, though it bears the same name"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_llama_cpp_gives() {
        let cases = [
            (Family::Llama, "model.embed_tokens.weight", "token_embd.weight"),
            (Family::Llama, "lm_head.weight", "output.weight"),
            (Family::Llama, "model.norm.weight", "output_norm.weight"),
            (Family::Qwen2, "model.layers.11.self_attn.q_proj.bias", "blk.11.attn_q.bias"),
            (Family::Llama, "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
            (
                Family::Gemma3,
                "model.layers.0.post_attention_layernorm.weight",
                "blk.0.post_attention_norm.weight",
            ),
            (Family::Gemma4, "model.layers.2.layer_scalar", "blk.2.layer_output_scale.weight"),
            (Family::Gemma4, "model.layers.2.per_layer_projection.weight", "blk.2.proj.weight"),
            (Family::Gemma4, "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
        ];
        for (family, name, want) in cases {
            assert_eq!(family.tensor_name(name).as_deref(), Some(want));
        }
        assert_eq!(Family::Llama.tensor_name("model.layers.0.mystery.weight"), None);
        assert_eq!(Family::Llama.tensor_name("model.layers.x.mlp.up_proj.weight"), None);
    }

    #[test]
    fn only_llama_moves_rows_and_only_gemma_3_its_norms() {
        let q = "model.layers.0.self_attn.q_proj.weight";
        assert!(Family::Llama.pairs_rows(q) && !Family::Qwen2.pairs_rows(q));
        let norm = "model.layers.0.self_attn.q_norm.weight";
        assert!(Family::Gemma3.adds_one(norm) && !Family::Gemma4.adds_one(norm));
        assert!(!Family::Gemma3.adds_one("model.embed_tokens.weight"));
    }
}
