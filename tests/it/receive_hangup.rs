//! Senders that hang up, at any moment: the work is done once, and its result is there for the next delivery.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use countersign::receive::{DedupLayer, ReceiveLayer, VerifiedBody};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, ReceiptState, SqliteStore};
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt};

use super::support::{
    Calls, Counts, Gate, Infallibly, Server, on_each_store, receipt, request, send, standard, until, verify,
};

#[tokio::test]
async fn c053_a_sender_that_closes_its_connection_does_not_stop_the_handler() {
    on_each_store(async |store| hang_up_between_two_writes(store, Hangup::Close).await).await;
}

#[tokio::test]
async fn c053_a_sender_that_resets_its_stream_does_not_stop_the_handler() {
    on_each_store(async |store| hang_up_between_two_writes(store, Hangup::Reset).await).await;
}

#[derive(Clone, Copy)]
enum Hangup {
    /// HTTP/1.1: the connection.
    Close,
    /// HTTP/2: the stream, with RST_STREAM; the connection stays.
    Reset,
}

async fn hang_up_between_two_writes(store: Arc<dyn InboxStore>, how: Hangup) {
    let (writes, gate) = (Counts::default(), Gate::default());
    let server = Server::with(
        two_writes(&writes, &gate),
        verify(Scheme::standard()),
        DedupLayer::builder(Arc::clone(&store)).wait(Duration::ZERO),
        store,
    )
    .await;
    match how {
        Hangup::Close => {
            let mut connection = TcpStream::connect(server.address).await.expect("a connection");
            connection.write_all(&raw_request("evt_1")).await.expect("a server that reads");
            until("the first write", async || writes.of("first") == 1).await;
        }
        Hangup::Reset => {
            let request = request(&format!("http://{}/", server.address), standard("evt_1", b"{}"), "{}");
            let http2 = server.http2.clone();
            let sender = tokio::spawn(async move { send(&http2, request).await });
            until("the first write", async || writes.of("first") == 1).await;
            sender.abort();
            assert!(sender.await.is_err_and(|error| error.is_cancelled()));
        }
    }
    let client = if matches!(how, Hangup::Close) { &server.http1 } else { &server.http2 };
    let again =
        async || send(client, request(&format!("http://{}/", server.address), standard("evt_1", b"{}"), "{}")).await;
    assert_eq!(again().await.status, StatusCode::CONFLICT, "it still runs");
    gate.open();
    until("the result is stored", async || {
        server.receipt("evt_1").await.is_some_and(|receipt| receipt.state == ReceiptState::Succeeded)
    })
    .await;
    let answer = again().await;
    assert_eq!((answer.status, answer.text().as_str(), answer.is_replay()), (StatusCode::OK, "done", true));
    assert_eq!((writes.of("first"), writes.of("second")), (1, 1));
}

#[tokio::test]
async fn c053_a_server_that_stops_can_wait_for_handlers_whose_senders_are_gone() {
    on_each_store(async |store| {
        let (writes, gate) = (Counts::default(), Gate::default());
        let layer = receiver(Arc::clone(&store));
        let app = two_writes(&writes, &gate).layer(layer.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let server = tokio::spawn(
            axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned()).into_future(),
        );

        let mut connection = TcpStream::connect(address).await.expect("a connection");
        connection.write_all(&raw_request("evt_1")).await.expect("a server that reads");
        until("the first write", async || writes.of("first") == 1).await;
        drop(connection);
        stop.cancel();
        server.await.expect("no panic").expect("an orderly end");

        assert_eq!(layer.tasks().len(), 1);
        assert_eq!(layer.tasks().drain(Duration::from_millis(20)).await, 1, "one is left when the grace is over");
        gate.open();
        assert_eq!(layer.tasks().drain(Duration::from_secs(10)).await, 0);
        assert!(layer.tasks().is_empty());
        let receipt = receipt(&*store, "default", "test", "evt_1").await.expect("a receipt");
        assert_eq!(receipt.state, ReceiptState::Succeeded);
        assert_eq!((writes.of("first"), writes.of("second")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn c054_a_sender_that_hangs_up_during_the_claim_leaves_no_open_transaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("inbox.db");
    let store = Arc::new(SqliteStore::open(&path).await.expect("a store"));
    let calls = Calls::default();
    let counted = calls.clone();
    let app = Router::new().route("/", post(async move || counted.count().to_string()));
    let server = Server::with(app, verify(Scheme::standard()), DedupLayer::builder(store.clone()), store).await;

    // Somebody else has the file, so the claim has to wait.
    let mut beside =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.expect("the file");
    let held = beside.begin_with("BEGIN IMMEDIATE").await.expect("the right to write");
    let mut connection = TcpStream::connect(server.address).await.expect("a connection");
    connection.write_all(&raw_request("evt_1")).await.expect("a server that reads");
    until("the claim waits", async || server.layer.tasks().len() == 1).await;
    drop(connection);
    held.rollback().await.expect("the file is free again");

    assert_eq!(server.post(standard("evt_2", b"{}"), "{}").await.status, StatusCode::OK);
    let elsewhere = SqliteStore::open(&path).await.expect("a second store");
    for id in ["evt_1", "evt_2"] {
        until("another connection sees the result", async || {
            let receipt = receipt(&elsewhere, "default", "test", id).await;
            receipt.is_some_and(|receipt| receipt.state == ReceiptState::Succeeded)
        })
        .await;
        assert!(server.post(standard(id, b"{}"), "{}").await.is_replay(), "{id}");
    }
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test]
async fn c053_an_answer_that_is_not_awaited_any_more_changes_nothing_whenever_that_happens() {
    on_each_store(async |store| {
        let writes = Counts::default();
        let counted = writes.clone();
        let service = ServiceBuilder::new().layer(receiver(Arc::clone(&store))).service_fn(
            move |request: Request<VerifiedBody>| {
                let counted = counted.clone();
                async move {
                    let id = request.body().delivery().event_id().expect("an id").as_str().to_owned();
                    counted.count(&format!("{id} first"));
                    tokio::task::yield_now().await;
                    counted.count(&format!("{id} second"));
                    let answer: Infallibly<_> = Ok(Response::new(Full::from("done")));
                    answer
                }
            },
        );

        let mut dropped = 0;
        for polls in 0.. {
            let id = format!("evt_{polls}");
            let finished = {
                let mut answer = pin!(service.clone().oneshot(piecemeal(&id)));
                let mut context = Context::from_waker(Waker::noop());
                let mut finished = false;
                for _ in 0..polls {
                    finished = answer.as_mut().poll(&mut context).is_ready();
                    if finished {
                        break;
                    }
                    // Lets the walk take about a step between two polls.
                    tokio::task::yield_now().await;
                }
                finished
            };
            dropped += usize::from(!finished);

            // The sender comes again, until it has an answer.
            until("the event has its result", async || {
                let again = service.clone().oneshot(request("/", standard(&id, b"{}"), "{}")).await;
                again.expect("an answer").status() == StatusCode::OK
            })
            .await;
            for write in ["first", "second"] {
                assert_eq!(writes.of(&format!("{id} {write}")), 1, "dropped after {polls} polls");
            }
            let receipt = receipt(&*store, "default", "test", &id).await.expect("a receipt");
            assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Succeeded, 1), "after {polls} polls");
            if finished || polls > 500 {
                break;
            }
        }
        assert!(dropped > 4, "it was dropped at {dropped} moments only");
    })
    .await;
}

/// Does its work in two parts, with a gate between them.
fn two_writes(writes: &Counts, gate: &Gate) -> Router {
    let (writes, gate) = (writes.clone(), gate.clone());
    Router::new().route(
        "/",
        post(async move || {
            writes.count("first");
            gate.pass().await;
            writes.count("second");
            "done"
        }),
    )
}

fn receiver(store: Arc<dyn InboxStore>) -> ReceiveLayer {
    ReceiveLayer::new(verify(Scheme::standard()).build().expect("a layer"), DedupLayer::new(store)).expect("a receiver")
}

/// A whole request, as bytes, for a client that does not wait for the answer.
fn raw_request(id: &str) -> Vec<u8> {
    let mut text = "POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 2\r\n".to_owned();
    for (name, value) in &standard(id, b"{}") {
        text += &format!("{name}: {}\r\n", value.to_str().expect("text"));
    }
    (text + "\r\n{}").into_bytes()
}

/// A request whose body comes in two pieces, with a pause before each.
fn piecemeal(id: &str) -> Request<impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static> {
    let pieces = stream::unfold(0, |piece| async move {
        tokio::task::yield_now().await;
        let data = *[b"{", b"}"].get(piece)?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(data))), piece + 1))
    });
    request("/", standard(id, b"{}"), "").map(|_| StreamBody::new(Box::pin(pieces)))
}
