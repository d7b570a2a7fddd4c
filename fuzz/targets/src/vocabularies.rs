//! The tokenizers of the packed vectors, whole as they are.

use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFormat};
use std::io::{Cursor, Read};

const PACKED: &[u8] = include_bytes!("../../../crates/llm/tests/vectors.zip");

/// Those whose tokens stand for any bytes, without a rule that changes texts: what was encoded decodes to itself.
const BYTE_LEVEL: [&str; 6] =
    ["gguf-bpe-gpt2", "gguf-bpe-llama3", "gguf-bpe-qwen2", "hf-llama3", "tekken", "tiktoken"];

/// A tokenizer, and whether it gives every text back.
pub(crate) struct Known {
    /// What the vectors call it.
    pub(crate) name: String,
    /// What it does.
    pub(crate) tokenizer: Tokenizer,
    /// Whether texts survive it.
    pub(crate) gives_back: bool,
}

/// All of them.
pub(crate) fn all() -> Vec<Known> {
    let found: Vec<Known> = files()
        .into_iter()
        .map(|(name, bytes)| {
            let gives_back = BYTE_LEVEL.contains(&name.as_str());
            Known { tokenizer: read(&bytes, &TokenizerConfig::default()), name, gives_back }
        })
        .collect();
    let byte_level = found.iter().filter(|known| known.gives_back).count();
    assert_eq!(byte_level, BYTE_LEVEL.len(), "the vectors have lost a vocabulary");
    found
}

/// One of them, with a configuration of one's own.
pub(crate) fn load(name: &str, config: &TokenizerConfig) -> Tokenizer {
    let (_, bytes) = files().into_iter().find(|(known, _)| known == name).expect("the vectors have it");
    read(&bytes, config)
}

fn read(bytes: &[u8], config: &TokenizerConfig) -> Tokenizer {
    let format = TokenizerFormat::guess(bytes).expect("a known format");
    Tokenizer::load(format, bytes, config).expect("a sound vocabulary")
}

/// Their files, each by the name of its folder.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(PACKED)).expect("the vectors are an archive");
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).expect("a member");
        let path = member.name().expect("a name").into_owned();
        let name = path.strip_prefix("tokenizers/").and_then(|path| path.split_once('/'));
        let Some((name, _)) = name.filter(|(_, file)| *file != "case.json") else { continue };
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).expect("its bytes");
        files.push((name.to_owned(), bytes));
    }
    files
}
