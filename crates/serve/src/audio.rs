//! `/v1/audio/transcriptions` and `/v1/audio/translations`: a form with a sound in it becomes text with times, in the form
//! that was asked for.

use crate::connection;
use crate::error::ApiError;
use crate::models::Loaded;
use crate::multipart::{self, Part};
use crate::routes::{Reply, aside, event_stream, json_reply, model_name, open, reply};
use crate::server::Shared;
use crate::stream::{Relay, ReplyBody};
use crate::wire::event;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use pteron_speech::segment::Segment;
use pteron_speech::transcript::{Format, Transcript};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// What becomes of what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Transcribe,
    Translate,
}

/// How a sound is heard.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Hearing {
    /// The language that is spoken; without, the model tells.
    pub language: Option<String>,
    /// What was said before, or names that may be.
    pub prompt: Option<String>,
    /// How freely words are chosen; without, as free as it takes.
    pub temperature: Option<f32>,
    /// Whether it is translated into English.
    pub translate: bool,
    /// Whether the times of words are found.
    pub words: bool,
}

/// Why a sound was not written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// The sound cannot be read.
    #[error("the sound cannot be read: {0}")]
    Sound(String),
    /// What is asked for cannot be had of this model.
    #[error("{0}")]
    Wanted(String),
    /// The model failed.
    #[error("{0}")]
    Failed(String),
}

/// A speech model that is loaded.
pub trait Hears: Send + Sync {
    /// Bytes that it holds.
    fn bytes(&self) -> u64;

    /// Whether it can tell the times of words.
    fn tells_word_times(&self) -> bool;

    /// Writes down what is said in a sound file, and tells of each stretch as it is found; gives up where the flag says so.
    ///
    /// # Errors
    /// When the sound or the wish cannot be understood, or the model fails.
    fn hear(
        &self,
        sound: Vec<u8>,
        hearing: &Hearing,
        cancel: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(&Segment),
    ) -> Result<Transcript, HearError>;
}

impl From<HearError> for ApiError {
    fn from(error: HearError) -> ApiError {
        let message = error.to_string();
        match error {
            HearError::Sound(_) => ApiError::parameter("file", message),
            HearError::Wanted(_) => ApiError::invalid(message),
            HearError::Failed(_) => ApiError::internal(message),
        }
    }
}

/// What a form asks for.
#[derive(Debug, Default)]
struct Form {
    model: Option<String>,
    sound: Option<Vec<u8>>,
    hearing: Hearing,
    format: Option<String>,
    /// Whether words are told beside the stretches, or alone.
    words: bool,
    segments: bool,
    stream: bool,
}

/// Gives a transcript up when nobody waits for it any more.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers a form with what is said in its sound.
pub(crate) async fn transcribe(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    task: Task,
) -> Result<Reply, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let Some(boundary) = multipart::boundary(kind) else {
        let message = "the body must be a form, with `Content-Type: multipart/form-data`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    };
    // Before the sound is read: it may be long.
    let Ok(place) = shared.transcripts.clone().try_acquire_owned() else {
        let message = "as many sounds are being heard as may be";
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"));
    };
    let body = connection::whole(request, shared, shared.options.longest_sound).await?;
    let form = Form::read(multipart::parts(&body, &boundary)?, task)?;
    drop(body);
    let held = open(shared, &model_name(&shared.pool, form.model.clone())?, None).await?;
    let Loaded::Hears(model) = held.loaded.clone() else {
        return Err(ApiError::parameter("model", "this model does not hear"));
    };
    let format = form.format.as_deref().unwrap_or("json");
    let render: fn(&Transcript, &Form) -> Reply = match format {
        "json" => |transcript, _| {
            let usage = json!({"type": "duration", "seconds": transcript.duration.ceil()});
            json_reply(&json!({"text": transcript.text(), "usage": usage}))
        },
        "verbose_json" => |transcript, form| json_reply(&verbose(transcript, form)),
        "text" => |transcript, _| plain("text/plain; charset=utf-8", transcript.text() + "\n"),
        "srt" => |transcript, _| plain("application/x-subrip", transcript.render(Format::Srt)),
        "vtt" => |transcript, _| plain("text/vtt; charset=utf-8", transcript.render(Format::Vtt)),
        _ => {
            let message = "`response_format` is json, verbose_json, text, srt or vtt";
            return Err(ApiError::parameter("response_format", message));
        }
    };
    if form.words && format != "verbose_json" {
        let message = "`timestamp_granularities` needs `response_format` verbose_json";
        return Err(ApiError::parameter("timestamp_granularities", message));
    }
    if form.words && !model.tells_word_times() {
        let message = "this model cannot tell the times of words";
        return Err(ApiError::unsupported("timestamp_granularities", message));
    }
    let waiting = Waiting(Arc::default());
    let cancel = waiting.0.clone();
    let longest = shared.options.to_answer;
    if form.stream {
        if !matches!(format, "json" | "text") {
            let message = "a stream has no other `response_format` than json and text";
            return Err(ApiError::parameter("response_format", message));
        }
        let (sender, receiver) = unbounded_channel();
        tokio::task::spawn_blocking(move || {
            tell(&*model, form, &cancel, &sender);
            drop((place, held));
        });
        return streamed(receiver, waiting, longest).await;
    }
    let heard = aside(move || {
        let mut form = form;
        let sound = form.sound.take().unwrap_or_default();
        let transcript = model.hear(sound, &form.hearing, &cancel, &mut |_| ())?;
        drop((place, held));
        Ok(render(&transcript, &form))
    });
    match tokio::time::timeout(longest, heard).await {
        Ok(heard) => heard,
        Err(_) => Err(too_long()),
    }
}

fn too_long() -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "the sound took too long to be heard")
}

/// What a stream is made of.
type Told = Result<Bytes, ApiError>;

/// Tells what is said as it is found, then all of it.
fn tell(model: &dyn Hears, mut form: Form, cancel: &Arc<AtomicBool>, listener: &UnboundedSender<Told>) {
    let sound = form.sound.take().unwrap_or_default();
    let mut is_first = true;
    let heard = model.hear(sound, &form.hearing, cancel, &mut |segment| {
        let delta = if is_first { segment.text.trim_start() } else { &segment.text };
        is_first = false;
        // Whoever does not listen any more has given it up already.
        let _ = listener.send(Ok(event(&json!({"type": "transcript.text.delta", "delta": delta}))));
    });
    let _ = listener.send(match heard {
        Ok(transcript) => {
            let usage = json!({"type": "duration", "seconds": transcript.duration.ceil()});
            let done = json!({"type": "transcript.text.done", "text": transcript.text(), "usage": usage});
            Ok(event(&done))
        }
        Err(error) => Err(error.into()),
    });
}

/// A stream, once there is something to say; what goes wrong before that is an answer like any other.
async fn streamed(
    mut receiver: UnboundedReceiver<Told>,
    waiting: Waiting,
    longest: Duration,
) -> Result<Reply, ApiError> {
    let ends = Instant::now() + longest;
    let first = match timeout_at(ends, receiver.recv()).await {
        Ok(Some(told)) => told?,
        Ok(None) => return Err(ApiError::internal("the model has stopped")),
        Err(_) => return Err(too_long()),
    };
    let next = move |context: &mut Context<'_>| {
        let _ = &waiting;
        receiver.poll_recv(context)
    };
    Ok(event_stream(ReplyBody::Told(Box::new(Relay::new(first, Box::new(next), ends)))))
}

fn plain(kind: &'static str, text: String) -> Reply {
    reply(StatusCode::OK, kind, text)
}

impl Form {
    fn read(parts: Vec<Part<'_>>, task: Task) -> Result<Form, ApiError> {
        let mut form = Form {
            hearing: Hearing { translate: task == Task::Translate, ..Hearing::default() },
            ..Form::default()
        };
        for Part { name, content } in parts {
            if name == "file" {
                form.sound = Some(content.to_vec());
                continue;
            }
            let text = std::str::from_utf8(content)
                .map_err(|_| ApiError::parameter(&name, "a field of the form is no text"))?
                .trim();
            form.take(&name, text)?;
        }
        match form.sound.as_ref().is_some_and(|sound| !sound.is_empty()) {
            true => Ok(form),
            false => {
                Err(ApiError::parameter("file", "there is no `file`").code("missing_required_parameter"))
            }
        }
    }

    fn take(&mut self, name: &str, text: &str) -> Result<(), ApiError> {
        let given = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match name {
            "model" => self.model = given(),
            "language" if !self.hearing.translate => self.hearing.language = given(),
            "prompt" => self.hearing.prompt = given(),
            "response_format" => self.format = given(),
            "temperature" => {
                let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
                let wrong = || ApiError::parameter(name, "`temperature` must be between 0 and 1");
                self.hearing.temperature = Some(number.ok_or_else(wrong)?);
            }
            "timestamp_granularities[]" | "timestamp_granularities" if !self.hearing.translate => {
                match text {
                    "word" => (self.words, self.hearing.words) = (true, true),
                    "segment" => self.segments = true,
                    _ => return Err(ApiError::parameter(name, "times are told of a word or a segment")),
                }
            }
            "stream" if text == "false" || text == "true" && !self.hearing.translate => {
                self.stream = text == "true";
            }
            _ => {
                let shown: String = name.chars().take(64).collect();
                return Err(ApiError::unsupported(name, format!("`{shown}` is not honoured here")));
            }
        }
        Ok(())
    }
}

/// All that is known, as this interface has it.
fn verbose(transcript: &Transcript, form: &Form) -> Value {
    let mut whole = transcript.json();
    let mut words = Vec::new();
    for segment in whole["segments"].as_array_mut().into_iter().flatten() {
        if let Some(Value::Array(own)) = segment.as_object_mut().and_then(|segment| segment.remove("words")) {
            words.extend(own);
        }
        // Where the stretch begins, in the hundredths of a second that models of this kind count in.
        segment["seek"] = json!((segment["start"].as_f64().unwrap_or(0.0) * 100.0) as u64);
    }
    if form.words {
        whole["words"] = words.into();
        if !form.segments {
            whole.as_object_mut().map(|whole| whole.remove("segments"));
        }
    }
    whole
}
