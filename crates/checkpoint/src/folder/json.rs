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

/// A JSON file.
pub(super) fn read(path: &Path, most: u64) -> Result<Value, CheckpointError> {
    let bytes = bytes(path, most)?;
    serde_json::from_slice(&bytes).map_err(|error| CheckpointError::file(path, error.to_string()))
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
