//! Whether guessing pays (`auto`): how many guesses hold, by how many tokens of the text agreed, and what a call with more
//! tokens takes beside one with a single token. Guesses are made where more tokens a second are expected of them, and only
//! as long as what was lost on wrong ones stays below a part of what all tokens took, so that no answer is much slower than
//! without them.
//!
//! Times flow in, numbers of guesses flow out; no clock is read here.

use super::LENGTHS;

/// What may be lost at first, in times of a plain token, and what each token adds to that: 128 tokens may lose one and a
/// half of their times at most, beside the last guess that was wrong.
const CREDIT: f64 = 0.4;
const CREDIT_OF_TOKEN: f64 = 0.008;

/// The part of what a guess costs, if it is wrong, that the credit must cover.
const RISKED: f64 = 0.5;

/// What was won can be lost again up to this.
const MOST_CREDIT: f64 = 8.0;

/// What each token more in a call takes, as a part of a call with one, before anything was measured.
const USUAL_SLOPE: f64 = 0.25;

/// Gains that are expected must be above this part: times are never exact.
const LEAST_GAIN: f64 = 0.03;

/// How often a guess holds, before anything was seen: by the class of how many tokens agreed.
const USUAL_RATES: [f64; 5] = [0.2, 0.45, 0.6, 0.75, 0.85];

/// How many guesses those count for.
const USUAL_WEIGHT: f64 = 4.0;

/// Plain calls whose median counts.
const TIMES: usize = 9;

/// Guesses that were made and that held; the newest count the most.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    right: f64,
    wrong: f64,
}

impl Held {
    fn note(&mut self, right: usize, wrong: usize) {
        const FADING: f64 = 0.95;
        self.right = self.right * FADING + right as f64;
        self.wrong = self.wrong * FADING + wrong as f64;
    }

    /// The rate, where `usual` is what is expected without having seen any.
    fn rate(self, usual: f64) -> f64 {
        (self.right + usual * USUAL_WEIGHT) / (self.right + self.wrong + USUAL_WEIGHT)
    }
}

/// What was seen so far.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    by_class: [Held; USUAL_RATES.len()],
    all: Held,
    /// Milliseconds of the last plain calls.
    plain: Vec<f64>,
    next: usize,
    slope: f64,
    /// Lengths of calls that were timed before: the first of a length also makes its plan.
    timed: [bool; LENGTHS.len()],
    credit: f64,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            by_class: Default::default(),
            all: Held::default(),
            plain: Vec::with_capacity(TIMES),
            next: 0,
            slope: USUAL_SLOPE,
            timed: Default::default(),
            credit: CREDIT,
        }
    }

    /// How many guesses to make of `most`, where so many tokens agreed: one of [`LENGTHS`], or 0.
    pub(super) fn length(&self, agreed: usize, most: usize) -> usize {
        // Without a plain call there is nothing to compare with.
        if self.plain.is_empty() {
            return 0;
        }
        let rate = self.rate(agreed);
        // What longer calls take here is not known before the first.
        let most = if self.timed.contains(&true) { most } else { most.min(1) };
        let mut best = (1.0 + LEAST_GAIN, 0);
        for &length in LENGTHS.iter().filter(|&&length| length <= most) {
            let cost = 1.0 + self.slope * length as f64;
            let expected = (1..=length as i32).map(|guess| rate.powi(guess)).sum::<f64>() + 1.0;
            if expected / cost > best.0 && self.credit >= RISKED * (cost - 1.0) {
                best = (expected / cost, length);
            }
        }
        best.1
    }

    fn rate(&self, agreed: usize) -> f64 {
        let class = class(agreed);
        let usual = USUAL_RATES[class];
        // Where guesses hold in general, they do so after fewer tokens too.
        self.by_class[class].rate((usual + self.all.rate(usual)) / 2.0)
    }

    /// A token came without guesses.
    pub(super) fn plain(&mut self, milliseconds: f64) {
        match self.plain.len() < TIMES {
            true => self.plain.push(milliseconds),
            false => self.plain[self.next] = milliseconds,
        }
        self.next = (self.next + 1) % TIMES;
        self.earn(CREDIT_OF_TOKEN);
    }

    /// Of `guessed` tokens, after so many that agreed, the first `right` held; the call, and all that was chosen from it,
    /// took so long.
    pub(super) fn guessed(&mut self, agreed: usize, guessed: usize, right: usize, milliseconds: f64) {
        let wrong = usize::from(right < guessed);
        self.by_class[class(agreed)].note(right, wrong);
        self.all.note(right, wrong);
        let Some(plain) = self.median().filter(|&plain| plain > 0.0) else { return };
        // A pause of the whole machine says nothing about guesses.
        let longest = 3.0 * (1.0 + self.slope * guessed as f64);
        let took = (milliseconds / plain).min(longest);
        if let Some(at) = LENGTHS.iter().position(|&length| length == guessed)
            && std::mem::replace(&mut self.timed[at], true)
        {
            let slope = ((took - 1.0) / guessed as f64).max(0.0);
            self.slope += 0.3 * (slope - self.slope);
        }
        // What failed has cost something, whatever the clock says.
        let gain = if right == 0 { (1.0 - took).min(-0.05) } else { (1 + right) as f64 - took };
        self.earn(gain + CREDIT_OF_TOKEN * (1 + right) as f64);
    }

    fn earn(&mut self, credit: f64) {
        self.credit = (self.credit + credit).min(MOST_CREDIT);
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = [0.0; TIMES];
        let sorted = &mut sorted[..self.plain.len()];
        sorted.copy_from_slice(&self.plain);
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

fn class(agreed: usize) -> usize {
    match agreed {
        0..=2 => 0,
        3 => 1,
        4..=5 => 2,
        6..=8 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of a call with so many guesses, where a token more takes a part of a call with one.
    fn cost(slope: f64, guesses: usize) -> f64 {
        10.0 * (1.0 + slope * guesses as f64)
    }

    /// An answer in which each place has a match of that many tokens, whose guesses hold so far; tokens, milliseconds and
    /// guesses.
    fn answer(slope: f64, tokens: usize, found: impl Fn(usize) -> (usize, usize)) -> (usize, f64, usize) {
        let (mut watch, mut said, mut took, mut made) = (Watch::new(), 0, 0.0, 0);
        while said < tokens {
            let (agreed, holds) = found(said);
            match watch.length(agreed, 15) {
                0 => {
                    said += 1;
                    took += cost(slope, 0);
                    watch.plain(cost(slope, 0));
                }
                guessed => {
                    let right = holds.min(guessed);
                    said += 1 + right;
                    took += cost(slope, guessed);
                    made += guessed;
                    watch.guessed(agreed, guessed, right, cost(slope, guessed));
                }
            }
        }
        (said, took, made)
    }

    #[test]
    fn nothing_is_lost_where_no_guess_holds() {
        for slope in [0.05, 0.25, 0.6, 1.0] {
            for agreed in [2, 3, 5, 8, 16] {
                for tokens in [64, 128, 1000] {
                    let (said, took, made) = answer(slope, tokens, |_| (agreed, 0));
                    let ratio = said as f64 * cost(slope, 0) / took;
                    assert!(ratio >= 0.98, "{slope}, {agreed}, {tokens}: {ratio}, {made} guesses");
                }
            }
        }
    }

    #[test]
    fn a_text_that_is_copied_comes_in_long_calls() {
        let (said, took, _) = answer(0.2, 256, |_| (16, 15));
        assert!(said as f64 * cost(0.2, 0) / took > 2.5, "{took}");
        // A call that takes as long as its tokens one by one wins nothing.
        let (said, took, _) = answer(1.0, 256, |_| (16, 15));
        assert!(said as f64 * cost(1.0, 0) / took > 0.98, "{took}");
    }

    #[test]
    fn a_quotation_after_a_long_text_without_any_is_found() {
        let quoted = |said: usize| if said > 300 { (16, 15) } else { (2, 0) };
        let (_, took, made) = answer(0.2, 600, quoted);
        assert!(made > 100 && took < 300.0 * cost(0.2, 0) * 1.6, "{took}, {made} guesses");
    }
}
