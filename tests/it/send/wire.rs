//! What goes over the wire, and what an answer is taken for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use countersign::send::{Ending, Failure, Guard, HttpTransport, Outgoing, Overrides, Verdict, classify};
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;

use super::{
    Names, Receiver, acceptor, anything, builder, drain, identity, outgoing, raw, read_request, send, transport,
    trusting,
};
use crate::support::{BODIES, headers, until};

fn verdict(outcome: &Result<countersign::send::Answer, Failure>) -> Verdict {
    classify(outcome, &Overrides::none(), countersign::Timestamp::default())
}

/// Receivers that speak HTTP/1.1 and HTTP/2 over TLS, and HTTP/1.1 without it, each with a transport that knows the way.
async fn each_way() -> Vec<(Version, Receiver, HttpTransport, String)> {
    let identity = identity(&["hooks.example"]);
    let mut ways = Vec::new();
    for (version, scheme, tls) in [
        (Version::HTTP_11, "http", None),
        (Version::HTTP_11, "https", Some(acceptor(&identity, &[b"http/1.1"]))),
        (Version::HTTP_11, "https", Some(acceptor(&identity, &[]))),
        (Version::HTTP_2, "https", Some(acceptor(&identity, &[b"h2", b"http/1.1"]))),
    ] {
        let receiver = Receiver::on("127.0.0.1:0", tls, |_| Response::new(Full::from("taken"))).await;
        let guard = Guard::new(anything()).with_resolver(Names::default().with("hooks.example", "127.0.0.1"));
        let transport = HttpTransport::builder(guard).tls(trusting(&identity)).build().expect("a transport");
        let url = format!("{scheme}://hooks.example:{}/in?a=%20b", receiver.address.port());
        ways.push((version, receiver, transport, url));
    }
    ways
}

#[tokio::test]
async fn c105_each_body_arrives_byte_for_byte_over_each_version_of_http() {
    for (version, receiver, transport, url) in each_way().await {
        let large = vec![b'x'; 1024 * 1024];
        for body in BODIES.into_iter().chain([&*large]) {
            let given = headers(&[("webhook-id", "msg_1"), ("content-type", "application/json")]);
            let answer = send(&transport, Outgoing::new(&*url, given, body.to_vec())).await.expect("an answer");
            assert_eq!(
                (answer.status, &*answer.body, answer.ending),
                (StatusCode::OK, &b"taken"[..], Ending::Complete)
            );
            assert_eq!(answer.address, Some(receiver.address));

            let seen = receiver.seen().pop().expect("a request");
            assert_eq!((seen.version, &*seen.path, &*seen.body), (version, "/in?a=%20b", body));
            assert_eq!(seen.headers["webhook-id"], "msg_1");
            assert_eq!(seen.headers["content-length"], body.len().to_string());
            assert!(!seen.headers.contains_key("accept-encoding"), "answers are not decompressed");
            assert!(!seen.headers.contains_key("transfer-encoding"));
            if version == Version::HTTP_11 {
                assert_eq!(seen.headers["host"], format!("hooks.example:{}", receiver.address.port()));
            }
        }
        assert_eq!(receiver.connections.so_far(), 1, "one connection for all of them");
    }
}

#[tokio::test]
async fn c110_what_the_connection_writes_itself_cannot_be_set() {
    for (_, receiver, transport, url) in each_way().await {
        let given = headers(&[
            ("host", "victim.example"),
            ("content-length", "1"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-secret"),
            ("te", "trailers"),
            ("x-secret", "kept"),
        ]);
        send(&transport, Outgoing::new(&*url, given, "four").with_method(Method::PUT)).await.expect("an answer");
        let seen = receiver.seen().pop().expect("a request");
        assert_eq!((&*seen.body, &seen.headers["content-length"]), (&b"four"[..], &"4".parse().expect("a value")));
        assert_eq!(seen.headers["x-secret"], "kept");
        for name in ["transfer-encoding", "connection", "te"] {
            assert!(!seen.headers.contains_key(name), "{name}");
        }
        assert_ne!(seen.headers.get("host").map(|host| host.as_bytes()), Some(&b"victim.example"[..]));
    }
}

#[tokio::test]
async fn c112_c113_no_redirect_is_followed_and_none_is_a_success() {
    let elsewhere = Receiver::ok().await;
    let locations = [
        elsewhere.url(),
        format!("//{}/", elsewhere.address),
        "http://169.254.169.254/".to_owned(),
        "https://[::1]/".to_owned(),
        "https://other.example/?key=S3CRET".to_owned(),
    ];
    for status in [301, 302, 303, 307, 308] {
        for location in locations.clone() {
            let host = location.split("//").nth(1).and_then(|rest| rest.split('/').next()).expect("a host").to_owned();
            let host = host.trim_end_matches(char::is_numeric).trim_end_matches(':').to_owned();
            let host = if host.is_empty() || host.ends_with('.') { "1".to_owned() } else { host };
            let redirecting = Receiver::new(move |_| {
                let response = Response::builder().status(status).header("location", &location);
                response.body(Full::default()).expect("a response")
            })
            .await;
            let outcome = send(&transport(anything()), outgoing(redirecting.url())).await;
            assert_eq!(verdict(&outcome), Verdict::Permanent);
            let text = outcome.expect("an answer").to_string();
            assert!(text.contains("not followed") && text.contains(&host), "{text}");
            assert!(!text.contains("S3CRET"), "{text}");
        }
    }
    assert_eq!(elsewhere.connections.so_far(), 0);
}

#[tokio::test]
async fn c112_a_redirect_to_https_on_the_same_host_is_explained() {
    let receiver = Receiver::new(|_| {
        let response = Response::builder().status(308).header("location", "https://127.0.0.1/hook");
        response.body(Full::default()).expect("a response")
    })
    .await;
    let answer = send(&transport(anything()), outgoing(receiver.url())).await.expect("an answer");
    assert!(answer.redirect.as_ref().is_some_and(|redirect| redirect.is_upgrade()));
    assert!(answer.to_string().contains("begin with https://"), "{answer}");
}

#[tokio::test]
async fn c115_an_answer_without_end_is_cut_and_its_connection_dropped() {
    let written = Arc::new(AtomicUsize::new(0));
    let closed = Arc::new(AtomicUsize::new(0));
    let (count, ended) = (Arc::clone(&written), Arc::clone(&closed));
    let (address, _) = raw(move |mut stream, _| {
        let (count, ended) = (Arc::clone(&count), Arc::clone(&ended));
        async move {
            read_request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n";
            stream.write_all(head).await.expect("the head is read");
            let piece = vec![b'x'; 64 * 1024];
            while stream.write_all(&piece).await.is_ok() {
                count.fetch_add(piece.len(), Ordering::SeqCst);
            }
            ended.store(1, Ordering::SeqCst);
        }
    })
    .await;
    let outcome = send(&transport(anything()), outgoing(format!("http://{address}/")).with_answer_limit(1_000)).await;
    assert_eq!(verdict(&outcome), Verdict::Delivered);
    let answer = outcome.expect("an answer");
    assert_eq!((answer.body.len(), answer.ending), (1_000, Ending::Cut));
    until("the connection is dropped", async || closed.load(Ordering::SeqCst) == 1).await;
    // What the system's buffers of both sides take, and not the ten gigabytes.
    assert!(written.load(Ordering::SeqCst) < 64 * 1024 * 1024);
}

#[tokio::test]
async fn c115_an_answer_that_is_compressed_is_kept_as_it_came() {
    let gzip: &[u8] = b"\x1f\x8b\x08\x00not really";
    let receiver = Receiver::new(move |_| {
        Response::builder().header("content-encoding", "gzip").body(Full::from(gzip)).expect("a response")
    })
    .await;
    let answer = send(&transport(anything()), outgoing(receiver.url())).await.expect("an answer");
    assert_eq!((&*answer.body, answer.ending), (gzip, Ending::Complete));
}

#[tokio::test]
async fn an_answer_exactly_as_long_as_the_limit_is_complete() {
    let receiver = Receiver::new(|_| Response::new(Full::from("12345"))).await;
    for (limit, kept, ending) in [(5, 5, Ending::Complete), (4, 4, Ending::Cut), (0, 0, Ending::Cut)] {
        let sent = send(&transport(anything()), outgoing(receiver.url()).with_answer_limit(limit)).await;
        let answer = sent.expect("an answer");
        assert_eq!((answer.body.len(), answer.ending), (kept, ending));
    }
}

/// What a receiver writes to a request before it closes, and what that is taken for.
async fn answered(bytes: Vec<u8>) -> Result<countersign::send::Answer, Failure> {
    let bytes = Bytes::from(bytes);
    let (address, _) = raw(move |mut stream, _| {
        let bytes = bytes.clone();
        async move {
            read_request(&mut stream).await;
            let _cut_off = stream.write_all(&bytes).await;
            let _closed = stream.shutdown().await;
            drain(&mut stream).await;
        }
    })
    .await;
    send(&transport(anything()), outgoing(format!("http://{address}/"))).await
}

#[tokio::test]
async fn an_error_while_the_body_is_read_does_not_take_the_status_back() {
    let outcome = answered(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec()).await;
    assert_eq!(verdict(&outcome), Verdict::Delivered);
    let answer = outcome.expect("an answer");
    assert_eq!((&*answer.body, answer.ending), (&b"half"[..], Ending::Failed));

    let outcome = answered(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec()).await;
    assert_eq!(outcome.expect("an answer").ending, Ending::Failed);
}

#[tokio::test]
async fn early_hints_are_no_answer_and_what_follows_is() {
    let answer =
        answered(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_vec()).await;
    assert_eq!(answer.expect("an answer").status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn what_is_no_http_or_too_much_of_it_is_a_failure_to_be_tried_again() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    for bytes in [&b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..], b"HTTP/1.1 2xx OK\r\n\r\n", long.as_bytes(), many.as_bytes()] {
        let outcome = answered(bytes.to_vec()).await;
        assert!(matches!(verdict(&outcome), Verdict::Retry(_)));
        let failure = outcome.expect_err("no answer");
        assert_eq!(failure.kind(), "protocol", "{failure}");
    }
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-"] {
        let failure = answered(bytes.to_vec()).await.expect_err("no answer");
        assert_eq!(failure.kind(), "closed", "{failure}");
    }
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_a_failed_connection() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let failure = send(&transport(anything()), outgoing(format!("http://{address}/"))).await.expect_err("nobody");
    let Failure::Connect { address: dialled, reason } = &failure else { panic!("{failure}") };
    assert_eq!(*dialled, address.to_string());
    assert!(!reason.is_empty());
    assert!(!failure.for_tenants().contains(&address.port().to_string()));
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_not_the_hosts_stops_before_anything_is_sent() {
    let (theirs, others) = (identity(&["hooks.example"]), identity(&["hooks.example"]));
    let receiver = Receiver::on("127.0.0.1:0", Some(acceptor(&theirs, &[])), |_| Response::new(Full::default())).await;
    let plain = Receiver::ok().await;
    let names = Names::default().with("hooks.example", "127.0.0.1").with("other.example", "127.0.0.1");
    for (host, trusted, port) in [
        ("hooks.example", &others, receiver.address.port()),
        ("other.example", &theirs, receiver.address.port()),
        ("127.0.0.1", &theirs, receiver.address.port()),
        ("hooks.example", &theirs, plain.address.port()),
    ] {
        let guard = Guard::new(anything()).with_resolver(names.clone());
        let transport = HttpTransport::builder(guard).tls(trusting(trusted)).build().expect("a transport");
        let failure = send(&transport, outgoing(format!("https://{host}:{port}/"))).await.expect_err(host);
        assert_eq!(failure.kind(), "tls", "{failure}");
    }
    assert_eq!(receiver.seen().len() + plain.seen().len(), 0);
}

#[tokio::test]
async fn an_encrypted_connection_to_an_address_needs_a_certificate_for_it() {
    let identity = identity(&["127.0.0.1"]);
    let receiver =
        Receiver::on("127.0.0.1:0", Some(acceptor(&identity, &[])), |_| Response::new(Full::default())).await;
    let transport =
        HttpTransport::builder(Guard::new(anything())).tls(trusting(&identity)).build().expect("a transport");
    let answer = send(&transport, outgoing(format!("https://{}/", receiver.address))).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_transport_with_a_layer_around_it_is_a_transport() {
    let receiver = Receiver::ok().await;
    let layered = tower::ServiceBuilder::new()
        .map_request(|mut outgoing: Outgoing| {
            outgoing.headers.insert("x-layer", "was here".parse().expect("a value"));
            outgoing
        })
        .service(builder(Guard::new(anything())).build().expect("a transport"));
    let boxed: Box<dyn countersign::send::Transport> = Box::new(layered);
    boxed.send(Outgoing::new(receiver.url(), HeaderMap::new(), "{}")).await.expect("an answer");
    assert_eq!(receiver.seen()[0].headers["x-layer"], "was here");
}

/// What cannot be read is sent again, so that as much as possible is read.
#[tokio::test]
async fn a_2xx_with_a_thousand_headers_or_with_folded_ones_is_a_success() {
    let many: String = (0..1_000).map(|number| format!("x-{number}: y\r\n")).collect();
    for headers in [many.as_str(), "x-folded: one\r\n two\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
        assert_eq!(verdict(&answered(answer.into_bytes()).await), Verdict::Delivered, "{}", &headers[..20]);
    }
}
