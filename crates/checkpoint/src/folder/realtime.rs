//! What `tekken.json` says of sound that is heard as it comes: how far behind it the text is, and how much silence stands before it.

use serde::Deserialize;
use std::path::Path;

use crate::CheckpointError;

const FILE: &str = "tekken.json";
/// Larger than any vocabulary.
const LARGEST: u64 = 256 << 20;
/// Milliseconds of a place, where the file does not say how many there are in a second.
const FRAME_RATE: f64 = 12.5;
/// Places of silence that published models were trained with.
const SILENCE: usize = 32;
/// More places than any model waits or is silent.
const MOST: f64 = 100.0;

/// What is told.
pub(super) struct Told {
    /// Places that the text is behind the sound.
    pub(super) delay: Option<usize>,
    /// Places of silence before the sound.
    pub(super) silence: usize,
}

#[derive(Deserialize)]
struct File {
    audio: Option<Audio>,
}

#[derive(Deserialize)]
struct Audio {
    frame_rate: Option<f64>,
    transcription_delay_ms: Option<f64>,
    streaming_n_left_pad_tokens: Option<usize>,
}

/// What the folder's vocabulary says; what published models have, where it has none or says nothing.
pub(super) fn read(folder: &Path) -> Result<Told, CheckpointError> {
    let path = folder.join(FILE);
    let Some(text) = super::json::text_optional(&path, LARGEST)? else {
        return Ok(Told { delay: None, silence: SILENCE });
    };
    let wrong = |problem: String| CheckpointError::file(&path, problem);
    let file: File = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let audio = file.audio.as_ref();
    let rate = audio.and_then(|audio| audio.frame_rate).unwrap_or(FRAME_RATE);
    let delay = match audio.and_then(|audio| audio.transcription_delay_ms) {
        None => None,
        Some(milliseconds) => match (milliseconds / 1000.0 * rate).ceil() {
            places if (1.0..=MOST).contains(&places) => Some(places as usize),
            _ => return Err(wrong(format!("`transcription_delay_ms` is {milliseconds}"))),
        },
    };
    let silence = audio.and_then(|audio| audio.streaming_n_left_pad_tokens).unwrap_or(SILENCE);
    match silence as f64 <= MOST {
        true => Ok(Told { delay, silence }),
        false => Err(wrong(format!("`streaming_n_left_pad_tokens` is {silence}"))),
    }
}
