//! Vectors of texts, and what is said in sound.

use crate::model::{opening, source};
use crate::store::File;
use crate::{Result, read, thrown, told};
use pteron_bindings::{Audio, Heard, PteronError, SoundListener};
use std::sync::{Arc, Mutex, PoisonError};
use wasm_bindgen::prelude::wasm_bindgen;

/// A model that makes a vector of a text.
#[wasm_bindgen]
pub struct Embedder(Arc<pteron_bindings::Embedder>);

#[wasm_bindgen]
impl Embedder {
    /// Opens a program in memory.
    pub fn open(file: File, options: Option<String>) -> Result<Embedder> {
        let options = opening(options)?;
        Ok(Embedder(pteron_bindings::Embedder::of(source(file), options, None, None).map_err(thrown)?))
    }

    /// The vector of a text.
    pub fn embed(&self, text: String) -> Result<Vec<f32>> {
        Ok(self.0.embed(vec![text]).map_err(thrown)?.pop().unwrap_or_default())
    }

    /// Gives the memory back.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}

/// A speech model that writes down what is said.
#[wasm_bindgen]
pub struct Transcriber(Arc<pteron_bindings::Transcriber>);

/// What was found, in order, as JSON.
#[derive(Default)]
struct Found(Mutex<Vec<Heard>>);

impl SoundListener for Found {
    fn heard(&self, event: Heard) -> std::result::Result<bool, PteronError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        Ok(true)
    }
}

#[wasm_bindgen]
impl Transcriber {
    /// Opens a program in memory.
    pub fn open(file: File, options: Option<String>) -> Result<Transcriber> {
        let options = opening(options)?;
        Ok(Transcriber(pteron_bindings::Transcriber::of(source(file), options, None, None).map_err(thrown)?))
    }

    /// Writes down what is said in samples of one channel: `transcript` and what was `heard` on the way, as JSON.
    pub fn transcribe(&self, samples: Vec<f32>, rate: u32, options: Option<String>) -> Result<String> {
        self.written(Audio::Samples { samples, rate }, options)
    }

    /// The same of a sound file's bytes.
    #[wasm_bindgen(js_name = transcribeFile)]
    pub fn transcribe_file(&self, bytes: Vec<u8>, options: Option<String>) -> Result<String> {
        self.written(Audio::Encoded { bytes }, options)
    }

    fn written(&self, audio: Audio, options: Option<String>) -> Result<String> {
        let found = Arc::new(Found::default());
        let transcript = self.0.transcribe(audio, read("options", options)?, Some(found.clone()));
        let heard = std::mem::take(&mut *found.0.lock().unwrap_or_else(PoisonError::into_inner));
        let transcript = transcript.map_err(thrown)?;
        told(&serde_json::json!({"transcript": transcript, "heard": heard}))
    }

    /// Gives the memory back.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}
