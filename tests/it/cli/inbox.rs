//! `inbox`, `migrate` and `purge`, on a store that the library filled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use countersign::clock::ManualClock;
use countersign::store::{
    Failure, InboxStore as _, KeptRequest, Lease, OtherBody, ReceiptKey, Reserve, Reserved, ResultBody, Settled,
    SqliteStore, StoredResult, Unclear,
};
use countersign::{Clock as _, DedupKey, Digest, EventId, Name, SystemClock};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tempfile::TempDir;

use super::{Ended, countersign};

#[test]
fn the_list_shows_what_changed_last_first_and_filters() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.succeeded("billing", "stripe", "evt_1", b"done").await;
        inbox.dead("billing", "github", "evt_2", "no such order").await;
        inbox.succeeded("mail", "stripe", "evt_3", b"").await;
    });
    let all = store.cli(&["inbox", "list", "--json"]).exits(0).json();
    let keys: Vec<_> = all.as_array().expect("an array").iter().map(|row| row["key"].clone()).collect();
    assert_eq!(keys, ["evt_3", "evt_2", "evt_1"]);
    let fields =
        ["consumer", "source", "key", "event_id", "state", "attempts", "first_seen", "updated", "status", "error"];
    for field in fields {
        assert!(all[1].get(field).is_some(), "{field}");
    }
    assert_eq!((&all[2]["state"], &all[2]["status"]), (&"succeeded".into(), &200.into()));
    assert_eq!((&all[1]["state"], &all[1]["error"]), (&"dead_letter".into(), &"no such order".into()));
    assert!(all[0]["updated"].as_str().expect("a time").ends_with('Z'));

    for (flags, keys) in [
        (vec!["--state", "dead_letter"], vec!["evt_2"]),
        (vec!["--consumer", "mail"], vec!["evt_3"]),
        (vec!["--source", "stripe", "--limit", "1"], vec!["evt_3"]),
        (vec!["--source", "nobody"], vec![]),
    ] {
        let args = [&["inbox", "list", "--json"], &*flags].concat();
        let found = store.cli(&args).exits(0).json();
        let found: Vec<_> = found.as_array().expect("an array").iter().map(|row| row["key"].clone()).collect();
        assert_eq!(found, keys, "{flags:?}");
    }
    let text = store.cli(&["inbox", "list"]).exits(0).text();
    assert!(text.starts_with("STATE") && text.contains("dead_letter") && text.contains("no such order"), "{text}");
    store.cli(&["inbox", "list", "--state", "lost"]).exits(2);
    store.cli(&["inbox", "list", "--limit", "0"]).exits(2);
}

#[test]
fn show_tells_everything_with_bodies_as_text_or_base64() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.succeeded("app", "s", "text", "grün".as_bytes()).await;
        inbox.succeeded("app", "s", "bytes", b"a\0\xff").await;
        inbox.dead("app", "s", "dead", "boom").await;
        inbox.reserve("app", "s", "running").await;
    });
    let text = store.cli(&["inbox", "show", "text", "--json"]).exits(0).json();
    assert_eq!(text["result"]["body"], serde_json::json!({ "text": "grün" }));
    let expected = serde_json::json!([["x-answer", "one"], ["x-answer", "two"]]);
    assert_eq!((&text["result"]["status"], &text["result"]["headers"]), (&200.into(), &expected));
    let bytes = store.cli(&["inbox", "show", "bytes", "--json"]).exits(0).json();
    assert_eq!(bytes["result"]["body"], serde_json::json!({ "base64": "YQD/" }));

    let dead = store.cli(&["inbox", "show", "dead", "--json"]).exits(0).json();
    assert_eq!(dead["reason"], "given up");
    assert_eq!(dead["failures"][0]["error"], "boom");
    let request = serde_json::json!({ "method": "POST", "path": "/hooks", "headers": 1, "body_bytes": 2 });
    assert_eq!(dead["request"], request);
    let page = store.cli(&["inbox", "show", "dead"]).exits(0).text();
    assert!(page.contains("POST /hooks") && !page.contains("hunter2"), "{page}");

    let running = store.cli(&["inbox", "show", "running", "--json"]).exits(0).json();
    assert!(running["lease_until"].is_string() && running["result"].is_null());
    store.cli(&["inbox", "show", "absent"]).exits(1).says("absent");
    store.cli(&["inbox", "show", "a\nb"]).exits(2).says("key");
}

#[test]
fn c070_a_done_event_that_is_forgotten_runs_again() {
    let store = Store::new();
    store.fill(async |inbox| inbox.succeeded("app", "s", "evt_1", b"").await);
    let answer = store.cli(&["inbox", "forget", "evt_1", "--json"]).exits(0).json();
    assert_eq!((&answer["forgotten"], &answer["key"]), (&true.into(), &"evt_1".into()));
    store.fill(async |inbox| assert_eq!(inbox.reserve("app", "s", "evt_1").await.attempt, 1));
    store.cli(&["inbox", "forget", "evt_2"]).exits(1).says("evt_2");
    let warned = store.cli(&["inbox", "forget", "evt_1"]).exits(0);
    assert!(warned.stderr.contains("was being processed"), "{}", warned.stderr);
}

#[test]
fn c070_a_dead_letter_that_is_retried_runs_at_its_next_delivery() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.dead("app", "s", "evt_1", "boom").await;
        inbox.succeeded("app", "s", "evt_2", b"").await;
    });
    assert_eq!(store.cli(&["inbox", "retry", "evt_1", "--json"]).exits(0).json()["state"], "failed");
    store.cli(&["inbox", "retry", "evt_1"]).exits(0);
    store.fill(async |inbox| assert_eq!(inbox.reserve("app", "s", "evt_1").await.attempt, 1));
    store.cli(&["inbox", "retry", "evt_2"]).exits(1).says("succeeded");
    store.cli(&["inbox", "retry", "evt_3"]).exits(1).says("evt_3");
}

#[test]
fn a_concluded_dead_letter_is_done_and_what_may_still_run_is_not_concluded() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.dead("app", "s", "evt_1", "boom").await;
        inbox.reserve("app", "s", "evt_2").await;
    });
    for _ in 0..2 {
        assert_eq!(store.cli(&["inbox", "conclude", "evt_1", "--json"]).exits(0).json()["state"], "succeeded");
    }
    let shown = store.cli(&["inbox", "show", "evt_1", "--json"]).exits(0).json();
    assert_eq!(
        (&shown["state"], &shown["status"], &shown["reason"]),
        (&"succeeded".into(), &200.into(), &serde_json::Value::Null)
    );
    assert_eq!(shown["failures"][0]["error"], "boom", "how it came to that stays");
    store.cli(&["inbox", "conclude", "evt_2"]).exits(1).says("processing");
    store.cli(&["inbox", "conclude", "evt_3"]).exits(1).says("evt_3");
}

#[test]
fn an_event_of_several_consumers_is_named_by_them() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.succeeded("billing", "s", "evt_1", b"").await;
        inbox.succeeded("mail", "s", "evt_1", b"").await;
    });
    let refused = store.cli(&["inbox", "show", "evt_1"]).exits(2).says("--consumer");
    assert!(refused.stderr.contains("billing") && refused.stderr.contains("mail"), "{}", refused.stderr);
    let args = ["inbox", "show", "evt_1", "--consumer", "mail", "--json"];
    assert_eq!(store.cli(&args).exits(0).json()["consumer"], "mail");
    store.cli(&[&args[..], &["--source", "other"]].concat()).exits(1);
}

#[test]
fn an_unsigned_id_finds_an_event_but_never_hides_the_one_with_that_key() {
    let store = Store::new();
    let key = DedupKey::from_digest(&Digest::of(b"body")).to_string();
    store.fill(async |inbox| {
        inbox.labelled("app", "s", &key, "delivery-1").await;
        inbox.labelled("app", "s", "other", &key).await;
    });
    let by_id = store.cli(&["inbox", "show", "delivery-1", "--json"]).exits(0).json();
    assert_eq!(by_id["key"], key.as_str());
    let by_key = store.cli(&["inbox", "show", &key, "--json"]).exits(0).json();
    assert_eq!(by_key["event_id"], "delivery-1");
}

#[test]
fn what_senders_and_handlers_wrote_cannot_drive_the_terminal() {
    let store = Store::new();
    store.fill(async |inbox| inbox.dead("app", "s", "evt_\u{202e}1", "\u{1b}[2J\nstate        succeeded\u{9b}").await);
    for args in [&["inbox", "list"][..], &["inbox", "show", "evt_\u{202e}1"], &["inbox", "forget", "evt_\u{202e}2"]] {
        let ended = store.cli(args);
        for text in [ended.text(), ended.stderr] {
            assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
            assert!(!text.contains("\nstate        succeeded"), "{text:?}");
        }
    }
}

#[test]
fn migrate_says_what_it_applied_and_without_it_nothing_is_made() {
    let store = Store::new();
    store.cli(&["inbox", "list", "--no-migrate"]).exits(3);
    assert!(!store.path().exists());
    let first = store.cli(&["migrate", "--json"]).exits(0).json();
    assert!(first["schema_version"].as_u64() >= Some(1) && first["applied"][0] == 1, "{first}");
    let second = store.cli(&["migrate", "--json"]).exits(0).json();
    assert_eq!((&second["schema_version"], &second["applied"]), (&first["schema_version"], &serde_json::json!([])));
    assert!(store.cli(&["migrate"]).exits(0).text().contains("up to date"));
    store.cli(&["inbox", "list", "--no-migrate"]).exits(0);

    let empty = Store::new();
    std::fs::write(empty.path(), b"").expect("to write");
    empty.cli(&["inbox", "list", "--no-migrate"]).exits(2).says("migrate");
}

#[test]
fn a_store_that_cannot_be_opened_says_so() {
    let store = Store::new();
    std::fs::write(store.path(), b"this is no database, but a text of some length\n".repeat(100)).expect("to write");
    store.cli(&["inbox", "list"]).exits(3).says("store");
    for (url, code) in [
        ("sqlite:/absent/dir/x.db", 3),
        ("sqlite::memory:", 2),
        ("sqlite:", 2),
        ("", 2),
        ("x.db", 2),
        ("redis://localhost/x", 2),
        ("postgres://127.0.0.1:1/x", 3),
        ("mysql://127.0.0.1:1/x", 3),
    ] {
        let ended = countersign(["inbox", "list", "--store", url]).run();
        assert_eq!(ended.code, code, "{url}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{url}: {}", ended.stderr);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let odd = dir.path().join("a b?mode=ro&x%20.db");
    countersign(["migrate", "--store", &format!("sqlite:{}", odd.display())]).run().exits(0);
    assert!(odd.exists());
}

#[test]
fn c071_purge_removes_what_has_its_age_and_nothing_else() {
    let store = Store::new();
    let day = Duration::from_secs(24 * 60 * 60);
    for (age, key) in [(40 * day, "old"), (10 * day, "middle"), (day, "young")] {
        store.fill_at(age, async |inbox| {
            inbox.succeeded("app", "s", key, b"body").await;
            inbox.dead("app", "s", &format!("{key}-dead"), "boom").await;
        });
    }
    let removed = store.cli(&["purge", "--json"]).exits(0).json();
    assert_eq!(removed["keys"], 1, "{removed}");
    let left = store.cli(&["inbox", "list", "--json"]).exits(0).json();
    assert_eq!(left.as_array().map(Vec::len), Some(5));
    let middle = store.cli(&["inbox", "show", "middle", "--json"]).exits(0).json();
    assert_eq!((&middle["status"], &middle["result"]["body"]), (&200.into(), &serde_json::Value::Null));
    let young = store.cli(&["inbox", "show", "young", "--json"]).exits(0).json();
    assert_eq!(young["result"]["body"]["text"], "body");
    assert_eq!(store.cli(&["purge", "--keep-results", "0", "--keep-keys", "12h", "--json"]).exits(0).json()["keys"], 2);
    for nonsense in [["--keep-keys", "0"], ["--keep-keys", "9m"], ["--keep-results", "31d"], ["--keep-keys", "-1"]] {
        store.cli(&[&["purge"], &nonsense[..]].concat()).exits(2);
    }
}

#[test]
fn purge_goes_on_until_nothing_is_left() {
    let store = Store::new();
    store.fill_at(Duration::from_secs(40 * 24 * 60 * 60), async |inbox| {
        for number in 0..1_100 {
            inbox.succeeded("app", "s", &format!("evt_{number}"), b"").await;
        }
    });
    assert_eq!(store.cli(&["purge", "--json"]).exits(0).json()["keys"], 1_100);
    assert_eq!(store.cli(&["inbox", "list", "--json"]).exits(0).json(), serde_json::json!([]));
}

#[test]
fn what_was_received_is_compared_with_what_was_booked() {
    let store = Store::new();
    store.fill(async |inbox| {
        inbox.succeeded("app", "s", "both", b"").await;
        inbox.succeeded("app", "s", "silent", b"").await;
        inbox.dead("app", "s", "dead", "boom").await;
        inbox.dead("app", "s", "unclear", "it did its work, and died").await;
        inbox.succeeded("mail", "s", "elsewhere", b"").await;
    });
    let file = store.0.path().join("booked");
    let file = file.to_str().expect("a path");
    std::fs::write(file, "both\r\nunclear\n\nghost\nboth\n").expect("to write");
    let reconcile = |more: &[&str]| store.cli(&[&["inbox", "reconcile", "--effects", file], more].concat());
    let answer = reconcile(&["--consumer", "app", "--json"]).exits(1).json();
    let keys = |field: &str| {
        let all = answer[field].as_array().expect("an array").iter();
        all.map(|one| one.get("key").unwrap_or(one).as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("no_effect"), ["silent", "dead"]);
    assert_eq!(keys("not_done"), ["unclear"]);
    assert_eq!((keys("no_receipt"), keys("twice")), (vec!["ghost".to_owned()], vec!["both".to_owned()]));
    assert_eq!(answer["no_effect_by_state"], serde_json::json!({ "succeeded": 1, "dead_letter": 1 }));
    assert_eq!((&answer["received"], &answer["booked"], &answer["differences"]), (&4.into(), &3.into(), &5.into()));
    let text = reconcile(&["--consumer", "app"]).exits(1).text();
    assert!(text.contains("no_receipt") && text.ends_with("received 4, booked 3, differences 5\n"), "{text}");

    std::fs::write(file, "elsewhere\n").expect("to write");
    assert_eq!(reconcile(&["--consumer", "mail", "--json"]).exits(0).json()["differences"], 0);
    std::fs::write(file, "elsewhere\na\tb\n").expect("to write");
    reconcile(&[]).exits(2).says("line 2");
    store.cli(&["inbox", "reconcile", "--effects", "/absent/booked"]).exits(3).says("/absent/booked");
}

/// A file for a store, filled through the library and read by the program.
struct Store(TempDir);

impl Store {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("events.db")
    }

    fn cli(&self, args: &[&str]) -> Ended {
        countersign(args).env("COUNTERSIGN_STORE", format!("sqlite:{}", self.path().display())).run()
    }

    fn fill(&self, work: impl AsyncFnOnce(&Inbox)) {
        self.fill_at(Duration::ZERO, work);
    }

    /// Does this work as if it were done that long ago.
    fn fill_at(&self, age: Duration, work: impl AsyncFnOnce(&Inbox)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::new(SystemClock.now().saturating_sub(age)));
            let store = SqliteStore::options(self.path()).with_clock(Arc::clone(&clock)).open().await.expect("a store");
            let inbox = Inbox { store, clock };
            work(&inbox).await;
            inbox.store.close().await.expect("to close");
        });
    }
}

struct Inbox {
    store: SqliteStore,
    clock: Arc<ManualClock>,
}

impl Inbox {
    async fn reserve(&self, consumer: &str, source: &str, key: &str) -> Lease {
        self.reserve_labelled(consumer, source, key, key).await
    }

    async fn reserve_labelled(&self, consumer: &str, source: &str, key: &str, id: &str) -> Lease {
        // Each at a moment of its own, so that the list has an order.
        self.clock.advance(Duration::from_millis(1));
        let name = |name: &str| Name::new(name).expect("a name");
        let key = DedupKey::parse(key).expect("a key");
        let request = Reserve {
            key: ReceiptKey { consumer: name(consumer), source: name(source), key },
            event_id: Some(EventId::new(id).expect("an id")),
            correlation_id: None,
            body: Digest::of(b"body"),
            lease: Duration::from_secs(60),
            max_attempts: 20,
            other_body: OtherBody::Accept,
            unclear: Unclear::RunAgain,
        };
        match self.store.reserve(request).await.expect("to reserve") {
            Reserved::Acquired(lease) => lease,
            other => panic!("not acquired: {other:?}"),
        }
    }

    async fn succeeded(&self, consumer: &str, source: &str, key: &str, body: &'static [u8]) {
        let lease = self.reserve(consumer, source, key).await;
        self.complete(lease, body).await;
    }

    async fn labelled(&self, consumer: &str, source: &str, key: &str, id: &str) {
        let lease = self.reserve_labelled(consumer, source, key, id).await;
        self.complete(lease, b"").await;
    }

    async fn complete(&self, lease: Lease, body: &'static [u8]) {
        let mut headers = HeaderMap::new();
        headers.append("x-answer", HeaderValue::from_static("one"));
        headers.append("x-answer", HeaderValue::from_static("two"));
        let body = ResultBody::Kept(Bytes::from_static(body));
        let result = StoredResult { status: StatusCode::OK, headers, body };
        assert_eq!(self.store.complete(lease, result).await.expect("to complete"), Settled::Done);
    }

    async fn dead(&self, consumer: &str, source: &str, key: &str, error: &str) {
        let lease = self.reserve(consumer, source, key).await;
        let request = KeptRequest {
            method: Method::POST,
            target: "/hooks?token=hunter2".into(),
            headers: HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]),
            body: Bytes::from_static(b"{}"),
            proof: "{}".into(),
        };
        let failure = Failure {
            error: error.into(),
            result: None,
            dead: Some("given up".into()),
            request: Some(request),
            retry_in: None,
        };
        assert_eq!(self.store.fail(lease, failure).await.expect("to fail"), Settled::Done);
    }
}
