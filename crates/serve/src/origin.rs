//! Who may ask by what name: pages of other places only where the server was told so, and a server for this machine alone
//! only by names of this machine.

use crate::error::ApiError;
use crate::server::Shared;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

/// What pages may send besides what any page may.
const HEADERS: &str = "authorization, content-type, x-api-key, anthropic-version, x-request-id";

/// A server for this machine alone is asked by its own names: a page whose name was made to lead here is not.
pub(crate) fn check_host(shared: &Shared, headers: &HeaderMap) -> Result<(), ApiError> {
    if !shared.local {
        return Ok(());
    }
    let host = text(headers, &header::HOST);
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let own = name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
        // A proxy in front of it may pass on the name that it goes by.
        || shared.options.origins.iter().any(|origin| authority(origin).eq_ignore_ascii_case(host));
    match own {
        true => Ok(()),
        false => Err(ApiError::new(StatusCode::FORBIDDEN, "this server answers to this machine's own names")),
    }
}

/// Pages may ask for something to be done only where they are this server's own, or of a place that was named: forms and
/// sounds are sent by browsers without asking first.
pub(crate) fn check_origin(shared: &Shared, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let origin = text(headers, &header::ORIGIN);
    let reads = *method == Method::GET || *method == Method::HEAD;
    let own = authority(origin).eq_ignore_ascii_case(text(headers, &header::HOST));
    match origin.is_empty() || reads || own || is_allowed(shared, origin) {
        true => Ok(()),
        false => Err(ApiError::new(StatusCode::FORBIDDEN, "pages of that origin may not ask this server")
            .code("origin_not_allowed")),
    }
}

/// What a reply to a page says about it.
pub(crate) fn allow(shared: &Shared, origin: Option<&HeaderValue>, reply: &mut HeaderMap) {
    let Some(origin) = origin.filter(|origin| is_allowed(shared, origin.to_str().unwrap_or_default())) else {
        return;
    };
    reply.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    reply.insert(header::VARY, HeaderValue::from_static("origin"));
    reply.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    reply.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
    reply.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
}

/// Whether a browser asks on behalf of a page whether it may ask.
pub(crate) fn asks_first(shared: &Shared, method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && is_allowed(shared, text(headers, &header::ORIGIN))
}

fn is_allowed(shared: &Shared, origin: &str) -> bool {
    let named = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(origin);
    !origin.is_empty() && shared.options.origins.iter().any(named)
}

/// The host and port of an origin.
fn authority(origin: &str) -> &str {
    origin.split_once("://").map_or("", |(_, authority)| authority)
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
