//! The spans along both walks, as a subscriber of an application's sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use countersign::Scheme;
use countersign::receive::{DedupLayer, Processor};
use countersign::store::{InboxStore, MemoryStore, MessageState, ReceiptState};
use http::{HeaderValue, StatusCode};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::dispatch::{Receiver, Running, Sender, named};
use crate::support::{SECRET, Server, receipt, standard, until, verify};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID: &str = "b7ad6b7169203331";

type Fields = BTreeMap<&'static str, String>;

/// The number, the name, the name of its parent, and the fields.
type Span = (u64, &'static str, Option<&'static str>, Fields);

/// Every span, and all text of all events.
#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>, Arc<Mutex<String>>);

impl Spans {
    /// The fields of the spans of this name, in order.
    fn named(&self, name: &str) -> Vec<Fields> {
        let all = self.0.lock().expect("no test panics in here");
        all.iter().filter(|(_, found, ..)| *found == name).map(|(.., fields)| fields.clone()).collect()
    }

    fn parent_of(&self, name: &str) -> Option<&'static str> {
        let all = self.0.lock().expect("no test panics in here");
        all.iter().find(|(_, found, ..)| *found == name).and_then(|(_, _, parent, _)| *parent)
    }

    fn text(&self) -> String {
        format!(
            "{:?} {}",
            self.0.lock().expect("no test panics in here"),
            self.1.lock().expect("no test panics in here")
        )
    }

    fn record(self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(tracing_subscriber::registry().with(self))
    }
}

struct Taken<'a>(&'a mut Fields);

impl Visit for Taken<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        // Those of the libraries beneath are theirs.
        if !attributes.metadata().target().starts_with("countersign") {
            return;
        }
        let mut fields = Fields::new();
        attributes.record(&mut Taken(&mut fields));
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.name());
        let span = (id.into_u64(), attributes.metadata().name(), parent, fields);
        self.0.lock().expect("no test panics in here").push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut all = self.0.lock().expect("no test panics in here");
        // The last one of this number: numbers are used again.
        if let Some((.., fields)) = all.iter_mut().rev().find(|(number, ..)| *number == id.into_u64()) {
            values.record(&mut Taken(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("countersign") {
            let mut fields = Fields::new();
            event.record(&mut Taken(&mut fields));
            *self.1.lock().expect("no test panics in here") += &format!("{fields:?}\n");
        }
    }
}

fn traced(id: &str, body: &[u8]) -> http::HeaderMap {
    let mut headers = standard(id, body);
    headers.insert("traceparent", HeaderValue::from_static(TRACEPARENT));
    headers.insert("correlation-id", HeaderValue::from_static("order-7"));
    headers.insert("causation-id", HeaderValue::from_static("msg_before"));
    headers
}

/// What no span and no event may hold.
fn holds_nothing_secret(spans: &Spans, body: &str) {
    let text = spans.text();
    for secret in [body, SECRET, SECRET.trim_start_matches("whsec_"), "v1,", "hidden-query"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn a_request_is_followed_from_its_check_to_its_handler() {
    let spans = Spans::default();
    let _recording = spans.clone().record();
    let app = Router::new().route("/", post(async || StatusCode::NO_CONTENT));
    let server = Server::standard(app).await;
    let body = "{\"card\":\"4111-1111\"}";
    let answer = server.post_to("/?token=hidden-query", traced("evt_1", body.as_bytes()), body).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    server.post_to("/?token=hidden-query", traced("evt_1", b"another"), body).await;

    let verify = &spans.named("verify")[0];
    assert_eq!((&*verify["source"], &*verify["trace_id"], &*verify["parent_id"]), ("test", TRACE_ID, PARENT_ID));
    let handle = &spans.named("handle");
    assert_eq!(handle.len(), 1, "a forged request gets no further than its check");
    for (field, expected) in [
        ("consumer", "default"),
        ("key", "evt_1"),
        ("event_id", "evt_1"),
        ("correlation_id", "order-7"),
        ("causation_id", "msg_before"),
    ] {
        assert_eq!(handle[0][field], expected, "{field}");
    }
    assert_eq!(spans.named("run")[0]["attempt"], "1");
    assert_eq!((spans.parent_of("run"), spans.parent_of("handle")), (Some("handle"), Some("verify")));
    holds_nothing_secret(&spans, body);
}

#[tokio::test]
async fn what_is_no_trace_context_and_what_is_too_long_is_not_shown() {
    let spans = Spans::default();
    let _recording = spans.clone().record();
    let server = Server::standard(Router::new().route("/", post(async || StatusCode::NO_CONTENT))).await;
    let mut headers = standard("evt_1", b"{}");
    headers.insert("traceparent", HeaderValue::from_static("00-planted-planted-01"));
    headers.insert("correlation-id", HeaderValue::from_str(&"planted".repeat(100)).expect("a value"));
    assert_eq!(server.post(headers, "{}").await.status, StatusCode::NO_CONTENT);
    assert!(!spans.named("verify")[0].contains_key("trace_id") && !spans.text().contains("planted"));
}

#[tokio::test]
async fn an_event_that_is_run_later_keeps_its_trace() {
    let spans = Spans::default();
    let _recording = spans.clone().record();
    let store = MemoryStore::new();
    let inbox: Arc<dyn InboxStore> = Arc::new(store.clone());
    let app = Router::new().route("/", post(async || StatusCode::NO_CONTENT));
    let dedup = DedupLayer::builder(store.clone()).deferred();
    let server = Server::with(app.clone(), verify(Scheme::standard()), dedup, Arc::clone(&inbox)).await;
    let body = "{\"card\":\"4111-1111\"}";
    assert_eq!(server.post(traced("evt_1", body.as_bytes()), body).await.status, StatusCode::ACCEPTED);
    let processing =
        tokio::spawn(Processor::builder(store, app).build().expect("a processor").run(std::future::pending()));
    until("it has run", async || {
        receipt(&*inbox, "default", "test", "evt_1")
            .await
            .is_some_and(|receipt| receipt.state == ReceiptState::Succeeded)
    })
    .await;
    processing.abort();
    let process = &spans.named("process")[0];
    for (field, expected) in [
        ("source", "test"),
        ("attempt", "1"),
        ("event_id", "evt_1"),
        ("trace_id", TRACE_ID),
        ("parent_id", PARENT_ID),
        ("correlation_id", "order-7"),
        ("causation_id", "msg_before"),
    ] {
        assert_eq!(process[field], expected, "{field}");
    }
    assert_eq!(spans.parent_of("run"), Some("process"));
    holds_nothing_secret(&spans, body);
}

#[tokio::test]
async fn a_message_is_followed_through_its_attempts_and_its_trace_goes_on() {
    let spans = Spans::default();
    let _recording = spans.clone().record();
    let receiver = Receiver::with_statuses(&[503, 204]).await;
    let sender = Sender::in_memory();
    sender.endpoint("shop", format!("{}?token=hidden-query", receiver.url())).await;
    let body = "{\"card\":\"4111-1111\"}";
    sender
        .enqueue_with("shop", "msg_1", body, |message| {
            message.traceparent = Some(TRACEPARENT.to_owned());
            message.correlation_id = Some(named("order-7"));
            message.causation_id = Some(named("evt_1"));
        })
        .await;
    let running = Running::start(sender.dispatcher());
    sender.until_state("shop", "msg_1", MessageState::Succeeded).await;
    running.stop().await;

    let [first, second] = &*spans.named("deliver") else { panic!("two attempts") };
    for (field, expected) in [
        ("id", "msg_1"),
        ("endpoint", "shop"),
        ("event_type", "order.paid"),
        ("replay", "0"),
        ("trace_id", TRACE_ID),
        ("parent_id", PARENT_ID),
        ("correlation_id", "order-7"),
        ("causation_id", "evt_1"),
    ] {
        assert_eq!((&*first[field], &*second[field]), (expected, expected), "{field}");
    }
    assert_eq!((&*first["attempt"], &*first["outcome"], &*first["status"]), ("1", "retried", "503"));
    assert_eq!((&*second["attempt"], &*second["outcome"], &*second["status"]), ("2", "delivered", "204"));
    assert!(receiver.seen().iter().all(|seen| seen.header("traceparent") == TRACEPARENT));
    holds_nothing_secret(&spans, body);
}
