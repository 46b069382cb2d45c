//! `countersign receive --profile`, the real program: killed, cut off, and kept waiting in the middle of a run.

use std::time::Duration;

use countersign::store::{ReceiptState, Unclear};
use http::StatusCode;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::cli::{Ended, countersign};
use crate::gateway::{Application, started};
use crate::operators::{Noting, Started, eventually};
use crate::support::{Answer, client, request, send, standard, try_send};

const STRICT: [&str; 2] = ["--profile", "strict"];

#[tokio::test]
async fn with_strict_a_process_that_is_killed_leaves_its_event_to_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    killed_in_the_middle_of_a_run(&format!("sqlite:{}", folder.path().join("inbox.db").display())).await;
}

#[tokio::test]
async fn with_strict_a_process_that_is_killed_behind_the_request_leaves_its_event_to_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    killed_behind_the_request(&format!("sqlite:{}", folder.path().join("inbox.db").display())).await;
}

/// Inline, on this store. Its effect did not come about, so it is retried.
pub(crate) async fn killed_in_the_middle_of_a_run(store: &str) {
    let Stage { application, upstream, folder, noting } = Stage::new().await;
    application.delays(Duration::from_secs(60));
    let mut first = receive(store, &upstream, &STRICT).await;
    let url = first.addresses[0].clone();
    let sent =
        tokio::spawn(async move { try_send(&client(false), request(&url, standard("evt_1", b"{}"), "{}")).await });
    eventually("it runs", async || application.runs() == 1).await;
    first.kill().await;
    assert_eq!(sent.await.expect("it ends"), None, "its sender hears nothing");

    application.delays(Duration::ZERO);
    let more = [&STRICT[..], &["--operator-command", noting.path()]].concat();
    let second = receive(store, &upstream, &more).await;
    eventually("its lease has run out", async || is_held(&post(&second, "evt_1").await)).await;
    assert!(is_held(&post(&second, "evt_1").await), "and for as long as nobody looks");
    is_told_and_shown(store, &noting).await;
    assert_eq!(application.runs(), 1);

    program(["inbox", "retry", "evt_1", "--store", store]).await.exits(0);
    assert_eq!(post(&second, "evt_1").await.status, StatusCode::NO_CONTENT);
    assert_eq!(application.runs(), 2);
    drop(folder);
}

/// Deferred, on this store: no sender comes back. Its effect did come about, so it is concluded.
pub(crate) async fn killed_behind_the_request(store: &str) {
    let Stage { application, upstream, folder, noting } = Stage::new().await;
    application.delays(Duration::from_secs(60));
    let deferred = [&STRICT[..], &["--mode", "deferred"]].concat();
    let mut first = receive(store, &upstream, &deferred).await;
    assert_eq!(post(&first, "evt_1").await.status, StatusCode::ACCEPTED);
    eventually("it runs", async || application.runs() == 1).await;
    first.kill().await;

    application.delays(Duration::ZERO);
    let more = [&deferred[..], &["--operator-command", noting.path()]].concat();
    let second = receive(store, &upstream, &more).await;
    is_told_and_shown(store, &noting).await;
    assert!(is_held(&post(&second, "evt_1").await));

    program(["inbox", "conclude", "evt_1", "--store", store]).await.exits(0);
    let repeat = post(&second, "evt_1").await;
    assert_eq!((repeat.status, repeat.is_replay()), (StatusCode::OK, true));
    assert_eq!(application.runs(), 1);
    drop(folder);
}

#[tokio::test]
async fn with_strict_an_application_that_was_reached_and_gave_no_answer_is_not_asked_again() {
    // It takes a request whole, and goes away.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let upstream = format!("http://{}", listener.local_addr().expect("an address"));
    let (runs, counted) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let (mut seen, mut part) = (Vec::new(), [0; 4096]);
            while !seen.ends_with(b"{}") {
                match connection.read(&mut part).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => seen.extend_from_slice(&part[..read]),
                }
            }
            runs.send_modify(|runs| *runs += 1);
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let gateway = receive(&store, &upstream, &STRICT).await;
    for _ in 0..2 {
        assert!(is_held(&post(&gateway, "evt_1").await));
    }
    assert_eq!(*counted.borrow(), 1);
}

#[tokio::test]
async fn with_strict_an_application_that_takes_too_long_is_not_asked_again() {
    let (gateway, application, _folder) = started(&[&STRICT[..], &["--upstream-timeout", "1"]].concat()).await;
    application.delays(Duration::from_secs(60));
    for _ in 0..2 {
        let answer = gateway.post(standard("evt_1", b"{}"), "{}").await;
        assert!(is_held(&answer), "{answer:?}");
    }
    assert_eq!(application.runs(), 1);
}

#[tokio::test]
async fn with_strict_an_application_that_was_not_reached_is_asked_again() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a socket").local_addr().expect("an address");
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let gateway = receive(&store, &format!("http://{free}"), &STRICT).await;
    for _ in 0..2 {
        let answer = post(&gateway, "evt_1").await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::BAD_GATEWAY, "upstream-unavailable"));
    }
    let shown = program(["inbox", "show", "evt_1", "--json", "--store", &store]).await.exits(0).json();
    assert_eq!((&shown["state"], &shown["attempts"]), (&"failed".into(), &2.into()));
}

#[tokio::test]
async fn with_strict_the_application_says_by_its_status_or_a_header_whether_its_failure_is_clear() {
    let (gateway, application, _folder) = started(&STRICT).await;
    for (id, status, outcome, state) in [
        ("refuses", 404, "", ReceiptState::Failed),
        ("is-away", 503, "", ReceiptState::Failed),
        ("breaks", 500, "", ReceiptState::DeadLetter),
        ("rolled-back", 500, "transient", ReceiptState::Failed),
        ("cannot-tell", 409, "unclear", ReceiptState::DeadLetter),
        ("cannot-tell-either", 200, "unclear", ReceiptState::DeadLetter),
    ] {
        let said = [("countersign-outcome", outcome)];
        let said = if outcome.is_empty() { &[][..] } else { &said };
        application.answers(StatusCode::from_u16(status).expect("a status"), said, "");
        let answer = gateway.post(standard(id, b"{}"), "{}").await;
        assert_eq!(is_held(&answer), state == ReceiptState::DeadLetter, "{id}: {answer:?}");
        assert_eq!(gateway.state(id).await, Some(state), "{id}");
    }
}

#[tokio::test]
async fn without_a_profile_an_unclear_outcome_runs_again() {
    let (gateway, application, _folder) = started(&[]).await;
    application.answers(StatusCode::BAD_GATEWAY, &[("countersign-outcome", "unclear")], "which?");
    for _ in 0..2 {
        let answer = gateway.post(standard("evt_1", b"{}"), "{}").await;
        assert_eq!((answer.status, answer.text().as_str()), (StatusCode::BAD_GATEWAY, "which?"));
    }
    assert_eq!((application.runs(), gateway.state("evt_1").await), (2, Some(ReceiptState::Failed)));
}

#[tokio::test]
async fn with_relaxed_one_body_is_one_event_whatever_its_ids_in_both_modes() {
    for mode in ["inline", "deferred"] {
        let (gateway, application, _folder) = started(&["--profile", "relaxed", "--mode", mode]).await;
        for (id, body) in [("evt_1", "{}"), ("evt_2", "{}"), ("evt_3", "{ }")] {
            let answer = gateway.post(standard(id, body.as_bytes()), body).await;
            assert!(answer.status.is_success(), "{mode} {id}: {answer:?}");
        }
        eventually("both run", async || application.runs() == 2).await;
        assert_eq!(application.runs_by_event().into_keys().collect::<Vec<_>>(), ["evt_1", "evt_3"], "{mode}");
    }
}

/// An application, and a command that is told.
struct Stage {
    application: Application,
    upstream: String,
    folder: tempfile::TempDir,
    noting: Noting,
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let application = Application::default();
        let (upstream, noting) = (application.start().await, Noting::new(folder.path()));
        Self { application, upstream, folder, noting }
    }
}

async fn receive(store: &str, upstream: &str, more: &[&str]) -> Started {
    let args = ["receive", "--listen", "127.0.0.1:0", "--scheme", "standard", "--secret-env", "TEST_SECRET"];
    Started::new(&[&args[..], &["--lease", "1", "--upstream", upstream, "--store", store], more].concat(), 1).await
}

async fn post(receiver: &Started, id: &str) -> Answer {
    send(&client(false), request(&receiver.addresses[0], standard(id, b"{}"), "{}")).await
}

fn is_held(answer: &Answer) -> bool {
    answer.status == StatusCode::SERVICE_UNAVAILABLE
        && answer.text().contains("urn:countersign:problem:outcome-unclear")
}

async fn program<const N: usize>(args: [&str; N]) -> Ended {
    let program = countersign(args);
    tokio::task::spawn_blocking(move || program.run()).await.expect("it ends")
}

async fn is_told_and_shown(store: &str, noting: &Noting) {
    eventually("an operator is told", async || !noting.of("event.dead").is_empty()).await;
    let told = noting.of("event.dead");
    assert_eq!((told.len(), &told[0]["key"], &told[0]["reason"]), (1, &"evt_1".into(), &Unclear::HELD.into()));
    let shown = program(["inbox", "show", "evt_1", "--store", store]).await.exits(0).text();
    assert!(shown.contains("state        dead_letter\n") && shown.contains(Unclear::HELD), "{shown}");
}
