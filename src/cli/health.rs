//! What an operator's tools ask: `/healthz`, `/readyz`, `/metrics`, on an address of their own.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tower_service::Service;

use countersign::receive::{HandlerTasks, REPLAYED, Rejection, RejectionKind};
use countersign::store::InboxStore;

/// How deliveries ended, as the metrics name it.
const OUTCOMES: [&str; 12] = [
    "accepted",
    "succeeded",
    "failed",
    "replayed",
    "refused",
    "bad_body",
    "bad_key",
    "other_body",
    "processing",
    "store_unavailable",
    "given_up",
    "overloaded",
];

/// Counts deliveries by how they ended.
#[derive(Debug)]
pub(crate) struct Counters {
    /// What a 2xx that is no repeat means: `succeeded`, or `accepted` in deferred mode.
    taken: &'static str,
    counts: [AtomicU64; OUTCOMES.len()],
}

impl Counters {
    pub(crate) fn new(is_deferred: bool) -> Self {
        Self { taken: if is_deferred { "accepted" } else { "succeeded" }, counts: Default::default() }
    }

    /// Counts one answer.
    pub(crate) fn count<B>(&self, response: &Response<B>) {
        let outcome = outcome(response, self.taken);
        if let Some((_, counter)) = OUTCOMES.iter().zip(&self.counts).find(|(name, _)| **name == outcome) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn render(&self, in_flight: usize) -> String {
        let mut text = String::from(
            "# HELP countersign_received_total Requests received, by how they were answered.\n\
             # TYPE countersign_received_total counter\n",
        );
        for (name, counter) in OUTCOMES.iter().zip(&self.counts) {
            let count = counter.load(Ordering::Relaxed);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "countersign_received_total{{outcome=\"{name}\"}} {count}");
        }
        let _ = write!(
            text,
            "# HELP countersign_in_flight Deliveries being handled now.\n\
             # TYPE countersign_in_flight gauge\n\
             countersign_in_flight {in_flight}\n"
        );
        text
    }
}

fn outcome<B>(response: &Response<B>, taken: &'static str) -> &'static str {
    match response.extensions().get::<Rejection>().map(Rejection::kind) {
        None if response.headers().contains_key(REPLAYED) => "replayed",
        None if response.status().is_success() => taken,
        None | Some(RejectionKind::HandlerFailed(_)) => "failed",
        Some(
            RejectionKind::BodyIncomplete(_)
            | RejectionKind::BodyTaken(_)
            | RejectionKind::BodyTooLarge
            | RejectionKind::BodyTooSlow,
        ) => "bad_body",
        Some(RejectionKind::GaveUp) => "given_up",
        Some(RejectionKind::InvalidKey(_)) => "bad_key",
        Some(RejectionKind::OtherBody) => "other_body",
        Some(RejectionKind::Overloaded) => "overloaded",
        Some(RejectionKind::Processing) => "processing",
        Some(RejectionKind::StoreUnavailable(_) | RejectionKind::Unsettled(_)) => "store_unavailable",
        Some(_) => "refused",
    }
}

/// The service behind `--admin-listen`.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) store: Arc<dyn InboxStore>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tasks: HandlerTasks,
}

impl Service<Request<Incoming>> for Health {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let health = self.clone();
        Box::pin(async move {
            let (status, text) = match request.uri().path() {
                _ if !matches!(request.method().as_str(), "GET" | "HEAD") => {
                    (StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned())
                }
                "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
                "/readyz" => health.ready().await,
                "/metrics" => (StatusCode::OK, health.counters.render(health.tasks.len())),
                _ => (StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics\n".to_owned()),
            };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            Ok(response)
        })
    }
}

impl Health {
    /// Ready to receive: a reservation would be stored.
    async fn ready(&self) -> (StatusCode, String) {
        match tokio::time::timeout(Duration::from_secs(5), self.store.check()).await {
            Ok(Ok(())) => (StatusCode::OK, "ready\n".to_owned()),
            Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
            Err(_elapsed) => (StatusCode::SERVICE_UNAVAILABLE, "the store did not answer in time\n".to_owned()),
        }
    }
}
