//! Guesses from the text itself (prompt lookup): what followed the last tokens when they came before.

/// Tokens that are compared at most.
const LONGEST: usize = 16;

/// Tokens that must agree at least.
const LEAST: usize = 2;

/// An earlier place at which the text ends as it ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Tokens that agree, up to [`LONGEST`].
    pub(super) length: usize,
    /// Where what followed them begins.
    from: usize,
}

/// The place that agrees with the end of a text over the most tokens; of several such, the latest.
pub(super) fn find(text: &[u32]) -> Option<Match> {
    let (&last, before) = text.split_last()?;
    let mut best: Option<Match> = None;
    for (at, _) in before.iter().enumerate().rev().filter(|(_, token)| **token == last) {
        let same = before[..at].iter().rev().zip(before.iter().rev());
        let length = 1 + same.take(LONGEST - 1).take_while(|(earlier, now)| earlier == now).count();
        if best.is_none_or(|best| length > best.length) {
            best = Some(Match { length, from: at + 1 });
        }
        if length == LONGEST {
            break;
        }
    }
    best.filter(|best| best.length >= LEAST)
}

impl Match {
    /// What followed, as many tokens as are wanted. Where that is the end of the text itself, it repeats.
    pub(super) fn following(self, text: &[u32], count: usize, guesses: &mut Vec<u32>) {
        guesses.extend(text[self.from..].iter().cycle().take(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(text: &[u32], count: usize) -> (usize, Vec<u32>) {
        let mut guesses = Vec::new();
        let Some(found) = find(text) else { return (0, guesses) };
        found.following(text, count, &mut guesses);
        (found.length, guesses)
    }

    #[test]
    fn the_longest_agreement_wins_and_of_equals_the_latest() {
        assert_eq!(guess(&[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 2), (3, vec![4, 9]));
        assert_eq!(guess(&[1, 2, 7, 1, 2, 8, 1, 2], 1), (2, vec![8]));
        // One token alone says too little.
        assert_eq!(guess(&[1, 2, 3, 9, 3], 4), (0, vec![]));
        assert_eq!(guess(&[], 4), (0, vec![]));
        assert_eq!(guess(&[5], 4), (0, vec![]));
    }

    #[test]
    fn a_text_that_goes_round_is_guessed_to_go_on_so() {
        assert_eq!(guess(&[1, 2, 3, 1, 2, 3, 1, 2], 5), (5, vec![3, 1, 2, 3, 1]));
        assert_eq!(guess(&[4; 40], 3), (LONGEST, vec![4, 4, 4]));
    }
}
