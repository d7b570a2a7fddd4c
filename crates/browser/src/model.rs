//! Models: opening them from memory, what they need, answers without a conversation.

use crate::chat::{Chat, Steps};
use crate::store::File;
use crate::{Result, invalid, read, thrown, told};
use pteron_bindings::{Event, GenerateOptions, Message, OpenOptions, Source};
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;

/// The version of the library.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// A file as a source.
pub(crate) fn source(file: File) -> Source {
    let (name, bytes) = file.whole();
    Source::Memory { name, bytes }
}

/// How something is opened; what needs folders or a network of the library's own cannot be had.
pub(crate) fn opening(options: Option<String>) -> Result<Option<OpenOptions>> {
    let options: Option<OpenOptions> = read("options", options)?;
    let Some(given) = &options else { return Ok(None) };
    let kept = [
        ("home", given.home.is_some()),
        ("settings", given.settings.is_some()),
        ("tokenizer", given.tokenizer.is_some()),
        ("hubToken", given.hub_token.is_some()),
    ];
    match kept.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(invalid(format!("`{name}` is nothing that a browser has"))),
        None => Ok(options),
    }
}

/// What a program in memory needs, as JSON. It is read for that and given back.
#[wasm_bindgen]
pub fn requirements(file: File, options: Option<String>) -> Result<String> {
    told(&pteron_bindings::Requirements::of(source(file), opening(options)?).map_err(thrown)?)
}

/// What is told while a model is opened. All of it has been told when it is open, since nothing else runs meanwhile.
#[wasm_bindgen]
pub fn loading() -> Result<String> {
    told(&Event::Loading)
}

/// A model that can be talked to.
#[wasm_bindgen]
pub struct Model(Arc<pteron_bindings::Model>);

#[wasm_bindgen]
impl Model {
    /// Opens a program in memory.
    pub fn open(file: File, options: Option<String>) -> Result<Model> {
        let options = opening(options)?;
        Ok(Model(pteron_bindings::Model::of(source(file), options, None, None).map_err(thrown)?))
    }

    /// A conversation.
    pub fn chat(&self, options: Option<String>) -> Result<Chat> {
        Ok(Chat(self.0.chat(read("options", options)?).map_err(thrown)?))
    }

    /// Answers messages once.
    pub fn generate(
        &self,
        messages: String,
        tools: Option<String>,
        options: Option<String>,
    ) -> Result<Steps> {
        let options: Option<GenerateOptions> = read("options", options)?;
        let messages: Vec<Message> = read("messages", Some(messages))?.unwrap_or_default();
        let generation = self.0.generation(options).map_err(thrown)?;
        let steps = generation.steps(messages, tools).map_err(thrown)?;
        Ok(Steps::of_generation(steps, generation))
    }

    /// What it holds, in bytes, as JSON.
    pub fn memory(&self) -> Result<String> {
        told(&self.0.memory().map_err(thrown)?)
    }

    /// Whether it sees images.
    pub fn sees(&self) -> Result<bool> {
        self.0.sees().map_err(thrown)
    }

    /// Positions that a text may have.
    pub fn context(&self) -> Result<Option<f64>> {
        Ok(self.0.context().map_err(thrown)?.map(|context| context as f64))
    }

    /// Gives its memory back, and disposes of its chats; what is being said with it ends at its next step.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}
