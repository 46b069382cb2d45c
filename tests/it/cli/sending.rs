//! The sender's commands: endpoints, messages, dispatching, and what operators do.

use std::sync::Arc;
use std::time::Duration;

use countersign::EventId;
use countersign::store::{Enqueue, Message, MessageState, OutboxStore as _, SqliteStore};
use serde_json::Value;
use tokio::time::timeout;

use super::{Ended, Program, SECRET, countersign};
use crate::dispatch::{Receiver, Running, Sender, later, named, status};
use crate::gateway::started;

/// A store of its own, and calls of the program on it.
struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn call(&self, args: &[&str]) -> Program {
        let store = format!("sqlite:{}", self.folder.path().join("outbox.db").display());
        countersign(args.iter().copied()).args(["--store", &store])
    }

    fn add(&self, name: &str, url: &str, more: &[&str]) -> Value {
        let added = self.call(&["endpoint", "add", name, "--url", url, "--secret-env", "SECRET", "--json"]);
        added.args(more).run().exits(0).json()
    }

    fn enqueue(&self, endpoint: &str, id: &str) -> Value {
        let enqueued = self.call(&[
            "enqueue",
            "--endpoint",
            endpoint,
            "--type",
            "order.paid",
            "--id",
            id,
            "--body",
            "-",
            "--json",
        ]);
        enqueued.stdin(b"{\"a\":1}").run().exits(0).json()
    }

    /// A drain that may call this machine. It runs off the test's own thread, which serves.
    async fn drain(&self, more: &[&str]) -> Ended {
        let program = self
            .call(&["dispatch", "--drain", "--allow-http", "--allow", "127.0.0.1", "--retry-first", "0", "--json"])
            .args(more);
        run_beside(program).await
    }

    fn list(&self, args: &[&str]) -> Vec<Value> {
        let listed = self.call(&["outbox", "list", "--json"]).args(args).run().exits(0).json();
        listed.as_array().expect("an array").clone()
    }
}

/// Blocks another thread than the one that serves the receivers.
async fn run_beside(program: Program) -> Ended {
    tokio::task::spawn_blocking(|| program.run()).await.expect("it ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_delivered_and_shown_with_its_attempts() {
    let receiver = Receiver::with_statuses(&[503, 200]).await;
    let shop = Shop::new();
    let added = shop.add("shop", &receiver.url(), &["--types", "order.*", "--header", "x-tenant: 7"]);
    assert_eq!(added["secrets"], serde_json::json!(["env:SECRET"]), "the reference, never the secret");
    assert_eq!(
        (&added["name"], &added["enabled"], &added["scheme"]),
        (&"shop".into(), &true.into(), &"standard".into())
    );
    shop.add("other", &receiver.url(), &["--types", "user.*"]);

    let publish = || {
        let args = [
            "publish",
            "--type",
            "order.paid",
            "--id",
            "msg_1",
            "--ordering-key",
            "o1",
            "--correlation-id",
            "c1",
            "--body",
            "-",
            "--json",
        ];
        shop.call(&args).stdin(b"{\"a\":1}").run().exits(0).json()
    };
    let published = publish();
    assert_eq!(published, serde_json::json!({ "messages": [{ "id": "msg_1", "endpoint": "shop", "created": true }] }));
    assert_eq!(publish()["messages"][0]["created"], false);
    assert_eq!(shop.list(&["--state", "pending"]).len(), 1);

    let drained = shop.drain(&[]).await.exits(0).json();
    assert_eq!((&drained["delivered"], &drained["retried"], &drained["dead"]), (&1.into(), &1.into(), &0.into()));
    let listed = shop.list(&["--endpoint", "shop"]);
    for field in [
        "id",
        "endpoint",
        "type",
        "state",
        "attempts",
        "replays",
        "due",
        "created",
        "updated",
        "last_status",
        "last_error",
    ] {
        assert!(listed[0].get(field).is_some(), "{field}");
    }
    assert_eq!(
        (&listed[0]["state"], &listed[0]["attempts"], &listed[0]["last_status"]),
        (&"succeeded".into(), &2.into(), &200.into())
    );
    let shown = shop.call(&["outbox", "show", "msg_1", "--json"]).run().exits(0).json();
    assert_eq!(shown["log"].as_array().map(Vec::len), Some(2));
    assert_eq!((&shown["log"][0]["status"], &shown["log"][0]["kind"]), (&503.into(), &"status".into()));
    assert_eq!(shown["payload"]["text"], "{\"a\":1}");
    let page = shop.call(&["outbox", "show", "msg_1"]).run().exits(0).text();
    assert!(page.contains("ordering key") && page.contains("503"), "{page}");

    let seen = receiver.seen();
    assert_eq!((seen[0].header("x-tenant"), seen[0].header("correlation-id")), ("7", "c1"));
    let webhook = standardwebhooks::Webhook::new(SECRET).expect("a secret");
    assert!(webhook.verify(&seen[1].body, &seen[1].headers).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_correlation_id_both_ends_show_all_that_belongs_to_it() {
    let (gateway, application, folder) = started(&[]).await;
    let shop = Shop::new();
    shop.add("shop", &format!("{}/", gateway.address), &[]);
    let enqueue = |id: &str, more: &[&str]| {
        let args = ["enqueue", "--endpoint", "shop", "--type", "order.paid", "--id", id, "--body", "-"];
        shop.call(&args).args(more).stdin(b"{}").run().exits(0);
    };
    for (id, flow) in [("msg_1", "order-7"), ("msg_2", "order-7"), ("msg_3", "order-8")] {
        enqueue(id, &["--correlation-id", flow]);
    }
    enqueue("msg_4", &[]);
    shop.drain(&[]).await.exits(0);
    assert_eq!(application.runs(), 4);

    let of = |flow: &str| {
        let inbox = format!("sqlite:{}", folder.path().join("inbox.db").display());
        let received = countersign(["inbox", "list", "--json", "--correlation-id", flow, "--store", &inbox]);
        let received = received.run().exits(0).json().as_array().expect("an array").clone();
        let ids = |listed: Vec<Value>, field: &str| {
            let mut ids: Vec<_> = listed.iter().map(|one| one[field].as_str().expect("an id").to_owned()).collect();
            ids.sort();
            ids
        };
        (ids(shop.list(&["--correlation-id", flow]), "id"), ids(received, "event_id"))
    };
    let all = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(of("order-7"), (all(&["msg_1", "msg_2"]), all(&["msg_1", "msg_2"])));
    assert_eq!(of("order-8"), (all(&["msg_3"]), all(&["msg_3"])));
    assert_eq!(of("ORDER-7"), (all(&[]), all(&[])));
    let inbox = format!("sqlite:{}", folder.path().join("inbox.db").display());
    let shown = |more: &[&str]| countersign(["inbox", "show", "msg_1", "--store", &inbox]).args(more).run().exits(0);
    assert_eq!(shown(&["--json"]).json()["correlation_id"], "order-7");
    assert!(shown(&[]).text().lines().any(|line| line.starts_with("correlation") && line.ends_with("order-7")));

    // What was given up of one flow is sent again, and nothing else.
    let replay = shop.call(&["outbox", "replay", "--all-dead", "--correlation-id", "order-7", "--json"]);
    assert_eq!(replay.run().exits(0).json()["messages"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn c155_a_drain_in_which_something_dies_ends_in_1_and_a_replay_brings_it_to_success() {
    let receiver = Receiver::with_statuses(&[400, 200]).await;
    let shop = Shop::new();
    shop.add("shop", &receiver.url(), &[]);
    shop.enqueue("shop", "msg_1");
    let drained = shop.drain(&[]).await.exits(1);
    assert_eq!(drained.json()["dead"], 1);
    shop.drain(&[]).await.exits(0);
    let dead = shop.list(&["--state", "dead_letter"]);
    assert!(dead[0]["reason"].as_str().is_some_and(|reason| reason.contains("400")));

    let replay = |args: &[&str]| shop.call(&["outbox", "replay", "--json"]).args(args.iter().copied()).run();
    assert_eq!(replay(&["msg_1"]).exits(0).json()["replayed"], 1);
    replay(&["msg_1"]).exits(1).says("pending");
    replay(&["msg_2"]).exits(1).says("no message has the id");
    assert_eq!(replay(&["--all-dead"]).exits(0).json()["replayed"], 0);
    replay(&[]).exits(2);
    shop.drain(&[]).await.exits(0);
    assert_eq!(shop.list(&[])[0]["replays"], 1);
    replay(&["msg_1"]).exits(1).says("succeeded");
    assert_eq!(replay(&["msg_1", "--succeeded"]).exits(0).json()["replayed"], 1);
    let cancelled = shop.call(&["outbox", "cancel", "msg_1", "--json"]).run().exits(0).json();
    assert_eq!(cancelled["cancelled"], 1);
    shop.call(&["outbox", "cancel", "msg_1"]).run().exits(1).says("cancelled");
    assert_eq!(receiver.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_dead_letters_of_an_endpoint_are_replayed_at_a_rate() {
    let receiver = Receiver::answering(async |seen| status(if seen.before < 5 { 400 } else { 200 })).await;
    let shop = Shop::new();
    shop.add("shop", &receiver.url(), &[]);
    for number in 0..5 {
        shop.enqueue("shop", &format!("msg_{number}"));
    }
    shop.drain(&[]).await.exits(1);
    let args = ["outbox", "replay", "--all-dead", "--endpoint", "shop", "--rate", "5", "--json"];
    assert_eq!(shop.call(&args).run().exits(0).json()["replayed"], 5);
    shop.drain(&[]).await.exits(0);
    let seen = receiver.seen();
    assert_eq!(seen.len(), 10);
    // The first ones are late by as long as the process takes to start.
    assert!(seen[9].at - seen[5].at >= Duration::from_millis(150), "{:?}", seen[9].at - seen[5].at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_large_backlog_ends_although_all_of_it_dies_again_meanwhile() {
    const DEAD: usize = 1_100;
    let receiver = Receiver::with_statuses(&[400]).await;
    let shop = Shop::new();
    let store = SqliteStore::open(shop.folder.path().join("outbox.db")).await.expect("a store");
    let sender = Sender::new(Arc::new(store.clone()));
    sender.endpoint("shop", receiver.url()).await;
    let message =
        |number| Message::new(EventId::new(&format!("msg_{number}")).expect("an id"), named("order.paid"), "{}");
    let messages = (0..DEAD).map(|number| Enqueue::new(named("shop"), message(number))).collect();
    store.enqueue(messages).await.expect("the store answers");
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;

    let replay = shop.call(&["outbox", "replay", "--all-dead", "--rate", "1000", "--json"]);
    let replayed = timeout(Duration::from_secs(120), run_beside(replay)).await.expect("it ends").exits(0).json();
    assert_eq!(replayed["replayed"], DEAD);
    sender.until_done().await;
    running.stop().await;
    let all = sender.all().await;
    assert!(all.iter().all(|entry| (entry.state, entry.replays) == (MessageState::DeadLetter, 1)), "each once");
    store.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn c124_a_test_message_is_sent_at_once_and_changes_nothing() {
    let receiver = Receiver::answering(async |seen| if seen.before == 0 { later(503, 60) } else { status(200) }).await;
    let shop = Shop::new();
    shop.add("shop", &receiver.url(), &[]);
    let list = || shop.call(&["endpoint", "list", "--json"]).run().exits(0).json();
    let before = list();
    let test =
        || run_beside(shop.call(&["endpoint", "test", "shop", "--json", "--allow-http", "--allow", "127.0.0.1"]));
    let failed = test().await.exits(1);
    assert_eq!((&failed.json()["delivered"], &failed.json()["status"]), (&false.into(), &503.into()));
    assert_eq!(test().await.exits(0).json()["delivered"], true);
    assert_eq!(list(), before);
    assert!(shop.list(&[]).is_empty());
    let denied = run_beside(shop.call(&["endpoint", "test", "shop", "--json"])).await.exits(1);
    assert_eq!(denied.json()["kind"], "policy");
    run_beside(shop.call(&["endpoint", "test", "nobody"])).await.exits(1).says("no endpoint");
    assert_eq!(receiver.seen().len(), 2);
}

#[test]
fn c141_a_check_says_which_rule_speaks_against_a_url_and_what_would_allow_it() {
    let check = |args: &[&str]| countersign(["endpoint", "check", "--json"]).args(args.iter().copied()).run();
    let denied = check(&["https://10.0.0.24:8079/in"]).exits(1);
    let verdict = denied.json();
    assert_eq!(
        (&verdict["allowed"], &verdict["host"], &verdict["address"]),
        (&false.into(), &"10.0.0.24".into(), &"10.0.0.24".into())
    );
    assert!(verdict["rule"].as_str().is_some_and(|rule| rule.contains("private")));
    assert!(verdict["setting"].as_str().is_some_and(|setting| setting.contains("10.0.0.24")));
    for args in [
        &["https://10.0.0.24:8079/in", "--allow", "10.0.0.24/32:8079"][..],
        &["https://10.0.0.24:8079/in", "--dangerous-allow-private-targets"],
        &["http://8.8.8.8/", "--allow-http"],
        &["https://8.8.8.8/"],
    ] {
        let verdict = check(args).exits(0).json();
        assert_eq!((&verdict["allowed"], &verdict["rule"]), (&true.into(), &Value::Null), "{args:?}");
    }
    for args in [
        &["https://10.0.0.24:22/in", "--allow", "10.0.0.24/32:8079"][..],
        &["http://8.8.8.8/"],
        &["https://0x7f.1/"],
        &["https://[::ffff:a9fe:a9fe]/"],
    ] {
        assert_eq!(check(args).exits(1).json()["allowed"], false, "{args:?}");
    }
    check(&["nonsense"]).exits(2);
    check(&["https://8.8.8.8/", "--allow", "a b"]).exits(2);
    check(&["https://no-such-host.invalid/"]).exits(3);
}

#[test]
fn endpoints_are_enabled_disabled_changed_and_removed() {
    let shop = Shop::new();
    shop.add(
        "shop",
        "https://shop.example/hooks",
        &["--max-in-flight", "2", "--rate", "10", "--verdict", "404=retry", "--on-dead", "skip"],
    );
    shop.enqueue("shop", "msg_1");
    let one = |args: &[&str]| shop.call(args).args(["--json"]).run().exits(0).json();
    assert_eq!(one(&["endpoint", "disable", "shop", "--reason", "maintenance"])["disabled"], true);
    let listed = one(&["endpoint", "list"]);
    assert_eq!((&listed[0]["enabled"], &listed[0]["disabled"]), (&false.into(), &"maintenance".into()));
    assert_eq!(listed[0]["settings"]["max_in_flight"], 2);
    assert_eq!(listed[0]["settings"]["on_dead"], "skip");
    // New settings, the old state.
    shop.add("shop", "https://shop.example/other", &[]);
    let listed = one(&["endpoint", "list"]);
    assert_eq!((&listed[0]["url"], &listed[0]["enabled"]), (&"https://shop.example/other".into(), &false.into()));
    assert_eq!(one(&["endpoint", "enable", "shop"])["enabled"], true);
    assert_eq!(one(&["endpoint", "list"])[0]["enabled"], true);
    assert_eq!(one(&["endpoint", "remove", "shop"])["removed"], true);
    assert_eq!(shop.list(&[])[0]["state"], "dead_letter");
    for command in ["enable", "disable", "remove"] {
        shop.call(&["endpoint", command, "shop"]).run().exits(1).says("no endpoint");
    }
    let table = shop.call(&["endpoint", "list"]).run().exits(0).text();
    assert!(table.starts_with("NAME"), "{table}");
}

#[test]
fn c110_what_cannot_be_an_endpoint_or_a_message_is_refused_as_wrong_usage() {
    let shop = Shop::new();
    let add = |more: &[&str]| {
        let args = ["endpoint", "add", "shop", "--secret-env", "SECRET"];
        shop.call(&args).args(more.iter().copied()).run()
    };
    let url = ["--url", "https://shop.example/"];
    for more in [
        &["--url", "nonsense"][..],
        &["--url", "https://user:pass@shop.example/"],
        &["--url", "https://shop.example/", "--header", "Webhook-Signature: x"],
        &["--url", "https://shop.example/", "--header", "content-length: 1"],
        &["--url", "https://shop.example/", "--header", "Content-Type : x"],
        &["--url", "https://shop.example/", "--header", "no colon"],
        &["--url", "https://shop.example/", "--scheme", "no-such"],
        &["--url", "https://shop.example/", "--verdict", "404=perhaps"],
        &["--url", "https://shop.example/", "--secret-env", "TOO_SHORT"],
        &[],
    ] {
        let ended = shop.call(&["endpoint", "add", "shop", "--secret-env", "SECRET"]).env("TOO_SHORT", "whsec_QQ==");
        ended.args(more.iter().copied()).run().exits(2);
    }
    let no_secret = shop.call(&["endpoint", "add", "shop"]).args(url).run().exits(2);
    assert!(no_secret.stderr.contains("--secret-env"));
    // Wherever it is dispatched from must have the variable; here it need not be.
    let absent = add(&["--url", "http://127.0.0.1/", "--secret-env", "ABSENT_SECRET"]).exits(0);
    assert!(absent.stderr.contains("ABSENT_SECRET") && absent.stderr.contains("127.0.0.1"), "{}", absent.stderr);

    let enqueue =
        |more: &[&str]| shop.call(&["enqueue", "--type", "t", "--body", "-"]).args(more.iter().copied()).run();
    enqueue(&["--endpoint", "nobody"]).exits(1).says("no endpoint");
    enqueue(&["--endpoint", "shop", "--id", "a.b"]).exits(2).says("dot");
    enqueue(&["--endpoint", "shop", "--content-type", "a\nb"]).exits(2);
    enqueue(&["--endpoint", "shop", "--traceparent", " x"]).exits(2);
    shop.call(&["enqueue", "--endpoint", "shop", "--type", "t", "--body", "/no/such/file"]).run().exits(3);
    assert!(shop.list(&[]).is_empty());
    let nobody = shop.call(&["publish", "--type", "t", "--body", "-", "--json"]).run().exits(0);
    assert_eq!(nobody.json()["messages"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_several_endpoints_is_shown_and_cancelled_for_one_of_them() {
    let shop = Shop::new();
    for name in ["one", "two"] {
        shop.add(name, "https://shop.example/", &["--types", "*"]);
    }
    let published = shop.call(&["publish", "--type", "t", "--id", "msg_1", "--body", "-"]).run().exits(0).text();
    assert_eq!(published.lines().count(), 2);
    for command in ["show", "cancel"] {
        let ambiguous = shop.call(&["outbox", command, "msg_1"]).run().exits(2);
        assert!(ambiguous.stderr.contains("--endpoint"));
    }
    shop.call(&["outbox", "cancel", "msg_1", "--endpoint", "one"]).run().exits(0);
    let states: Vec<_> = ["one", "two"].map(|name| shop.list(&["--endpoint", name])[0]["state"].clone()).into();
    assert_eq!(states, ["cancelled", "pending"]);
    let purged = shop.call(&["purge", "--keep-messages", "0", "--keep-results", "0", "--json"]).run().exits(0).json();
    assert_eq!(purged["messages"], 1);
}

#[test]
fn c077_a_dispatcher_whose_lease_is_too_short_does_not_start() {
    let shop = Shop::new();
    shop.call(&["dispatch", "--drain", "--timeout", "30s", "--lease", "20s"]).run().exits(2).says("lease");
    shop.call(&["dispatch", "--drain"]).run().exits(0);
}
