//! JSON and text files of a folder, each under a bound on its size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::CheckpointError;

/// Bytes of a file that is no longer than that.
pub(super) fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, CheckpointError> {
    let io = |error| CheckpointError::io(path, error);
    let mut file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.by_ref().take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return Err(CheckpointError::file(path, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// A JSON file. Python writes numbers that JSON does not have, in configurations of Mamba 2 among others; they are read as null.
pub(super) fn read(path: &Path, most: u64) -> Result<Value, CheckpointError> {
    let bytes = bytes(path, most)?;
    let parsed = serde_json::from_slice(&bytes);
    let parsed =
        parsed.or_else(|error| serde_json::from_slice(&without_infinities(&bytes)).map_err(|_| error));
    parsed.map_err(|error| CheckpointError::file(path, error.to_string()))
}

/// The same text with null for `Infinity`, `-Infinity` and `NaN` outside of strings.
fn without_infinities(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let (mut at, mut in_string) = (0, false);
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        let word = ["-Infinity", "Infinity", "NaN"].iter().find(|word| rest.starts_with(word.as_bytes()));
        match (in_string, byte, word) {
            (false, _, Some(word)) => {
                out.extend(b"null");
                at += word.len();
                continue;
            }
            (true, b'\\', _) => {
                out.push(byte);
                at += 1;
            }
            (_, b'"', _) => in_string = !in_string,
            _ => {}
        }
        out.extend(text.get(at));
        at += 1;
    }
    out
}

/// A JSON file, where there is one.
pub(super) fn read_optional(path: &Path, most: u64) -> Result<Option<Value>, CheckpointError> {
    if path.is_file() { read(path, most).map(Some) } else { Ok(None) }
}

/// A UTF-8 file, where there is one.
pub(super) fn text_optional(path: &Path, most: u64) -> Result<Option<String>, CheckpointError> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = String::from_utf8(bytes(path, most)?);
    text.map(Some).map_err(|_| CheckpointError::file(path, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::without_infinities;

    #[test]
    fn only_numbers_become_null() {
        let text = br#"{"Infinity": [0.0, Infinity, -Infinity], "a\"NaN": NaN, "b": "\\"}"#;
        let read: serde_json::Value = serde_json::from_slice(&without_infinities(text)).unwrap();
        let wanted = serde_json::json!({"Infinity": [0.0, null, null], "a\"NaN": null, "b": "\\"});
        assert_eq!(read, wanted);
    }
}
