//! `export`: all rows, a line each; and the scripts for shells.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use countersign::store::{
    Accept, Endpoint, Enqueue, InboxStore as _, KeptRequest, Message, OtherBody, OutboxStore as _, ReceiptKey,
    SqliteStore,
};
use countersign::{DedupKey, Digest, EventId, Name};
use serde_json::Value;
use sqlx::Connection as _;

use super::{Program, countersign};

/// More than two stretches of keys.
const MANY: usize = 1_234;

struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    /// With so many messages and events.
    async fn with(count: usize) -> Self {
        let shop = Self { folder: tempfile::tempdir().expect("a folder") };
        let store = SqliteStore::open(shop.path()).await.expect("a store");
        let name = |text: &str| Name::new(text).expect("a name");
        for endpoint in ["shop", "desk"] {
            store.put_endpoint(Endpoint::new(name(endpoint), "https://example.com/")).await.expect("it is there");
        }
        for number in 0..count {
            let id = EventId::new(&format!("evt_{number}")).expect("an id");
            let endpoint = name(if number % 2 == 0 { "shop" } else { "desk" });
            let message = Message::new(id.clone(), name("order.paid"), format!("{{\"n\":{number}}}"));
            store.enqueue(vec![Enqueue::new(endpoint.clone(), message)]).await.expect("it is there");
            let accept = Accept {
                key: ReceiptKey { consumer: endpoint, source: name("stripe"), key: DedupKey::from_id(&id) },
                event_id: Some(id),
                correlation_id: None,
                body: Digest::of(b"{}"),
                other_body: OtherBody::Accept,
                request: KeptRequest {
                    method: http::Method::POST,
                    target: "/hooks?token=hidden".into(),
                    headers: http::HeaderMap::new(),
                    body: "{}".into(),
                    proof: "{}".into(),
                },
                ordering_key: None,
                quarantine: None,
            };
            store.accept(accept).await.expect("it is there");
        }
        store.close().await.expect("it closes");
        shop
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("events.db")
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn call(&self, args: &[&str]) -> Program {
        countersign(args.iter().copied()).args(["--store", &self.store()])
    }

    async fn break_row(&self, statement: &'static str) {
        let mut connection = sqlx::SqliteConnection::connect(&self.store()).await.expect("a connection");
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("it is broken");
    }
}

fn documents(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).expect("a JSON document on each line")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_exported_once_in_order_as_it_is_shown() {
    let shop = Shop::with(MANY).await;
    for (table, id) in [("inbox", "event_id"), ("outbox", "id")] {
        let exported = documents(&shop.call(&[table, "export"]).run().exits(0).lines());
        let ids: Vec<_> = exported.iter().map(|row| row[id].as_str().expect("an id")).collect();
        let expected: Vec<_> = (0..MANY).map(|number| format!("evt_{number}")).collect();
        assert_eq!(ids, expected, "{table}");
        let shown = shop.call(&[table, "show", "evt_700", "--json"]).run().exits(0).json();
        assert_eq!(exported[700], shown, "{table}");
    }
    let text = shop.call(&["inbox", "export"]).run().exits(0).text();
    assert!(!text.contains("hidden"), "the query of a URL");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_can_be_narrowed_and_may_be_empty() {
    let shop = Shop::with(30).await;
    let count = |args: &[&str]| shop.call(args).run().exits(0).lines().len();
    assert_eq!(count(&["outbox", "export", "--endpoint", "desk"]), 15);
    assert_eq!(count(&["outbox", "export", "--endpoint", "desk", "--state", "succeeded"]), 0);
    assert_eq!(count(&["inbox", "export", "--consumer", "shop", "--state", "received"]), 15);
    assert_eq!(count(&["inbox", "export", "--source", "github"]), 0);
    shop.call(&["inbox", "export", "--state", "lost"]).run().exits(2).says("received, processing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_hides_no_other_and_the_end_says_so() {
    let shop = Shop::with(10).await;
    shop.break_row("PRAGMA ignore_check_constraints = ON; UPDATE countersign_outbox SET state = 'lost' WHERE id = 4")
        .await;
    let ended = shop.call(&["outbox", "export"]).env("RUST_LOG", "off").run().exits(1).says("1 rows cannot be read");
    assert_eq!(documents(&ended.lines()).len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_seen_enough_ends_the_export() {
    let shop = Shop::with(MANY).await;
    let mut process = Command::new(env!("CARGO_BIN_EXE_countersign"))
        .args(["outbox", "export", "--store", &shop.store()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut first = String::new();
    BufReader::with_capacity(64, process.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert_eq!(documents(&[first])[0]["id"], "evt_0");
    let output = process.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn shells_are_told_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = countersign(["completions", shell]).run().exits(0).text();
        for word in ["receive", "dispatch", "doctor", "export", "admin-listen"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        // Where the shell is there, it can say whether it understands this.
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &script).expect("to write");
        if ["bash", "zsh", "fish"].contains(&shell)
            && let Ok(checked) = Command::new(shell).arg("-n").arg(file.path()).output()
        {
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
    countersign(["completions", "cmd"]).run().exits(2);
}
