//! What an answer took: under the names that ExecuTorch's runners publish (`PyTorchObserver`), and in words.

use crate::speculate::NoSpeculation;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::time::Duration;
use web_time::{Instant, SystemTime, UNIX_EPOCH};

/// Moments since the epoch, from a clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Duration,
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { epoch, start: Instant::now() }
    }
}

impl Clock {
    /// Now, in milliseconds since the epoch.
    pub fn now(&self) -> f64 {
        (self.epoch + self.start.elapsed()).as_secs_f64() * 1e3
    }
}

/// Times in milliseconds, those named `_ms` in the published form since the epoch; counts in tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// When loading began.
    pub load_start: f64,
    /// When loading had ended.
    pub load_end: f64,
    /// When the prompt came in, as text.
    pub start: f64,
    /// When the prompt had been read.
    pub prompt_end: f64,
    /// When the first token of the answer was there; 0 without one.
    pub first_token: f64,
    /// When the answer had ended.
    pub end: f64,
    /// When the last call of the model began.
    pub call_start: f64,
    /// When it ended.
    pub call_end: f64,
    /// Time in calls of the model.
    pub calls: f64,
    /// Time between logits and tokens.
    pub sampling: f64,
    /// Tokens of the whole prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens that were in the caches already.
    pub reused_tokens: usize,
    /// Whether a copy of the caches was put back for that.
    pub restored: bool,
    /// Tokens of the prompt that were not read, since it was interrupted.
    pub unread_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Tokens that were guessed before the model said them, and checked.
    pub guessed_tokens: usize,
    /// Of these, tokens that the model said too.
    pub accepted_tokens: usize,
    /// Why nothing could be guessed, where somebody wanted it.
    pub no_speculation: Option<NoSpeculation>,
    /// Memory that was resident at the most, where the system tells.
    pub peak_bytes: Option<u64>,
}

impl Stats {
    /// Tokens that were read.
    pub fn prefilled_tokens(&self) -> usize {
        self.prompt_tokens.saturating_sub(self.reused_tokens).saturating_sub(self.unread_tokens)
    }

    /// Tokens read in a second.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefilled_tokens(), self.prompt_end - self.start)
    }

    /// Tokens written in a second.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.generated_tokens, self.end - self.prompt_end)
    }

    /// Milliseconds from the prompt to the first token.
    pub fn time_to_first_token(&self) -> Option<f64> {
        (self.first_token > 0.0).then_some(self.first_token - self.start)
    }

    /// The line that tools look for.
    pub fn observer_line(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("PyTorchObserver {json}")
    }

    /// The same in words, on one line of a terminal; on a second one what became of guesses, where there were any.
    pub fn summary(&self) -> String {
        let reused =
            if self.reused_tokens > 0 { format!(" ({} reused)", self.reused_tokens) } else { String::new() };
        let read = match self.unread_tokens {
            0 => tokens(self.prefilled_tokens()),
            _ => format!("{} of {}", self.prefilled_tokens(), tokens(self.prompt_tokens)),
        };
        let mut line = format!(
            "{read} read{reused}{}, {} written{}",
            speed(self.prefill_rate()),
            self.generated_tokens,
            speed(self.decode_rate())
        );
        if let Some(first) = self.time_to_first_token() {
            line += &format!(", first after {}", moment(first));
        }
        if let Some(guesses) = self.guesses() {
            line += &format!("\nspeculation: {guesses}");
        }
        line
    }

    /// How many of the guesses held, where there were any.
    fn guesses(&self) -> Option<String> {
        let Stats { accepted_tokens, guessed_tokens, .. } = self;
        (*guessed_tokens > 0)
            .then(|| format!("{accepted_tokens} of {guessed_tokens} guessed tokens accepted"))
    }

    /// All of it in words, a line for each part.
    pub fn details(&self) -> String {
        let reused = match (self.reused_tokens, self.restored) {
            (0, _) => String::new(),
            (reused, false) => format!(", {reused} reused"),
            (reused, true) => format!(", {reused} reused from a copy of the caches"),
        };
        let (all, read) = (self.prompt_tokens, self.prefilled_tokens());
        let unread = match self.unread_tokens {
            0 => String::new(),
            unread => format!(", {unread} not read"),
        };
        let mut lines = vec![
            format!("prompt  {}{reused}, {read} read{}{unread}", tokens(all), speed(self.prefill_rate())),
            format!("answer  {}{}", tokens(self.generated_tokens), speed(self.decode_rate())),
        ];
        if let Some(first) = self.time_to_first_token() {
            lines.push(format!("first   after {}", moment(first)));
        }
        let off = self.no_speculation.map(|reason| format!("none: {reason}"));
        if let Some(guesses) = self.guesses().or(off) {
            lines.push(format!("guesses {guesses}"));
        }
        if self.load_end > self.load_start {
            lines.push(format!("load    {}", moment(self.load_end - self.load_start)));
        }
        if let Some(bytes) = self.peak_bytes {
            lines.push(format!("memory  {:.0} MiB at the most", bytes as f64 / f64::from(1 << 20)));
        }
        lines.join("\n")
    }
}

fn tokens(count: usize) -> String {
    if count == 1 { "1 token".to_owned() } else { format!("{count} tokens") }
}

/// ` at 50.0 tok/s`; nothing where nothing was timed.
fn speed(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate >= 100.0 => format!(" at {rate:.0} tok/s"),
        Some(rate) => format!(" at {rate:.1} tok/s"),
        None => String::new(),
    }
}

/// Milliseconds, or seconds where there are many.
fn moment(milliseconds: f64) -> String {
    match milliseconds {
        short if short < 10_000.0 => format!("{short:.0} ms"),
        long => format!("{:.1} s", long / 1e3),
    }
}

fn rate(tokens: usize, milliseconds: f64) -> Option<f64> {
    (milliseconds > 0.0 && tokens > 0).then(|| tokens as f64 / milliseconds * 1e3)
}

/// The published names first, in their order; ours after them.
impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(rate) = self.prefill_rate() {
            map.serialize_entry("prefill_token_per_sec", &rate)?;
        }
        if let Some(rate) = self.decode_rate() {
            map.serialize_entry("decode_token_per_sec", &rate)?;
        }
        map.serialize_entry("prompt_tokens", &self.prompt_tokens)?;
        map.serialize_entry("generated_tokens", &self.generated_tokens)?;
        let moments = [
            ("model_load_start_ms", self.load_start),
            ("model_load_end_ms", self.load_end),
            ("inference_start_ms", self.start),
            ("inference_end_ms", self.end),
            ("model_execution_start_ms", self.call_start),
            ("model_execution_end_ms", self.call_end),
            ("prompt_eval_end_ms", self.prompt_end),
            ("first_token_ms", self.first_token),
            ("aggregate_sampling_time_ms", self.sampling),
            ("aggregate_model_execution_time_ms", self.calls),
        ];
        for (name, milliseconds) in moments {
            map.serialize_entry(name, &(milliseconds.round() as i64))?;
        }
        map.serialize_entry("SCALING_FACTOR_UNITS_PER_SECOND", &1000)?;
        map.serialize_entry("prefilled_tokens", &self.prefilled_tokens())?;
        map.serialize_entry("reused_tokens", &self.reused_tokens)?;
        map.serialize_entry("restored_from_copy", &self.restored)?;
        map.serialize_entry("time_to_first_token_ms", &self.time_to_first_token())?;
        map.serialize_entry("proposed_tokens", &self.guessed_tokens)?;
        map.serialize_entry("accepted_tokens", &self.accepted_tokens)?;
        map.serialize_entry("speculation_off", &self.no_speculation)?;
        map.serialize_entry("peak_memory_bytes", &self.peak_bytes)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_names_come_first_and_rates_follow_from_times() {
        let stats = Stats {
            load_start: 1000.0,
            load_end: 1500.0,
            start: 2000.0,
            prompt_end: 2100.0,
            first_token: 2101.0,
            end: 3100.0,
            prompt_tokens: 30,
            reused_tokens: 10,
            generated_tokens: 50,
            peak_bytes: Some(3 << 20),
            ..Stats::default()
        };
        let line = stats.observer_line();
        let start = "PyTorchObserver {\"prefill_token_per_sec\":200.0,\"decode_token_per_sec\":50.0,\
                     \"prompt_tokens\":30,\"generated_tokens\":50,\"model_load_start_ms\":1000,";
        assert!(line.starts_with(start), "{line}");
        assert!(line.contains("\"SCALING_FACTOR_UNITS_PER_SECOND\":1000,\"prefilled_tokens\":20,"), "{line}");
        assert_eq!(
            stats.summary(),
            "20 tokens read (10 reused) at 200 tok/s, 50 written at 50.0 tok/s, first after 101 ms"
        );
        assert_eq!(
            stats.details(),
            "prompt  30 tokens, 10 reused, 20 read at 200 tok/s\n\
             answer  50 tokens at 50.0 tok/s\n\
             first   after 101 ms\n\
             load    500 ms\n\
             memory  3 MiB at the most"
        );
    }

    #[test]
    fn one_line_of_a_terminal_holds_what_an_answer_took() {
        let stats = Stats {
            prompt_end: 12_345.0,
            first_token: 12_346.0,
            end: 60_000.0,
            prompt_tokens: 30_000,
            generated_tokens: 4_000,
            ..Stats::default()
        };
        let line = stats.summary();
        assert_eq!(line, "30000 tokens read at 2430 tok/s, 4000 written at 83.9 tok/s, first after 12.3 s");
        assert!(line.len() <= 80, "{line}");
    }
}
