//! What a sender is told: the handler's answer, that of a handshake, or one of a few constant texts, whatever it sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use countersign::receive::{DedupLayer, Profile, ReceiveLayer, Rejection, ResponseBody, VerifiedBody, VerifyLayer};
use countersign::signature::{Handshake, Head, Message, Signer};
use countersign::store::MemoryStore;
use countersign::{Keyring, Timestamp, Verifier};
use http::{Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};

use super::input::{At, Input, URL, other_secret};

/// Reads a scheme, letters (`s`: signed, `t`: sent twice, `o`: with another body then, `c`: cut off, `f`: the handler
/// fails, `e`: it ends in an error, `h`: what is unclear is held), an id, headers and a body.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let scheme = input.scheme();
    let letters = input.line();
    let is = |letter| letters.contains(&letter);
    let id = input.text().filter(|id| !id.is_empty());
    let mut headers = input.headers(&scheme);
    let body = input.rest();

    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let keyring = Keyring::new(other_secret(b"problems"));
    let verifier = Verifier::new(scheme.clone(), keyring.clone()).expect("a verifier").with_clock(At(now));
    let handshakes = scheme.handshakes();
    let signer = Signer::new(scheme, keyring).expect("a signer");
    let mut sign = |body: &[u8]| {
        let message = Message { id, ..Message::new(now, body).with_target(&Method::POST, URL) };
        for (name, value) in signer.sign(&message).into_iter().flatten() {
            headers.insert(name.expect("one value for each name"), value);
        }
        headers.clone()
    };

    let mut requests = vec![(if is(b's') { sign(body) } else { sign(b"not this body") }, body.to_vec())];
    if is(b't') {
        let body = if is(b'o') { [body, b" "].concat() } else { body.to_vec() };
        requests.push((sign(&body), body));
    }
    let verify = VerifyLayer::builder("source", verifier.clone()).body_limit(256).exact_url(URL);
    let profile = if is(b'h') { Profile::Strict } else { Profile::Standard };
    let dedup = DedupLayer::builder(MemoryStore::new()).profile(profile).build();
    let (verify, dedup) = (verify.build().expect("a layer"), dedup.expect("a layer"));
    let layer = ReceiveLayer::new(verify, dedup).expect("a receiver");
    let (fails, errs) = (is(b'f'), is(b'e'));
    let service = layer.layer(service_fn(move |_: Request<VerifiedBody>| async move {
        let status = if fails { StatusCode::IM_A_TEAPOT } else { StatusCode::OK };
        if errs { Err(io::Error::other("the handler's own secret")) } else { Ok(answer(status)) }
    }));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for (headers, body) in requests {
            let right = verifier.verify(Head::new(&Method::POST, URL, &headers), &body).is_ok();
            let sent = Sent { left: Some(body.into()), cut_off: is(b'c') };
            let mut request = Request::post("/in").body(sent).expect("a request");
            *request.headers_mut() = headers;
            let response = service.clone().oneshot(request).await.expect("an answer");
            check(response, right, handshakes).await;
        }
    });
}

fn answer(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("from the handler"));
    *response.status_mut() = status;
    response
}

async fn check(response: Response<ResponseBody>, right: bool, handshakes: &[Handshake]) {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    // Where the provider tries a wrong signature and wants nothing else.
    if parts.status == StatusCode::UNAUTHORIZED && body.is_empty() {
        assert!(!right);
        let told = [header::WWW_AUTHENTICATE, header::CONTENT_TYPE].iter().any(|name| parts.headers.contains_key(name));
        return assert!(!told);
    }
    if let Some(kind) = parts.extensions.get::<Handshake>() {
        assert!(handshakes.contains(kind), "the scheme knows no {kind:?}");
        assert_eq!(parts.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        return assert!(parts.status.is_success() && body.len() <= 1024, "{kind:?}: {} {body:?}", parts.status);
    }
    let problem = PROBLEMS.iter().find(|(_, name, _)| {
        let found: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        found.is_some_and(|found| found["type"] == format!("urn:countersign:problem:{name}"))
    });
    let Some((status, name, detail)) = problem else {
        assert_eq!(parts.extensions.get::<Rejection>(), None, "a problem that is not in the table");
        assert!(right, "the handler ran for a request that does not verify");
        assert_eq!(body, "from the handler");
        return;
    };
    assert_eq!(parts.status, *status, "{name}");
    assert_eq!(parts.headers[header::CONTENT_TYPE], "application/problem+json");
    assert_eq!(parts.headers.contains_key(header::WWW_AUTHENTICATE), *status == StatusCode::UNAUTHORIZED);
    let constant = json!({
        "type": format!("urn:countersign:problem:{name}"), "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail,
    });
    assert_eq!(body, constant.to_string(), "{name}");
    match *name {
        "signature-not-verified" => assert!(!right),
        "handshake-refused" => assert!(!handshakes.is_empty(), "a scheme without handshakes refused one"),
        "handler-failed" | "other-body" | "outcome-unclear" => {
            assert!(right, "{name} for a request that does not verify");
        }
        _ => {}
    }
}

/// Everything that a sender can bring about.
const PROBLEMS: &[(StatusCode, &str, &str)] = &[
    (StatusCode::UNAUTHORIZED, "signature-not-verified", "The request does not carry a valid signature."),
    (StatusCode::BAD_REQUEST, "body-incomplete", "The body ended before it was complete."),
    (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is larger than this receiver accepts."),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "body-taken",
        "This receiver is misconfigured: the body was read before its signature could be checked.",
    ),
    (StatusCode::FORBIDDEN, "handshake-refused", "This receiver does not answer such a handshake."),
    (
        StatusCode::BAD_REQUEST,
        "invalid-event-id",
        "The event has no usable id: 1 to 255 bytes of UTF-8 without control characters are expected.",
    ),
    (
        StatusCode::CONFLICT,
        "other-body",
        "This event id was delivered before with a different body. Send each event under an id of its own, and every \
         delivery of an event with the same bytes.",
    ),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "handler-failed",
        "The event was accepted but its handler failed. Deliver it again.",
    ),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "outcome-unclear",
        "Whether the event was handled is not known, and an operator looks into it. Deliver it again later.",
    ),
];

/// A body in one piece, and a connection that may break behind it.
struct Sent {
    left: Option<Bytes>,
    cut_off: bool,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.left.take() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if std::mem::take(&mut self.cut_off) => Some(Err(io::Error::other("reset"))),
            None => None,
        })
    }
}
