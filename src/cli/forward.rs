//! The handler of the gateway: the verified request, sent on to an application in any language.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;
use tracing::warn;

use countersign::receive::{Outcome, REPLAYED, Reservation, VerifiedBody};

/// The event's id as its sender wrote it, or its key where it has none.
const EVENT_ID: HeaderName = HeaderName::from_static("countersign-event-id");
/// What the event is remembered by; unlike the id, always covered by the signature.
const KEY: HeaderName = HeaderName::from_static("countersign-key");
/// Which run of the event this is, from 1.
const ATTEMPT: HeaderName = HeaderName::from_static("countersign-attempt");
/// How the application ends an event on purpose: `permanent`, `transient`, `unclear` or `done`.
const OUTCOME: HeaderName = HeaderName::from_static("countersign-outcome");
/// What the application may hand on where something must not happen twice.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("countersign-idempotency-key");
/// Whether the signature covers the id, and where it stood: `signed_header`, `signed_body`, `unsigned`, `none`.
const ID_ORIGIN: HeaderName = HeaderName::from_static("countersign-id-origin");
/// No header with this prefix passes in either direction: they are ours to write. Nor with an underscore in the place of
/// the hyphen, which many applications cannot tell from it.
const OURS: &str = "countersign-";

/// Where the application is.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    authority: Authority,
    /// Takes the place of `below` at the front of the path; empty: the path is left as it is.
    path: String,
    below: String,
}

impl Upstream {
    /// An address like `http://127.0.0.1:8000`, or `http://127.0.0.1:8000/hooks`, whose path then takes the place of
    /// `below`.
    pub(crate) fn parse(url: &str, below: &str) -> Result<Self, String> {
        // Never the URL itself in a message: it may hold a password, or be a secret in the wrong place.
        let uri: Uri = url.parse().map_err(|error| format!("it is not a URL: {error}"))?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(_) | None => {
                return Err("it must begin with http://: the gateway stands beside its application".to_owned());
            }
        }
        if uri.query().is_some() {
            return Err("it must have no query".to_owned());
        }
        let authority = uri.authority().cloned().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it must hold no user or password: the gateway would not send them".to_owned());
        }
        // A number that is too large is no port to `http`, and no fault either.
        let has_port = authority.as_str() != authority.host();
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("its port is none; 1 to 65535 are".to_owned());
        }
        Ok(Self {
            authority,
            path: uri.path().trim_end_matches('/').to_owned(),
            below: below.trim_end_matches('/').to_owned(),
        })
    }

    /// Whether only a part of the application's paths is meant.
    pub(crate) const fn has_path(&self) -> bool {
        !self.path.is_empty()
    }

    fn uri(&self, original: &Uri) -> Result<Uri, http::Error> {
        let original = original.path_and_query().map_or("/", PathAndQuery::as_str);
        let target = if self.path.is_empty() {
            original.to_owned()
        } else {
            format!("{}{}", self.path, original.strip_prefix(&self.below).unwrap_or(original))
        };
        Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(target).build()
    }
}

/// Sends requests on, over pooled connections.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    client: Client<HttpConnector, VerifiedBody>,
    upstream: Arc<Upstream>,
    timeout: Duration,
}

impl Forward {
    pub(crate) fn new(upstream: Upstream, timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeout.min(Duration::from_secs(10))));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // Shorter than what most servers allow, so that few requests meet a connection that was just closed.
            .pool_idle_timeout(Duration::from_secs(4))
            .build(connector);
        Self { client, upstream: Arc::new(upstream), timeout }
    }
}

type ForwardBody = Either<Incoming, Full<Bytes>>;

impl Service<Request<VerifiedBody>> for Forward {
    type Response = Response<ForwardBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<VerifiedBody>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.send(request).await) })
    }
}

impl Forward {
    async fn send(&self, request: Request<VerifiedBody>) -> Response<ForwardBody> {
        let named = |what: &str| format!("{}: {what}", self.upstream.authority);
        // Where a request may have reached the application, nobody can tell what it has done.
        let unanswered = |status, what: &str| unanswered(status, Outcome::unclear(named(what)));
        let request = match self.rewrite(request) {
            Ok(request) => request,
            Err(error) => return unreached(Outcome::transient(named(&format!("no such target: {error}")))),
        };
        match tokio::time::timeout(self.timeout, self.client.request(request)).await {
            // It would tell the sender to speak another protocol from here on, with nobody to speak it to.
            Ok(Ok(response)) if response.status().is_informational() => {
                unanswered(StatusCode::BAD_GATEWAY, &format!("{} is no final answer", response.status()))
            }
            Ok(Ok(response)) => returned(response),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
                let what = format!("{error}{cause}");
                match error.is_connect() {
                    true => unreached(Outcome::transient(named(&what))),
                    false => unanswered(StatusCode::BAD_GATEWAY, &what),
                }
            }
            Err(_elapsed) => unanswered(StatusCode::GATEWAY_TIMEOUT, &format!("no answer within {:?}", self.timeout)),
        }
    }

    fn rewrite(&self, mut request: Request<VerifiedBody>) -> Result<Request<VerifiedBody>, http::Error> {
        *request.uri_mut() = self.upstream.uri(request.uri())?;
        *request.version_mut() = http::Version::HTTP_11;

        let delivery = request.body().delivery().clone();
        let reservation = request.extensions().get::<Reservation>().cloned();
        let headers = request.headers_mut();
        strip(headers);
        // Written anew by the client, for its own hop.
        headers.remove(header::HOST);
        headers.remove(header::EXPECT);
        if let Some(reservation) = reservation {
            let key = HeaderValue::from_bytes(reservation.key().as_str().as_bytes())?;
            let id = match delivery.event_id() {
                Some(id) => HeaderValue::from_bytes(id.as_str().as_bytes())?,
                None => key.clone(),
            };
            headers.insert(EVENT_ID, id);
            headers.insert(ID_ORIGIN, HeaderValue::from_static(delivery.id_origin().as_str()));
            headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(&reservation.idempotency_key())?);
            headers.insert(KEY, key);
            headers.insert(ATTEMPT, HeaderValue::from(reservation.attempt()));
        }
        Ok(request)
    }
}

/// The application's answer, with its outcome read from the header and the header taken off.
fn returned(response: Response<Incoming>) -> Response<ForwardBody> {
    let mut response = response.map(Either::Left);
    // That of the application's connection says nothing about ours.
    *response.version_mut() = http::Version::HTTP_11;
    let outcome = response.headers().get(OUTCOME).map(|value| value.as_bytes().to_ascii_lowercase());
    strip(response.headers_mut());
    // The application has run the event: its answer is none of ours given again.
    response.headers_mut().remove(REPLAYED);
    let named = |what: &str| format!("the application answered {} and {what}", response.status());
    let outcome = match outcome.as_deref() {
        None => None,
        Some(b"permanent") => Some(Outcome::permanent(named("permanent"))),
        Some(b"transient") => Some(Outcome::transient(named("transient"))),
        Some(b"unclear") => Some(Outcome::unclear(named("unclear"))),
        Some(b"done") => Some(Outcome::Done),
        Some(other) => {
            warn!(value = %other.escape_ascii(), "countersign-outcome is none of done, permanent, transient, unclear: ignored");
            None
        }
    };
    if let Some(outcome) = outcome {
        response.extensions_mut().insert(outcome);
    }
    response
}

/// Nothing was sent.
fn unreached(outcome: Outcome) -> Response<ForwardBody> {
    unanswered(StatusCode::BAD_GATEWAY, outcome)
}

fn unanswered(status: StatusCode, outcome: Outcome) -> Response<ForwardBody> {
    warn!(%status, ?outcome, "the application did not answer");
    let body = serde_json::json!({
        "type": "urn:countersign:problem:upstream-unavailable",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": "The event was accepted but the application behind this receiver did not answer. Deliver it again later.",
    });
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response.extensions_mut().insert(outcome);
    response
}

/// Takes off what belongs to one hop, what `Connection` names, and what only we may write.
fn strip(headers: &mut HeaderMap) {
    const HOP: [&str; 9] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let gone: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            HOP.contains(&name) || name.replace('_', "-").starts_with(OURS) || named.iter().any(|named| named == name)
        })
        .cloned()
        .collect();
    for name in gone {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstreams_path_takes_the_place_of_the_served_one() {
        for (url, below, asked, expected) in [
            ("http://h:1", "/", "/a/b?c", "http://h:1/a/b?c"),
            ("http://h:1/", "/in", "/in/b", "http://h:1/in/b"),
            ("http://h:1/app", "/", "/", "http://h:1/app/"),
            ("http://h:1/app/", "/in", "/in?x=%20", "http://h:1/app?x=%20"),
            ("http://h:1/app", "/in/", "/in/b", "http://h:1/app/b"),
        ] {
            let upstream = Upstream::parse(url, below).expect("an upstream");
            let uri = upstream.uri(&asked.parse().expect("a target")).expect("a URI");
            assert_eq!(uri.to_string(), expected, "{url} {below} {asked}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_reached_is_refused_and_not_shown() {
        for url in [
            "",
            "hunter2",
            "https://hunter2",
            "http://",
            "http://hunter2:99999",
            "http://hunter2:0",
            "http://hunter2:",
            "http://u:hunter2@h",
            "http://h/?hunter2",
        ] {
            let refused = Upstream::parse(url, "/").expect_err("to be refused");
            assert!(!refused.contains("hunter2"), "{url}: {refused}");
        }
        for url in ["http://h", "http://[::1]", "http://[::1]:80/a", "http://h:65535"] {
            assert!(Upstream::parse(url, "/").is_ok(), "{url}");
        }
    }

    #[test]
    fn headers_that_connection_names_and_ours_are_taken_off() {
        let mut headers = HeaderMap::new();
        headers.append("connection", HeaderValue::from_static("close, X-Hop"));
        headers.append("x-hop", HeaderValue::from_static("1"));
        headers.append("countersign-attempt", HeaderValue::from_static("7"));
        headers.append("countersign_key", HeaderValue::from_static("forged"));
        headers.append("proxy-authorization", HeaderValue::from_static("Basic"));
        headers.append("x-end", HeaderValue::from_static("1"));
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-end"]);
    }
}
