//! Many events, delivered over and over in any order, to handlers that fail as they like: the books must balance.
//!
//! `COUNTERSIGN_SOAK` says for how many seconds new rounds are begun.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, Reservation};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, ListFilter, ReceiptState};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::task::JoinSet;

use super::support::{Answer, Counts, Dice, Server, client, on_each_store, request, send, standard, verify};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_succeeds_exactly_once_however_its_handler_fails() {
    on_each_store(async |store| {
        let done = Counts::default();
        let server = over(moody(&done), Duration::from_millis(100), store).await;
        let events = rounds(1_000, async |events| {
            let mut dice = Dice(events.start as u64);
            let mut deliveries: Vec<usize> = events.flat_map(|event| [event; 5]).collect();
            dice.shuffle(&mut deliveries);
            let mut open = send_all(&server, deliveries, deliver).await;
            // Whose last delivery came before its success is delivered again, as senders do.
            for again in 0.. {
                if open.is_empty() {
                    break;
                }
                assert!(again < 100, "{} events never succeed", open.len());
                open = send_all(&server, open, deliver).await;
            }
        })
        .await;
        balance(&server, &done, events).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c053_senders_that_hang_up_at_any_moment_lose_nothing_and_double_nothing() {
    on_each_store(async |store| {
        let done = Counts::default();
        let server = over(two_steps(&done), Duration::from_secs(30), store).await;
        let events = rounds(200, async |events| {
            let deliveries = events.clone().flat_map(|event| [event; 2]).collect();
            send_all(&server, deliveries, deliver_and_hang_up).await;
            assert_eq!(server.layer.tasks().drain(Duration::from_secs(30)).await, 0);
            for again in 0.. {
                let open = send_all(&server, events.clone().collect(), deliver).await;
                if open.is_empty() {
                    break;
                }
                assert!(again < 10, "{} events have no result", open.len());
            }
        })
        .await;
        balance(&server, &done, events).await;
        for event in 0..events {
            assert_eq!(done.of(&format!("{} begun", id(event))), 1, "{event} was not run once");
        }
    })
    .await;
}

/// Every event has succeeded once by the handler's count and by the store's.
async fn balance(server: &Server, done: &Counts, events: usize) {
    for event in 0..events {
        assert_eq!(done.of(&id(event)), 1, "successes of {event}");
    }
    let all = ListFilter { limit: u32::MAX, ..ListFilter::default() };
    let receipts = server.store.list(all).await.expect("the store answers");
    assert_eq!(receipts.len(), events);
    let mut states: HashMap<ReceiptState, usize> = HashMap::new();
    for receipt in receipts {
        *states.entry(receipt.state).or_default() += 1;
    }
    assert_eq!(states, HashMap::from([(ReceiptState::Succeeded, events)]));
}

/// Fails, panics, hangs or succeeds, as the dice have it for this run of this event.
fn moody(done: &Counts) -> Router {
    let done = done.clone();
    let handler = async move |delivery: Delivery, run: Reservation| -> Response {
        let id = delivery.event_id().expect("an id").as_str();
        let number: u64 = id.trim_start_matches("evt_").parse().expect("a number");
        match Dice(number * 1_000 + u64::from(run.attempt())).roll(8) {
            0 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            // Like `panic!`, but nothing is printed.
            2 => std::panic::resume_unwind(Box::new("out of luck")),
            3 => std::future::pending().await,
            _ => {
                done.count(id);
                StatusCode::OK.into_response()
            }
        }
    };
    Router::new().route("/", post(handler))
}

/// Two steps with a moment between them, in which a sender may hang up.
fn two_steps(done: &Counts) -> Router {
    let done = done.clone();
    let handler = async move |delivery: Delivery| {
        let id = delivery.event_id().expect("an id").as_str();
        done.count(&format!("{id} begun"));
        tokio::time::sleep(Duration::from_millis(5)).await;
        done.count(id);
    };
    Router::new().route("/", post(handler))
}

async fn over(app: Router, handler_timeout: Duration, store: Arc<dyn InboxStore>) -> Server {
    let dedup = DedupLayer::builder(Arc::clone(&store))
        .handler_timeout(handler_timeout)
        .max_attempts(1_000)
        .wait(Duration::from_millis(20));
    Server::with(app, verify(Scheme::standard()), dedup, store).await
}

/// Sends these deliveries from 32 senders, over HTTP/1.1 and HTTP/2, and returns the events that got no 2xx.
async fn send_all<F>(
    server: &Server,
    deliveries: Vec<usize>,
    deliver: impl Fn(Client<HttpConnector, Full<bytes::Bytes>>, String, usize, u64) -> F + Copy + Send + 'static,
) -> Vec<usize>
where
    F: Future<Output = bool> + Send,
{
    let queue = Arc::new(Mutex::new(deliveries));
    let mut senders = JoinSet::new();
    for sender in 0..32_u64 {
        let (queue, url) = (Arc::clone(&queue), format!("http://{}/", server.address));
        let client = client(sender % 2 == 0);
        senders.spawn(async move {
            let mut open = Vec::new();
            for turn in 0.. {
                let Some(event) = queue.lock().expect("no panic").pop() else { return open };
                if !deliver(client.clone(), url.clone(), event, sender << 32 | turn).await {
                    open.push(event);
                }
            }
            open
        });
    }
    let mut open = BTreeSet::new();
    while let Some(sent) = senders.join_next().await {
        open.extend(sent.expect("no answer outside the table"));
    }
    open.into_iter().collect()
}

/// One delivery: whether it was answered with a 2xx. Every other answer must stand in the table.
async fn deliver(client: Client<HttpConnector, Full<bytes::Bytes>>, url: String, event: usize, _: u64) -> bool {
    let id = id(event);
    let answer: Answer = send(&client, request(&url, standard(&id, b"{}"), "{}")).await;
    match answer.status {
        StatusCode::OK => return true,
        StatusCode::CONFLICT => assert!(answer.retry_after().is_some() && answer.problem() == "still-processing"),
        StatusCode::INTERNAL_SERVER_ERROR => assert!(answer.body.is_empty() || answer.problem() == "handler-failed"),
        StatusCode::SERVICE_UNAVAILABLE => assert!(answer.body.is_empty(), "{}", answer.text()),
        other => panic!("{other} is not in the table"),
    }
    false
}

/// One delivery whose sender leaves within 15 milliseconds.
async fn deliver_and_hang_up(
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    url: String,
    event: usize,
    seed: u64,
) -> bool {
    let patience = Duration::from_micros(Dice(seed).roll(15_000));
    tokio::time::timeout(patience, deliver(client, url, event, seed)).await.unwrap_or(false)
}

fn id(event: usize) -> String {
    format!("evt_{event}")
}

/// Begins rounds of `size` new events, one at least, until the time is up. Returns how many events there were.
async fn rounds(size: usize, round: impl AsyncFn(Range<usize>)) -> usize {
    let seconds = std::env::var("COUNTERSIGN_SOAK").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
    let (began, mut events) = (Instant::now(), 0);
    loop {
        round(events..events + size).await;
        events += size;
        if began.elapsed() >= Duration::from_secs(seconds) {
            return events;
        }
    }
}
