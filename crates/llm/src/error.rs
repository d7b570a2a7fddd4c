//! What can go wrong between a prompt and its answer.

/// The result of a language model's work.
pub type Result<T, E = LlmError> = std::result::Result<T, E>;

/// Why a model did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum LlmError {
    #[error("{file} is no language model: {reason}")]
    NotALanguageModel { file: String, reason: String },
    #[error(transparent)]
    Run(#[from] pteron_runtime::Error),
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    #[error("the chat template: {0}")]
    Template(#[from] pteron_template::TemplateError),
    #[error(transparent)]
    Sampler(#[from] crate::sampler::SamplerError),
    #[error(transparent)]
    Constraint(#[from] crate::constrain::ConstraintError),
    #[error(transparent)]
    See(#[from] crate::seeing::SeeError),
    #[error("named data `{key}`: {problem}")]
    NamedData { key: &'static str, problem: String },
    #[error("method `{method}` gives {found}, neither logits nor a token")]
    Output { method: String, found: String },
    #[error("the prompt is empty, and the tokenizer puts nothing before it")]
    EmptyPrompt,
    #[error("the prompt has {tokens} tokens; a context of {context} leaves no room for an answer")]
    PromptTooLong { tokens: usize, context: usize },
    #[error("the prompt has far more tokens than a context of {context} has room for")]
    PromptFarTooLong { context: usize },
    #[error("the context of {context} positions is full: the next prompt would have {tokens} tokens")]
    ContextFull { tokens: usize, context: usize },
    #[error("a context of {asked} positions was asked for; the caches of {file} have {has}")]
    Context { file: String, asked: usize, has: usize },
    #[error("a context of {asked} positions where the model was made for {longest}; ask for at most that")]
    LongContext { asked: usize, longest: usize },
    #[error("token {token} is not in the model's vocabulary of {vocab}; is this the model's tokenizer?")]
    UnknownToken { token: u32, vocab: usize },
    #[error("{asked} answers to one prompt were asked for; 1 to {most} can be had")]
    Answers { asked: usize, most: usize },
    #[error("prompt and answer would take {needed} bytes of caches; {most} are set aside for them")]
    TooLarge { needed: u64, most: u64 },
    #[error("{file} cannot guess for this model: {reason}")]
    Draft { file: String, reason: String },
    #[error("this program draws its tokens itself, which leaves no room for {what}")]
    DrawsItself { what: &'static str },
}
