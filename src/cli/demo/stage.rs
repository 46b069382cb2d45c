//! The receiver, the handler and the sender of the demo.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;
use tower_service::Service;

use countersign::receive::{
    Backoff, DedupLayer, HandlerTasks, Outcome, Processor, Profile, ReceiveLayer, Reservation, VerifiedBody,
    VerifyLayer,
};
use countersign::signature::{Keyring, Message, Scheme, Signer, Verifier};
use countersign::store::{InboxStore, OutboxStore, Receipt, ReceiptKey, SqliteStore};
use countersign::{Clock, DedupKey, Name, SystemClock, Timestamp};

use crate::error::CliError;
use crate::serve::serve;
use crate::store::Store;

/// What the handler panics with.
pub(crate) const ON_PURPOSE: &str = "the demo's handler panics on purpose";

/// The demo's secret: it protects nothing.
pub(crate) const SECRET: &str = "whsec_ZGVtby1zZWNyZXQtb2YtY291bnRlcnNpZ24tMDAwMQ==";
pub(crate) const SOURCE: &str = "demo";
/// The source of the events that are run behind their receiver, and their consumer.
pub(crate) const DEFERRED: &str = "demo-deferred";
const LATER: &str = "later";
/// The source of the events that are held where nobody can tell what came of them, and their consumer.
pub(crate) const STRICT: &str = "demo-strict";
pub(crate) const BODY_LIMIT: usize = 64 * 1024;
pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// Everything that runs.
pub(crate) struct Stage {
    /// A receiver of the scheme `standard`.
    pub(crate) receiver: SocketAddr,
    /// A receiver of the scheme `stripe`.
    pub(crate) stripe: SocketAddr,
    /// A receiver that answers 202 and has events run behind it.
    pub(crate) deferred: SocketAddr,
    /// A receiver with the profile strict.
    pub(crate) strict: SocketAddr,
    /// A receiver whose store has gone away.
    pub(crate) storeless: SocketAddr,
    /// An application that never answers, for a gateway that is to be killed.
    pub(crate) tar_pit: SocketAddr,
    /// Told when a request has reached the tar pit.
    pub(crate) reached: Arc<Notify>,
    pub(crate) database: PathBuf,
    pub(crate) handler: Handler,
    pub(crate) store: SqliteStore,
    /// The sender's half of the same file, and a dispatcher over it.
    pub(crate) outbox: Arc<dyn OutboxStore>,
    dispatching: tokio::task::JoinHandle<()>,
    client: Client<HttpConnector, Full<Bytes>>,
    folder: PathBuf,
    stopping: CancellationToken,
    tasks: Vec<HandlerTasks>,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// Seconds, as asked for by `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

/// Status, the headers that matter here, and the problem's name or the body.
impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        if let Some(seconds) = self.retry_after() {
            write!(f, ", retry-after: {seconds}")?;
        }
        if self.is_replay() {
            write!(f, ", idempotent-replayed: true")?;
        }
        let body = String::from_utf8_lossy(&self.body);
        match serde_json::from_str::<serde_json::Value>(&body).ok().and_then(|body| Some(body.get("type")?.to_string()))
        {
            Some(problem) => write!(f, ", {problem}"),
            None if body.is_empty() => Ok(()),
            None => write!(f, ", {body:?}"),
        }
    }
}

impl Stage {
    pub(crate) async fn set_up() -> Result<Self, CliError> {
        let folder = temporary_folder()?;
        let database = folder.join("inbox.db");
        let store = open(&database).await?;
        let closed = open(&folder.join("gone.db")).await?;
        crate::store::close(Store::Sqlite(closed.clone())).await;

        let handler = Handler::default();
        let stopping = CancellationToken::new();
        let reached = Arc::new(Notify::new());
        let mut tasks = Vec::new();
        let mut receiver = async |scheme: Scheme, source: &str, store: SqliteStore| {
            let mode = if source == STRICT { Mode::Strict } else { Mode::Inline };
            let layer = layer(scheme, source, store, mode).map_err(|error| CliError::usage(error.to_string()))?;
            tasks.push(layer.tasks().clone());
            listen(layer.layer(handler.clone()), stopping.clone()).await
        };
        let standard = receiver(Scheme::standard(), SOURCE, store.clone()).await?;
        let stripe = receiver(Scheme::stripe(), "demo-stripe", store.clone()).await?;
        let strict = receiver(Scheme::standard(), STRICT, store.clone()).await?;
        let storeless = receiver(Scheme::standard(), SOURCE, closed).await?;
        let deferred = {
            let own = |error: &dyn std::fmt::Display| CliError::usage(error.to_string());
            let layer =
                layer(Scheme::standard(), DEFERRED, store.clone(), Mode::Deferred).map_err(|error| own(&error))?;
            let processor = Processor::builder(store.clone(), handler.clone())
                .consumer(LATER)
                .arrivals(layer.arrivals())
                .backoff(Backoff::new(Duration::from_millis(100), Duration::from_secs(1)))
                .build()
                .map_err(|error| own(&error))?;
            tokio::spawn(processor.run(stopping.clone().cancelled_owned()));
            tasks.push(layer.tasks().clone());
            listen(layer.layer(handler.clone()), stopping.clone()).await?
        };
        let tar_pit = listen(TarPit(Arc::clone(&reached)), stopping.clone()).await?;
        let outbox = Store::Sqlite(store.clone()).outbox();
        let dispatcher = super::sending::dispatcher(Arc::clone(&outbox))?;
        let dispatching = tokio::spawn(dispatcher.run(stopping.clone().cancelled_owned()));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self {
            receiver: standard,
            stripe,
            deferred,
            strict,
            storeless,
            tar_pit,
            reached,
            database,
            handler,
            store,
            outbox,
            dispatching,
            client,
            folder,
            stopping,
            tasks,
        })
    }

    pub(crate) async fn tear_down(self) {
        self.stopping.cancel();
        // It ended, or it panicked and said so.
        let _ = self.dispatching.await;
        for tasks in &self.tasks {
            tasks.drain(Duration::from_secs(5)).await;
        }
        crate::store::close(Store::Sqlite(self.store)).await;
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "the demo's folder could not be removed");
        }
    }

    /// Headers as a sender of the scheme makes them.
    pub(crate) fn signed(scheme: &Scheme, id: &str, at: Timestamp, body: &[u8]) -> Result<HeaderMap, CliError> {
        let own = |error: &dyn std::fmt::Display| CliError::usage(format!("the demo cannot sign: {error}"));
        let secret = scheme.parse_secret(SECRET).map_err(|error| own(&error))?;
        let signer = Signer::new(scheme.clone(), Keyring::new(secret)).map_err(|error| own(&error))?;
        signer.sign(&Message::new(at, body).with_id(id)).map_err(|error| own(&error))
    }

    /// Delivers an event as a sender of the scheme `standard` does.
    pub(crate) async fn deliver(&self, id: &str, body: &str) -> Result<Answer, CliError> {
        let headers = Self::signed(&Scheme::standard(), id, SystemClock.now(), body.as_bytes())?;
        self.post(self.receiver, headers, body.to_owned()).await
    }

    pub(crate) async fn post(
        &self,
        to: SocketAddr,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<Answer, CliError> {
        let unreachable = |error: &dyn std::fmt::Display| {
            CliError::unreachable(format!("the demo's receiver did not answer: {error}"))
        };
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("http://{to}/").parse().map_err(|error| unreachable(&error))?;
        *request.headers_mut() = headers;
        let response = self.client.request(request).await.map_err(|error| unreachable(&error))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| unreachable(&error))?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// The receipt of an event, as any other process would read it.
    pub(crate) async fn receipt(&self, source: &str, id: &str) -> Result<Option<Receipt>, CliError> {
        let name = |text: &str| Name::new(text).map_err(|error| CliError::usage(error.to_string()));
        let key = ReceiptKey {
            consumer: name(match source {
                DEFERRED => LATER,
                STRICT => STRICT,
                _ => "default",
            })?,
            source: name(source)?,
            key: DedupKey::parse(id).map_err(|error| CliError::usage(error.to_string()))?,
        };
        self.store.find(key).await.map_err(|error| CliError::unreachable(error.to_string()))
    }
}

async fn open(path: &std::path::Path) -> Result<SqliteStore, CliError> {
    SqliteStore::open(path).await.map_err(|error| CliError::unreachable(error.to_string()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Deferred,
    Inline,
    Strict,
}

fn layer(
    scheme: Scheme,
    source: &str,
    store: SqliteStore,
    mode: Mode,
) -> Result<ReceiveLayer, Box<dyn std::error::Error>> {
    let secret = scheme.parse_secret(SECRET)?;
    let verify = VerifyLayer::builder(source, Verifier::new(scheme, Keyring::new(secret))?)
        .body_limit(BODY_LIMIT)
        .body_timeout(Duration::from_millis(500))
        .build()?;
    let dedup = DedupLayer::builder(store)
        .lease(LEASE)
        .handler_timeout(Duration::from_millis(1_500))
        .max_attempts(MAX_ATTEMPTS);
    let dedup = match mode {
        Mode::Deferred => dedup.consumer(LATER).deferred(),
        Mode::Inline => dedup,
        Mode::Strict => dedup.consumer(STRICT).profile(Profile::Strict),
    };
    Ok(ReceiveLayer::new(verify, dedup.build()?)?)
}

async fn listen<S, B>(service: S, stopping: CancellationToken) -> Result<SocketAddr, CliError>
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let unreachable = |error: std::io::Error| CliError::unreachable(format!("cannot listen on loopback: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(unreachable)?;
    let address = listener.local_addr().map_err(unreachable)?;
    tokio::spawn(serve(listener, service, stopping.cancelled_owned(), Duration::from_secs(1)));
    Ok(address)
}

fn temporary_folder() -> Result<PathBuf, CliError> {
    let unreachable = |error: std::io::Error| CliError::unreachable(format!("no temporary folder: {error}"));
    let nonce = SystemClock.now().as_micros();
    let folder = std::env::temp_dir().join(format!("countersign-demo-{}-{nonce}", std::process::id()));
    std::fs::create_dir(&folder).map_err(unreachable)?;
    Ok(folder)
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

/// Does what the event's body says, and remembers how often it was run for which event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handler {
    runs: Arc<Mutex<HashMap<String, u32>>>,
}

impl Handler {
    pub(crate) fn runs(&self, id: &str) -> u32 {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied().unwrap_or(0)
    }
}

impl Service<Request<VerifiedBody>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<VerifiedBody>) -> Self::Future {
        let attempt = request.extensions().get::<Reservation>().map_or(0, Reservation::attempt);
        let key = request.extensions().get::<Reservation>().map(|held| held.key().to_string()).unwrap_or_default();
        let wish = String::from_utf8_lossy(request.body().delivery().body()).into_owned();
        let runs = {
            let mut all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let runs = all.entry(key).or_default();
            *runs += 1;
            *runs
        };
        Box::pin(async move {
            let named = |word: &str| wish.contains(word);
            if named("take a moment") {
                tokio::time::sleep(Duration::from_millis(100)).await;
            } else if named("take one second") {
                tokio::time::sleep(Duration::from_secs(1)).await;
            } else if named("hang") {
                std::future::pending::<()>().await;
            } else if named("panic") && attempt == 1 {
                std::panic::panic_any(ON_PURPOSE);
            }
            let mut response = Response::new(Full::new(Bytes::from(format!("run {runs}"))));
            response.headers_mut().insert("x-handled-by", HeaderValue::from_static("the demo"));
            if named("permanent") {
                *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
                response.extensions_mut().insert(Outcome::permanent("there is no such account"));
            } else if named("always 500") || (named("first 500") && attempt == 1) {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
            Ok(response)
        })
    }
}

/// Takes a request and never answers.
#[derive(Clone, Debug)]
struct TarPit(Arc<Notify>);

impl Service<Request<hyper::body::Incoming>> for TarPit {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<hyper::body::Incoming>) -> Self::Future {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}
