//! Answers in fewer calls: what may come next is guessed and checked many tokens at a time. Tokens are chosen as without.

use crate::error::{Error, Result};
use crate::model::Model;
use pteron_llm::Speculator;

/// How the tokens of an answer are guessed before the model says them. Each is chosen as without guesses: these only decide
/// how many tokens one call of the model may give. Where such a call rounds otherwise than calls with one token, near ties may
/// fall otherwise.
///
/// ```
/// use pteron::{GenerateOptions, Speculate};
///
/// let options = GenerateOptions::default().speculate(Speculate::Lookup);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Speculate {
    /// From the text so far, as far as that makes the answer faster.
    Auto,
    /// Not at all.
    #[default]
    Off,
    /// From the text so far, wherever it has something to guess from: for answers that quote, edit or sum up their prompt.
    Lookup,
    /// By a smaller model with the same tokenizer.
    Draft(Model),
}

impl Speculate {
    /// What guesses for a model.
    pub(crate) fn speculator(&self, model: &Model) -> Result<Option<Speculator>> {
        Ok(match self {
            Speculate::Off => None,
            Speculate::Auto => Some(Speculator::auto()),
            Speculate::Lookup => Some(Speculator::lookup()),
            Speculate::Draft(draft) => {
                let tokenizers = match (draft.voice(), model.voice()) {
                    (Ok(theirs), Ok(ours)) => Some((&theirs.tokenizer, &ours.tokenizer)),
                    _ => None,
                };
                let made = Speculator::draft(draft.decoder(0)?, tokenizers);
                Some(made.map_err(|error| draft.named(Error::from(error)))?)
            }
        })
    }

    /// Whether both ask for the same.
    pub(crate) fn is_same(&self, other: &Speculate) -> bool {
        match (self, other) {
            (Speculate::Draft(draft), Speculate::Draft(other)) => draft.is(other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}
