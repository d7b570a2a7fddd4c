//! One connection: requests are read within limits of size and time, and answered one after the other.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::pace::Paced;
use crate::routes;
use crate::seats::{Seat, Working};
use crate::server::{Shared, told};
use crate::stream::Answering;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::rt::Write;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Bytes of the lines before a body.
const LONGEST_HEAD: usize = 64 << 10;
/// How long somebody who is asked to leave may take to read what was written.
const TO_LEAVE: Duration = Duration::from_millis(250);
/// How long somebody who is turned away is listened to.
const TO_REFUSE: Duration = Duration::from_secs(1);

/// Answers what comes through a connection until it ends, or the server does, or somebody else needs its seat.
pub(crate) async fn serve(
    stream: TcpStream,
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    mut stopped: watch::Receiver<bool>,
) {
    // Tokens are small, and wanted at once.
    let _ = stream.set_nodelay(true);
    let to_read = shared.options.to_read;
    let stream = Paced::new(stream, shared.options.to_take, seat.clone());
    let own = seat.clone();
    let service = service_fn(move |mut request| {
        let (shared, working) = (shared.clone(), Working::new(&own));
        request.extensions_mut().insert(own.clone());
        async move {
            let reply = routes::answer(&shared, request).await;
            Ok::<_, Infallible>(reply.map(|body| Answering::new(body, working)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(to_read)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        biased;
        outcome = connection.as_mut() => outcome,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        // Half a request is not waited for.
        () = seat.has_to_leave() => match seat.has_unsent() {
            false => Ok(()),
            true => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(TO_LEAVE, connection).await.unwrap_or(Ok(()))
            }
        },
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Tells somebody for whom there is no room to come back later.
pub(crate) async fn refuse(stream: TcpStream) {
    let error =
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "there are as many connections as there may be");
    let body = error.code("too_many_connections").json().to_string();
    let reply = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TokioIo::new(stream);
    let talk = async {
        // Closed with something unread, a connection would lose what was written to it.
        let (mut heard, mut told) = (vec![0; LONGEST_HEAD], false);
        while stream.inner().readable().await.is_ok() {
            match stream.inner().try_read(&mut heard) {
                Ok(0) => return,
                Ok(_) if told => {}
                Ok(_) => {
                    told = stream.inner().writable().await.is_ok();
                    let written = stream.inner().try_write(reply.as_bytes()).is_ok();
                    let ended = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await.is_ok();
                    if !written || !ended {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // Whoever has not gone by then has had its time.
    let _ = tokio::time::timeout(TO_REFUSE, talk).await;
}

/// The fields of a request's body.
pub(crate) async fn fields(request: Request<Incoming>, shared: &Shared) -> Result<Fields, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Pages of strangers can send other types without asking.
    if !kind.trim_start().to_ascii_lowercase().starts_with("application/json") {
        let message = "the body must be JSON, with `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let path = request.uri().path().to_owned();
    let body = whole(request, shared, shared.options.longest_body).await?;
    if shared.options.log_prompts {
        tracing::info!(path, body = %String::from_utf8_lossy(&body));
    }
    Fields::parse(&body)
}

/// All of a request's body, of so many bytes at most. Until it is there, its connection may have to make room for others.
pub(crate) async fn whole(
    request: Request<Incoming>,
    shared: &Shared,
    most: usize,
) -> Result<Bytes, ApiError> {
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    let body = Limited::new(request.into_body(), most);
    if let Some(seat) = &seat {
        seat.rest();
    }
    let collected = tokio::time::timeout(shared.options.to_read, body.collect()).await;
    if let Some(seat) = &seat {
        seat.work();
    }
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body has more than {most} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(_)) => Err(ApiError::invalid("the body could not be read to its end")),
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to come")),
    }
}
