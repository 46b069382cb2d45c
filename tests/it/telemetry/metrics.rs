//! After a mixed run the counters equal what the store says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::post;
use countersign::DedupKey;
use countersign::receive::{DedupLayer, Outcome, Processor};
use countersign::signature::Scheme;
use countersign::store::{
    InboxStore, ListFilter, MemoryStore, MessageFilter, MessageState, OnDead, ReceiptKey, ReceiptState,
};
use countersign::telemetry::INSTRUMENTS;
use http::{HeaderMap, StatusCode};

use super::recorder::Recorded;
use crate::dispatch::{Receiver, Running, Sender, named, on_each_outbox, status};
use crate::support::{SECRET, Server, on_each_store, standard, until, verify};

/// How many receipts are in this state, and how many runs were begun for them.
async fn receipts(store: &dyn InboxStore, state: ReceiptState) -> (f64, f64) {
    let listed =
        store.list(ListFilter { state: Some(state), ..ListFilter::default() }).await.expect("the store answers");
    let count = |count: usize| f64::from(u32::try_from(count).expect("small"));
    (count(listed.len()), listed.iter().map(|receipt| f64::from(receipt.attempts)).sum())
}

/// Every series is one of the table, and no label says what a sender wrote.
fn is_tame(recorded: &Recorded) {
    for series in recorded.names() {
        let (name, labels) = series.split_once('{').expect("labels");
        let instrument = INSTRUMENTS.iter().find(|instrument| instrument.name == name).expect("one of the table");
        let found: Vec<_> =
            labels.trim_end_matches('}').split(',').filter_map(|label| label.split('=').next()).collect();
        assert_eq!(found, instrument.labels, "{series}");
        for wild in ["evt_", "msg_", "order.", "http", SECRET] {
            assert!(!labels.contains(wild), "{series}");
        }
    }
}

#[tokio::test]
async fn after_a_mixed_run_the_receivers_counters_equal_what_the_inbox_says() {
    on_each_store(the_receivers_counters_equal_what_the_inbox_says).await;
}

pub(crate) async fn the_receivers_counters_equal_what_the_inbox_says(store: Arc<dyn InboxStore>) {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let answer = Arc::new(AtomicU16::new(204));
    let app = {
        let answer = Arc::clone(&answer);
        post(async move || match answer.load(Ordering::SeqCst) {
            410 => (StatusCode::GONE, Outcome::permanent("no such account")).into_response(),
            0 => panic!("out of luck"),
            code => StatusCode::from_u16(code).expect("a status").into_response(),
        })
    };
    let dedup = DedupLayer::builder(Arc::clone(&store)).max_attempts(2);
    let app = Router::new().route("/", app);
    let server = Server::with(app, verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
    for (code, id, body, expected) in [
        (204, "evt_1", "{}", 204),
        (204, "evt_1", "{}", 204),
        (204, "evt_1", "{ }", 409),
        (500, "evt_2", "{}", 500),
        (500, "evt_2", "{}", 500),
        (500, "evt_2", "{}", 500),
        (410, "evt_3", "{}", 410),
        (0, "evt_4", "{}", 500),
        (204, "evt_4", "{}", 204),
        (503, "evt_5", "{}", 503),
    ] {
        answer.store(code, Ordering::SeqCst);
        assert_eq!(server.post(standard(id, body.as_bytes()), body).await.status, expected, "{id} {code}");
    }
    assert_eq!(server.post(standard("evt_6", b"{}"), "forged").await.status, 401);
    assert_eq!(server.post(HeaderMap::new(), "{}").await.status, 401);
    assert_eq!(server.post(standard("evt_6", b"{}"), vec![b'x'; 3 << 20]).await.status, 413);

    let received = |outcome: &str| recorded.of(&format!("countersign_received_total{{source=test,outcome={outcome}}}"));
    for (outcome, expected) in [
        ("succeeded", 2.0),
        ("replayed", 2.0),
        ("other_body", 1.0),
        ("failed", 3.0),
        ("dead_letter", 2.0),
        ("refused", 2.0),
        ("bad_body", 1.0),
        ("store_unavailable", 0.0),
    ] {
        assert_eq!(received(outcome), expected, "{outcome}");
    }
    assert_eq!(recorded.sum("countersign_received_total", &[]), 13.0);
    assert_eq!(recorded.sum("countersign_duplicates_total", &["source=test"]), 3.0);
    let refused = |reason| recorded.sum("countersign_signatures_refused_total", &[reason]);
    assert_eq!((refused("reason=mismatch"), refused("reason=missing_header")), (1.0, 1.0));

    let runs = |outcome| recorded.sum("countersign_runs_total", &["consumer=default", "source=test", outcome]);
    let mut begun = 0.0;
    for (state, outcome) in
        [(ReceiptState::Succeeded, "outcome=succeeded"), (ReceiptState::DeadLetter, "outcome=dead_letter")]
    {
        let (there, attempts) = receipts(&*store, state).await;
        assert_eq!(runs(outcome), there, "{outcome}");
        begun += attempts;
    }
    begun += receipts(&*store, ReceiptState::Failed).await.1;
    assert_eq!(recorded.sum("countersign_runs_total", &[]), begun);
    assert_eq!(recorded.sum("countersign_handler_seconds", &[]), begun);
    assert_eq!(recorded.of("countersign_in_flight{consumer=default}"), 0.0);
    is_tame(&recorded);
}

#[tokio::test]
async fn what_is_accepted_now_and_run_later_is_counted_where_it_happens() {
    on_each_store(async |store| {
        let recorded = Recorded::default();
        let _recording = metrics::set_default_local_recorder(&recorded);
        let app = Router::new().route("/", post(async || StatusCode::NO_CONTENT));
        let dedup = DedupLayer::builder(Arc::clone(&store)).deferred();
        let server = Server::with(app.clone(), verify(Scheme::standard()), dedup, Arc::clone(&store)).await;
        for id in ["evt_1", "evt_2", "evt_1"] {
            assert_eq!(server.post(standard(id, b"{}"), "{}").await.status, 202);
        }
        let processor = Processor::builder(Arc::clone(&store), app).build().expect("a processor");
        let stop = tokio_util::sync::CancellationToken::new();
        let processing = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
        until("both have run", async || receipts(&*store, ReceiptState::Succeeded).await.0 == 2.0).await;
        until("its count", async || recorded.sum("countersign_runs_total", &["outcome=succeeded"]) == 2.0).await;
        stop.cancel();
        processing.await.expect("it ends");
        let received = |outcome| recorded.sum("countersign_received_total", &[outcome]);
        assert_eq!((received("outcome=accepted"), received("outcome=known")), (2.0, 1.0));
        assert_eq!(recorded.sum("countersign_duplicates_total", &[]), 1.0);
        is_tame(&recorded);
    })
    .await;
}

#[tokio::test]
async fn c154_after_a_mixed_run_the_senders_counters_equal_what_the_outbox_says() {
    on_each_outbox(the_senders_counters_equal_what_the_outbox_says).await;
}

pub(crate) async fn the_senders_counters_equal_what_the_outbox_says(sender: Sender) {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let good = Receiver::with_statuses(&[204]).await;
    let flaky = Receiver::with_statuses(&[503, 500, 204]).await;
    let broken = Receiver::with_statuses(&[500]).await;
    let picky = Receiver::with_statuses(&[400]).await;
    let gone = Receiver::answering(async |_| status(410)).await;
    for (name, url) in [("good", good.url()), ("flaky", flaky.url()), ("picky", picky.url()), ("gone", gone.url())] {
        sender.endpoint(name, url).await;
    }
    sender
        .endpoint_with("broken", broken.url(), |endpoint| {
            endpoint.settings.max_attempts = Some(3);
            endpoint.settings.on_dead = OnDead::Skip;
        })
        .await;
    // What the policy refuses: nothing is called there.
    sender.endpoint("inside", "http://10.0.0.1/hooks").await;
    for endpoint in ["good", "flaky", "broken", "picky", "gone", "inside"] {
        sender.enqueue(endpoint, "msg_1", "{}").await;
    }
    sender.enqueue("good", "msg_2", "{}").await;
    sender.enqueue("good", "msg_2", "{}").await;

    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    until("the endpoint is seen to be disabled", async || running.tally.now().disabled == 1).await;
    running.stop().await;

    let mut logged = 0;
    for endpoint in ["good", "flaky", "broken", "picky", "gone", "inside"] {
        let of_endpoint = format!("endpoint={endpoint}");
        let sum = |name: &str, more: &[&str]| {
            let labels: Vec<_> = more.iter().copied().chain([of_endpoint.as_str()]).collect();
            recorded.sum(name, &labels)
        };
        let entries: Vec<_> =
            sender.all().await.into_iter().filter(|entry| entry.endpoint == named(endpoint)).collect();
        let in_state = |state| {
            f64::from(u32::try_from(entries.iter().filter(|entry| entry.state == state).count()).expect("small"))
        };
        assert_eq!(
            sum("countersign_enqueued_total", &[]),
            f64::from(u32::try_from(entries.len()).expect("small")),
            "{endpoint}"
        );
        assert_eq!(
            sum("countersign_attempts_total", &["outcome=delivered"]),
            in_state(MessageState::Succeeded),
            "{endpoint}"
        );
        assert_eq!(sum("countersign_delivery_seconds", &[]), in_state(MessageState::Succeeded), "{endpoint}");
        assert_eq!(sum("countersign_dead_letters_total", &[]), in_state(MessageState::DeadLetter), "{endpoint}");
        assert_eq!(
            sum("countersign_attempts_total", &["outcome=dead"]),
            in_state(MessageState::DeadLetter),
            "{endpoint}"
        );
        let retried = sum("countersign_attempts_total", &["outcome=retried"]);
        assert_eq!(sum("countersign_retry_seconds", &[]), retried, "{endpoint}");
        let attempts: usize = {
            let mut attempts = 0;
            for entry in &entries {
                attempts += sender.entry(endpoint, entry.message.id.as_str()).await.attempt_log.len();
            }
            attempts
        };
        logged += attempts;
        assert_eq!(
            sum("countersign_attempts_total", &[]),
            f64::from(u32::try_from(attempts).expect("small")),
            "{endpoint}"
        );
        assert_eq!(sum("countersign_sending", &[]), 0.0, "{endpoint}");
    }
    let logged = f64::from(u32::try_from(logged).expect("small"));
    assert_eq!(recorded.sum("countersign_attempt_seconds", &[]), logged);
    assert_eq!(recorded.sum("countersign_refused_total", &["endpoint=inside"]), 1.0);
    assert_eq!(recorded.sum("countersign_endpoints_disabled_total", &["endpoint=gone"]), 1.0);
    assert_eq!(recorded.sum("countersign_leases_lost_total", &[]), 0.0);
    is_tame(&recorded);
}

#[tokio::test]
async fn c154_what_nobody_takes_shows_as_a_lag_and_is_over_when_it_is_taken() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let sender = Sender::in_memory();
    let gate = crate::support::Gate::default();
    let slow = {
        let gate = gate.clone();
        Receiver::answering(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                status(204)
            }
        })
        .await
    };
    sender.endpoint("slow", slow.url()).await;
    for id in ["msg_1", "msg_2"] {
        sender.enqueue("slow", id, "{}").await;
    }
    let behind = || recorded.of("countersign_outbox_oldest_due_seconds{endpoint=slow}");
    let running = Running::start(sender.dispatcher().endpoint_concurrency(1));
    // The store is looked at every few seconds.
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while behind() == 0.0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        gate.open();
        while behind() != 0.0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it is shown, and then it is over");
    running.stop().await;
}

/// A dispatcher counts what its claims gave up. Where it is gone when the answer comes, the store does.
#[tokio::test]
async fn what_a_claim_gave_up_for_a_caller_that_is_gone_is_counted_all_the_same() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let folder = tempfile::tempdir().expect("a folder");
    let store = countersign::store::SqliteStore::open(folder.path().join("outbox.db")).await.expect("a store");
    let sender = Sender::new(Arc::new(store.clone()));
    sender.endpoint_with("shop", "http://127.0.0.1:9/", |shop| shop.settings.max_attempts = Some(1)).await;
    let claim = || countersign::store::ClaimMessages::new(1, Duration::from_millis(1));
    let mut untold = 0.0;
    for points in 0..12 {
        let id = format!("msg_{points}");
        sender.enqueue("shop", &id, "{}").await;
        until("a sender that dies has it", async || {
            !sender.store.claim_messages(claim()).await.expect("the store answers").messages.is_empty()
        })
        .await;
        until("its lease is over", async || {
            sender.store.next_due().await.expect("the store answers").is_some_and(|due| due.is_zero())
        })
        .await;
        let mut dropped = sender.store.claim_messages(claim());
        let mut is_told = false;
        for _ in 0..points {
            if std::future::poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context))).await.is_ready() {
                is_told = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(dropped);
        // What was asked before this has ended, and been told, when this is answered.
        sender.store.check_outbox().await.expect("the store answers");
        if !is_told && sender.state("shop", &id).await == MessageState::DeadLetter {
            untold += 1.0;
        }
        until("it is given up", async || {
            sender.store.claim_messages(claim()).await.expect("the store answers");
            sender.state("shop", &id).await == MessageState::DeadLetter
        })
        .await;
    }
    assert!(untold > 0.0);
    assert_eq!(recorded.sum("countersign_dead_letters_total", &["endpoint=shop"]), untold);
    store.close().await.expect("it closes");
}

#[tokio::test]
async fn a_result_that_is_dropped_since_somebody_took_over_is_a_lease_lost() {
    let recorded = Recorded::default();
    let _recording = metrics::set_default_local_recorder(&recorded);
    let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
    let forgotten = {
        let store = Arc::clone(&store);
        post(move || {
            let store = Arc::clone(&store);
            async move {
                let key = DedupKey::parse("evt_1").expect("a key");
                let key = ReceiptKey { consumer: named("default"), source: named("test"), key };
                assert!(store.forget(key).await.expect("the store answers"));
                StatusCode::NO_CONTENT
            }
        })
    };
    let dedup = DedupLayer::builder(Arc::clone(&store));
    let server = Server::with(Router::new().route("/", forgotten), verify(Scheme::standard()), dedup, store).await;
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, 409);
    assert_eq!(recorded.sum("countersign_runs_total", &["outcome=lease_lost"]), 1.0);
    assert_eq!(recorded.sum("countersign_received_total", &["outcome=lease_lost"]), 1.0);
    assert_eq!(recorded.sum("countersign_duplicates_total", &[]), 0.0, "the handler ran for it");

    let sender = Sender::in_memory();
    let outbox = Arc::clone(&sender.store);
    let receiver = Receiver::answering(move |_| {
        let outbox = Arc::clone(&outbox);
        async move {
            // A dead letter that an operator takes back is nobody's any more.
            assert!(outbox.remove_endpoint(named("shop")).await.expect("the store answers"));
            assert_eq!(outbox.cancel(MessageFilter::default()).await.expect("the store answers").len(), 1);
            status(204)
        }
    })
    .await;
    sender.endpoint("shop", receiver.url()).await;
    sender.enqueue("shop", "msg_1", "{}").await;
    let running = Running::start(sender.dispatcher());
    until("the attempt is over", async || running.tally.now().unsettled == 1).await;
    running.stop().await;
    assert_eq!(recorded.sum("countersign_attempts_total", &["outcome=unsettled"]), 1.0);
    for walk in ["walk=inbox", "walk=outbox"] {
        assert_eq!(recorded.sum("countersign_leases_lost_total", &[walk]), 1.0, "{walk}");
    }
    is_tame(&recorded);
}
