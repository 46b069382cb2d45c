//! What somebody gets wrong who uses the program for the first time: it says so, and how to do it.

use std::process::{Command, Stdio};

use countersign::EventId;
use countersign::store::{Enqueue, Message, MessageKey, OutboxStore as _, SqliteStore};
use http::StatusCode;
use sqlx::Connection as _;

use super::{countersign, signed, verify};
use crate::dispatch::{Receiver, named};
use crate::gateway::Gateway;
use crate::support::{Gate, SECRET, standard, until};

#[test]
fn headers_are_read_from_a_file_as_curl_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("headers");
    let lines = signed(&["--scheme", "standard"], b"{}");
    for text in [lines.join("\n"), format!("{}\r\n\r\n", lines.join("\r\n"))] {
        std::fs::write(&file, text).expect("a file");
        verify(&["--scheme", "standard"], b"{}").headers([format!("@{}", file.display())]).run().exits(0);
    }
    let together = verify(&["--scheme", "standard"], b"{}").headers([lines.join("\n")]).run().exits(2);
    together.says("-H @FILE");
    verify(&["--scheme", "standard"], b"{}").headers(["@/absent/headers"]).run().exits(3).says("-H number 1");
    std::fs::write(&file, "webhook-id: msg_1\nno colon\n").expect("a file");
    let wrong = verify(&["--scheme", "standard"], b"{}").headers([format!("@{}", file.display())]).run().exits(2);
    wrong.says("-H number 1, line 2");
}

#[test]
fn what_looks_at_a_store_or_changes_what_is_in_it_makes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mistyped.db");
    let url = format!("sqlite:{}", path.display());
    for command in [
        &["inbox", "list"][..],
        &["inbox", "show", "evt_1"],
        &["inbox", "retry", "evt_1"],
        &["inbox", "forget", "evt_1"],
        &["inbox", "export"],
        &["outbox", "list"],
        &["outbox", "show", "msg_1"],
        &["outbox", "replay", "--all-dead"],
        &["outbox", "cancel", "msg_1"],
        &["outbox", "export"],
        &["endpoint", "list"],
        &["endpoint", "enable", "shop"],
        &["endpoint", "disable", "shop"],
        &["endpoint", "remove", "shop"],
        &["endpoint", "test", "shop"],
        &["purge"],
        &["doctor"],
    ] {
        let refused = countersign(command).env("COUNTERSIGN_STORE", &url).run().exits(3);
        assert!(refused.stderr.contains("mistyped.db") || refused.text().contains("mistyped.db"), "{command:?}");
        assert!(!path.exists(), "{command:?}");
    }
    countersign(["publish", "--type", "t", "--body", "-"]).env("COUNTERSIGN_STORE", &url).run().exits(0);
    assert!(path.exists());
}

#[test]
fn an_event_that_nobody_wants_is_said_in_words_and_prints_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("outbox.db").display());
    let published =
        countersign(["publish", "--type", "t", "--body", "-"]).env("COUNTERSIGN_STORE", &url).run().exits(0);
    assert_eq!(published.text(), "");
    published.says("no endpoint wants events of the type t");
}

#[test]
fn a_url_without_its_scheme_or_host_is_refused_with_one_that_has_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("outbox.db").display());
    for target in ["/hooks", "shop.example/hooks", "localhost:8080/hooks"] {
        let add = countersign(["endpoint", "add", "shop", "--secret-env", "SECRET", "--url", target]);
        add.env("COUNTERSIGN_STORE", &url).run().exits(2).says("like https://shop.example/hooks");
    }
}

#[test]
fn all_that_speaks_against_a_target_is_said_at_once() {
    let denied = countersign(["endpoint", "check", "http://127.0.0.1:8080/"]).run().exits(1);
    assert!(denied.stderr.contains("--allow-http --allow 127.0.0.1/32:8080"), "{}", denied.stderr);
    let named = countersign(["endpoint", "check", "--json", "http://localhost:8080/"]).run().exits(1).json();
    let flag = named["flag"].as_str().expect("text");
    assert!(flag.starts_with("--allow-http --allow "), "{flag}");
}

#[test]
fn doctor_does_not_advise_to_migrate_what_is_no_store() {
    for url in ["nope:x", "x.db", "sqlite:", "postgres://h:x/d"] {
        let ended = countersign(["doctor", "--store", url]).run().exits(2);
        assert!(!ended.text().contains("countersign migrate"), "{url}: {}", ended.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_in_a_row_that_was_written_by_hand_are_not_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("outbox.db").display());
    let call = |args: &[&str]| countersign(args).env("COUNTERSIGN_STORE", &url).run().exits(0);
    call(&["endpoint", "add", "shop", "--secret-env", "SECRET", "--url", "https://shop.example/hooks"]);
    let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("a connection");
    let by_hand = "UPDATE countersign_endpoint SET url = 'https://user:hunter2@shop.example/hooks?key=hunter3'";
    sqlx::raw_sql(by_hand).execute(&mut connection).await.expect("it is written");
    connection.close().await.expect("closed");
    for args in [&["endpoint", "list"][..], &["endpoint", "list", "--json"], &["endpoint", "disable", "shop"]] {
        let shown = call(args);
        assert!(!shown.text().contains("hunter") && !shown.stderr.contains("hunter"), "{args:?}: {}", shown.text());
    }
    assert!(call(&["endpoint", "list"]).text().contains("shop.example/hooks"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_that_is_replayed_alone_is_said_to_stay_parked() {
    let receiver = Receiver::with_statuses(&[400]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("outbox.db").display());
    let run = async |args: &[&str], body: &[u8]| {
        let program = countersign(args).env("COUNTERSIGN_STORE", &url).stdin(body);
        tokio::task::spawn_blocking(|| program.run()).await.expect("it ends")
    };
    let target = receiver.url();
    let add = ["endpoint", "add", "shop", "--secret-env", "SECRET", "--url", &target, "--on-dead", "park"];
    run(&add, b"").await.exits(0);
    for id in ["msg_1", "msg_2"] {
        let enqueue =
            ["enqueue", "--endpoint", "shop", "--type", "t", "--ordering-key", "k", "--id", id, "--body", "-"];
        run(&enqueue, b"{}").await.exits(0);
    }
    let drain = ["dispatch", "--drain", "--allow-http", "--allow", "127.0.0.1"];
    run(&drain, b"").await.exits(1);
    let alone = run(&["outbox", "replay", "msg_2"], b"").await.exits(1);
    assert!(alone.stderr.contains("parked again") && alone.stderr.contains("`msg_1`"), "{}", alone.stderr);
    run(&drain, b"").await.exits(1);
    run(&["outbox", "replay", "msg_1"], b"").await.exits(0);
    // Now the one before it is on its way.
    run(&["outbox", "replay", "msg_2"], b"").await.exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_signal_ends_says_so_and_what_still_waits() {
    let gate = Gate::default();
    let held = gate.clone();
    let receiver = Receiver::answering(move |_| {
        let held = held.clone();
        async move {
            held.pass().await;
            crate::dispatch::status(503)
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("outbox.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    let mut endpoint = countersign::store::Endpoint::new(named("shop"), receiver.url());
    endpoint.secrets = vec!["env:SECRET".to_owned()];
    store.put_endpoint(endpoint).await.expect("it is there");
    let message = Message::new(EventId::new("msg_1").expect("an id"), named("t"), "{}");
    store.enqueue(vec![Enqueue::new(named("shop"), message)]).await.expect("it is there");
    let process = Command::new(env!("CARGO_BIN_EXE_countersign"))
        .args(["dispatch", "--drain", "--allow-http", "--allow", "127.0.0.1", "--store"])
        .arg(format!("sqlite:{}", path.display()))
        .env("SECRET", SECRET)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    until("the attempt is on its way", async || !receiver.seen().is_empty()).await;
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    gate.open();
    let ended = tokio::task::spawn_blocking(|| process.wait_with_output()).await.expect("it ends").expect("its output");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("stopped by a signal before all was delivered"), "{stderr}");
    assert!(!stderr.contains("behind a dead letter"), "{stderr}");
    let key = MessageKey { endpoint: named("shop"), id: EventId::new("msg_1").expect("an id") };
    assert!(store.find_message(key).await.expect("an answer").is_some_and(|entry| entry.attempts == 1));
    store.close().await.expect("closed");
}

#[tokio::test]
async fn an_application_that_does_not_answer_is_named_by_its_address() {
    // Nobody listens there any more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(&format!("http://{free}"), &folder.path().join("inbox.db"), &[]).await;
    assert_eq!(gateway.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::BAD_GATEWAY);
    let url = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let shown = countersign(["inbox", "show", "evt_1", "--json"]).env("COUNTERSIGN_STORE", url).run().exits(0).json();
    let error = shown["error"].as_str().expect("text");
    assert!(error.contains(&free.to_string()), "{error}");
}

#[test]
fn a_receiver_of_meta_without_its_verify_token_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    // It cannot listen there: it ends, having said what it has to say.
    let args = ["receive", "--scheme", "meta", "--secret-env", "SECRET", "--upstream", "http://127.0.0.1:9"];
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = held.local_addr().expect("an address").to_string();
    let url = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let start = |more: &[&str]| {
        let program = countersign(args).args(["--listen", &address, "--store", &url]).args(more.iter().copied());
        program.env("TOKEN", "a verify token").run().exits(3).stderr
    };
    assert!(start(&[]).contains("--verify-token-env"));
    assert!(!start(&["--verify-token-env", "TOKEN"]).contains("--verify-token-env"));
}
