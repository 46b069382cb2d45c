//! `countersign receive --cache-bytes`: what repeats cost, and what is noticed when.

use http::StatusCode;

use crate::cli::countersign;
use crate::gateway::{Application, Gateway};
use crate::support::standard;

/// The row is taken away behind the program's back: a repeat that is answered all the same cost no look at the store.
#[tokio::test]
async fn a_repeat_is_answered_from_memory_where_a_cache_was_asked_for() {
    let (application, directory) = (Application::default(), tempfile::tempdir().expect("a directory"));
    application.answers(StatusCode::OK, &[], "done");
    let store = directory.path().join("inbox.db");
    let gateway = Gateway::start(&application.start().await, &store, &["--cache-bytes", "1000000"]).await;
    let headers = standard("evt_1", b"{}");
    assert_eq!(gateway.post(headers.clone(), "{}").await.status, StatusCode::OK);
    forget(&store);
    let again = gateway.post(headers, "{}").await;
    assert_eq!((again.status, &again.body[..], application.runs()), (StatusCode::OK, &b"done"[..], 1));
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

/// C070: without one, what an operator does from the shell is seen at once.
#[tokio::test]
async fn c070_an_event_that_is_forgotten_from_the_shell_runs_again_at_once() {
    let (application, directory) = (Application::default(), tempfile::tempdir().expect("a directory"));
    let store = directory.path().join("inbox.db");
    let gateway = Gateway::start(&application.start().await, &store, &[]).await;
    let headers = standard("evt_1", b"{}");
    for _ in 0..2 {
        assert!(gateway.post(headers.clone(), "{}").await.status.is_success());
        assert_eq!(application.runs(), 1);
    }
    forget(&store);
    assert!(gateway.post(headers, "{}").await.status.is_success());
    assert_eq!(application.runs(), 2);
}

fn forget(store: &std::path::Path) {
    let store = format!("sqlite:{}", store.display());
    countersign(["inbox", "forget", "evt_1", "--store", &store]).run().exits(0);
}
