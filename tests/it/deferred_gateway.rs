//! `countersign receive --mode deferred`, the real program.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use countersign::store::{InboxStore, ListFilter, Receipt, ReceiptState, SqliteStore};
use http::StatusCode;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::gateway::{Application, Gateway, started};
use super::support::{receipt, standard, until};

const DEFERRED: [&str; 2] = ["--mode", "deferred"];

#[tokio::test]
async fn an_event_is_accepted_and_sent_on_until_the_application_takes_it() {
    let (gateway, application, folder) = started(&DEFERRED).await;
    application.answers(StatusCode::BAD_GATEWAY, &[], "down");
    let accepted = gateway.post_to("/a?b=c", standard("evt_1", b"{}"), "{}").await;
    assert_eq!((accepted.status, accepted.body.len()), (StatusCode::ACCEPTED, 0));
    until("it failed", async || gateway.state("evt_1").await == Some(ReceiptState::Failed)).await;
    application.answers(StatusCode::CREATED, &[], "booked");
    until("it is done", async || gateway.state("evt_1").await == Some(ReceiptState::Succeeded)).await;
    let repeat = gateway.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::CREATED, "booked", true));

    let (parts, body) = application.last();
    assert_eq!((parts.uri.to_string().as_str(), body.as_ref()), ("/a?b=c", &b"{}"[..]));
    for (name, value) in [("countersign-event-id", "evt_1"), ("countersign-key", "evt_1"), ("countersign-attempt", "2")]
    {
        assert_eq!(parts.headers[name], value);
    }
    drop(folder);
}

#[tokio::test]
async fn c053_after_sigterm_what_runs_has_its_grace_and_the_rest_is_given_back_at_once() {
    let more = [&DEFERRED[..], &["--grace", "1", "--lease", "600", "--concurrency", "5"]].concat();
    let (mut gateway, application, folder) = started(&more).await;
    application.delays(Duration::from_secs(60));
    for number in 0..8 {
        let id = format!("evt_{number}");
        assert_eq!(gateway.post(standard(&id, b"{}"), "{}").await.status, StatusCode::ACCEPTED);
    }
    until("five run", async || application.runs() == 5).await;
    let asked = Instant::now();
    gateway.signal("-TERM");
    assert!(gateway.end().await.success());
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    let receipts = all(&folder).await;
    assert_eq!(receipts.len(), 8);
    for receipt in &receipts {
        assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Received, 0), "{}", receipt.key.key);
        assert!(receipt.due.is_some());
    }

    application.delays(Duration::ZERO);
    let again = Gateway::start(&application.start().await, &folder.path().join("inbox.db"), &more).await;
    until("a new process does all of it at once", async || done(&folder).await == 8).await;
    drop(again);
}

/// Ten times: senders at work, SIGKILL at a random moment, the same store again. No sender comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c075_kill_9_at_random_moments_loses_nothing_that_was_accepted() {
    const SENDERS: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("inbox.db");
    let application = Application::default();
    application.delays(Duration::from_millis(5));
    let upstream = application.start().await;
    let accepted: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    for round in 0..10_u64 {
        let gateway = Arc::new(Gateway::start(&upstream, &store, &DEFERRED).await);
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let (gateway, accepted) = (Arc::clone(&gateway), Arc::clone(&accepted));
            senders.spawn(async move {
                for number in 0.. {
                    let id = format!("evt_{round}_{sender}_{number}");
                    let Some(answer) = gateway.try_post("/", standard(&id, id.as_bytes()), id.clone()).await else {
                        return;
                    };
                    assert_eq!(answer.status, StatusCode::ACCEPTED, "{id}");
                    accepted.lock().expect("unpoisoned").insert(id);
                }
            });
        }
        // Any moment will do; these are spread over a fifth of a second.
        tokio::time::sleep(Duration::from_millis(40 + round * 37 % 200)).await;
        gateway.signal("-KILL");
        while let Some(ended) = senders.join_next().await {
            ended.expect("a sender saw only answers from the table");
        }
    }
    let accepted = accepted.lock().expect("unpoisoned").clone();
    assert!(accepted.len() > 50, "{} accepted", accepted.len());

    let gateway = Gateway::start(&upstream, &store, &DEFERRED).await;
    let inbox = SqliteStore::open(&store).await.expect("the store opens");
    for id in &accepted {
        until("an accepted event ends well", async || {
            receipt(&inbox, "standard", "standard", id)
                .await
                .is_some_and(|found| found.state == ReceiptState::Succeeded)
        })
        .await;
    }
    inbox.close().await.expect("closed");
    let runs = application.runs_by_event();
    assert!(accepted.iter().all(|id| runs.contains_key(id)));
    drop(gateway);
}

#[tokio::test]
async fn c070_an_event_retried_from_the_command_line_is_run_by_a_receiver_that_is_at_work() {
    let more = [&DEFERRED[..], &["--max-attempts", "1"]].concat();
    let (gateway, application, folder) = started(&more).await;
    application.answers(StatusCode::NOT_FOUND, &[], "no such account");
    gateway.post(standard("evt_1", b"{}"), "{}").await;
    until("it is dead", async || gateway.state("evt_1").await == Some(ReceiptState::DeadLetter)).await;
    application.answers(StatusCode::OK, &[], "mended");
    let retried = Command::new(env!("CARGO_BIN_EXE_countersign"))
        .args(["inbox", "retry", "evt_1", "--store"])
        .arg(format!("sqlite:{}", folder.path().join("inbox.db").display()))
        .output()
        .await
        .expect("it runs");
    let said = String::from_utf8_lossy(&retried.stdout).into_owned();
    assert!(retried.status.success() && said.contains("deferred"), "{said}");
    until("it is done", async || gateway.state("evt_1").await == Some(ReceiptState::Succeeded)).await;
    assert_eq!(application.runs(), 2);
}

#[tokio::test]
async fn events_with_an_order_reach_the_application_one_by_one() {
    let more = [&DEFERRED[..], &["--order-by", "account"]].concat();
    let (gateway, application, folder) = started(&more).await;
    application.delays(Duration::from_millis(20));
    for number in 0..10 {
        let body = format!(r#"{{"account":"a","number":{number}}}"#);
        let id = format!("evt_{number}");
        assert_eq!(gateway.post(standard(&id, body.as_bytes()), body).await.status, StatusCode::ACCEPTED);
    }
    until("all are done", async || done(&folder).await == 10).await;
    assert_eq!(application.order(), (0..10).map(|number| format!("evt_{number}")).collect::<Vec<_>>());
}

async fn all(folder: &tempfile::TempDir) -> Vec<Receipt> {
    let store = SqliteStore::open(folder.path().join("inbox.db")).await.expect("a store");
    let receipts = store.list(ListFilter { limit: 1_000, ..ListFilter::default() }).await.expect("a list");
    store.close().await.expect("closed");
    receipts
}

async fn done(folder: &tempfile::TempDir) -> usize {
    all(folder).await.iter().filter(|receipt| receipt.state == ReceiptState::Succeeded).count()
}
