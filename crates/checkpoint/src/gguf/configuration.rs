//! A GGUF file's metadata in the words of a `config.json`. What a file leaves to its readers (Gemma 3's second rope base,
//! whether a head is tied) is found in its tensors or stated here.

use pteron_gguf::{Metadata, Value as Stored};
use serde_json::{Map, Value, json};

use super::keys::Usual;
use super::names::Family;
use super::parts::Parts;
use super::tokenizer::{ends, token_id};
use super::weights::Heads;

#[cfg(test)]
mod tests;

/// The rope base of Gemma's sliding layers, which files of Gemma 3 do not name.
const LOCAL_ROPE_BASE: f64 = 10_000.0;
/// Every so many layers of Gemma 3 and 4 one is full, where a file does not say it by layer.
const GEMMA_PATTERN: u64 = 6;
/// Layers of Gemma 3 27B and of Gemma 2 27B, whose queries alone are not scaled by the size of a head.
const GEMMA3_27B_LAYERS: u64 = 62;
const GEMMA2_27B_LAYERS: u64 = 46;

/// A configuration, and what weights need of it.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) json: Value,
    pub(super) heads: Heads,
    /// What should be told of the file.
    pub(super) remarks: Vec<String>,
}

impl Configuration {
    /// Reads the metadata of a file of that architecture; what is wrong with it, in words.
    pub(super) fn read(file: &Parts, architecture: &str, family: Family) -> Result<Configuration, String> {
        let row = family.0;
        let keys = Keys { file, metadata: file.metadata(), architecture };
        let mut config = keys.common(row.turns_a_part)?;
        let number = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0);
        let usual =
            Usual { family, head_dim: number("head_dim"), context: number("max_position_embeddings") };
        let remarks = usual.check(keys.metadata, architecture)?;
        config.insert("model_type".into(), row.model_type.into());
        for &(from, to) in row.numbers {
            if let Some(number) = keys.float(from)? {
                config.insert(to.into(), number.into());
            }
        }
        if row.model_type != "gemma4_text" {
            for key in ["attention.head_count_kv", "feed_forward_length"] {
                keys.shared(key, &keys.by_layer(key)?.unwrap_or_default(), |_| true)?;
            }
        }
        (row.finish)(&keys, &mut config)?;
        let count = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        let heads = Heads { queries: count("num_attention_heads"), keys: count("num_key_value_heads") };
        Ok(Configuration { json: Value::Object(config), heads, remarks })
    }
}

/// A file's metadata under the prefix of its architecture.
pub(super) struct Keys<'a> {
    file: &'a Parts,
    metadata: Metadata<'a>,
    architecture: &'a str,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn integer(&self, key: &str) -> Result<Option<u64>, String> {
        self.metadata.integer(&self.key(key)).map_err(|error| error.to_string())
    }

    fn needed(&self, key: &str) -> Result<u64, String> {
        self.integer(key)?.ok_or_else(|| format!("the metadata lacks {:?}", self.key(key)))
    }

    /// A number that JSON can say.
    fn float(&self, key: &str) -> Result<Option<f64>, String> {
        match self.metadata.float(&self.key(key)).map_err(|error| error.to_string())? {
            Some(number) if !number.is_finite() => Err(format!("{:?} is {number}", self.key(key))),
            number => Ok(number),
        }
    }

    /// Whether the file has a tensor of that name.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.file.tensor(tensor).is_some()
    }

    /// A truth value; false where the file does not say it.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.metadata.get(&self.key(key)).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// Says which matrices have biases, by those that the first layer has.
    pub(super) fn set_biases(&self, config: &mut Map<String, Value>, attention: &str, mlp: &str) {
        config.insert(attention.into(), self.has("blk.0.attn_output.bias").into());
        config.insert(mlp.into(), self.has("blk.0.ffn_down.bias").into());
    }

    /// Positions that are seen, where that is not all of them.
    fn window(&self) -> Result<Option<u64>, String> {
        Ok(self.integer("attention.sliding_window")?.filter(|&window| window > 0))
    }

    /// The number of layers, each of which has tensors: a number alone must not cost memory.
    fn layers(&self) -> Result<usize, String> {
        let (layers, tensors) = (self.needed("block_count")?, self.file.tensors().count());
        match usize::try_from(layers) {
            Ok(layers) if layers <= tensors => Ok(layers),
            _ => {
                Err(format!("{:?} is {layers}, and the file has {tensors} tensors", self.key("block_count")))
            }
        }
    }

    /// A number for each layer, from one for all of them or from a list.
    fn by_layer(&self, key: &str) -> Result<Option<Vec<u64>>, String> {
        let (layers, name) = (self.layers()?, self.key(key));
        let wrong = || format!("{name:?} is neither a number nor a list of {layers} numbers");
        match self.metadata.get(&name) {
            None => Ok(None),
            Some(Stored::Array(list)) if list.len() == layers => {
                let numbers = list.values().map(|value| value.as_u64()).collect::<Option<Vec<_>>>();
                numbers.map(Some).ok_or_else(wrong)
            }
            Some(value) => value.as_u64().map(|number| Some(vec![number; layers])).ok_or_else(wrong),
        }
    }

    /// The one number that all those layers share.
    fn shared(
        &self,
        key: &str,
        numbers: &[u64],
        pick: impl Fn(usize) -> bool,
    ) -> Result<Option<u64>, String> {
        let mut picked =
            numbers.iter().enumerate().filter(|(layer, _)| pick(*layer)).map(|(_, &number)| number);
        let first = picked.next();
        match picked.find(|&other| Some(other) != first) {
            None => Ok(first),
            Some(other) => Err(format!(
                "{:?} is {} in one layer and {other} in another of its kind, which is not supported",
                self.key(key),
                first.unwrap_or(0)
            )),
        }
    }

    /// What all families have.
    fn common(&self, turns_a_part: bool) -> Result<Map<String, Value>, String> {
        let embedding =
            self.file.tensor("token_embd.weight").ok_or("the tensor token_embd.weight is missing")?;
        let hidden = self.needed("embedding_length")?;
        let heads = self.by_layer("attention.head_count")?;
        let heads =
            heads.ok_or_else(|| format!("the metadata lacks {:?}", self.key("attention.head_count")))?;
        let heads = self.shared("attention.head_count", &heads, |_| true)?.unwrap_or(0);
        let kv_heads = self.by_layer("attention.head_count_kv")?;
        let kv_heads = kv_heads.and_then(|list| list.first().copied()).unwrap_or(heads);
        let inner = self.by_layer("feed_forward_length")?.and_then(|list| list.first().copied());
        let inner =
            inner.ok_or_else(|| format!("the metadata lacks {:?}", self.key("feed_forward_length")))?;
        let head_dim = match self.integer("attention.key_length")? {
            Some(size) => size,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        let turned = self.integer("rope.dimension_count")?.filter(|&size| turns_a_part && size <= head_dim);
        for key in ["attention.value_length", "rope.dimension_count"] {
            match self.integer(key)? {
                Some(size) if turned == Some(size) && key == "rope.dimension_count" => {}
                Some(size) if size != head_dim => {
                    let key = self.key(key);
                    return Err(format!(
                        "{key:?} is {size} where heads have {head_dim}, which is not supported"
                    ));
                }
                _ => {}
            }
        }
        let mut config = Map::new();
        let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
        set("vocab_size", embedding.shape().first().copied().unwrap_or(0).into());
        set("hidden_size", hidden.into());
        set("intermediate_size", inner.into());
        set("num_hidden_layers", self.layers()?.into());
        set("num_attention_heads", heads.into());
        set("num_key_value_heads", kv_heads.into());
        set("head_dim", head_dim.into());
        set("max_position_embeddings", self.needed("context_length")?.into());
        set("tie_word_embeddings", (!self.has("output.weight")).into());
        for (from, to) in
            [("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")]
        {
            if let Some(number) = self.float(from)? {
                set(to, number.into());
            }
        }
        if let Some(turned) = turned {
            set("partial_rotary_factor", (turned as f64 / (head_dim as f64).max(1.0)).into());
        }
        if let Some(window) = self.window()? {
            set("sliding_window", window.into());
        }
        if let Some(scaling) = self.rope_scaling()? {
            set("rope_scaling", scaling);
        }
        if let Some(bos) = token_id(self.metadata, "bos").map_err(|error| error.to_string())? {
            set("bos_token_id", bos.into());
        }
        set("eos_token_id", ends(self.metadata).map_err(|error| error.to_string())?.into());
        Ok(config)
    }

    /// All numbers of a tensor, where the file has it.
    fn floats(&self, tensor: &str) -> Result<Option<Vec<f32>>, String> {
        let Some(found) = self.file.find(tensor) else { return Ok(None) };
        let mut numbers = vec![0.0; found.tensor.elements()];
        let whole = 0..numbers.len();
        self.file.decode(found, whole, &mut numbers).map_err(|error| error.to_string())?;
        Ok(Some(numbers))
    }

    /// How rope frequencies are changed: by a divisor each, or by one factor.
    fn rope_scaling(&self) -> Result<Option<Value>, String> {
        if let Some(divisors) = self.floats("rope_freqs.weight")? {
            if let Some(factor) = self.rope_factor()?.filter(|&factor| factor != 1.0 && factor != 0.0) {
                return Err(format!(
                    "{:?} is {factor} beside the tensor rope_freqs.weight; both at once are not supported",
                    self.key("rope.scaling.factor")
                ));
            }
            return Ok(Some(json!({"rope_type": "divisors", "divisors": divisors})));
        }
        let name = self.key("rope.scaling.type");
        let kind = self.metadata.text(&name).map_err(|error| error.to_string())?;
        let factor = self.rope_factor()?;
        Ok(match (kind, factor) {
            (Some("none"), _) | (None, None) => None,
            (None | Some("linear"), Some(factor)) => Some(json!({"rope_type": "linear", "factor": factor})),
            (Some("yarn"), factor) => Some(self.yarn(factor)?),
            (Some(kind), _) => Some(json!({"rope_type": kind})),
        })
    }

    /// By how much positions are stretched, where the file says it.
    fn rope_factor(&self) -> Result<Option<f64>, String> {
        match self.float("rope.scaling.factor")? {
            // Files before the key of the type had only this one.
            None => self.float("rope.scale_linear"),
            factor => Ok(factor),
        }
    }

    /// YaRN, whose files leave out what has its usual value.
    fn yarn(&self, factor: Option<f64>) -> Result<Value, String> {
        let mut scaling = Map::from_iter([("rope_type".to_owned(), "yarn".into())]);
        let mut set = |key: &str, number: Option<Value>| {
            scaling.extend(number.map(|number| (key.to_owned(), number)));
        };
        set("factor", factor.map(Value::from));
        let original = self.integer("rope.scaling.original_context_length")?;
        set("original_max_position_embeddings", original.map(Value::from));
        set("beta_fast", self.float("rope.scaling.yarn_beta_fast")?.map(Value::from));
        set("beta_slow", self.float("rope.scaling.yarn_beta_slow")?.map(Value::from));
        // Few models have other values than these, which change nothing.
        let usual: [(&str, &[f64]); 3] = [
            ("yarn_ext_factor", &[1.0, -1.0]),
            ("yarn_attn_factor", &[1.0]),
            ("yarn_log_multiplier", &[0.0]),
        ];
        for (key, usual) in usual {
            let name = format!("rope.scaling.{key}");
            if let Some(number) = self.float(&name)?.filter(|number| !usual.contains(number)) {
                return Err(format!("{:?} is {number}, which is not supported", self.key(&name)));
            }
        }
        Ok(Value::Object(scaling))
    }

    /// Which layers slide; every so many one does not, where the file does not say it by layer.
    fn layer_types(&self, usual: u64) -> Result<Vec<bool>, String> {
        let (layers, name) = (self.layers()?, self.key("attention.sliding_window_pattern"));
        let wrong = || format!("{name:?} is neither a number nor a list of {layers} truth values");
        match self.metadata.get(&name) {
            Some(Stored::Array(list)) if list.len() == layers => {
                list.bools().map(Iterator::collect).ok_or_else(wrong)
            }
            Some(Stored::Array(_)) => Err(wrong()),
            pattern => {
                let pattern = pattern.map_or(Some(usual), |pattern| pattern.as_u64());
                let pattern = pattern.filter(|&pattern| pattern > 0).ok_or_else(wrong)?;
                Ok((1..=layers as u64).map(|layer| !layer.is_multiple_of(pattern)).collect())
            }
        }
    }

    /// Mistral's and Mixtral's files call themselves Llama.
    pub(super) fn llama(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let has_experts = self.integer("expert_count")?.is_some_and(|count| count > 0);
        if self.has("blk.0.ffn_gate_inp.weight") && !has_experts {
            return Err(format!(
                "the tensor blk.0.ffn_gate_inp.weight chooses among experts, and {:?} does not say how many",
                self.key("expert_count")
            ));
        }
        if has_experts {
            config.insert("model_type".into(), "mixtral".into());
            return self.experts(config);
        }
        self.set_biases(config, "attention_bias", "mlp_bias");
        if self.window()?.is_some() {
            config.insert("model_type".into(), "mistral".into());
        }
        Ok(())
    }

    /// How many experts there are, how many a token goes to, and how wide they are.
    pub(super) fn experts(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let count = self.needed("expert_count")?;
        for key in ["num_experts", "num_local_experts"] {
            config.insert(key.into(), count.into());
        }
        config.insert("num_experts_per_tok".into(), self.needed("expert_used_count")?.into());
        for (from, to) in [
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ] {
            if let Some(size) = self.integer(from)? {
                config.insert(to.into(), size.into());
            }
        }
        Ok(())
    }

    /// What scores are divided by the root of: as llama.cpp has it where the file does not say it, which for one of the sizes
    /// is not the size of a head.
    fn score_scalar(&self, config: &Map<String, Value>, odd_layers: u64) -> Result<Value, String> {
        let number = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0);
        Ok(match self.float("attention.scale")? {
            Some(scale) if scale > 0.0 => json!((scale * scale).recip()),
            Some(scale) => return Err(format!("{:?} is {scale}", self.key("attention.scale"))),
            None if number("num_hidden_layers") == odd_layers => {
                number("hidden_size").checked_div(number("num_attention_heads")).unwrap_or(0).into()
            }
            None => number("head_dim").into(),
        })
    }

    pub(super) fn gemma2(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let scalar = self.score_scalar(config, GEMMA2_27B_LAYERS)?;
        config.insert("query_pre_attn_scalar".into(), scalar);
        Ok(())
    }

    /// Divisors for short texts and for long ones.
    pub(super) fn phi3(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let (Some(short), Some(long)) =
            (self.floats("rope_factors_short.weight")?, self.floats("rope_factors_long.weight")?)
        else {
            return Ok(());
        };
        let original = self.needed("rope.scaling.original_context_length")?;
        config.insert("original_max_position_embeddings".into(), original.into());
        let mut scaling = json!({"rope_type": "longrope", "short_factor": short, "long_factor": long});
        if let Some(factor) = self.float("rope.scaling.attn_factor")? {
            scaling["attention_factor"] = factor.into();
        }
        config.insert("rope_scaling".into(), scaling);
        Ok(())
    }

    /// OLMo 3's files call themselves OLMo 2; only the window tells.
    pub(super) fn olmo2(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        config.insert("attention_bias".into(), self.has("blk.0.attn_output.bias").into());
        if self.window()?.is_none() {
            return Ok(());
        }
        config.insert("model_type".into(), "olmo3".into());
        config.insert("layer_types".into(), named(&self.layer_types(4)?));
        let theta = config.remove("rope_theta").unwrap_or_else(|| 500_000.0.into());
        let mut full = match config.remove("rope_scaling") {
            Some(Value::Object(scaling)) => scaling,
            _ => Map::from_iter([("rope_type".to_owned(), "default".into())]),
        };
        full.insert("rope_theta".into(), theta.clone());
        let local = self.float("rope.freq_base_swa")?.map_or(theta, Value::from);
        let local = json!({"rope_type": "default", "rope_theta": local});
        config.insert("rope_parameters".into(), json!({"full_attention": full, "sliding_attention": local}));
        Ok(())
    }

    pub(super) fn exaone4(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let slides = match self.window()? {
            Some(_) => self.layer_types(4)?,
            None => vec![false; self.layers()?],
        };
        config.entry("sliding_window").or_insert(Value::Null);
        config.insert("layer_types".into(), named(&slides));
        Ok(())
    }

    pub(super) fn gpt_oss(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        self.experts(config)?;
        config.insert("attention_bias".into(), self.has("blk.0.attn_q.bias").into());
        // As published, which files do not say.
        if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
            scaling.insert("truncate".into(), false.into());
        }
        Ok(())
    }

    pub(super) fn gemma3(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let sliding = self.layer_types(GEMMA_PATTERN)?;
        config.insert("layer_types".into(), named(&sliding));
        let local = self.float("rope.freq_base_swa")?.unwrap_or(LOCAL_ROPE_BASE);
        config.insert("rope_local_base_freq".into(), local.into());
        let scalar = self.score_scalar(config, GEMMA3_27B_LAYERS)?;
        config.insert("query_pre_attn_scalar".into(), scalar);
        Ok(())
    }

    /// Full layers are the main case of Gemma 4's keys, sliding ones have keys of their own.
    pub(super) fn gemma4(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let sliding = self.layer_types(GEMMA_PATTERN)?;
        let shared_layers = self.integer("attention.shared_kv_layers")?.unwrap_or(0) as usize;
        let first_shared = sliding.len().saturating_sub(shared_layers);
        if let Some(kv_heads) = self.by_layer("attention.head_count_kv")? {
            let key = "attention.head_count_kv";
            // What layers say that share their keys counts for nothing.
            let of = |kind: bool| {
                self.shared(key, &kv_heads, |layer| layer < first_shared && sliding[layer] == kind)
            };
            let (full, local) = (of(false)?, of(true)?);
            let either = full.or(local).unwrap_or(0);
            config.insert("num_key_value_heads".into(), local.unwrap_or(either).into());
            config.insert("num_global_key_value_heads".into(), full.unwrap_or(either).into());
        }
        let own_full = (0..first_shared).find(|&layer| !sliding[layer]);
        let keys_are_values = own_full.is_some_and(|layer| !self.has(&format!("blk.{layer}.attn_v.weight")));
        config.insert("attention_k_eq_v".into(), keys_are_values.into());
        let differ = config.get("num_key_value_heads") != config.get("num_global_key_value_heads");
        if differ && !keys_are_values {
            return Err("full layers have values and another number of key heads than sliding ones".into());
        }
        let global = config.get("head_dim").cloned().unwrap_or_default();
        if let Some(local) = self.integer("attention.key_length_swa")? {
            for key in ["attention.value_length_swa", "rope.dimension_count_swa"] {
                if let Some(size) = self.integer(key)?.filter(|&size| size != local) {
                    let key = self.key(key);
                    return Err(format!(
                        "{key:?} is {size} where heads have {local}, which is not supported"
                    ));
                }
            }
            config.insert("head_dim".into(), local.into());
        }
        config.insert("global_head_dim".into(), global);
        config.insert("layer_types".into(), named(&sliding));
        config.insert("num_kv_shared_layers".into(), shared_layers.into());
        let inner = config.get("intermediate_size").and_then(Value::as_u64).unwrap_or(0);
        let last = self.file.tensor(&format!("blk.{}.ffn_gate.weight", sliding.len().saturating_sub(1)));
        let widest = last.and_then(|tensor| tensor.shape().first().copied()).unwrap_or(0) as u64;
        config.insert("use_double_wide_mlp".into(), (shared_layers > 0 && widest == inner * 2).into());
        let per_layer = self.integer("embedding_length_per_layer_input")?.unwrap_or(0);
        config.insert("hidden_size_per_layer_input".into(), per_layer.into());
        if let Some(table) = self.file.tensor("per_layer_token_embd.weight") {
            let rows = table.shape().first().copied().unwrap_or(0);
            config.insert("vocab_size_per_layer_input".into(), rows.into());
        }
        self.gemma4_rope(config)
    }

    fn gemma4_rope(&self, config: &mut Map<String, Value>) -> Result<(), String> {
        let mut full = match config.remove("rope_scaling") {
            Some(Value::Object(scaling)) => scaling,
            _ => {
                return Err(
                    "the tensor rope_freqs.weight is missing, which says how much of a head turns".into()
                );
            }
        };
        if let Some(theta) = config.remove("rope_theta") {
            full.insert("rope_theta".into(), theta);
        }
        let local = self.float("rope.freq_base_swa")?.unwrap_or(LOCAL_ROPE_BASE);
        let local = json!({"rope_type": "default", "rope_theta": local});
        config.insert("rope_parameters".into(), json!({"full_attention": full, "sliding_attention": local}));
        Ok(())
    }
}

/// `layer_types` as a configuration has them.
fn named(sliding: &[bool]) -> Value {
    sliding.iter().map(|&slides| if slides { "sliding_attention" } else { "full_attention" }).collect()
}
