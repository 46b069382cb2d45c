//! Stale events that are kept for a person to look at.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{DedupLayer, Processor, Stale};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, ReceiptState};
use http::HeaderMap;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, started};
use super::support::{
    Calls, OTHER_SECRET, SECRET, Server, client, on_each_store, request, send, serve, standard, standard_at, unix_now,
    until, verify,
};

fn stale(secret: &str, id: &str) -> HeaderMap {
    standard_at(secret, id, &(unix_now() - 100_000).to_string(), b"{}")
}

fn counting(calls: &Calls) -> Router {
    let calls = calls.clone();
    let handler = async move || {
        calls.count();
        (StatusCode::CREATED, "done")
    };
    Router::new().route("/", post(handler))
}

async fn quarantining(app: &Router, store: &Arc<dyn InboxStore>, is_deferred: bool) -> Server {
    let dedup = DedupLayer::builder(Arc::clone(store));
    let dedup = if is_deferred { dedup.deferred() } else { dedup };
    Server::with(app.clone(), verify(Scheme::standard()).stale(Stale::Quarantine), dedup, Arc::clone(store)).await
}

#[tokio::test]
async fn a_stale_event_is_kept_and_answered_202_and_not_run() {
    on_each_store(async |store| {
        for is_deferred in [false, true] {
            let calls = Calls::default();
            let app = counting(&calls);
            let server = quarantining(&app, &store, is_deferred).await;
            let id = format!("evt_{is_deferred}");
            for _ in 0..2 {
                let answer = server.post(stale(SECRET, &id), "{}").await;
                assert_eq!((answer.status, answer.body.len()), (StatusCode::ACCEPTED, 0));
            }
            let kept = server.receipt(&id).await.expect("it is kept");
            assert_eq!((kept.state, kept.quarantined, kept.due), (ReceiptState::Received, true, None));
            assert!(kept.reason.is_some() && kept.request.is_some());
            assert_eq!(calls.so_far(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn an_operator_releases_it_and_a_processor_runs_it() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let app = counting(&calls);
        let server = quarantining(&app, &store, true).await;
        let processor = Processor::builder(Arc::clone(&store), app.clone()).arrivals(server.layer.arrivals());
        let stop = CancellationToken::new();
        let processor = processor.build().expect("a processor");
        let processing = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
        server.post(stale(SECRET, "evt_1"), "{}").await;
        // One that is not stale overtakes it.
        server.post(standard("evt_2", b"{}"), "{}").await;
        until("the other one is run", async || calls.so_far() == 1).await;
        let key = server.receipt("evt_1").await.expect("it is kept").key;
        store.retry(key).await.expect("the store answers");
        until("it is run", async || {
            server.receipt("evt_1").await.is_some_and(|found| found.state == ReceiptState::Succeeded)
        })
        .await;
        stop.cancel();
        processing.await.expect("no panic");
    })
    .await;
}

#[tokio::test]
async fn a_fresh_delivery_of_it_is_run_as_if_it_had_never_been_stale() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = quarantining(&counting(&calls), &store, false).await;
        server.post(stale(SECRET, "evt_1"), "{}").await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::CREATED);
        let done = server.receipt("evt_1").await.expect("it is there");
        assert_eq!((done.state, done.quarantined, done.reason), (ReceiptState::Succeeded, false, None));
    })
    .await;
}

#[tokio::test]
async fn who_replays_a_stale_request_of_a_known_event_learns_nothing_and_changes_nothing() {
    on_each_store(async |store| {
        let calls = Calls::default();
        let server = quarantining(&counting(&calls), &store, false).await;
        server.post(standard("evt_1", b"{}"), "{}").await;
        let before = server.receipt("evt_1").await;
        let answer = server.post(stale(SECRET, "evt_1"), "{}").await;
        assert_eq!((answer.status, answer.text().as_str(), answer.is_replay()), (StatusCode::ACCEPTED, "", false));
        assert_eq!(server.receipt("evt_1").await, before);
        assert_eq!(calls.so_far(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_forged_is_refused_stale_or_not() {
    on_each_store(async |store| {
        let server = quarantining(&counting(&Calls::default()), &store, true).await;
        let forged = server.post(stale(OTHER_SECRET, "evt_1"), "{}").await;
        let other_bytes = server.post(stale(SECRET, "evt_1"), "{ }").await;
        let ancient = {
            let mut headers = stale(SECRET, "evt_1");
            headers.insert("webhook-timestamp", "1".parse().expect("a value"));
            server.post(headers, "{}").await
        };
        for answer in [forged, other_bytes, ancient] {
            assert_eq!(
                (answer.status, answer.problem().as_str()),
                (StatusCode::UNAUTHORIZED, "signature-not-verified")
            );
        }
        assert_eq!(server.receipt("evt_1").await, None);
    })
    .await;
}

#[tokio::test]
async fn a_verify_layer_alone_has_no_quarantine_and_refuses() {
    let calls = Calls::default();
    let layer = verify(Scheme::standard()).stale(Stale::Quarantine).build().expect("a layer");
    let address = serve(counting(&calls).layer(layer)).await;
    let answer = send(&client(false), request(&format!("http://{address}/"), stale(SECRET, "evt_1"), "{}")).await;
    assert_eq!((answer.status, calls.so_far()), (StatusCode::UNAUTHORIZED, 0));
}

#[tokio::test]
async fn the_program_keeps_shows_and_releases_it() {
    let (gateway, application, folder) = started(&["--mode", "deferred", "--stale", "quarantine"]).await;
    let inbox = async |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.arg("inbox").args(args);
        command.arg("--store").arg(format!("sqlite:{}", folder.path().join("inbox.db").display()));
        let ended = command.output().await.expect("it runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    assert_eq!(gateway.post(stale(SECRET, "evt_1"), "{}").await.status, StatusCode::ACCEPTED);
    let list = inbox(&["list", "--state", "received"]).await;
    assert!(list.contains("quarantined") && list.contains("evt_1"), "{list}");
    let shown: serde_json::Value = serde_json::from_str(&inbox(&["show", "evt_1", "--json"]).await).expect("JSON");
    assert_eq!((&shown["state"], &shown["quarantined"]), (&"received".into(), &true.into()));
    assert!(inbox(&["show", "evt_1"]).await.contains("quarantined"));
    assert_eq!(application.runs(), 0);
    assert!(inbox(&["retry", "evt_1"]).await.starts_with("is now `received` and due"));
    until("it is run", async || gateway.state("evt_1").await == Some(ReceiptState::Succeeded)).await;

    let (refusing, ..): (Gateway, _, _) = started(&[]).await;
    assert_eq!(refusing.post(stale(SECRET, "evt_1"), "{}").await.status, StatusCode::UNAUTHORIZED);
}
