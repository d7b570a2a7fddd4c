//! The few settings that a model's weights do not say, read out of its YAML: scalars and lists of them by their path. What
//! else YAML can do (anchors, text over several lines) does not occur in what is asked for, and is passed over.

use std::collections::HashMap;

/// Settings by path, such as `encoder.xscaling`.
pub(super) struct Settings(HashMap<String, Vec<String>>);

/// What has to be as it is, where a file says it: its path, and the values that will do.
const FIXED: [(&str, &[&str]); 10] = [
    ("sample_rate", &["16000"]),
    ("preprocessor.sample_rate", &["16000"]),
    ("preprocessor.n_fft", &["512"]),
    ("preprocessor.window_size", &["0.025"]),
    ("preprocessor.window_stride", &["0.01"]),
    ("preprocessor.normalize", &["per_feature"]),
    ("encoder.subsampling", &["dw_striding"]),
    ("encoder.causal_downsampling", &["false"]),
    ("encoder.self_attention_model", &["rel_pos"]),
    ("encoder.conv_norm_type", &["batch_norm"]),
];

impl Settings {
    /// Reads a file.
    pub(super) fn read(yaml: &str) -> Settings {
        let mut found: HashMap<String, Vec<String>> = HashMap::new();
        // Keys that the line is inside of, with the columns that they begin in.
        let mut around: Vec<(usize, &str)> = Vec::new();
        for line in yaml.lines() {
            let text = line.trim();
            let column = line.len() - line.trim_start().len();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if let Some(item) = text.strip_prefix("- ") {
                // An item may stand in the column of its key.
                around.retain(|(at, _)| *at <= column);
                found.entry(path(&around)).or_default().push(scalar(item));
                continue;
            }
            around.retain(|(at, _)| *at < column);
            let Some((key, value)) = text.split_once(':') else { continue };
            around.push((column, key));
            let value = value.trim();
            match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
                Some(list) => {
                    found.insert(path(&around), list.split(',').map(scalar).collect());
                }
                None if value.is_empty() => {}
                None => drop(found.insert(path(&around), vec![scalar(value)])),
            }
        }
        Settings(found)
    }

    /// What stands in the way of building the model.
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, wanted) in FIXED {
            if let Some(found) = self.word(key).filter(|found| !wanted.contains(found)) {
                let found: String = found.chars().take(40).flat_map(char::escape_debug).collect();
                return Err(format!("`{key}` is {found}; {} is built", wanted.join(" or ")));
            }
        }
        Ok(())
    }

    /// A word.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        match self.0.get(key)?.as_slice() {
            [word] => Some(word),
            _ => None,
        }
    }

    /// A whole number.
    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.word(key)?.parse().ok()
    }

    /// True or false.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.word(key)? {
            "true" | "True" => Some(true),
            "false" | "False" => Some(false),
            _ => None,
        }
    }

    /// The first of some lists that is there.
    pub(super) fn numbers(&self, keys: &[&str]) -> Option<Vec<usize>> {
        let list = |key: &&str| self.0.get(*key)?.iter().map(|number| number.parse().ok()).collect();
        keys.iter().find_map(list)
    }
}

fn path(keys: &[(usize, &str)]) -> String {
    keys.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".")
}

fn scalar(text: &str) -> String {
    text.trim().trim_matches(|quote| quote == '"' || quote == '\'').to_owned()
}

#[cfg(test)]
mod tests {
    use super::Settings;

    const YAML: &str = "\
sample_rate: 16000
# A remark: with a colon
model_defaults:
  enc_hidden: 1024
  tdt_durations:
  - 0
  - 1
  - 2
labels:
- ▁the
- ':'
preprocessor:
  normalize: 'per_feature'
  features: 128
encoder:
  xscaling: false
  att_context_size: [-1, -1]
decoding:
  durations: [0, 1, 2, 3]
  greedy:
    max_symbols: 7
";

    #[test]
    fn scalars_and_lists_are_found_by_their_path() {
        let settings = Settings::read(YAML);
        assert_eq!(settings.number("preprocessor.features"), Some(128));
        assert_eq!(settings.word("preprocessor.normalize"), Some("per_feature"));
        assert_eq!(settings.flag("encoder.xscaling"), Some(false));
        assert_eq!(settings.number("decoding.greedy.max_symbols"), Some(7));
        assert_eq!(settings.numbers(&["none", "model_defaults.tdt_durations"]), Some(vec![0, 1, 2]));
        assert_eq!(settings.numbers(&["decoding.durations"]), Some(vec![0, 1, 2, 3]));
        assert_eq!(settings.numbers(&["encoder.att_context_size"]), None);
        assert_eq!(settings.word("model_defaults"), None);
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn what_is_not_built_is_named() {
        let settings = Settings::read("encoder:\n  conv_norm_type: layer_norm\n");
        assert!(settings.check().unwrap_err().contains("`encoder.conv_norm_type` is layer_norm"));
        for text in ["", ":", "- ", "a:\n\t- x", "[", "a: [", "\u{feff}a: b: c", "- a: b\n  c: d"] {
            let _ = Settings::read(text).check();
        }
    }
}
