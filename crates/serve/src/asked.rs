//! What chats and completions have in common: which model, how tokens are chosen, how many answers, streamed or not.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Model;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::tools::Reader;
use pteron_llm::{GenerateOptions, Request};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Strings that may end an answer.
const MOST_STOPS: usize = 16;
/// Tokens that may be given a bias.
const MOST_BIASES: usize = 1024;
/// Likeliest tokens that are told.
pub(crate) const MOST_LIKELIEST: usize = 20;

/// Fields that change no answer, for clients that always send them.
const WITHOUT_EFFECT: [&str; 5] = ["user", "store", "metadata", "safety_identifier", "prompt_cache_key"];

/// A request that is ready for the scheduler.
pub(crate) struct Asked {
    pub(crate) model: Arc<Model>,
    pub(crate) request: Request,
    /// Tells reasoning and calls from what is said; `None` where all of it is text.
    pub(crate) reader: Option<Reader>,
    /// Whether more than one tool may be called.
    pub(crate) many_calls: bool,
    pub(crate) stream: bool,
    /// Whether a stream ends with what it took.
    pub(crate) usage: bool,
    pub(crate) shape: Shape,
    /// What the reply repeats of the request.
    pub(crate) echo: Map<String, Value>,
}

/// What replies look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Chat,
    Completion,
    /// Anthropic's.
    Messages,
    Responses,
    /// Ollama's, for messages.
    Talk,
    /// Ollama's, for prompts.
    Generate,
}

impl Shape {
    /// The field that holds the prompt.
    pub(crate) fn prompt(self) -> &'static str {
        match self {
            Shape::Chat | Shape::Messages | Shape::Talk => "messages",
            Shape::Completion | Shape::Generate => "prompt",
            Shape::Responses => "input",
        }
    }
}

/// Where a random generator starts that nobody gave a seed.
fn moment() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// The common fields of a request for an answer; the prompt comes later.
pub(crate) fn common(
    fields: &mut Fields,
    model: Arc<Model>,
    shape: Shape,
    longest: Duration,
) -> Result<Asked, ApiError> {
    fields.ignore(&WITHOUT_EFFECT);
    let usual = &model.sampling;
    let sampling = SamplerSettings {
        temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(usual.temperature),
        top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(usual.top_p),
        top_k: fields.count("top_k")?.unwrap_or(usual.top_k),
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(usual.min_p),
        repetition_penalty: fields
            .number("repetition_penalty", 0.01, 100.0)?
            .unwrap_or(usual.repetition_penalty),
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(usual.frequency_penalty),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(usual.presence_penalty),
        order: usual.order,
    };
    let options = GenerateOptions {
        max_new: None,
        sampling,
        seed: fields.seed("seed")?.unwrap_or_else(moment),
        stop: stops(fields)?,
        end_tokens: model.end_tokens.clone(),
    };
    let mut request = Request::new(Vec::new(), options);
    request.bias = biases(fields)?;
    request.answers = fields.count("n")?.unwrap_or(1);
    request.deadline = Instant::now().checked_add(longest);
    let stream = fields.truth("stream")?.unwrap_or(false);
    let usage = stream_usage(fields, stream)?;
    let echo = Map::new();
    Ok(Asked { model, request, reader: None, many_calls: true, stream, usage, shape, echo })
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let wrong =
        || ApiError::parameter("stop", format!("`stop` must be a text or at most {MOST_STOPS} texts"));
    match fields.take("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(stop)) => Ok(vec![stop]),
        Some(Value::Array(stops)) if stops.len() <= MOST_STOPS => {
            stops.iter().map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn biases(fields: &mut Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let Some(given) = fields.object(NAME)? else { return Ok(Vec::new()) };
    if given.len() > MOST_BIASES {
        return Err(ApiError::parameter(NAME, format!("`{NAME}` may have at most {MOST_BIASES} tokens")));
    }
    let read = |(token, bias): (String, Value)| {
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        Some((token.parse::<u32>().ok()?, bias? as f32))
    };
    let all: Option<Vec<_>> = given.into_iter().map(read).collect();
    all.ok_or_else(|| {
        ApiError::parameter(NAME, format!("`{NAME}` maps token ids to numbers from -100 to 100"))
    })
}

fn stream_usage(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    const NAME: &str = "stream_options";
    let Some(options) = fields.object(NAME)? else { return Ok(false) };
    if !stream {
        return Err(ApiError::parameter(NAME, format!("`{NAME}` is only for streams")));
    }
    let mut options = Fields::of(options);
    let usage = options.truth("include_usage")?.unwrap_or(false);
    options.only("include_obfuscation", &json!(false))?;
    options.end()?;
    Ok(usage)
}
