//! Rotary positions in a `config.json`: `rope_parameters` of newer files, for all layers or by kind of layer; `rope_theta`
//! and `rope_scaling` of older ones. What is left out is filled in as `transformers` does it.

use serde_json::{Map, Value};

use super::{Config, ConfigError, boolean, positive, shown, size};
use crate::architectures::LayerKind;
use crate::blocks::{Llama3Scaling, LongScaling, RopeScaling, RopeSettings, YarnScaling};

const KNOWN: &str = "default, linear, dynamic, llama3, yarn, longrope and proportional are";

/// How a family spells the rotary positions of all its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeKeys {
    /// The base, and what it is where the file does not say it.
    pub theta: (&'static str, f32),
    /// Which part of a head turns, and what it is where the file does not say it; without, whole heads turn, whatever a file
    /// says.
    pub partial: Option<(&'static str, f64)>,
    /// The context of the first training where the file does not say it.
    pub original: Option<usize>,
    /// Whether `su` and `yarn` are old names of longrope (Phi-3).
    pub is_long: bool,
}

impl RopeKeys {
    /// Whole heads, by the usual names.
    pub const fn usual(theta: f32) -> RopeKeys {
        RopeKeys { theta: ("rope_theta", theta), partial: None, original: None, is_long: false }
    }
}

impl Config {
    /// Rotary positions of all layers, in either spelling. `longest` is the context of the model.
    #[cfg(test)]
    pub(crate) fn rope(&self, default_theta: f32, longest: usize) -> Result<RopeSettings, ConfigError> {
        Ok(self.rope_of(&RopeKeys::usual(default_theta), longest)?.0)
    }

    /// The same as a family spells it, and which part of a head turns.
    pub(crate) fn rope_of(
        &self,
        keys: &RopeKeys,
        longest: usize,
    ) -> Result<(RopeSettings, f64), ConfigError> {
        let theta = self.number(keys.theta.0, keys.theta.1)?;
        let Some(parameters) = self.rope_parameters()? else {
            let partial = keys.partial.map_or(Ok(1.0), |(key, default)| {
                self.get(key).map_or(Ok(default), |value| positive(key, value))
            });
            return Ok((RopeSettings::plain(theta), part(partial?)?));
        };
        if let Some((kind, _)) = parameters.iter().find(|(_, value)| value.is_object()) {
            return Err(ConfigError(format!(
                "rope parameters of `{kind}` alone, where this family has one kind of positions"
            )));
        }
        let original = self.get("original_max_position_embeddings");
        let file = self.get(keys.partial.map_or("partial_rotary_factor", |(key, _)| key));
        let parameters =
            Parameters { of: parameters, file, original, truncates: true, longest, keys: Some(keys) };
        Ok((parameters.read(theta)?, part(parameters.partial()?)?))
    }

    /// What the file says of rotary positions, in either spelling.
    pub(crate) fn rope_parameters(&self) -> Result<Option<&Map<String, Value>>, ConfigError> {
        let scaling =
            self.get("rope_scaling").filter(|scaling| !scaling.as_object().is_some_and(Map::is_empty));
        match scaling.or_else(|| self.get("rope_parameters")) {
            Some(Value::Object(parameters)) => Ok(Some(parameters)),
            Some(other) => Err(ConfigError(format!("rope parameters are {}", shown(other)))),
            None => Ok(None),
        }
    }

    /// The same for one kind of layer, where a model has two. Older files have `rope_scaling` for full layers and a key
    /// of its own for the base.
    pub(crate) fn rope_by_kind(
        &self,
        kind: LayerKind,
        default: RopeSettings,
        longest: usize,
    ) -> Result<RopeSettings, ConfigError> {
        let (name, theta_key) = match kind {
            LayerKind::Full => ("full_attention", "rope_theta"),
            LayerKind::Sliding => ("sliding_attention", "rope_local_base_freq"),
        };
        let theta = self.number(theta_key, default.theta)?;
        let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
        let mut parameters = object(self.get("rope_parameters").and_then(|all| all.get(name)));
        if let Some(scaling) = object(self.get("rope_scaling")).filter(|_| kind == LayerKind::Full) {
            parameters.get_or_insert_default().extend(scaling);
        }
        match parameters {
            Some(of) => {
                let file = self.get("partial_rotary_factor");
                // By kind, the reference looks for `truncate` where no file has it.
                Parameters { of: &of, file, original: None, truncates: false, longest, keys: None }
                    .read(theta)
            }
            None => Ok(RopeSettings { theta, ..default }),
        }
    }
}

/// The rope parameters of some layers.
struct Parameters<'a> {
    of: &'a Map<String, Value>,
    /// `partial_rotary_factor` of the file as a whole.
    file: Option<&'a Value>,
    /// `original_max_position_embeddings` of the file as a whole, which goes before the parameters' own.
    original: Option<&'a Value>,
    /// Whether `truncate` is looked at.
    truncates: bool,
    longest: usize,
    /// How the family spells them, where it has one kind of layers.
    keys: Option<&'a RopeKeys>,
}

/// A part of a head.
fn part(part: f64) -> Result<f64, ConfigError> {
    match part <= 1.0 {
        true => Ok(part),
        false => Err(ConfigError(format!("`partial_rotary_factor` is {part}, more than a head"))),
    }
}

impl Parameters<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.of.get(key).filter(|value| !value.is_null())
    }

    fn optional(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.get(key).map(|value| positive(key, value)).transpose()
    }

    fn number(&self, key: &str) -> Result<f64, ConfigError> {
        self.optional(key)?.ok_or_else(|| ConfigError(format!("rope parameters lack `{key}`")))
    }

    /// A positive number for each pair of a head.
    fn list(&self, key: &str) -> Result<Vec<f32>, ConfigError> {
        let list = self.get(key).and_then(Value::as_array);
        let list = list.ok_or_else(|| ConfigError(format!("rope parameters lack the list `{key}`")))?;
        list.iter().map(|number| Ok(positive(key, number)? as f32)).collect()
    }

    fn original(&self) -> Result<usize, ConfigError> {
        let key = "original_max_position_embeddings";
        let usual = self.keys.and_then(|keys| keys.original).unwrap_or(self.longest);
        self.original.or_else(|| self.get(key)).map_or(Ok(usual), |value| size(key, value))
    }

    /// By how much the context has grown, where the file does not say it.
    fn growth(&self) -> Result<f64, ConfigError> {
        Ok(self.optional("factor")?.unwrap_or(self.longest as f64 / self.original()? as f64))
    }

    fn said_partial(&self) -> Result<f64, ConfigError> {
        let usual = self.keys.and_then(|keys| keys.partial).map_or(1.0, |(_, usual)| usual);
        let said = self.get("partial_rotary_factor").or(self.file);
        said.map_or(Ok(usual), |value| positive("partial_rotary_factor", value))
    }

    /// Which part of a head turns.
    fn partial(&self) -> Result<f64, ConfigError> {
        match self.keys.and_then(|keys| keys.partial) {
            Some(_) => self.said_partial(),
            None => Ok(1.0),
        }
    }

    fn read(&self, theta: f32) -> Result<RopeSettings, ConfigError> {
        let theta = self.optional("rope_theta")?.map_or(theta, |theta| theta as f32);
        let kind = match self.get("rope_type").or_else(|| self.get("type")) {
            None => "default",
            Some(Value::String(kind)) => kind,
            Some(other) => return Err(ConfigError(format!("`rope_type` is {}", shown(other)))),
        };
        let kind = match (kind, self.keys) {
            ("su" | "yarn", Some(RopeKeys { is_long: true, .. })) => "longrope",
            (kind, _) => kind,
        };
        let partial = self.said_partial()?;
        // Plain positions turn whole heads in families that know no others, whatever the file says.
        let fits = match kind {
            _ if self.keys.is_some_and(|keys| keys.partial.is_some()) => kind != "proportional",
            "default" => true,
            "proportional" => partial <= 1.0,
            _ => partial == 1.0,
        };
        if !fits {
            return Err(ConfigError(format!(
                "`partial_rotary_factor` is {partial} with rope of type {kind}, which is not supported"
            )));
        }
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear(self.number("factor")? as f32),
            "dynamic" => {
                // It acts beyond the context that the model was made for, and no program is made for more.
                self.number("factor")?;
                RopeScaling::None
            }
            "proportional" => RopeScaling::Proportional {
                part: partial,
                factor: self.optional("factor")?.unwrap_or(1.0) as f32,
            },
            "llama3" => RopeScaling::Llama3(Llama3Scaling {
                factor: self.number("factor")? as f32,
                low_frequency_factor: self.number("low_freq_factor")? as f32,
                high_frequency_factor: self.number("high_freq_factor")? as f32,
                original_context: self.original()?,
            }),
            "yarn" => RopeScaling::Yarn(self.yarn()?),
            "longrope" => RopeScaling::Long(self.long()?),
            // No published file has this one: it is how GGUF files say any of them.
            "divisors" => RopeScaling::Divisors(self.list("divisors")?),
            other => {
                return Err(ConfigError(format!("rope of type `{other}` is not supported; {KNOWN}")));
            }
        };
        Ok(RopeSettings { theta, scaling })
    }

    fn yarn(&self) -> Result<YarnScaling, ConfigError> {
        let factor = self.growth()?;
        // Zero means absent to the reference.
        let number = |key: &str| match self.get(key) {
            Some(value) if value.as_f64() == Some(0.0) => Ok(None),
            _ => self.optional(key),
        };
        let attention_factor =
            match (self.optional("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
                (Some(factor), ..) => factor,
                (None, Some(more), Some(all)) => {
                    YarnScaling::usual_attention_factor(factor, more)
                        / YarnScaling::usual_attention_factor(factor, all)
                }
                _ => YarnScaling::usual_attention_factor(factor, 1.0),
            };
        Ok(YarnScaling {
            factor,
            beta_fast: number("beta_fast")?.unwrap_or(32.0),
            beta_slow: number("beta_slow")?.unwrap_or(1.0),
            truncate: boolean("truncate", self.get("truncate").filter(|_| self.truncates), true)?,
            original_context: self.original()?,
            attention_factor,
        })
    }

    fn long(&self) -> Result<LongScaling, ConfigError> {
        let original_context = self.original()?;
        let attention_factor = match self.optional("attention_factor")? {
            Some(factor) => factor,
            None => LongScaling::usual_attention_factor(self.growth()?, original_context),
        };
        if !attention_factor.is_finite() {
            return Err(ConfigError(format!("longrope over a first context of {original_context}")));
        }
        let (short, long) = (self.list("short_factor")?, self.list("long_factor")?);
        Ok(LongScaling { short, long, original_context, attention_factor })
    }
}
