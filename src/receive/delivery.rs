//! What a checked request has become: a [`Delivery`].

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::signature::{IdOrigin, Scheme, Verified, Verifier};
use crate::{Digest, EventId, Name, Timestamp};

/// A request whose signature was right, with its body, byte for byte.
///
/// It cannot be made in any other way than by a check that succeeded: whoever holds one holds a checked one. Cloning is
/// cheap. What the signature covers is the body and, where the scheme says so, id and timestamp. Other headers of the
/// request are not vouched for, and are not to be found here.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    source: Arc<Source>,
    verified: Verified,
    body: Bytes,
    digest: OnceLock<Digest>,
}

/// One sender, and how its signatures are checked.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: Name,
    pub(super) verifier: Verifier,
}

impl Delivery {
    /// The only way to a delivery: [`Verified`] proves that these bytes were checked.
    pub(super) fn assertion(source: Arc<Source>, verified: Verified, body: Bytes) -> Self {
        Self(Arc::new(Inner { source, verified, body, digest: OnceLock::new() }))
    }

    /// The name that this side gave to the sender.
    #[must_use]
    pub fn source(&self) -> &Name {
        &self.0.source.name
    }

    /// The scheme by which it was checked.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        self.0.source.verifier.scheme()
    }

    /// The proof: what was checked, and what it showed.
    #[must_use]
    pub fn verified(&self) -> &Verified {
        &self.0.verified
    }

    /// The sender's id for the event, where there is one. See [`Delivery::id_origin`] for what it is worth.
    #[must_use]
    pub fn event_id(&self) -> Option<&EventId> {
        self.0.verified.event_id()
    }

    /// Where the id stood, and whether the signature covers it.
    #[must_use]
    pub fn id_origin(&self) -> IdOrigin {
        self.0.verified.id_origin()
    }

    /// When the sender signed it, where the scheme signs a time.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.0.verified.timestamp()
    }

    /// The body as it was received.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// SHA-256 of the body.
    #[must_use]
    pub fn body_digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| Digest::of(&self.0.body))
    }

    /// Reads the body as JSON. A byte order mark before it is passed over here, and only here.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] where the body is not JSON, or not of this shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        let text = self.0.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.0.body);
        serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                PayloadError::OtherShape { line: error.line(), column: error.column(), detail: error.to_string() }
            }
            serde_json::error::Category::Eof
            | serde_json::error::Category::Io
            | serde_json::error::Category::Syntax => PayloadError::NotJson(error.to_string()),
        })
    }
}

/// Sizes and names, never the payload.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", &self.0.source.name)
            .field("verified", &self.0.verified)
            .field("body_bytes", &self.0.body.len())
            .finish()
    }
}

/// Why a signed body could not be read as a type. The event is genuine all the same: the handler decides what to answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The body is not JSON. The text says what was expected, and where.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// The body is JSON, of another shape: an event type that this handler does not know, say.
    #[error("the body has another shape, noticed at line {line} column {column}")]
    OtherShape {
        /// The line, from 1, where it was noticed.
        line: usize,
        /// The column in it, in bytes.
        column: usize,
        /// What was expected and what was found. It may quote the payload, so the text of this error leaves it out.
        detail: String,
    },
}

/// The request body behind a check: the verified bytes.
///
/// Only a check makes one, so a layer that asks for it cannot be put in front of the check.
#[derive(Debug)]
pub struct VerifiedBody {
    delivery: Delivery,
    unread: Option<Bytes>,
}

impl VerifiedBody {
    pub(super) fn new(delivery: Delivery) -> Self {
        let unread = Some(delivery.body().clone()).filter(|body| !body.is_empty());
        Self { delivery, unread }
    }

    /// The delivery that these bytes are the body of.
    #[must_use]
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}

impl Body for VerifiedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.unread.take().map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.unread.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unread.as_ref().map_or(0, |body| body.len() as u64))
    }
}
