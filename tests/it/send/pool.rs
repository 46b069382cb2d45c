//! Connections that are kept: used again where that is safe, and never at the price of a message that is sent twice.

use std::time::Duration;

use countersign::send::{Failure, Guard};
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::{Receiver, anything, builder, outgoing, raw, read_request, send};
use crate::support::Calls;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn c116_a_connection_that_closed_while_it_was_idle_costs_nothing() {
    let closed = CancellationToken::new();
    let told = closed.clone();
    let (address, connections) = raw(move |mut stream, number| {
        let told = told.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.expect("the answer is read");
            if number == 1 {
                // Without notice: the header said nothing of it.
                stream.shutdown().await.expect("a close");
                let _end = stream.read(&mut [0; 1]).await;
                told.cancel();
            } else {
                super::drain(&mut stream).await;
            }
        }
    })
    .await;
    let transport = builder(Guard::new(anything())).idle_timeout(Duration::from_secs(60)).build().expect("a transport");
    let url = format!("http://{address}/");
    send(&transport, outgoing(&*url)).await.expect("an answer");
    // Its other end is closed by then, so the pool knows.
    tokio::time::timeout(Duration::from_secs(30), closed.cancelled()).await.expect("it is closed");
    send(&transport, outgoing(&*url)).await.expect("an answer, on a new connection");
    assert_eq!(connections.so_far(), 2);
}

#[tokio::test]
async fn c116_a_request_that_was_written_is_not_sent_again_on_its_own() {
    let requests = Calls::default();
    let counted = requests.clone();
    let (address, _) = raw(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            // The first request of each connection is answered; the second one is read, and the connection closed.
            if !read_request(&mut stream).await.is_empty() {
                counted.count();
            }
            stream.write_all(OK).await.expect("the answer is read");
            if !read_request(&mut stream).await.is_empty() {
                counted.count();
            }
        }
    })
    .await;
    let transport = builder(Guard::new(anything())).idle_timeout(Duration::from_secs(60)).build().expect("a transport");
    let url = format!("http://{address}/");
    send(&transport, outgoing(&*url)).await.expect("an answer");
    let failure = send(&transport, outgoing(&*url)).await.expect_err("the receiver may have it");
    assert!(matches!(failure, Failure::Closed(_)), "{failure}");
    assert_eq!(requests.so_far(), 2, "each was sent once");
}

#[tokio::test]
async fn c116_receivers_that_close_idle_connections_cost_few_attempts() {
    // It closes each connection at some moment after its answer, in the way of the next request or not.
    let (address, _) = raw(|mut stream, number| async move {
        for _ in 0..=number % 3 {
            if read_request(&mut stream).await.is_empty() || stream.write_all(OK).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_micros(number as u64 * 97 % 1_500)).await;
    })
    .await;
    let transport = builder(Guard::new(anything())).build().expect("a transport");
    let mut failed = 0;
    for _ in 0..300 {
        match send(&transport, outgoing(format!("http://{address}/"))).await {
            Ok(answer) => assert_eq!(answer.status, StatusCode::OK),
            Err(Failure::Closed(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(failed < 100, "{failed} of 300");
}

#[tokio::test]
async fn a_connection_is_not_kept_for_longer_than_it_may() {
    let receiver = Receiver::new(|_| Response::new(Full::default())).await;
    let transport = builder(Guard::new(anything())).idle_timeout(Duration::ZERO).build().expect("a transport");
    for _ in 0..3 {
        send(&transport, outgoing(receiver.url())).await.expect("an answer");
    }
    assert_eq!(receiver.connections.so_far(), 3);
}

#[tokio::test]
async fn clones_share_their_connections() {
    let receiver = Receiver::ok().await;
    let transport = builder(Guard::new(anything())).idle_timeout(Duration::from_secs(60)).build().expect("a transport");
    for _ in 0..3 {
        send(&transport.clone(), outgoing(receiver.url())).await.expect("an answer");
    }
    assert_eq!(receiver.connections.so_far(), 1);
}
