//! The layers as Tower layers: readiness, panics, servers without axum, and one answer to every forger.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use countersign::receive::{
    DedupLayer, Delivery, ReceiveLayer, Rejection, RejectionKind, ResponseBody, VerifiedBody, VerifyLayer,
};
use countersign::signature::{Scheme, VerifyError};
use countersign::store::{MemoryStore, ReceiptState};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::buffer::BufferLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{
    Calls, Infallibly, OTHER_SECRET, Server, client, request, send, standard, standard_at, unix_now, verify,
};

const BODY: &[u8] = b"{\"a\":1}";

fn verify_layer() -> VerifyLayer {
    verify(Scheme::standard()).build().expect("a layer")
}

fn receive_layer() -> ReceiveLayer {
    ReceiveLayer::new(verify_layer(), DedupLayer::new(MemoryStore::new())).expect("a receiver")
}

fn post(headers: HeaderMap) -> Request<Full<Bytes>> {
    request("/", headers, BODY)
}

/// Answers only if it was asked whether it is ready, itself and since its last call.
struct Strict {
    ready: bool,
    calls: Calls,
}

impl Strict {
    fn new(calls: &Calls) -> Self {
        Self { ready: false, calls: calls.clone() }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::new(&self.calls)
    }
}

impl Service<Request<VerifiedBody>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Infallibly<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Infallibly<()>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<VerifiedBody>) -> Self::Future {
        assert!(self.ready, "called without having been asked");
        self.ready = false;
        self.calls.count();
        let body = request.into_body().delivery().body().clone();
        Box::pin(async move { Ok(Response::new(Full::new(body))) })
    }
}

/// Calls the service for two events, and says what they were answered.
async fn called_twice<S, E>(mut service: S) -> [StatusCode; 2]
where
    S: Service<Request<Full<Bytes>>, Response = Response<ResponseBody>, Error = E>,
    E: std::fmt::Debug,
{
    let mut statuses = [StatusCode::IM_A_TEAPOT; 2];
    for (index, status) in statuses.iter_mut().enumerate() {
        let service = service.ready().await.expect("it is ready");
        let answer = service.call(post(standard(&format!("msg_{index}"), BODY))).await.expect("an answer");
        *status = answer.status();
    }
    statuses
}

#[tokio::test]
async fn the_inner_service_that_was_ready_is_the_one_that_is_called() {
    let calls = Calls::default();
    let strict = Strict::new(&calls);
    let ok = [StatusCode::OK; 2];
    assert_eq!(called_twice(verify_layer().layer(strict.clone())).await, ok);
    assert_eq!(called_twice(verify_layer().layer(DedupLayer::new(MemoryStore::new()).layer(strict.clone()))).await, ok);
    assert_eq!(called_twice(receive_layer().layer(strict.clone())).await, ok);
    let limited = ServiceBuilder::new()
        .layer(receive_layer())
        .layer(BufferLayer::new(4))
        .concurrency_limit(1)
        .service(strict.clone());
    assert_eq!(called_twice(limited).await, ok);
    let limited =
        ServiceBuilder::new().concurrency_limit(1).layer(receive_layer()).concurrency_limit(1).service(strict);
    assert_eq!(called_twice(limited).await, ok);
    assert_eq!(calls.so_far(), 10);
}

#[tokio::test]
async fn a_refusal_gives_the_place_of_its_inner_service_back() {
    let calls = Calls::default();
    let service = ServiceBuilder::new().layer(receive_layer()).concurrency_limit(1).service(Strict::new(&calls));
    for _ in 0..3 {
        let answer = service.clone().oneshot(post(HeaderMap::new())).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(calls.so_far(), 0);
    }
    let one = |id| service.clone().oneshot(post(standard(id, BODY)));
    let (first, second) = tokio::join!(one("msg_1"), one("msg_2"));
    assert_eq!([first, second].map(|answer| answer.expect("an answer").status()), [StatusCode::OK; 2]);
    assert_eq!(calls.so_far(), 2);
}

#[tokio::test]
async fn c149_a_panic_in_the_handler_is_answered_500_and_the_event_runs_again() {
    let calls = Calls::default();
    let counted = calls.clone();
    let app = Router::new().fallback(move || async move {
        assert!(counted.count() > 1, "the first run panics");
        "done"
    });
    let server = Server::standard(app).await;
    let answer = server.post(standard("msg_1", BODY), BODY).await;
    assert_eq!((answer.status, &*answer.problem()), (StatusCode::INTERNAL_SERVER_ERROR, "handler-failed"));
    assert!(!answer.text().contains("the first run panics"), "what it said is for the operator");
    let receipt = server.receipt("msg_1").await.expect("a receipt");
    assert_eq!(receipt.state, ReceiptState::Failed);
    assert!(receipt.error.is_some_and(|error| error.contains("the first run panics")));

    assert_eq!(server.post(standard("msg_2", BODY), BODY).await.text(), "done");
    let again = server.post(standard("msg_1", BODY), BODY).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (StatusCode::OK, "done".to_owned(), false));
    assert!(server.post(standard("msg_1", BODY), BODY).await.is_replay());
    assert_eq!(calls.so_far(), 3);
}

#[tokio::test]
async fn a_plain_hyper_server_needs_no_axum() {
    async fn handle(request: Request<VerifiedBody>) -> Infallibly<Response<Full<Bytes>>> {
        let delivery = request.extensions().get::<Delivery>().expect("it is there for any framework").clone();
        assert_eq!(delivery.body(), request.body().delivery().body());
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(Full::new(body)))
    }
    let service = ServiceBuilder::new().layer(receive_layer()).service(service_fn(handle));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                // How a connection ends is its client's business.
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });

    for http2 in [false, true] {
        let id = format!("msg_{http2}");
        let url = format!("http://{address}/");
        let answer = send(&client(http2), request(&url, standard(&id, BODY), BODY)).await;
        assert_eq!((answer.status, &answer.body[..], answer.is_replay()), (StatusCode::OK, BODY, false));
        let answer = send(&client(http2), request(&url, standard(&id, BODY), BODY)).await;
        assert_eq!((answer.status, &answer.body[..], answer.is_replay()), (StatusCode::OK, BODY, true));
        let answer = send(&client(http2), request(&url, HeaderMap::new(), BODY)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn c148_where_both_lengths_are_visible_the_request_is_refused() {
    let calls = Calls::default();
    let mut headers = standard("msg_1", BODY);
    headers.extend(crate::support::headers(&[("content-length", "7"), ("transfer-encoding", "chunked")]));
    let answer = receive_layer().layer(Strict::new(&calls)).oneshot(post(headers)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(calls.so_far(), 0);
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    tokio::time::pause();
    let layer = verify(Scheme::standard()).body_timeout(Duration::from_secs(30)).build().expect("a layer");
    let calls = Calls::default();
    let body = http_body_util::StreamBody::new(futures_util::stream::pending::<Infallibly<http_body::Frame<Bytes>>>());
    let request = post(standard("msg_1", BODY)).map(|_| body);
    let before = tokio::time::Instant::now();
    let answer = layer.layer(Strict::new(&calls)).oneshot(request).await.expect("an answer");
    assert_eq!((answer.status(), before.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 30));
    assert_eq!(calls.so_far(), 0);
}

/// Each with its cause as the operator sees it.
fn forgeries() -> Vec<(&'static str, HeaderMap)> {
    let good = || standard("msg_1", BODY);
    let with = |name: &'static str, value: &str| {
        let mut headers = good();
        headers.insert(name, value.parse().expect("a header value"));
        headers
    };
    let mut forgeries = vec![("missing_header", HeaderMap::new())];
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut without = good();
        let value = without.remove(name).expect("it is there");
        forgeries.push(("missing_header", without));
        forgeries.push(("malformed", with(name, "")));
        let mut twice = good();
        twice.append(name, value);
        forgeries.push(("duplicate_header", twice));
        let mut one_empty = good();
        one_empty.append(name, "".parse().expect("a header value"));
        forgeries.push(("duplicate_header", one_empty));
    }
    let now = unix_now();
    let at = |time: u64| standard_at(crate::support::SECRET, "msg_1", &time.to_string(), BODY);
    forgeries.extend([
        ("malformed", with("webhook-timestamp", "soon")),
        ("malformed", with("webhook-signature", "v2,AAAA")),
        ("malformed", with("webhook-signature", "\u{e9}")),
        ("mismatch", with("webhook-id", "msg_2")),
        ("mismatch", standard("msg_1", b"another body")),
        ("mismatch", standard_at(OTHER_SECRET, "msg_1", &now.to_string(), BODY)),
        ("too_old", at(now - 400)),
        ("too_new", at(now + 400)),
    ]);
    forgeries
}

#[tokio::test]
async fn c024_c034_every_forger_gets_the_same_answer_and_the_operator_the_cause() {
    let calls = Calls::default();
    let service = receive_layer().layer(Strict::new(&calls));
    let mut answers = Vec::new();
    for (reason, headers) in forgeries() {
        let answer = service.clone().oneshot(post(headers)).await.expect("an answer");
        let rejection = answer.extensions().get::<Rejection>().expect("the cause");
        let RejectionKind::Unverified(error) = rejection.kind() else { panic!("{rejection:?}") };
        assert_eq!(error.reason(), reason, "{error}");
        assert!(!matches!(error, VerifyError::InvalidId(_)));
        let (parts, body) = answer.into_parts();
        answers.push((parts.status, parts.headers, body.collect().await.expect("a body").to_bytes()));
    }
    let first = answers.first().expect("an answer");
    assert_eq!(first.0, StatusCode::UNAUTHORIZED);
    assert_eq!(first.1["content-type"], "application/problem+json");
    for answer in &answers {
        assert_eq!(answer, first);
    }
    assert_eq!(calls.so_far(), 0);
}
