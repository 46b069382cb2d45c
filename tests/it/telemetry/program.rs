//! `/metrics` of the program, as Prometheus reads it.

use std::process::Stdio;

use countersign::store::{Endpoint, Enqueue, Message, MessageState, OutboxStore as _, SqliteStore};
use countersign::{EventId, Name};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::dispatch::Receiver;
use crate::gateway::started;
use crate::support::{SECRET, client, request, standard, until};

async fn metrics(address: &str) -> String {
    let mut asked = request(&format!("{address}/metrics"), HeaderMap::new(), "");
    *asked.method_mut() = http::Method::GET;
    let response = client(false).request(asked).await.expect("an answer");
    assert!(response.headers()["content-type"].to_str().expect("text").starts_with("text/plain; version=0.0.4"));
    String::from_utf8(response.into_body().collect().await.expect("a body").to_bytes().into()).expect("text")
}

/// What Prometheus would refuse: a series without a type, twice the same one, or a value that is no number.
fn is_well_formed(text: &str) {
    let mut seen = std::collections::HashSet::new();
    let mut of_type = "";
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            of_type = typed.split(' ').next().expect("a name");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(series.starts_with(of_type), "{line}");
            assert!(seen.insert(series.to_owned()), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(!text.contains(SECRET.trim_start_matches("whsec_")));
}

#[tokio::test]
async fn the_receiver_shows_what_it_did() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        free.local_addr().expect("an address").port()
    };
    let admin = format!("127.0.0.1:{port}");
    let (gateway, application, _folder) = started(&["--admin-listen", &admin]).await;
    let admin = format!("http://{admin}");
    // Before there is anything to count, so that an alert sees the first change.
    let before = metrics(&admin).await;
    assert!(before.contains("countersign_received_total{source=\"standard\",outcome=\"dead_letter\"} 0"), "{before}");

    gateway.post(standard("evt_1", b"{}"), "{}").await;
    gateway.post(standard("evt_1", b"{}"), "{}").await;
    gateway.post(HeaderMap::new(), "{}").await;
    let text = metrics(&admin).await;
    is_well_formed(&text);
    for line in [
        "# HELP countersign_runs_total Runs of handlers, by what is on record of them.",
        "# TYPE countersign_handler_seconds histogram",
        "countersign_received_total{source=\"standard\",outcome=\"succeeded\"} 1",
        "countersign_received_total{source=\"standard\",outcome=\"replayed\"} 1",
        "countersign_received_total{source=\"standard\",outcome=\"refused\"} 1",
        "countersign_duplicates_total{source=\"standard\"} 1",
        "countersign_signatures_refused_total{source=\"standard\",reason=\"missing_header\"} 1",
        "countersign_runs_total{consumer=\"standard\",source=\"standard\",outcome=\"succeeded\"} 1",
        "countersign_handler_seconds_count{consumer=\"standard\",source=\"standard\"} 1",
        "countersign_in_flight{consumer=\"standard\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(application.runs(), 1);
}

#[tokio::test]
async fn c154_the_dispatcher_shows_what_it_did_and_how_far_it_is_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("outbox.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    let receiver = Receiver::with_statuses(&[503, 204]).await;
    let picky = Receiver::with_statuses(&[400]).await;
    for (name, url) in [("shop", receiver.url()), ("a \"picky\" one", picky.url())] {
        let name = Name::new(name).expect("a name");
        let mut endpoint = Endpoint::new(name.clone(), url);
        endpoint.secrets = vec!["env:SECRET".to_owned()];
        store.put_endpoint(endpoint).await.expect("it is there");
        let message = Message::new(EventId::new("msg_1").expect("an id"), Name::new("a").expect("a type"), "{}");
        store.enqueue(vec![Enqueue::new(name, message)]).await.expect("it is there");
    }
    let mut process = Command::new(env!("CARGO_BIN_EXE_countersign"))
        .args([
            "dispatch",
            "--admin-listen",
            "127.0.0.1:0",
            "--allow-http",
            "--allow",
            "127.0.0.1",
            "--retry-first",
            "0",
        ])
        .args(["--store", &format!("sqlite:{}", path.display())])
        .env("SECRET", SECRET)
        .env("RUST_LOG", "error")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let ready = lines.next_line().await.expect("its stdout is read").expect("it says that it listens");
    let admin = ready.strip_prefix("listening on ").expect("the promised line");
    until("both have an end", async || store.next_due().await.expect("an answer").is_none()).await;
    let expected = [
        "countersign_attempts_total{endpoint=\"shop\",outcome=\"delivered\"} 1",
        "countersign_attempts_total{endpoint=\"shop\",outcome=\"retried\"} 1",
        "countersign_attempts_total{endpoint=\"a \\\"picky\\\" one\",outcome=\"dead\"} 1",
        "countersign_dead_letters_total{endpoint=\"a \\\"picky\\\" one\"} 1",
        "countersign_delivery_seconds_count{endpoint=\"shop\"} 1",
        "countersign_sending{endpoint=\"shop\"} 0",
    ];
    until("all of it is counted", async || {
        let text = metrics(admin).await;
        expected.iter().all(|line| text.lines().any(|found| found == *line))
    })
    .await;
    is_well_formed(&metrics(admin).await);
    let key = |endpoint: &str| countersign::store::MessageKey {
        endpoint: Name::new(endpoint).expect("a name"),
        id: EventId::new("msg_1").expect("an id"),
    };
    let state = async |endpoint| store.find_message(key(endpoint)).await.expect("an answer").expect("a message").state;
    assert_eq!(state("shop").await, MessageState::Succeeded);
    assert_eq!(state("a \"picky\" one").await, MessageState::DeadLetter);
}
