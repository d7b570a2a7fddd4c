//! Cutting texts into words by the patterns of a vocabulary.
//!
//! Patterns come from strangers and may backtrack: each look for a match has a bound on its steps, and so has the
//! work of all of them together, by the processor's time: a busy machine, or one that slept, refuses nobody's text.

use super::{TokenizerError, TokenizerFormat};
use fancy_regex::{Regex, RegexBuilder};
use std::time::Duration;

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
        let allowance = Allowance { watch: Watch::start(), time: BASE_TIME + TIME_A_BYTE * bytes };
        let mut words = vec![text];
        for pattern in &self.patterns {
            let mut cut = Vec::with_capacity(words.len());
            for word in words {
                cut_word(pattern, word, &allowance, &mut cut)?;
            }
            words = cut;
        }
        Ok(words)
    }
}

fn cut_word<'t>(
    pattern: &Regex,
    word: &'t str,
    allowance: &Allowance,
    cut: &mut Vec<&'t str>,
) -> Result<(), TokenizerError> {
    let mut done = 0;
    for (count, found) in pattern.find_iter(word).enumerate() {
        let found = found.map_err(|_| TokenizerError::Pattern { at: done })?;
        if count % 64 == 0 && allowance.is_spent() {
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

/// What the patterns may still take for a text.
struct Allowance {
    watch: Watch,
    time: Duration,
}

impl Allowance {
    fn is_spent(&self) -> bool {
        self.watch.elapsed() > self.time
    }
}

/// How long this thread has computed; where the system does not say, how long it has been.
struct Watch {
    #[cfg(unix)]
    start: Duration,
    #[cfg(not(unix))]
    start: web_time::Instant,
}

#[cfg(unix)]
impl Watch {
    fn start() -> Watch {
        Watch { start: Watch::now() }
    }

    fn elapsed(&self) -> Duration {
        Watch::now().saturating_sub(self.start)
    }

    fn now() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // A thread's time is never below zero.
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

#[cfg(not(unix))]
impl Watch {
    fn start() -> Watch {
        Watch { start: web_time::Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn time_that_a_thread_waits_is_not_its_own() {
        let watch = Watch::start();
        std::thread::sleep(Duration::from_millis(100));
        assert!(watch.elapsed() < Duration::from_millis(50), "{:?}", watch.elapsed());
        let mut sum = 0u64;
        while watch.elapsed() < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
