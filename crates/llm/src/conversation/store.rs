//! Conversations in files: one line that says what follows and its SHA-256, then JSON. Written aside and renamed, so
//! that a file is whole or not there; read with a bound, and refused if a byte has changed.
//!
//! Messages and tokens are kept, caches are not: they are far larger than the text and belong to one backend. The first
//! turn after a restore reads the text again, as its statistics show.

use super::Exhibit;
use super::{Conversation, Turn};
use crate::tokenizer::Ends;
use crate::{Decoder, LlmError, Voice};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pteron_aside::{AsideError, Readers, write_aside};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file begins with; the number is its version.
const TITLE: &str = "pteron conversation 1";

/// More than any conversation that fits a context takes.
const MOST_BYTES: u64 = 64 << 20;

/// Images that a file may have: each of them is looked at when it is read.
const MOST_IMAGES: usize = 256;

/// How a conversation is called that lies in no file.
const IN_MEMORY: &str = "the conversation";

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
    #[error("{path} shows more than {MOST_IMAGES} images")]
    TooManyImages { path: PathBuf },
    #[error("{path} cannot be gone on with: {problem}")]
    Image { path: PathBuf, problem: Box<LlmError> },
    #[error("{path} is there already and is no conversation; it stays as it is")]
    Occupied { path: PathBuf },
}

#[derive(Serialize, Deserialize)]
struct Stored {
    system: Option<String>,
    turns: Vec<Turn>,
    hidden: usize,
    /// Whose tokens these are.
    vocabulary: String,
    /// The tools that it was held with; files of old have none.
    #[serde(default)]
    tools: Value,
    /// The model that it was held with; files of old do not say.
    #[serde(default)]
    model: Option<String>,
    /// What turns show, in order: the number of the turn, and the image's file in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    images: Vec<(usize, String)>,
}

impl From<AsideError> for StoreError {
    fn from(error: AsideError) -> StoreError {
        StoreError::Io { action: error.action, path: error.place, source: error.source }
    }
}

impl Conversation {
    /// Writes the conversation to a file. One that is there already is replaced if it is a conversation, and refused if
    /// it is anything else.
    pub fn save(&self, path: &Path) -> Result<(), StoreError> {
        if !may_be_replaced(path)? {
            return Err(StoreError::Occupied { path: path.to_owned() });
        }
        let whole = self.to_bytes()?;
        // A conversation is its owner's alone, as the history of a shell is.
        let (_, whole) = write_aside(path, Readers::Owner, |out| {
            let failed = |source| StoreError::Io { action: "write", path: path.to_owned(), source };
            out.write_all(&whole).map_err(failed)
        })?;
        whole.land()?;
        Ok(())
    }

    /// What [`Conversation::save`] writes, for those who keep it elsewhere.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        let numbered = self.turns.iter().enumerate();
        let shown = numbered.flat_map(|(at, turn)| turn.images.iter().map(move |image| (at, image)));
        let images: Vec<_> = shown.map(|(at, image)| (at, BASE64.encode(image.file()))).collect();
        if images.len() > MOST_IMAGES {
            return Err(StoreError::TooManyImages { path: IN_MEMORY.into() });
        }
        let stored = Stored {
            images,
            system: self.system.clone(),
            turns: self.turns.clone(),
            hidden: self.hidden,
            vocabulary: vocabulary(&self.voice),
            tools: self.tools.clone(),
            model: self.model.clone(),
        };
        let body = serde_json::to_vec(&stored)
            .map_err(|error| StoreError::Damaged { path: IN_MEMORY.into(), problem: error.to_string() })?;
        let whole = [format!("{TITLE} {}\n", digest(&body)).as_bytes(), &body].concat();
        match whole.len() as u64 > MOST_BYTES {
            true => Err(StoreError::TooLong { path: IN_MEMORY.into() }),
            false => Ok(whole),
        }
    }

    /// Reads a conversation from a file; it goes on with this one's decoder. Gives the model that it was held with where
    /// that was another one; an empty name where the file does not say which.
    pub fn load(&mut self, path: &Path) -> Result<Option<String>, StoreError> {
        let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        self.take(path, read(path, &bytes)?)
    }

    /// The same of what [`Conversation::to_bytes`] gave.
    pub fn load_bytes(&mut self, bytes: &[u8]) -> Result<Option<String>, StoreError> {
        let path = Path::new(IN_MEMORY);
        self.take(path, read(path, bytes)?)
    }

    fn take(&mut self, path: &Path, mut stored: Stored) -> Result<Option<String>, StoreError> {
        self.take_images(path, &mut stored)?;
        self.shown.clear();
        self.system = stored.system;
        self.tools = stored.tools;
        self.turns = stored.turns;
        (self.hidden, self.dropped) = (stored.hidden, 0);
        // Another model goes on with it from the messages.
        let same_vocabulary = stored.vocabulary == vocabulary(&self.voice);
        let system = self.system.as_ref().map_or(0, |system| system.trim().len());
        let tools = if self.tools.is_null() { 0 } else { self.tools.to_string().len() };
        let mut said = vec![0];
        for at in 0..self.turns.len() {
            let shows = self.turns[self.turns[at].hidden..=at].iter().any(|turn| !turn.images.is_empty());
            if !same_vocabulary || shows || !self.was_heard(at, &said, system + tools) {
                self.turns[at].heard = None;
            }
            let turn = &self.turns[at];
            said.push(said[at] + turn.user.trim().len() + turn.answer.trim().len());
        }
        Ok(match (stored.model, &self.model) {
            (Some(theirs), Some(ours)) if theirs != *ours => Some(theirs),
            (theirs, _) if !same_vocabulary => Some(theirs.unwrap_or_default()),
            _ => None,
        })
    }

    /// Gives turns their images.
    fn take_images(&self, path: &Path, stored: &mut Stored) -> Result<(), StoreError> {
        if stored.images.len() > MOST_IMAGES {
            return Err(StoreError::TooManyImages { path: path.to_owned() });
        }
        let damaged = |problem| StoreError::Damaged { path: path.to_owned(), problem };
        let read = |(_, image): &(usize, String)| BASE64.decode(image).map(Arc::from);
        let files: Result<Vec<Arc<[u8]>>, _> = stored.images.iter().map(read).collect();
        let files = files.map_err(|error| damaged(format!("an image: {error}")))?;
        let wrong = |error| StoreError::Image { path: path.to_owned(), problem: Box::new(error) };
        let images = Exhibit::of(&self.voice, &files).map_err(wrong)?;
        for ((at, _), image) in stored.images.drain(..).zip(images) {
            let turn = stored.turns.get_mut(at);
            let turn = turn.ok_or_else(|| damaged(format!("it shows an image in turn {at}")))?;
            turn.images.push(image);
        }
        Ok(())
    }

    /// Whether the tokens that a file keeps of a turn are those of its messages: a file that somebody else wrote could
    /// else bring turns that its messages do not show. `said` is how much was said before each turn, `first` how much
    /// before all of them.
    fn was_heard(&self, at: usize, said: &[usize], first: usize) -> bool {
        let turn = &self.turns[at];
        let Some(heard) = &turn.heard else { return false };
        // Rendering takes as long as what is rendered: in all, no longer than the file.
        if heard.prompt.len() < said[at] - said[turn.hidden] + turn.user.trim().len() + first {
            return false;
        }
        let rendered = self.rendered(&self.turns[turn.hidden..at], (turn.asker, &turn.user), 0);
        let Some(rendered) = rendered.ok().filter(|rendered| rendered.text == heard.prompt) else {
            return false;
        };
        let Ok(prompt) = self.voice.tokens_of(rendered, &[]) else { return false };
        self.same_words(&heard.tokens, &prompt.tokens, &turn.answer)
    }

    /// Whether tokens have the special tokens of a prompt, and between them its words; then those of an answer, however
    /// either is cut.
    fn same_words(&self, tokens: &[u32], prompt: &[u32], answer: &str) -> bool {
        let tokenizer = &self.voice.tokenizer;
        let is_mark = |token: &u32| tokenizer.is_special(*token);
        let marks = |tokens: &[u32]| tokens.iter().copied().filter(is_mark).collect::<Vec<_>>();
        if marks(tokens) != marks(prompt) {
            return false;
        }
        let words = |part: &[u32]| {
            let pieces = part.iter().filter_map(|&token| tokenizer.bytes_of(token));
            pieces.flatten().collect::<Vec<u8>>()
        };
        let mut heard = tokens.split(is_mark).map(words);
        let mut wanted = prompt.split(is_mark).map(words).peekable();
        while let (Some(heard), Some(wanted), more) = (heard.next(), wanted.next(), wanted.peek().is_some()) {
            if more && heard != wanted {
                return false;
            }
            if !more {
                // The first token of an answer may show a space that its text does not have.
                let said = heard.strip_prefix(wanted.as_slice());
                return said.is_some_and(|said| said.trim_ascii_start() == answer.trim_start().as_bytes());
            }
        }
        false
    }

    /// A conversation from a file.
    pub fn restore(path: &Path, decoder: Decoder, voice: Voice) -> Result<Conversation, StoreError> {
        let mut conversation = Conversation::new(decoder, voice, None, super::WhenFull::default());
        conversation.load(path)?;
        Ok(conversation)
    }
}

/// Whether nothing is lost if a file is written here: there is none, an empty one, or a conversation of any version.
fn may_be_replaced(path: &Path) -> Result<bool, StoreError> {
    let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
    let kind = TITLE.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut start = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(kind.len() as u64).read_to_end(&mut start).map_err(io)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(io(error)),
    };
    Ok(start.is_empty() || start == kind.as_bytes())
}

fn read(path: &Path, bytes: &[u8]) -> Result<Stored, StoreError> {
    let damaged = |problem: String| StoreError::Damaged { path: path.to_owned(), problem };
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
