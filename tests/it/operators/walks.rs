//! What a walk gave up, keeps for a person, or is late with.

use std::time::{Duration, Instant};

use countersign::store::{Endpoint, Enqueue, Message, OutboxStore as _, SqliteStore};
use countersign::{EventId, Name};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::{Noting, Started, eventually, script};
use crate::dispatch::{Receiver, status};
use crate::gateway::Application;
use crate::support::{Gate, SECRET, client, request, send, standard, standard_at, unix_now};

/// A store in a file with endpoints, for programs.
struct Shop {
    folder: tempfile::TempDir,
    store: SqliteStore,
}

impl Shop {
    async fn new(endpoints: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path().join("events.db")).await.expect("a store");
        for (name, url) in endpoints {
            let mut endpoint = Endpoint::new(Name::new(name).expect("a name"), url.as_str());
            endpoint.secrets = vec!["env:TEST_SECRET".to_owned()];
            store.put_endpoint(endpoint).await.expect("it is there");
        }
        Self { folder, store }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("events.db").display())
    }

    async fn enqueue(&self, endpoint: &str, id: &str, payload: &'static str) {
        let message = Message::new(EventId::new(id).expect("an id"), Name::new("order.paid").expect("a type"), payload);
        let to = Name::new(endpoint).expect("a name");
        self.store.enqueue(vec![Enqueue::new(to, message)]).await.expect("it is there");
    }

    async fn dispatch(&self, more: &[&str]) -> Started {
        let url = self.url();
        let args =
            ["dispatch", "--allow-http", "--allow", "127.0.0.1", "--store", &url, "--admin-listen", "127.0.0.1:0"];
        Started::new(&[&args[..], more].concat(), 1).await
    }

    async fn receive(&self, upstream: &str, more: &[&str]) -> Started {
        let url = self.url();
        let args = ["receive", "--listen", "127.0.0.1:0", "--scheme", "standard", "--secret-env", "TEST_SECRET"];
        Started::new(&[&args[..], &["--upstream", upstream, "--store", &url], more].concat(), 1).await
    }
}

/// The notices of this kind that an endpoint got, each signed as it should be.
fn told(operator: &Receiver, kind: &str) -> Vec<Value> {
    let seen = operator.seen().into_iter().filter(|seen| seen.header("webhook-type") == kind);
    seen.map(|seen| {
        let expected = standard_at(SECRET, seen.header("webhook-id"), seen.header("webhook-timestamp"), &seen.body);
        assert_eq!(seen.headers["webhook-signature"], expected["webhook-signature"]);
        serde_json::from_slice(&seen.body).expect("JSON")
    })
    .collect()
}

const PAYLOAD: &[u8] = b"{\"card\":\"4242 4242\"}";

async fn gives_up_and_tells(mode: &str) {
    let operator = Receiver::with_statuses(&[200]).await;
    let shop = Shop::new(&[("ops", operator.url())]).await;
    let noting = Noting::new(shop.folder.path());
    let application = Application::default();
    application.answers(StatusCode::BAD_REQUEST, &[("countersign-outcome", "permanent")], "no such account");
    let more = ["--operator-endpoint", "ops", "--operator-command", noting.path(), "--mode", mode];
    let receiver = shop.receive(&application.start().await, &more).await;
    let _dispatcher = shop.dispatch(&[]).await;

    let url = receiver.addresses[0].as_str();
    send(&client(false), request(url, standard("evt_1", PAYLOAD), PAYLOAD)).await;
    eventually("the endpoint is told", async || !told(&operator, "event.dead").is_empty()).await;
    eventually("the command is told", async || !noting.of("event.dead").is_empty()).await;
    let (by_endpoint, by_command) = (told(&operator, "event.dead"), noting.of("event.dead"));
    assert_eq!((by_endpoint.len(), by_command.len()), (1, 1));
    assert_eq!(by_endpoint, by_command);
    let notice = &by_endpoint[0];
    for (field, value) in [("consumer", "standard"), ("source", "standard"), ("key", "evt_1"), ("event_id", "evt_1")] {
        assert_eq!(notice[field], value, "{field}");
    }
    assert_eq!(notice["attempts"], 1);
    assert!(notice["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{notice}");
    assert!(!notice.to_string().contains("4242"), "no payload");
}

#[tokio::test]
async fn a_dead_event_leads_to_a_signed_webhook_and_to_a_run_of_the_command() {
    gives_up_and_tells("inline").await;
}

#[tokio::test]
async fn so_does_one_that_died_behind_its_request() {
    gives_up_and_tells("deferred").await;
}

#[tokio::test]
async fn an_event_in_quarantine_is_told_once_however_often_it_comes() {
    let shop = Shop::new(&[]).await;
    let noting = Noting::new(shop.folder.path());
    let application = Application::default();
    let more = ["--operator-command", noting.path(), "--stale", "quarantine"];
    let mut receiver = shop.receive(&application.start().await, &more).await;
    for _ in 0..2 {
        let stale = (unix_now() - 3_600).to_string();
        let url = receiver.addresses[0].as_str();
        let signed = standard_at(SECRET, "evt_1", &stale, PAYLOAD);
        let answer = send(&client(false), request(url, signed, PAYLOAD)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
    }
    assert!(receiver.stop().await.success());
    let told = noting.of("event.quarantined");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["key"], "evt_1");
}

#[tokio::test]
async fn a_dead_message_and_a_disabled_endpoint_are_told_both_ways() {
    let (operator, picky, gone) = (
        Receiver::with_statuses(&[200]).await,
        Receiver::with_statuses(&[400]).await,
        Receiver::with_statuses(&[410]).await,
    );
    let shop = Shop::new(&[("ops", operator.url()), ("picky", picky.url()), ("gone", gone.url())]).await;
    let noting = Noting::new(shop.folder.path());
    shop.enqueue("picky", "msg_1", "{\"card\":\"4242\"}").await;
    shop.enqueue("gone", "msg_2", "{}").await;
    let _dispatcher = shop.dispatch(&["--operator-endpoint", "ops", "--operator-command", noting.path()]).await;
    for (kind, field, value) in [("message.dead", "id", "msg_1"), ("endpoint.disabled", "endpoint", "gone")] {
        eventually(kind, async || !told(&operator, kind).is_empty() && !noting.of(kind).is_empty()).await;
        for notice in [&told(&operator, kind)[0], &noting.of(kind)[0]] {
            assert_eq!(notice[field], value, "{notice}");
            assert!(!notice.to_string().contains("4242"), "no payload");
        }
    }
}

#[tokio::test]
async fn a_command_that_hangs_stops_neither_deliveries_nor_the_webhook_nor_the_end() {
    let (operator, picky) = (Receiver::with_statuses(&[200]).await, Receiver::with_statuses(&[400]).await);
    let shop = Shop::new(&[("ops", operator.url()), ("picky", picky.url())]).await;
    let hangs = script(shop.folder.path(), "hang", "exec sleep 3600");
    let command = hangs.to_str().expect("UTF-8");
    let mut dispatcher = shop.dispatch(&["--operator-endpoint", "ops", "--operator-command", command]).await;
    for id in ["msg_1", "msg_2", "msg_3"] {
        shop.enqueue("picky", id, "{}").await;
    }
    eventually("all are given up, and told", async || told(&operator, "message.dead").len() == 3).await;
    assert_eq!(picky.seen().len(), 3);

    let mut asked = request(&format!("{}/metrics", dispatcher.addresses[0]), HeaderMap::new(), "");
    *asked.method_mut() = http::Method::GET;
    let metrics = client(false).request(asked).await.expect("an answer").into_body().collect().await.expect("a body");
    let metrics = String::from_utf8(metrics.to_bytes().into()).expect("text");
    let counted = "countersign_notices_total{operator=\"endpoint\",notice=\"message.dead\",outcome=\"told\"} 3";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");

    let asked = Instant::now();
    assert!(dispatcher.stop().await.success());
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_when_operators_know_what_it_gave_up_last() {
    let (operator, picky) = (Receiver::with_statuses(&[503, 200]).await, Receiver::with_statuses(&[400]).await);
    let shop = Shop::new(&[("ops", operator.url()), ("picky", picky.url())]).await;
    shop.enqueue("picky", "msg_1", "{}").await;
    // Longer than what waits is told after an end by a signal.
    let (written, asked) = (shop.folder.path().join("written"), shop.url());
    let slow = script(shop.folder.path(), "slow", &format!("sleep 7; cat > '{}'", written.display()));
    let args = ["dispatch", "--drain", "--allow-http", "--allow", "127.0.0.1", "--retry-first", "0", "--store", &asked];
    let more = ["--operator-endpoint", "ops", "--operator-command", slow.to_str().expect("UTF-8")];
    let program = crate::cli::countersign([&args[..], &more].concat());
    let ended = tokio::task::spawn_blocking(move || program.env("TEST_SECRET", SECRET).run());
    assert!(ended.await.expect("no panic").exits(1).shows_on_stderr("messages were given up"));
    assert_eq!(told(&operator, "message.dead").len(), 2, "an attempt that failed, and one that did not");
    let written = std::fs::read_to_string(written).expect("the command came to its end");
    assert!(written.contains("msg_1"), "{written}");
}

#[tokio::test]
async fn what_a_command_started_is_killed_with_it() {
    let picky = Receiver::with_statuses(&[400]).await;
    let shop = Shop::new(&[("picky", picky.url())]).await;
    let (begun, outlived) = (shop.folder.path().join("begun"), shop.folder.path().join("outlived"));
    let lines = format!("(sleep 8; touch '{}') &\ntouch '{}'\nwait", outlived.display(), begun.display());
    let hangs = script(shop.folder.path(), "hang", &lines);
    let mut dispatcher = shop.dispatch(&["--operator-command", hangs.to_str().expect("UTF-8")]).await;
    shop.enqueue("picky", "msg_1", "{}").await;
    eventually("it runs", async || begun.exists()).await;
    assert!(dispatcher.stop().await.success());
    // Longer than what it started would have slept.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(!outlived.exists());
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_is_refused_before_anything_begins() {
    let shop = Shop::new(&[]).await;
    let plain = shop.folder.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("a file");
    let ended =
        crate::cli::countersign(["dispatch", "--drain", "--operator-command", plain.to_str().expect("UTF-8")]).run();
    assert!(ended.exits(2).shows_on_stderr("chmod +x"));
}

#[tokio::test]
async fn a_command_that_fails_is_counted_and_the_next_notice_is_told() {
    let picky = Receiver::with_statuses(&[400]).await;
    let shop = Shop::new(&[("picky", picky.url())]).await;
    let told = shop.folder.path().join("told");
    let lines = format!("cat > /dev/null; echo x >> '{}'; exit 7", told.display());
    let fails = script(shop.folder.path(), "fail", &lines);
    let dispatcher = shop.dispatch(&["--operator-command", fails.to_str().expect("UTF-8")]).await;
    for id in ["msg_1", "msg_2"] {
        shop.enqueue("picky", id, "{}").await;
    }
    let runs = || std::fs::read_to_string(&told).unwrap_or_default().lines().count();
    eventually("both runs", async || runs() == 2).await;
    let admin = dispatcher.addresses[0].clone();
    let counted = "countersign_notices_total{operator=\"command\",notice=\"message.dead\",outcome=\"failed\"} 2";
    eventually("both are counted", async || {
        let mut asked = request(&format!("{admin}/metrics"), HeaderMap::new(), "");
        *asked.method_mut() = http::Method::GET;
        let answer = client(false).request(asked).await.expect("an answer");
        let text = answer.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8_lossy(&text).lines().any(|line| line == counted)
    })
    .await;
}

#[tokio::test]
async fn a_backlog_that_is_too_old_is_told_when_it_begins_and_when_it_is_over() {
    let gate = Gate::default();
    let slow = {
        let gate = gate.clone();
        Receiver::answering(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                status(200)
            }
        })
        .await
    };
    let shop = Shop::new(&[("slow", slow.url())]).await;
    let noting = Noting::new(shop.folder.path());
    for id in ["msg_1", "msg_2"] {
        shop.enqueue("slow", id, "{}").await;
    }
    let more = ["--operator-command", noting.path(), "--overdue-after", "1s", "--endpoint-concurrency", "1"];
    let _dispatcher = shop.dispatch(&[&more[..], &["--timeout", "50s", "--lease", "60s"]].concat()).await;
    eventually("it begins", async || !noting.of("backlog.overdue").is_empty()).await;
    gate.open();
    eventually("it is over", async || !noting.of("backlog.recovered").is_empty()).await;
    let (begun, over) = (noting.of("backlog.overdue"), noting.of("backlog.recovered"));
    assert_eq!((begun.len(), over.len()), (1, 1), "not each time that it is seen");
    assert_eq!(
        (&begun[0]["walk"], &begun[0]["name"], &begun[0]["limit_seconds"]),
        (&"outbox".into(), &"slow".into(), &1.into())
    );
    assert_eq!(begun[0]["since"], over[0]["since"]);
}
