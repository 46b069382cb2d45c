//! Deferred mode: what was accepted is run later, by processors with retries of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use countersign::receive::{
    Backoff, DedupLayer, DedupLayerBuilder, Delivery, OrderBy, Outcome, Processor, ProcessorBuilder, Reservation,
};
use countersign::signature::{IdOrigin, Scheme};
use countersign::store::{InboxStore, ListFilter, Receipt, ReceiptKey, ReceiptState, SqliteStore};
use countersign::{ConfigError, DedupKey, Name};
use http::HeaderMap;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::support::{
    BODIES, Calls, Counts, Gate, Server, github, on_each_store, sqlite, standard, stripe, until, verify,
};

#[tokio::test]
async fn an_event_is_answered_202_before_it_is_run_and_with_its_result_afterwards() {
    on_each_store(async |store| {
        let gate = Gate::default();
        let app = {
            let gate = gate.clone();
            Router::new().route(
                "/",
                post(async move || {
                    gate.pass().await;
                    (StatusCode::CREATED, [("x-own", "1")], "booked")
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let processing = server.process(&app, |builder| builder);
        for _ in 0..2 {
            let answer = server.post("evt_1", "{}").await;
            assert_eq!((answer.status, answer.body.len(), answer.is_replay()), (StatusCode::ACCEPTED, 0, false));
        }
        gate.open();
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        let repeat = server.post("evt_1", "{}").await;
        assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::CREATED, "booked", true));
        assert_eq!(repeat.headers["x-own"], "1");
        processing.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c055_of_50_deliveries_at_once_each_gets_a_202_and_one_is_run() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = counting(&calls);
        let server = Arc::new(deferred(&app, &store).await);
        let mut senders = JoinSet::new();
        for _ in 0..50 {
            let server = Arc::clone(&server);
            senders.spawn(async move { server.post("evt_1", "{}").await.status });
        }
        assert!(senders.join_all().await.into_iter().all(|status| status == StatusCode::ACCEPTED));
        let processors = [server.process(&app, |builder| builder), server.process(&app, |builder| builder)];
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        for processing in processors {
            processing.stop().await;
        }
        assert_eq!(calls.so_far(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_handler_sees_the_same_delivery_in_both_modes_byte_for_byte() {
    type Seen = Arc<Mutex<Vec<(String, HeaderMap, bytes::Bytes, Vec<String>)>>>;
    let seen = Seen::default();
    let app = {
        let seen = seen.clone();
        let handler = async move |delivery: Delivery, run: Reservation, request: axum::extract::Request| {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            assert_eq!(&body, delivery.body());
            let facts = vec![
                delivery.source().to_string(),
                delivery.scheme_name().to_owned(),
                format!("{:?} {:?}", delivery.event_id(), delivery.id_origin()),
                format!("{:?}", delivery.timestamp()),
                delivery.body_digest().to_string(),
                format!("{} {}", run.key(), run.attempt()),
            ];
            seen.lock().expect("no panic").push((
                format!("{} {}", parts.method, parts.uri),
                parts.headers,
                body,
                facts,
            ));
        };
        Router::new().fallback(handler)
    };
    for (scheme, sign) in [
        (Scheme::standard(), (|body| standard("evt_1", body)) as fn(&[u8]) -> HeaderMap),
        (Scheme::stripe(), stripe),
        (Scheme::github(), |body| github(Some("d-1"), body)),
    ] {
        for body in BODIES {
            let mut headers = sign(body);
            headers.insert("content-type", "application/x-odd".parse().expect("a value"));
            headers.insert("x-own-thing", "kept".parse().expect("a value"));
            headers.insert("authorization", "Bearer secret".parse().expect("a value"));
            let mut both = Vec::new();
            for is_deferred in [false, true] {
                let (store, _folder) = sqlite().await;
                let dedup = DedupLayer::builder(Arc::clone(&store));
                let dedup = if is_deferred { dedup.deferred() } else { dedup };
                let server = Deferred(Server::with(app.clone(), verify(scheme.clone()), dedup, store).await);
                let answer = server.0.post_to("/a/b%20c?d=%2F", headers.clone(), body).await;
                if is_deferred {
                    assert_eq!(answer.status, StatusCode::ACCEPTED);
                    let processing = server.process(&app, |builder| builder);
                    until("it is run", async || !seen.lock().expect("no panic").is_empty()).await;
                    processing.stop().await;
                }
                both.push(seen.lock().expect("no panic").pop().expect("it was run"));
                assert!(seen.lock().expect("no panic").is_empty());
            }
            let [inline, kept] = both.try_into().expect("two");
            assert_eq!((&inline.0, &inline.2, &inline.3), (&kept.0, &kept.2, &kept.3));
            assert_eq!(kept.0, "POST /a/b%20c?d=%2F");
            for (name, value) in &kept.1 {
                assert_eq!(inline.1.get(name), Some(value));
            }
            for name in ["content-type", "content-length", "x-own-thing"] {
                assert!(kept.1.contains_key(name), "{name}");
            }
            for name in ["authorization", "webhook-signature", "stripe-signature", "x-hub-signature-256"] {
                assert!(!kept.1.contains_key(name), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_delivery_from_the_store_says_that_the_check_was_elsewhere() {
    let (store, _folder) = sqlite().await;
    let checked = Arc::new(Mutex::new(None));
    let app = {
        let checked = Arc::clone(&checked);
        Router::new().route(
            "/",
            post(async move |delivery: Delivery| {
                *checked.lock().expect("no panic") = Some((delivery.verified().is_some(), delivery.id_origin()));
            }),
        )
    };
    let server = deferred(&app, &store).await;
    server.post("evt_1", "{}").await;
    let processing = server.process(&app, |builder| builder);
    server.until_state("evt_1", ReceiptState::Succeeded).await;
    processing.stop().await;
    assert_eq!(*checked.lock().expect("no panic"), Some((false, IdOrigin::SignedHeader)));
}

#[tokio::test]
async fn c086_two_processors_keep_to_the_wait_that_stands_in_the_row() {
    on_each_store(async |store| {
        let runs: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let app = {
            let runs = Arc::clone(&runs);
            Router::new().route(
                "/",
                post(async move |run: Reservation| {
                    runs.lock().expect("no panic").push(Instant::now());
                    if run.attempt() < 4 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let first = Duration::from_millis(100);
        let quick = |builder: Builder| builder.backoff(Backoff::new(first, 2 * first)).poll(Duration::from_millis(5));
        let processors = [server.process(&app, quick), server.process(&app, quick)];
        server.post("evt_1", "{}").await;
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        for processing in processors {
            processing.stop().await;
        }
        let runs = runs.lock().expect("no panic").clone();
        assert_eq!(runs.len(), 4);
        for (pair, least) in runs.windows(2).zip([first, 2 * first, 2 * first]) {
            assert!(pair[1] - pair[0] >= least, "{:?}", pair[1] - pair[0]);
        }
        let receipt = server.receipt("evt_1").await;
        assert_eq!(receipt.failures.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn c077_a_handler_that_takes_several_leases_is_run_once() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = {
            let calls = calls.clone();
            Router::new().route(
                "/",
                post(async move |run: Reservation| {
                    calls.count();
                    tokio::time::sleep(Duration::from_millis(3_500)).await;
                    assert!(run.is_held());
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let short = |builder: Builder| builder.lease(Duration::from_secs(1)).poll(Duration::from_millis(20));
        let processors = [server.process(&app, short), server.process(&app, short)];
        server.post("evt_1", "{}").await;
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        for processing in processors {
            processing.stop().await;
        }
        assert_eq!(calls.so_far(), 1);
    })
    .await;
}

#[tokio::test]
async fn c083_an_event_that_can_never_be_handled_ends_as_a_dead_letter_and_holds_nobody_up() {
    on_each_store(async |store| {
        let handler = async |delivery: Delivery| -> Response {
            match delivery.body().as_ref() {
                // Like `panic!`, but nothing is printed.
                b"panics" => std::panic::resume_unwind(Box::new("out of luck")),
                b"hangs" => std::future::pending().await,
                b"fails" => (StatusCode::BAD_GATEWAY, "down").into_response(),
                b"refuses" => (StatusCode::NOT_FOUND, Outcome::permanent("no such order")).into_response(),
                b"hesitates" => (StatusCode::OK, Outcome::transient("not yet")).into_response(),
                _ => StatusCode::OK.into_response(),
            }
        };
        let app = Router::new().route("/", post(handler));
        let server = deferred(&app, &store).await;
        let processing = server.process(&app, |builder| {
            let soon = Backoff::new(Duration::from_millis(1), Duration::from_millis(10));
            builder.backoff(soon).max_attempts(3).handler_timeout(Duration::from_millis(50)).concurrency(2)
        });
        let poison = ["panics", "hangs", "fails", "refuses", "hesitates"];
        for body in poison {
            assert_eq!(server.post(body, body).await.status, StatusCode::ACCEPTED);
        }
        assert_eq!(server.post("evt_1", "good").await.status, StatusCode::ACCEPTED);
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        for (id, attempts, status) in
            [("panics", 3, 500), ("hangs", 3, 500), ("fails", 3, 502), ("refuses", 1, 404), ("hesitates", 3, 503)]
        {
            server.until_state(id, ReceiptState::DeadLetter).await;
            let receipt = server.receipt(id).await;
            assert_eq!((receipt.attempts, receipt.due), (attempts, None), "{id}");
            assert!(receipt.reason.is_some() && receipt.request.is_some(), "{id}");
            let repeat = server.post(id, id).await;
            assert_eq!((repeat.status.as_u16(), repeat.is_replay()), (status, true), "{id}");
        }
        processing.stop().await;
    })
    .await;
}

#[tokio::test]
async fn c083_a_row_that_somebody_broke_by_hand_is_a_dead_letter_and_the_others_are_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("inbox.db");
    let store: Arc<dyn InboxStore> = Arc::new(SqliteStore::open(&path).await.expect("a store"));
    let calls = Calls::default();
    let app = counting(&calls);
    let server = deferred(&app, &store).await;
    let broken = ["headers", "method", "target", "proof", "id", "proofs_origin"];
    for id in broken.into_iter().chain(["good_1", "good_2"]) {
        assert_eq!(server.post(id, "{}").await.status, StatusCode::ACCEPTED);
    }
    let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display())).await.expect("a connection");
    for change in [
        "UPDATE countersign_inbox SET request_headers = x'0100ff' WHERE key = 'headers'",
        "UPDATE countersign_inbox SET request_method = 'GE T' WHERE key = 'method'",
        "UPDATE countersign_inbox SET request_target = 'no target at all' WHERE key = 'target'",
        "UPDATE countersign_inbox SET request_proof = '{' WHERE key = 'proof'",
        "UPDATE countersign_inbox SET request_proof = replace(request_proof, 'signed', 'forged') WHERE key = 'proofs_origin'",
        "UPDATE countersign_inbox SET event_id = 'a' || char(10) WHERE key = 'id'",
    ] {
        assert_eq!(sqlx::query(change).execute(&pool).await.expect("a change").rows_affected(), 1, "{change}");
    }
    // One slot: what cannot be run must not stand in the way.
    let processing = server.process(&app, |builder| builder.concurrency(1));
    for id in ["good_1", "good_2"] {
        server.until_state(id, ReceiptState::Succeeded).await;
    }
    let dead = async || {
        let sql = "SELECT count(*) FROM countersign_inbox WHERE state = 'dead_letter' AND reason <> '' AND due IS NULL";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await.expect("a count")
    };
    until("the others are dead letters", async || dead().await == 6).await;
    processing.stop().await;
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_with_one_order_run_one_by_one_whoever_runs_them_and_others_beside_them() {
    on_each_store(async |store| {
        const KEYS: usize = 4;
        const EVENTS: usize = 12;
        let ran: Arc<Mutex<HashMap<String, Vec<usize>>>> = Arc::default();
        let running = Counts::default();
        let app = {
            let (ran, running) = (Arc::clone(&ran), running.clone());
            Router::new().route(
                "/",
                post(async move |delivery: Delivery, run: Reservation| {
                    let body: serde_json::Value = delivery.json().expect("JSON");
                    let (order, number) = (body["order"]["id"].to_string(), body["number"].as_u64().expect("a number"));
                    let begun = running.count(&order);
                    tokio::task::yield_now().await;
                    assert_eq!(running.of(&order), begun, "one at a time");
                    if number % 5 == 0 && run.attempt() == 1 {
                        return StatusCode::INTERNAL_SERVER_ERROR;
                    }
                    let number = usize::try_from(number).expect("small");
                    ran.lock().expect("no panic").entry(order).or_default().push(number);
                    StatusCode::OK
                }),
            )
        };
        let dedup = DedupLayer::builder(Arc::clone(&store)).order_by(OrderBy::BodyField("order.id".into()));
        let server = deferred_with(&app, dedup, &store).await;
        for number in 0..EVENTS {
            for key in 0..KEYS {
                let id = format!("evt_{key}_{number}");
                let body = format!(r#"{{"order":{{"id":{key}}},"number":{number}}}"#);
                assert_eq!(server.post(&id, body).await.status, StatusCode::ACCEPTED);
            }
        }
        let soon = |builder: Builder| {
            let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(5));
            builder.backoff(backoff).concurrency(8).poll(Duration::from_millis(10))
        };
        let processors: Vec<_> = (0..3).map(|_| server.process(&app, soon)).collect();
        until("all are done", async || {
            let done = ListFilter { state: Some(ReceiptState::Succeeded), limit: 1_000, ..ListFilter::default() };
            store.list(done).await.expect("the store answers").len() == KEYS * EVENTS
        })
        .await;
        for processing in processors {
            processing.stop().await;
        }
        let ran = ran.lock().expect("no panic");
        assert_eq!(ran.len(), KEYS);
        for numbers in ran.values() {
            assert_eq!(*numbers, (0..EVENTS).collect::<Vec<_>>());
        }
    })
    .await;
}

#[tokio::test]
async fn c076_what_does_not_end_in_the_grace_is_given_back_and_run_by_another_processor_at_once() {
    on_each_store(async |store| {
        let gate = Gate::default();
        let attempts: Arc<Mutex<Vec<u32>>> = Arc::default();
        let app = {
            let (gate, attempts) = (gate.clone(), Arc::clone(&attempts));
            Router::new().route(
                "/",
                post(async move |run: Reservation| {
                    attempts.lock().expect("no panic").push(run.attempt());
                    gate.pass().await;
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let impatient = |builder: Builder| builder.grace(Duration::from_millis(50)).lease(Duration::from_secs(600));
        let processing = server.process(&app, impatient);
        server.post("evt_1", "{}").await;
        until("it runs", async || attempts.lock().expect("no panic").len() == 1).await;
        processing.stop().await;
        let back = server.receipt("evt_1").await;
        assert_eq!((back.state, back.attempts, back.due), (ReceiptState::Received, 0, Some(back.updated)));

        gate.open();
        let processing = server.process(&app, impatient);
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        processing.stop().await;
        assert_eq!(*attempts.lock().expect("no panic"), [1, 1]);
    })
    .await;
}

#[tokio::test]
async fn c075_what_a_dead_processor_left_is_run_after_its_lease_without_another_delivery() {
    on_each_store(async |store| {
        let gate = Gate::default();
        let calls = Calls::default();
        let app = {
            let (gate, calls) = (gate.clone(), calls.clone());
            Router::new().route(
                "/",
                post(async move || {
                    calls.count();
                    gate.pass().await;
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let short = |builder: Builder| builder.lease(Duration::from_secs(1)).poll(Duration::from_millis(20));
        for number in 0..5 {
            server.post(&format!("evt_{number}"), "{}").await;
        }
        let dies = server.process(&app, short);
        until("all run", async || calls.so_far() == 5).await;
        dies.task.abort();
        assert!(dies.task.await.is_err_and(|ended| ended.is_cancelled()));
        gate.open();
        let processing = server.process(&app, short);
        for number in 0..5 {
            server.until_state(&format!("evt_{number}"), ReceiptState::Succeeded).await;
        }
        processing.stop().await;
        assert_eq!(server.receipt("evt_0").await.attempts, 2);
    })
    .await;
}

#[tokio::test]
async fn c070_a_dead_letter_that_an_operator_retries_is_run_without_its_sender() {
    on_each_store(async |store| {
        let mended = Gate::default();
        let app = {
            let mended = mended.clone();
            Router::new().route(
                "/",
                post(async move || {
                    let soon = tokio::time::timeout(Duration::from_millis(1), mended.pass());
                    if soon.await.is_ok() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
                }),
            )
        };
        let server = deferred(&app, &store).await;
        let processing = server.process(&app, |builder| builder.max_attempts(1).poll(Duration::from_millis(20)));
        server.post("evt_1", "{}").await;
        server.until_state("evt_1", ReceiptState::DeadLetter).await;
        mended.open();
        store.retry(key("evt_1")).await.expect("the store answers");
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        processing.stop().await;
    })
    .await;
}

#[tokio::test]
async fn c064_another_body_under_a_known_id_is_refused_before_and_after_the_run() {
    on_each_store(async |store| {
        let app = counting(&Calls::default());
        let server = deferred(&app, &store).await;
        assert_eq!(server.post("evt_1", "one").await.status, StatusCode::ACCEPTED);
        assert_eq!(server.post("evt_1", "two").await.problem(), "other-body");
        let processing = server.process(&app, |builder| builder);
        server.until_state("evt_1", ReceiptState::Succeeded).await;
        assert_eq!(server.post("evt_1", "two").await.problem(), "other-body");
        processing.stop().await;
        assert_eq!(server.receipt("evt_1").await.other_bodies, 2);
    })
    .await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_when_they_are_built() {
    let (store, _folder) = sqlite().await;
    let app = counting(&Calls::default());
    let fault = |set: fn(Builder) -> Builder| set(Processor::builder(Arc::clone(&store), app.clone())).build().err();
    assert_eq!(fault(|builder| builder.concurrency(0)), Some(ConfigError::NoConcurrency));
    assert_eq!(fault(|builder| builder.max_attempts(0)), Some(ConfigError::NoAttempts));
    for shortened in [
        (|builder| builder.lease(Duration::from_millis(999))) as fn(Builder) -> Builder,
        |builder| builder.poll(Duration::ZERO),
        |builder| builder.handler_timeout(Duration::ZERO),
    ] {
        assert!(matches!(fault(shortened), Some(ConfigError::TooShort { .. })));
    }
    assert!(matches!(fault(|builder| builder.consumer("")), Some(ConfigError::Name { what: "consumer", .. })));
    let never = DedupLayer::builder(store).deferred().keep_request(countersign::receive::KeepRequest::Never).build();
    assert!(matches!(never, Err(ConfigError::NothingKept)));
}

type Builder = ProcessorBuilder<Router>;

/// A receiver in deferred mode.
struct Deferred(Server);

async fn deferred(app: &Router, store: &Arc<dyn InboxStore>) -> Deferred {
    deferred_with(app, DedupLayer::builder(Arc::clone(store)), store).await
}

async fn deferred_with(app: &Router, dedup: DedupLayerBuilder, store: &Arc<dyn InboxStore>) -> Deferred {
    Deferred(Server::with(app.clone(), verify(Scheme::standard()), dedup.deferred(), Arc::clone(store)).await)
}

impl Deferred {
    async fn post(&self, id: &str, body: impl Into<bytes::Bytes>) -> super::support::Answer {
        let body = body.into();
        self.0.post(standard(id, &body), body).await
    }

    async fn receipt(&self, id: &str) -> Receipt {
        self.0.receipt(id).await.expect("it is there")
    }

    async fn until_state(&self, id: &str, state: ReceiptState) {
        until(&format!("{id} is {state}"), async || self.0.receipt(id).await.is_some_and(|found| found.state == state))
            .await;
    }

    fn process(&self, app: &Router, set: impl FnOnce(Builder) -> Builder) -> Processing {
        let builder = Processor::builder(Arc::clone(&self.0.store), app.clone()).arrivals(self.0.layer.arrivals());
        let stop = CancellationToken::new();
        let processor = set(builder).build().expect("a processor");
        Processing { task: tokio::spawn(processor.run(stop.clone().cancelled_owned())), stop }
    }
}

struct Processing {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Processing {
    async fn stop(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), self.task).await;
        ended.expect("it ends").expect("no panic");
    }
}

fn counting(calls: &Calls) -> Router {
    let calls = calls.clone();
    Router::new().route(
        "/",
        post(async move || {
            calls.count();
        }),
    )
}

fn key(id: &str) -> ReceiptKey {
    let name = |text| Name::new(text).expect("a name");
    ReceiptKey { consumer: name("default"), source: name("test"), key: DedupKey::parse(id).expect("a key") }
}
