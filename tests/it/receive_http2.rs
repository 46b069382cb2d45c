//! HTTP/2: streams that end early, that stay, and that have trailers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use countersign::receive::Delivery;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::support::{Calls, Server, standard, until};
use crate::wire::Log;

const BODY: &[u8] = b"{\"a\":1}";

type Frames = mpsc::UnboundedSender<io::Result<Frame<Bytes>>>;
type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// One connection.
async fn connect(address: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// A request whose body is what is sent into the channel, until that is dropped.
fn open(address: SocketAddr, headers: HeaderMap) -> (Frames, Request<Body>) {
    let (frames, received) = mpsc::unbounded_channel();
    let frames_in_turn = stream::unfold(received, |mut received: mpsc::UnboundedReceiver<_>| async {
        received.recv().await.map(|frame| (frame, received))
    });
    let mut request = Request::new(Body::new(StreamBody::new(frames_in_turn.boxed())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("http://{address}/").parse().expect("a URL");
    *request.headers_mut() = headers;
    (frames, request)
}

fn data(bytes: &'static [u8]) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(Bytes::from_static(bytes)))
}

#[tokio::test]
async fn c148_a_stream_that_is_reset_within_its_body_is_not_verified_even_if_what_came_is_signed() {
    let log = Log::listen();
    let calls = Calls::default();
    let counted = calls.clone();
    let server = Server::standard(Router::new().fallback(move || async move {
        counted.count();
    }))
    .await;
    let mut connection = connect(server.address).await;
    let (frames, request) = open(server.address, standard("msg_1", BODY));
    frames.send(data(BODY)).expect("the body is read");
    // An error of the body makes hyper reset the stream.
    frames.send(Err(io::Error::other("the sender dies"))).expect("the body is read");
    assert!(connection.send_request(request).await.is_err());
    until("the reset is noticed", || async { log.text().contains("the body ended early") }).await;
    assert_eq!(calls.so_far(), 0);
    assert!(server.receipt("msg_1").await.is_none());

    let (frames, request) = open(server.address, standard("msg_1", BODY));
    frames.send(data(BODY)).expect("the body is read");
    drop(frames);
    assert_eq!(
        connection.send_request(request).await.expect("an answer").status(),
        StatusCode::OK,
        "the connection lives"
    );
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn c148_a_length_that_does_not_hold_is_no_body() {
    let calls = Calls::default();
    let counted = calls.clone();
    let server = Server::standard(Router::new().fallback(move || async move {
        counted.count();
    }))
    .await;
    for length in ["3", "8"] {
        let mut headers = standard("msg_1", BODY);
        headers.insert("content-length", length.parse().expect("a header value"));
        let (frames, request) = open(server.address, headers);
        frames.send(data(BODY)).expect("the body is read");
        drop(frames);
        let answered = connect(server.address).await.send_request(request).await;
        assert!(answered.is_err() || answered.is_ok_and(|answer| answer.status().is_client_error()), "{length}");
    }
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c148_trailers_are_no_part_of_what_is_signed() {
    let server = Server::standard(Router::new().fallback(|delivery: Delivery, body: Bytes| async move {
        assert_eq!(delivery.event_id().map(|id| id.as_str()), Some("msg_1"));
        body
    }))
    .await;
    let (frames, request) = open(server.address, standard("msg_1", BODY));
    frames.send(data(b"{\"a\"")).expect("the body is read");
    frames.send(data(b":1}")).expect("the body is read");
    frames.send(Ok(Frame::trailers(standard("msg_2", b"")))).expect("the body is read");
    drop(frames);
    let answer = connect(server.address).await.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn c148_one_stuck_handler_does_not_hold_up_the_other_streams_of_its_connection() {
    let (stuck, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (says_stuck, waits) = (Arc::clone(&stuck), Arc::clone(&go_on));
    let server = Server::standard(Router::new().fallback(move |delivery: Delivery| async move {
        if delivery.event_id().is_some_and(|id| id.as_str() == "msg_0") {
            says_stuck.notify_one();
            waits.notified().await;
        }
        StatusCode::NO_CONTENT
    }))
    .await;
    let connection = connect(server.address).await;
    let post = |number: usize| {
        let (frames, request) = open(server.address, standard(&format!("msg_{number}"), BODY));
        let mut connection = connection.clone();
        async move {
            frames.send(data(BODY)).expect("the body is read");
            drop(frames);
            connection.send_request(request).await.expect("an answer").status()
        }
    };

    let first = tokio::spawn(post(0));
    stuck.notified().await;
    let others = join_all((1..100).map(post)).await;
    assert!(others.iter().all(|status| *status == StatusCode::NO_CONTENT), "{others:?}");
    assert!(!first.is_finished());
    go_on.notify_one();
    assert_eq!(first.await.expect("no panic"), StatusCode::NO_CONTENT);
}
