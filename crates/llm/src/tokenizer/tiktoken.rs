//! tiktoken and tekken: byte-pair encoding whose ranks are the tokens' own numbers.

use super::bpe::{Alphabet, Bpe, Merges};
use super::specials::{Role, Specials};
use super::spelled::{Rules, Spelled};
use super::split::Splitter;
use super::vocabulary::{Kind, Vocabulary};
use super::{EndTokens, TokenizerConfig, TokenizerError, TokenizerFormat, check_largest_id, check_limit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A vocabulary by rank, special tokens behind it or apart.
fn assemble(
    format: TokenizerFormat,
    pattern: &str,
    ranks: BTreeMap<u32, Box<[u8]>>,
    special: &BTreeMap<String, u32>,
    added_first: Vec<Box<str>>,
) -> Result<Spelled, TokenizerError> {
    let last = ranks.keys().chain(special.values()).max().copied().unwrap_or(0);
    check_largest_id(last as usize, ranks.len() + special.len())?;
    // Numbers that no token has stay empty, and an empty token is never found.
    let mut tokens: Vec<(Box<[u8]>, Kind)> = vec![(Box::default(), Kind::Unused); last as usize + 1];
    for (rank, token) in ranks {
        tokens[rank as usize] = (token, Kind::Normal);
    }
    for (token, id) in special {
        tokens[*id as usize] = (token.as_bytes().into(), Kind::Control);
    }
    let vocabulary = Vocabulary::new(tokens)?;
    let marks = special.iter().map(|(token, id)| (token.as_bytes(), *id, Role::Mark));
    let specials = Specials::new(format, marks)?;
    let splitter = Splitter::new(format, &[pattern])?;
    let bpe = Bpe { splitter, merges: Merges::Ranks, whole_words: true, alphabet: Alphabet::Bytes };
    Ok(Spelled { vocabulary, specials, rules: Rules::Bpe(bpe), ends: EndTokens::default(), added_first })
}

/// Lines of base64 and rank; pattern and special tokens come from the configuration.
pub(super) fn read_tiktoken(bytes: &[u8], config: &TokenizerConfig) -> Result<Spelled, TokenizerError> {
    const FORMAT: TokenizerFormat = TokenizerFormat::Tiktoken;
    let pattern = config.pattern.as_deref().unwrap_or(DEFAULT_PATTERN);
    let mut ranks = BTreeMap::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let malformed =
            || TokenizerError::malformed(FORMAT, format_args!("line {} is no token and rank", number + 1));
        let space = line.iter().position(|&byte| byte == b' ').ok_or_else(malformed)?;
        let token = STANDARD.decode(&line[..space]).map_err(|_| malformed())?;
        let rank = std::str::from_utf8(&line[space + 1..]).ok().and_then(|rank| rank.trim().parse().ok());
        ranks.insert(rank.ok_or_else(malformed)?, token.into());
    }
    if ranks.is_empty() {
        return Err(TokenizerError::malformed(FORMAT, "there are no tokens in it"));
    }
    assemble(FORMAT, pattern, ranks, &config.special_tokens, Vec::new())
}

/// How Llama 3 cuts words, the one family that publishes such files without a pattern beside them.
const DEFAULT_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[derive(Deserialize)]
struct Tekken {
    config: TekkenConfig,
    vocab: Vec<TekkenToken>,
    #[serde(default)]
    special_tokens: Option<Vec<TekkenSpecial>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: Option<usize>,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct TekkenToken {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct TekkenSpecial {
    rank: usize,
    token_str: String,
}

/// Special tokens of the files that do not list them.
const OLD_SPECIALS: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Mistral's file: special tokens come first, and texts never spell them.
pub(super) fn read_tekken(bytes: &[u8]) -> Result<Spelled, TokenizerError> {
    const FORMAT: TokenizerFormat = TokenizerFormat::Tekken;
    let file: Tekken =
        serde_json::from_slice(bytes).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let count = file.config.default_num_special_tokens;
    check_limit("the number of special tokens", count, 1 << 16)?;
    let mut added: Vec<Box<str>> = (0..count).map(|rank| format!("<SPECIAL_{rank}>").into()).collect();
    match file.special_tokens {
        Some(listed) => {
            for special in listed {
                if let Some(slot) = added.get_mut(special.rank) {
                    *slot = special.token_str.into();
                }
            }
        }
        None => added.iter_mut().zip(OLD_SPECIALS).for_each(|(slot, token)| *slot = token.into()),
    }
    // Files carry more tokens than the model has; the rest is for larger vocabularies.
    let kept = file.config.default_vocab_size.map_or(usize::MAX, |size| size.saturating_sub(count));
    let mut ranks = BTreeMap::new();
    for token in file.vocab.into_iter().filter(|token| (token.rank as usize) < kept) {
        let malformed =
            || TokenizerError::malformed(FORMAT, format_args!("token {} is not base64", token.rank));
        ranks.insert(token.rank, STANDARD.decode(&token.token_bytes).map_err(|_| malformed())?.into());
    }
    if ranks.is_empty() {
        return Err(TokenizerError::malformed(FORMAT, "there are no tokens in it"));
    }
    let find = |name: &str| added.iter().position(|token| **token == *name).map(|at| at as u32);
    let ends = EndTokens { bos: find("<s>"), eos: find("</s>"), ..EndTokens::default() };
    let spelled = assemble(FORMAT, &file.config.pattern, ranks, &BTreeMap::new(), added)?;
    Ok(Spelled { ends, ..spelled })
}
