//! What every source gives, whatever its form.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pteron_companion::{Encoder, Speech, TokenizerConfig, TokenizerFormat, Vision};
use pteron_models::{Architecture, WeightSource};
use serde::Serialize;

use crate::{CheckpointError, folder, gguf, nemo, openai};

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
    /// How its makers would have tokens chosen: a `generation_config.json`, as it was published, where there is one.
    pub generation_config: Option<String>,
    /// What a speech model says of itself.
    pub speech: Option<Speech>,
    /// What a model that sees says of that.
    pub vision: Option<Vision>,
    /// What an encoder says of itself.
    pub encoder: Option<Encoder>,
    /// What it was read from.
    pub origin: Origin,
    /// What its user should be told of it, a sentence each.
    pub remarks: Vec<String>,
}

impl Checkpoint {
    /// Opens a Hugging Face folder, a GGUF file, a Whisper as OpenAI publishes it, or a Parakeet as NVIDIA does; a folder that
    /// holds one GGUF file and no `config.json` means that file.
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
            File::open(path).map_err(io)?.take(nemo::START as u64).read_to_end(&mut start).map_err(io)?;
        }
        if start.starts_with(b"GGUF") {
            return gguf::open(path);
        }
        if start.starts_with(openai::START) {
            return openai::open(path);
        }
        if nemo::recognises(&start) {
            return nemo::open(path);
        }
        Err(CheckpointError::NotACheckpoint {
            path: path.to_owned(),
            problem: "it is no GGUF file, no Whisper of OpenAI's and no .nemo of NVIDIA's; give one, or the folder of a \
                      Hugging Face model"
                .to_owned(),
        })
    }
}

impl Checkpoint {
    /// Opens a Hugging Face folder with an adapter (LoRA) added to its weights.
    pub fn open_adapted(path: &Path, adapter: &Path) -> Result<Checkpoint, CheckpointError> {
        if !path.join("config.json").is_file() {
            return Err(CheckpointError::NotACheckpoint {
                path: path.to_owned(),
                problem: "an adapter is added to a Hugging Face folder, and this is none".to_owned(),
            });
        }
        folder::open_with(path, Some(adapter))
    }
}

/// The GGUF file of a folder that has exactly one, or the first part of the only one that it has in parts.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_gguf = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gguf");
    let mut files = paths.filter(|path| is_gguf(path) && !gguf::is_later_part(path));
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
    /// `huggingface`, `gguf`, `openai` or `nemo`.
    pub format: String,
    /// The folder's or file's own name, or the name that the file gives itself.
    pub name: String,
    /// The architecture as the source names it.
    pub architecture: String,
    /// Files that hold weights, with their sizes in bytes.
    pub files: BTreeMap<String, u64>,
    /// The folder's own name of an adapter that is part of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
}

impl Origin {
    /// Bytes of all files that hold weights.
    pub fn bytes(&self) -> u64 {
        self.files.values().sum()
    }
}
