//! What listens: each source on its own path, 404 elsewhere.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use tower_service::Service;

use countersign::receive::{Dedup, ResponseBody, Verify};

use crate::error::CliError;
use crate::forward::Forward;

/// The sources, those with the longest paths first.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Vec<Route>);

/// One source.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) receive: Verify<Dedup<Forward>>,
    pub(crate) path: Arc<str>,
    /// Whether there are paths of the application that must not be reached.
    pub(crate) confined: bool,
}

impl Gateway {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
        Self(routes)
    }

    /// The source whose path this is, or is below.
    fn route(&mut self, path: &str) -> Option<&mut Route> {
        let found = self.0.iter_mut().find(|route| is_below(path, &route.path))?;
        (!found.confined || !climbs(path)).then_some(found)
    }
}

impl Service<Request<Incoming>> for Gateway {
    type Response = Response<Either<ResponseBody, Full<Bytes>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        for route in &mut self.0 {
            ready!(<Verify<Dedup<Forward>> as Service<Request<Incoming>>>::poll_ready(&mut route.receive, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        // CONNECT asks for a tunnel: there is no answer to it that could be stored.
        let route = self.route(request.uri().path()).filter(|_| request.method() != Method::CONNECT);
        let Some(route) = route else {
            return Box::pin(async move {
                drain(request).await;
                Ok(not_found())
            });
        };
        let received = route.receive.call(request);
        Box::pin(async move { Ok(received.await?.map(Either::Left)) })
    }
}

/// The path that a source is served on.
pub(crate) fn served_path(path: &str) -> Result<&str, CliError> {
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(CliError::usage(format!("--path {path:?} must begin with / and hold no ? or #")));
    }
    if path.parse::<PathAndQuery>().is_err() || climbs(path) {
        return Err(CliError::usage(format!("--path {path:?} is a path that no request has; write it as in a URL")));
    }
    Ok(if path.len() > 1 { path.trim_end_matches('/') } else { path })
}

fn is_below(path: &str, served: &str) -> bool {
    match path.strip_prefix(served) {
        Some(rest) => served == "/" || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Whether a server behind us may read the path as one of a folder further up: it holds `.` or `..` in one of the ways
/// in which servers read them.
fn climbs(path: &str) -> bool {
    let plain = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    plain.split(['/', '\\']).any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// Reads what a client sends that reads the answer only after it, within bounds: else it gets a reset connection. One
/// that asked whether to send is told by the answer.
async fn drain(request: Request<Incoming>) {
    /// Most bytes, and longest time.
    const LIMITS: (usize, Duration) = (32 * 1024 * 1024, Duration::from_secs(5));
    if !request.headers().contains_key(header::EXPECT) {
        let mut body = Limited::new(request.into_body(), LIMITS.0);
        let drained = async { while let Some(Ok(_)) = body.frame().await {} };
        // Too slow: the answer goes out regardless.
        let _ = tokio::time::timeout(LIMITS.1, drained).await;
    }
}

fn not_found() -> Response<Either<ResponseBody, Full<Bytes>>> {
    let body = r#"{"type":"urn:countersign:problem:not-found","title":"Not Found","status":404,"detail":"Nothing is received on this path."}"#;
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(body.as_bytes()))));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_served_path_and_what_is_below_it_is_received() {
        for (path, served, expected) in [
            ("/", "/", true),
            ("/a", "/", true),
            ("/in", "/in", true),
            ("/in/", "/in", true),
            ("/in/a", "/in", true),
            ("/inner", "/in", false),
            ("/", "/in", false),
            ("/in/..a", "/in", true),
        ] {
            assert_eq!(is_below(path, served), expected, "{path} {served}");
        }
    }

    #[test]
    fn a_path_that_climbs_is_known_in_every_spelling() {
        for path in
            ["/in/..", "/in/../a", "/in/%2e%2E/a", "/in/.%2e", "/in/./a", "/in/..%2fa", "/in/..%5Ca", "/in/..;x/a"]
        {
            assert!(climbs(path), "{path}");
        }
        for path in ["/", "/in/a", "/in/...", "/in/..a", "/in/a..", "/in/.well-known", "/in//a", "/in/%2e%2ea"] {
            assert!(!climbs(path), "{path}");
        }
    }

    #[test]
    fn paths_that_no_request_has_are_refused() {
        for path in ["", "in", "/in?a", "/in#a", "/in/..", "/ä b"] {
            assert!(served_path(path).is_err(), "{path}");
        }
        assert_eq!(served_path("/in/").expect("a path"), "/in");
        assert_eq!(served_path("/").expect("a path"), "/");
    }
}
