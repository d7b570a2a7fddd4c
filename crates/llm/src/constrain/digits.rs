//! Numbers of bounded length. A schema says how large a number may be but not how many digits it may have, and a model
//! that has begun to repeat one goes on until its budget is spent. Digits beyond what a reader's types can tell apart
//! say nothing, so a number that has that many ends as soon as the schema lets it.

use super::{ConstraintError, stopped};
use llguidance::Matcher;
use toktrie::SimpleVob;

/// Digits of a whole number: all such fit into 64 bits.
const MOST_WHOLE_DIGITS: usize = 18;

/// Digits of a number with a fraction, on both sides of the point together. With one more, which an exclusive bound may
/// ask for, 64-bit floats still tell all such numbers apart, so that none is rounded onto a bound.
const MOST_DIGITS: usize = 14;

/// Digits of an exponent: with those before the point, every number is one that a 64-bit float can hold.
const MOST_EXPONENT_DIGITS: usize = 2;

/// Where in a JSON text its end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Structure,
    Text,
    Escape,
    Whole,
    Fraction,
    Exponent,
}

/// The number that a JSON text is in the middle of.
#[derive(Clone, Debug)]
pub(super) struct Digits {
    place: Place,
    /// Digits so far: of the number, or of its exponent.
    count: usize,
}

impl Digits {
    /// At the beginning of a text.
    pub(super) fn new() -> Digits {
        Digits { place: Place::Structure, count: 0 }
    }

    /// Goes on by what was said.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let place = match (self.place, byte) {
                (Place::Escape, _) => Place::Text,
                (Place::Text, b'\\') => Place::Escape,
                (Place::Text, b'"') => Place::Structure,
                (Place::Text, _) => Place::Text,
                (_, b'"') => Place::Text,
                (Place::Structure, b'0'..=b'9') => Place::Whole,
                (Place::Whole, b'.') => Place::Fraction,
                (Place::Whole | Place::Fraction, b'e' | b'E') => Place::Exponent,
                (Place::Exponent, b'+' | b'-') => Place::Exponent,
                (place @ (Place::Whole | Place::Fraction | Place::Exponent), b'0'..=b'9') => place,
                _ => Place::Structure,
            };
            if place != self.place && place != Place::Fraction {
                self.count = 0;
            }
            let is_digit = byte.is_ascii_digit() && !matches!(place, Place::Text | Place::Escape);
            self.count += usize::from(is_digit);
            self.place = place;
        }
    }

    /// Takes what would make the number longer from what the matcher allows next, where it has digits enough and may
    /// end. Where it may not, as at an exclusive bound or before a multiple of something, only such digits stay after
    /// which it may, if there are any.
    pub(super) fn narrow(&self, allowed: &mut SimpleVob, matcher: &Matcher) -> Result<(), ConstraintError> {
        let is_full = match self.place {
            Place::Whole => self.count >= MOST_WHOLE_DIGITS,
            Place::Fraction => self.count >= MOST_DIGITS,
            Place::Exponent => self.count >= MOST_EXPONENT_DIGITS,
            Place::Structure | Place::Text | Place::Escape => return Ok(()),
        };
        let tokens = matcher.tok_env().map_err(|error| stopped(&error))?;
        let word = |token: u32| tokens.tok_trie().token(token);
        let is_longer = |token: u32| word(token).first().is_some_and(u8::is_ascii_digit);
        if self.place == Place::Whole && self.count >= MOST_DIGITS {
            forbid_unless_all(allowed, |token| word(token).starts_with(b"."));
        }
        if !is_full || forbid_unless_all(allowed, is_longer) {
            return Ok(());
        }
        let may_end_after = |token: u32| {
            let mut ahead = matcher.clone();
            word(token).len() == 1
                && ahead.try_consume_tokens(&[token]).is_ok_and(|taken| taken == 1)
                && ahead.compute_mask_or_eos().is_ok_and(|mask| mask.iter().any(|token| !is_longer(token)))
        };
        forbid_unless_all(allowed, |token| !may_end_after(token));
        Ok(())
    }
}

/// Forbids the tokens for which `unwanted` holds, where any others are allowed; whether there are such.
fn forbid_unless_all(allowed: &mut SimpleVob, unwanted: impl Fn(u32) -> bool) -> bool {
    let (unwanted, others): (Vec<u32>, Vec<u32>) = allowed.iter().partition(|&token| unwanted(token));
    if others.is_empty() {
        return false;
    }
    unwanted.into_iter().for_each(|token| allowed.disallow_token(token));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_in_numbers_only() {
        let after = |text: &str| {
            let mut digits = Digits::new();
            digits.take(text.as_bytes());
            (digits.place, digits.count)
        };
        assert_eq!(after("{\"a1\": "), (Place::Structure, 0));
        assert_eq!(after("{\"a1\": -12"), (Place::Whole, 2));
        assert_eq!(after("[1, 20"), (Place::Whole, 2));
        assert_eq!(after("[1.250"), (Place::Fraction, 4));
        assert_eq!(after("[1.5e-07"), (Place::Exponent, 2));
        assert_eq!(after("[1.5e-07,"), (Place::Structure, 0));
        assert_eq!(after("[\"\\\"123"), (Place::Text, 0));
        assert_eq!(after("[\"x\", 7"), (Place::Whole, 1));
    }
}
