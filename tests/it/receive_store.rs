//! Stores that fail, hang, or give a running event to somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use countersign::clock::ManualClock;
use countersign::receive::{DedupLayer, Outcome, Processor, Reservation, VerifyLayer};
use countersign::signature::Scheme;
use countersign::store::{
    Accept, Accepted, Claim, Claimed, Cursor, Failure, InboxStore, Lease, ListFilter, MemoryStore, OtherBody, Page,
    Purged, Receipt, ReceiptKey, ReceiptState, Reserve, Reserved, Retention, Settled, SqliteStore, StoreError,
    StoreFuture, StoredResult, Unclear,
};
use countersign::{Clock, DedupKey, Digest, Name, SystemClock};

use super::support::{
    Answer, Calls, Gate, SECRET, Server, on_each_store, request, send, standard, until, verifier, verify,
};

#[tokio::test]
async fn a_store_that_cannot_be_asked_stops_the_handler_and_sends_the_sender_away() {
    let (store, calls) = (Faulty::new(), Calls::default());
    let server = over(counting(&calls), store.clone()).await;
    store.refuse_reservations(2);
    for _ in 0..2 {
        let answer = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"));
        assert!(answer.retry_after().is_some());
        assert!(!answer.text().contains("out of order"), "the peer is told nothing of the inside");
    }
    assert_eq!((calls.so_far(), server.receipt("evt_1").await), (0, None));
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
}

#[tokio::test]
async fn in_deferred_mode_nothing_is_promised_that_is_not_stored() {
    let store = Faulty::new();
    let dedup = DedupLayer::builder(Arc::clone(&store)).deferred();
    let app = counting(&Calls::default());
    let server = Server::with(app, verify(Scheme::standard()), dedup, store.clone()).await;
    store.refuse_reservations(2);
    for _ in 0..2 {
        let answer = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"));
        assert!(answer.retry_after().is_some());
    }
    assert_eq!(server.receipt("evt_1").await, None);
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_processor_outlives_a_store_that_fails_and_its_result_is_offered_again() {
    let (store, calls) = (Faulty::new(), Calls::default());
    let dedup = DedupLayer::builder(Arc::clone(&store)).deferred();
    let app = counting(&calls);
    let server = Server::with(app.clone(), verify(Scheme::standard()), dedup, store.clone()).await;
    let processor = Processor::builder(Arc::clone(&store), app).poll(Duration::from_millis(10)).build();
    store.refuse_claims(5);
    store.refuse_ends(2, false);
    let processing = tokio::spawn(processor.expect("a processor").run(std::future::pending()));
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::ACCEPTED);
    until("it is done", async || {
        server.receipt("evt_1").await.is_some_and(|found| found.state == ReceiptState::Succeeded)
    })
    .await;
    assert_eq!((calls.so_far(), store.claims.load(Ordering::SeqCst)), (1, 0));
    processing.abort();
}

#[tokio::test]
async fn a_store_that_is_closed_stops_the_handler_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("inbox.db")).await.expect("a store");
    let calls = Calls::default();
    let server = over(counting(&calls), Arc::new(store.clone())).await;
    store.close().await.expect("it closes");
    let answer = server.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, calls.so_far()), (StatusCode::SERVICE_UNAVAILABLE, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_counts_as_one_that_cannot_be_asked() {
    let (store, calls) = (Faulty::new(), Calls::default());
    let server = over(counting(&calls), store.clone()).await;
    store.hang.store(true, Ordering::SeqCst);
    let answer = server.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"));
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn a_result_that_is_not_taken_at_once_is_offered_again() {
    let (store, calls) = (Faulty::new(), Calls::default());
    let server = over(counting(&calls), store.clone()).await;
    store.refuse_ends(3, false);
    let answer = server.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "run 1"));
    assert!(server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn no_end_is_told_that_could_not_be_stored() {
    let store = Faulty::new();
    let app = Router::new()
        .route("/done", post(async || "done"))
        .route("/done-404", post(async || (StatusCode::NOT_FOUND, Outcome::Done)))
        .route("/permanent", post(async || Outcome::permanent("never")))
        .route("/failed", post(async || StatusCode::BAD_GATEWAY));
    let server = over(app, store.clone()).await;
    for (path, status) in [
        ("/done", StatusCode::SERVICE_UNAVAILABLE),
        ("/done-404", StatusCode::SERVICE_UNAVAILABLE),
        ("/permanent", StatusCode::SERVICE_UNAVAILABLE),
        // It asks for another delivery anyway.
        ("/failed", StatusCode::BAD_GATEWAY),
    ] {
        store.refuse_ends(1, true);
        let answer = server.post_to(path, standard(path, b"{}"), "{}").await;
        assert_eq!(answer.status, status, "{path}");
        if status == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.problem(), "result-not-stored", "{path}");
            assert!(answer.retry_after().is_some(), "{path}");
        }
        let receipt = server.receipt(path).await.expect("a receipt");
        assert_eq!(receipt.state, ReceiptState::Processing, "{path}: its lease runs out, and it is run again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_offered_for_a_few_seconds_and_then_the_sender_is_sent_away() {
    let (store, calls) = (Faulty::new(), Calls::default());
    let server = over(counting(&calls), store.clone()).await;
    store.refuse_ends(usize::MAX, false);
    let began = tokio::time::Instant::now();
    let answer = server.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "result-not-stored"));
    assert!((5..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_its_handler_runs() {
    let memory = slow_handler(Arc::new(MemoryStore::new()));
    let (store, _folder) = super::support::sqlite().await;
    tokio::join!(memory, slow_handler(store));
}

async fn slow_handler(store: Arc<dyn InboxStore>) {
    let (calls, gate) = (Calls::default(), Gate::default());
    let (counted, held) = (calls.clone(), gate.clone());
    let app = Router::new().route(
        "/",
        post(async move |run: Reservation| {
            counted.count();
            held.pass().await;
            run.is_held().to_string()
        }),
    );
    let dedup = DedupLayer::builder(Arc::clone(&store)).lease(LEASE).wait(Duration::ZERO);
    let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
    let first = deliver(&server);
    until("the event runs", async || calls.so_far() == 1).await;
    let until_first = server.receipt("evt_1").await.and_then(|receipt| receipt.lease_until).expect("a lease");
    // Past its first lease, and the next one.
    until("two leases have passed", async || SystemClock.now() > until_first.saturating_add(LEASE)).await;
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::CONFLICT);
    gate.open();
    assert_eq!(first.await.expect("an answer").text(), "true");
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_cannot_be_renewed_knows_when_it_has_run_out() {
    for hang in [false, true] {
        let store = Faulty::new();
        store.no_renewals.store(true, Ordering::SeqCst);
        store.renewals_hang.store(hang, Ordering::SeqCst);
        let app = Router::new().route(
            "/",
            post(async |run: Reservation| {
                let begun = tokio::time::Instant::now();
                run.lost().await;
                format!("{} {}", run.is_held(), begun.elapsed().as_secs())
            }),
        );
        let dedup = DedupLayer::builder(store.clone()).lease(Duration::from_secs(20));
        let server = Server::with(app, verify(Scheme::standard()), dedup, store.clone()).await;
        // Within the lease, or as soon as a look at the clock after it allows.
        let told = server.post(standard("evt_1", b"{}"), "{}").await.text();
        let seconds = told.strip_prefix("false ").and_then(|seconds| seconds.parse::<u64>().ok()).expect("its words");
        assert!((20..=25).contains(&seconds), "{told}");
    }
}

#[tokio::test]
async fn a_run_that_has_ended_holds_nothing_any_more() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let app = Router::new().route(
        "/",
        post(async move |run: Reservation| {
            sender.send(run).await.expect("the test listens");
        }),
    );
    let server = over(app, Faulty::new()).await;
    server.post(standard("evt_1", b"{}"), "{}").await;
    let run = receiver.recv().await.expect("it ran");
    run.lost().await;
    assert!(!run.is_held());
}

#[tokio::test]
async fn runs_of_one_event_share_an_idempotency_key_and_no_other_event_has_it() {
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let mut keys = std::collections::BTreeSet::new();
    for (source, consumer) in [("a", "x"), ("b", "x"), ("a", "y"), ("ax", "default")] {
        let app = Router::new().route(
            "/",
            post(async |run: Reservation| {
                let status = if run.attempt() == 1 { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
                (status, run.idempotency_key())
            }),
        );
        let verify = VerifyLayer::builder(source, verifier(Scheme::standard(), SECRET));
        let dedup = DedupLayer::builder(Arc::clone(&store)).consumer(consumer);
        let server = Server::with(app, verify, dedup, Arc::clone(&store)).await;
        let first = server.post(standard("evt_1", b"{}"), "{}").await;
        let second = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((first.status, second.status), (StatusCode::BAD_GATEWAY, StatusCode::OK));
        assert_eq!((first.text(), 64), (second.text(), first.text().len()));
        keys.insert(first.text());
    }
    assert_eq!(keys.len(), 4);
}

#[tokio::test]
async fn a_run_that_was_taken_over_is_told_and_its_result_is_dropped() {
    for (in_flight, status) in
        [(None, StatusCode::CONFLICT), (Some(StatusCode::SERVICE_UNAVAILABLE), StatusCode::SERVICE_UNAVAILABLE)]
    {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new().route(
            "/",
            post(async move |run: Reservation| {
                counted.count();
                run.lost().await;
                assert!(!run.is_held());
                "of no use"
            }),
        );
        let mut dedup = DedupLayer::builder(Arc::clone(&store)).lease(LEASE);
        if let Some(status) = in_flight {
            dedup = dedup.in_flight_status(status);
        }
        let server = Server::with(app, verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
        let first = deliver(&server);
        until("the event runs", async || calls.so_far() == 1).await;
        let second = take_over(&*store, &clock).await;

        let answer = first.await.expect("an answer");
        assert_eq!((answer.status, answer.problem().as_str()), (status, "still-processing"));
        assert_eq!(answer.retry_after(), Some(1));
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Processing, 2));
        assert!(matches!(store.complete(second, nothing()).await, Ok(Settled::Done)));
        assert!(server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
        assert_eq!(calls.so_far(), 1);
    }
}

#[tokio::test]
async fn c058_a_run_that_ends_late_neither_hides_nor_undoes_what_came_after() {
    // How the late first run ends, how the second one does, and what stands in the end.
    for (late, second, state) in [
        (StatusCode::OK, StatusCode::BAD_GATEWAY, ReceiptState::Failed),
        (StatusCode::BAD_GATEWAY, StatusCode::OK, ReceiptState::Succeeded),
    ] {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let store = Faulty::with_clock(Arc::clone(&clock));
        // As if the first run's process stood still: its lease is not renewed.
        store.no_renewals.store(true, Ordering::SeqCst);
        let (calls, gate) = (Calls::default(), Gate::default());
        let (counted, held) = (calls.clone(), gate.clone());
        let app = Router::new().route(
            "/",
            post(async move || match counted.count() {
                1 => {
                    held.pass().await;
                    late
                }
                2 => second,
                _ => StatusCode::OK,
            }),
        );
        let server = over(app, store).await;
        let first = deliver(&server);
        until("the event runs", async || calls.so_far() == 1).await;
        clock.advance(Duration::from_secs(31));
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, second);
        gate.open();
        let first = first.await.expect("an answer");
        assert_eq!(first.status, if late.is_success() { StatusCode::CONFLICT } else { late });

        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((receipt.state, receipt.attempts), (state, 2));
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
        assert_eq!(calls.so_far(), if state == ReceiptState::Failed { 3 } else { 2 });
    }
}

#[tokio::test]
async fn an_event_whose_runs_all_died_is_given_up_without_another_run() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
    let calls = Calls::default();
    let dedup = DedupLayer::builder(Arc::clone(&store)).max_attempts(2);
    let server = Server::with(counting(&calls), verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
    // Two holders that never settle, as if their machines had died.
    for _ in 0..2 {
        take_over(&*store, &clock).await;
    }
    clock.advance(Duration::from_secs(601));
    for _ in 0..2 {
        let answer = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "given-up"));
    }
    let receipt = server.receipt("evt_1").await.expect("a receipt");
    assert_eq!((receipt.state, receipt.failures.len(), calls.so_far()), (ReceiptState::DeadLetter, 2, 0));
}

#[tokio::test]
async fn c071_a_purge_leaves_alone_what_runs() {
    on_each_store(async |store| {
        let (calls, gate) = (Calls::default(), Gate::default());
        let (counted, held) = (calls.clone(), gate.clone());
        let app = Router::new().route(
            "/",
            post(async move || {
                counted.count();
                held.pass().await;
            }),
        );
        let server = over(app, store).await;
        let first = deliver(&server);
        until("the event runs", async || calls.so_far() == 1).await;
        let everything = Retention { results: Duration::ZERO, keys: Duration::ZERO };
        assert_eq!(server.store.purge(everything, 1_000).await.expect("the store answers"), Purged::default());
        gate.open();
        assert_eq!(first.await.expect("an answer").status, StatusCode::OK);
        assert!(server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
        assert_eq!(server.store.purge(everything, 1_000).await.expect("the store answers").keys, 1);
        assert_eq!(server.receipt("evt_1").await, None);
    })
    .await;
}

/// The shortest that there is.
const LEASE: Duration = Duration::from_secs(1);

fn counting(calls: &Calls) -> Router {
    let calls = calls.clone();
    Router::new().route("/", post(async move || format!("run {}", calls.count()).into_response()))
}

async fn over(app: Router, store: Arc<dyn InboxStore>) -> Server {
    Server::with(app, verify(Scheme::standard()), DedupLayer::builder(Arc::clone(&store)), store).await
}

/// One delivery of `evt_1`, from a task of its own.
fn deliver(server: &Server) -> tokio::task::JoinHandle<Answer> {
    let client = server.http1.clone();
    let request = request(&format!("http://{}/", server.address), standard("evt_1", b"{}"), "{}");
    tokio::spawn(async move { send(&client, request).await })
}

/// Lets the lease run out and takes the event, as another machine would. The lease may be renewed in between: then again.
async fn take_over(store: &dyn InboxStore, clock: &ManualClock) -> Lease {
    let name = |text| Name::new(text).expect("a name");
    let key =
        ReceiptKey { consumer: name("default"), source: name("test"), key: DedupKey::parse("evt_1").expect("a key") };
    loop {
        clock.advance(2 * LEASE);
        let request = Reserve {
            key: key.clone(),
            event_id: None,
            correlation_id: None,
            body: Digest::of(b"{}"),
            lease: Duration::from_secs(600),
            max_attempts: 20,
            other_body: OtherBody::Refuse,
            unclear: Unclear::RunAgain,
        };
        if let Reserved::Acquired(lease) = store.reserve(request).await.expect("the store answers") {
            return lease;
        }
    }
}

fn nothing() -> StoredResult {
    use countersign::store::ResultBody;
    StoredResult { status: StatusCode::NO_CONTENT, headers: http::HeaderMap::new(), body: ResultBody::Omitted }
}

/// A store in memory that fails when it is told to.
#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    reservations: AtomicUsize,
    claims: AtomicUsize,
    ends: AtomicUsize,
    for_good: AtomicBool,
    hang: AtomicBool,
    no_renewals: AtomicBool,
    renewals_hang: AtomicBool,
}

impl Faulty {
    fn new() -> Arc<Self> {
        Self::with_clock(SystemClock)
    }

    fn with_clock(clock: impl Clock) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::with_clock(clock),
            reservations: AtomicUsize::new(0),
            claims: AtomicUsize::new(0),
            ends: AtomicUsize::new(0),
            for_good: AtomicBool::new(false),
            hang: AtomicBool::new(false),
            no_renewals: AtomicBool::new(false),
            renewals_hang: AtomicBool::new(false),
        })
    }

    fn refuse_reservations(&self, times: usize) {
        self.reservations.store(times, Ordering::SeqCst);
    }

    fn refuse_claims(&self, times: usize) {
        self.claims.store(times, Ordering::SeqCst);
    }

    /// Fails this many times to store an end; `for_good`, in a way that is not worth another try.
    fn refuse_ends(&self, times: usize, for_good: bool) {
        self.ends.store(times, Ordering::SeqCst);
        self.for_good.store(for_good, Ordering::SeqCst);
    }

    fn end<'a>(&'a self, call: StoreFuture<'a, Settled>) -> StoreFuture<'a, Settled> {
        match takes_one(&self.ends) {
            false => call,
            true if self.for_good.load(Ordering::SeqCst) => failing(StoreError::Corrupt("a row".into())),
            true => failing(out_of_order()),
        }
    }
}

fn takes_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn out_of_order() -> StoreError {
    StoreError::Unavailable { reason: "out of order".into(), source: None }
}

fn failing<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl InboxStore for Faulty {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        if self.hang.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        if takes_one(&self.reservations) { failing(out_of_order()) } else { self.inner.reserve(request) }
    }

    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
        if takes_one(&self.reservations) { failing(out_of_order()) } else { self.inner.accept(request) }
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        if takes_one(&self.claims) { failing(out_of_order()) } else { self.inner.claim(claim) }
    }

    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
        self.inner.release(lease)
    }

    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
        self.end(self.inner.complete(lease, result))
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
        self.end(self.inner.fail(lease, failure))
    }

    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
        if self.renewals_hang.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        if self.no_renewals.load(Ordering::SeqCst) { failing(out_of_order()) } else { self.inner.renew(lease, span) }
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        self.inner.find(key)
    }

    fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>> {
        self.inner.page(filter, after)
    }

    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        self.inner.retry(key)
    }

    fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        self.inner.conclude(key)
    }

    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
        self.inner.forget(key)
    }

    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
        self.inner.purge(retention, limit)
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        self.inner.check()
    }
}
