//! How llama.cpp names and changes the tensors of each architecture.

use super::families::{ROWS, Row};
use super::parts::Parts;

/// An architecture that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family(pub(super) &'static Row);

/// Modules of a layer that all have: as graphs know them, in files.
const MODULES: &[(&str, &str)] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The same outside of layers.
const TOP: &[(&str, &str)] =
    &[("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output")];

/// Tensors that say how positions turn; the second is an old name of what the configuration says as well.
const ROPE: [&str; 4] = ["rope_freqs", "attn_rot_embd", "rope_factors_long", "rope_factors_short"];

/// Parts of a layer that graphs know without a kind behind.
const WITHOUT_A_KIND: [&str; 2] = ["layer_scalar", "self_attn.sinks"];

/// Whether a tensor says how positions turn.
pub(super) fn is_rope(tensor: &str) -> bool {
    let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
    ROPE.contains(&module.rsplit('.').next().unwrap_or(module))
}

/// The architectures that are read, by their names in files.
pub(super) fn known() -> String {
    ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// Where a weight lies: in which tensor, and behind which other modules of the same.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) tensor: String,
    /// The modules before it, as graphs know them, and all of the tensor; none where it has a tensor to itself.
    pub(super) before: &'static [&'static str],
    pub(super) of: &'static [&'static str],
}

impl Family {
    pub(super) fn of(architecture: &str) -> Option<Family> {
        ROWS.iter().find(|row| row.name == architecture).map(Family)
    }

    /// Whether a norm's weight is stored with 1 added, where the architecture wants it without.
    pub(super) fn adds_one(self, name: &str) -> bool {
        self.0.adds_one && name.ends_with("norm.weight")
    }

    /// Whether rows of that weight lie in neighbouring pairs.
    pub(super) fn pairs_rows(self, name: &str) -> bool {
        self.0.pairs_rows && (name.contains(".q_proj.") || name.contains(".k_proj."))
    }

    /// Where a weight lies that an architecture asks for; nothing where files have no such weight.
    pub(super) fn place(self, name: &str) -> Option<Place> {
        let rest = name.strip_prefix("model.").unwrap_or(name);
        let Some((layer, rest)) = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) else {
            let (module, kind) = rest.rsplit_once('.')?;
            let mut all = TOP.iter().chain(self.0.top);
            let (_, stored) = all.find(|(known, _)| *known == module)?;
            return Some(Place { tensor: format!("{stored}.{kind}"), before: &[], of: &[] });
        };
        let layer: u32 = layer.parse().ok()?;
        let (module, kind) =
            if WITHOUT_A_KIND.contains(&rest) { (rest, "weight") } else { rest.rsplit_once('.')? };
        for fused in self.0.fused {
            if let Some(at) = fused.parts.iter().position(|part| *part == module) {
                let tensor = format!("blk.{layer}.{}.{kind}", fused.stored);
                return Some(Place { tensor, before: &fused.parts[..at], of: fused.parts });
            }
        }
        let mut all = MODULES.iter().chain(self.0.modules.iter().copied().flatten());
        let (_, stored) = all.find(|(known, _)| *known == module)?;
        Some(Place { tensor: format!("blk.{layer}.{stored}.{kind}"), before: &[], of: &[] })
    }

    /// The name in the file of a weight that an architecture asks for.
    pub(super) fn tensor_name(self, name: &str) -> Option<String> {
        self.place(name).map(|place| place.tensor)
    }

    /// Whether files have such a module, in layers or outside.
    fn stores(self, module: &str, in_layers: bool) -> bool {
        let has = |table: &[(&str, &str)]| table.iter().any(|(_, stored)| *stored == module);
        match in_layers {
            true => {
                let fused = self.0.fused.iter().any(|fused| fused.stored == module);
                has(MODULES)
                    || fused
                    || self.0.modules.iter().any(|table| has(table))
                    || ROPE.contains(&module)
            }
            false => has(TOP) || has(self.0.top) || ROPE.contains(&module),
        }
    }

    /// An error that names a tensor which the family's graph would leave out although the model computes with it:
    /// experts, biases, norms of a kin that borrows the architecture's name.
    pub(super) fn check_tensors(self, file: &Parts) -> Result<(), String> {
        for tensor in file.tensors() {
            let name = tensor.name();
            let (module, kind) = name.rsplit_once('.').unwrap_or((name, ""));
            let (in_layers, module) = match module.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
            {
                Some((_, module)) => (true, module),
                None => (false, module),
            };
            let is_known = match kind {
                "weight" => self.stores(module, in_layers),
                "bias" => match in_layers {
                    true => self.0.biased.contains(&module) && self.is_all_biased(file, module),
                    // Norms that are moved as well as scaled.
                    false => module == "output_norm" && self.0.biased.contains(&"attn_norm"),
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

    /// Whether what shares one switch of the configuration with a module has biases as well.
    fn is_all_biased(self, file: &Parts, module: &str) -> bool {
        let one_switch = self.0.biased.contains(&"attn_output") && !self.0.own_output_switch;
        let decides = match module {
            "attn_q" | "attn_k" | "attn_v" if one_switch => "attn_output",
            "ffn_gate" | "ffn_up" => "ffn_down",
            _ => return true,
        };
        file.tensor(&format!("blk.0.{decides}.bias")).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Family {
        Family::of(name).unwrap()
    }

    #[test]
    fn names_are_those_that_llama_cpp_gives() {
        let cases = [
            ("llama", "model.embed_tokens.weight", "token_embd.weight"),
            ("llama", "lm_head.weight", "output.weight"),
            ("llama", "model.norm.weight", "output_norm.weight"),
            ("llama", "model.layers.3.mlp.experts.up_proj.weight", "blk.3.ffn_up_exps.weight"),
            ("qwen2", "model.layers.11.self_attn.q_proj.bias", "blk.11.attn_q.bias"),
            ("llama", "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
            ("gemma3", "model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight"),
            ("gemma4", "model.layers.2.layer_scalar", "blk.2.layer_output_scale.weight"),
            ("gemma4", "model.layers.2.per_layer_projection.weight", "blk.2.proj.weight"),
            ("gemma4", "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
            ("gpt-oss", "model.layers.1.self_attn.sinks", "blk.1.attn_sinks.weight"),
            ("glm4", "model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_up.weight"),
        ];
        for (name, weight, want) in cases {
            assert_eq!(family(name).tensor_name(weight).as_deref(), Some(want));
        }
        assert_eq!(family("llama").tensor_name("model.layers.0.mystery.weight"), None);
        assert_eq!(family("llama").tensor_name("model.layers.x.mlp.up_proj.weight"), None);
        assert!(Family::of("mamba").is_none());
    }

    #[test]
    fn modules_of_one_tensor_lie_behind_each_other() {
        let place = family("phi3").place("model.layers.0.self_attn.v_proj.weight").unwrap();
        assert_eq!(place.before, ["self_attn.q_proj", "self_attn.k_proj"]);
        assert_eq!((place.tensor.as_str(), place.of.len()), ("blk.0.attn_qkv.weight", 3));
    }

    #[test]
    fn only_some_move_rows_and_only_some_their_norms() {
        let q = "model.layers.0.self_attn.q_proj.weight";
        assert!(family("llama").pairs_rows(q) && !family("qwen2").pairs_rows(q));
        let norm = "model.layers.0.self_attn.q_norm.weight";
        assert!(family("gemma3").adds_one(norm) && !family("gemma4").adds_one(norm));
        assert!(!family("gemma3").adds_one("model.embed_tokens.weight"));
    }
}
