//! How a model wants its tokens chosen: the `generation_config.json` of its publisher, as a program carries it.
//!
//! The file's bytes flow in; out flow the settings that make sense, and a line for each that does not. What the user asks
//! for wins over them.

use crate::sampler::SamplerSettings;
use serde_json::Value;

/// Settings that a model's publisher suggests; `None` where nothing is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suggested {
    /// As in [`SamplerSettings`].
    pub temperature: Option<f64>,
    /// As in [`SamplerSettings`].
    pub top_k: Option<usize>,
    /// As in [`SamplerSettings`].
    pub top_p: Option<f64>,
    /// As in [`SamplerSettings`].
    pub min_p: Option<f64>,
    /// As in [`SamplerSettings`].
    pub repetition_penalty: Option<f64>,
    /// What the file says besides and makes no sense, in words.
    pub wrong: Vec<String>,
}

/// No published file comes near.
const MOST_BYTES: usize = 1 << 20;
/// Hotter than any that makes sense; what is meant to be drawn evenly says so otherwise.
const HOTTEST: f64 = 100.0;

impl Suggested {
    /// Reads a `generation_config.json`.
    pub fn read(bytes: &[u8]) -> Suggested {
        let nothing = |wrong: String| Suggested { wrong: vec![wrong], ..Suggested::default() };
        if bytes.len() > MOST_BYTES {
            return nothing(format!("it has more than {MOST_BYTES} bytes"));
        }
        let config = match serde_json::from_slice(bytes) {
            Ok(config @ Value::Object(_)) => config,
            Ok(_) => return nothing("it is no object".to_owned()),
            Err(error) => return nothing(error.to_string()),
        };
        let mut wrong = Vec::new();
        let mut number = |name: &str, fits: fn(f64) -> bool, range: &str| {
            let value = config.get(name).filter(|value| !value.is_null())?;
            let number = value.as_f64().filter(|number| fits(*number));
            if number.is_none() {
                let shown: String = value.to_string().chars().take(40).collect();
                wrong.push(format!("`{name}` is {shown}, and must be {range}"));
            }
            number
        };
        let whole = |value: f64| value.fract() == 0.0 && (0.0..1e9).contains(&value);
        let suggested = Suggested {
            temperature: number("temperature", |value| (0.0..=HOTTEST).contains(&value), "between 0 and 100"),
            top_k: number("top_k", whole, "a whole number").map(|value| value as usize),
            top_p: number("top_p", |value| (0.0..=1.0).contains(&value), "between 0 and 1"),
            min_p: number("min_p", |value| (0.0..=1.0).contains(&value), "between 0 and 1"),
            repetition_penalty: number(
                "repetition_penalty",
                |value| value > 0.0 && value <= HOTTEST,
                "more than 0, and 100 at most",
            ),
            wrong: Vec::new(),
        };
        // Files that draw nothing often keep the settings of those that do.
        let greedy = config.get("do_sample").is_some_and(|value| value == &Value::Bool(false));
        let temperature = if greedy { Some(0.0) } else { suggested.temperature };
        Suggested { temperature, wrong, ..suggested }
    }

    /// The same without what a program that draws its tokens itself cannot do.
    pub fn for_drawing_programs(self) -> Suggested {
        Suggested { min_p: None, repetition_penalty: None, ..self }
    }

    /// These in place of some settings.
    pub fn over(&self, settings: SamplerSettings) -> SamplerSettings {
        SamplerSettings {
            temperature: self.temperature.unwrap_or(settings.temperature),
            top_k: self.top_k.unwrap_or(settings.top_k),
            top_p: self.top_p.unwrap_or(settings.top_p),
            min_p: self.min_p.unwrap_or(settings.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(settings.repetition_penalty),
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_sense_is_taken_and_the_rest_is_told() {
        let file = br#"{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 1.5, "min_p": null,
                        "repetition_penalty": "1.1", "eos_token_id": [1, 2]}"#;
        let suggested = Suggested::read(file);
        assert_eq!((suggested.temperature, suggested.top_k), (Some(0.6), Some(20)));
        assert_eq!((suggested.top_p, suggested.min_p, suggested.repetition_penalty), (None, None, None));
        assert_eq!(
            suggested.wrong,
            [
                "`top_p` is 1.5, and must be between 0 and 1",
                "`repetition_penalty` is \"1.1\", and must be more than 0, and 100 at most"
            ]
        );
        let settings = suggested.over(SamplerSettings { min_p: 0.1, ..SamplerSettings::default() });
        assert_eq!((settings.temperature, settings.top_k, settings.min_p), (0.6, 20, 0.1));
    }

    #[test]
    fn a_model_that_does_not_sample_is_greedy() {
        let suggested = Suggested::read(br#"{"do_sample": false, "temperature": 0.9}"#);
        assert_eq!((suggested.temperature, suggested.wrong.len()), (Some(0.0), 0));
    }

    #[test]
    fn any_bytes_are_settings_or_a_reason() {
        for bytes in [&b""[..], b"[]", b"{", b"\xff", b"{\"top_k\": 1e300}", b"{\"temperature\": -1}"] {
            let suggested = Suggested::read(bytes);
            assert_eq!(suggested.wrong.len(), 1, "{bytes:?}");
            assert_eq!(suggested, Suggested { wrong: suggested.wrong.clone(), ..Suggested::default() });
        }
    }
}
