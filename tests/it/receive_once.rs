//! Each event runs once, and fails as often as it must: what becomes of first deliveries, repeats and failures.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use countersign::receive::{DedupLayer, DedupLayerBuilder, Outcome, ReceiveLayer, Reservation, VerifiedBody};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, MemoryStore, ReceiptState, SqliteStore};
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::task::JoinSet;
use tower::{ServiceBuilder, ServiceExt};

use super::support::{Calls, Gate, Server, client, on_each_store, request, send, standard, until, verify};

#[tokio::test]
async fn c061_a_repeat_of_a_done_event_gets_the_stored_answer_over_either_protocol() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = scripted(&calls, |run| (StatusCode::CREATED, format!("run {run}")).into_response());
        let server = over(app, store).await;
        let first = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((first.status, first.text().as_str(), first.is_replay()), (StatusCode::CREATED, "run 1", false));
        for client in [&server.http1, &server.http2] {
            let repeat = request(&format!("http://{}/", server.address), standard("evt_1", b"{}"), "{}");
            let repeat = send(client, repeat).await;
            assert_eq!((repeat.status, repeat.text().as_str()), (StatusCode::CREATED, "run 1"));
            assert!(repeat.is_replay());
        }
        assert_eq!(calls.so_far(), 1);
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Succeeded, 1));
    })
    .await;
}

#[tokio::test]
async fn c052_c149_a_run_that_panics_or_answers_500_is_run_again_and_ends_as_done() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = scripted(&calls, |run| match run {
            // Like `panic!`, but nothing is printed.
            1 => std::panic::resume_unwind(Box::new("out of luck")),
            2 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            _ => StatusCode::NO_CONTENT.into_response(),
        });
        let server = over(app, store).await;
        let panicked = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!(
            (panicked.status, panicked.problem().as_str()),
            (StatusCode::INTERNAL_SERVER_ERROR, "handler-failed")
        );
        assert!(!panicked.text().contains("luck"), "the peer is told nothing of the inside");
        let failed = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!(failed.state, ReceiptState::Failed);
        assert_eq!(failed.error.as_deref(), Some("panic: out of luck"));
        assert!(failed.request.is_some(), "the request of a failed event is kept");

        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::NO_CONTENT);
        assert!(server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
        assert_eq!(calls.so_far(), 3);
        let done = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((done.state, done.attempts, done.failures.len()), (ReceiptState::Succeeded, 3, 2));
        assert_eq!((done.error, done.request), (None, None), "what a failed event kept goes when it succeeds");
    })
    .await;
}

#[tokio::test]
async fn c052_a_service_that_returns_an_error_has_failed() {
    let store = MemoryStore::new();
    let calls = Calls::default();
    let counted = calls.clone();
    let receive = ReceiveLayer::new(verify(Scheme::standard()).build().expect("a layer"), DedupLayer::new(store));
    let service =
        ServiceBuilder::new().layer(receive.expect("a receiver")).service_fn(move |_: Request<VerifiedBody>| {
            let run = counted.count();
            async move {
                if run == 1 {
                    Err(std::io::Error::other("the disk is full"))
                } else {
                    Ok(http::Response::new(Full::<Bytes>::default()))
                }
            }
        });
    let deliver = async || {
        let request = request("/", standard("evt_1", b"{}"), "{}");
        let response = service.clone().oneshot(request).await.expect("errors are answered, not passed on");
        (response.status(), response.into_body().collect().await.expect("a body").to_bytes())
    };
    let (status, body) = deliver().await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!body.windows(4).any(|part| part == b"disk"), "the peer is told nothing of the inside");
    assert_eq!(deliver().await.0, StatusCode::OK);
    assert_eq!(deliver().await.0, StatusCode::OK);
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test]
async fn a_handler_that_hangs_is_dropped_at_its_time_out_and_run_again() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let counted = calls.clone();
        let app = Router::new().route(
            "/",
            post(async move || {
                if counted.count() == 1 {
                    std::future::pending::<()>().await;
                }
                StatusCode::OK
            }),
        );
        let dedup = DedupLayer::builder(Arc::clone(&store)).handler_timeout(Duration::from_millis(50));
        let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
        let hung = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((hung.status, hung.problem().as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "handler-failed"));
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
        assert_eq!(calls.so_far(), 2);
    })
    .await;
}

#[tokio::test]
async fn c059_no_status_but_a_2xx_is_remembered_as_the_result() {
    on_each_store(async |store| {
        let calls = Calls::default();
        const SCRIPT: [u16; 8] = [503, 400, 409, 422, 404, 301, 429, 200];
        let app = scripted(&calls, |run| {
            StatusCode::from_u16(SCRIPT[(run - 1) % SCRIPT.len()]).expect("a status").into_response()
        });
        let server = over(app, store).await;
        for status in SCRIPT {
            let answer = server.post(standard("evt_1", b"{}"), "{}").await;
            assert_eq!((answer.status.as_u16(), answer.is_replay()), (status, false));
        }
        assert!(server.post(standard("evt_1", b"{}"), "{}").await.is_replay());
        assert_eq!(calls.so_far(), SCRIPT.len());
    })
    .await;
}

#[tokio::test]
async fn c059_an_outcome_overrules_the_status() {
    on_each_store(async |store| {
        let app = Router::new()
            .route("/done", post(async || (StatusCode::NOT_FOUND, Outcome::Done, "gone, and that is fine")))
            .route("/permanent", post(async || (StatusCode::OK, Outcome::permanent("no such account"), "sorry")))
            .route("/alone", post(async || Outcome::permanent("no such plan")))
            .route("/transient", post(async || (StatusCode::OK, Outcome::transient("a lock is held"))));
        let server = over(app, store).await;
        // Path, first answer, whether the second one is a replay, state, reason.
        let cases = [
            ("/done", StatusCode::NOT_FOUND, true, ReceiptState::Succeeded, None),
            ("/permanent", StatusCode::OK, true, ReceiptState::DeadLetter, Some("no such account")),
            ("/alone", StatusCode::UNPROCESSABLE_ENTITY, true, ReceiptState::DeadLetter, Some("no such plan")),
            ("/transient", StatusCode::SERVICE_UNAVAILABLE, false, ReceiptState::Failed, None),
        ];
        for (path, status, replayed, state, reason) in cases {
            let first = server.post_to(path, standard(path, b"{}"), "{}").await;
            let second = server.post_to(path, standard(path, b"{}"), "{}").await;
            assert_eq!((first.status, first.is_replay()), (status, false), "{path}");
            assert_eq!((second.status, second.is_replay()), (status, replayed), "{path}");
            assert_eq!(first.body, second.body, "{path}");
            let receipt = server.receipt(path).await.expect("a receipt");
            assert_eq!((receipt.state, receipt.reason.as_deref()), (state, reason), "{path}");
        }
        let transient = server.receipt("/transient").await.expect("a receipt");
        assert_eq!((transient.error.as_deref(), transient.attempts), (Some("a lock is held"), 2));
    })
    .await;
}

#[tokio::test]
async fn a_2xx_that_is_called_transient_is_never_told_nor_repeated() {
    on_each_store(async |store| {
        let app = Router::new().route("/", post(async || (StatusCode::OK, Outcome::transient("a lock is held"))));
        let dedup = DedupLayer::builder(Arc::clone(&store)).max_attempts(2);
        let server = with(app, dedup, store).await;
        for replayed in [false, false, true] {
            let answer = server.post(standard("evt_1", b"{}"), "{}").await;
            assert_eq!((answer.status, answer.is_replay()), (StatusCode::SERVICE_UNAVAILABLE, replayed));
        }
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!(receipt.state, ReceiptState::DeadLetter);
        let stored = receipt.result.map(|result| result.status);
        assert_eq!(stored, Some(StatusCode::SERVICE_UNAVAILABLE));
    })
    .await;
}

#[tokio::test]
async fn the_last_answer_stands_once_the_attempts_are_used_up() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = scripted(&calls, |run| match run {
            1..=3 => (StatusCode::BAD_GATEWAY, format!("run {run}")).into_response(),
            _ => StatusCode::OK.into_response(),
        });
        let dedup = DedupLayer::builder(Arc::clone(&store)).max_attempts(3);
        let server = Server::with(app, verify(Scheme::standard()), dedup, store).await;
        for (text, replayed) in [("run 1", false), ("run 2", false), ("run 3", false), ("run 3", true), ("run 3", true)]
        {
            let answer = server.post(standard("evt_1", b"{}"), "{}").await;
            assert_eq!((answer.status, answer.text().as_str()), (StatusCode::BAD_GATEWAY, text));
            assert_eq!(answer.is_replay(), replayed, "{text}");
        }
        let dead = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((dead.state, dead.reason.as_deref()), (ReceiptState::DeadLetter, Some("3 attempts were used up")));

        // An operator gives it another chance, and the sender's next delivery takes it.
        assert_eq!(server.store.retry(dead.key).await.expect("a state"), Some(ReceiptState::Failed));
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
        assert_eq!(calls.so_far(), 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c055_fifty_parallel_duplicates_run_once() {
    on_each_store(async |store| {
        // They all wait for the result, or none does.
        for (id, wait) in [("patient", Duration::from_secs(60)), ("hasty", Duration::ZERO)] {
            let (calls, gate) = (Calls::default(), Gate::default());
            let dedup = DedupLayer::builder(Arc::clone(&store)).wait(wait);
            let server = with(gated(&calls, &gate), dedup, Arc::clone(&store)).await;
            let mut senders = JoinSet::new();
            for sender in 0..50 {
                let client = client(sender % 2 == 0);
                let request = request(&format!("http://{}/", server.address), standard(id, b"{}"), "{}");
                senders.spawn(async move { send(&client, request).await });
            }
            let mut answers = Vec::new();
            if wait.is_zero() {
                while answers.len() < 49 {
                    answers.push(senders.join_next().await.expect("a sender").expect("an answer"));
                }
            } else {
                until("all have come", async || server.layer.tasks().len() == 50).await;
            }
            gate.open();
            answers.extend(senders.join_all().await);

            let (mut ran, mut replayed, mut sent_away) = (0, 0, 0);
            for answer in answers {
                match answer.status {
                    StatusCode::OK if answer.is_replay() => replayed += 1,
                    StatusCode::OK => ran += 1,
                    StatusCode::CONFLICT if answer.retry_after().is_some() => sent_away += 1,
                    other => panic!("{other} is not in the table"),
                }
            }
            let expected = if wait.is_zero() { (1, 0, 49) } else { (1, 49, 0) };
            assert_eq!(((ran, replayed, sent_away), calls.so_far()), (expected, 1));
            assert!(server.post(standard(id, b"{}"), "{}").await.is_replay());
        }
    })
    .await;
}

#[tokio::test]
async fn c056_who_is_sent_away_comes_back_to_the_result() {
    on_each_store(async |store| {
        let (calls, gate) = (Calls::default(), Gate::default());
        let server = over(gated(&calls, &gate), store).await;
        let first = tokio::spawn(deliver(&server, "evt_1"));
        until("the event runs", async || calls.so_far() == 1).await;

        let began = std::time::Instant::now();
        let early = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((early.status, early.problem().as_str()), (StatusCode::CONFLICT, "still-processing"));
        assert!(early.retry_after().is_some(), "{early:?}");
        assert!(began.elapsed() >= Duration::from_millis(250), "it waited for the result first");

        gate.open();
        assert_eq!(first.await.expect("an answer").status, StatusCode::OK);
        let late = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((late.status, late.is_replay(), calls.so_far()), (StatusCode::OK, true, 1));
    })
    .await;
}

#[tokio::test]
async fn c056_a_duplicate_that_waits_gets_the_result_as_soon_as_it_is_there() {
    let (calls, gate) = (Calls::default(), Gate::default());
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let dedup = DedupLayer::builder(Arc::clone(&store)).wait(Duration::MAX);
    let server = Server::with(gated(&calls, &gate), verify(Scheme::standard()), dedup, store).await;
    let first = tokio::spawn(deliver(&server, "evt_1"));
    until("the event runs", async || calls.so_far() == 1).await;
    let second = tokio::spawn(deliver(&server, "evt_1"));
    until("the duplicate waits", async || server.layer.tasks().len() == 2).await;
    gate.open();
    assert!(!first.await.expect("an answer").is_replay());
    assert!(second.await.expect("an answer").is_replay());
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn the_status_while_another_delivery_runs_can_be_chosen() {
    let (calls, gate) = (Calls::default(), Gate::default());
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let dedup =
        DedupLayer::builder(Arc::clone(&store)).wait(Duration::ZERO).in_flight_status(StatusCode::SERVICE_UNAVAILABLE);
    let server = Server::with(gated(&calls, &gate), verify(Scheme::standard()), dedup, store).await;
    let first = tokio::spawn(deliver(&server, "evt_1"));
    until("the event runs", async || calls.so_far() == 1).await;
    let early = server.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((early.status, early.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "still-processing"));
    assert!(early.retry_after().is_some());
    gate.open();
    assert_eq!(first.await.expect("an answer").status, StatusCode::OK);
}

#[test]
fn c057_a_lease_that_a_dead_process_left_runs_out_and_the_event_runs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("inbox.db");

    // The first process: it begins to run the event, and is gone with everything that it had in memory.
    let first = tokio::runtime::Runtime::new().expect("a runtime");
    first.block_on(async {
        let store: Arc<dyn InboxStore> = Arc::new(SqliteStore::open(&path).await.expect("a store"));
        let calls = Calls::default();
        let server = short_lease(gated(&calls, &Gate::default()), store).await;
        tokio::spawn(deliver(&server, "evt_1"));
        until("the event runs", async || calls.so_far() == 1).await;
    });
    first.shutdown_background();

    let second = tokio::runtime::Runtime::new().expect("a runtime");
    second.block_on(async {
        let store: Arc<dyn InboxStore> = Arc::new(SqliteStore::open(&path).await.expect("a store"));
        let app = Router::new().route("/", post(async |run: Reservation| format!("run {}", run.attempt())));
        let server = short_lease(app, store).await;
        let early = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((early.status, early.retry_after()), (StatusCode::CONFLICT, Some(1)));
        until("the lease has run out", async || {
            server.post(standard("evt_1", b"{}"), "{}").await.status == StatusCode::OK
        })
        .await;
        let repeat = server.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((repeat.text().as_str(), repeat.is_replay()), ("run 2", true));
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert_eq!((receipt.state, receipt.attempts, receipt.failures.len()), (ReceiptState::Succeeded, 2, 1));
    });
}

#[tokio::test]
async fn c070_a_forgotten_event_runs_once_more() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = over(scripted(&calls, |run| format!("run {run}").into_response()), store).await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.text(), "run 1");
        let receipt = server.receipt("evt_1").await.expect("a receipt");
        assert!(server.store.forget(receipt.key).await.expect("the store answers"));
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.text(), "run 2");
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.text(), "run 2");
        assert_eq!(calls.so_far(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_refused_leaves_nothing_in_the_store() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = over(scripted(&calls, |_| StatusCode::OK.into_response()), store).await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{ }").await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            server.post(standard("evt_1", b"{}"), vec![b' '; 3 << 20]).await.status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
        assert_eq!((server.receipt("evt_1").await, calls.so_far()), (None, 0));
    })
    .await;
}

/// Answers the n-th run as the script says.
fn scripted(calls: &Calls, script: impl Fn(usize) -> Response + Clone + Send + Sync + 'static) -> Router {
    let calls = calls.clone();
    Router::new().route("/", post(async move || script(calls.count())))
}

/// Answers 200 once the gate is open.
fn gated(calls: &Calls, gate: &Gate) -> Router {
    let (calls, gate) = (calls.clone(), gate.clone());
    Router::new().route(
        "/",
        post(async move || {
            calls.count();
            gate.pass().await;
        }),
    )
}

async fn over(app: Router, store: Arc<dyn InboxStore>) -> Server {
    with(app, DedupLayer::builder(Arc::clone(&store)), store).await
}

async fn short_lease(app: Router, store: Arc<dyn InboxStore>) -> Server {
    let dedup = DedupLayer::builder(Arc::clone(&store)).lease(Duration::from_secs(1)).wait(Duration::ZERO);
    with(app, dedup, store).await
}

async fn with(app: Router, dedup: DedupLayerBuilder, store: Arc<dyn InboxStore>) -> Server {
    Server::with(app, verify(Scheme::standard()), dedup, store).await
}

/// One delivery, to be sent from a task of its own.
fn deliver(server: &Server, id: &str) -> impl Future<Output = super::support::Answer> + Send + use<> {
    let client = server.http1.clone();
    let request = request(&format!("http://{}/", server.address), standard(id, b"{}"), "{}");
    async move { send(&client, request).await }
}
