//! A tokenizer that somebody names by a path: which format it is, and what lies beside it.

use super::{MAX_FILE_BYTES, Tokenizer, TokenizerConfig, TokenizerError, TokenizerFormat, check_limit};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The names under which models are published, the most exact format first.
const FILE_NAMES: [&str; 4] = ["tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model"];

impl Tokenizer {
    /// Opens a tokenizer file, or the one in a folder. A `tokenizer_config.json` beside it is heeded.
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
            Tokenizer::guess(&bytes).ok_or_else(|| TokenizerError::NotFound { path: file.clone() })?;
        let config = match file.with_file_name("tokenizer_config.json") {
            beside if beside.is_file() => {
                let config = serde_json::from_slice(&read(&beside)?).map_err(|error| {
                    TokenizerError::malformed(format, format_args!("tokenizer_config.json: {error}"))
                })?;
                TokenizerConfig::from_hugging_face(&config)
            }
            _ => TokenizerConfig::default(),
        };
        Tokenizer::load(format, &bytes, &config)
    }

    /// Which format a file has, told by its first bytes.
    pub fn guess(bytes: &[u8]) -> Option<TokenizerFormat> {
        let start = bytes.trim_ascii_start();
        if bytes.starts_with(b"GGUF") {
            return Some(TokenizerFormat::Gguf);
        }
        if start.first() == Some(&b'{') {
            // `token_bytes` is how a tekken file spells its tokens; a vocabulary that has it as a word quotes it as
            // a key of another object, after `"model"`.
            let names = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name);
            return match (names(b"\"token_bytes\""), names(b"\"model\"")) {
                (Some(_), None) => Some(TokenizerFormat::Tekken),
                (Some(tekken), Some(model)) if tekken < model => Some(TokenizerFormat::Tekken),
                _ => Some(TokenizerFormat::TokenizerJson),
            };
        }
        let first_line = start.split(|&byte| byte == b'\n').next()?;
        let mut words = first_line.split(|&byte| byte == b' ');
        let is_base64 = |word: &[u8]| {
            !word.is_empty()
                && word.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
        };
        let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        if let (Some(token), Some(rank), None) = (words.next(), words.next(), words.next())
            && is_base64(token)
            && is_number(rank.trim_ascii_end())
        {
            return Some(TokenizerFormat::Tiktoken);
        }
        // Field 1 of the model, a piece with its length: how every SentencePiece model begins.
        (bytes.first() == Some(&0x0a)).then_some(TokenizerFormat::SentencePiece)
    }
}

fn find(path: &Path) -> Result<PathBuf, TokenizerError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let candidates = FILE_NAMES.iter().map(|name| path.join(name));
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
