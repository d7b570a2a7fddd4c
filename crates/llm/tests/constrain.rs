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
