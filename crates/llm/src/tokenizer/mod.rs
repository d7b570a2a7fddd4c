//! Text to token ids and back, whatever kind of file the vocabulary came in.
//!
//! One [`Tokenizer`] for all formats: bytes of a tokenizer file flow in, ids, texts and the bytes of single tokens
//! flow out. Each format is one file that implements `Model`; everything that formats share (which ends are added,
//! what a template may call a token) lives here. Knows nothing of programs, templates or sampling.

mod bpe;
mod charsmap;
mod decoder;
mod error;
mod gguf;
mod hugging_face;
mod merge;
mod open;
mod pretokenizers;
mod protobuf;
mod sentencepiece;
mod sentences;
mod specials;
mod spelled;
mod split;
mod tiktoken;
mod unigram;
mod vocabulary;
mod wordpiece;

pub use error::TokenizerError;
pub use pteron_companion::{TokenizerConfig, TokenizerFormat};

use crate::constrain;
use crate::stream::TextStream;
use pteron_tensor::Bytes;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Which tokens [`Tokenizer::encode`] puts around a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// None: the text alone, as for a rendered chat, which spells its own.
    None,
    /// Those that the tokenizer itself adds: BOS, EOS, both or none.
    AsConfigured,
}

/// A vocabulary with its rules. Cheap to clone: clones share everything.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    model: Arc<dyn Model>,
    ends: EndTokens,
    names: BTreeMap<String, String>,
    /// What constrained output makes of the vocabulary, once it has.
    constrained: Arc<constrain::Vocabulary>,
}

/// What a format has to say. Texts and ids come from strangers: no method panics, whatever it is given.
pub(crate) trait Model: Debug + Send + Sync {
    /// Ids of a text; tokens that mark structure are seen as such where the format does that. No ends.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;

    /// The same where some of the text was heard: tokens that mark structure are seen only outside of that. Parts are in
    /// order, do not touch, and begin and end with a character.
    fn encode_heard(&self, text: &str, heard: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError>;

    /// Ids of a text with the ends that the file itself asks for.
    fn encode_with_own_ends(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text)?;
        let ends = self.own_ends();
        if let (true, Some(bos)) = (ends.add_bos, ends.bos) {
            ids.insert(0, bos);
        }
        if let (true, Some(eos)) = (ends.add_eos, ends.eos) {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The text of ids, as the format's own library gives it.
    fn decode(&self, ids: &[u32]) -> String;

    /// The bytes that a token adds to a text; `first` where nothing came before it.
    fn piece(&self, id: u32, first: bool) -> Option<Vec<u8>>;

    /// The token as the file spells it.
    fn spelling(&self, id: u32) -> Option<String>;

    /// The id of a token as the file spells it.
    fn id_of(&self, token: &str) -> Option<u32>;

    /// Whether a token marks structure instead of standing for text.
    fn is_special(&self, id: u32) -> bool;

    /// One more than the largest id.
    fn vocab_size(&self) -> usize;

    /// BOS and EOS as far as the file itself tells.
    fn own_ends(&self) -> EndTokens {
        EndTokens::default()
    }
}

/// The tokens at the ends of a text, and whether encoding adds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndTokens {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
}

/// No published vocabulary comes near; what is larger is no tokenizer.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 28;
/// Ids fit in far less; this bounds the tables that hang on them.
pub(crate) const MAX_TOKENS: usize = 1 << 24;
/// Vocabularies have few holes: an id may be this many times the number of tokens, and so much more.
const IDS_A_TOKEN: usize = 16;
const MORE_IDS: usize = 1 << 16;
/// A text longer than this is not encoded in one piece.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 28;
/// Texts whose tokens are longer on average are rare.
const BYTES_A_TOKEN: usize = 8;
/// Texts that may be far too long are looked at in pieces of this length; where they are cut, there may be so many tokens
/// more than there are without the cut, and fewer in truth.
const PIECE_BYTES: usize = 16 << 10;
const TOKENS_A_CUT: usize = 256;

impl Tokenizer {
    /// Reads a tokenizer from the bytes of its file.
    ///
    /// # Errors
    /// When the bytes are not of that format, ask for unknown rules, or are larger than any vocabulary is.
    pub fn load(
        format: TokenizerFormat,
        bytes: &[u8],
        config: &TokenizerConfig,
    ) -> Result<Tokenizer, TokenizerError> {
        check_limit("the size of the tokenizer file", bytes.len(), MAX_FILE_BYTES)?;
        let model: Arc<dyn Model> = match format {
            TokenizerFormat::TokenizerJson => Arc::new(hugging_face::read(bytes)?),
            TokenizerFormat::SentencePiece => Arc::new(sentencepiece::read(bytes)?),
            TokenizerFormat::Tiktoken => Arc::new(tiktoken::read_tiktoken(bytes, config)?),
            TokenizerFormat::Tekken => Arc::new(tiktoken::read_tekken(bytes)?),
            TokenizerFormat::Gguf => Arc::new(gguf::read(Bytes::copy_of(bytes))?),
        };
        Ok(Tokenizer::assemble(model, config))
    }

    /// Reads the vocabulary of a GGUF file that is mapped, of any size; only its metadata is looked at.
    ///
    /// # Errors
    /// When the file has no vocabulary, or one of unknown rules.
    pub fn load_gguf(file: Bytes, config: &TokenizerConfig) -> Result<Tokenizer, TokenizerError> {
        gguf::read(file).map(|model| Tokenizer::assemble(Arc::new(model), config))
    }

    fn assemble(model: Arc<dyn Model>, config: &TokenizerConfig) -> Tokenizer {
        let own = model.own_ends();
        let named = |name: &str| config.tokens.get(name).and_then(|token| model.id_of(token));
        let ends = EndTokens {
            bos: named("bos_token").or(own.bos),
            eos: named("eos_token").or(own.eos),
            add_bos: config.add_bos.unwrap_or(own.add_bos),
            add_eos: config.add_eos.unwrap_or(own.add_eos),
        };
        let mut names = config.tokens.clone();
        for (name, id) in [("bos_token", ends.bos), ("eos_token", ends.eos)] {
            if let (false, Some(token)) = (names.contains_key(name), id.and_then(|id| model.spelling(id))) {
                names.insert(name.to_owned(), token);
            }
        }
        Tokenizer { model, ends, names, constrained: Arc::default() }
    }

    /// The ids of a text. Special tokens that the text spells are seen as such, where the format does that.
    ///
    /// # Errors
    /// When the text is longer than 256 MiB, the tokenizer's pattern runs wild on it, or it holds a character that
    /// the vocabulary has no token for.
    pub fn encode(&self, text: &str, ends: Ends) -> Result<Vec<u32>, TokenizerError> {
        check_limit("the length of the text in bytes", text.len(), MAX_TEXT_BYTES)?;
        match ends {
            Ends::None => self.model.encode(text),
            Ends::AsConfigured => self.encode_with_ends(text),
        }
    }

    /// The ids of a text of which some parts were heard from users, files or tools: special tokens that those spell are
    /// text. `heard` is in order; a part that begins or ends within a character counts to the character's end.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_heard(&self, text: &str, heard: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        check_limit("the length of the text in bytes", text.len(), MAX_TEXT_BYTES)?;
        let mut whole: Vec<Range<usize>> = Vec::with_capacity(heard.len());
        for part in heard {
            let start = text.floor_char_boundary(part.start);
            let end = text.ceil_char_boundary(part.end.min(text.len()));
            match whole.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ if start < end => whole.push(start..end),
                _ => {}
            }
        }
        self.model.encode_heard(text, &whole)
    }

    /// Whether a text has more than so many tokens, where that shows from the count of its pieces: a stranger's text costs no
    /// more than what can be answered. Texts that may fit are left to be encoded whole.
    pub(crate) fn far_exceeds(&self, text: &str, most: usize) -> Result<bool, TokenizerError> {
        let (mut rest, mut tokens) = (text, 0);
        if text.len() / BYTES_A_TOKEN <= most {
            return Ok(false);
        }
        while !rest.is_empty() && tokens <= most {
            let end = rest.floor_char_boundary(PIECE_BYTES);
            tokens += self.model.encode(&rest[..end])?.len().saturating_sub(TOKENS_A_CUT);
            rest = &rest[end..];
        }
        Ok(tokens > most)
    }

    /// What the file does itself, corrected by what the configuration says.
    fn encode_with_ends(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.model.encode_with_own_ends(text)?;
        let own = self.model.own_ends();
        if let Some(bos) = self.ends.bos {
            match (own.add_bos, self.ends.add_bos) {
                (true, false) if ids.first() == own.bos.as_ref() => drop(ids.remove(0)),
                (false, true) if ids.first() != Some(&bos) => ids.insert(0, bos),
                _ => {}
            }
        }
        if let Some(eos) = self.ends.eos {
            match (own.add_eos, self.ends.add_eos) {
                (true, false) if ids.last() == own.eos.as_ref() => drop(ids.pop()),
                (false, true) if ids.last() != Some(&eos) => ids.push(eos),
                _ => {}
            }
        }
        Ok(ids)
    }

    /// The text of ids, special tokens included. Ids that the vocabulary does not have give nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.model.decode(ids)
    }

    /// Text as the tokens come, whole characters only.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }

    /// The id of a token, spelled as in the vocabulary.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.model.id_of(token)
    }

    /// The token as the vocabulary spells it.
    pub fn spelling(&self, id: u32) -> Option<String> {
        self.model.spelling(id)
    }

    /// Whether a token marks structure (turns, ends, padding) instead of standing for text.
    pub fn is_special(&self, id: u32) -> bool {
        self.model.is_special(id)
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    /// The bytes that a token stands for inside a text; none where there is no such token.
    pub fn bytes_of(&self, id: u32) -> Option<Vec<u8>> {
        self.model.piece(id, false)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.ends.bos
    }

    /// The token that ends a text. Programs may name more of them in their metadata.
    pub fn eos(&self) -> Option<u32> {
        self.ends.eos
    }

    /// Tokens by the names that chat templates use, `bos_token` and so on.
    pub fn named_tokens(&self) -> &BTreeMap<String, String> {
        &self.names
    }

    pub(crate) fn constrained(&self) -> &constrain::Vocabulary {
        &self.constrained
    }

    pub(crate) fn piece(&self, id: u32, first: bool) -> Option<Vec<u8>> {
        self.model.piece(id, first)
    }
}

pub(crate) fn check_limit(what: &'static str, found: usize, limit: usize) -> Result<(), TokenizerError> {
    if found <= limit {
        return Ok(());
    }
    Err(TokenizerError::Limit { what, found: found as u64, limit: limit as u64 })
}

/// Bounds the tables that hang on ids by what a file really has: one line could else ask for a gigabyte.
pub(crate) fn check_largest_id(largest: usize, tokens: usize) -> Result<(), TokenizerError> {
    let limit = tokens.saturating_mul(IDS_A_TOKEN).saturating_add(MORE_IDS).min(MAX_TOKENS);
    check_limit("the largest token id", largest, limit - 1)
}
