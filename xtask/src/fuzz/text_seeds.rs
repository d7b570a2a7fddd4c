//! Seeds for what surrounds a model: templates, vocabularies, conversations, schemas. Each in the form that its target in
//! `fuzz/fuzz_targets` describes.

use std::fs::File;
use std::io::Read;

use pteron_llm::tokenizer::TokenizerFormat;
use serde_json::{Map, Value, json};

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// A text with something for every rule.
const TEXT: &str = "Hello w\u{f6}rld, it's  \u{65e5}\u{672c} <|end|>\n\t 12345 <s>ﬁ\u{1f600}";

/// The templates of the vectors, each with several of their conversations.
pub(super) fn templates() -> Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    let mut inputs = Map::new();
    for (name, bytes) in vectors("templates/")? {
        let json: Value =
            serde_json::from_slice(&bytes).map_err(|error| Error::message(format!("{name}: {error}")))?;
        match name.ends_with("inputs.json") {
            true => inputs = json["inputs"].as_object().cloned().unwrap_or_default(),
            false => files.push(json),
        }
    }
    let mut seeds = Vec::new();
    for file in files {
        match (file["template"].as_str(), file.as_array()) {
            (Some(template), _) => {
                seeds.extend(inputs.values().map(|input| format!("{template}\0{input}").into_bytes()));
            }
            (None, Some(cases)) => {
                let templates = cases.iter().filter_map(|case| case["template"].as_str());
                seeds.extend(templates.map(|template| template.as_bytes().to_vec()));
            }
            (None, None) => {}
        }
    }
    Ok(seeds)
}

/// Bytes without a pattern: choices that lead somewhere from the first run on.
pub(super) fn choices() -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..64).map(|seed| (0..16 + 8 * seed).map(|_| byte()).collect()).collect()
}

/// Every vocabulary of the vectors as its file, and by its number with a text alone.
pub(super) fn tokenizers() -> Result<Vec<Vec<u8>>> {
    let length = (TEXT.len() as u16).to_le_bytes();
    let mut seeds = Vec::new();
    for (name, file) in vectors("tokenizers/")? {
        if name.ends_with("case.json") {
            continue;
        }
        let Some(format) = TokenizerFormat::guess(&file) else {
            return Err(Error::message(format!("{name} is no tokenizer")));
        };
        let Some(number) = TokenizerFormat::ALL.iter().position(|known| *known == format) else { continue };
        let known = 0x80 | (seeds.len() / 2) as u8;
        seeds.push([&[number as u8][..], &length, TEXT.as_bytes(), &file].concat());
        seeds.push([&[known][..], &length, TEXT.as_bytes()].concat());
    }
    Ok(seeds)
}

/// Commands alone, and files to go on from.
pub(super) fn conversations() -> Vec<Vec<u8>> {
    let heard = json!({"prompt": "<|turn|><|user|>Hi<|end|><|turn|><|assistant|>", "tokens": [64, 66, 33, 8, 67, 64, 68, 1]});
    let turn =
        |hidden: usize, heard: &Value| json!({"user": "Hi", "answer": "b", "hidden": hidden, "heard": heard});
    let bodies = [
        json!({"system": null, "turns": [], "hidden": 0, "vocabulary": ""}),
        json!({"system": "Be short", "turns": [turn(0, &heard)], "hidden": 0, "vocabulary": ""}),
        json!({"system": null, "turns": [turn(0, &heard), turn(1, &Value::Null)], "hidden": 1, "vocabulary": "x"}),
    ];
    let commands: [&[u8]; 4] =
        [b"", b"\0\x01", b"\0\x01\x03\0\x04\x01\x05\0", b"\0\x02\x01\x03\x05\0\x06\0\x04\0\x03\0"];
    let start = |start: u8, commands: &[u8]| [&[start, (commands.len() / 2) as u8], commands].concat();
    let mut seeds: Vec<Vec<u8>> = commands.iter().map(|commands| start(0, commands)).collect();
    for body in bodies {
        let body = body.to_string();
        seeds.extend(
            commands.iter().map(|commands| [start(2, commands).as_slice(), body.as_bytes()].concat()),
        );
        seeds.push([start(1, b"").as_slice(), b"pteron conversation 1 00\n", body.as_bytes()].concat());
    }
    seeds
}

/// The schemas that are tried with real models, and a grammar.
pub(super) fn schemas() -> Result<Vec<Vec<u8>>> {
    const GRAMMAR: &str = "start: item (\", \" item)*\nitem: WORD \"=\" NUMBER | \"[\" start \"]\"\nWORD: /[a-z]+/\nNUMBER: /[0-9]{1,3}/\n";
    let path = workspace::root().join("real").join("schemas.json");
    let json = std::fs::read(&path).doing("read", &path)?;
    let cases: Vec<Value> = serde_json::from_slice(&json).map_err(|error| Error::content(&path, error))?;
    let (schema, grammar) = ([0, 8, 0, 5, 9, 2, 7, 1, 3, 40], [1, 4, 0, 5, 9, 2]);
    let mut seeds: Vec<Vec<u8>> =
        cases.iter().map(|case| [&schema[..], case["schema"].to_string().as_bytes()].concat()).collect();
    seeds.push([&grammar[..], GRAMMAR.as_bytes()].concat());
    Ok(seeds)
}

/// The packed vectors whose names begin so, in the order of the archive.
fn vectors(prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let path = workspace::root().join("crates/llm/tests/vectors.zip");
    let file = File::open(&path).doing("open", &path)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| Error::content(&path, error))?;
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| Error::content(&path, error))?;
        let name = member.name().map_err(|error| Error::content(&path, error))?.into_owned();
        if name.starts_with(prefix) {
            let mut bytes = vec![];
            member.read_to_end(&mut bytes).doing("read", &path)?;
            found.push((name, bytes));
        }
    }
    Ok(found)
}
