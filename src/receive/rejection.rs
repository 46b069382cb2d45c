//! What a sender gets when an event is not run: the one map from cause to HTTP.
//!
//! The exact cause is for operators, in the log and in the response's extensions. The peer sees a status and a
//! constant text, the same for every fault of a signature, so that it learns nothing by trying.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use thiserror::Error;

use super::ResponseBody;
use crate::event::NameError;
use crate::signature::VerifyError;

/// Why a request was answered by this crate instead of the handler.
///
/// A layer outside ours finds it in the extensions of the response.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    kind: RejectionKind,
    status: StatusCode,
    retry_after: Option<Duration>,
    /// Whether the sender sees the status alone.
    bare: bool,
}

/// The causes.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The connection ended before the body was complete.
    #[error("the body ended early: {0}")]
    BodyIncomplete(String),
    /// This many bytes were announced, but a layer in front of the check had read them.
    #[error(
        "the body of {0} bytes was read by another layer before its signature could be checked; put the check outside it"
    )]
    BodyTaken(u64),
    /// The body is over the limit.
    #[error("the body is over the limit")]
    BodyTooLarge,
    /// The body was not complete in time.
    #[error("the body was not complete in time")]
    BodyTooSlow,
    /// An earlier run used up the event's attempts without living to answer.
    #[error("the event was given up")]
    GaveUp,
    /// The handler failed, panicked, or took too long.
    #[error("the handler did not answer: {0}")]
    HandlerFailed(String),
    /// A handshake that asks for what no provider asks for, or without the token that was agreed on.
    #[error("the handshake was not answered: {0}")]
    Handshake(&'static str),
    /// The signature is right, but the id cannot be used as a key.
    #[error("the event's id cannot be used: {0}")]
    InvalidKey(KeyError),
    /// The same signed id came before with another body.
    #[error("the event's id was seen before with another body")]
    OtherBody,
    /// The event's last run ended without a word, or nobody can tell what came of it, and it is not run again by itself:
    /// [`Profile::Strict`](super::Profile).
    #[error("the outcome of the event's last run is unclear, and it waits for an operator")]
    OutcomeUnclear,
    /// Bodies that are not checked yet fill the room that there is for them.
    #[error("too many bodies are being received at once")]
    Overloaded,
    /// Another delivery of the event is being handled.
    #[error("another delivery of the event is being handled")]
    Processing,
    /// The store could not be asked: the handler was not run.
    #[error("the store did not answer: {0}")]
    StoreUnavailable(String),
    /// The handler ran, but its result could not be stored.
    #[error("the result could not be stored: {0}")]
    Unsettled(String),
    /// The signature is absent, malformed or wrong, or the timestamp is outside the window.
    #[error("the signature was not accepted: {0}")]
    Unverified(VerifyError),
}

/// Why an event has no usable key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key was asked to be a field of the body, and the body has no such field.
    #[error("the body has no field `{0}`")]
    NoField(String),
    /// The key was asked to be the signed id, and there is none.
    #[error("there is no signed id")]
    NoSignedId,
    /// The id is empty, too long, or holds control characters.
    #[error("{0}")]
    Unusable(NameError),
}

impl Rejection {
    pub(super) fn new(kind: RejectionKind) -> Self {
        let (status, _, _) = problem(&kind);
        let retry_after = matches!(
            kind,
            RejectionKind::Overloaded | RejectionKind::StoreUnavailable(_) | RejectionKind::Unsettled(_)
        )
        .then_some(Duration::from_secs(5));
        Self { kind, status, retry_after, bare: false }
    }

    /// Another delivery is being handled, and its lease has `left` to go.
    pub(super) fn processing(status: StatusCode, left: Duration) -> Self {
        let wait = left.clamp(Duration::from_secs(1), Duration::from_secs(30));
        Self { kind: RejectionKind::Processing, status, retry_after: Some(wait), bare: false }
    }

    #[must_use]
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// A refused signature is answered with its status and nothing else.
    #[must_use]
    pub(super) fn without_body(mut self) -> Self {
        self.bare = self.status == StatusCode::UNAUTHORIZED;
        self
    }

    /// The cause.
    #[must_use]
    pub const fn kind(&self) -> &RejectionKind {
        &self.kind
    }

    /// The status that the sender saw.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// When the sender was asked to come back.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The answer: `application/problem+json`, or nothing but the status for a signature of a provider that tries its
    /// receivers with wrong ones (Xero), with this rejection in its extensions.
    #[must_use]
    pub fn into_response(self) -> Response<ResponseBody> {
        if self.bare {
            let mut response = Response::new(ResponseBody::empty());
            *response.status_mut() = self.status;
            response.extensions_mut().insert(self);
            return response;
        }
        let mut response = Response::new(ResponseBody::full(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Signature"));
        }
        if let Some(wait) = self.retry_after {
            // Rounded up: who comes back a fraction of a second early finds nothing new.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }

    pub(super) fn body(&self) -> Bytes {
        let (_, name, detail) = problem(&self.kind);
        let title = self.status.canonical_reason().unwrap_or("Refused");
        serde_json::json!({
            "type": format!("urn:countersign:problem:{name}"),
            "title": title,
            "status": self.status.as_u16(),
            "detail": detail,
        })
        .to_string()
        .into()
    }
}

/// The media type of refusals.
pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Cause → status, name of the problem, text for the peer.
fn problem(kind: &RejectionKind) -> (StatusCode, &'static str, &'static str) {
    match kind {
        RejectionKind::BodyIncomplete(_) => {
            (StatusCode::BAD_REQUEST, "body-incomplete", "The body ended before it was complete.")
        }
        RejectionKind::BodyTaken(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "body-taken",
            "This receiver is misconfigured: the body was read before its signature could be checked.",
        ),
        RejectionKind::BodyTooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is larger than this receiver accepts.")
        }
        RejectionKind::BodyTooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "body-too-slow", "The body was not complete in time.")
        }
        RejectionKind::GaveUp => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "given-up",
            "The event failed too often and was set aside for an operator. It is not run again.",
        ),
        RejectionKind::HandlerFailed(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "handler-failed",
            "The event was accepted but its handler failed. Deliver it again.",
        ),
        RejectionKind::Handshake(_) => {
            (StatusCode::FORBIDDEN, "handshake-refused", "This receiver does not answer such a handshake.")
        }
        RejectionKind::InvalidKey(_) | RejectionKind::Unverified(VerifyError::InvalidId(_)) => (
            StatusCode::BAD_REQUEST,
            "invalid-event-id",
            "The event has no usable id: 1 to 255 bytes of UTF-8 without control characters are expected.",
        ),
        RejectionKind::OtherBody => (
            StatusCode::CONFLICT,
            "other-body",
            "This event id was delivered before with a different body. Send each event under an id of its own, \
             and every delivery of an event with the same bytes.",
        ),
        RejectionKind::OutcomeUnclear => (
            StatusCode::SERVICE_UNAVAILABLE,
            "outcome-unclear",
            "Whether the event was handled is not known, and an operator looks into it. Deliver it again later.",
        ),
        RejectionKind::Overloaded => (
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "This receiver is receiving too much at once. Deliver the event again later.",
        ),
        RejectionKind::Processing => (
            StatusCode::CONFLICT,
            "still-processing",
            "Another delivery of this event is being handled. Deliver it again later to learn its result.",
        ),
        RejectionKind::StoreUnavailable(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", "The event was not handled. Deliver it again later.")
        }
        RejectionKind::Unsettled(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "result-not-stored",
            "The result of the event could not be stored. Deliver it again later.",
        ),
        RejectionKind::Unverified(_) => {
            (StatusCode::UNAUTHORIZED, "signature-not-verified", "The request does not carry a valid signature.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_rounded_up_and_kept_between_1_and_30_seconds() {
        for (left, expected) in [(0, "1"), (1_001, "2"), (29_000, "29"), (600_000, "30")] {
            let response = Rejection::processing(StatusCode::CONFLICT, Duration::from_millis(left)).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], expected, "{left} ms");
        }
    }
}
