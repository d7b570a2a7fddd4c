//! What every source gives, whatever its form.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pteron_models::{Architecture, WeightSource};
use serde::Serialize;

use crate::{CheckpointError, folder, gguf};

/// A published model. Weights stay in their files until a program is written.
pub struct Checkpoint {
    /// What is built, with the sizes of the configuration; its facts name the tokens that begin and end a text.
    pub architecture: Box<dyn Architecture>,
    /// Weights under the names that architectures ask for.
    pub weights: Arc<dyn WeightSource>,
    /// The tokenizer, where the source has one.
    pub tokenizer: Option<TokenizerData>,
    /// How a conversation becomes text.
    pub chat_templates: ChatTemplates,
    /// What it was read from.
    pub origin: Origin,
}

impl Checkpoint {
    /// Opens a Hugging Face folder or a GGUF file; a folder that holds one GGUF file and no `config.json` means that
    /// file.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        if path.is_dir() {
            return match only_gguf(path) {
                Some(file) if !path.join("config.json").is_file() => gguf::open(&file),
                _ => folder::open(path),
            };
        }
        let io = |error| CheckpointError::io(path, error);
        let mut start = Vec::new();
        // Opening a pipe would wait for somebody to write to it.
        if std::fs::metadata(path).map_err(io)?.is_file() {
            File::open(path).map_err(io)?.take(4).read_to_end(&mut start).map_err(io)?;
        }
        if start == b"GGUF" {
            return gguf::open(path);
        }
        Err(CheckpointError::NotACheckpoint {
            path: path.to_owned(),
            problem: "it is no GGUF file; give one, or the folder of a Hugging Face model".to_owned(),
        })
    }
}

/// The GGUF file of a folder that has exactly one.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    files.next().filter(|_| files.next().is_none())
}

/// A tokenizer as it was published.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerData {
    /// What the bytes are.
    pub format: TokenizerFormat,
    /// The file.
    pub bytes: Vec<u8>,
    /// What stands beside the file.
    pub config: TokenizerConfig,
}

/// Kinds of tokenizer files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerFormat {
    /// `tokenizer.json` of the tokenizers library.
    TokenizerJson,
    /// A SentencePiece model.
    SentencePiece,
    /// Ranks of byte strings, as tiktoken has them.
    Tiktoken,
    /// Mistral's `tekken.json`.
    Tekken,
    /// A GGUF file without tensors that keeps the tokenizer's keys.
    Gguf,
}

impl TokenizerFormat {
    /// As programs name it.
    pub fn name(self) -> &'static str {
        match self {
            TokenizerFormat::TokenizerJson => "tokenizer.json",
            TokenizerFormat::SentencePiece => "sentencepiece",
            TokenizerFormat::Tiktoken => "tiktoken",
            TokenizerFormat::Tekken => "tekken",
            TokenizerFormat::Gguf => "gguf",
        }
    }
}

/// What a runner must know of a tokenizer beside its file; travels as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TokenizerConfig {
    /// Whether a text begins with the BOS token; `None` where nobody says.
    pub add_bos: Option<bool>,
    /// Whether a text ends with the EOS token; `None` where nobody says.
    pub add_eos: Option<bool>,
    /// Texts of special tokens by role: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    pub tokens: BTreeMap<String, String>,
    /// The pattern that cuts texts into words, for tiktoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Special tokens by text, for tiktoken.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub special_tokens: BTreeMap<String, u32>,
}

/// Jinja sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplates {
    /// The one that is meant unless another is asked for.
    pub default: Option<String>,
    /// Others by name.
    pub named: BTreeMap<String, String>,
}

/// What a model was read from; part of the provenance that travels in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// `huggingface` or `gguf`.
    pub format: String,
    /// The folder's or file's own name, or the name that the file gives itself.
    pub name: String,
    /// The architecture as the source names it.
    pub architecture: String,
    /// Files that hold weights, with their sizes in bytes.
    pub files: BTreeMap<String, u64>,
}

impl Origin {
    /// Bytes of all files that hold weights.
    pub fn bytes(&self) -> u64 {
        self.files.values().sum()
    }
}
