//! A store with something of everything, carried into another one; for files and servers alike.

use std::time::Duration;

use countersign::store::{
    Accept, AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, Enqueue, Failure, Fate, InboxStore, KeptRequest,
    Lease, Message, MessageFilter, OtherBody, OutboxStore, ReceiptKey, Reserve, Reserved, ResultBody, Settled,
    Settlement, SqliteStore, StoredResult, Unclear,
};
use countersign::{DedupKey, Digest, EventId, Name};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use crate::cli::countersign;
use crate::dispatch::Receiver;

/// How many rows [`fill`] leaves in each table.
pub(crate) const FILLED: [(&str, u64); 5] =
    [("endpoint", 3), ("inbox", 5), ("inbox_failure", 3), ("outbox", 7), ("attempt", 4)];

/// Leaves an event and a message in every state in which they can rest, with all that can belong to them. Gaps in the numbers
/// too.
pub(crate) async fn fill(store: &SqliteStore, url: &str) {
    events(store).await;
    messages(store, url).await;
}

async fn events(store: &SqliteStore) {
    let gone = acquire(store, "gone").await;
    assert_eq!(store.complete(gone.clone(), result()).await.expect("it is done"), Settled::Done);
    let done = acquire(store, "done").await;
    assert_eq!(store.complete(done, result()).await.expect("it is done"), Settled::Done);
    store.forget(gone.key).await.expect("it is gone");

    for dead in [None, Some("no such order — \u{1f4a5} <b>".to_owned())] {
        let id = if dead.is_some() { "dead" } else { "failed" };
        let lease = acquire(store, id).await;
        let failure = Failure {
            error: "line one\nline\ttwo\u{202e}".to_owned(),
            result: Some(StoredResult { body: ResultBody::Omitted, ..result() }),
            dead,
            request: Some(request(b"\x00\xff\xfe not text")),
            retry_in: Some(Duration::from_secs(3_600)),
        };
        assert_eq!(store.fail(lease, failure).await.expect("it is noted"), Settled::Done);
    }
    let lapsed = acquire(store, "failed").await;
    let failure = Failure { error: String::new(), result: None, dead: None, request: None, retry_in: None };
    assert_eq!(store.fail(lapsed, failure).await.expect("it is noted"), Settled::Done);

    for (id, quarantine) in [("waiting", None), ("stale", Some("it is from last year".to_owned()))] {
        let accept = Accept {
            key: key(id),
            event_id: Some(EventId::new(id).expect("an id")),
            correlation_id: Some(Name::new("order-7").expect("a name")),
            body: Digest::of(id.as_bytes()),
            other_body: OtherBody::Accept,
            request: request(&[7; 70_000]),
            ordering_key: Some(name("customer 1")),
            quarantine,
        };
        store.accept(accept).await.expect("it is stored");
    }
}

async fn messages(store: &SqliteStore, url: &str) {
    for (endpoint, url) in [("shop", url), ("desk", "https://example.com/?a=%00"), ("gone", "https://example.com/")] {
        let mut endpoint = Endpoint::new(name(endpoint), url);
        endpoint.secrets = vec!["env:SECRET".to_owned()];
        store.put_endpoint(endpoint).await.expect("it is there");
    }
    store.disable_endpoint(name("gone"), Some("410, twice; it \"moved\"".to_owned())).await.expect("it is disabled");
    let desk = ["delivered", "buried", "failed", "again", "taken back"];
    for (number, id) in desk.into_iter().enumerate() {
        let mut message =
            Message::new(EventId::new(id).expect("an id"), name("order.paid"), vec![0, 159, 146, 150, 10]);
        message.correlation_id = Some(name("corr"));
        message.causation_id = Some(name("cause"));
        message.schema_version = Some(u32::try_from(number).expect("small"));
        message.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        store.enqueue(vec![Enqueue::new(name("desk"), message)]).await.expect("it is there");
    }
    for fate in [
        Fate::Delivered,
        Fate::Dead("given up \u{0}".to_owned()),
        Fate::Failed("left to a person".to_owned()),
        Fate::Dead("and sent again".to_owned()),
    ] {
        let claimed = claim(store).await;
        let mut report = AttemptReport::default();
        report.took = Duration::from_micros(1_234_567);
        report.status = Some(StatusCode::IM_A_TEAPOT);
        report.headers = headers();
        report.body = b"\xff\x00 an answer".as_slice().into();
        report.error = Some("it \u{1f4a5}".to_owned());
        report.kind = Some("timeout".to_owned());
        assert_eq!(
            store.settle(claimed.lease, Settlement::new(fate, report)).await.expect("it is settled"),
            Settled::Done
        );
    }
    let of = |id: &str| {
        let mut filter = MessageFilter::default();
        filter.id = Some(EventId::new(id).expect("an id"));
        filter
    };
    assert_eq!(store.replay(of("again"), Duration::ZERO).await.expect("an answer").len(), 1);
    assert_eq!(store.cancel(of("taken back")).await.expect("an answer").len(), 1);
    // Its endpoint is slow: nobody tries it while the test runs.
    store.disable_endpoint(name("desk"), Some("not now".to_owned())).await.expect("it is disabled");
    for id in ["first", "second"] {
        let mut message =
            Message::new(EventId::new(id).expect("an id"), name("order.paid"), format!("{{\"id\":\"{id}\"}}"));
        message.ordering_key = Some(name("customer 1"));
        store.enqueue(vec![Enqueue::new(name("shop"), message)]).await.expect("it is there");
    }
}

/// Copies, and looks at the answer.
#[track_caller]
pub(crate) fn copied(from: &str, to: &str) -> Value {
    let answer = countersign(["copy", "--json", "--from", from, "--to", to]).run().exits(0).json();
    for (table, rows) in FILLED {
        assert_eq!(answer["tables"][table]["rows"], rows, "{table}: {answer}");
        assert_eq!(answer["tables"][table]["equal"], rows, "{table}: {answer}");
    }
    assert_eq!(answer["tables"]["outbox"]["states"]["pending"], 3, "{answer}");
    assert_eq!(answer["tables"]["inbox"]["states"]["dead_letter"], 1, "{answer}");
    answer
}

/// All that the exports of a store say.
pub(crate) fn exports(store: &str) -> [String; 3] {
    [&["inbox", "export"][..], &["outbox", "export"], &["endpoint", "list", "--json"]]
        .map(|command| countersign(command.iter().chain(&["--store", store])).run().exits(0).text())
}

/// What a receiver and a dispatcher find: the result of what was done, and what is pending, once and in order.
pub(crate) async fn goes_on(store: &dyn InboxStore, url: &str, receiver: &Receiver) {
    match store.reserve(reserve("done")).await.expect("an answer") {
        Reserved::Succeeded(repeat) => assert_eq!((repeat.result, repeat.same_body), (Some(result()), true)),
        other => panic!("a repeat of what is done runs again: {other:?}"),
    }
    let dispatch = ["dispatch", "--drain", "--allow-http", "--dangerous-allow-private-targets", "--store", url];
    countersign(dispatch).run().exits(0);
    let bodies: Vec<_> = receiver.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [r#"{"id":"first"}"#, r#"{"id":"second"}"#]);
    let new = acquire(store, "new").await;
    assert_eq!(store.complete(new, result()).await.expect("a new event has a number of its own"), Settled::Done);
    let enqueued = countersign(["enqueue", "--endpoint", "shop", "--type", "x", "--body", "-", "--store", url]);
    enqueued.stdin(b"{}").run().exits(0);
}

fn reserve(id: &str) -> Reserve {
    Reserve {
        key: key(id),
        event_id: Some(EventId::new(id).expect("an id")),
        correlation_id: None,
        body: Digest::of(id.as_bytes()),
        lease: Duration::from_secs(60),
        max_attempts: 20,
        other_body: OtherBody::Accept,
        unclear: Unclear::RunAgain,
    }
}

pub(crate) async fn acquire(store: &dyn InboxStore, id: &str) -> Lease {
    match store.reserve(reserve(id)).await.expect("an answer") {
        Reserved::Acquired(lease) => lease,
        other => panic!("{id}: {other:?}"),
    }
}

pub(crate) async fn claim(store: &dyn OutboxStore) -> ClaimedMessage {
    let claimed =
        store.claim_messages(ClaimMessages::new(1, Duration::from_secs(60))).await.expect("an answer").messages;
    claimed.into_iter().next().expect("something is due")
}

pub(crate) fn result() -> StoredResult {
    let body = ResultBody::Kept(b"\x00done\xff".as_slice().into());
    StoredResult { status: StatusCode::CREATED, headers: headers(), body }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append("x-one", HeaderValue::from_static("1"));
    headers.append("x-one", HeaderValue::from_bytes(b"\xff\t2").expect("a value"));
    headers
}

fn request(body: &[u8]) -> KeptRequest {
    KeptRequest {
        method: http::Method::POST,
        target: "/hooks?a=%00".into(),
        headers: headers(),
        body: body.to_vec().into(),
        proof: "{\"é\":1}".into(),
    }
}

fn key(id: &str) -> ReceiptKey {
    let id = EventId::new(id).expect("an id");
    ReceiptKey { consumer: name("orders"), source: name("stripe"), key: DedupKey::from_id(&id) }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
