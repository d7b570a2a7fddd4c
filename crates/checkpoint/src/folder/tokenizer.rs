//! The tokenizer files of a folder and what stands beside them: special tokens, chat templates.

use std::collections::BTreeMap;
use std::path::Path;

use pteron_companion::{TokenizerConfig, TokenizerFormat};
use serde_json::Value;

use super::json;
use crate::{ChatTemplates, CheckpointError, TokenizerData};

/// Larger than any tokenizer file.
const LARGEST_TOKENIZER: u64 = 256 << 20;
/// Larger than any other file here.
const LARGEST_CONFIG: u64 = 32 << 20;
/// Larger than any template.
const LARGEST_TEMPLATE: u64 = 4 << 20;
/// Templates that a folder may have beside the usual one.
const MOST_TEMPLATES: usize = 64;

/// The tokenizer, where the folder has one, and chat templates.
pub(super) fn read(folder: &Path) -> Result<(Option<TokenizerData>, ChatTemplates), CheckpointError> {
    let config = json::read_optional(&folder.join("tokenizer_config.json"), LARGEST_CONFIG)?;
    let config = config.unwrap_or(Value::Null);
    let special = json::read_optional(&folder.join("special_tokens_map.json"), LARGEST_CONFIG)?;
    let templates = templates(folder, &config)?;
    let Some((format, bytes)) = file(folder)? else { return Ok((None, templates)) };
    let special = special.unwrap_or(Value::Null);
    let config = TokenizerConfig::from_hugging_face(format, &config, &special);
    Ok((Some(TokenizerData { format, bytes, config }), templates))
}

/// The best of the tokenizer files that are there.
fn file(folder: &Path) -> Result<Option<(TokenizerFormat, Vec<u8>)>, CheckpointError> {
    let mut paths = TokenizerFormat::FILE_NAMES.iter().map(|name| folder.join(name));
    let Some(path) = paths.find(|path| path.is_file()) else { return Ok(None) };
    let bytes = json::bytes(&path, LARGEST_TOKENIZER)?;
    let format = TokenizerFormat::guess(&bytes)
        .ok_or_else(|| CheckpointError::file(&path, "it is no tokenizer of a known format"))?;
    Ok(Some((format, bytes)))
}

/// Templates in files of their own, or else in the tokenizer's configuration.
fn templates(folder: &Path, config: &Value) -> Result<ChatTemplates, CheckpointError> {
    let mut templates = ChatTemplates::default();
    match config.get("chat_template") {
        Some(Value::String(template)) => templates.default = Some(template.clone()),
        Some(Value::Array(list)) => {
            for entry in list.iter().take(MOST_TEMPLATES) {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                match (text("name"), text("template")) {
                    (Some(name), Some(template)) if name == "default" => templates.default = Some(template),
                    (Some(name), Some(template)) => drop(templates.named.insert(name, template)),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    let wrapped = json::read_optional(&folder.join("chat_template.json"), LARGEST_TEMPLATE)?;
    let wrapped = wrapped.as_ref().and_then(|file| file.get("chat_template")).and_then(Value::as_str);
    if let Some(template) = wrapped {
        templates.default = Some(template.to_owned());
    }
    if let Some(template) = json::text_optional(&folder.join("chat_template.jinja"), LARGEST_TEMPLATE)? {
        templates.default = Some(template);
    }
    for (name, template) in additional(&folder.join("additional_chat_templates"))? {
        templates.named.insert(name, template);
    }
    Ok(templates)
}

/// Templates by name in a folder of their own.
fn additional(folder: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let mut templates = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(templates);
    }
    let io = |error| CheckpointError::io(folder, error);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some((name, text)) = name.zip(json::text_optional(&path, LARGEST_TEMPLATE)?)
        {
            templates.insert(name, text);
        }
        if templates.len() > MOST_TEMPLATES {
            return Err(CheckpointError::file(folder, format!("more than {MOST_TEMPLATES} templates")));
        }
    }
    Ok(templates)
}
