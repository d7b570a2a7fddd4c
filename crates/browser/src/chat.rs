//! Conversations, and answers that come a step at a time.

use crate::{Result, read, thrown, told};
use pteron_bindings::Generation;
use serde_json::json;
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;

/// A conversation with a model.
#[wasm_bindgen]
pub struct Chat(pub(crate) Arc<pteron_bindings::Chat>);

#[wasm_bindgen]
impl Chat {
    /// Asks something.
    pub fn send(&self, text: &str, options: Option<String>) -> Result<Steps> {
        let steps = self.0.steps(text, read("options", options)?).map_err(thrown)?;
        Ok(Steps { steps, generation: None })
    }

    /// Gives the model what a tool has found.
    #[wasm_bindgen(js_name = sendResult)]
    pub fn send_result(&self, found: &str) -> Result<Steps> {
        Ok(Steps { steps: self.0.result_steps(found).map_err(thrown)?, generation: None })
    }

    /// Makes the next step of the answer that is being given its last.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Everything that was said, as JSON.
    pub fn history(&self) -> Result<String> {
        told(&self.0.history().map_err(thrown)?)
    }

    /// Shows the model an image with the next question.
    pub fn show(&self, image: Vec<u8>) -> Result<()> {
        self.0.show(image).map_err(thrown)
    }

    /// Goes back until so many turns are left.
    pub fn rewind(&self, turns: f64) -> Result<()> {
        self.0.rewind(turns as u64).map_err(thrown)
    }

    /// Takes the last turn back; what was asked in it.
    pub fn undo(&self) -> Result<Option<String>> {
        self.0.undo().map_err(thrown)
    }

    /// Another conversation that goes on from here.
    pub fn fork(&self) -> Result<Chat> {
        Ok(Chat(self.0.fork().map_err(thrown)?))
    }

    /// The conversation, to be kept.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.0.saved().map_err(thrown)
    }

    /// Goes on with one that was kept; the model that it was held with, where that was another one.
    pub fn restore(&self, saved: Vec<u8>) -> Result<Option<String>> {
        self.0.restore_saved(saved).map_err(thrown)
    }

    /// Tokens that the caches hold, and can hold, as JSON.
    #[wasm_bindgen(js_name = cacheState)]
    pub fn cache_state(&self) -> Result<String> {
        told(&self.0.cache_state().map_err(thrown)?)
    }

    /// Gives the caches back: now, or at the next step of the answer that is being given.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}

/// An answer that is being written. It ends where this is freed.
#[wasm_bindgen]
pub struct Steps {
    steps: pteron_bindings::Steps,
    /// What the answer is of, where nobody else holds that.
    generation: Option<Arc<Generation>>,
}

impl Steps {
    pub(crate) fn of_generation(steps: pteron_bindings::Steps, generation: Arc<Generation>) -> Steps {
        Steps { steps, generation: Some(generation) }
    }
}

#[wasm_bindgen]
impl Steps {
    /// Reads a part of what was asked, or chooses a token: `piece`, and `answer` where it has ended, as JSON.
    pub fn step(&mut self) -> Result<String> {
        told(&match self.steps.step().map_err(thrown)? {
            pteron_bindings::Step::Piece(piece) => json!({"piece": piece}),
            pteron_bindings::Step::Ended(piece, answer) => json!({"piece": piece, "answer": answer}),
        })
    }

    /// Makes the next step the last, where it is not a chat's.
    pub fn stop(&self) {
        if let Some(generation) = &self.generation {
            generation.stop();
        }
    }
}
