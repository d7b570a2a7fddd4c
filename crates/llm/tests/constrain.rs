//! Whatever a sampler chooses under a constraint fits the schema or the grammar.

#![allow(clippy::unwrap_used)] // a test's own helpers

use pteron_llm::constrain::{Constraint, ConstraintError};
use pteron_llm::sampler::{Sampler, SamplerSettings};
use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFormat};
use serde_json::{Value, json};

/// Bytes, some longer tokens, and an end.
fn tokenizer() -> Tokenizer {
    let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    tokens.extend([b"{\"".to_vec(), b"\": ".to_vec(), b", \"".to_vec(), b"name".to_vec(), b"true".to_vec()]);
    // Words in all their pieces, as large vocabularies have them: many ways lead to one text.
    for word in ["one", "twofold"] {
        let pieces = (0..word.len()).flat_map(|from| (from + 2..=word.len()).map(move |to| &word[from..to]));
        tokens.extend(pieces.map(|piece| piece.as_bytes().to_vec()));
    }
    let encode = |bytes: &[u8]| {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let joined =
                chunk.iter().chain([&0; 2]).take(3).fold(0u32, |joined, byte| joined << 8 | u32::from(*byte));
            for digit in 0..4 {
                let value = DIGITS[(joined >> (18 - 6 * digit)) as usize & 63];
                text.push(if digit <= chunk.len() { char::from(value) } else { '=' });
            }
        }
        text
    };
    let lines: String =
        tokens.iter().enumerate().map(|(rank, token)| format!("{} {rank}\n", encode(token))).collect();
    let end = tokens.len() as u32;
    let config = TokenizerConfig {
        tokens: [("eos_token".to_owned(), "<|end|>".to_owned())].into(),
        special_tokens: [("<|end|>".to_owned(), end)].into(),
        ..TokenizerConfig::default()
    };
    Tokenizer::load(TokenizerFormat::Tiktoken, lines.as_bytes(), &config).unwrap()
}

/// Text that is drawn from even logits, which favour nothing.
fn generate(constraint: &mut Constraint, tokenizer: &Tokenizer, seed: u64) -> String {
    generate_with(constraint, tokenizer, seed, None)
}

/// Text that is drawn from logits that are even but for a byte that is said wherever it may be.
fn generate_with(
    constraint: &mut Constraint,
    tokenizer: &Tokenizer,
    seed: u64,
    favoured: Option<u8>,
) -> String {
    let mut sampler = Sampler::new(SamplerSettings::default(), seed).unwrap();
    let mut ids = Vec::new();
    for _ in 0..2000 {
        if constraint.is_done() {
            return tokenizer.decode(&ids);
        }
        let mut logits = vec![0.0; tokenizer.vocab_size() + 5];
        if let Some(byte) = favoured {
            logits[usize::from(byte)] = 50.0;
        }
        constraint.mask(&mut logits).unwrap();
        let token = sampler.sample(&logits, &[]).unwrap();
        constraint.accept(token).unwrap();
        if Some(token) != tokenizer.eos() {
            ids.push(token);
        }
    }
    panic!("no end in sight: {}", tokenizer.decode(&ids));
}

#[test]
fn random_texts_under_a_schema_are_values_of_it() {
    let tokenizer = tokenizer();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 3},
            "ok": {"type": "boolean"}
        },
        "required": ["name", "age", "tags", "ok"],
        "additionalProperties": false,
        "$defs": {"tag": {"enum": ["red", "gr\u{fc}n"]}}
    });
    for seed in 0..60 {
        let mut constraint = Constraint::json_schema(&tokenizer, &schema).unwrap();
        let text = generate(&mut constraint, &tokenizer, seed);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["name"].as_str().unwrap().chars().count() <= 6, "{text}");
        assert!((0..=120).contains(&value["age"].as_i64().unwrap()), "{text}");
        let tags = value["tags"].as_array().unwrap();
        assert!(
            (1..=3).contains(&tags.len()) && tags.iter().all(|tag| tag == "red" || tag == "gr\u{fc}n"),
            "{text}"
        );
        assert!(value["ok"].is_boolean() && value.as_object().unwrap().len() == 4, "{text}");
    }
}

#[test]
fn numbers_have_an_end() {
    let tokenizer = tokenizer();
    let schemas = [
        json!({"type": "number"}),
        json!({"type": "integer"}),
        json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        json!({"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 0}),
        json!({"type": "number", "minimum": 0.5, "maximum": 0.5001}),
        json!({"type": "number", "exclusiveMinimum": 99, "exclusiveMaximum": 100}),
        json!({"type": "number", "exclusiveMinimum": -1e3, "exclusiveMaximum": -0.5}),
        json!({"type": "integer", "multipleOf": 10}),
        json!({"const": 1_000_000_000_000_000_000_000_000_000i128 as f64}),
        json!({"enum": [0.000_000_000_000_000_000_000_012_5]}),
    ];
    for schema in schemas {
        let validator = jsonschema::validator_for(&schema).unwrap();
        for favoured in b"0123456789.e" {
            let mut constraint = Constraint::json_schema(&tokenizer, &schema).unwrap();
            let text = generate_with(&mut constraint, &tokenizer, 7, Some(*favoured));
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(validator.is_valid(&value), "{schema}: {text}");
            assert!(text.len() < 64, "{schema}: {text}");
        }
    }
}

#[test]
fn a_grammar_is_kept_and_a_wrong_token_refused() {
    let tokenizer = tokenizer();
    let mut constraint =
        Constraint::grammar(&tokenizer, "start: /[0-9]{3}/ \"-\" (\"yes\" | \"no\")").unwrap();
    let mut fork = constraint.clone();
    assert_eq!(fork.accept(u32::from(b'x')), Err(ConstraintError::NotAllowed { token: u32::from(b'x') }));
    for seed in 0..20 {
        let text = generate(&mut constraint.clone(), &tokenizer, seed);
        let (digits, word) = text.split_once('-').unwrap();
        assert!(digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit()), "{text}");
        assert!(word == "yes" || word == "no", "{text}");
    }
    assert!(!constraint.is_done() && !constraint.may_end());
}

#[test]
fn what_cannot_be_honoured_is_an_error() {
    let tokenizer = tokenizer();
    let schemas = [
        json!(3),
        json!({"type": "nonsense"}),
        json!({"type": "array", "uniqueItems": true}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"type": "string", "x-guidance": {"lenient": true}}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
    ];
    for schema in schemas {
        let error = Constraint::json_schema(&tokenizer, &schema).map(|_| ()).unwrap_err();
        assert!(matches!(error, ConstraintError::Refused { kind: "JSON schema", .. }), "{schema}: {error}");
    }
    assert!(Constraint::grammar(&tokenizer, "start: missing").is_err());
    assert!(Constraint::grammar(&tokenizer, "start: ((").is_err());
    let without_end =
        Tokenizer::load(TokenizerFormat::Tiktoken, b"YQ== 0\n", &TokenizerConfig::default()).unwrap();
    let error = Constraint::grammar(&without_end, "start: \"a\"").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("names no token for the end"), "{error}");
}

/// The entries of an object in their order, keys that come twice included.
struct Entries(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Entries;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[test]
fn large_bounds_are_kept_to_the_last_digit() {
    let tokenizer = tokenizer();
    let two_53 = 1i64 << 53;
    let most = i64::MAX;
    let cases = [
        (json!({"minimum": two_53 + 1, "maximum": two_53 + 3}), two_53 + 1, i128::from(two_53) + 3),
        (
            json!({"exclusiveMinimum": two_53, "exclusiveMaximum": two_53 + 3}),
            two_53 + 1,
            i128::from(two_53) + 2,
        ),
        (json!({"minimum": -two_53 - 3, "maximum": -two_53 - 1}), -two_53 - 3, -i128::from(two_53) - 1),
        (json!({"minimum": 0, "maximum": two_53 + 1}), 0, i128::from(two_53) + 1),
        (json!({"minimum": most / 7, "maximum": most / 7 + 999}), most / 7, i128::from(most / 7) + 999),
        (json!({"minimum": most - 2000}), most - 2000, i128::from(most)),
        (json!({"maximum": 2000 - most}), -most, 2000 - i128::from(most)),
        (json!({"minimum": 2 * two_53 + 1, "multipleOf": 2}), 2 * two_53 + 1, i128::MAX),
    ];
    for (mut schema, low, high) in cases {
        schema["type"] = json!("integer");
        let constraint = Constraint::json_schema(&tokenizer, &schema).unwrap();
        for seed in 0..10 {
            let favoured = b'0' + seed as u8;
            for favoured in [None, Some(favoured)] {
                let text = generate_with(&mut constraint.clone(), &tokenizer, seed, favoured);
                let value: i128 = text.parse().unwrap_or_else(|error| panic!("{schema}: {error}: {text}"));
                assert!((i128::from(low)..=high).contains(&value), "{schema}: {text}");
            }
        }
    }
    let refused = [
        (json!({"type": "integer", "minimum": 1e30}), "more than 64 bits"),
        (json!({"type": "integer", "maximum": -1e30}), "more than 64 bits"),
        (json!({"type": "integer", "minimum": two_53 + 1, "maximum": two_53 + 1}), "64-bit floats hold"),
        (json!({"enum": [1, two_53 + 1]}), "64-bit floats hold"),
    ];
    for (schema, reason) in refused {
        let error = Constraint::json_schema(&tokenizer, &schema).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn no_key_comes_twice() {
    let tokenizer = tokenizer();
    let digit = json!({"enum": [1]});
    let schemas = [
        // What tells first: the second key can only be another one than the first.
        (
            json!({"patternProperties": {"^x_[a-z]$": digit}, "additionalProperties": false,
                "minProperties": 2, "maxProperties": 3}),
            2..=3,
        ),
        // All keys that there are, though more would be allowed.
        (
            json!({"patternProperties": {"^(one|two|twofold)$": digit}, "additionalProperties": false,
                "minProperties": 3, "maxProperties": 9}),
            3..=3,
        ),
        (
            json!({"patternProperties": {"^[ab]{1,2}$": digit}, "additionalProperties": false, "minProperties": 5,
                "maxProperties": 6}),
            5..=6,
        ),
        (json!({"additionalProperties": digit, "minProperties": 3, "maxProperties": 4}), 3..=4),
        (
            json!({"properties": {"a": digit}, "required": ["a"], "patternProperties": {"^.{0,2}$": digit},
                "additionalProperties": false, "maxProperties": 3}),
            1..=3,
        ),
    ];
    for (mut schema, count) in schemas {
        schema["type"] = json!("object");
        let constraint = Constraint::json_schema(&tokenizer, &schema).unwrap();
        for seed in 0..12 {
            // Free keys have no end of their own.
            let free = schema["additionalProperties"] == digit;
            let favoured = [Some(b'"'), Some(b'a'), Some(b','), None];
            for favoured in favoured.into_iter().take(if free { 1 } else { 4 }) {
                let text = generate_with(&mut constraint.clone(), &tokenizer, seed, favoured);
                let Entries(entries) =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                let keys: std::collections::BTreeSet<&str> =
                    entries.iter().map(|(key, _)| key.as_str()).collect();
                assert_eq!(keys.len(), entries.len(), "{schema}: {text}");
                assert!(count.contains(&entries.len()), "{schema}: {text}");
            }
        }
    }
    // More keys than there can be: an error in the end, and no key twice.
    let schema = json!({"type": "object", "patternProperties": {"^[ab]$": digit}, "additionalProperties": false,
                        "minProperties": 3});
    let mut constraint = Constraint::json_schema(&tokenizer, &schema).unwrap();
    let stopped = (0..200).find_map(|_| {
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        constraint.mask(&mut logits).err().or_else(|| {
            let token = logits.iter().position(|logit| *logit == 0.0).unwrap();
            constraint.accept(token as u32).err()
        })
    });
    assert!(stopped.unwrap().to_string().contains("has come already"));
}

#[test]
fn reasons_are_in_words_that_users_know() {
    let tokenizer = tokenizer();
    let overlap = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    let refused = |constraint: Result<Constraint, ConstraintError>| match constraint {
        Err(ConstraintError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let reason = refused(Constraint::json_schema(&tokenizer, &overlap));
    assert!(reason.contains("anyOf") && !reason.contains("coerce"), "{reason}");
    let endless = refused(Constraint::json_schema(&tokenizer, &json!({"$ref": "#"})));
    let also = refused(Constraint::grammar(&tokenizer, "start: start start"));
    for reason in [endless, also] {
        assert!(reason.contains("fits it") && !reason.contains("NoExtension"), "{reason}");
    }
}
