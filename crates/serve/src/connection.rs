//! One connection: requests are read within limits of size and time, and answered one after the other.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::routes;
use crate::server::{Shared, told};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Bytes of the lines before a body.
const LONGEST_HEAD: usize = 64 << 10;

/// Answers what comes through a connection until it ends, or the server does.
pub(crate) async fn serve(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    // Tokens are small, and wanted at once.
    let _ = stream.set_nodelay(true);
    let to_read = shared.options.to_read;
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(routes::answer(&shared, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(to_read)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The fields of a request's body.
pub(crate) async fn fields(request: Request<Incoming>, shared: &Shared) -> Result<Fields, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Pages of strangers can send other types without asking.
    if !kind.trim_start().to_ascii_lowercase().starts_with("application/json") {
        let message = "the body must be JSON, with `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Fields::parse(&whole(request.into_body(), shared).await?)
}

async fn whole(body: Incoming, shared: &Shared) -> Result<Bytes, ApiError> {
    let most = shared.options.longest_body;
    let collected = tokio::time::timeout(shared.options.to_read, Limited::new(body, most).collect()).await;
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
