//! Downloads over HTTP, by range where something is there already.

use super::incoming::{BLOCK, Resume, Sink};
use super::{Network, Origin, Wanted};
use crate::{Error, Listener, Refusal, Result};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Redirects that are followed.
pub(super) const REDIRECTS: u32 = 10;

/// Characters of a server's words that are shown.
const MOST_SAID: usize = 300;

/// One agent and whom it tells who we are.
pub(super) struct Client {
    agent: Agent,
    token: Option<String>,
}

impl Client {
    /// A client that sends the token, if there is one, with every request, and on to where it is redirected on the same
    /// host, but never to another.
    pub(super) fn new(network: &Network, token: Option<&str>) -> Client {
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("pteron/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(network.patience))
            .timeout_connect(Some(network.patience))
            .timeout_recv_response(Some(network.patience))
            .timeout_per_read(Some(network.patience))
            .build()
            .new_agent();
        Client { agent, token: token.map(str::to_owned) }
    }

    /// The answer to a request, whatever its status.
    pub(super) fn get(
        &self,
        url: &str,
        headers: &[(ureq::http::HeaderName, String)],
    ) -> Result<Response<Body>> {
        self.request(self.agent.get(url), url, headers, REDIRECTS)
    }

    /// What is known of a file without reading it, from the first address that is asked.
    pub(super) fn head(&self, url: &str) -> Result<Response<Body>> {
        self.request(self.agent.head(url), url, &[], 0)
    }

    /// The same where an answer must come soon, from the name of the host to the last header.
    pub(super) fn head_within(&self, url: &str, patience: Duration) -> Result<Response<Body>> {
        let request = self.agent.head(url).config().timeout_global(Some(patience)).build();
        self.request(request, url, &[], 0)
    }

    fn request(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
        url: &str,
        headers: &[(ureq::http::HeaderName, String)],
        redirects: u32,
    ) -> Result<Response<Body>> {
        let mut request = request;
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let secure = url.starts_with("https://");
        let request = request.config().https_only(secure).max_redirects(redirects).build();
        request.call().map_err(|error| broken(url, error))
    }
}

/// One file at one address.
pub(super) struct UrlOrigin {
    url: String,
    client: Client,
}

impl UrlOrigin {
    pub(super) fn new(url: &str, network: &Network) -> UrlOrigin {
        UrlOrigin { url: url.to_owned(), client: Client::new(network, None) }
    }
}

impl Origin for UrlOrigin {
    fn list(&mut self, _: Listener<'_>) -> Result<Vec<Wanted>> {
        Err(Error::Unfit { from: self.url.clone(), problem: "is one file, not a folder" })
    }

    fn pour(&mut self, _: &Wanted, resume: &Resume, sink: &mut Sink<'_>) -> Result<()> {
        download(&self.client, &self.url, resume, sink)
    }
}

/// Pours what is at an address into the sink.
pub(super) fn download(client: &Client, url: &str, resume: &Resume, sink: &mut Sink<'_>) -> Result<()> {
    let mut headers = Vec::new();
    if resume.at > 0 {
        headers.push((RANGE, format!("bytes={}-", resume.at)));
        headers.extend(resume.validator.clone().map(|validator| (IF_RANGE, validator)));
    }
    let answer = client.get(url, &headers)?;
    let (at, total) = match answer.status().as_u16() {
        200 => (0, number(&answer, CONTENT_LENGTH)),
        206 => {
            let (first, total) = content_range(&answer).ok_or_else(|| Error::Answer {
                address: url.to_owned(),
                problem: "the server sends part of a file and does not say which".to_owned(),
            })?;
            if first != resume.at {
                let problem = format!("the server sends bytes from {first} on, not from {}", resume.at);
                return Err(Error::Answer { address: url.to_owned(), problem });
            }
            (first, total)
        }
        // There is no such range: what we have is of another version.
        416 if resume.at > 0 => return download(client, url, &Resume::default(), sink),
        _ => return Err(refused(url, &answer)),
    };
    if total.is_none() && text(&answer, TRANSFER_ENCODING).is_none() && !sink.knows_the_end() {
        let problem = "neither the server nor the registry says how long the file is, so that half of it could not be \
                       told from the whole";
        return Err(Error::Answer { address: url.to_owned(), problem: problem.to_owned() });
    }
    let validator = strong_validator(&answer);
    if at > 0 && resume.validator.is_some() && resume.validator != validator {
        // The server did not look at what we asked: this is the end of another version.
        return download(client, url, &Resume::default(), sink);
    }
    sink.begin(at, total, validator)?;
    let mut body = answer.into_body().into_reader();
    let mut block = vec![0; BLOCK];
    loop {
        let network = |problem: String| Error::Network { address: url.to_owned(), problem };
        let read = body.read(&mut block).map_err(|error| network(format!("the connection broke: {error}")));
        match read? {
            0 => break,
            count => sink.write(&block[..count])?,
        }
    }
    let arrived = sink.at();
    match total {
        Some(total) if arrived < total => {
            let problem = format!("the connection ended after {arrived} of {total} bytes");
            Err(Error::Network { address: url.to_owned(), problem })
        }
        _ => Ok(()),
    }
}

/// A tag of exactly these bytes; weak ones stand for several versions.
fn strong_validator(answer: &Response<Body>) -> Option<String> {
    let tag = text(answer, ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| text(answer, LAST_MODIFIED)).map(str::to_owned)
}

/// `bytes 100-199/200`: the first byte and the whole length.
fn content_range(answer: &Response<Body>) -> Option<(u64, Option<u64>)> {
    let (range, total) = text(answer, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, total.trim().parse().ok()))
}

fn number(answer: &Response<Body>, name: ureq::http::HeaderName) -> Option<u64> {
    text(answer, name)?.parse().ok()
}

/// The error of an answer that is none.
pub(super) fn refused(url: &str, answer: &Response<Body>) -> Error {
    let words = |name| text(answer, name).map(|words| words.chars().take(MOST_SAID).collect());
    let refusal = Refusal {
        status: answer.status().as_u16(),
        reason: words("x-error-code"),
        said: words("x-error-message"),
        wait: wait(answer),
    };
    Error::Status { address: url.to_owned(), refusal }
}

/// How long the server wants to be left alone: as the standard has it, or in the hub's `RateLimit: "api";r=0;t=56`.
fn wait(answer: &Response<Body>) -> Option<Duration> {
    let of_limit = || {
        let spent =
            text(answer, "ratelimit").filter(|limit| limit.split(';').any(|part| part.trim() == "r=0"))?;
        spent.split(';').find_map(|part| part.trim().strip_prefix("t=")?.parse().ok())
    };
    number(answer, RETRY_AFTER).or_else(of_limit).map(Duration::from_secs)
}

/// A header's text.
pub(super) fn text(answer: &Response<Body>, name: impl ureq::http::header::AsHeaderName) -> Option<&str> {
    answer.headers().get(name)?.to_str().ok()
}

/// What went wrong before there was an answer.
fn broken(url: &str, error: ureq::Error) -> Error {
    let address = url.to_owned();
    let network = |problem: String| Error::Network { address: url.to_owned(), problem };
    match error {
        ureq::Error::HostNotFound => network("there is no such host, or no network".to_owned()),
        ureq::Error::ConnectionFailed => network("no connection".to_owned()),
        ureq::Error::Timeout(stage) => network(format!("no answer in time ({stage})")),
        ureq::Error::Io(error) => network(error.to_string()),
        other => Error::Answer { address, problem: other.to_string() },
    }
}
