//! One round of answers: sessions read what comes next, and each answer chooses from what follows. Every answer is driven
//! from here, token by token: [`generate`](crate::generate()) has one session and one turn a round, the
//! [`Scheduler`](crate::Scheduler) many, whose calls go to the backend together.

use crate::decoder::Reading;
use crate::generation::{Generation, Step};
use crate::{Decoder, LlmError, Next, Result};
use pteron_runtime::{Error, RunControl};
use std::ops::ControlFlow;

/// What one session reads in a round, and who chooses from what follows.
pub(crate) struct Turn<'t, 'c> {
    pub(crate) decoder: &'t mut Decoder,
    pub(crate) generation: &'t mut Generation<'c>,
    /// Further answers to the same prompt.
    pub(crate) siblings: &'t mut [Generation<'c>],
    pub(crate) tokens: &'t [u32],
    /// Tokens of the text from here on: more than those that are read now, where a prompt comes in parts.
    pub(crate) length: usize,
    pub(crate) control: &'t RunControl,
}

/// The next step of an answer, and of its siblings.
pub(crate) type Chosen = (Result<Step>, Vec<Result<Step>>);

/// What came of a turn.
pub(crate) enum Outcome {
    /// A part of the prompt has been read.
    Read,
    Chosen(Chosen),
    Failed(LlmError),
}

impl Turn<'_, '_> {
    /// Whether all is read, so that what follows is wanted.
    fn is_whole(&self) -> bool {
        self.tokens.len() == self.length
    }

    fn begins(&mut self) {
        self.generation.call_begins();
        self.siblings.iter_mut().for_each(Generation::call_begins);
    }
}

/// The turn of a session that is alone in its round and reads all that there is: the backend may read ahead, and nothing is
/// allocated.
pub(crate) fn drive_one(mut turn: Turn<'_, '_>) -> Result<Chosen> {
    turn.begins();
    let Turn { decoder, generation, siblings, tokens, control, .. } = turn;
    let draw = *generation.draw();
    // Siblings choose for themselves.
    let next = match siblings.is_empty() && generation.takes_likeliest() {
        true => decoder.read_greedily(tokens, generation.goes_on(), control),
        false => decoder.read(tokens, &draw, control),
    };
    Ok(choose(next?, generation, siblings))
}

/// What came of guesses.
pub(crate) struct Checked {
    /// How many of them held, from the first on.
    pub(crate) right: usize,
    /// What is to be done after the last token that was chosen.
    pub(crate) step: Result<Step>,
    /// Whether the caches hold less than they would without guesses: what is missing is to be read again.
    pub(crate) stuck: bool,
}

/// The turn of a session that reads a token and guesses of what follows it, in one call. Each token is chosen as if those
/// before it had been read one by one; `show` is told after each guess that held and may end the answer. Afterwards the
/// decoder holds what it would hold without guesses: all that was chosen, but for the last.
pub(crate) fn drive_guessed(
    mut turn: Turn<'_, '_>,
    show: &mut dyn FnMut(&Generation<'_>) -> ControlFlow<()>,
) -> Result<Checked> {
    turn.begins();
    let Turn { decoder, generation, tokens, control, .. } = turn;
    let held = decoder.tokens().len();
    decoder.read_guessed(tokens, control)?;
    let mut right = 0;
    let step = loop {
        let step = decoder.scores_after(right).and_then(|scores| generation.take(Next::Scores(scores)));
        match step {
            Ok(Step::Read(token)) if tokens.get(right + 1) == Some(&token) => {}
            other => break other,
        }
        if show(generation).is_break() {
            break Err(LlmError::Run(Error::Cancelled));
        }
        if let Err(error) = control.check() {
            break Err(LlmError::Run(error));
        }
        right += 1;
        generation.call_begins();
    };
    let wanted = held + 1 + right;
    let stuck = decoder.rewind(wanted)? < wanted;
    Ok(Checked { right, step, stuck })
}

/// The turns of several sessions of one model; what came of each, in their order.
pub(crate) fn drive(mut turns: Vec<Turn<'_, '_>>) -> Vec<Outcome> {
    if turns.len() == 1
        && let Some(turn) = turns.pop_if(|turn| turn.is_whole())
    {
        return vec![drive_one(turn).map_or_else(Outcome::Failed, Outcome::Chosen)];
    }
    let draws: Vec<_> = turns.iter().map(|turn| *turn.generation.draw()).collect();
    let mut readings = Vec::with_capacity(turns.len());
    let mut choosers = Vec::with_capacity(turns.len());
    for (mut turn, draw) in turns.into_iter().zip(&draws) {
        turn.begins();
        let is_whole = turn.is_whole();
        let Turn { decoder, generation, siblings, tokens, length, control } = turn;
        readings.push(Reading::new(decoder, tokens, draw, control).part_of(length));
        choosers.push((is_whole, generation, siblings));
    }
    Decoder::read_together(&mut readings);
    let each = readings.into_iter().zip(choosers);
    let outcomes = each.map(|(reading, (is_whole, generation, siblings))| {
        let outcome = match is_whole {
            true => reading.finish().map(|next| Outcome::Chosen(choose(next, generation, siblings))),
            false => reading.done().map(|()| {
                generation.call_ends();
                siblings.iter_mut().for_each(Generation::call_ends);
                Outcome::Read
            }),
        };
        outcome.unwrap_or_else(Outcome::Failed)
    });
    outcomes.collect()
}

/// The next step of an answer and of those that wait for the same prompt; each sees the scores as the model gave them.
fn choose(next: Next<'_>, generation: &mut Generation<'_>, siblings: &mut [Generation<'_>]) -> Chosen {
    match next {
        Next::Scores(scores) => {
            let each = siblings.iter_mut().map(|sibling| sibling.take(Next::Scores(&mut scores.clone())));
            let steps = each.collect();
            (generation.take(Next::Scores(scores)), steps)
        }
        Next::Token(token) => (generation.take(Next::Token(token)), Vec::new()),
    }
}
