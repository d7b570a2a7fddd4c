//! Why sound does not become text.

use crate::sound::SoundError;

/// Why sound does not become text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeechError {
    /// The sound.
    #[error(transparent)]
    Sound(#[from] SoundError),
    /// Running the program.
    #[error(transparent)]
    Run(#[from] pteron_runtime::Error),
    /// The program is no speech model that is known, or not whole.
    #[error("{0}")]
    Model(String),
    /// The model's tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] pteron_llm::tokenizer::TokenizerError),
    /// A language that the model does not have.
    #[error("the model does not know the language `{code}`; it knows {known}")]
    Language {
        /// What was asked for.
        code: String,
        /// What there is.
        known: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, SpeechError>;
