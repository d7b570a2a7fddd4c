//! What sentence-transformers publishes beside an encoder: how vectors of tokens become one, how long texts may be, what is put before
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use pteron_companion::Encoder;
use pteron_models::Config;
use pteron_models::architectures::{Encodes, NORMALISED, POOLING};
use serde_json::Value;

use super::json;
use crate::CheckpointError;

/// Larger than any of these files.
const LARGEST: u64 = 1 << 20;
/// Prompts that a model may have.
const MOST_PROMPTS: usize = 256;

/// Tells the configuration what the folder's modules do behind the encoder. Modules that are not known are an error: vectors without
/// them would be others.
pub(super) fn modules(folder: &Path, config: &mut Config) -> Result<(), CheckpointError> {
    let path = folder.join("modules.json");
    let Some(list) = json::read_optional(&path, LARGEST)? else { return Ok(()) };
    let wrong = |problem: String| CheckpointError::file(&path, problem);
    let list = list.as_array().ok_or_else(|| wrong("it is no list of modules".to_owned()))?;
    for module in list {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        let (kind, place) = (text("type"), text("path"));
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Normalize" => config.set(NORMALISED, Value::Bool(true)),
            "Pooling" => {
                // A name inside the folder, and nothing above it.
                let place = Path::new(place).file_name().unwrap_or_default();
                let said = json::read(&folder.join(place).join("config.json"), LARGEST)?;
                config.set(POOLING, Value::String(pooling(&said).map_err(wrong)?));
            }
            _ => return Err(wrong(format!("it names the module {kind:?}, which is not supported"))),
        }
    }
    Ok(())
}

/// The one way of pooling that a file switches on.
fn pooling(said: &Value) -> Result<String, String> {
    if let Some(mode) = said.get("pooling_mode").and_then(Value::as_str) {
        return Ok(mode.to_owned());
    }
    let is_on = |(key, value): (&String, &Value)| {
        let mode = key.strip_prefix("pooling_mode_")?;
        (value.as_bool() == Some(true))
            .then(|| mode.trim_end_matches("_tokens").trim_end_matches("_token").to_owned())
    };
    let modes: Vec<String> = said.as_object().into_iter().flatten().filter_map(is_on).collect();
    match modes.as_slice() {
        [mode] => Ok(mode.clone()),
        modes => Err(format!("vectors of tokens are pooled in {} ways, where one is supported", modes.len())),
    }
}

/// What runners want to know of an encoder.
pub(super) fn encoder(folder: &Path, encodes: Encodes, context: usize) -> Result<Encoder, CheckpointError> {
    let lengths = json::read_optional(&folder.join("sentence_bert_config.json"), LARGEST)?;
    let longest = lengths.as_ref().and_then(|file| file.get("max_seq_length")).and_then(Value::as_u64);
    let longest = longest.and_then(|longest| usize::try_from(longest).ok()).filter(|&longest| longest > 0);
    let said = json::read_optional(&folder.join("config_sentence_transformers.json"), LARGEST)?;
    let said = said.unwrap_or(Value::Null);
    let prompts = said.get("prompts").and_then(Value::as_object).into_iter().flatten().take(MOST_PROMPTS);
    let prompts: BTreeMap<String, String> =
        prompts.filter_map(|(name, prompt)| Some((name.clone(), prompt.as_str()?.to_owned()))).collect();
    let usual = said.get("default_prompt_name").and_then(Value::as_str).map(str::to_owned);
    Ok(Encoder {
        method: encodes.method.to_owned(),
        numbers: encodes.numbers,
        tokens: longest.unwrap_or(context).min(context),
        usual_prompt: usual.filter(|name| prompts.contains_key(name)),
        prompts,
    })
}
