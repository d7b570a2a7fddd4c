//! What the scheduler tells of a request, as pieces of answers: what is said, thought and called, why it ended, what it
//! took.

use crate::asked::Asked;
use pteron_llm::tools::{Part, Reader, ToolCall};
use pteron_llm::{Event, FinishReason, Likelihood, LlmError, Stats};
use serde_json::{Value, json};

/// A piece of one of the answers.
pub(crate) struct Piece {
    pub(crate) answer: usize,
    pub(crate) says: Says,
    /// The tokens behind it, where their likelihoods are asked for.
    pub(crate) likelihoods: Vec<Likelihood>,
    /// The stop string that ended the answer.
    pub(crate) stop: Option<String>,
}

/// What a piece is.
pub(crate) enum Says {
    Content(String),
    Reasoning(String),
    /// A call, and its number in its answer.
    Call(usize, ToolCall),
    /// Why the answer has ended, in the words of the interface.
    End(&'static str),
}

/// All answers to one request as they grow.
pub(crate) struct Answers {
    each: Vec<Growing>,
    many_calls: bool,
    usage: Usage,
    left: usize,
}

struct Growing {
    reader: Option<Reader>,
    calls: usize,
    likelihoods: Vec<Likelihood>,
}

/// What a request took: tokens, and milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) answers: usize,
    /// Of those of answers, the ones that were thought.
    pub(crate) reasoning: usize,
    pub(crate) prompt_time: f64,
    pub(crate) answer_time: f64,
}

impl Usage {
    pub(crate) fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answers,
            "total_tokens": self.prompt + self.answers,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }

    fn add(&mut self, tokens: usize, stats: &Stats) {
        self.answers += tokens;
        self.prompt_time = self.prompt_time.max(stats.prompt_end - stats.start);
        self.answer_time = self.answer_time.max(stats.end - stats.prompt_end);
    }
}

impl Answers {
    pub(crate) fn new(asked: &Asked) -> Answers {
        let growing = |_| Growing { reader: asked.reader.clone(), calls: 0, likelihoods: Vec::new() };
        Answers {
            each: (0..asked.request.answers).map(growing).collect(),
            many_calls: asked.many_calls,
            usage: Usage { prompt: asked.request.prompt.len(), ..Usage::default() },
            left: asked.request.answers,
        }
    }

    /// Whether all have ended.
    pub(crate) fn done(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The pieces that an event brings.
    ///
    /// # Errors
    /// When an answer failed; the others count for nothing then.
    pub(crate) fn take(&mut self, event: Event) -> Result<Vec<Piece>, LlmError> {
        match event {
            Event::Began { cached } => {
                self.usage.cached = cached;
                Ok(Vec::new())
            }
            Event::Token { answer, text, likelihood } => {
                let Some(growing) = self.each.get_mut(answer) else { return Ok(Vec::new()) };
                growing.likelihoods.extend(likelihood);
                let parts = match &mut growing.reader {
                    Some(reader) => reader.push(&text),
                    None => content(text),
                };
                let thinks = matches!(parts.first(), Some(Part::Reasoning(_)));
                self.usage.reasoning += usize::from(thinks);
                Ok(growing.pieces(answer, parts, self.many_calls))
            }
            Event::Ended { answer, rest, outcome } => {
                let whole = outcome?;
                self.usage.add(whole.tokens.len(), &whole.stats);
                self.left = self.left.saturating_sub(1);
                let Some(growing) = self.each.get_mut(answer) else { return Ok(Vec::new()) };
                let parts = match growing.reader.take() {
                    Some(mut reader) => {
                        let mut parts = reader.push(&rest);
                        parts.extend(reader.finish());
                        parts
                    }
                    None => content(rest),
                };
                let mut pieces = growing.pieces(answer, parts, self.many_calls);
                let reason = match whole.finish_reason {
                    FinishReason::Stop if growing.calls > 0 => "tool_calls",
                    FinishReason::Stop => "stop",
                    // The time was up, which is a budget too.
                    FinishReason::Length | FinishReason::Cancelled => "length",
                };
                let likelihoods = std::mem::take(&mut growing.likelihoods);
                if !likelihoods.is_empty() {
                    pieces.push(Piece {
                        answer,
                        says: Says::Content(String::new()),
                        likelihoods,
                        stop: None,
                    });
                }
                let stop = whole.stop;
                pieces.push(Piece { answer, says: Says::End(reason), likelihoods: Vec::new(), stop });
                Ok(pieces)
            }
        }
    }
}

fn content(text: String) -> Vec<Part> {
    if text.is_empty() { Vec::new() } else { vec![Part::Content(text)] }
}

impl Growing {
    fn pieces(&mut self, answer: usize, parts: Vec<Part>, many_calls: bool) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            let says = match part {
                Part::Content(text) => Says::Content(text),
                Part::Reasoning(text) => Says::Reasoning(text),
                Part::Call(_) if self.calls > 0 && !many_calls => continue,
                Part::Call(call) => {
                    self.calls += 1;
                    Says::Call(self.calls - 1, call)
                }
            };
            let likelihoods = match says {
                Says::Content(_) => std::mem::take(&mut self.likelihoods),
                _ => Vec::new(),
            };
            pieces.push(Piece { answer, says, likelihoods, stop: None });
        }
        pieces
    }
}
