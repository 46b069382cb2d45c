//! `countersign receive`: the receiver in front of an application in any language.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use ipnet::{IpNet, Ipv4Net};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{info, warn};

use countersign::receive::{
    Dedup, DedupLayer, OrderBy, Processor, ReceiveLayer, ResponseBody, Stale, Verify, VerifyLayer,
};
use countersign::signature::{Handshake, ReplayWindow, Verifier};
use countersign::store::{CachedInbox, InboxStore, purge_forever};

use crate::admin::AdminArgs;
use crate::error::CliError;
use crate::forward::{Forward, Upstream};
use crate::health::Half;
use crate::hook_secret::HookSecretArgs;
use crate::maintenance::{parse_span, retention};
use crate::scheme::SigningArgs;
use crate::secrets::VerifyTokenArgs;
use crate::serve::{Peer, StopSignal, serve};
use crate::store::{StoreArgs, close};

/// Put the receiver in front of an application
///
/// Verifies each request, runs each event once, and sends it on to the application byte for byte, with the headers
/// countersign-event-id, -id-origin, -key, -idempotency-key and -attempt added. The application's answer is stored and given
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
    /// Who handles the events: each consumer of a store handles each event once, and in deferred mode its receivers share
    /// them [default: the source, so that no other application gets them]
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Your name for the sender and endpoint: two receivers of one scheme on one store need one each [default: the scheme,
    /// and --path]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The URL the sender was given, up to the path, for schemes that sign it
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// The whole URL the sender was given, to the letter, in place of --public-url
    #[arg(long, value_name = "URL", conflicts_with = "public_url")]
    exact_url: Option<String>,
    /// A proxy or network of proxies of your own, whose X-Forwarded-Proto and X-Forwarded-Host are believed, for schemes
    /// that sign the URL and endpoints with several hosts; repeatable [default: nobody is believed]
    #[arg(long, value_name = "IP_OR_CIDR", value_parser = network)]
    trust_forwarded: Vec<IpNet>,
    #[command(flatten)]
    verify_token: VerifyTokenArgs,
    #[command(flatten)]
    hook_secret: HookSecretArgs,
    /// How far a signed timestamp may lie in the past or future
    #[arg(long, value_name = "SECONDS")]
    tolerance: Option<u64>,
    /// What becomes of a rightly signed request outside that
    #[arg(long, value_enum, default_value_t = StaleArg::Refuse)]
    stale: StaleArg,
    /// How long an event waits after a crash before it may run again [default: twice the time its sender waits for an
    /// answer, 10 to 30; in deferred mode 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(1))]
    lease: Option<u64>,
    /// Largest body accepted
    #[arg(long, default_value_t = 2 * 1024 * 1024, value_name = "BYTES")]
    max_body: usize,
    /// How long a body may take to arrive
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = seconds(1))]
    body_timeout: u64,
    /// How long the application may take to answer
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = seconds(1))]
    upstream_timeout: u64,
    /// How often an event is run before it is a dead letter
    #[arg(long, default_value_t = 20, value_name = "N")]
    max_attempts: u32,
    /// Status of a delivery while another one of the same event is handled [default: 409, or 503 for the schemes whose
    /// senders give up after a 4xx]
    #[arg(long, value_name = "STATUS")]
    in_flight_status: Option<u16>,
    /// How long such a delivery waits for the result first [default: 250, or a tenth of the time its sender waits for an
    /// answer]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=60_000))]
    in_flight_wait: Option<u64>,
    /// How events are run
    #[arg(long, value_enum, default_value_t = Mode::Inline)]
    mode: Mode,
    /// In deferred mode: how many events are run at one time
    #[arg(long, default_value_t = 16, value_name = "N")]
    concurrency: u32,
    /// In deferred mode: events with the same value in this field of the body run one by one, like data.object.id
    #[arg(long, value_name = "FIELD")]
    order_by: Option<String>,
    /// How long results are kept, like 7d or 3600
    #[arg(long, default_value = "7d", value_parser = parse_span, value_name = "SPAN")]
    keep_results: Duration,
    /// How long events are remembered, like 30d
    #[arg(long, default_value = "30d", value_parser = parse_span, value_name = "SPAN")]
    keep_keys: Duration,
    /// Memory for finished results, so that a repeat asks the store nothing; an event that was done and is forgotten
    /// (`inbox forget`) then takes up to a minute to be a new one [default: none]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "BYTES")]
    cache_bytes: u64,
    #[command(flatten)]
    admin: AdminArgs,
    /// How long running requests may take after SIGTERM
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = seconds(0))]
    grace: u64,
    #[command(flatten)]
    store: StoreArgs,
}

/// What becomes of stale requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StaleArg {
    /// 401, as if it were forged
    Refuse,
    /// 202, and kept for a person to look at: `inbox list` shows it, `inbox retry` releases it
    Quarantine,
}

/// How events are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Within the request: the application's answer is the answer
    Inline,
    /// Later: the sender gets a 202 at once, and the event is sent on with retries
    Deferred,
}

pub(crate) async fn run(args: &ReceiveArgs) -> Result<(), CliError> {
    // Before the layers, which begin their counts when they are made.
    let admin = args.admin.place()?;
    let path = served_path(&args.path)?;
    let upstream =
        Upstream::parse(&args.upstream, path).map_err(|error| CliError::usage(format!("--upstream: {error}")))?;

    let scheme = args.signing.scheme()?;
    let (keyring, registration) = args.hook_secret.keyring(&args.signing, &scheme)?;
    let source = args.source.clone().unwrap_or_else(|| match path {
        "/" => scheme.name().to_owned(),
        path => format!("{}:{path}", scheme.name()),
    });
    let consumer = args.consumer.as_ref().unwrap_or(&source);
    if let Some(patience) = scheme.patience().filter(|patience| args.mode == Mode::Inline && patience.as_secs() <= 5) {
        info!(
            "{} waits {} s for an answer: --mode deferred is for work that may take longer",
            scheme.provider(),
            patience.as_secs()
        );
    }
    let (provider, wants_token) = (scheme.provider(), scheme.handshakes().contains(&Handshake::HubChallenge));
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
    if let Some(url) = &args.exact_url {
        verify = verify.exact_url(url);
    }
    if !args.trust_forwarded.is_empty() {
        let trusted = args.trust_forwarded.clone();
        verify = verify.trust_forwarded(move |parts| {
            let peer = parts.extensions.get::<Peer>();
            peer.is_some_and(|Peer(peer)| trusted.iter().any(|network| network.contains(peer)))
        });
    }
    if let Some(registration) = &registration {
        verify = verify.hook_registration(registration);
    }
    match args.verify_token.token()? {
        Some(token) => verify = verify.verify_token(token),
        None if wants_token => warn!(
            "{provider} tries an endpoint with the verify token that you gave it, and is refused without: give it here too, \
             with --verify-token-env or --verify-token-file"
        ),
        None => {}
    }
    let verify = verify.stale(match args.stale {
        StaleArg::Refuse => Stale::Refuse,
        StaleArg::Quarantine => Stale::Quarantine,
    });
    let verify = verify.build()?;

    // Where nothing is mapped, the whole path is the application's own, whatever it makes of it.
    let confined = path != "/" || upstream.has_path();

    let upstream_timeout = Duration::from_secs(args.upstream_timeout);
    let retention = retention(args.keep_results, args.keep_keys)?;
    let in_flight_status = args.in_flight_status.map(StatusCode::from_u16).transpose();
    let in_flight_status = in_flight_status.map_err(|_| CliError::usage("--in-flight-status: not a status"))?;

    let store = args.store.open().await?;
    let inbox: Arc<dyn InboxStore> = match args.cache_bytes {
        0 => store.shared(),
        bytes => Arc::new(CachedInbox::new(store.shared(), bytes)),
    };
    let mut dedup = DedupLayer::builder(Arc::clone(&inbox))
        .consumer(consumer)
        // The gateway's own limit answers 504; this one is behind it.
        .handler_timeout(upstream_timeout + Duration::from_secs(5))
        .max_attempts(args.max_attempts)
        .retention(retention);
    if let Some(status) = in_flight_status {
        dedup = dedup.in_flight_status(status);
    }
    if let Some(wait) = args.in_flight_wait {
        dedup = dedup.wait(Duration::from_millis(wait));
    }
    let lease = args.lease.map(Duration::from_secs);
    if let Some(lease) = lease {
        dedup = dedup.lease(lease);
    }
    if args.mode == Mode::Deferred {
        dedup = dedup.deferred();
    } else if args.order_by.is_some() {
        return Err(CliError::usage("--order-by works with --mode deferred only"));
    }
    if let Some(field) = &args.order_by {
        dedup = dedup.order_by(OrderBy::BodyField(field.clone()));
    }
    let dedup = dedup.build()?;
    let layer = ReceiveLayer::new(verify, dedup)?;

    let forward = Forward::new(upstream, upstream_timeout);
    let grace = Duration::from_secs(args.grace);
    let mut processor = Processor::builder(Arc::clone(&inbox), forward.clone())
        .arrivals(layer.arrivals())
        .consumer(consumer)
        .concurrency(args.concurrency)
        .handler_timeout(upstream_timeout + Duration::from_secs(5))
        .max_attempts(args.max_attempts)
        .grace(grace);
    if let Some(lease) = lease {
        processor = processor.lease(lease);
    }
    let processor = processor.build()?;

    let gateway = Gateway { receive: layer.layer(forward), path: path.into(), confined };
    let listener = listen(args.listen).await?;
    let admin = match admin {
        Some(admin) => Some((admin.listen().await?, admin)),
        None => None,
    };
    // Before the line that others wait for: from then on they may send a signal.
    let stop = StopSignal::listen()?;
    announce(&listener)?;

    let tasks = layer.tasks().clone();
    let stopping = tokio_util::sync::CancellationToken::new();
    let admin_stopping = tokio_util::sync::CancellationToken::new();
    let admin = admin.map(|(listener, admin)| {
        let both = (Arc::clone(&inbox), store.outbox());
        let half = Half::Receiver(Arc::clone(&inbox));
        admin.serve(listener, half, both, admin_stopping.clone().cancelled_owned(), grace)
    });
    let purger = tokio::spawn(purge_forever(inbox, retention));
    let processing = match args.mode {
        Mode::Deferred => Some(tokio::spawn(processor.run(stopping.clone().cancelled_owned()))),
        Mode::Inline => None,
    };

    let stopped = async {
        stop.received().await;
        // What runs gets its grace beside the connections, not after them.
        stopping.cancel();
    };
    let grace_left = serve(listener, gateway, stopped, grace).await;

    info!("stopping: no new connections; waiting for {} deliveries", tasks.len());
    let left = tasks.drain(grace_left).await;
    if left > 0 {
        warn!("{left} deliveries were still being handled after {grace:?}; they run again when their leases end");
    }
    if let Some(processing) = processing {
        // It gives back what it could not end; a panic in it has been logged.
        let _ = processing.await;
    }
    purger.abort();
    admin_stopping.cancel();
    if let Some(admin) = admin {
        // It has nothing of its own that could be lost.
        let _ = admin.await;
    }
    close(store).await;
    Ok(())
}

/// Seconds, from so many to a year: sums of such spans are spans.
fn seconds(least: u64) -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(least..=366 * 24 * 60 * 60)
}

/// A network, or one address. One of IPv4 that is written for IPv6 (`::ffff:10.0.0.7`) is one of IPv4, as peers are.
fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().or_else(|_| one());
    let network: IpNet =
        network.map_err(|_| "it is an address or a network, like 10.0.0.7 or 10.0.0.0/8".to_owned())?;
    let mapped = match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(prefix)) if network.addr().is_ipv6() => Ipv4Net::new(address, prefix).ok(),
        _ => None,
    };
    Ok(mapped.map_or(network, IpNet::V4))
}

fn served_path(path: &str) -> Result<&str, CliError> {
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(CliError::usage(format!("--path {path:?} must begin with / and hold no ? or #")));
    }
    if path.parse::<PathAndQuery>().is_err() || climbs(path) {
        return Err(CliError::usage(format!("--path {path:?} is a path that no request has; write it as in a URL")));
    }
    Ok(if path.len() > 1 { path.trim_end_matches('/') } else { path })
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| CliError::unreachable(format!("cannot listen on {address}: {error}; choose another --listen")))
}

/// Says on stdout where we listen: other programs wait for this line.
pub(crate) fn announce(listener: &TcpListener) -> Result<(), CliError> {
    use std::io::Write as _;
    let address =
        listener.local_addr().map_err(|error| CliError::unreachable(format!("the socket has no address: {error}")))?;
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
    Ok(())
}

/// What listens: the receiver on its path, 404 elsewhere.
#[derive(Clone, Debug)]
struct Gateway {
    receive: Verify<Dedup<Forward>>,
    path: Arc<str>,
    /// Whether there are paths of the application that must not be reached.
    confined: bool,
}

impl Service<Request<Incoming>> for Gateway {
    type Response = Response<Either<ResponseBody, Full<Bytes>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        <Verify<Dedup<Forward>> as Service<Request<Incoming>>>::poll_ready(&mut self.receive, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        let outside = !is_below(path, &self.path) || (self.confined && climbs(path));
        // CONNECT asks for a tunnel: there is no answer to it that could be stored.
        if outside || request.method() == Method::CONNECT {
            return Box::pin(async move {
                drain(request).await;
                Ok(not_found())
            });
        }
        let received = self.receive.call(request);
        Box::pin(async move { Ok(received.await?.map(Either::Left)) })
    }
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
    fn a_network_of_ipv4_is_one_in_either_notation() {
        for (text, expected) in [
            ("10.0.0.7", "10.0.0.7/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::ffff:10.0.0.7", "10.0.0.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text).map(|network| network.to_string()), Ok(expected.to_owned()), "{text}");
        }
        assert!(network("proxy.internal").is_err());
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
}
