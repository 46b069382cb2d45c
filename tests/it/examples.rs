//! The examples, as the programs that they are: they answer over HTTP, and stop when they are told to.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use axum::http::StatusCode;
use http::HeaderMap;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::dispatch::Receiver;
use super::support::{
    Answer, OTHER_SECRET, SECRET, TEXT_SECRET, client, github, headers, hex, hmac_sha256, request, send, standard,
    standard_at, stripe, unix_now,
};

#[tokio::test]
async fn axum_receiver_handles_each_event_once() {
    let example = Example::start("axum_receiver", &[("WEBHOOK_SECRET", SECRET)]).await;
    let paid = r#"{"type":"order.paid","order":"o1"}"#;
    let deliver = async |id, body: &'static str| example.post("/webhooks", standard(id, body.as_bytes()), body).await;
    let first = deliver("evt_1", paid).await;
    assert_eq!((first.status, first.text().as_str(), first.is_replay()), (StatusCode::OK, r#"{"order":"o1"}"#, false));
    let repeat = deliver("evt_1", paid).await;
    assert_eq!((repeat.text(), repeat.is_replay()), (first.text(), true));
    assert_eq!(deliver("evt_2", r#"{"type":"order.new"}"#).await.status, StatusCode::ACCEPTED);
    for replayed in [false, true] {
        let answer = deliver("evt_3", r#"{"type":"order.deleted"}"#).await;
        assert_eq!((answer.status, answer.is_replay()), (StatusCode::UNPROCESSABLE_ENTITY, replayed));
    }
    let forged = example.post("/webhooks", standard("evt_4", b"{}"), paid).await;
    assert_eq!(forged.status, StatusCode::UNAUTHORIZED);

    let printed = example.stop().await;
    assert_eq!(printed.iter().filter(|line| line.contains("order o1 is paid")).count(), 1, "{printed:?}");
}

#[tokio::test]
async fn hyper_receiver_handles_each_event_once() {
    let example = Example::start("hyper_receiver", &[("WEBHOOK_SECRET", SECRET)]).await;
    let first = example.post("/webhooks", standard("evt_1", b"{}"), "{}").await;
    assert_eq!((first.status, first.text().as_str(), first.is_replay()), (StatusCode::OK, "handled evt_1", false));
    let repeat = example.post("/webhooks", standard("evt_1", b"{}"), "{}").await;
    assert_eq!((repeat.text().as_str(), repeat.is_replay()), ("handled evt_1", true));
    assert_eq!(example.post("/elsewhere", standard("evt_2", b"{}"), "{}").await.status, StatusCode::NOT_FOUND);
    assert_eq!(example.post("/webhooks", HeaderMap::new(), "{}").await.status, StatusCode::UNAUTHORIZED);

    let printed = example.stop().await;
    assert_eq!(printed.iter().filter(|line| line.contains("event evt_1")).count(), 1, "{printed:?}");
}

#[tokio::test]
async fn custom_scheme_knows_an_event_by_the_id_in_its_body() {
    let example = Example::start("custom_scheme", &[("ACME_SECRET", TEXT_SECRET)]).await;
    for (delivery, replayed) in [(1, false), (2, true)] {
        let body = format!(r#"{{"event":{{"id":"evt_1"}},"delivery":{delivery}}}"#);
        let answer = example.post("/acme", acme(unix_now(), &body), body).await;
        assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "handled evt_1"));
        assert_eq!(answer.is_replay(), replayed);
    }
    let late = example.post("/acme", acme(unix_now() - 200, "{}"), "{}").await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED, "its window is narrower than the usual one");
    example.stop().await;
}

#[tokio::test]
async fn shared_store_keeps_sources_apart_and_handlers_running_past_the_time_out() {
    let secrets = [("GITHUB_SECRET", TEXT_SECRET), ("STRIPE_SECRET", TEXT_SECRET)];
    let example = Example::start("shared_store", &secrets).await;
    let body = r#"{"id":"evt_1"}"#;
    for (path, headers) in [("/github", github(None, body.as_bytes())), ("/stripe", stripe(body.as_bytes()))] {
        for replayed in [false, true] {
            let answer = example.post(path, headers.clone(), body).await;
            assert_eq!((answer.status, answer.is_replay()), (StatusCode::OK, replayed), "{path}");
            assert_eq!(answer.text(), format!("handled for {}", &path[1..]));
        }
    }
    let slow = r#"{"id":"evt_2","pause_ms":2500}"#;
    let timed_out = example.post("/stripe", stripe(slow.as_bytes()), slow).await;
    assert_eq!(timed_out.status, StatusCode::SERVICE_UNAVAILABLE);
    // The handler went on, and its result is there.
    super::support::until("the result is there", async || {
        let answer = example.post("/stripe", stripe(slow.as_bytes()), slow).await;
        answer.status == StatusCode::OK && answer.is_replay()
    })
    .await;
    let printed = example.stop().await;
    assert_eq!(printed.iter().filter(|line| *line == "an event from stripe").count(), 2, "{printed:?}");
}

#[tokio::test]
async fn deferred_answers_at_once_and_ships_each_order_once() {
    let example = Example::start("deferred", &[("WEBHOOK_SECRET", SECRET)]).await;
    let deliver = async |id, body: &'static str| example.post("/webhooks", standard(id, body.as_bytes()), body).await;
    let flaky = r#"{"order":"o1","parcels":2}"#;
    assert_eq!(deliver("evt_1", flaky).await.status, StatusCode::ACCEPTED);
    assert_eq!(deliver("evt_1", flaky).await.status, StatusCode::ACCEPTED);
    assert_eq!(deliver("evt_2", r#"{"order":"o1","parcels":1}"#).await.status, StatusCode::ACCEPTED);
    assert_eq!(deliver("evt_3", "no shipment").await.status, StatusCode::ACCEPTED);
    for (id, body, status) in
        [("evt_1", flaky, StatusCode::NO_CONTENT), ("evt_3", "no shipment", StatusCode::UNPROCESSABLE_ENTITY)]
    {
        super::support::until("it has an end", async || {
            let answer = deliver(id, body).await;
            answer.is_replay() && answer.status == status
        })
        .await;
    }
    let printed = example.stop().await;
    let shipped: Vec<_> = printed.iter().filter(|line| line.starts_with("order o1 is shipped")).collect();
    assert!(shipped[0].ends_with("(event evt_1, run 2)"), "in their order: {printed:?}");
    assert!(shipped.len() == 1 || shipped[1].ends_with("(event evt_2, run 1)"), "{printed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_once_books_each_payout_once_and_finds_a_transfer_that_was_made_before() {
    let example = Example::start("exactly_once", &[("WEBHOOK_SECRET", SECRET)]).await;
    let payment = r#"{"account":"alice","cents":500}"#;
    let deliver =
        async |path, id: &str, body: &'static str| example.post(path, standard(id, body.as_bytes()), body).await;
    let deliveries = (0..24).map(|number| format!("evt_{}", number % 8));
    let answers = deliveries.map(async |id| deliver("/payouts", &id, payment).await.status);
    for status in futures_util::future::join_all(answers).await {
        assert!([StatusCode::OK, StatusCode::CONFLICT].contains(&status), "{status}");
    }
    for number in 0..8 {
        let repeat = deliver("/payouts", &format!("evt_{number}"), payment).await;
        let got = (repeat.status, repeat.text(), repeat.is_replay());
        assert_eq!(got, (StatusCode::OK, "500 cents for alice".to_owned(), true));
    }
    let balance = example.ask("/accounts/alice").await;
    assert_eq!(balance.text(), "4000", "eight payouts of 500 cents");

    // The same id at another endpoint is another event.
    let unlucky = r#"{"account":"unlucky","cents":70}"#;
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::NO_CONTENT] {
        assert_eq!(deliver("/transfers", "evt_1", unlucky).await.status, status);
    }
    assert_eq!(deliver("/payouts", "evt_9", "no payment").await.status, StatusCode::UNPROCESSABLE_ENTITY);

    let printed = example.stop().await;
    let said = |line: &str| printed.iter().filter(|printed| printed.starts_with(line)).count();
    assert_eq!(said("500 cents are booked for alice"), 8, "{printed:?}");
    assert_eq!(said("70 cents are sent to unlucky"), 1, "{printed:?}");
    assert_eq!(said("70 cents had been sent to unlucky by an earlier run"), 1, "{printed:?}");
}

#[tokio::test]
async fn enqueue_commits_an_order_and_its_message_together_and_delivers_it() {
    let shop = Receiver::with_statuses(&[200]).await;
    let variables = [("SHOP_SECRET", SECRET), ("SHOP_URL", &shop.url()), ("ALLOW", "127.0.0.1")];
    let example = Example::start("enqueue", &variables).await;
    let place = async |order: &'static str| {
        example.post("/orders", headers(&[("content-type", "application/json")]), order).await
    };
    let order = r#"{"order":"o1","cents":1250}"#;
    let placed = place(order).await;
    assert_eq!(placed.status, StatusCode::CREATED);
    assert_eq!(place(order).await.status, StatusCode::CONFLICT, "it is there, and nothing more is sent");
    super::support::until("it is delivered", async || !shop.seen().is_empty()).await;
    example.stop().await;
    let seen = shop.seen();
    assert_eq!((seen.len(), seen[0].header("webhook-id")), (1, &*placed.text()));
    assert_eq!((&seen[0].body[..], seen[0].header("webhook-type")), (order.as_bytes(), "order.placed"));
}

#[tokio::test]
async fn relay_sends_on_what_it_received_once_and_signed_anew() {
    let shop = Receiver::with_statuses(&[200]).await;
    let variables =
        [("WEBHOOK_SECRET", OTHER_SECRET), ("SHOP_SECRET", SECRET), ("SHOP_URL", &shop.url()), ("ALLOW", "127.0.0.1")];
    let example = Example::start("relay", &variables).await;
    let body = r#"{"a":1,  "b":2}"#;
    for replayed in [false, true] {
        let signed = standard_at(OTHER_SECRET, "evt_1", &unix_now().to_string(), body.as_bytes());
        let answer = example.post("/webhooks", signed, body).await;
        assert_eq!((answer.status, answer.is_replay()), (StatusCode::NO_CONTENT, replayed));
    }
    super::support::until("it is sent on", async || !shop.seen().is_empty()).await;
    example.stop().await;
    let seen = shop.seen();
    assert_eq!((seen.len(), &seen[0].body[..], seen[0].header("causation-id")), (1, body.as_bytes(), "evt_1"));
    let expected =
        standard_at(SECRET, seen[0].header("webhook-id"), seen[0].header("webhook-timestamp"), body.as_bytes());
    assert_eq!(seen[0].headers["webhook-signature"], expected["webhook-signature"]);
}

#[tokio::test]
async fn orders_places_orders_of_which_a_third_is_cancelled_and_shows_how_they_ended() {
    orders_end(None).await;
}

#[tokio::test]
async fn orders_does_the_same_in_four_schemas_of_one_postgres() {
    if let Some(database) = super::servers::PostgresDatabase::create().await {
        orders_end(Some(&database.url)).await;
    }
}

async fn orders_end(postgres: Option<&str>) {
    let mut command = Command::new(path("orders"));
    command.env("ORDERS_COUNT", "12").env_remove("ORDERS_POSTGRES").kill_on_drop(true);
    if let Some(url) = postgres {
        command.env("ORDERS_POSTGRES", url);
    }
    let output = tokio::time::timeout(Duration::from_secs(120), command.output()).await;
    let output = output.expect("it ends by itself").expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains(r#"{"approved":8,"cancelled":4}"#), "{printed}");
    for line in [r#"stock: {"available":999992,"set_aside":8}"#, r#"payment: {"balance":99984008,"taken":15992}"#] {
        assert!(printed.contains(line), "{printed}");
    }
    assert!(printed.contains("payment.declined") && printed.contains("stock.refused"), "{printed}");
}

#[tokio::test]
async fn c022_an_example_without_its_secret_says_so_and_does_not_start() {
    for (name, variable) in [
        ("axum_receiver", "WEBHOOK_SECRET"),
        ("hyper_receiver", "WEBHOOK_SECRET"),
        ("custom_scheme", "ACME_SECRET"),
        ("deferred", "WEBHOOK_SECRET"),
        ("exactly_once", "WEBHOOK_SECRET"),
        ("shared_store", "GITHUB_SECRET"),
    ] {
        for secret in [None, Some(""), Some("   ")] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut command = Command::new(path(name));
            command.env_remove(variable).env("INBOX", folder.path().join("inbox.db")).kill_on_drop(true);
            if let Some(secret) = secret {
                command.env(variable, secret);
            }
            let output = tokio::time::timeout(Duration::from_secs(10), command.output()).await;
            let output = output.expect("it ends by itself").expect("it runs");
            assert_eq!(output.status.code(), Some(1), "{name} {secret:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(variable), "{name} {secret:?}");
            assert!(output.stdout.is_empty(), "{name} {secret:?}: it does not listen");
        }
    }
}

/// A running example, with a store of its own.
struct Example {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
    url: String,
    _folder: tempfile::TempDir,
}

impl Example {
    async fn start(name: &str, secrets: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(path(name))
            .envs(secrets.iter().copied())
            .env("INBOX", folder.path().join("inbox.db"))
            .env("OUTBOX", folder.path().join("outbox.db"))
            .env_remove("LISTEN")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it runs");
        let mut printed = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = tokio::time::timeout(Duration::from_secs(10), printed.next_line()).await.expect("it starts");
        let Some(first) = first.expect("text") else {
            let mut said = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut said).await.expect("text");
            panic!("{name} did not start: {said}");
        };
        let url = first.strip_prefix("listening on ").expect("where it listens").to_owned();
        Self { child, printed, url, _folder: folder }
    }

    async fn post(&self, path: &str, headers: HeaderMap, body: impl Into<bytes::Bytes>) -> Answer {
        // A connection of its own each time: none is left open that the example would wait for.
        send(&client(false), request(&format!("{}{path}", self.url), headers, body)).await
    }

    async fn ask(&self, path: &str) -> Answer {
        let mut question = request(&format!("{}{path}", self.url), HeaderMap::new(), "");
        *question.method_mut() = http::Method::GET;
        send(&client(false), question).await
    }

    /// Asks it to stop, as a supervisor would, and returns what it printed.
    async fn stop(mut self) -> Vec<String> {
        let id = self.child.id().expect("it still runs").to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().await.expect("kill runs");
        assert!(asked.success());
        let mut lines = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), async {
            while let Some(line) = self.printed.next_line().await.expect("text") {
                lines.push(line);
            }
            self.child.wait().await.expect("a status")
        });
        assert!(ended.await.expect("it stops").success());
        assert_eq!(lines.last().map(String::as_str), Some("stopped, 0 handlers left"));
        lines
    }
}

/// Beside this test program, where cargo puts them.
pub(crate) fn path(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("a path");
    let target = here.ancestors().nth(2).expect("target/PROFILE/deps/PROGRAM");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "no {name}: build the examples first (cargo build --examples --all-features)");
    path
}

fn acme(timestamp: u64, body: &str) -> HeaderMap {
    let timestamp = timestamp.to_string();
    let tag = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[timestamp.as_bytes(), b".", body.as_bytes()]));
    headers(&[("x-acme-timestamp", &timestamp), ("x-acme-signature", &format!("sha256={tag}"))])
}
