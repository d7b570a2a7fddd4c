//! Which path does what. Requests are read on threads of their own, since templates and schemas take their time; answers
//! come from the models' schedulers.

use crate::answer::Answers;
use crate::asked::Asked;
use crate::connection;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::{Model, Models, OpenError};
use crate::server::Shared;
use crate::stream::{ReplyBody, Stream, Wanted};
use crate::wire::wire_of;
use crate::{anthropic, chat, completion, page, text};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pteron_llm::{Event, Listener};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Reply = Response<ReplyBody>;

/// Answers a request, whatever it is.
pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Reply {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let reply = route(shared, request).await.unwrap_or_else(|error| failed(&error, &path));
    // What was asked and answered is nobody's business.
    let (status, milliseconds) = (reply.status().as_u16(), began.elapsed().as_millis() as u64);
    tracing::info!(%method, path, status, milliseconds);
    reply
}

async fn route(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Reply, ApiError> {
    check_host(shared, &request)?;
    let path = request.uri().path().to_owned();
    if path != "/health" && path != "/" {
        check_key(shared, &request)?;
    }
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let post = request.method() == Method::POST;
    match path.as_str() {
        "/" if get => Ok(the_page()),
        "/health" if get => health(shared),
        "/v1/models" if get => Ok(json_reply(&list(&*shared.models))),
        "/metrics" if get => {
            let text = shared.metrics.render(&shared.models.opened());
            Ok(reply(StatusCode::OK, "text/plain; version=0.0.4", text))
        }
        "/v1/chat/completions" if post => speak(shared, request, chat::read).await,
        "/v1/completions" if post => speak(shared, request, completion::read).await,
        "/v1/messages" if post => speak(shared, request, anthropic::read).await,
        "/v1/messages/count_tokens" if post => look(shared, request, anthropic::count).await,
        "/tokenize" if post => look(shared, request, text::tokenize).await,
        "/apply-template" if post => look(shared, request, text::apply_template).await,
        "/"
        | "/health"
        | "/v1/models"
        | "/metrics"
        | "/v1/chat/completions"
        | "/v1/completions"
        | "/v1/messages"
        | "/v1/messages/count_tokens"
        | "/tokenize"
        | "/apply-template" => {
            let message = format!("{path} is not there for {}", request.method());
            Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
        }
        _ => match path.strip_prefix("/v1/models/").filter(|_| get) {
            Some(name) => one_model(&*shared.models, name),
            None => {
                Err(ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path").code("not_found"))
            }
        },
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

/// A server for this machine alone is asked by its own names: a page whose name was made to lead here is not.
fn check_host(shared: &Shared, request: &Request<Incoming>) -> Result<(), ApiError> {
    if !shared.local {
        return Ok(());
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let own = name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok();
    match own {
        true => Ok(()),
        false => Err(ApiError::new(StatusCode::FORBIDDEN, "this server answers to this machine's own names")),
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

fn list(models: &dyn Models) -> Value {
    let data: Vec<Value> = models.list().iter().map(|model| model_json(&model.name, model.created)).collect();
    json!({"object": "list", "data": data})
}

fn one_model(models: &dyn Models, name: &str) -> Result<Reply, ApiError> {
    let found = models.list().into_iter().find(|model| model.name == name);
    let found = found.ok_or_else(|| ApiError::unknown_model(name))?;
    Ok(json_reply(&model_json(&found.name, found.created)))
}

fn model_json(name: &str, created: u64) -> Value {
    json!({"id": name, "object": "model", "created": created, "owned_by": "pteron"})
}

/// The model that a request names; without a name, the only one.
fn model_of(models: &dyn Models, fields: &mut Fields) -> Result<Arc<Model>, ApiError> {
    let name = match fields.text("model")? {
        Some(name) => name,
        None => match models.list().as_slice() {
            [only] => only.name.clone(),
            _ => {
                let missing = ApiError::parameter("model", "there is no `model`");
                return Err(missing.code("missing_required_parameter"));
            }
        },
    };
    models.open(&name).map_err(|error| match error {
        OpenError::Unknown => ApiError::unknown_model(&name),
        OpenError::Failed(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    })
}

/// Works on a request on a thread that may take its time.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ApiError::internal("the request could not be worked on")),
    }
}

/// A request that asks about a model.
async fn look(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    work: fn(Fields, &Model) -> Result<Value, ApiError>,
) -> Result<Reply, ApiError> {
    let mut fields = connection::fields(request, shared).await?;
    let models = shared.models.clone();
    let told = aside(move || {
        let model = model_of(&*models, &mut fields)?;
        work(fields, &model)
    });
    Ok(json_reply(&told.await?))
}

type Read = fn(Fields, Arc<Model>, std::time::Duration) -> Result<Asked, ApiError>;

/// A request that a model answers.
async fn speak(shared: &Arc<Shared>, request: Request<Incoming>, read: Read) -> Result<Reply, ApiError> {
    let mut fields = connection::fields(request, shared).await?;
    let own = shared.clone();
    let (stream, events, mut answers, mut wire, wanted) = aside(move || {
        let model = model_of(&*own.models, &mut fields)?;
        let asked = read(fields, model, own.options.to_answer)?;
        let (answers, wire) = (Answers::new(&asked), wire_of(&asked));
        let (listener, events) = listen(&own);
        let ticket = asked.model.handle.submit(asked.request, listener);
        let ticket = ticket.map_err(|refused| ApiError::from(refused).of_prompt(asked.shape.prompt()))?;
        Ok((asked.stream, events, answers, wire, Wanted(ticket)))
    })
    .await?;
    if stream {
        let body = ReplyBody::Stream(Box::new(Stream::new(events, answers, wire, wanted)));
        let mut reply = Response::new(body);
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        return Ok(reply);
    }
    let pieces = collect(events, &mut answers).await?;
    drop(wanted);
    Ok(json_reply(&wire.whole(pieces, answers.usage())))
}

/// A listener, and what it hears.
fn listen(shared: &Arc<Shared>) -> (Listener, UnboundedReceiver<Event>) {
    let (sender, events) = unbounded_channel();
    let shared = shared.clone();
    let listener = move |event: Event| {
        if let Event::Ended { outcome: Ok(answer), .. } = &event {
            shared.metrics.note(&answer.stats);
        }
        match sender.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    (Box::new(listener), events)
}

/// All pieces of all answers.
async fn collect(
    mut events: UnboundedReceiver<Event>,
    answers: &mut Answers,
) -> Result<Vec<crate::answer::Piece>, ApiError> {
    let mut pieces = Vec::new();
    while !answers.done() {
        match events.recv().await {
            Some(event) => pieces.extend(answers.take(event)?),
            None => return Err(ApiError::internal("the model has stopped")),
        }
    }
    Ok(pieces)
}

fn json_reply(value: &Value) -> Reply {
    reply(StatusCode::OK, "application/json", value.to_string())
}

fn reply(status: StatusCode, kind: &'static str, text: String) -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(Some(Bytes::from(text))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

fn failed(error: &ApiError, path: &str) -> Reply {
    let told = if path.starts_with("/v1/messages") { anthropic::error_json(error) } else { error.json() };
    let mut reply = reply(error.status, "application/json", told.to_string());
    if error.passes() {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}
