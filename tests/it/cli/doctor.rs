//! `countersign doctor`: each thing that can be wrong is found, told, and changed by nobody.

use std::fs;
use std::path::Path;

use countersign::store::SqliteStore;
use serde_json::Value;
use sqlx::Connection as _;

use super::{Ended, Program, SECRET, countersign};

/// A store that has been made, and calls of the program on it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.call(&["migrate"]).run().exits(0);
        place
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("events.db")
    }

    fn call(&self, args: &[&str]) -> Program {
        countersign(args.iter().copied()).args(["--store", &format!("sqlite:{}", self.path().display())])
    }

    fn add(&self, name: &str, url: &str, secret: &[&str]) {
        self.call(&["endpoint", "add", name, "--url", url]).args(secret.iter().copied()).run().exits(0);
    }

    fn doctor(&self, more: &[&str]) -> Program {
        self.call(&["doctor", "--json"]).args(more.iter().copied())
    }
}

/// The status and the detail of one check.
#[track_caller]
fn check(ended: &Ended, check: &str, subject: Option<&str>) -> (String, String) {
    let answer = ended.json();
    let checks = answer["checks"].as_array().expect("an array");
    let fits = |found: &&Value| found["check"] == check && subject.is_none_or(|subject| found["subject"] == subject);
    let found = checks.iter().find(fits).unwrap_or_else(|| panic!("no {check} in {answer}"));
    let text = |field: &str| found[field].as_str().expect("text").to_owned();
    (text("status"), text("detail"))
}

#[test]
fn where_all_is_well_it_says_so_and_ends_in_0() {
    let place = Place::new();
    place.add("shop", "http://127.0.0.1:9/hooks", &["--secret-env", "SECRET"]);
    let ended = place
        .doctor(&["--allow-http", "--allow", "127.0.0.1", "--scheme", "standard", "--secret-env", "SECRET"])
        .run()
        .exits(0);
    assert_eq!(ended.json()["ok"], true);
    for (name, subject) in [
        ("store", "sqlite"),
        ("schema", "sqlite"),
        ("clock", "sqlite"),
        ("secrets", "shop"),
        ("secrets", "standard"),
        ("endpoint", "shop"),
    ] {
        assert_eq!(check(&ended, name, Some(subject)).0, "ok", "{name} {subject}");
    }
    assert_eq!(check(&ended, "backlog", None).0, "ok");
    let page = place.call(&["doctor", "--allow-http", "--allow", "127.0.0.1"]).run().exits(0).text();
    assert!(page.starts_with("STATUS") && page.contains("it may be called at 127.0.0.1"), "{page}");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("absent.db");
    let ended = countersign(["doctor", "--json", "--store", &format!("sqlite:{}", path.display())]).run().exits(3);
    assert_eq!(check(&ended, "store", None).0, "failed");
    assert_eq!(check(&ended, "clock", None).0, "skipped");
    assert_eq!(ended.json()["ok"], false);
    assert!(!path.exists());
    let ended = countersign(["doctor", "--json", "--store", "postgres://nobody@127.0.0.1:1/none"]).run().exits(3);
    assert_eq!(check(&ended, "store", None).0, "failed");
}

#[tokio::test]
async fn a_schema_that_is_behind_is_told_and_left_as_it_is() {
    let place = Place { folder: tempfile::tempdir().expect("a folder") };
    fs::write(place.path(), "").expect("an empty database");
    let ended = place.doctor(&[]).run().exits(2);
    let (status, detail) = check(&ended, "schema", None);
    assert_eq!(status, "failed");
    assert!(detail.contains("countersign migrate"), "{detail}");
    let url = format!("sqlite:{}", place.path().display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("a connection");
    let tables = sqlx::raw_sql("SELECT 1 FROM sqlite_master").fetch_all(&mut connection).await.expect("rows");
    assert!(tables.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_nothing_is_found() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path().display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut other).await.expect("it is locked");
    let program = place.doctor(&[]);
    let ended = tokio::task::spawn_blocking(|| program.run()).await.expect("it ends").exits(3);
    assert_eq!(check(&ended, "store", None).0, "failed");
}

#[test]
fn secrets_that_are_not_there_or_are_none_are_told_without_them() {
    let place = Place::new();
    let file = place.folder.path().join("secret");
    fs::write(&file, SECRET).expect("a file");
    let path = file.to_str().expect("a path").to_owned();
    place.add("by-env", "http://127.0.0.1:9/", &["--secret-env", "SECRET"]);
    place.add("by-file", "http://127.0.0.1:9/", &["--secret-file", &path]);
    let allowed = ["--allow-http", "--allow", "127.0.0.1"];
    place.doctor(&allowed).run().exits(0);

    let ended = place.doctor(&allowed).env("SECRET", "hunter2").run().exits(2);
    assert_eq!(check(&ended, "secrets", Some("by-env")).0, "failed");
    assert!(!ended.text().contains("hunter2") && !ended.stderr.contains("hunter2"));

    fs::remove_file(&file).expect("it was there");
    let ended = place.doctor(&allowed).run().exits(3).says("by-file");
    let (status, detail) = check(&ended, "secrets", Some("by-file"));
    assert!(status == "failed" && detail.contains("cannot be read"), "{detail}");
    assert_eq!(check(&ended, "secrets", Some("by-env")).0, "ok");

    let own = |args: &[&str]| place.doctor(&["--allow-http", "--allow", "127.0.0.1"]).args(args.iter().copied());
    fs::write(&file, SECRET).expect("a file");
    let ended = own(&["--scheme", "standard", "--secret-env", "UNSET_SECRET"]).run().exits(2);
    assert_eq!(check(&ended, "secrets", Some("standard")).0, "failed");
    own(&["--secret-env", "SECRET"]).run().exits(2).says("--scheme");
    own(&["--scheme", "strpe", "--secret-env", "SECRET"]).run().exits(2).says("did you mean `stripe`");
}

#[test]
fn endpoints_that_may_not_be_called_or_have_no_address_are_found() {
    let place = Place::new();
    place.add("inside", "http://127.0.0.1:9/", &["--secret-env", "SECRET"]);
    let ended = place.doctor(&[]).run().exits(1);
    assert_eq!(check(&ended, "endpoint", Some("inside")).0, "failed");
    assert_eq!(check(&ended, "secrets", Some("inside")).0, "ok");

    place.add("nowhere", "https://no-such-name.invalid/", &["--secret-env", "SECRET"]);
    let ended = place.doctor(&["--allow-http", "--allow", "127.0.0.1"]).run().exits(3);
    assert_eq!(check(&ended, "endpoint", Some("nowhere")).0, "failed");
    assert_eq!(check(&ended, "endpoint", Some("inside")).0, "ok");

    place.call(&["endpoint", "remove", "nowhere"]).run().exits(0);
    place.call(&["endpoint", "disable", "inside", "--reason", "they moved"]).run().exits(0);
    let ended = place.doctor(&["--allow-http", "--allow", "127.0.0.1"]).run().exits(0);
    let (status, detail) = check(&ended, "endpoint", Some("inside"));
    assert!(status == "warning" && detail.contains("they moved"), "{detail}");
}

/// A drain does not wait for it, either; and it can be written anew.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_row_cannot_be_read_is_named() {
    let place = Place::new();
    place.add("shop", "http://127.0.0.1:9/", &["--secret-env", "SECRET"]);
    let enqueue = ["enqueue", "--endpoint", "shop", "--type", "order.paid", "--id", "msg_1", "--body", "-"];
    place.call(&enqueue).stdin(b"{}").run().exits(0);
    let url = format!("sqlite:{}", place.path().display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("a connection");
    let spoil = "UPDATE countersign_endpoint SET settings = 'nope'";
    sqlx::query(spoil).execute(&mut connection).await.expect("it is done");
    connection.close().await.expect("it closes");

    let allowed = ["--allow-http", "--allow", "127.0.0.1"];
    let ended = place.doctor(&allowed).run().exits(1);
    let (status, detail) = check(&ended, "endpoint", Some("shop"));
    assert!(status == "failed" && detail.contains("settings"), "{detail}");
    let drained = place.call(&["dispatch", "--drain", "--json"]).run().exits(0);
    assert_eq!(drained.json()["waiting"], 1);
    assert!(drained.stderr.contains("cannot be read"), "{}", drained.stderr);

    place.add("shop", "http://127.0.0.1:9/", &["--secret-env", "SECRET"]);
    place.doctor(&allowed).run().exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_taken_is_a_warning_and_the_examination_changes_nothing() {
    let place = Place::new();
    place.add("shop", "http://127.0.0.1:9/", &["--secret-env", "SECRET"]);
    let enqueue = ["enqueue", "--endpoint", "shop", "--type", "order.paid", "--id", "msg_1", "--body", "-"];
    place.call(&enqueue).stdin(b"{}").run().exits(0);
    let before = contents(&place.path()).await;
    let program = place.doctor(&["--allow-http", "--allow", "127.0.0.1", "--max-lag", "0"]);
    let ended = tokio::task::spawn_blocking(|| program.run()).await.expect("it ends").exits(0);
    let (status, detail) = check(&ended, "backlog", Some("shop"));
    assert!(status == "warning" && detail.contains("has been due"), "{detail}");
    assert_eq!(contents(&place.path()).await, before);
}

/// What an operator sees in the store.
async fn contents(path: &Path) -> String {
    use countersign::store::{InboxStore as _, ListFilter, MessageFilter, OutboxStore as _};

    let store = SqliteStore::open(path).await.expect("a store");
    let receipts = store.list(ListFilter::default()).await.expect("the store answers");
    let messages = store.list_messages(MessageFilter::default()).await.expect("the store answers");
    let endpoints = store.endpoints().await.expect("the store answers");
    store.close().await.expect("it closes");
    format!("{receipts:?} {messages:?} {endpoints:?}")
}
