//! Conversations in files: one line that says what follows and its SHA-256, then JSON. Written aside and renamed, so
//! that a file is whole or not there; read with a bound, and refused if a byte has changed.
//!
//! Messages and tokens are kept, caches are not: they are far larger than the text and belong to one backend. The first
//! turn after a restore reads the text again, as its statistics show.

use super::{Conversation, Turn};
use crate::tokenizer::Ends;
use crate::{Decoder, Voice};
use pteron_aside::{AsideError, Readers, write_aside};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a file begins with; the number is its version.
const TITLE: &str = "pteron conversation 1";

/// More than any conversation that fits a context takes.
const MOST_BYTES: u64 = 64 << 20;

/// A text whose tokens tell vocabularies apart.
const PROBE: &str = "The quick brown fox jumps over 13 lazy dogs; \u{fc}ber \u{65e5}\u{672c}.";

/// Why a conversation was not kept or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum StoreError {
    #[error("{path}: cannot {action}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} is no conversation that this version can read; it begins with {found:?}")]
    NotAConversation { path: PathBuf, found: String },
    #[error("{path} is damaged: {problem}")]
    Damaged { path: PathBuf, problem: String },
    #[error("{path} has more than {} MiB", MOST_BYTES >> 20)]
    TooLong { path: PathBuf },
}

#[derive(Serialize, Deserialize)]
struct Stored {
    system: Option<String>,
    turns: Vec<Turn>,
    hidden: usize,
    /// Whose tokens these are.
    vocabulary: String,
}

impl From<AsideError> for StoreError {
    fn from(error: AsideError) -> StoreError {
        StoreError::Io { action: error.action, path: error.place, source: error.source }
    }
}

impl Conversation {
    /// Writes the conversation to a file.
    pub fn save(&self, path: &Path) -> Result<(), StoreError> {
        let stored = Stored {
            system: self.system.clone(),
            turns: self.turns.clone(),
            hidden: self.hidden,
            vocabulary: vocabulary(&self.voice),
        };
        let body = serde_json::to_vec(&stored)
            .map_err(|error| StoreError::Damaged { path: path.to_owned(), problem: error.to_string() })?;
        // A conversation is its owner's alone, as the history of a shell is.
        let (_, whole) = write_aside(path, Readers::Owner, |out| {
            writeln!(out, "{TITLE} {}", digest(&body))
                .and_then(|()| out.write_all(&body))
                .map_err(|source| StoreError::Io { action: "write", path: path.to_owned(), source })
        })?;
        whole.land()?;
        Ok(())
    }

    /// Reads a conversation from a file; it goes on with this one's decoder.
    pub fn load(&mut self, path: &Path) -> Result<(), StoreError> {
        let stored = read(path)?;
        self.system = stored.system;
        self.turns = stored.turns;
        self.hidden = stored.hidden;
        if stored.vocabulary != vocabulary(&self.voice) {
            // Another model goes on with it, from the messages.
            self.turns.iter_mut().for_each(|turn| turn.heard = None);
        }
        Ok(())
    }

    /// A conversation from a file.
    pub fn restore(path: &Path, decoder: Decoder, voice: Voice) -> Result<Conversation, StoreError> {
        let mut conversation = Conversation::new(decoder, voice, None, super::WhenFull::default());
        conversation.load(path)?;
        Ok(conversation)
    }
}

fn read(path: &Path) -> Result<Stored, StoreError> {
    let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
    let damaged = |problem: String| StoreError::Damaged { path: path.to_owned(), problem };
    let file = std::fs::File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(StoreError::TooLong { path: path.to_owned() });
    }
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let first = String::from_utf8_lossy(&bytes[..end.min(100)]).into_owned();
    let Some(hash) = first.strip_prefix(TITLE) else {
        let found = first.chars().take(40).collect();
        return Err(StoreError::NotAConversation { path: path.to_owned(), found });
    };
    let body = bytes.get(end + 1..).unwrap_or_default();
    if hash.trim() != digest(body) {
        return Err(damaged("its checksum does not fit".to_owned()));
    }
    let stored: Stored = serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))?;
    if stored.hidden > stored.turns.len() {
        return Err(damaged(format!("it leaves out {} of {} turns", stored.hidden, stored.turns.len())));
    }
    // Taking turns back shows again what each of them had to hide.
    if let Some(at) = stored.turns.iter().enumerate().position(|(at, turn)| turn.hidden > at) {
        return Err(damaged(format!("turn {at} leaves out {} turns before it", stored.turns[at].hidden)));
    }
    Ok(stored)
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What differs where token ids mean something else.
fn vocabulary(voice: &Voice) -> String {
    let probe = voice.tokenizer.encode(PROBE, Ends::AsConfigured).unwrap_or_default();
    digest(format!("{} {probe:?}", voice.tokenizer.vocab_size()).as_bytes())
}
