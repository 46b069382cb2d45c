//! Third step of the walk: which event a delivery is a delivery of.

use super::delivery::Proof;
use super::{Delivery, KeyError};
use crate::signature::{IdOrigin, body_field};
use crate::{DedupKey, EventId};

/// What makes two deliveries the same event.
///
/// Only signed bytes can: who holds one captured request could send it again under any id that the signature does not
/// cover, or take the id of an event to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFrom {
    /// The sender's id where the signature covers it, else the digest of the signed bytes; presets that do otherwise say
    /// why. The default.
    ///
    /// By digest, two events whose signed bytes are equal are one event. For schemes that sign no timestamp (GitHub,
    /// Shopify), that means equal bodies, under whatever event type or topic their unsigned headers name: give each
    /// topic an endpoint, and so a source, of its own. Where a timestamp is signed and there is no id, only an exact
    /// repeat has the same digest: an attempt that the sender signed anew is a new event. [`KeyFrom::Body`] and
    /// [`KeyFrom::BodyField`] know it again.
    #[default]
    Scheme,
    /// The digest of the body alone: attempts that were signed anew are one event, and so are two events with equal
    /// bodies.
    Body,
    /// A field of the signed body, by its path: `id`, `event.id`. A delivery without it is refused.
    BodyField(String),
    /// The signed id. A delivery without one is refused.
    SignedId,
    /// The digest of the signed bytes, even where there is a signed id.
    SignedBytes,
}

impl KeyFrom {
    /// The key of a delivery.
    pub(super) fn key(&self, delivery: &Delivery) -> Result<DedupKey, KeyError> {
        match self {
            Self::Body => Ok(DedupKey::from_digest(&delivery.body_digest())),
            Self::BodyField(path) => match body_field(delivery.body(), path) {
                Some(id) => EventId::new(&id).map(|id| DedupKey::from_id(&id)).map_err(KeyError::Unusable),
                None => Err(KeyError::NoField(path.clone())),
            },
            Self::Scheme => Ok(match delivery.proof() {
                Proof::Checked { verified, .. } => verified.dedup_key(&delivery.body_digest()),
                Proof::Accepted(accepted) => accepted.key.clone(),
            }),
            Self::SignedBytes => Ok(signed_bytes(delivery)),
            Self::SignedId => signed_id(delivery).ok_or(KeyError::NoSignedId),
        }
    }
}

fn signed_id(delivery: &Delivery) -> Option<DedupKey> {
    match delivery.id_origin() {
        IdOrigin::SignedBody | IdOrigin::SignedHeader => delivery.event_id().map(DedupKey::from_id),
        IdOrigin::None | IdOrigin::Unsigned => None,
    }
}

fn signed_bytes(delivery: &Delivery) -> DedupKey {
    match delivery.proof() {
        Proof::Checked { verified, .. } => DedupKey::from_digest(&verified.signed_digest(&delivery.body_digest())),
        // A layer behind a processor: what the event was remembered by when it was accepted.
        Proof::Accepted(accepted) => accepted.key.clone(),
    }
}
