//! HTTP/1.1 as it comes off the wire: too much, too slow, cut off, or asking first.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use countersign::receive::{DedupLayer, VerifyLayerBuilder};
use countersign::signature::Scheme;
use countersign::store::MemoryStore;
use http::{HeaderMap, StatusCode};
use tower_http::limit::RequestBodyLimitLayer;

use crate::support::{Calls, Server, client, request, send, serve, standard, until, verify};
use crate::wire::{Log, Wire, chunk, head};

const MIB: usize = 1024 * 1024;
const BODY: &[u8] = b"{\"a\":1}";

/// A server that counts the runs of its handler, which answers with the length of the body.
async fn counting(layer: VerifyLayerBuilder) -> (Server, Calls) {
    let calls = Calls::default();
    let counted = calls.clone();
    let app = Router::new().fallback(move |body: Bytes| async move {
        counted.count();
        body.len().to_string()
    });
    let store = Arc::new(MemoryStore::new());
    (Server::with(app, layer, DedupLayer::builder(Arc::clone(&store)), store).await, calls)
}

/// Well-formed and wrong: the body has to be read before anybody knows.
fn signed_wrongly() -> HeaderMap {
    standard("msg_wrong", b"another body")
}

#[tokio::test]
async fn c142_an_endless_chunked_body_is_cut_off_after_a_bounded_part_of_it() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&signed_wrongly(), &["transfer-encoding: chunked"])).await;
    let piece = chunk(&vec![b'x'; 64 * 1024]);
    let mut taken = 0;
    while taken < 10 * 1024 * MIB && wire.try_write(&piece).await.is_ok() {
        taken += piece.len();
    }
    // The body limit, what is drained so that the answer is read, and what lies in the sockets' buffers.
    assert!(taken < 64 * MIB, "the server took {taken} bytes");
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c142_a_chunked_body_over_the_limit_is_answered_413() {
    let (server, calls) = counting(verify(Scheme::standard()).body_limit(MIB)).await;
    for size in [MIB, MIB + 1, 5 * MIB] {
        let body = vec![b'x'; size];
        let mut wire = Wire::to(server.address).await;
        wire.write(head(&standard("msg_1", &body), &["transfer-encoding: chunked"])).await;
        for piece in body.chunks(60_000) {
            wire.write(chunk(piece)).await;
        }
        wire.write("0\r\n\r\n").await;
        let (answer, _) = wire.answer().await.expect("an answer");
        let expected = if size > MIB { "HTTP/1.1 413" } else { "HTTP/1.1 200" };
        assert!(answer.starts_with(expected), "{size}: {answer}");
    }
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn c142_what_follows_the_announced_length_is_no_part_of_the_body() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&standard("msg_1", BODY), &["content-length: 7"])).await;
    wire.write(BODY).await;
    wire.write("and more that was not announced\r\n\r\n").await;
    let (answer, body) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(body, b"7");
    let rest = wire.rest().await;
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400"), "{rest}");
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn c142_a_body_announced_too_long_is_refused_before_it_is_read() {
    let (server, _) = counting(verify(Scheme::standard())).await;
    for length in ["2097153", "10737418240", "18446744073709551613"] {
        let mut wire = Wire::to(server.address).await;
        let announced = format!("content-length: {length}");
        wire.write(head(&signed_wrongly(), &[&announced, "expect: 100-continue"])).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 413"), "{length}: {answer}");
    }
}

#[tokio::test]
async fn c142_bodies_that_are_not_checked_yet_share_a_bounded_room() {
    let (server, calls) = counting(verify(Scheme::standard()).body_limit(1_000).unverified_limit(1_000)).await;
    let body = [b'x'; 600];
    let mut first = Wire::to(server.address).await;
    first.write(head(&standard("msg_1", &body), &["content-length: 600"])).await;
    first.write(&body[..599]).await;
    // Once the first one holds its part of the room, no other one of this size fits.
    until("the room is taken", async || {
        let answer = server.post(standard("msg_2", &body), body.to_vec()).await;
        answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.problem() == "overloaded"
    })
    .await;
    let refused = server.post(standard("msg_3", &body), body.to_vec()).await;
    assert!(refused.retry_after().is_some());
    assert_eq!(server.post(standard("msg_4", b"small"), "small").await.status, StatusCode::OK);
    let before = calls.so_far();
    first.write("x").await;
    let (answer, _) = first.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(server.post(standard("msg_5", &body), body.to_vec()).await.status, StatusCode::OK, "room again");
    assert_eq!(calls.so_far(), before + 2);
}

#[tokio::test]
async fn c142_a_slow_sender_is_answered_408() {
    let (server, calls) = counting(verify(Scheme::standard()).body_timeout(Duration::from_millis(300))).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&standard("msg_1", BODY), &["content-length: 1000"])).await;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let answer = loop {
        tokio::select! {
            answer = wire.head() => break answer,
            _ = pace.tick() => {}
        }
        // Once the answer is out, the server may hang up on what still comes.
        let _ = wire.try_write("x").await;
    };
    let answer = answer.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c143_the_limit_of_the_check_lifts_axums_own() {
    let (server, calls) = counting(verify(Scheme::standard()).body_limit(25 * MIB)).await;
    let body = Bytes::from(vec![b'x'; 20 * MIB]);
    let answer = server.post(standard("msg_1", &body), body).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, (20 * MIB).to_string()));
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn c143_a_layer_that_allows_more_changes_nothing_and_one_that_allows_less_is_a_limit_too() {
    let (server, _) = counting(verify(Scheme::standard()).body_limit(MIB)).await;
    let app = |limit| {
        let app = Router::new().fallback(|body: Bytes| async move { body.len().to_string() });
        app.layer(server.layer.clone()).layer(RequestBodyLimitLayer::new(limit))
    };
    for (limit, size, expected) in
        [(25 * MIB, MIB + 1, "HTTP/1.1 413"), (25 * MIB, MIB - 1, "HTTP/1.1 200"), (1000, 2000, "HTTP/1.1 413")]
    {
        let address = serve(app(limit)).await;
        let body = vec![b'x'; size];
        let mut wire = Wire::to(address).await;
        wire.write(head(&standard("msg_1", &body), &["transfer-encoding: chunked"])).await;
        wire.write([&chunk(&body)[..], b"0\r\n\r\n"].concat()).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with(expected), "{size} of {limit}: {answer}");
    }
}

#[tokio::test]
async fn c144_a_client_that_sends_first_and_reads_later_gets_to_read_the_refusal() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let body = Bytes::from(vec![b'x'; 5 * MIB]);
    for (headers, status) in
        [(HeaderMap::new(), StatusCode::UNAUTHORIZED), (signed_wrongly(), StatusCode::PAYLOAD_TOO_LARGE)]
    {
        for http2 in [false, true] {
            let request = request(&format!("http://{}/", server.address), headers.clone(), body.clone());
            assert_eq!(send(&client(http2), request).await.status, status, "HTTP/2: {http2}");
        }
        // And one that does not look at the answer until it has sent all.
        let mut wire = Wire::to(server.address).await;
        wire.write(head(&headers, &["content-length: 5242880"])).await;
        wire.write(&body).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {}", status.as_u16())), "{answer}");
    }
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c145_a_cut_off_body_is_never_verified_even_if_what_came_is_signed() {
    let log = Log::listen();
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let framings = [
        ("transfer-encoding: chunked", chunk(BODY)),
        ("transfer-encoding: chunked", [&chunk(BODY)[..], b"0\r\n"].concat()),
        ("transfer-encoding: chunked", b"8\r\n{\"a\":1}".to_vec()),
        ("content-length: 8", BODY.to_vec()),
    ];
    for (count, (framing, bytes)) in framings.into_iter().enumerate() {
        for polite in [true, false] {
            let mut wire = Wire::to(server.address).await;
            wire.write(head(&standard("msg_1", BODY), &[framing])).await;
            wire.write(&bytes).await;
            if polite {
                // It only ends what it sends, and would read an answer.
                wire.end().await;
                let answer = wire.rest().await;
                assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{framing}: {answer}");
            } else {
                drop(wire);
            }
            let refused = 2 * count + usize::from(!polite) + 1;
            until("the cut is noticed", || async { log.text().matches("the body ended early").count() == refused })
                .await;
        }
    }
    assert_eq!(calls.so_far(), 0);
    assert!(server.receipt("msg_1").await.is_none());
}

#[tokio::test]
async fn c146_a_refusal_by_headers_alone_does_not_ask_for_the_body() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    for lines in
        [&["content-length: 7", "expect: 100-continue"], &["transfer-encoding: chunked", "expect: 100-continue"]]
    {
        let mut wire = Wire::to(server.address).await;
        wire.write(head(&HeaderMap::new(), lines)).await;
        let (answer, _) = wire.answer().await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn c146_a_request_that_may_be_valid_is_asked_for_its_body() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&standard("msg_1", BODY), &["content-length: 7", "expect: 100-continue"])).await;
    let go_on = wire.head().await.expect("a go-ahead");
    assert!(go_on.starts_with("HTTP/1.1 100"), "{go_on}");
    wire.write(BODY).await;
    let (answer, _) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(calls.so_far(), 1);
}

#[tokio::test]
async fn c146_a_client_that_asks_and_never_sends_is_answered_408_and_cut_off() {
    let (server, _) = counting(verify(Scheme::standard()).body_timeout(Duration::from_millis(100))).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&standard("msg_1", BODY), &["content-length: 7", "expect: 100-continue"])).await;
    let said = wire.rest().await;
    assert!(said.starts_with("HTTP/1.1 100"), "{said}");
    assert!(said.contains("HTTP/1.1 408"), "{said}");
}

#[tokio::test]
async fn c146_a_client_that_was_told_to_go_on_and_sends_too_much_gets_to_read_413() {
    let (server, _) = counting(verify(Scheme::standard())).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&signed_wrongly(), &["transfer-encoding: chunked", "expect: 100-continue"])).await;
    let go_on = wire.head().await.expect("a go-ahead");
    assert!(go_on.starts_with("HTTP/1.1 100"), "{go_on}");
    for _ in 0..10 {
        wire.write(chunk(&vec![b'x'; MIB])).await;
    }
    wire.write("0\r\n\r\n").await;
    let (answer, _) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// hyper follows RFC 9112: `Transfer-Encoding` wins, `Content-Length` is dropped before anybody sees it, and the
/// connection is closed after the answer, so what a proxy may have taken for a body is never a second request.
#[tokio::test]
async fn c148_a_request_with_two_lengths_hides_no_second_one() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let hidden = head(&standard("msg_2", b""), &["content-length: 0"]);
    let announced = format!("content-length: {}", hidden.len() + 5);
    for lines in [[&*announced, "transfer-encoding: chunked"], ["transfer-encoding: chunked", &*announced]] {
        let mut wire = Wire::to(server.address).await;
        wire.write([&head(&standard("msg_1", b""), &lines)[..], b"0\r\n\r\n", &hidden].concat()).await;
        let said = wire.rest().await;
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    }
    assert!(server.receipt("msg_2").await.is_none());
    assert!(calls.so_far() <= 1);
}

#[tokio::test]
async fn c148_trailers_are_no_part_of_what_is_signed() {
    let (server, calls) = counting(verify(Scheme::standard())).await;
    let mut wire = Wire::to(server.address).await;
    wire.write(head(&standard("msg_1", BODY), &["transfer-encoding: chunked", "trailer: webhook-id"])).await;
    wire.write(chunk(BODY)).await;
    wire.write("0\r\nwebhook-id: msg_2\r\n\r\n").await;
    let (answer, _) = wire.answer().await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(server.receipt("msg_1").await.is_some());
    assert_eq!(calls.so_far(), 1);
}
