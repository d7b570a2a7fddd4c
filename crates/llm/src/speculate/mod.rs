//! Fewer calls for the same answer: what may come next is guessed, one call of the model reads all guesses, and those are
//! kept that it would have chosen itself.
//!
//! Every token is chosen by [`Generation`] from the scores that follow the tokens before it, with the same settings,
//! constraint and random numbers as without guesses; a guess only decides whether the scores after it are at hand already.
//! So no answer depends on what was guessed, sampled ones included, as far as a call with several tokens gives the scores
//! that calls with one of them give. An answer so far flows in, tokens that may follow flow out; [`crate::drive`] checks them.

mod draft;
mod lookup;
mod watch;

use crate::generation::Generation;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LanguageModel, Result};
use draft::Draft;
use pteron_runtime::RunControl;
use serde::Serialize;
use watch::Watch;

/// Numbers of guesses in one call: few, since every length of a call has a plan of its own.
const LENGTHS: [usize; 5] = [1, 2, 4, 8, 15];

/// Where it begins without a watch.
const FIRST_LENGTH: usize = 2;

/// Why the tokens of a model cannot be guessed ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum NoSpeculation {
    #[error("the program draws its tokens itself")]
    DrawsItself,
    #[error("the program gives the logits of the last token only; export it anew for those of several")]
    LastLogits,
    #[error("the program reads one token at a time")]
    OneToken,
    #[error("the program keeps a state that cannot be taken back token by token")]
    State,
}

impl Serialize for NoSpeculation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl LanguageModel {
    /// Whether guessed tokens can be checked in one call and taken back where they are wrong.
    ///
    /// # Errors
    /// When they cannot: why.
    pub fn can_speculate(&self) -> Result<(), NoSpeculation> {
        if self.draws_itself() {
            return Err(NoSpeculation::DrawsItself);
        }
        let Some(all) = self.all_logits() else { return Err(NoSpeculation::LastLogits) };
        if self.chunk().min(all.longest.unwrap_or(usize::MAX)) < 2 {
            return Err(NoSpeculation::OneToken);
        }
        if self.caches().take_back() { Ok(()) } else { Err(NoSpeculation::State) }
    }
}

/// What guesses the tokens of a decoder's answers.
#[derive(Debug)]
pub struct Speculator {
    guesser: Guesser,
    /// Where guesses are made only as far as they pay.
    watch: Option<Watch>,
    /// The place in [`LENGTHS`] of how many are made without a watch: more where all hold, fewer where none does.
    length: usize,
    guesses: Vec<u32>,
    /// Tokens that agreed with an earlier place.
    agreed: usize,
    /// Whether the caches could not be cut back once, so that another guess would cost too much.
    stuck: bool,
}

#[derive(Debug)]
enum Guesser {
    Lookup,
    Draft(Box<Draft>),
}

impl Speculator {
    /// Guesses from the text itself, as far as that makes answers faster.
    pub fn auto() -> Speculator {
        Speculator { watch: Some(Watch::new()), ..Speculator::of(Guesser::Lookup) }
    }

    /// Guesses from the text itself wherever it has something to guess from.
    pub fn lookup() -> Speculator {
        Speculator::of(Guesser::Lookup)
    }

    /// Guesses of a smaller model, which reads with this decoder. With the tokenizers of both, `draft` and then that of the
    /// model that answers, it is seen to that they are the same.
    ///
    /// # Errors
    /// When the tokens are others, or the draft gives no scores, or what it was wrong about cannot be taken back.
    pub fn draft(decoder: Decoder, tokenizers: Option<(&Tokenizer, &Tokenizer)>) -> Result<Speculator> {
        if let Some((draft, target)) = tokenizers {
            draft::check_tokens(decoder.model().program().name(), draft, target)?;
        }
        Ok(Speculator::of(Guesser::Draft(Box::new(Draft::new(decoder)?))))
    }

    fn of(guesser: Guesser) -> Speculator {
        let length = FIRST_LENGTH;
        Speculator { guesser, watch: None, length, guesses: Vec::new(), agreed: 0, stuck: false }
    }

    /// The same for a copy of the decoder.
    pub(crate) fn fork(&self) -> Result<Speculator> {
        let guesser = match &self.guesser {
            Guesser::Lookup => Guesser::Lookup,
            Guesser::Draft(draft) => Guesser::Draft(Box::new(draft.fork()?)),
        };
        let (watch, length) = (self.watch.clone(), self.length);
        Ok(Speculator { watch, length, stuck: self.stuck, ..Speculator::of(guesser) })
    }

    /// What may follow an answer so far, `most` tokens at most; nothing where no guess is made.
    pub(crate) fn guess(
        &mut self,
        generation: &Generation<'_>,
        most: usize,
        control: &RunControl,
    ) -> Result<&[u32]> {
        self.guesses.clear();
        if self.stuck || most == 0 {
            return Ok(&[]);
        }
        let text = generation.history();
        let unwatched = LENGTHS.iter().rev().find(|&&length| length <= LENGTHS[self.length].min(most));
        let unwatched = unwatched.copied().unwrap_or(0);
        match &mut self.guesser {
            Guesser::Lookup => {
                let Some(found) = lookup::find(text) else { return Ok(&[]) };
                self.agreed = found.length;
                let count = match &self.watch {
                    Some(watch) => watch.length(found.length, most),
                    None => unwatched,
                };
                found.following(text, count, &mut self.guesses);
            }
            Guesser::Draft(draft) => draft.guess(generation, unwatched, control, &mut self.guesses)?,
        }
        // What ends the answer is the last that can hold.
        if let Some(end) = self.guesses.iter().position(|&token| generation.ends_with(token)) {
            self.guesses.truncate(end + 1);
        }
        Ok(&self.guesses)
    }

    /// A token came without guesses, in so many milliseconds.
    pub(crate) fn note_plain(&mut self, milliseconds: f64) {
        if let Some(watch) = &mut self.watch {
            watch.plain(milliseconds);
        }
    }

    /// Of so many guesses that were checked, the first ones held, which took so many milliseconds.
    pub(crate) fn note_guessed(&mut self, guessed: usize, right: usize, milliseconds: f64) {
        if let Some(watch) = &mut self.watch {
            watch.guessed(self.agreed, guessed, right, milliseconds);
        }
        match right {
            0 => self.length = self.length.saturating_sub(1),
            right if right == guessed => self.length = (self.length + 1).min(LENGTHS.len() - 1),
            _ => {}
        }
    }

    /// The caches could not be cut back.
    pub(crate) fn give_up(&mut self) {
        self.stuck = true;
    }
}
