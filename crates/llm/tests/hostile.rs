//! Damaged tokenizer files: an error or a result, never a crash, never without end.

#![allow(clippy::unwrap_used)] // a test's own helpers

use pteron_llm::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerError, TokenizerFormat};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The tokenizer files of the packed vectors.
fn tokenizer_files() -> Vec<(String, Vec<u8>)> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors.zip");
    let mut archive = zip::ZipArchive::new(File::open(packed).unwrap()).unwrap();
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        if name.starts_with("tokenizers/") && !name.ends_with("case.json") {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.push((name, bytes));
        }
    }
    files
}

#[test]
fn damaged_tokenizer_files_never_crash() {
    // The tokenizers library panics on some of these; the guard turns that into an error, and the reports into noise.
    std::panic::set_hook(Box::new(|_| {}));
    let mut random = 7u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below.max(1)
    };
    let files = tokenizer_files();
    assert!(files.len() >= 14);
    let mut sound = 0;
    for (name, bytes) in &files {
        let format = TokenizerFormat::guess(bytes).unwrap_or_else(|| panic!("{name} is not recognised"));
        for round in 0..24 {
            let mut damaged = bytes.clone();
            match round % 3 {
                0 => damaged.truncate(next(bytes.len())),
                1 => (0..=next(3)).for_each(|_| {
                    let at = next(bytes.len());
                    damaged[at] ^= 1 << next(8);
                }),
                _ => {
                    let (from, length) = (next(bytes.len()), next(64));
                    let to = (from + length).min(bytes.len());
                    damaged.drain(from..to);
                }
            }
            let Ok(tokenizer) = Tokenizer::load(format, &damaged, &TokenizerConfig::default()) else {
                continue;
            };
            sound += 1;
            if let Ok(ids) = tokenizer.encode("Hello w\u{f6}rld \u{65e5} <|end|>\n 123", Ends::AsConfigured) {
                let mut stream = tokenizer.stream();
                ids.iter().for_each(|id| drop(stream.push(*id)));
                tokenizer.decode(&ids);
            }
            tokenizer.decode(&[0, 5, u32::MAX]);
        }
    }
    let _ = std::panic::take_hook();
    assert!(sound > 20, "hardly any damaged file could be loaded, so that little was tried");
}

/// A `tokenizer.json` of one token, with one rule of its own.
fn with_rule(chain: &str, rule: Value) -> Result<Tokenizer, TokenizerError> {
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    });
    file[chain] = rule;
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &TokenizerConfig::default())
}

fn is_limit(refused: &Result<Tokenizer, TokenizerError>) -> bool {
    matches!(refused, Err(TokenizerError::Limit { .. }))
}

#[test]
fn chains_of_rules_that_make_texts_endless_are_refused() {
    let many = |rule: Value| vec![rule; 40];
    let doubling = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    // The library takes a rule without its type too.
    let nameless = json!({"pattern": {"String": "a"}, "content": "aa"});
    let expression = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "aa"});
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let spaces = json!({"type": "BPEDecoder", "suffix": ""});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let twice =
        json!({"type": "TemplateProcessing", "single": [text, text], "pair": [], "special_tokens": {}});
    let cases = [
        ("normalizer", json!({"type": "Sequence", "normalizers": many(doubling.clone())})),
        ("normalizer", json!({"normalizers": many(nameless)})),
        ("normalizer", json!({"type": "Sequence", "normalizers": many(expression)})),
        ("normalizer", json!({"type": "Sequence", "normalizers": many(json!({"type": "ByteLevel"}))})),
        ("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": many(byte_level)})),
        ("post_processor", json!({"type": "Sequence", "processors": many(twice)})),
        ("decoder", json!({"type": "Sequence", "decoders": many(doubling)})),
        ("decoder", json!({"type": "Sequence", "decoders": many(spaces)})),
    ];
    for (chain, rule) in cases {
        let refused = with_rule(chain, rule.clone());
        assert!(is_limit(&refused), "{chain} {rule}: {:?}", refused.err());
    }
}

#[test]
fn a_single_token_with_a_far_id_does_not_ask_for_a_gigabyte() {
    let tiktoken = |rank: u32| {
        let file = format!("YQ== {rank}\n");
        Tokenizer::load(TokenizerFormat::Tiktoken, file.as_bytes(), &TokenizerConfig::default())
    };
    assert!(tiktoken(60_000).is_ok());
    let (refused, in_json) = (
        tiktoken(16_000_000),
        with_rule(
            "model",
            json!({
                "type": "BPE", "vocab": {"a": 16_000_000}, "merges": []
            }),
        ),
    );
    for refused in [refused, in_json] {
        assert!(is_limit(&refused), "{:?}", refused.err());
    }
}

/// A field of a protobuf message that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let length = [(length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
    [&[number << 3 | 2][..], &length, bytes].concat()
}

/// A SentencePiece model of such pieces and scores, with a table of characters where it has one.
fn sentence_pieces(pieces: &[(&str, f32)], charsmap: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let mut file = Vec::new();
    for (text, score) in pieces {
        // A score is field 2, four bytes long.
        file.extend(field(1, &[&field(1, text.as_bytes())[..], &[0x15], &score.to_le_bytes()].concat()));
    }
    file.extend(field(3, &field(2, charsmap)));
    Tokenizer::load(TokenizerFormat::SentencePiece, &file, &TokenizerConfig::default())
}

#[test]
fn a_piece_of_nothing_does_not_make_a_text_endless() {
    let tokenizer = sentence_pieces(&[("<unk>", 0.0), ("", 1.0), ("a", 0.5)], &[]).unwrap();
    let ids = tokenizer.encode("aaa", Ends::None).unwrap();
    assert_eq!(ids, [0, 2, 2, 2], "the space in front is unknown");
}

#[test]
fn a_character_map_that_makes_long_texts_of_characters_is_refused() {
    let table = |length: usize| [&[0; 4][..], &vec![b'x'; length]].concat();
    assert!(sentence_pieces(&[("a", 0.0)], &table(200)).is_ok());
    let refused = sentence_pieces(&[("a", 0.0)], &table(2000));
    assert!(is_limit(&refused), "{:?}", refused.err());
    // The same in base64: a table of no bytes, then letters.
    let encoded = format!("{}{}", "AAAA", "AHh4".to_owned() + &"eHh4".repeat(1000));
    let refused = with_rule("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": encoded}));
    assert!(is_limit(&refused), "{:?}", refused.err());
}
