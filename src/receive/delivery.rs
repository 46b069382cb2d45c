//! What a checked request has become: a [`Delivery`].

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::envelope::{ContractError, Envelope};
use crate::signature::{IdOrigin, Scheme, Verified, Verifier, VerifyError};
use crate::store::{Claimed, ReceiptKey};
use crate::{DedupKey, Digest, EventId, Name, Timestamp};

/// A request whose signature was right, with its body, byte for byte.
///
/// It cannot be made in any other way than by a check that succeeded, or, in deferred mode, by a
/// [`Processor`](super::Processor) from a receipt that such a check was followed by: whoever holds one holds a checked one,
/// as far as the store can be trusted to give back what was put there. Cloning is cheap. What the signature covers is the
/// body and, where the scheme says so, id and timestamp. Other headers of the request are not vouched for, and are not to
/// be found here.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    proof: Proof,
    body: Bytes,
    digest: OnceLock<Digest>,
}

/// Why a delivery may be believed.
pub(super) enum Proof {
    /// A check in this process.
    Checked { source: Arc<Source>, verified: Verified },
    /// A check in front of the receipt that this was read from.
    Accepted(AcceptedProof),
}

/// What a receipt tells of the check.
pub(super) struct AcceptedProof {
    pub(super) key: DedupKey,
    source: Name,
    event_id: Option<EventId>,
    written: WrittenProof,
    id_origin: IdOrigin,
}

/// What a check showed, as it is kept with a request.
#[derive(Debug, Deserialize, Serialize)]
struct WrittenProof {
    scheme: String,
    id_origin: String,
    /// Microseconds.
    timestamp: Option<i64>,
}

/// One sender, and how its signatures are checked.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: Name,
    pub(super) verifier: Verifier,
}

impl Delivery {
    /// The way to a delivery within a request: [`Verified`] proves that these bytes were checked.
    pub(super) fn assertion(source: Arc<Source>, verified: Verified, body: Bytes) -> Self {
        Self(Arc::new(Inner { proof: Proof::Checked { source, verified }, body, digest: OnceLock::new() }))
    }

    /// The way to a delivery behind a request: only what this crate's layers accepted stands in a receipt with a lease.
    /// `None` where the receipt does not say what was checked.
    pub(super) fn accepted(claimed: &Claimed) -> Option<Self> {
        let written: WrittenProof = serde_json::from_str(&claimed.request.proof).ok()?;
        let origins = [IdOrigin::SignedHeader, IdOrigin::SignedBody, IdOrigin::Unsigned, IdOrigin::None];
        let id_origin = origins.into_iter().find(|origin| origin.as_str() == written.id_origin)?;
        let ReceiptKey { source, key, .. } = claimed.lease.key.clone();
        let proof = AcceptedProof { key, source, event_id: claimed.event_id.clone(), written, id_origin };
        let (body, digest) = (claimed.request.body.clone(), OnceLock::new());
        Some(Self(Arc::new(Inner { proof: Proof::Accepted(proof), body, digest })))
    }

    /// The name that this side gave to the sender.
    #[must_use]
    pub fn source(&self) -> &Name {
        match &self.0.proof {
            Proof::Checked { source, .. } => &source.name,
            Proof::Accepted(accepted) => &accepted.source,
        }
    }

    /// The name of the scheme by which it was checked.
    #[must_use]
    pub fn scheme_name(&self) -> &str {
        match &self.0.proof {
            Proof::Checked { verified, .. } => verified.scheme_name(),
            Proof::Accepted(accepted) => &accepted.written.scheme,
        }
    }

    /// The proof, where the check was made within this very request: `None` for a delivery that a
    /// [`Processor`](super::Processor) took from the store.
    #[must_use]
    pub fn verified(&self) -> Option<&Verified> {
        match &self.0.proof {
            Proof::Checked { verified, .. } => Some(verified),
            Proof::Accepted(_) => None,
        }
    }

    /// The sender's id for the event, where there is one. See [`Delivery::id_origin`] for what it is worth.
    #[must_use]
    pub fn event_id(&self) -> Option<&EventId> {
        match &self.0.proof {
            Proof::Checked { verified, .. } => verified.event_id(),
            Proof::Accepted(accepted) => accepted.event_id.as_ref(),
        }
    }

    /// Where the id stood, and whether the signature covers it.
    #[must_use]
    pub fn id_origin(&self) -> IdOrigin {
        match &self.0.proof {
            Proof::Checked { verified, .. } => verified.id_origin(),
            Proof::Accepted(accepted) => accepted.id_origin,
        }
    }

    /// When the sender signed it, where the scheme signs a time.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        match &self.0.proof {
            Proof::Checked { verified, .. } => verified.timestamp(),
            Proof::Accepted(accepted) => accepted.written.timestamp.map(Timestamp::from_micros),
        }
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

    pub(super) fn proof(&self) -> &Proof {
        &self.0.proof
    }

    /// What its check showed, to be read by [`Delivery::accepted`].
    pub(super) fn written_proof(&self) -> String {
        let written = WrittenProof {
            scheme: self.scheme_name().to_owned(),
            id_origin: self.id_origin().as_str().to_owned(),
            timestamp: self.timestamp().map(Timestamp::as_micros),
        };
        // Two texts and a number can always be written.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// The scheme, where the check was made here.
    pub(super) fn scheme(&self) -> Option<&Scheme> {
        match &self.0.proof {
            Proof::Checked { source, .. } => Some(source.verifier.scheme()),
            Proof::Accepted(_) => None,
        }
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

impl Delivery {
    /// Reads the body as an [`Envelope`], whose payload is read by its type: [`Envelope::read`].
    ///
    /// # Errors
    ///
    /// [`ContractError`] where the body is none, or is that of another event than the one that the sender names.
    pub fn envelope(&self) -> Result<Envelope, ContractError> {
        let envelope = Envelope::from_json(&self.0.body)?;
        match self.event_id() {
            Some(id) if *id != envelope.id => Err(ContractError::OtherId(envelope.id)),
            _ => Ok(envelope),
        }
    }
}

/// Sizes and names, never the payload.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", self.source())
            .field("scheme", &self.scheme_name())
            .field("event_id", &self.event_id())
            .field("id_origin", &self.id_origin())
            .field("timestamp", &self.timestamp())
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
/// Only a check makes one, or a processor from what a check let through, so a layer that asks for it cannot be put in front of the check.
#[derive(Debug)]
pub struct VerifiedBody {
    delivery: Delivery,
    /// Why it is one for the quarantine alone. No handler sees such a body.
    stale: Option<VerifyError>,
    unread: Option<Bytes>,
}

impl VerifiedBody {
    pub(super) fn new(delivery: Delivery) -> Self {
        let unread = Some(delivery.body().clone()).filter(|body| !body.is_empty());
        Self { delivery, stale: None, unread }
    }

    /// The body of a request that was rightly signed and lies outside the window.
    pub(super) fn stale(delivery: Delivery, outside: VerifyError) -> Self {
        Self { stale: Some(outside), ..Self::new(delivery) }
    }

    pub(super) fn staleness(&self) -> Option<&VerifyError> {
        self.stale.as_ref()
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
