//! Receivers that take their time: each attempt ends by its own deadline, and lets go of the connection.

use std::net::SocketAddr;
use std::time::Duration;

use countersign::send::{Answer, Ending, Failure, Guard, Outgoing, Stage};
use http::HeaderMap;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Names, Receiver, anything, builder, drain, outgoing, raw, read_request, send, transport};

const HEAD: Duration = Duration::from_millis(200);
const TOTAL: Duration = Duration::from_millis(400);

/// Sends to a receiver that does this with its connection, and waits until that has seen the connection end.
async fn attempt<F: Future<Output = ()> + Send>(
    scheme: &str,
    outgoing: Outgoing,
    serve: impl Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
) -> Result<Answer, Failure> {
    attempt_until(scheme, outgoing, move |stream, _is_over| serve(stream)).await
}

/// The same, and the receiver is told when the attempt is over.
async fn attempt_until<F: Future<Output = ()> + Send>(
    scheme: &str,
    outgoing: Outgoing,
    serve: impl Fn(TcpStream, CancellationToken) -> F + Clone + Send + Sync + 'static,
) -> Result<Answer, Failure> {
    let (is_over, has_ended) = (CancellationToken::new(), CancellationToken::new());
    let (hears, tells) = (is_over.clone(), has_ended.clone());
    let (address, _) = raw(move |stream, _| {
        let (serve, hears, tells) = (serve.clone(), hears.clone(), tells.clone());
        async move {
            serve(stream, hears).await;
            tells.cancel();
        }
    })
    .await;
    let transport = builder(Guard::new(anything())).tls_timeout(HEAD / 2).build().expect("a transport");
    let mut outgoing = outgoing.with_timeouts(HEAD, TOTAL);
    outgoing.url = format!("{scheme}://{address}/");
    let outcome = send(&transport, outgoing).await;
    is_over.cancel();
    let let_go = tokio::time::timeout(Duration::from_secs(30), has_ended.cancelled()).await;
    assert!(let_go.is_ok(), "the connection is let go of");
    outcome
}

#[tokio::test]
async fn c114_a_a_receiver_that_stays_silent() {
    let outcome = attempt("http", outgoing(""), |mut stream| async move { drain(&mut stream).await }).await;
    assert_eq!(outcome, Err(Failure::Timeout(Stage::Head)));
}

#[tokio::test]
async fn c114_b_a_receiver_that_stalls_in_tls() {
    let outcome = attempt("https", outgoing(""), |mut stream| async move { drain(&mut stream).await }).await;
    assert_eq!(outcome, Err(Failure::Timeout(Stage::Tls)));
}

#[tokio::test]
async fn c114_c_a_receiver_that_sends_its_head_byte_by_byte() {
    let outcome = attempt("http", outgoing(""), |mut stream| async move {
        read_request(&mut stream).await;
        drip(&mut stream, b"HTTP/1.1 200 OK\r\nx: ").await;
    })
    .await;
    assert_eq!(outcome, Err(Failure::Timeout(Stage::Head)));
}

#[tokio::test]
async fn c114_d_a_receiver_that_sends_its_body_byte_by_byte_has_answered() {
    let outcome = attempt("http", outgoing(""), |mut stream| async move {
        read_request(&mut stream).await;
        let _head = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
        drip(&mut stream, b"").await;
    })
    .await;
    let answer = outcome.expect("an answer");
    assert_eq!((answer.status, answer.ending), (http::StatusCode::OK, Ending::TimedOut));
    assert!(answer.body.iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn c114_e_a_receiver_that_never_reads_our_body() {
    let large = Outgoing::new("", HeaderMap::new(), vec![b'x'; 64 * 1024 * 1024]);
    let outcome = attempt_until("http", large, |mut stream, is_over| async move {
        is_over.cancelled().await;
        drain(&mut stream).await;
    })
    .await;
    assert_eq!(outcome, Err(Failure::Timeout(Stage::Head)));
}

#[tokio::test]
async fn c114_a_host_that_does_not_take_the_connection() {
    let (_listener, _waiting, address) = unreachable("127.0.0.1:0").await;
    let guard = Guard::new(anything());
    let transport = builder(guard).connect_timeout(HEAD).build().expect("a transport");
    let outcome = send(&transport, outgoing(format!("http://{address}/"))).await;
    assert_eq!(outcome, Err(Failure::Timeout(Stage::Connect)));
}

#[tokio::test]
async fn an_address_that_does_not_answer_gives_way_to_the_next_one() {
    let (_listener, _waiting, silent) = unreachable("127.0.0.3:0").await;
    let receiver = Receiver::on(&format!("127.0.0.4:{}", silent.port()), None, |_| Default::default()).await;
    let names = Names::default().with("two.example", "127.0.0.3,127.0.0.4");
    let transport = builder(Guard::new(anything()).with_resolver(names)).build().expect("a transport");
    let answer = send(&transport, outgoing(format!("http://two.example:{}/", silent.port()))).await.expect("an answer");
    assert_eq!(answer.address, Some(receiver.address));
}

#[tokio::test]
async fn an_attempt_that_is_dropped_lets_go_of_its_connection() {
    let ended = CancellationToken::new();
    let told = ended.clone();
    let asked = CancellationToken::new();
    let tell_asked = asked.clone();
    let (address, _) = raw(move |mut stream, _| {
        let (told, tell_asked) = (told.clone(), tell_asked.clone());
        async move {
            read_request(&mut stream).await;
            tell_asked.cancel();
            drain(&mut stream).await;
            told.cancel();
        }
    })
    .await;
    let sending =
        tokio::spawn(async move { send(&transport(anything()), outgoing(format!("http://{address}/"))).await });
    asked.cancelled().await;
    sending.abort();
    let let_go = tokio::time::timeout(Duration::from_secs(30), ended.cancelled()).await;
    assert!(let_go.is_ok(), "the connection is let go of");
}

#[tokio::test]
async fn no_time_limit_is_so_long_that_it_overflows() {
    let receiver = Receiver::ok().await;
    let guard = Guard::new(anything());
    let transport = builder(guard)
        .connect_timeout(Duration::MAX)
        .tls_timeout(Duration::MAX)
        .idle_timeout(Duration::MAX)
        .build()
        .expect("a transport");
    let sent = send(&transport, outgoing(receiver.url()).with_timeouts(Duration::MAX, Duration::MAX)).await;
    assert_eq!(sent.expect("an answer").status, http::StatusCode::OK);
}

/// A port that takes no more connections: nobody accepts, and the queue of those who wait is full, so that the system
/// answers nothing to the next one.
async fn unreachable(address: &str) -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(address.parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        waiting.push(connected.expect("a connection"));
        assert!(waiting.len() < 100, "the queue has an end");
    }
    (listener, waiting, address)
}

/// Writes this, and then a byte at a time until nobody takes them any more.
async fn drip(stream: &mut TcpStream, begin: &[u8]) {
    if stream.write_all(begin).await.is_err() {
        return;
    }
    // The pace is the receiver's, and no test waits for it.
    while stream.write_all(b"x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
