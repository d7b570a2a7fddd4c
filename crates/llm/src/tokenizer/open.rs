//! A tokenizer that somebody names by a path: which format it is, and what lies beside it.

use super::{MAX_FILE_BYTES, Tokenizer, TokenizerConfig, TokenizerError, TokenizerFormat, check_limit};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

impl Tokenizer {
    /// Opens a tokenizer file, or the one in a folder. A `tokenizer_config.json` and a `special_tokens_map.json` beside it
    /// are heeded.
    ///
    /// # Errors
    /// When there is no tokenizer, or it cannot be read.
    pub fn open(path: &Path) -> Result<Tokenizer, TokenizerError> {
        let file = find(path)?;
        if starts_as_gguf(&file)? {
            let mapped = MappedFile::open(&file, &Limits::default())
                .map_err(|error| TokenizerError::malformed(TokenizerFormat::Gguf, error))?;
            return Tokenizer::load_gguf(mapped.to_bytes(), &TokenizerConfig::default());
        }
        let bytes = read(&file)?;
        let format =
            TokenizerFormat::guess(&bytes).ok_or_else(|| TokenizerError::NotFound { path: file.clone() })?;
        let beside = |name: &str| beside(&file, name, format);
        let (config, special) = (beside("tokenizer_config.json")?, beside("special_tokens_map.json")?);
        let config = TokenizerConfig::from_hugging_face(format, &config, &special);
        Tokenizer::load(format, &bytes, &config)
    }
}

/// A JSON file that may lie beside a tokenizer.
fn beside(file: &Path, name: &str, format: TokenizerFormat) -> Result<Value, TokenizerError> {
    let path = file.with_file_name(name);
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let malformed = |error| TokenizerError::malformed(format, format_args!("{name}: {error}"));
    serde_json::from_slice(&read(&path)?).map_err(malformed)
}

fn find(path: &Path) -> Result<PathBuf, TokenizerError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let candidates = TokenizerFormat::FILE_NAMES.iter().map(|name| path.join(name));
    candidates
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| TokenizerError::NotFound { path: path.to_owned() })
}

/// Whether a file begins as a GGUF file does: those are mapped, since they may hold a whole model.
fn starts_as_gguf(path: &Path) -> Result<bool, TokenizerError> {
    let io = |source| TokenizerError::Io { path: path.to_owned(), source };
    let mut start = Vec::new();
    fs::File::open(path).map_err(io)?.take(4).read_to_end(&mut start).map_err(io)?;
    Ok(start == b"GGUF")
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let io = |source| TokenizerError::Io { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(io)?.len();
    check_limit("the size of the tokenizer file", size.try_into().unwrap_or(usize::MAX), MAX_FILE_BYTES)?;
    fs::read(path).map_err(io)
}
