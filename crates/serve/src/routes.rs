//! Which path does what: one table, by which requests find their way and the description of this server is made. Requests
//! are read on threads of their own, since templates and schemas take their time; answers come from the models' schedulers.

use crate::answer::{Answers, Piece};
use crate::asked::Asked;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::keep::KeepAlive;
use crate::models::{Loaded, Model, OpenError, Served};
use crate::pool::{Held, Pool};
use crate::server::Shared;
use crate::stream::{Events, ReplyBody, Stream, Wanted, buffer};
use crate::wire::wire_of;
use crate::{
    anthropic, audio, chat, completion, connection, embed, ollama, openapi, origin, page, responses, text,
};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pteron_llm::{Event, Listener};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(crate) type Reply = Response<ReplyBody>;
type Read = fn(Fields, Arc<Model>, Duration) -> Result<Asked, ApiError>;
type Look = fn(Fields, &Model) -> Result<Value, ApiError>;

/// What is done at a path.
#[derive(Clone, Copy)]
pub(crate) enum Endpoint {
    /// The page for people.
    Page,
    Health,
    Metrics,
    Description,
    Models,
    /// The path ends with the model's name.
    OneModel,
    /// A model answers.
    Speak(Read),
    /// The same for clients of Ollama, which may also ask for a model to be loaded or dropped.
    OllamaSpeak(Read),
    /// Something is told about what a model would be given.
    Look(Look),
    Transcribe(audio::Task),
    Embeddings(embed::Wire),
    OllamaVersion,
    OllamaTags,
    OllamaShow,
    OllamaRunning,
}

/// A method and a path.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) endpoint: Endpoint,
}

const fn get(path: &'static str, endpoint: Endpoint) -> Route {
    Route { method: Method::GET, path, endpoint }
}

const fn post(path: &'static str, endpoint: Endpoint) -> Route {
    Route { method: Method::POST, path, endpoint }
}

/// Everything that there is.
pub(crate) static ROUTES: [Route; 23] = [
    get("/", Endpoint::Page),
    get("/health", Endpoint::Health),
    get("/metrics", Endpoint::Metrics),
    get("/openapi.json", Endpoint::Description),
    get("/v1/models", Endpoint::Models),
    get("/v1/models/{model}", Endpoint::OneModel),
    post("/v1/chat/completions", Endpoint::Speak(chat::read)),
    post("/v1/completions", Endpoint::Speak(completion::read)),
    post("/v1/responses", Endpoint::Speak(responses::read)),
    post("/v1/messages", Endpoint::Speak(anthropic::read)),
    post("/v1/messages/count_tokens", Endpoint::Look(anthropic::count)),
    post("/v1/embeddings", Endpoint::Embeddings(embed::Wire::OpenAi)),
    post("/v1/audio/transcriptions", Endpoint::Transcribe(audio::Task::Transcribe)),
    post("/v1/audio/translations", Endpoint::Transcribe(audio::Task::Translate)),
    post("/tokenize", Endpoint::Look(text::tokenize)),
    post("/apply-template", Endpoint::Look(text::apply_template)),
    post("/api/chat", Endpoint::OllamaSpeak(ollama::read_chat)),
    post("/api/generate", Endpoint::OllamaSpeak(ollama::read_prompt)),
    post("/api/embed", Endpoint::Embeddings(embed::Wire::Ollama)),
    post("/api/show", Endpoint::OllamaShow),
    get("/api/tags", Endpoint::OllamaTags),
    get("/api/ps", Endpoint::OllamaRunning),
    get("/api/version", Endpoint::OllamaVersion),
];

impl Route {
    /// Whether it is meant by a path; what the path says besides.
    fn meant_by<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.path.split_once('{') {
            Some((before, _)) => path.strip_prefix(before).filter(|rest| !rest.is_empty()),
            None => (self.path == path).then_some(""),
        }
    }
}

/// Answers a request, whatever it is.
pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Reply {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut reply = route(shared, request).await.unwrap_or_else(|error| failed(&error, &path));
    origin::allow(shared, origin.as_ref(), reply.headers_mut());
    // What was asked and answered is nobody's business.
    let (status, milliseconds) = (reply.status().as_u16(), began.elapsed().as_millis() as u64);
    tracing::info!(%method, path, status, milliseconds);
    reply
}

async fn route(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Reply, ApiError> {
    origin::check_host(shared, request.headers())?;
    if origin::asks_first(shared, request.method(), request.headers()) {
        return Ok(reply(StatusCode::NO_CONTENT, "text/plain", String::new()));
    }
    origin::check_origin(shared, request.method(), request.headers())?;
    let path = request.uri().path().to_owned();
    if path != "/health" && path != "/" {
        check_key(shared, &request)?;
    }
    let (endpoint, rest) = find(request.method(), &path)?;
    match endpoint {
        Endpoint::Page => Ok(the_page()),
        Endpoint::Health => health(shared),
        Endpoint::Metrics => {
            let text = shared.metrics.render(&shared.pool.talking());
            Ok(reply(StatusCode::OK, "text/plain; version=0.0.4", text))
        }
        Endpoint::Description => Ok(json_reply(&openapi::description())),
        Endpoint::Models => Ok(json_reply(&list(&shared.pool))),
        Endpoint::OneModel => one_model(&shared.pool, rest),
        Endpoint::Speak(read) => {
            let fields = connection::fields(request, shared).await?;
            speak(shared, fields, None, read).await
        }
        Endpoint::OllamaSpeak(read) => {
            let mut fields = connection::fields(request, shared).await?;
            let keep = ollama::keep_alive(&mut fields)?;
            match ollama::loads_only(&path, &fields) {
                true => load(shared, fields, keep).await,
                false => speak(shared, fields, keep, read).await,
            }
        }
        Endpoint::Look(work) => look(shared, request, work).await,
        Endpoint::Transcribe(task) => audio::transcribe(shared, request, task).await,
        Endpoint::Embeddings(wire) => embed::embeddings(shared, request, wire).await,
        Endpoint::OllamaVersion => Ok(json_reply(&ollama::version())),
        Endpoint::OllamaTags => Ok(json_reply(&ollama::tags(&shared.pool))),
        Endpoint::OllamaRunning => Ok(json_reply(&ollama::running(&shared.pool))),
        Endpoint::OllamaShow => {
            let fields = connection::fields(request, shared).await?;
            Ok(json_reply(&ollama::show(fields, &shared.pool)?))
        }
    }
}

/// What is done there, and what the path says besides.
fn find<'p>(method: &Method, path: &'p str) -> Result<(Endpoint, &'p str), ApiError> {
    // What can be got can be asked about.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let meant: Vec<_> = ROUTES.iter().filter_map(|route| Some((route, route.meant_by(path)?))).collect();
    if meant.is_empty() {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path").code("not_found"));
    }
    match meant.into_iter().find(|(route, _)| route.method == method) {
        Some((route, rest)) => Ok((route.endpoint, rest)),
        None => {
            let message = format!("{path} is not there for {method}");
            Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
        }
    }
}

/// What people see; it asks for a key itself.
fn the_page() -> Reply {
    let mut reply = reply(StatusCode::OK, "text/html; charset=utf-8", page::PAGE.to_owned());
    reply.headers_mut().extend(page::headers());
    reply
}

fn health(shared: &Shared) -> Result<Reply, ApiError> {
    match shared.stopping.load(Ordering::Relaxed) {
        true => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")),
        false => Ok(json_reply(&json!({"status": "ok"}))),
    }
}

fn check_key(shared: &Shared, request: &Request<Incoming>) -> Result<(), ApiError> {
    let keys = &shared.options.keys;
    if keys.is_empty() {
        return Ok(());
    }
    let of = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let bearer = of("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let given = bearer.or_else(|| of("x-api-key")).unwrap_or_default().trim();
    // All of them are compared, to the end, so that time says nothing of them.
    let right = keys.iter().fold(false, |right, key| right | same(key.as_bytes(), given.as_bytes()));
    match right {
        true => Ok(()),
        false => Err(ApiError::new(StatusCode::UNAUTHORIZED, "the API key is missing or wrong")
            .code("invalid_api_key")),
    }
}

fn same(key: &[u8], given: &[u8]) -> bool {
    let differ = key.iter().zip(given).fold(0, |differ, (one, other)| differ | (one ^ other));
    key.len() == given.len() && differ == 0
}

fn list(pool: &Pool) -> Value {
    let data: Vec<Value> = pool.list().iter().map(|served| model_json(pool, served)).collect();
    json!({"object": "list", "data": data})
}

fn one_model(pool: &Pool, name: &str) -> Result<Reply, ApiError> {
    let found = pool.find(name).ok_or_else(|| ApiError::unknown_model(name))?;
    Ok(json_reply(&model_json(pool, &found)))
}

fn model_json(pool: &Pool, served: &Served) -> Value {
    json!({
        "id": served.name, "object": "model", "created": served.created, "owned_by": "pteron",
        "status": {"value": pool.state(&served.name).name()},
    })
}

/// The name of the model that a request is for; without one, of the only one.
pub(crate) fn model_name(pool: &Pool, given: Option<String>) -> Result<String, ApiError> {
    match (given, pool.list().as_slice()) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(only.name.clone()),
        (None, _) => {
            let missing = ApiError::parameter("model", "there is no `model`");
            Err(missing.code("missing_required_parameter"))
        }
    }
}

/// A model, once it is loaded.
pub(crate) async fn open(shared: &Shared, name: &str, keep: Option<KeepAlive>) -> Result<Held, ApiError> {
    match tokio::time::timeout(shared.options.to_answer, shared.pool.open(name, keep)).await {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(OpenError::Unknown)) => Err(ApiError::unknown_model(name)),
        Ok(Err(error @ OpenError::TooLarge { .. })) => {
            Err(ApiError::parameter("model", error.to_string()).code("model_too_large"))
        }
        Ok(Err(error)) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the model is still being loaded")),
    }
}

/// The same where it has to be a language model.
async fn open_talking(
    shared: &Shared,
    fields: &mut Fields,
    keep: Option<KeepAlive>,
) -> Result<(Held, Arc<Model>), ApiError> {
    let name = model_name(&shared.pool, fields.text("model")?)?;
    let held = open(shared, &name, keep).await?;
    match held.loaded.clone() {
        Loaded::Talks(model) => Ok((held, model)),
        Loaded::Hears(_) => {
            Err(ApiError::parameter("model", "this model writes down what it hears, no more"))
        }
        Loaded::Embeds(_) => Err(ApiError::parameter("model", "this model gives embeddings, no more")),
    }
}

/// Works on a request on a thread that may take its time.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ApiError::internal("the request could not be worked on")),
    }
}

/// A request that asks about a model.
async fn look(shared: &Arc<Shared>, request: Request<Incoming>, work: Look) -> Result<Reply, ApiError> {
    let mut fields = connection::fields(request, shared).await?;
    let (_held, model) = open_talking(shared, &mut fields, None).await?;
    Ok(json_reply(&aside(move || work(fields, &model)).await?))
}

/// A request that a model answers.
async fn speak(
    shared: &Arc<Shared>,
    mut fields: Fields,
    keep: Option<KeepAlive>,
    read: Read,
) -> Result<Reply, ApiError> {
    let began = Instant::now();
    let (held, model) = open_talking(shared, &mut fields, keep).await?;
    let loading = began.elapsed();
    let own = shared.clone();
    let (stream, mut events, mut answers, mut wire, wanted) = aside(move || {
        let mut asked = read(fields, model, own.options.to_answer)?;
        let (answers, wire) = (Answers::new(&asked), wire_of(&mut asked, loading));
        let (listener, events) = listen(&own, asked.stream);
        let ticket = asked.model.handle.submit(asked.request, listener);
        let ticket = ticket.map_err(|refused| ApiError::from(refused).of_prompt(asked.shape.prompt()))?;
        Ok((asked.stream, events, answers, wire, Wanted::new(ticket, held)))
    })
    .await?;
    if stream {
        let kind = wire.kind();
        let body = ReplyBody::Stream(Box::new(Stream::new(events, answers, wire, wanted)));
        return Ok(stream_of(kind, body));
    }
    let pieces = collect(&mut events, &mut answers).await?;
    drop(wanted);
    Ok(json_reply(&wire.whole(pieces, answers.usage())))
}

/// A request that wants a model loaded or dropped, and no answer.
async fn load(shared: &Arc<Shared>, mut fields: Fields, keep: Option<KeepAlive>) -> Result<Reply, ApiError> {
    let name = model_name(&shared.pool, fields.text("model")?)?;
    let known = shared.pool.find(&name).ok_or_else(|| ApiError::unknown_model(&name))?.name;
    fields.ignore(&["messages", "prompt", "stream", "options"]);
    fields.end()?;
    let reason = match keep {
        Some(KeepAlive::For(Duration::ZERO)) => {
            shared.pool.expire(&known);
            "unload"
        }
        keep => {
            open(shared, &known, keep).await?;
            "load"
        }
    };
    Ok(json_reply(&ollama::loaded(&known, reason)))
}

/// A listener, and what it hears. Who waits for the whole answer reads as fast as it is written.
fn listen(shared: &Arc<Shared>, stream: bool) -> (Listener, Events) {
    let most = if stream { shared.options.most_unread } else { usize::MAX };
    let (mut teller, events) = buffer(most);
    let shared = shared.clone();
    let listener = move |event: Event| {
        if let Event::Ended { outcome: Ok(answer), .. } = &event {
            shared.metrics.note(&answer.stats);
        }
        match teller.tell(event) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    (Box::new(listener), events)
}

/// All pieces of all answers.
async fn collect(events: &mut Events, answers: &mut Answers) -> Result<Vec<Piece>, ApiError> {
    let mut pieces = Vec::new();
    while !answers.done() {
        pieces.extend(answers.take(events.next().await?)?);
    }
    Ok(pieces)
}

pub(crate) fn json_reply(value: &Value) -> Reply {
    reply(StatusCode::OK, "application/json", value.to_string())
}

/// A reply that grows.
fn stream_of(kind: &'static str, body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

/// A stream of events.
pub(crate) fn event_stream(body: ReplyBody) -> Reply {
    stream_of("text/event-stream", body)
}

pub(crate) fn reply(status: StatusCode, kind: &'static str, text: String) -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(Some(Bytes::from(text))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

fn failed(error: &ApiError, path: &str) -> Reply {
    let told = match path {
        _ if path.starts_with("/v1/messages") => anthropic::error_json(error),
        _ if path.starts_with("/api/") => ollama::error_json(error),
        _ => error.json(),
    };
    let mut reply = reply(error.status, "application/json", told.to_string());
    if error.passes() {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}
