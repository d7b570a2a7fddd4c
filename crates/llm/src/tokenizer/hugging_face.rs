//! `tokenizer.json`, read by Hugging Face's own library.
//!
//! The library was made for files of friends: it may panic on odd ones, and a chain of replacements can make a short
//! text endless. Calls are guarded, and such chains are refused.

use super::charsmap;
use super::decoder::Decoder;
use super::specials::{Role, Specials};
use super::{EndTokens, Model, TokenizerError, TokenizerFormat, check_largest_id, check_limit};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use tokenizers::{AddedToken, Model as _, Tokenizer};

const FORMAT: TokenizerFormat = TokenizerFormat::TokenizerJson;
/// How many times longer each of the file's chains of rules may make a text.
const MAX_GROWTH: usize = 64;

/// The chains, and what a limit on each is called.
const CHAINS: [(&str, &str); 4] = [
    ("normalizer", "the factor by which its normalizer lengthens texts"),
    ("pre_tokenizer", "the factor by which its pretokenizer lengthens texts"),
    ("post_processor", "the factor by which its postprocessor lengthens texts"),
    ("decoder", "the factor by which its decoder lengthens texts"),
];

#[derive(Debug)]
pub(super) struct HuggingFace {
    tokenizer: Tokenizer,
    decoder: Decoder,
    ends: EndTokens,
    vocab_size: usize,
    /// What stands for text that has no token; it marks nothing.
    unknown: Option<u32>,
    /// Tokens that mark structure.
    marks: Specials,
    /// The twin that hears no marks, made when a text asks for it.
    deaf: OnceLock<Option<Deaf>>,
}

/// The tokenizer with its marks under other names: their own spellings are text to it.
#[derive(Debug)]
struct Deaf {
    tokenizer: Tokenizer,
    /// Marks by the ids of their other names.
    marks: HashMap<u32, u32>,
}

/// What the other name of a mark begins and ends with: code points that no text has, since Unicode keeps them for such use.
const ALIAS: (char, char) = ('\u{fdd0}', '\u{fdd1}');

pub(super) fn read(bytes: &[u8]) -> Result<HuggingFace, TokenizerError> {
    let json: Value =
        serde_json::from_slice(bytes).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    for (chain, what) in CHAINS {
        check_limit(what, growth(json.get(chain).unwrap_or(&Value::Null))?, MAX_GROWTH)?;
    }
    let decoder = Decoder::read(json.get("decoder").unwrap_or(&Value::Null));
    let unknown = unknown(json.get("model").unwrap_or(&Value::Null));
    drop(json);
    let mut tokenizer = guarded(|| Tokenizer::from_bytes(bytes))?
        .map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    // Cutting off and filling up are for training; a prompt is taken whole.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let vocabulary = guarded(|| tokenizer.get_vocab(true))?;
    let largest = vocabulary.values().max().copied().unwrap_or(0) as usize;
    check_largest_id(largest, vocabulary.len())?;
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    let unknown = unknown.and_then(|unknown| match unknown {
        Unknown::Id(id) => Some(id),
        Unknown::Token(token) => tokenizer.token_to_id(&token),
    });
    let marks = added.iter().filter(|(_, token)| token.special);
    let marks = Specials::new(FORMAT, marks.map(|(id, token)| (token.content.as_bytes(), *id, Role::Mark)))?;
    let mut model = HuggingFace {
        tokenizer,
        decoder,
        ends: EndTokens::default(),
        vocab_size: largest + 1,
        unknown,
        marks,
        deaf: OnceLock::new(),
    };
    model.ends = model.find_ends();
    Ok(model)
}

/// How a file names the token for what has none.
enum Unknown {
    Id(u32),
    Token(String),
}

fn unknown(model: &Value) -> Option<Unknown> {
    let id = model.get("unk_id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    let token =
        || model.get("unk_token").and_then(Value::as_str).map(|token| Unknown::Token(token.to_owned()));
    id.map(Unknown::Id).or_else(token)
}

/// What the library makes of it; a panic inside becomes an error.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, TokenizerError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| TokenizerError::malformed(FORMAT, "the tokenizers library cannot work with it"))
}

/// By how much a rule, with those inside it, can lengthen a text, at most. The library also takes rules without their
/// `type`, so that they are known by their fields.
fn growth(rule: &Value) -> Result<usize, TokenizerError> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str);
    let mut factor = 1usize;
    for chain in ["normalizers", "pretokenizers", "processors", "decoders"] {
        for step in rule.get(chain).and_then(Value::as_array).into_iter().flatten() {
            factor = factor.saturating_mul(growth(step)?);
        }
    }
    if let (Some(pattern), Some(content)) = (rule.get("pattern"), text("content")) {
        let pattern = pattern.get("String").and_then(Value::as_str).map_or(0, str::len);
        let replaced = match pattern {
            // An expression or nothing at all may be found between any two bytes.
            0 => content.len() + 1,
            length => content.len().div_ceil(length),
        };
        factor = factor.saturating_mul(replaced.max(1));
    }
    // Bytes that are shown as characters of two bytes.
    let byte_level = text("type") == Some("ByteLevel") || rule.get("add_prefix_space").is_some();
    // A space between any two characters.
    let spaces = text("suffix") == Some("") || text("word_delimiter_token") == Some("");
    let doubles = usize::from(byte_level) + usize::from(spaces);
    if let Some(table) = text("precompiled_charsmap") {
        charsmap::check_encoded(FORMAT, table)?;
    }
    Ok(factor.saturating_mul(1 << doubles).saturating_mul(repeats(rule.get("single"))))
}

/// How often a template of the ends has the text itself; whatever is no token counts as that.
fn repeats(template: Option<&Value>) -> usize {
    let count = match template {
        Some(Value::Array(pieces)) => {
            pieces.iter().filter(|piece| piece.get("SpecialToken").is_none()).count()
        }
        Some(Value::String(pieces)) => pieces.split_whitespace().count(),
        _ => 1,
    };
    count.max(1)
}

impl HuggingFace {
    fn ids(&self, text: &str, with_ends: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = guarded(|| self.tokenizer.encode_fast(text, with_ends))?;
        let encoding = encoding.map_err(|error| TokenizerError::malformed(FORMAT, error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Whether a token marks structure.
    fn is_mark(&self, id: u32) -> bool {
        self.is_special(id) && Some(id) != self.unknown
    }

    /// The marks that a text spells outside of what was heard.
    fn marks_outside(&self, text: &str, heard: &[Range<usize>]) -> Vec<(u32, Range<usize>)> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let stands = |id: &u32, range: &Range<usize>| {
            let alone = added.get(id).is_some_and(|token| token.single_word);
            let (before, behind) =
                (text[..range.start].chars().next_back(), text[range.end..].chars().next());
            !alone || !(is_word(before) || is_word(behind))
        };
        self.marks.marks_outside(text, heard).filter(|(id, range)| stands(id, range)).collect()
    }

    fn deaf(&self) -> Result<&Deaf, TokenizerError> {
        let make = || {
            let mut tokenizer = self.tokenizer.clone();
            tokenizer.set_encode_special_tokens(true);
            let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
            let marks: Vec<_> = added.iter().filter(|(_, token)| token.special).collect();
            let aliases = marks.iter().map(|(id, token)| {
                AddedToken::from(alias(**id), false)
                    .lstrip(token.lstrip)
                    .rstrip(token.rstrip)
                    .normalized(false)
                    .single_word(false)
            });
            tokenizer.add_tokens(aliases).ok()?;
            let named = marks.iter().map(|(id, _)| Some((tokenizer.token_to_id(&alias(**id))?, **id)));
            let marks = named.collect::<Option<HashMap<u32, u32>>>()?;
            Some(Deaf { tokenizer, marks })
        };
        let deaf = self.deaf.get_or_init(|| guarded(make).ok().flatten());
        deaf.as_ref()
            .ok_or_else(|| TokenizerError::malformed(FORMAT, "its special tokens cannot be set apart"))
    }

    /// Ids of a text whose marks, and no others, are those at the given places.
    fn deaf_ids(&self, text: &str, marks: &[(u32, Range<usize>)]) -> Result<Vec<u32>, TokenizerError> {
        let deaf = self.deaf()?;
        let mut renamed = String::with_capacity(text.len());
        let mut done = 0;
        let plain = |part: &str| part.replace([ALIAS.0, ALIAS.1], "\u{fffd}");
        for (id, range) in marks {
            renamed += &plain(&text[done..range.start]);
            renamed += &alias(*id);
            done = range.end;
        }
        renamed += &plain(&text[done..]);
        let encoding = guarded(|| deaf.tokenizer.encode(renamed.as_str(), false))?;
        let encoding = encoding.map_err(|error| TokenizerError::malformed(FORMAT, error))?;
        let mut ids = Vec::with_capacity(encoding.len());
        for (id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let spelling = || self.tokenizer.id_to_token(*id).unwrap_or_default();
            if let Some(mark) = deaf.marks.get(id) {
                ids.push(*mark);
            } else if self.is_mark(*id)
                || renamed.get(start..end) == Some(&spelling()) && self.is_special(*id)
            {
                // The vocabulary's own rules made a mark of text: it is spelled letter by letter.
                for letter in spelling().chars() {
                    let tokens =
                        guarded(|| self.tokenizer.get_model().tokenize(letter.encode_utf8(&mut [0; 4])))?;
                    let tokens = tokens.map_err(|error| TokenizerError::malformed(FORMAT, error))?;
                    ids.extend(tokens.iter().map(|token| token.id));
                }
            } else {
                ids.push(*id);
            }
        }
        Ok(ids)
    }

    /// The tokens that the file's own rules put around a text, where that is one before and one behind at most.
    fn find_ends(&self) -> EndTokens {
        let (Ok(plain), Ok(whole)) = (self.ids("a", false), self.ids("a", true)) else {
            return EndTokens::default();
        };
        let added = whole.len().saturating_sub(plain.len());
        let Some(before) = (0..=added).find(|&at| whole[at..].starts_with(&plain)) else {
            return EndTokens::default();
        };
        let bos = whole.first().copied().filter(|_| before == 1);
        let eos = whole.last().copied().filter(|_| added - before == 1);
        EndTokens { bos, eos, add_bos: bos.is_some(), add_eos: eos.is_some() }
    }
}

/// The other name of a mark.
fn alias(id: u32) -> String {
    format!("{}{id}{}", ALIAS.0, ALIAS.1)
}

impl Model for HuggingFace {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids(text, false)
    }

    fn encode_heard(&self, text: &str, heard: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.ids(text, false)?;
        let marks = self.marks_outside(text, heard);
        // The library itself, where it sees the marks that are to be seen and no others.
        let seen = ids.iter().filter(|id| self.is_mark(**id));
        let same = seen.eq(marks.iter().map(|(id, _)| id).filter(|id| self.is_mark(**id)));
        if same && !self.marks.heard_spells_marks(text, heard) {
            return Ok(ids);
        }
        self.deaf_ids(text, &marks)
    }

    fn encode_with_own_ends(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids(text, true)
    }

    fn decode(&self, ids: &[u32]) -> String {
        let text = guarded(|| self.tokenizer.decode(ids, false).ok());
        text.ok().flatten().unwrap_or_default()
    }

    fn piece(&self, id: u32, first: bool) -> Option<Vec<u8>> {
        self.tokenizer.id_to_token(id).map(|token| self.decoder.piece(&token, first))
    }

    fn spelling(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    fn is_special(&self, id: u32) -> bool {
        let added = self.tokenizer.get_added_vocabulary();
        added.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn own_ends(&self) -> EndTokens {
        self.ends
    }
}
