//! Schemas that nobody wrote: nested objects, patterns of keys, large bounds, all from one seed; and answers to them that are
//! drawn evenly from what the constraint allows, without a model, so that odd turns are as likely as good ones.

use std::fmt;

use jsonschema::Validator;
use pteron_llm::constrain::Constraint;
use pteron_llm::sampler::{Sampler, SamplerSettings};
use pteron_llm::tokenizer::Tokenizer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

/// Tokens of an answer at most: more than the longest value of any of the schemas has bytes.
const BUDGET: usize = 8192;

/// How many answers were valid, and what is wrong with the others.
pub(super) struct Outcome {
    pub(super) valid: usize,
    pub(super) wrong: Vec<String>,
}

/// Lets even chances answer so many schemas, so often in all.
pub(super) fn run(
    tokenizer: &Tokenizer,
    schemas: usize,
    answers: usize,
    seed: u64,
    mut tick: impl FnMut(),
) -> Outcome {
    let mut outcome = Outcome { valid: 0, wrong: Vec::new() };
    for number in 0..schemas {
        let schema = Source(seed.wrapping_add(number as u64)).schema(3);
        let share = answers / schemas + usize::from(number < answers % schemas);
        let ready = ready(tokenizer, &schema);
        for answer in 0..share {
            let seed = seed.wrapping_add((number * answers + answer) as u64);
            let judged = ready.as_ref().map_err(Clone::clone).and_then(|(constraint, validator)| {
                let text = draw(tokenizer, constraint.clone(), seed)?;
                judge(&text, validator).map_err(|problem| format!("{problem}: {text}"))
            });
            match judged {
                Ok(()) => outcome.valid += 1,
                Err(problem) => {
                    outcome.wrong.push(format!("schema {number}, seed {seed}: {problem}\n  {schema}"))
                }
            }
            tick();
        }
    }
    outcome
}

fn ready(tokenizer: &Tokenizer, schema: &Value) -> Result<(Constraint, Validator), String> {
    let constraint = Constraint::json_schema(tokenizer, schema).map_err(|error| error.to_string())?;
    let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
    Ok((constraint, validator))
}

fn draw(tokenizer: &Tokenizer, mut constraint: Constraint, seed: u64) -> Result<String, String> {
    let mut sampler = Sampler::new(SamplerSettings::default(), seed).map_err(|error| error.to_string())?;
    let mut ids = Vec::new();
    while !constraint.is_done() {
        if ids.len() >= BUDGET {
            return Err(format!("no end after {BUDGET} tokens: {}", tokenizer.decode(&ids)));
        }
        let so_far =
            |error: &dyn fmt::Display, ids: &[u32]| format!("{error}, after {}", tokenizer.decode(ids));
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        constraint.mask(&mut logits).map_err(|error| so_far(&error, &ids))?;
        let token = sampler.sample(&logits, &[]).map_err(|error| so_far(&error, &ids))?;
        constraint.accept(token).map_err(|error| so_far(&error, &ids))?;
        if Some(token) != tokenizer.eos() {
            ids.push(token);
        }
    }
    // Piece by piece: whole texts may lose a space at their beginning.
    let bytes: Vec<u8> = ids.iter().filter_map(|&id| tokenizer.bytes_of(id)).flatten().collect();
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

fn judge(text: &str, validator: &Validator) -> Result<(), String> {
    serde_json::from_str::<Unique>(text).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    validator.validate(&value).map_err(|error| format!("not valid: {error}"))
}

/// JSON in which no object has a key twice.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(Unique)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut keys = std::collections::BTreeSet::new();
        while let Some((key, Unique)) = map.next_entry::<String, Unique>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format!("the key {key:?} comes twice")));
            }
            keys.insert(key);
        }
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
        while let Some(Unique) = items.next_element()? {}
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }
}

/// Where choices come from: SplitMix64.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A schema whose values are nested so deeply at most.
    fn schema(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 11 }) {
            0 | 1 => self.large_integer(),
            2 => self.number(),
            3 => self.text(),
            4 => json!({"type": "string", "pattern": self.one_of(&PATTERNS)}),
            5 => self
                .one_of(&[json!({"type": "boolean"}), json!({"enum": ["a", 1, null]}), json!({"const": -3})])
                .clone(),
            6 => self.list(depth),
            7 | 8 => self.object(depth),
            9 => self.keys_of_a_pattern(depth),
            _ => json!({"anyOf": [self.schema(depth - 1), {"type": "null"}]}),
        }
    }

    /// Bounds of up to 62 bits, some apart and some near, with both signs.
    fn large_integer(&mut self) -> Value {
        let bits = 50 + self.below(13);
        let low = (self.next() >> (64 - bits)) as i64 * if self.below(2) == 0 { 1 } else { -1 };
        let width = 4096 + (self.next() >> (24 + self.below(30))) as i64;
        let mut schema = json!({"type": "integer"});
        let (minimum, maximum) = *self.one_of(&[
            ("minimum", "maximum"),
            ("exclusiveMinimum", "exclusiveMaximum"),
            ("minimum", "exclusiveMaximum"),
        ]);
        match self.below(4) {
            0 => schema[minimum] = low.into(),
            1 => schema[maximum] = low.into(),
            _ => {
                schema[minimum] = low.into();
                schema[maximum] = low.saturating_add(width).into();
            }
        }
        schema
    }

    fn number(&mut self) -> Value {
        let low = self.below(2000) as i64 - 1000;
        json!({"type": *self.one_of(&["number", "integer"]), "minimum": low, "maximum": low + 1 + self.below(500) as i64})
    }

    fn text(&mut self) -> Value {
        let least = self.below(3);
        json!({"type": "string", "minLength": least, "maxLength": least + self.below(6)})
    }

    fn list(&mut self, depth: usize) -> Value {
        let least = self.below(3);
        json!({"type": "array", "items": self.schema(depth - 1), "minItems": least, "maxItems": least + self.below(3)})
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut properties = Map::new();
        for name in ["id", "name", "n\u{e4}he", "a b"].iter().take(1 + self.below(4) as usize) {
            properties.insert((*name).to_owned(), self.schema(depth - 1));
        }
        let required: Vec<String> = properties.keys().filter(|_| self.below(2) == 0).cloned().collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// Some keys of patterns that leave few of them.
    fn keys_of_a_pattern(&mut self, depth: usize) -> Value {
        let (pattern, keys) = self.one_of(&KEYS);
        let least = self.below(keys + 1);
        let mut patterns = Map::new();
        patterns.insert((*pattern).to_owned(), self.schema(depth - 1));
        json!({"type": "object", "patternProperties": patterns, "additionalProperties": false,
               "minProperties": least, "maxProperties": least + self.below(4)})
    }
}

const PATTERNS: [&str; 5] = [
    "^[a-z]{2,5}$",
    "^(red|green|blue)-[0-9]{1,2}$",
    "^[A-Z][a-z]{0,6}$",
    "^0x[0-9a-f]{1,8}$",
    "^[^,\"]{1,3}$",
];

/// Patterns of keys, and how many keys of each an object can have, but for some more that the last ones leave.
const KEYS: [(&str, u64); 5] =
    [("^x_[a-z]$", 6), ("^[ab]$", 2), ("^(one|two|twofold)$", 3), ("^k[0-9]{1,2}$", 5), ("^[ab]{1,2}$", 6)];

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_llm::tokenizer::{TokenizerConfig, TokenizerFormat};

    /// Bytes as byte-level vocabularies spell them, and an end.
    fn bytes() -> Tokenizer {
        let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let hidden = (0..256u32).filter(|byte| !shown(byte)).zip(0x100u32..).map(|(_, shown)| shown);
        let letters = (0..256u32).filter(shown).chain(hidden).filter_map(char::from_u32);
        let vocabulary: Map<String, Value> =
            letters.enumerate().map(|(id, letter)| (letter.to_string(), id.into())).collect();
        let level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let end = json!({"id": 256, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                         "normalized": false, "special": true});
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end], "normalizer": null,
            "pre_tokenizer": level, "post_processor": null, "decoder": level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                      "ignore_merges": false, "vocab": vocabulary, "merges": []}
        });
        let tokens = [("eos_token".to_owned(), "<end>".to_owned())].into_iter().collect();
        let config = TokenizerConfig { tokens, ..TokenizerConfig::default() };
        Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
    }

    #[test]
    fn chance_answers_generated_schemas_as_they_ask() {
        let outcome = run(&bytes(), 500, 2000, 0, || ());
        assert_eq!((outcome.valid, outcome.wrong.join("\n").as_str()), (2000, ""));
    }

    #[test]
    fn a_key_that_comes_twice_is_seen_at_every_depth() {
        assert!(serde_json::from_str::<Unique>(r#"[{"a": {"b": 1, "c": [2.5, null, true]}}, "x"]"#).is_ok());
        assert!(serde_json::from_str::<Unique>(r#"[{"a": {"b": 1, "b": 2}}]"#).is_err());
    }
}
