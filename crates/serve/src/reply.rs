//! Answers in the words of OpenAI's interface: whole ones, and the chunks of streams.

use crate::answer::{Piece, Says, Usage};
use crate::asked::{Asked, Shape};
use crate::error::ApiError;
use crate::wire::{Wire, event};
use bytes::Bytes;
use pteron_llm::Likelihood;
use pteron_llm::tokenizer::Tokenizer;
use pteron_llm::tools::ToolCall;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The last word of a stream.
pub(crate) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// Writes the answers to one request.
pub(crate) struct Writer {
    shape: Shape,
    id: String,
    created: u64,
    model: String,
    tokenizer: Tokenizer,
    /// Whether chunks tell of usage, which only the last one has.
    usage: bool,
    likelihoods: bool,
    /// Characters of each answer before its next token.
    offsets: Vec<usize>,
}

/// An answer that is not streamed, as far as it has come.
#[derive(Default)]
struct Whole {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    likelihoods: Vec<Likelihood>,
    reason: &'static str,
}

impl Writer {
    pub(crate) fn new(asked: &Asked) -> Writer {
        Writer {
            shape: asked.shape,
            id: match asked.shape {
                Shape::Completion => fresh("cmpl-"),
                _ => fresh("chatcmpl-"),
            },
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            model: asked.model.name.clone(),
            tokenizer: asked.model.voice.tokenizer.clone(),
            usage: asked.usage,
            likelihoods: asked.request.likeliest.is_some(),
            offsets: vec![0; asked.request.answers],
        }
    }

    fn envelope(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
        })
    }

    fn object(&self, chunk: bool) -> &'static str {
        match (self.shape, chunk) {
            (Shape::Completion, _) => "text_completion",
            (_, true) => "chat.completion.chunk",
            (_, false) => "chat.completion",
        }
    }

    /// A chunk that may say of usage that there is none yet.
    fn chunk(&self, choices: Vec<Value>) -> Value {
        let mut chunk = self.envelope(self.object(true), choices);
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// What a stream begins with: who speaks, once for each answer.
    fn first_chunks(&self) -> Vec<Value> {
        let first = |index| {
            let delta = json!({"role": "assistant", "content": ""});
            self.chunk(vec![json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null})])
        };
        match self.shape {
            Shape::Completion => Vec::new(),
            _ => (0..self.offsets.len()).map(first).collect(),
        }
    }

    /// The chunk of a piece.
    fn piece_chunk(&mut self, piece: Piece) -> Value {
        let Piece { answer, says, likelihoods, .. } = piece;
        let told = self.told(answer, &likelihoods);
        let reason = match says {
            Says::End(reason) => Value::from(reason),
            _ => Value::Null,
        };
        if self.shape == Shape::Completion {
            let text = match says {
                Says::Content(text) => text,
                _ => String::new(),
            };
            let choice = json!({"index": answer, "text": text, "logprobs": told, "finish_reason": reason});
            return self.chunk(vec![choice]);
        }
        let delta = match says {
            Says::Content(text) => json!({"content": text}),
            Says::Reasoning(text) => json!({"reasoning_content": text}),
            Says::Call(number, call) => {
                let mut call = call_json(&call);
                call["index"] = number.into();
                json!({"tool_calls": [call]})
            }
            Says::End(_) => json!({}),
        };
        self.chunk(vec![json!({"index": answer, "delta": delta, "logprobs": told, "finish_reason": reason})])
    }

    /// What a stream that tells of usage ends with.
    fn last_chunk(&self, usage: Usage) -> Option<Value> {
        self.usage.then(|| {
            let mut chunk = self.chunk(Vec::new());
            chunk["usage"] = usage.json();
            chunk
        })
    }

    fn choice(&mut self, index: usize, whole: Whole) -> Value {
        let told = self.told(index, &whole.likelihoods);
        let reason = whole.reason;
        if self.shape == Shape::Completion {
            return json!({"index": index, "text": whole.content, "logprobs": told, "finish_reason": reason});
        }
        let mut message = json!({"role": "assistant", "content": whole.content, "refusal": null});
        if !whole.calls.is_empty() {
            if whole.content.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = Value::Array(whole.calls);
        }
        if !whole.reasoning.is_empty() {
            message["reasoning_content"] = whole.reasoning.into();
        }
        json!({"index": index, "message": message, "logprobs": told, "finish_reason": reason})
    }

    /// How likely some tokens were; null where nobody asks.
    fn told(&mut self, answer: usize, likelihoods: &[Likelihood]) -> Value {
        if !self.likelihoods || likelihoods.is_empty() {
            return Value::Null;
        }
        match self.shape {
            Shape::Completion => self.token_lists(answer, likelihoods),
            _ => {
                let content: Vec<Value> = likelihoods.iter().map(|token| self.token_json(token)).collect();
                json!({"content": content, "refusal": null})
            }
        }
    }

    fn token_json(&self, likelihood: &Likelihood) -> Value {
        let likeliest = likelihood.likeliest.iter();
        let top: Vec<Value> = likeliest.map(|&(token, log)| self.one_token(token, log)).collect();
        let mut told = self.one_token(likelihood.token, likelihood.log_probability);
        told["top_logprobs"] = Value::Array(top);
        told
    }

    fn one_token(&self, token: u32, log: f32) -> Value {
        let bytes = self.bytes_of(token);
        json!({"token": String::from_utf8_lossy(&bytes), "logprob": finite(log), "bytes": bytes})
    }

    /// What a token stands for; special ones as the vocabulary spells them.
    fn bytes_of(&self, token: u32) -> Vec<u8> {
        let bytes = self.tokenizer.bytes_of(token).filter(|bytes| !bytes.is_empty());
        bytes.unwrap_or_else(|| self.tokenizer.spelling(token).unwrap_or_default().into_bytes())
    }

    fn token_lists(&mut self, answer: usize, likelihoods: &[Likelihood]) -> Value {
        let (mut tokens, mut logs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for likelihood in likelihoods {
            let spelled = |token| String::from_utf8_lossy(&self.bytes_of(token)).into_owned();
            let text = spelled(likelihood.token);
            let top = likelihood.likeliest.iter().map(|&(token, log)| (spelled(token), finite(log)));
            tops.push(Value::Object(top.collect::<Map<String, Value>>()));
            logs.push(finite(likelihood.log_probability));
            offsets.push(self.offsets[answer]);
            self.offsets[answer] += text.chars().count();
            tokens.push(text);
        }
        json!({"tokens": tokens, "token_logprobs": logs, "top_logprobs": tops, "text_offset": offsets})
    }
}

impl Wire for Writer {
    fn begin(&mut self) -> Vec<Bytes> {
        self.first_chunks().iter().map(event).collect()
    }

    fn piece(&mut self, piece: Piece) -> Vec<Bytes> {
        vec![event(&self.piece_chunk(piece))]
    }

    fn end(&mut self, usage: Usage) -> Vec<Bytes> {
        self.last_chunk(usage).iter().map(event).chain([DONE]).collect()
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Bytes> {
        vec![event(&error.json()), DONE]
    }

    fn whole(&mut self, pieces: Vec<Piece>, usage: Usage) -> Value {
        let mut answers: Vec<Whole> = (0..self.offsets.len()).map(|_| Whole::default()).collect();
        for Piece { answer, says, likelihoods, .. } in pieces {
            let Some(whole) = answers.get_mut(answer) else { continue };
            whole.likelihoods.extend(likelihoods);
            match says {
                Says::Content(text) => whole.content += &text,
                Says::Reasoning(text) => whole.reasoning += &text,
                Says::Call(_, call) => whole.calls.push(call_json(&call)),
                Says::End(reason) => whole.reason = reason,
            }
        }
        let choices = answers.into_iter().enumerate().map(|(index, whole)| self.choice(index, whole));
        let choices = choices.collect();
        let mut reply = self.envelope(self.object(false), choices);
        reply["usage"] = usage.json();
        reply
    }
}

/// JSON has no infinity; clients of this interface read -9999 for what cannot be.
fn finite(log: f32) -> Value {
    json!(log.max(-9999.0))
}

fn call_json(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": fresh("call_"), "type": "function", "function": function})
}

/// A name that was not given before.
pub(crate) fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    format!("{prefix}{time:016x}{number:08x}")
}
