//! Guesses of a smaller model with the same tokens (a draft). It draws with the numbers that the answer itself will draw
//! with, so that both take the same token wherever their distributions are alike.

use crate::generation::Generation;
use crate::sampler::Sampler;
use crate::signature::Draw;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LlmError, Next, Result};
use pteron_runtime::RunControl;

/// A small model beside the one that answers.
#[derive(Debug)]
pub(super) struct Draft {
    decoder: Decoder,
    /// Kept for its memory.
    sampler: Option<Sampler>,
    /// The text with what was guessed of it.
    text: Vec<u32>,
}

impl Draft {
    /// The draft that reads with this decoder.
    ///
    /// # Errors
    /// When it gives no scores, or what it was wrong about cannot be taken back.
    pub(super) fn new(decoder: Decoder) -> Result<Draft> {
        let model = decoder.model();
        let file = || model.program().name().to_owned();
        if model.draws_itself() {
            return Err(LlmError::Draft { file: file(), reason: "it draws its tokens itself".to_owned() });
        }
        if !model.caches().take_back() {
            let reason = "it keeps a state that cannot be taken back token by token".to_owned();
            return Err(LlmError::Draft { file: file(), reason });
        }
        Ok(Draft { decoder, sampler: None, text: Vec::new() })
    }

    pub(super) fn fork(&self) -> Result<Draft> {
        Ok(Draft { decoder: self.decoder.fork()?, sampler: None, text: Vec::new() })
    }

    /// Guesses what follows an answer so far; fewer tokens, or none, where its own context ends.
    pub(super) fn guess(
        &mut self,
        generation: &Generation<'_>,
        most: usize,
        control: &RunControl,
        guesses: &mut Vec<u32>,
    ) -> Result<()> {
        let Draft { decoder, sampler, text } = self;
        let Some(target) = generation.sampler() else { return Ok(()) };
        let sampler = sampler.get_or_insert_with(|| target.clone());
        sampler.follow(target);
        let history = generation.history();
        let context = decoder.context().unwrap_or(usize::MAX);
        if history.len().saturating_add(most) > context {
            return Ok(());
        }
        text.clear();
        text.extend_from_slice(history);
        decoder.begin(&*text)?;
        for _ in 0..most {
            let unread = &text[decoder.tokens().len()..];
            let Next::Scores(scores) = decoder.read(unread, &Draw::default(), control)? else { break };
            generation.add_bias(scores);
            // Scores that nothing can be chosen from are the draft's own trouble.
            let Ok(token) = sampler.sample(scores, text) else { break };
            guesses.push(token);
            text.push(token);
        }
        Ok(())
    }
}

/// Whether two models mean the same by each token.
///
/// # Errors
/// When they do not: which token is the first that differs.
pub(super) fn check_tokens(file: &str, draft: &Tokenizer, target: &Tokenizer) -> Result<()> {
    let most = draft.vocab_size().max(target.vocab_size()) as u32;
    let Some(id) = (0..most).find(|&id| draft.spelling(id) != target.spelling(id)) else { return Ok(()) };
    let called = |tokenizer: &Tokenizer| match tokenizer.spelling(id) {
        Some(spelling) => format!("`{}`", spelling.escape_debug()),
        None => "nothing".to_owned(),
    };
    let reason = format!(
        "it has another tokenizer: token {id} is {} there and {} here; take a smaller model of the same family",
        called(draft),
        called(target)
    );
    Err(LlmError::Draft { file: file.to_owned(), reason })
}
