//! Prompts as the model was trained with them: marks of the vocabulary around the sound.

use pteron_llm::tokenizer::{Ends, Tokenizer};

use super::Part;
use crate::{Result, SpeechError};

/// What is wanted of a sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What is said in it; in a language, where that is known.
    Transcript(Option<String>),
    /// An answer to a question about it.
    Answer(String),
}

/// Marks by the names that the vocabulary has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Begins a text.
    pub start: u32,
    /// Ends one.
    pub end: u32,
    /// Around what a user says.
    pub instruction: [u32; 2],
    /// Before a sound.
    pub sound: u32,
    /// Asks for a transcript.
    pub transcribe: u32,
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
            instruction: [mark("[INST]")?, mark("[/INST]")?],
            sound: mark("[BEGIN_AUDIO]")?,
            transcribe: mark("[TRANSCRIBE]")?,
        })
    }

    /// The prompt of a wish.
    pub fn prompt(&self, tokenizer: &Tokenizer, wanted: &Wanted) -> Result<Vec<Part>> {
        let mut behind = Vec::new();
        match wanted {
            Wanted::Transcript(language) => {
                behind.push(self.instruction[1]);
                if let Some(code) = language {
                    behind.extend(tokenizer.encode(&format!("lang:{code}"), Ends::None)?);
                }
                behind.push(self.transcribe);
            }
            Wanted::Answer(question) => {
                // Words of a question are words, whatever marks they spell.
                let heard = std::iter::once(0..question.len()).collect::<Vec<_>>();
                behind.extend(tokenizer.encode_heard(question, &heard)?);
                behind.push(self.instruction[1]);
            }
        }
        let before = vec![self.start, self.instruction[0], self.sound];
        Ok(vec![Part::Tokens(before), Part::Sound, Part::Tokens(behind)])
    }
}
