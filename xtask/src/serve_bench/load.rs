//! Clients that stream answers, each one after the other, and when every token came.

use std::thread;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Arguments;
use crate::error::{Error, Result};
use crate::serving::Client;

/// What a side gave in one turn.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Turn {
    /// Of all clients together.
    pub(super) tok_s: f64,
    /// Seconds to the first token, of every answer.
    pub(super) first: Vec<f64>,
    /// Seconds between two tokens.
    pub(super) between: Vec<f64>,
}

/// What is asked: for every client its prompts, as text and as the tokens that the model reads.
pub(super) struct Plan {
    pub(super) model: String,
    pub(super) clients: Vec<Vec<Prompt>>,
    pub(super) new: usize,
    /// Tokens that end an answer, which no answer may choose: all shall have the same length.
    ends: Vec<u32>,
}

pub(super) struct Prompt {
    text: String,
    pub(super) tokens: Vec<u32>,
}

/// What turns end with, in the vocabularies of the models here.
const ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

impl Plan {
    pub(super) fn make(client: &Client, model: &str, clients: usize, arguments: &Arguments) -> Result<Plan> {
        let prompt = |number: usize| {
            let text = text(number as u64, arguments.prompt);
            let tokens = tokens(client, &json!({"model": model, "messages": messages(&text)}))?;
            Ok(Prompt { text, tokens })
        };
        let of_client = |at: usize| (0..arguments.answers).map(|turn| prompt(turn * clients + at)).collect();
        let mut ends = Vec::new();
        for end in ENDS {
            let found = tokens(client, &json!({"model": model, "content": end}))?;
            // Several tokens are no mark of this vocabulary.
            ends.extend(found.first().filter(|_| found.len() == 1));
        }
        let clients = (0..clients).map(of_client).collect::<Result<_>>()?;
        Ok(Plan { model: model.to_owned(), clients, new: arguments.new, ends })
    }

    /// One short answer.
    pub(super) fn warm_up(&self, client: &Client) -> Result<()> {
        let body = json!({"model": self.model, "messages": messages("Hello."), "max_tokens": 8});
        client.post("/v1/chat/completions", &body)?.json().map(drop)
    }

    /// All clients at once.
    pub(super) fn run(&self, client: &Client) -> Result<Turn> {
        let began = Instant::now();
        let answers = thread::scope(|scope| {
            let ask = |prompts: &[Prompt]| prompts.iter().map(|prompt| self.answer(client, prompt)).collect();
            let clients: Vec<_> =
                self.clients.iter().map(|prompts| scope.spawn(move || ask(prompts))).collect();
            let ended = clients
                .into_iter()
                .map(|client| client.join().map_err(|_| Error::message("a client panicked"))?);
            ended.collect::<Result<Vec<Vec<Answer>>>>()
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let mut turn = Turn::default();
        let mut tokens = 0;
        for answer in answers.into_iter().flatten() {
            tokens += answer.tokens;
            turn.first.extend(answer.times.first());
            turn.between.extend(answer.times.windows(2).map(|pair| pair[1] - pair[0]));
        }
        turn.tok_s = tokens as f64 / seconds;
        Ok(turn)
    }

    fn answer(&self, client: &Client, prompt: &Prompt) -> Result<Answer> {
        let bias: serde_json::Map<String, Value> =
            self.ends.iter().map(|token| (token.to_string(), json!(-100))).collect();
        let body = json!({
            "model": self.model, "messages": messages(&prompt.text), "max_tokens": self.new, "temperature": 0,
            "logit_bias": bias, "stream": true, "stream_options": {"include_usage": true},
        });
        let answer = answer(client, &body)?;
        match answer.tokens == self.new {
            true => Ok(answer),
            false => Err(Error::message(format!("an answer has {} tokens, not {}", answer.tokens, self.new))),
        }
    }
}

/// A streamed answer: seconds from the question to each piece, and how many tokens it has.
pub(super) struct Answer {
    pub(super) times: Vec<f64>,
    pub(super) tokens: usize,
}

/// Streams one answer.
pub(super) fn answer(client: &Client, body: &Value) -> Result<Answer> {
    let asked = Instant::now();
    let reply = client.post("/v1/chat/completions", body)?;
    let status = reply.status;
    if status != 200 {
        return Err(Error::message(format!("status {status}: {}", reply.text()?)));
    }
    let mut answer = Answer { times: Vec::new(), tokens: 0 };
    for event in reply.events() {
        let event = event?;
        if event == "[DONE]" {
            return Ok(answer);
        }
        let event: Value =
            serde_json::from_str(&event).map_err(|error| Error::message(format!("{error}: {event}")))?;
        if let Some(error) = event.get("error") {
            return Err(Error::message(error.to_string()));
        }
        if event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
            answer.times.push(asked.elapsed().as_secs_f64());
        }
        if let Some(tokens) = event["usage"]["completion_tokens"].as_u64() {
            answer.tokens = tokens as usize;
        }
    }
    Err(Error::message("a stream broke off"))
}

pub(super) fn messages(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn tokens(client: &Client, body: &Value) -> Result<Vec<u32>> {
    let told = client.post("/tokenize", body)?.json()?;
    serde_json::from_value(told["tokens"].clone()).map_err(|_| Error::message(format!("no tokens: {told}")))
}

const WORDS: [&str; 32] = [
    "river", "stone", "light", "garden", "winter", "bread", "window", "music", "forest", "letter", "bridge",
    "silver", "morning", "harbour", "paper", "summer", "mountain", "kitchen", "story", "island", "candle",
    "market", "shadow", "feather", "village", "engine", "orchard", "thunder", "painter", "lantern", "meadow",
    "compass",
];

/// A text of so many words that shares no beginning with those of other numbers.
pub(super) fn text(number: u64, words: usize) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        WORDS[(state >> 59) as usize]
    };
    let words: Vec<&str> = (0..words).map(|_| next()).collect();
    format!("{number}: write a long story with these words: {}.", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_every_time_and_differ_from_the_start() {
        assert_eq!(text(3, 10), text(3, 10));
        assert_ne!(text(3, 10).split(':').next(), text(4, 10).split(':').next());
        assert_eq!(text(3, 10).split(' ').count(), text(4, 10).split(' ').count());
    }
}
