//! The vocabulary that a GGUF file carries in its metadata.

use super::bpe::Bpe;
use super::charsmap::Normalizer;
use super::pretokenizers;
use super::sentencepiece::kind_of;
use super::sentences::{Algorithm, Sentences};
use super::specials::{Role, Specials};
use super::spelled::{Rules, Spelled};
use super::split::Splitter;
use super::vocabulary::{Kind, Vocabulary};
use super::wordpiece::WordPiece;
use super::{EndTokens, TokenizerError, TokenizerFormat};
use pteron_gguf::{Gguf, Limits, Metadata};
use pteron_tensor::Bytes;

const FORMAT: TokenizerFormat = TokenizerFormat::Gguf;

pub(super) fn read(bytes: Bytes) -> Result<Spelled, TokenizerError> {
    let file =
        Gguf::read(bytes, &Limits::default()).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let keys = Keys(file.metadata());
    let model = keys.text("model").ok_or_else(|| {
        TokenizerError::malformed(FORMAT, "there is no vocabulary in it (`tokenizer.ggml.model` is missing)")
    })?;
    let vocabulary = vocabulary(&keys)?;
    match model {
        "gpt2" | "gemma4" => byte_pair(&keys, model, vocabulary),
        "llama" => scored(&keys, vocabulary),
        "bert" => word_pieces(&keys, vocabulary),
        other => Err(TokenizerError::unsupported(FORMAT, format_args!("the rules called `{other}`"))),
    }
}

/// The entries under `tokenizer.ggml.`.
struct Keys<'f>(Metadata<'f>);

impl<'f> Keys<'f> {
    fn get(&self, name: &str) -> Option<pteron_gguf::Value<'f>> {
        self.0.get(&format!("tokenizer.ggml.{name}"))
    }

    fn text(&self, name: &str) -> Option<&'f str> {
        self.get(name)?.as_str()
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    fn strings(&self, name: &str) -> Result<impl Iterator<Item = &'f [u8]>, TokenizerError> {
        let array = self.get(name).and_then(|value| value.as_array()).and_then(|array| array.strings());
        array.ok_or_else(|| {
            TokenizerError::malformed(FORMAT, format_args!("`tokenizer.ggml.{name}` is no list of strings"))
        })
    }

    /// A token's id, where it is one of the vocabulary.
    fn token(&self, name: &str, vocabulary: &Vocabulary) -> Option<u32> {
        let id = self.get(name)?.as_u64()?;
        u32::try_from(id).ok().filter(|id| (*id as usize) < vocabulary.len())
    }

    fn ends(&self, vocabulary: &Vocabulary, add_bos: bool, add_eos: bool) -> EndTokens {
        EndTokens {
            bos: self.token("bos_token_id", vocabulary),
            eos: self.token("eos_token_id", vocabulary),
            add_bos: self.flag("add_bos_token").unwrap_or(add_bos),
            add_eos: self.flag("add_eos_token").unwrap_or(add_eos),
        }
    }
}

fn vocabulary(keys: &Keys<'_>) -> Result<Vocabulary, TokenizerError> {
    let kinds: Vec<i64> = keys
        .get("token_type")
        .and_then(|value| value.as_array())
        .and_then(|array| array.integers())
        .map(Iterator::collect)
        .unwrap_or_default();
    let kind = |index: usize| kinds.get(index).copied().and_then(kind_of).unwrap_or(Kind::Normal);
    let tokens = keys.strings("tokens")?.enumerate().map(|(index, token)| (token.into(), kind(index)));
    Vocabulary::new(tokens.collect())
}

/// Tokens that are looked for in texts before anything else.
fn specials(vocabulary: &Vocabulary) -> Result<Specials, TokenizerError> {
    let special = |kind| matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown);
    let tokens = vocabulary.iter().filter(|(_, _, kind)| special(*kind));
    let role = |kind| if kind == Kind::UserDefined { Role::Text } else { Role::Mark };
    Specials::new(FORMAT, tokens.map(|(id, token, kind)| (token, id, role(kind))))
}

fn byte_pair(keys: &Keys<'_>, model: &str, vocabulary: Vocabulary) -> Result<Spelled, TokenizerError> {
    let name = if model == "gemma4" { "gemma4" } else { keys.text("pre").unwrap_or("default") };
    let pretokenizer = pretokenizers::find(name).ok_or_else(|| {
        TokenizerError::unsupported(FORMAT, format_args!("the pretokenizer called `{name}`"))
    })?;
    let bpe = Bpe {
        splitter: Splitter::new(FORMAT, pretokenizer.patterns)?,
        merges: Bpe::pairs(FORMAT, &vocabulary, keys.strings("merges")?)?,
        whole_words: pretokenizer.whole_words,
        alphabet: pretokenizer.alphabet,
    };
    let (specials, ends) = (specials(&vocabulary)?, keys.ends(&vocabulary, pretokenizer.add_bos, false));
    Ok(Spelled { vocabulary, specials, rules: Rules::Bpe(bpe), ends, added_first: Vec::new() })
}

/// SentencePiece vocabularies, of which GGUF keeps pieces and scores.
fn scored(keys: &Keys<'_>, vocabulary: Vocabulary) -> Result<Spelled, TokenizerError> {
    let scores = keys.get("scores").and_then(|value| value.as_array()).and_then(|array| array.floats());
    let scores: Vec<f32> = scores
        .ok_or_else(|| TokenizerError::malformed(FORMAT, "`tokenizer.ggml.scores` is no list of numbers"))?
        .map(|score| score as f32)
        .collect();
    let normalizer = Normalizer {
        add_prefix: keys.flag("add_space_prefix").unwrap_or(true),
        escape_spaces: true,
        ..Normalizer::default()
    };
    let unknown = keys.token("unknown_token_id", &vocabulary).or_else(|| (vocabulary.len() > 0).then_some(0));
    let rules = Rules::Sentences(Box::new(Sentences {
        normalizer,
        algorithm: Algorithm::Bpe,
        scores,
        unknown,
        byte_fallback: true,
        unknown_text: " \u{2047} ".to_owned(),
        user_defined: Specials::new(FORMAT, std::iter::empty())?,
    }));
    let (specials, ends) = (specials(&vocabulary)?, keys.ends(&vocabulary, true, false));
    Ok(Spelled { vocabulary, specials, rules, ends, added_first: Vec::new() })
}

fn word_pieces(keys: &Keys<'_>, vocabulary: Vocabulary) -> Result<Spelled, TokenizerError> {
    let longest = vocabulary.iter().map(|(_, token, _)| token.len()).max().unwrap_or(0);
    let rules = Rules::WordPiece(WordPiece { unknown: keys.token("unknown_token_id", &vocabulary), longest });
    let mut ends = keys.ends(&vocabulary, true, true);
    ends.bos = ends.bos.or(keys.token("cls_token_id", &vocabulary));
    ends.eos = ends.eos.or(keys.token("seperator_token_id", &vocabulary));
    let specials = specials(&vocabulary)?;
    Ok(Spelled { vocabulary, specials, rules, ends, added_first: Vec::new() })
}
