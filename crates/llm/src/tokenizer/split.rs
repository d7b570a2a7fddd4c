//! Cutting texts into words by the patterns of a vocabulary.
//!
//! Patterns come from strangers and may backtrack: each look for a match has a bound on its steps, and so has the
//! time that all of them together may take.

use super::{TokenizerError, TokenizerFormat};
use fancy_regex::{Regex, RegexBuilder};
use std::time::{Duration, Instant};

/// Steps back that one look for a match may take.
const MAX_BACKTRACKS: usize = 200_000;
/// Memory that a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 32 << 20;
/// The longest pattern; published ones have some hundred bytes.
const MAX_PATTERN_LENGTH: usize = 1 << 16;
/// Time for a text, and for each byte of it: fifty times what published patterns need.
const BASE_TIME: Duration = Duration::from_millis(500);
const TIME_A_BYTE: Duration = Duration::from_micros(5);

/// Patterns that are applied one after the other: what one leaves is cut further by the next.
#[derive(Debug)]
pub(super) struct Splitter {
    patterns: Vec<Regex>,
}

impl Splitter {
    pub(super) fn new(format: TokenizerFormat, patterns: &[&str]) -> Result<Splitter, TokenizerError> {
        let compile = |pattern: &&str| {
            if pattern.len() > MAX_PATTERN_LENGTH {
                return Err(TokenizerError::malformed(format, "its pattern is too long"));
            }
            let mut builder = RegexBuilder::new(pattern);
            builder.backtrack_limit(MAX_BACKTRACKS).delegate_size_limit(MAX_PATTERN_BYTES);
            builder
                .build()
                .map_err(|error| TokenizerError::malformed(format, format_args!("its pattern: {error}")))
        };
        Ok(Splitter { patterns: patterns.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// The words of a text, in order: matches, and what lies between them.
    pub(super) fn words<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, TokenizerError> {
        let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + BASE_TIME + TIME_A_BYTE * bytes;
        let mut words = vec![text];
        for pattern in &self.patterns {
            let mut cut = Vec::with_capacity(words.len());
            for word in words {
                cut_word(pattern, word, deadline, &mut cut)?;
            }
            words = cut;
        }
        Ok(words)
    }
}

fn cut_word<'t>(
    pattern: &Regex,
    word: &'t str,
    deadline: Instant,
    cut: &mut Vec<&'t str>,
) -> Result<(), TokenizerError> {
    let mut done = 0;
    for (count, found) in pattern.find_iter(word).enumerate() {
        let found = found.map_err(|_| TokenizerError::Pattern { at: done })?;
        if count % 64 == 0 && Instant::now() > deadline {
            return Err(TokenizerError::Pattern { at: done });
        }
        if found.start() > done {
            cut.push(&word[done..found.start()]);
        }
        if !found.as_str().is_empty() {
            cut.push(found.as_str());
        }
        done = found.end();
    }
    if done < word.len() {
        cut.push(&word[done..]);
    }
    Ok(())
}
