//! Tokens with a meaning, by the names that the vocabulary has for them.

use pteron_llm::tokenizer::Tokenizer;

use crate::{Result, SpeechError};

/// The marks of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Begins a text.
    pub start: u32,
    /// Ends one.
    pub end: u32,
    /// Says that nothing ends in a place.
    pub nothing: u32,
    /// Says that a word begins, where there is one.
    pub word: Option<u32>,
}

impl Marks {
    /// Those of a vocabulary; an error where it lacks one.
    pub fn of(tokenizer: &Tokenizer) -> Result<Marks> {
        let mark = |name: &str| {
            let problem = || SpeechError::Model(format!("the vocabulary has no {name}"));
            tokenizer.id_of(name).ok_or_else(problem)
        };
        Ok(Marks {
            start: mark("<s>")?,
            end: mark("</s>")?,
            nothing: mark("[STREAMING_PAD]")?,
            word: tokenizer.id_of("[STREAMING_WORD]"),
        })
    }

    /// Whether a token is text.
    pub fn is_text(&self, token: u32) -> bool {
        ![self.start, self.end, self.nothing].contains(&token) && Some(token) != self.word
    }
}
