//! Why a template gave no text.

/// What stopped a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The source is no template.
    #[error("line {line} of the chat template: {message}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The template itself refused the conversation, by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Raised {
        /// What it said.
        message: String,
    },
    /// A step that cannot be done: a missing name, operands that do not fit.
    #[error("line {line} of the chat template: {message}")]
    Evaluation {
        /// Where.
        line: usize,
        /// What cannot be done.
        message: String,
    },
    /// The template wants more than it may have.
    #[error("the chat template goes over its limit of {limit} {what}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
}
