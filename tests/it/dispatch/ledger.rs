//! Three dispatching processes that are killed and halted, a database that loses power, twenty endpoints of which few
//! behave: the books balance.
//!
//! `COUNTERSIGN_LEDGER` says how many messages: 300 by default.

use std::collections::{BTreeMap, HashMap};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, ReceiveLayer};
use countersign::store::{
    Endpoint, Enqueue, MemoryStore, Message, MessageFilter, MessageState, OnDead, OutboxEntry, OutboxStore,
    SqliteStore, StoreError,
};
use countersign::{EventId, Scheme};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::{later, named, status};
use crate::support::{SECRET, verify};

/// What each of the twenty does to a request, beside handing it to the receiver.
const BEHAVIOUR: [Behaviour; 20] = {
    use Behaviour::*;
    [
        Healthy,
        Healthy,
        Healthy,
        Healthy,
        Healthy,
        Healthy,
        Healthy,
        Slow,
        Slow,
        Dead,
        Refuses,
        Flaps,
        Flaps,
        Busy,
        Limited,
        Unavailable,
        Cuts,
        Cuts,
        Hangs,
        Flaps,
    ]
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// 409 with `Retry-After`, now and then.
    Busy,
    /// Takes the request, and cuts the connection instead of answering, now and then.
    Cuts,
    Dead,
    /// 500 half of the time.
    Flaps,
    /// Answers only after the sender has given up, at first.
    Hangs,
    Healthy,
    /// 429 with `Retry-After`, now and then.
    Limited,
    Refuses,
    Slow,
    /// 503 with `Retry-After`, now and then.
    Unavailable,
}

impl Behaviour {
    const fn delivers(self) -> bool {
        !matches!(self, Self::Dead | Self::Refuses)
    }
}

/// What the receiver's handler ran: endpoint and id, in the order of the runs.
type Book = Arc<Mutex<Vec<(usize, String)>>>;

#[tokio::test(flavor = "multi_thread")]
async fn c079_the_books_balance_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("outbox.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    // No server stands behind a file: what is killed in a transaction is its power cut.
    balances(&format!("sqlite:{}", path.display()), Arc::new(store), async || {}).await;
}

/// Runs it on a store that the program reaches by this URL, and whose server `power_cut` ends and begins anew.
pub(crate) async fn balances(url: &str, store: Arc<dyn OutboxStore>, power_cut: impl AsyncFn()) {
    let messages = std::env::var("COUNTERSIGN_LEDGER").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    let book = Book::default();
    let address = sink(Arc::clone(&book)).await;
    let cutting = cutting_proxy(address).await;
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).expect("a file");

    for (number, behaviour) in BEHAVIOUR.into_iter().enumerate() {
        let at = if behaviour == Behaviour::Cuts { cutting } else { address };
        let mut endpoint = Endpoint::new(named(&format!("e{number}")), format!("http://{at}/e/{number}"));
        endpoint.secrets = vec![format!("file:{}", secret.display())];
        if !behaviour.delivers() {
            endpoint.settings.max_attempts = Some(3);
            endpoint.settings.on_dead = OnDead::Skip;
        }
        store.put_endpoint(endpoint).await.expect("the store answers");
    }

    let mut processes: Vec<_> = (0..3).map(|_| Dispatching::start(url)).collect();
    let enqueueing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { enqueue(&*store, messages).await })
    };
    let (began, limit) = (Instant::now(), Duration::from_secs(120 + messages as u64 / 10));
    let mut round = 0;
    let mut seen = Vec::new();
    let entries = loop {
        assert!(began.elapsed() < limit, "{:?} after {:?}", census(&seen), began.elapsed());
        sleep(Duration::from_millis(700)).await;
        round += 1;
        match round % 6 {
            // Killed, and begun anew at once.
            1 | 3 => {
                let at = round % processes.len();
                processes[at].kill();
                processes[at] = Dispatching::start(url);
            }
            // Halted for longer than a lease, so that others take over what it holds; then it goes on where it was.
            2 if round < 12 => {
                let halted = processes[0].signal("STOP");
                assert!(halted, "it runs");
                sleep(Duration::from_millis(7_500)).await;
                processes[0].signal("CONT");
            }
            4 if round < 12 => power_cut().await,
            _ => {}
        }
        // A moment ago its server may have been another one.
        let Ok(entries) = all(&*store).await else { continue };
        let is_over = entries.len() == messages && entries.iter().all(|entry| has_end(entry.state));
        // One that was begun a moment ago does not listen for signals yet.
        if is_over && enqueueing.is_finished() && round >= 9 && !matches!(round % 6, 1 | 3) {
            break entries;
        }
        seen = entries;
    };
    enqueueing.await.expect("all is enqueued");
    for process in processes {
        process.stop();
    }
    let book = book.lock().expect("no test panics in here").clone();
    audit(&*store, &entries, &book).await;
}

async fn enqueue(store: &dyn OutboxStore, messages: usize) {
    let all: Vec<_> = (0..messages)
        .map(|number| {
            let (to, key) = (number % BEHAVIOUR.len(), number / BEHAVIOUR.len() % 3);
            let id = EventId::new(&format!("m{number:06}")).expect("an id");
            let mut message = Message::new(id, named("ledger.entry"), format!("{{\"number\":{number}}}"));
            if to % 2 == 1 {
                message.ordering_key = Some(named(&format!("k{key}")));
            }
            Enqueue::new(named(&format!("e{to}")), message)
        })
        .collect();
    for some in all.chunks(20) {
        // Twice, as a producer does that has lost the answer. One that is halted in a transaction holds the file's lock.
        for is_first in [true, false] {
            let enqueued = loop {
                match store.enqueue(some.to_vec()).await {
                    Ok(enqueued) => break enqueued,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            };
            assert!(is_first || enqueued.iter().all(|one| !one.created));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Every message has its end, for a reason; the sink has run each once, and keyed ones in order.
async fn audit(store: &dyn OutboxStore, entries: &[OutboxEntry], book: &[(usize, String)]) {
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, id) in book {
        *runs.entry(id).or_default() += 1;
    }
    for entry in entries {
        let number: usize = entry.endpoint.as_str()[1..].parse().expect("a number");
        let id = entry.message.id.as_str();
        let ran = runs.get(id).copied().unwrap_or(0);
        let said = || format!("{id} to {:?}: {entry:?}", BEHAVIOUR[number]);
        if BEHAVIOUR[number].delivers() {
            assert_eq!((entry.state, ran), (MessageState::Succeeded, 1), "{}", said());
        } else {
            assert_eq!((entry.state, ran), (MessageState::DeadLetter, 0), "{}", said());
            assert!(entry.reason.as_ref().is_some_and(|reason| !reason.is_empty()), "{}", said());
        }
        // No attempt is on record twice, none after the one that ended it, and a success only where it says so.
        let key = countersign::store::MessageKey { endpoint: entry.endpoint.clone(), id: entry.message.id.clone() };
        let log = store.find_message(key).await.expect("the store answers").expect("it is there").attempt_log;
        let delivered = |index: usize| log[index].report.status.is_some_and(|status| status.is_success());
        for index in 0..log.len() {
            let is_last = index + 1 == log.len();
            assert_eq!(delivered(index), is_last && entry.state == MessageState::Succeeded, "{}: {log:?}", said());
        }
    }
    for (number, behaviour) in BEHAVIOUR.into_iter().enumerate().filter(|(number, _)| number % 2 == 1) {
        for key in 0..3 {
            let of_key = |id: &&str| id[1..].parse::<usize>().is_ok_and(|n| n / BEHAVIOUR.len() % 3 == key);
            let order: Vec<_> =
                book.iter().filter(|(to, _)| *to == number).map(|(_, id)| &**id).filter(of_key).collect();
            assert!(order.is_sorted(), "{behaviour:?} {number} k{key}: {order:?}");
        }
    }
}

/// Our own receiver, behind the habits of each endpoint.
async fn sink(book: Book) -> std::net::SocketAddr {
    let handler = async move |Path(number): Path<usize>, delivery: Delivery| {
        let id = delivery.event_id().map_or("", |id| id.as_str()).to_owned();
        book.lock().expect("no test panics in here").push((number, id));
        StatusCode::NO_CONTENT
    };
    let layer = verify(Scheme::standard()).build().expect("a layer");
    let dedup = DedupLayer::new(MemoryStore::new());
    let receive = ReceiveLayer::new(layer, dedup).expect("a receiver");
    let met: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let habits = from_fn(move |Path(number): Path<usize>, request: Request, next: Next| {
        let met = Arc::clone(&met);
        async move {
            let id = request.headers().get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
            let before = {
                let mut met = met.lock().expect("no test panics in here");
                let count = met.entry(id.clone()).or_default();
                *count += 1;
                *count - 1
            };
            let now_and_then = before == 0 && id.bytes().map(usize::from).sum::<usize>() % 3 == 0;
            behave(BEHAVIOUR[number], now_and_then, before, request, next).await
        }
    });
    let app = Router::new().route("/e/{number}", post(handler).layer(receive).layer(habits));
    crate::support::serve(app).await
}

async fn behave(behaviour: Behaviour, now_and_then: bool, before: usize, request: Request, next: Next) -> Response {
    match behaviour {
        Behaviour::Healthy | Behaviour::Cuts => next.run(request).await,
        Behaviour::Slow => {
            sleep(Duration::from_millis(150)).await;
            next.run(request).await
        }
        Behaviour::Dead => status(500),
        Behaviour::Refuses => status(400),
        Behaviour::Flaps if before.is_multiple_of(2) => status(500),
        Behaviour::Busy if now_and_then => later(409, 1),
        Behaviour::Limited if now_and_then => later(429, 1),
        Behaviour::Unavailable if now_and_then => later(503, 1),
        Behaviour::Hangs if now_and_then => {
            let answer = next.run(request).await;
            sleep(Duration::from_secs(4)).await;
            answer
        }
        _ => next.run(request).await,
    }
}

/// Passes connections on, and cuts every third one when the answer comes.
async fn cutting_proxy(to: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut count = 0_usize;
        while let Ok((mut client, _)) = listener.accept().await {
            count += 1;
            let cuts = count.is_multiple_of(3);
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(to).await else { return };
                if !cuts {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
                let (mut from_client, _to_client) = client.split();
                let (from_server, mut to_server) = server.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    // The answer is there: its sender has done the work, and nobody hears of it.
                    _ = from_server.readable() => {}
                }
                let _ = to_server.shutdown().await;
            });
        }
    });
    address
}

/// A process that runs `countersign dispatch`.
struct Dispatching(Child);

impl Dispatching {
    fn start(url: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.args(["dispatch", "--store", url, "--allow-http", "--allow", "127.0.0.1", "--no-migrate"]);
        command.args(["--timeout", "1s", "--lease", "6s", "--retry-first", "1s", "--retry-longest", "2s"]);
        command.args(["--max-attempts", "50", "--breaker-pause", "1s", "--grace", "5s"]);
        command.env("RUST_LOG", "error").stdout(Stdio::null()).stdin(Stdio::null());
        Self(command.spawn().expect("to start the program"))
    }

    fn signal(&self, name: &str) -> bool {
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        status.expect("to run kill").success()
    }

    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }

    /// Ends it as an operator does.
    fn stop(mut self) {
        assert!(self.signal("TERM"));
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Dispatching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn all(store: &dyn OutboxStore) -> Result<Vec<OutboxEntry>, StoreError> {
    let mut filter = MessageFilter::default();
    filter.limit = 100_000;
    store.list_messages(filter).await
}

fn has_end(state: MessageState) -> bool {
    !matches!(state, MessageState::Pending | MessageState::Delivering)
}

fn census(entries: &[OutboxEntry]) -> BTreeMap<(String, &'static str), usize> {
    let mut census = BTreeMap::new();
    for entry in entries {
        *census.entry((entry.endpoint.to_string(), entry.state.as_str())).or_default() += 1;
    }
    census
}
