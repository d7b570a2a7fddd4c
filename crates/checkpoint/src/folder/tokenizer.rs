//! The tokenizer files of a folder and what stands beside them: special tokens, chat templates.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::json;
use crate::{ChatTemplates, CheckpointError, TokenizerConfig, TokenizerData, TokenizerFormat};

/// Larger than any tokenizer file.
const LARGEST_TOKENIZER: u64 = 256 << 20;
/// Larger than any other file here.
const LARGEST_CONFIG: u64 = 32 << 20;
/// Larger than any template.
const LARGEST_TEMPLATE: u64 = 4 << 20;
/// Templates that a folder may have beside the usual one.
const MOST_TEMPLATES: usize = 64;

const ROLES: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The tokenizer, where the folder has one, and chat templates.
pub(super) fn read(folder: &Path) -> Result<(Option<TokenizerData>, ChatTemplates), CheckpointError> {
    let config = json::read_optional(&folder.join("tokenizer_config.json"), LARGEST_CONFIG)?;
    let config = config.unwrap_or(Value::Null);
    let special = json::read_optional(&folder.join("special_tokens_map.json"), LARGEST_CONFIG)?;
    let templates = templates(folder, &config)?;
    let Some((format, bytes)) = file(folder)? else { return Ok((None, templates)) };
    let mut described = describe(&config, special.as_ref().unwrap_or(&Value::Null));
    if format == TokenizerFormat::Tiktoken {
        described.pattern = config.get("pat_str").and_then(Value::as_str).map(str::to_owned);
        described.special_tokens = added_tokens(&config);
    }
    Ok((Some(TokenizerData { format, bytes, config: described }), templates))
}

/// The best of the tokenizer files that are there.
fn file(folder: &Path) -> Result<Option<(TokenizerFormat, Vec<u8>)>, CheckpointError> {
    let candidates = [
        ("tokenizer.json", TokenizerFormat::TokenizerJson),
        ("tekken.json", TokenizerFormat::Tekken),
        ("tokenizer.model", TokenizerFormat::SentencePiece),
        ("tokenizer.tiktoken", TokenizerFormat::Tiktoken),
        ("qwen.tiktoken", TokenizerFormat::Tiktoken),
    ];
    for (name, format) in candidates {
        let path = folder.join(name);
        if path.is_file() {
            let bytes = json::bytes(&path, LARGEST_TOKENIZER)?;
            // Llama 3's own files give tiktoken's ranks the name of a SentencePiece model.
            let ranks = format == TokenizerFormat::SentencePiece && are_ranks(&bytes);
            return Ok(Some((if ranks { TokenizerFormat::Tiktoken } else { format }, bytes)));
        }
    }
    Ok(None)
}

/// Whether the first line is `BASE64 NUMBER`.
fn are_ranks(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    let Some((token, rank)) = line.and_then(|line| line.trim_end().split_once(' ')) else { return false };
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    !token.is_empty() && token.bytes().all(is_base64) && rank.parse::<u32>().is_ok()
}

fn describe(config: &Value, special: &Value) -> TokenizerConfig {
    let flag = |key: &str| config.get(key).and_then(Value::as_bool);
    let token = |role: &str| text_of(config.get(role)?).or_else(|| text_of(special.get(role)?));
    let fallback = |role: &str| text_of(special.get(role)?);
    let tokens = ROLES.iter().filter_map(|role| {
        let text = token(role).or_else(|| fallback(role))?;
        Some(((*role).to_owned(), text))
    });
    TokenizerConfig {
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        tokens: tokens.collect(),
        ..TokenizerConfig::default()
    }
}

/// A token as text, or as an object with its `content`.
fn text_of(token: &Value) -> Option<String> {
    let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
    Some(text.to_owned())
}

/// `added_tokens_decoder`: texts by id.
fn added_tokens(config: &Value) -> BTreeMap<String, u32> {
    let Some(added) = config.get("added_tokens_decoder").and_then(Value::as_object) else {
        return BTreeMap::new();
    };
    added.iter().filter_map(|(id, token)| Some((text_of(token)?, id.parse().ok()?))).collect()
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
