//! The dispatcher, over real HTTP, with real stores: cases G and H.

mod endpoints;
mod ends;
mod interoperation;
mod leases;
pub(crate) mod ledger;
mod limits;
mod notices;
mod ordering;
mod wire;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use countersign::notice::{Notice, Notices};
use countersign::send::{
    Backoff, Dispatcher, DispatcherBuilder, Guard, HttpTransport, OperatorEndpoint, Policy, RetryPolicy, Tally,
    Transport,
};
use countersign::store::{
    Endpoint, Enqueue, MemoryStore, Message, MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxStore,
    SqliteStore,
};
use countersign::{EventId, Name};
use tokio_util::sync::CancellationToken;

use crate::support::{SECRET, until};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
    /// How many came before it.
    pub(crate) before: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

/// A server that answers as it is told, and remembers what it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Receiver {
    pub(crate) async fn answering<F, A>(answer: F) -> Self
    where
        F: Fn(Seen) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send,
    {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let all = Arc::clone(&seen);
        let handler =
            async move |State(all): State<Arc<Mutex<Vec<Seen>>>>, uri: Uri, headers: HeaderMap, body: Bytes| {
                let request = {
                    let mut all = all.lock().expect("no test panics in here");
                    let path = uri.path().to_owned();
                    let request = Seen { path, headers, body, at: Instant::now(), before: all.len() };
                    all.push(request.clone());
                    request
                };
                answer(request).await
            };
        let app = Router::new().fallback(handler).with_state(all);
        Self { address: crate::support::serve(app).await, seen }
    }

    /// Answers with these statuses, one after the other, and then with the last one.
    pub(crate) async fn with_statuses(statuses: &'static [u16]) -> Self {
        Self::answering(async move |seen| status(statuses[seen.before.min(statuses.len() - 1)])).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no test panics in here").clone()
    }
}

/// An answer without a body.
pub(crate) fn status(status: u16) -> Response {
    Response::builder().status(status).body(axum::body::Body::empty()).expect("a response")
}

/// The same, with `retry-after`.
pub(crate) fn later(code: u16, seconds: u64) -> Response {
    let mut response = status(code);
    response.headers_mut().insert("retry-after", seconds.into());
    response
}

/// An outbox, and what sends from it.
pub(crate) struct Sender {
    pub(crate) store: Arc<dyn OutboxStore>,
    folder: tempfile::TempDir,
}

impl Sender {
    pub(crate) fn new(store: Arc<dyn OutboxStore>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), SECRET).expect("a file");
        Self { store, folder }
    }

    pub(crate) fn in_memory() -> Self {
        Self::new(Arc::new(MemoryStore::new()))
    }

    /// The reference to [`SECRET`].
    pub(crate) fn secret(&self) -> String {
        self.secret_file("secret", SECRET)
    }

    pub(crate) fn secret_file(&self, file: &str, secret: &str) -> String {
        let path = self.folder.path().join(file);
        std::fs::write(&path, secret).expect("a file");
        format!("file:{}", path.display())
    }

    pub(crate) async fn endpoint(&self, name: &str, url: impl Into<String>) {
        self.endpoint_with(name, url, |_| {}).await;
    }

    pub(crate) async fn endpoint_with(&self, name: &str, url: impl Into<String>, change: impl FnOnce(&mut Endpoint)) {
        let mut endpoint = Endpoint::new(named(name), url);
        endpoint.secrets = vec![self.secret()];
        change(&mut endpoint);
        self.store.put_endpoint(endpoint).await.expect("the store answers");
    }

    pub(crate) async fn enqueue(&self, endpoint: &str, id: &str, body: impl Into<Bytes>) {
        self.enqueue_with(endpoint, id, body, |_| {}).await;
    }

    pub(crate) async fn enqueue_with(
        &self,
        endpoint: &str,
        id: &str,
        body: impl Into<Bytes>,
        change: impl FnOnce(&mut Message),
    ) {
        let mut message = Message::new(EventId::new(id).expect("an id"), named("order.paid"), body);
        change(&mut message);
        self.store.enqueue(vec![Enqueue::new(named(endpoint), message)]).await.expect("the store answers");
    }

    /// A dispatcher of it with short times, over plain HTTP to this machine.
    pub(crate) fn dispatcher(&self) -> DispatcherBuilder {
        quick(Dispatcher::builder(Arc::clone(&self.store), loopback()))
    }

    /// The same, which sends another way.
    pub(crate) fn dispatcher_over(&self, transport: impl Transport) -> DispatcherBuilder {
        quick(Dispatcher::builder(Arc::clone(&self.store), transport))
    }

    /// Notices for a function and for an endpoint of it.
    pub(crate) fn notices(&self, endpoint: &str, hook: impl Fn(&Notice) + Send + Sync + 'static) -> Told {
        let ops = OperatorEndpoint::new(Arc::clone(&self.store), named(endpoint));
        let (notices, telling) = Notices::builder().hook(hook).operator(ops).build();
        let stop = CancellationToken::new();
        let telling = tokio::spawn(telling.run(stop.clone().cancelled_owned()));
        Told { notices, stop, telling }
    }

    pub(crate) async fn entry(&self, endpoint: &str, id: &str) -> OutboxEntry {
        let key = MessageKey { endpoint: named(endpoint), id: EventId::new(id).expect("an id") };
        self.store.find_message(key).await.expect("the store answers").expect("a message")
    }

    pub(crate) async fn state(&self, endpoint: &str, id: &str) -> MessageState {
        self.entry(endpoint, id).await.state
    }

    /// Waits until nothing is pending any more.
    pub(crate) async fn until_done(&self) {
        until("everything has an end", async || self.store.next_due().await.expect("the store answers").is_none())
            .await;
    }

    pub(crate) async fn until_state(&self, endpoint: &str, id: &str, state: MessageState) {
        until(&format!("{id} is {state}"), async || self.state(endpoint, id).await == state).await;
    }

    pub(crate) async fn all(&self) -> Vec<OutboxEntry> {
        let mut filter = MessageFilter::default();
        filter.limit = 100_000;
        self.store.list_messages(filter).await.expect("the store answers")
    }
}

/// Notices that are told.
pub(crate) struct Told {
    pub(crate) notices: Notices,
    stop: CancellationToken,
    telling: tokio::task::JoinHandle<()>,
}

impl Told {
    /// Waits until all are told.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.telling.await.expect("it ends");
    }
}

/// A dispatcher that runs until it is stopped or dropped.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    pub(crate) tally: Tally,
}

impl Running {
    pub(crate) fn start(builder: DispatcherBuilder) -> Self {
        let dispatcher = builder.build().expect("a dispatcher");
        let (stop, tally) = (CancellationToken::new(), dispatcher.tally());
        let task = tokio::spawn(dispatcher.run(stop.clone().cancelled_owned()));
        Self { stop, task, tally }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.expect("it ends");
    }

    /// Ends it as a crash does: nothing is given back.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        assert!((&mut self.task).await.is_err_and(|ended| ended.is_cancelled()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn quick(builder: DispatcherBuilder) -> DispatcherBuilder {
    builder
        .poll(Duration::from_millis(50))
        .retry(RetryPolicy::new().with_backoff(Backoff::new(Duration::from_millis(20), Duration::from_millis(100))))
        .breaker(0, Backoff::default())
        .attempt_timeout(Duration::from_secs(5))
        .lease(Duration::from_secs(20))
}

pub(crate) fn loopback() -> HttpTransport {
    let policy = Policy::new().allow_http().with_exception("127.0.0.1/32".parse().expect("an exception"));
    // Fails where another test of this process was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    HttpTransport::builder(Guard::new(policy)).build().expect("a transport")
}

pub(crate) fn named(name: &str) -> Name {
    Name::new(name).expect("a name")
}

/// Runs a test over a store in memory, and again over one in a file.
pub(crate) async fn on_each_outbox(test: impl AsyncFn(Sender)) {
    test(Sender::in_memory()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("outbox.db")).await.expect("a store");
    test(Sender::new(Arc::new(store.clone()))).await;
    store.close().await.expect("it closes");
}
