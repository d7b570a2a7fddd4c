//! Tokenizer vectors: ids of texts, texts of ids, and what a stream shows after each token.

use super::{Report, VectorError, difference, list, read_json};
use crate::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerFormat};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A `case.json`.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    format: TokenizerFormat,
    /// Beside the case, or in a llama.cpp checkout.
    file: String,
    #[serde(default)]
    in_checkout: bool,
    pattern: Option<String>,
    #[serde(default)]
    special_tokens: BTreeMap<String, u32>,
    texts: Vec<Text>,
    #[serde(default)]
    streams: Vec<Stream>,
    #[serde(default)]
    invalid: Vec<Invalid>,
}

#[derive(Debug, Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
    ids_with_ends: Option<Vec<u32>>,
    decoded: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Stream {
    ids: Vec<u32>,
    pieces: Vec<String>,
    rest: String,
}

#[derive(Debug, Deserialize)]
struct Invalid {
    ids: Vec<u32>,
    decoded: String,
}

/// Runs every case below a folder: one folder a tokenizer, with its `case.json`. Vocabularies of llama.cpp's own
/// tests are looked for in `checkout`; without one, their cases are left out and counted as nothing.
///
/// # Errors
/// When a file cannot be read.
pub fn run_tokenizers(folder: &Path, checkout: Option<&Path>) -> Result<Report, VectorError> {
    let mut report = Report::default();
    for path in list(folder)?.iter().filter(|path| path.is_dir()) {
        let file = path.join("case.json");
        let case: Case = serde_json::from_value(read_json(&file)?)
            .map_err(|error| VectorError::malformed(&file, error))?;
        let vocabulary = match (case.in_checkout, checkout) {
            (true, Some(checkout)) => checkout.join(&case.file),
            (true, None) => continue,
            (false, _) => path.join(&case.file),
        };
        let bytes =
            std::fs::read(&vocabulary).map_err(|source| VectorError::Io { path: vocabulary, source })?;
        let config = TokenizerConfig {
            pattern: case.pattern.clone(),
            special_tokens: case.special_tokens.clone(),
            ..TokenizerConfig::default()
        };
        match Tokenizer::load(case.format, &bytes, &config) {
            Ok(tokenizer) => case.check(&tokenizer, &mut report),
            Err(error) => report.case(|| format!("tokenizers/{}", case.name), Err(error.to_string())),
        }
    }
    Ok(report)
}

impl Case {
    fn check(&self, tokenizer: &Tokenizer, report: &mut Report) {
        for text in &self.texts {
            let shown =
                || format!("tokenizers/{}: {:?}", self.name, text.text.chars().take(40).collect::<String>());
            report.case(shown, text.check(tokenizer));
        }
        for (index, stream) in self.streams.iter().enumerate() {
            report.case(|| format!("tokenizers/{}: stream {index}", self.name), stream.check(tokenizer));
        }
        for (index, invalid) in self.invalid.iter().enumerate() {
            let outcome = same_text(&invalid.decoded, &tokenizer.decode(&invalid.ids));
            report.case(|| format!("tokenizers/{}: invalid {index}", self.name), outcome);
        }
    }
}

impl Text {
    fn check(&self, tokenizer: &Tokenizer) -> Result<(), String> {
        let ids = tokenizer.encode(&self.text, Ends::None).map_err(|error| error.to_string())?;
        same_ids(&self.ids, &ids)?;
        if let Some(wanted) = &self.ids_with_ends {
            let ids = tokenizer.encode(&self.text, Ends::AsConfigured).map_err(|error| error.to_string())?;
            same_ids(wanted, &ids).map_err(|difference| format!("with ends: {difference}"))?;
        }
        match &self.decoded {
            Some(wanted) => same_text(wanted, &tokenizer.decode(&self.ids)),
            None => Ok(()),
        }
    }
}

impl Stream {
    fn check(&self, tokenizer: &Tokenizer) -> Result<(), String> {
        let mut stream = tokenizer.stream();
        for (at, (&id, wanted)) in self.ids.iter().zip(&self.pieces).enumerate() {
            same_text(wanted, &stream.push(id)).map_err(|difference| format!("piece {at}: {difference}"))?;
        }
        same_text(&self.rest, &stream.finish()).map_err(|difference| format!("rest: {difference}"))
    }
}

fn same_ids(wanted: &[u32], found: &[u32]) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let at = wanted.iter().zip(found).take_while(|(left, right)| left == right).count();
    let shown = |ids: &[u32]| ids.iter().skip(at).take(6).copied().collect::<Vec<_>>();
    Err(format!("at token {at}: wanted {:?}, found {:?}", shown(wanted), shown(found)))
}

fn same_text(wanted: &str, found: &str) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(difference(wanted, found)) }
}
