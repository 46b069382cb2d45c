//! `countersign receive`: the receiver in front of an application in any language.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{info, warn};

use countersign::receive::{Dedup, DedupLayer, ReceiveLayer, ResponseBody, Verify, VerifyLayer};
use countersign::signature::{ReplayWindow, Verifier};
use countersign::store::Retention;

use crate::error::CliError;
use crate::forward::{Forward, Upstream};
use crate::health::{Counters, Health};
use crate::maintenance::{parse_span, purge_forever};
use crate::scheme::SigningArgs;
use crate::serve::{serve, stop_signal};
use crate::store::{StoreArgs, close};

/// Put the receiver in front of an application
///
/// Verifies each request, runs each event once, and sends it on to the application byte for byte, with
/// countersign-event-id, countersign-key and countersign-attempt added. The application's answer is stored and given
/// to every repeat. It can end an event on purpose with the header `countersign-outcome: permanent` (or `transient`,
/// or `done`).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  countersign receive --listen 127.0.0.1:8080 --scheme stripe \\\n    \
    --secret-env STRIPE_SECRET --upstream http://127.0.0.1:3000")]
pub(crate) struct ReceiveArgs {
    /// Address to listen on; port 0 picks one
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    signing: SigningArgs,
    /// The application; a path in it takes the place of --path
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Only this path and what is below it is received; all of it is one endpoint
    #[arg(long, default_value = "/", value_name = "PATH")]
    path: String,
    /// Who handles the events; each consumer of a store handles each event once
    #[arg(long, default_value = "default", value_name = "NAME")]
    consumer: String,
    /// Your name for the sender and endpoint [default: the scheme, and --path]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The URL the sender was given, up to the path, for schemes that sign it
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// How far a signed timestamp may lie in the past or future
    #[arg(long, value_name = "SECONDS")]
    tolerance: Option<u64>,
    /// How long an event waits after a crash before it may run again
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    lease: u64,
    /// Largest body accepted
    #[arg(long, default_value_t = 2 * 1024 * 1024, value_name = "BYTES")]
    max_body: usize,
    /// How long a body may take to arrive
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    body_timeout: u64,
    /// How long the application may take to answer
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    upstream_timeout: u64,
    /// How often an event is run before it is a dead letter
    #[arg(long, default_value_t = 20, value_name = "N")]
    max_attempts: u32,
    /// Status of a delivery while another one of the same event is handled [default: what suits the scheme]
    #[arg(long, value_name = "STATUS")]
    in_flight_status: Option<u16>,
    /// How events are run
    #[arg(long, value_enum, default_value_t = Mode::Inline)]
    mode: Mode,
    /// How long results are kept, like 7d or 3600
    #[arg(long, default_value = "7d", value_parser = parse_span, value_name = "SPAN")]
    keep_results: Duration,
    /// How long events are remembered, like 30d
    #[arg(long, default_value = "30d", value_parser = parse_span, value_name = "SPAN")]
    keep_keys: Duration,
    /// Where /healthz, /readyz and /metrics are answered
    #[arg(long, value_name = "HOST:PORT")]
    admin_listen: Option<SocketAddr>,
    /// How long running requests may take after SIGTERM
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
    #[command(flatten)]
    store: StoreArgs,
}

/// How events are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Within the request: the application's answer is the answer
    Inline,
}

pub(crate) async fn run(args: &ReceiveArgs) -> Result<(), CliError> {
    let Mode::Inline = args.mode;
    let path = served_path(&args.path)?;
    let upstream =
        Upstream::parse(&args.upstream, path).map_err(|error| CliError::usage(format!("--upstream: {error}")))?;

    let (scheme, keyring) = args.signing.parts()?;
    let source = args.source.clone().unwrap_or_else(|| match path {
        "/" => scheme.name().to_owned(),
        path => format!("{}:{path}", scheme.name()),
    });
    let mut verifier = Verifier::new(scheme, keyring)?;
    if let Some(seconds) = args.tolerance {
        verifier = verifier.with_window(ReplayWindow::symmetric(Duration::from_secs(seconds)));
    }
    let mut verify = VerifyLayer::builder(&source, verifier)
        .body_limit(args.max_body)
        .body_timeout(Duration::from_secs(args.body_timeout));
    if let Some(url) = &args.public_url {
        verify = verify.public_url(url);
    }
    let verify = verify.build()?;

    let upstream_timeout = Duration::from_secs(args.upstream_timeout);
    let retention = Retention { results: args.keep_results, keys: args.keep_keys };
    let in_flight_status = args.in_flight_status.map(StatusCode::from_u16).transpose();
    let in_flight_status = in_flight_status.map_err(|_| CliError::usage("--in-flight-status: not a status"))?;

    let store = args.store.open().await?;
    let mut dedup = DedupLayer::builder(store.shared())
        .consumer(&args.consumer)
        .lease(Duration::from_secs(args.lease))
        // The gateway's own limit answers 504; this one is behind it.
        .handler_timeout(upstream_timeout + Duration::from_secs(5))
        .max_attempts(args.max_attempts)
        .retention(retention);
    if let Some(status) = in_flight_status {
        dedup = dedup.in_flight_status(status);
    }
    let dedup = dedup.build()?;
    let layer = ReceiveLayer::new(verify, dedup)?;

    let counters = Arc::new(Counters::default());
    let gateway = Gateway {
        receive: layer.layer(Forward::new(upstream, upstream_timeout)),
        path: path.into(),
        counters: Arc::clone(&counters),
    };
    let listener = listen(args.listen).await?;
    let admin = match args.admin_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    announce(&listener)?;

    let grace = Duration::from_secs(args.grace);
    let tasks = layer.tasks().clone();
    let stopping = tokio_util::sync::CancellationToken::new();
    let health = Health { store: store.shared(), counters, tasks: tasks.clone() };
    let admin = admin.map(|listener| tokio::spawn(serve(listener, health, stopping.clone().cancelled_owned(), grace)));
    let purger = tokio::spawn(purge_forever(store.clone(), retention));

    serve(listener, gateway, stop_signal(), grace).await;

    info!("stopping: no new connections; waiting for {} deliveries", tasks.len());
    let left = tasks.drain(grace).await;
    if left > 0 {
        warn!("{left} deliveries were still being handled after {grace:?}; they run again when their leases end");
    }
    purger.abort();
    stopping.cancel();
    if let Some(admin) = admin {
        // It has nothing of its own that could be lost.
        let _ = admin.await;
    }
    close(store).await;
    Ok(())
}

fn served_path(path: &str) -> Result<&str, CliError> {
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(CliError::usage(format!("--path {path:?} must begin with / and hold no ? or #")));
    }
    Ok(if path.len() > 1 { path.trim_end_matches('/') } else { path })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| CliError::unreachable(format!("cannot listen on {address}: {error}; choose another --listen")))
}

/// Says on stdout where we listen: other programs wait for this line.
fn announce(listener: &TcpListener) -> Result<(), CliError> {
    use std::io::Write as _;
    let address =
        listener.local_addr().map_err(|error| CliError::unreachable(format!("the socket has no address: {error}")))?;
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
    Ok(())
}

/// What listens: the receiver on its path, 404 elsewhere, everything counted.
#[derive(Clone, Debug)]
struct Gateway {
    receive: Verify<Dedup<Forward>>,
    path: Arc<str>,
    counters: Arc<Counters>,
}

impl Service<Request<Incoming>> for Gateway {
    type Response = Response<Either<ResponseBody, Full<Bytes>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        <Verify<Dedup<Forward>> as Service<Request<Incoming>>>::poll_ready(&mut self.receive, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if !is_below(request.uri().path(), &self.path) {
            return Box::pin(std::future::ready(Ok(not_found())));
        }
        let counters = Arc::clone(&self.counters);
        let received = self.receive.call(request);
        Box::pin(async move {
            let response = received.await?;
            counters.count(&response);
            Ok(response.map(Either::Left))
        })
    }
}

fn is_below(path: &str, served: &str) -> bool {
    match path.strip_prefix(served) {
        Some(rest) => served == "/" || rest.is_empty() || rest.starts_with('/'),
        None => false,
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
        ] {
            assert_eq!(is_below(path, served), expected, "{path} {served}");
        }
    }
}
