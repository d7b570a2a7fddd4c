//! A published `config.json`, read key by key with the defaults of its family.
//!
//! Published files leave out what has its default and spell some things in two ways; both are settled here, so that
//! an architecture asks for what it needs. Numbers are bounded: the file is a stranger's.

mod rope;

pub use rope::RopeKeys;

use serde_json::{Map, Value};

use crate::architectures::{LayerKind, every_nth_full};
use crate::blocks::Activation;

/// Larger than any size in a model there is; products of two stay far from overflow.
const LARGEST_SIZE: u64 = 1 << 24;
/// More layers than any model has.
pub(crate) const MOST_LAYERS: usize = 1 << 14;

/// What classes do that write text, behind `For` in their names: `LlamaForCausalLM`, and wrappers whose text model is read.
const WRITES_TEXT: [&str; 8] = [
    "CausalLM",
    "ConditionalGeneration",
    "ImageTextToText",
    "MultimodalLM",
    "Vision2Seq",
    "TDT",
    "RNNT",
    "CTC",
];

/// What is wrong with a configuration: the key, what it holds, and what would do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

/// A `config.json`. The text model of a wrapper (vision, audio) is what is read; the wrapper answers for what concerns
/// both.
#[derive(Clone, Debug)]
pub struct Config {
    text: Map<String, Value>,
    wrapper: Map<String, Value>,
}

impl Config {
    /// Takes a parsed file.
    pub fn new(file: Value) -> Result<Config, ConfigError> {
        let Value::Object(mut wrapper) = file else {
            return Err(ConfigError("it is not a JSON object".into()));
        };
        Ok(match wrapper.remove("text_config") {
            Some(Value::Object(text)) => Config { text, wrapper },
            _ => Config { text: wrapper, wrapper: Map::new() },
        })
    }

    /// Whether the text model is part of another one.
    pub(crate) fn is_wrapped(&self) -> bool {
        !self.wrapper.is_empty()
    }

    /// The family: `model_type`, or else the first of `architectures`; the text model's before the wrapper's.
    pub fn family(&self) -> Result<&str, ConfigError> {
        fn named(file: &Map<String, Value>) -> Option<&str> {
            let listed = || file.get("architectures")?.as_array()?.first()?.as_str();
            file.get("model_type").and_then(Value::as_str).or_else(listed)
        }
        let name = named(&self.text).or_else(|| named(&self.wrapper));
        name.ok_or_else(|| ConfigError("it names neither `model_type` nor `architectures`".into()))
    }

    /// The classes of `architectures`, the wrapper's before the text model's.
    pub(crate) fn classes(&self) -> Vec<String> {
        let listed = |file: &Map<String, Value>| file.get("architectures").and_then(Value::as_array).cloned();
        let classes = listed(&self.wrapper).or_else(|| listed(&self.text)).unwrap_or_default();
        classes.iter().filter_map(|class| Some(class.as_str()?.to_owned())).collect()
    }

    /// An error where all classes of `architectures` have another head than one over the vocabulary: classifiers, reward
    /// models, models that fill masks. A bare `LlamaModel` passes, because it is the same decoder without its head, which
    /// a tied embedding replaces; where none does, the head is missed by its name.
    pub fn check_task(&self) -> Result<(), ConfigError> {
        let classes = self.classes();
        let mut classes = classes.iter().map(String::as_str);
        let Some(first) = classes.next() else { return Ok(()) };
        if writes_text(first) || classes.any(writes_text) {
            return Ok(());
        }
        Err(ConfigError(format!(
            "`architectures` names {}, which is no language model: its head gives no logits of a vocabulary",
            shown(&Value::from(first))
        )))
    }

    /// The family of a wrapper around the text model, where there is one.
    pub fn wrapper(&self) -> Option<&str> {
        self.wrapper.get("model_type").and_then(Value::as_str)
    }

    /// Lets another file of the checkpoint have the say over a key.
    pub fn set(&mut self, key: &str, value: Value) {
        self.text.insert(key.to_owned(), value);
    }

    /// What a key holds; nothing where it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.text.get(key).filter(|value| !value.is_null())
    }

    /// The same, asking the wrapper where the text model does not say.
    pub fn get_anywhere(&self, key: &str) -> Option<&Value> {
        self.get(key).or_else(|| self.wrapper.get(key).filter(|value| !value.is_null()))
    }

    /// Whether a key is there and null, which some families tell from absent.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.text.get(key).is_some_and(Value::is_null)
    }

    /// A count of at least one.
    pub(crate) fn size(&self, key: &str, default: Option<usize>) -> Result<usize, ConfigError> {
        match (self.get(key), default) {
            (Some(value), _) => size(key, value),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(ConfigError(format!("`{key}` is missing"))),
        }
    }

    /// A count that may be zero.
    pub(crate) fn count(&self, key: &str, default: usize) -> Result<usize, ConfigError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            Some(value) => size(key, value),
        }
    }

    /// A positive number.
    pub(crate) fn number(&self, key: &str, default: f32) -> Result<f32, ConfigError> {
        self.get(key).map_or(Ok(default), |value| Ok(positive(key, value)? as f32))
    }

    /// A positive number, where there is one.
    pub(crate) fn optional_number(&self, key: &str) -> Result<Option<f32>, ConfigError> {
        self.get(key).map(|value| Ok(positive(key, value)? as f32)).transpose()
    }

    /// True or false.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        boolean(key, self.get(key), default)
    }

    /// An error unless the key is absent, null or false: what it switches on is not built.
    pub(crate) fn refuse(&self, key: &str) -> Result<(), ConfigError> {
        match self.get(key) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(value) => Err(ConfigError(format!("`{key}` is {}, which is not supported", shown(value)))),
        }
    }

    /// Whether the head is the embedding.
    pub(crate) fn tied(&self, default: bool) -> Result<bool, ConfigError> {
        boolean("tie_word_embeddings", self.get_anywhere("tie_word_embeddings"), default)
    }

    /// The token that begins a text; none where the file says null.
    pub(crate) fn bos(&self, default: Option<u32>) -> Result<Option<u32>, ConfigError> {
        let key = "bos_token_id";
        match self.get_anywhere(key) {
            Some(value) => Ok(Some(token(key, value)?)),
            None => Ok(default.filter(|_| !self.is_null(key))),
        }
    }

    /// The tokens that end a text; none where the file says null.
    pub(crate) fn eos(&self, default: Option<u32>) -> Result<Vec<u32>, ConfigError> {
        let key = "eos_token_id";
        match self.get_anywhere(key) {
            Some(value) => tokens(key, value),
            None => Ok(default.filter(|_| !self.is_null(key)).into_iter().collect()),
        }
    }

    /// The number of layers.
    pub(crate) fn layers(&self, default: usize) -> Result<usize, ConfigError> {
        self.layers_by("num_hidden_layers", default)
    }

    /// The same under a family's own key.
    pub(crate) fn layers_by(&self, key: &str, default: usize) -> Result<usize, ConfigError> {
        match self.size(key, Some(default))? {
            layers if layers <= MOST_LAYERS => Ok(layers),
            layers => Err(ConfigError(format!("`{key}` is {layers}, at most {MOST_LAYERS} are built"))),
        }
    }

    /// `layer_types`, one a layer; where the key is absent, what `kind` says of each.
    pub(crate) fn layer_types(
        &self,
        layers: usize,
        kind: impl Fn(usize) -> LayerKind,
    ) -> Result<Vec<LayerKind>, ConfigError> {
        let Some(value) = self.get("layer_types") else { return Ok((0..layers).map(kind).collect()) };
        let list = value.as_array().filter(|list| list.len() == layers).ok_or_else(|| {
            ConfigError(format!("`layer_types` does not name the kinds of {layers} layers"))
        })?;
        let kinds = list.iter().map(|kind| match kind.as_str() {
            Some("full_attention") => Ok(LayerKind::Full),
            Some("sliding_attention") => Ok(LayerKind::Sliding),
            _ => Err(ConfigError(format!(
                "`layer_types` names {}; known are full_attention and sliding_attention",
                shown(kind)
            ))),
        });
        kinds.collect()
    }

    /// The same where every n-th layer is full unless the file says more.
    pub(crate) fn layer_types_by_pattern(
        &self,
        layers: usize,
        pattern: usize,
    ) -> Result<Vec<LayerKind>, ConfigError> {
        let kinds = every_nth_full(layers, pattern);
        self.layer_types(layers, |layer| kinds[layer])
    }

    /// What the gate of the MLP goes through.
    pub(crate) fn activation(&self, key: &str, default: Activation) -> Result<Activation, ConfigError> {
        named_activation(key, self.get(key), default)
    }

    /// The same of what a wrapper adds to its text model.
    pub(crate) fn wrapped_activation(
        &self,
        key: &str,
        default: Activation,
    ) -> Result<Activation, ConfigError> {
        named_activation(key, self.get_anywhere(key), default)
    }
}

fn named_activation(
    key: &str,
    value: Option<&Value>,
    default: Activation,
) -> Result<Activation, ConfigError> {
    let Some(value) = value else { return Ok(default) };
    value.as_str().and_then(Activation::named).ok_or_else(|| {
        let known: Vec<&str> = Activation::names().collect();
        ConfigError(format!("`{key}` is {}; known are {}", shown(value), known.join(", ")))
    })
}

/// Whether a class gives logits of a vocabulary, as far as its name tells.
fn writes_text(class: &str) -> bool {
    let task = class.rsplit_once("For").map(|(_, task)| task);
    match task.filter(|task| task.starts_with(|first: char| first.is_ascii_uppercase())) {
        Some(task) => WRITES_TEXT.iter().any(|known| task.starts_with(known)),
        None => !class.ends_with("RewardModel"),
    }
}

/// The token ids of a key that holds one or a list.
pub fn tokens(key: &str, value: &Value) -> Result<Vec<u32>, ConfigError> {
    match value {
        Value::Array(list) => list.iter().map(|id| token(key, id)).collect(),
        one => Ok(vec![token(key, one)?]),
    }
}

/// A token id.
pub fn token(key: &str, value: &Value) -> Result<u32, ConfigError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| ConfigError(format!("`{key}` is {}, not a token id", shown(value))))
}

pub(crate) fn size(key: &str, value: &Value) -> Result<usize, ConfigError> {
    let number = value.as_u64().filter(|number| (1..=LARGEST_SIZE).contains(number));
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| {
        ConfigError(format!("`{key}` is {}, not a size from 1 to {LARGEST_SIZE}", shown(value)))
    })
}

/// A positive number that f32 can hold.
fn positive(key: &str, value: &Value) -> Result<f64, ConfigError> {
    let number = value.as_f64().filter(|&number| number as f32 > 0.0 && (number as f32).is_finite());
    number.ok_or_else(|| ConfigError(format!("`{key}` is {}, not a positive number", shown(value))))
}

fn boolean(key: &str, value: Option<&Value>, default: bool) -> Result<bool, ConfigError> {
    match value {
        None => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(ConfigError(format!("`{key}` is {}, neither true nor false", shown(other)))),
    }
}

/// A value in an error, cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
