//! What an operator's tools ask: `/healthz`, `/readyz`, `/metrics`. Beside them stand the pages, where they are served.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tower_service::Service;

use countersign::admin::asks_for_this_machine;
use countersign::store::{InboxStore, OutboxStore};

use crate::prometheus::Prometheus;

/// The service behind `--admin-listen`.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) half: Half,
    pub(crate) metrics: Prometheus,
    pub(crate) pages: Option<Router>,
    /// Whether the address is one that only this machine reaches: then no web page may read the metrics by way of a name of its
    /// own. Elsewhere a network stands between, and a name is as good as another.
    pub(crate) is_on_loopback: bool,
}

/// Which half of the contract is served, and where its store is.
#[derive(Clone, Debug)]
pub(crate) enum Half {
    Receiver(Arc<dyn InboxStore>),
    Sender(Arc<dyn OutboxStore>),
}

impl Service<Request<Incoming>> for Health {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let mut health = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let is_meant = !health.is_on_loopback || asks_for_this_machine(&parts);
            let request = Request::from_parts(parts, body);
            let path = request.uri().path();
            let (status, text) = match path {
                "/healthz" | "/readyz" | "/metrics" if !matches!(request.method().as_str(), "GET" | "HEAD") => {
                    (StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned())
                }
                "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
                "/readyz" => health.half.ready().await,
                "/metrics" if !is_meant => (
                    StatusCode::FORBIDDEN,
                    "ask for localhost or an address of loopback, and not by way of a proxy\n".to_owned(),
                ),
                "/metrics" => (StatusCode::OK, health.metrics.render()),
                _ => match &mut health.pages {
                    Some(pages) => return pages.call(request).await,
                    None => (StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics\n".to_owned()),
                },
            };
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = status;
            let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            Ok(response)
        })
    }
}

impl Half {
    /// Ready: a reservation would be stored, or a claim and a settlement.
    async fn ready(&self) -> (StatusCode, String) {
        let check = async {
            match self {
                Self::Receiver(store) => store.check().await,
                Self::Sender(outbox) => outbox.check_outbox().await,
            }
        };
        match tokio::time::timeout(Duration::from_secs(5), check).await {
            Ok(Ok(())) => (StatusCode::OK, "ready\n".to_owned()),
            Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
            Err(_elapsed) => (StatusCode::SERVICE_UNAVAILABLE, "the store did not answer in time\n".to_owned()),
        }
    }
}
