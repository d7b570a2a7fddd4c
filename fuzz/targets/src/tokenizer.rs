//! Any bytes as a tokenizer file of each format: an error, or a vocabulary that encodes any text to ids of its own, and turns
//! any ids into text, at once and one by one.
//!
//! The first byte says what follows: the format and what the configuration adds, or, with its highest bit, that one of the
//! vocabularies of the vectors is used, of which those of bytes must give the text back. Then the length of a text in two
//! bytes, the text, and the file.

use crate::memory::within;
use crate::vocabularies::{self, Known};
use crate::{Source, let_guards_catch};
use pteron_llm::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerFormat};
use std::sync::LazyLock;

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(vocabularies::all);

/// What a vocabulary takes, whatever is in its file: patterns have a bound of 32 MiB of their own.
const LOADED: usize = 128 << 20;
/// Further bytes for each byte of the file.
const LOADED_A_BYTE: usize = 2048;
/// What a text takes, and each of its bytes for each byte that a rule of the file may make of it.
const ENCODED: usize = 64 << 20;
const ENCODED_A_BYTE: usize = 64 << 10;

/// One input.
pub fn run(data: &[u8]) {
    // The library behind tokenizer.json panics on odd files, which is guarded.
    let_guards_catch();
    let mut source = Source::new(data);
    let kind = source.byte();
    let length = usize::from(source.word());
    let text = source.text(length);
    if kind & 0x80 != 0 {
        let known = &KNOWN[usize::from(kind & 0x7f) % KNOWN.len()];
        let ids = check(&known.tokenizer, &text, source.rest());
        check_heard(known, &text);
        if known.gives_back {
            let ids = ids.unwrap_or_else(|| panic!("{} has no token for {text:?}", known.name));
            assert_eq!(known.tokenizer.decode(&ids), text, "{}", known.name);
        }
        return;
    }
    let format = TokenizerFormat::ALL[usize::from(kind & 0x0f) % TokenizerFormat::ALL.len()];
    let mut config = TokenizerConfig {
        add_bos: (kind & 0x10 != 0).then_some(kind & 0x20 != 0),
        add_eos: (kind & 0x10 != 0).then_some(kind & 0x40 != 0),
        ..TokenizerConfig::default()
    };
    if kind & 0x20 != 0 {
        config.tokens = [("bos_token", "<s>"), ("eos_token", "<|end|>")]
            .map(|(name, token)| (name.to_owned(), token.to_owned()))
            .into();
        config.special_tokens = [("<s>".to_owned(), 400), ("<|end|>".to_owned(), 401)].into();
    }
    let file = source.rest();
    let loaded =
        within(LOADED + LOADED_A_BYTE * file.len(), "loading", || Tokenizer::load(format, file, &config));
    let Ok(tokenizer) = loaded else { return };
    let ids = check(&tokenizer, &text, file);
    // Ranks alone: each byte has a token, or is left out.
    let ranks = matches!(format, TokenizerFormat::Tiktoken | TokenizerFormat::Tekken);
    if let (true, Some(ids)) = (ranks && has_every_byte(&tokenizer), ids) {
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

/// Encodes a text and decodes its ids and any others; the ids where there are any.
fn check(tokenizer: &Tokenizer, text: &str, any: &[u8]) -> Option<Vec<u32>> {
    let limit = ENCODED + ENCODED_A_BYTE * (text.len() + 8);
    let encoded = within(limit, "encoding", || {
        let _ = tokenizer.encode(text, Ends::AsConfigured);
        // Parts of any borders, the last of which was heard to an end that is not there.
        let parts =
            [text.len() / 4..text.len() / 2, text.len() / 2..text.len() / 2, text.len() * 3 / 4..usize::MAX];
        if let Ok(ids) = tokenizer.encode_heard(text, &parts) {
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        }
        tokenizer.encode(text, Ends::None)
    });
    let any = any.chunks(3).take(64).map(|id| id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte)));
    let any: Vec<u32> = any.chain([0, u32::MAX]).collect();
    let size = tokenizer.vocab_size();
    for ids in [encoded.as_deref().unwrap_or_default(), &any] {
        let limit = ENCODED + ENCODED_A_BYTE * (ids.len() + 8);
        within(limit, "decoding", || {
            tokenizer.decode(ids);
            let mut stream = tokenizer.stream();
            ids.iter().for_each(|&id| drop(stream.push(id)));
            stream.finish();
        });
    }
    for &id in any.iter().filter(|&&id| id as usize >= size) {
        assert_eq!(tokenizer.bytes_of(id), None, "token {id} of a vocabulary of {size}");
    }
    let ids = encoded.ok()?;
    for &id in &ids {
        assert!((id as usize) < size, "token {id} of a vocabulary of {size}");
    }
    Some(ids)
}

/// What was heard spells no special token.
fn check_heard(known: &Known, text: &str) {
    let tokenizer = &known.tokenizer;
    let whole = 0..text.len();
    let Ok(ids) = tokenizer.encode_heard(text, std::slice::from_ref(&whole)) else { return };
    let forged = |id: &u32| {
        let spelling = tokenizer.bytes_of(*id).unwrap_or_default();
        let spelling = String::from_utf8_lossy(&spelling);
        tokenizer.is_special(*id) && !spelling.is_empty() && text.contains(&*spelling)
    };
    assert_eq!(ids.iter().find(|&id| forged(id)), None, "{}: {text:?}", known.name);
}

/// Whether each byte alone is a token that texts may use.
fn has_every_byte(tokenizer: &Tokenizer) -> bool {
    let mut seen = [false; 256];
    for id in 0..tokenizer.vocab_size().min(4096) as u32 {
        if let (Some([byte]), false) = (tokenizer.bytes_of(id).as_deref(), tokenizer.is_special(id)) {
            seen[usize::from(*byte)] = true;
        }
    }
    seen.iter().all(|&seen| seen)
}
