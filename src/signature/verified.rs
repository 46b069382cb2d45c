//! The proof that an event was signed with one of our secrets.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::signed::Around;
use crate::clock::Timestamp;
use crate::event::{DedupKey, Digest, EventId};

/// Proof that a request was signed with a live secret, and lay in the window where its scheme has one.
///
/// Only [`Verifier`](super::Verifier) and [`Check`](super::Check) make these. One outside the window is given to nobody but
/// this crate's own quarantine. Whoever holds one holds the outcome of a
/// successful check.
#[derive(Clone, Debug)]
pub struct Verified {
    scheme: &'static str,
    id: Option<EventId>,
    origin: IdOrigin,
    timestamp: Option<Timestamp>,
    secret: usize,
    around: Around,
    key: KeyRule,
}

/// What an event is remembered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRule {
    /// Its id where that is worth as much as the proof, else the digest of the signed bytes.
    SignedId,
    /// The digest of the signed text, whose body is no part of it.
    SignedText,
    /// The moment at which it arrived, with the signed bytes: equal requests are events of their own.
    Arrival(Timestamp),
}

impl Verified {
    /// The one place where this proof is made. Nobody outside of the module `signature` can call it.
    pub(super) fn assertion(
        scheme: &'static str,
        (id, origin): (Option<EventId>, IdOrigin),
        timestamp: Option<Timestamp>,
        secret: usize,
        around: Around,
        key: KeyRule,
    ) -> Self {
        Self { scheme, id, origin, timestamp, secret, around, key }
    }

    /// The name of the scheme that it was checked with.
    #[must_use]
    pub fn scheme_name(&self) -> &'static str {
        self.scheme
    }

    /// The sender's id for the event, if it came with one. [`id_origin`](Self::id_origin) says what it is worth.
    #[must_use]
    pub fn event_id(&self) -> Option<&EventId> {
        self.id.as_ref()
    }

    /// Where the id comes from.
    #[must_use]
    pub fn id_origin(&self) -> IdOrigin {
        self.origin
    }

    /// When the sender signed it; `None` where the scheme signs no timestamp.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }

    /// Which secret matched: 0 is the current one, then the earlier ones in the keyring's order.
    #[must_use]
    pub fn secret(&self) -> usize {
        self.secret
    }

    /// What this event is to be remembered by: its id where [`IdOrigin::is_signed`] says so, else the digest of its signed
    /// bytes. Some presets do otherwise, and say why ([`Scheme::page`](super::Scheme::page)).
    ///
    /// `body` is the digest of the body that was checked.
    #[must_use]
    pub fn dedup_key(&self, body: &Digest) -> DedupKey {
        match (self.key, &self.id) {
            (KeyRule::SignedId, Some(id)) if self.origin.is_signed() => DedupKey::from_id(id),
            (KeyRule::SignedId, _) => DedupKey::from_digest(&self.signed_digest(body)),
            (KeyRule::SignedText, _) => DedupKey::from_digest(&Digest::of(self.around.before())),
            (KeyRule::Arrival(moment), _) => {
                let digest = Sha256::new()
                    .chain_update(moment.as_micros().to_be_bytes())
                    .chain_update(self.signed_digest(body).as_bytes());
                DedupKey::from_digest(&Digest::from_bytes(digest.finalize().into()))
            }
        }
    }

    /// Whether [`dedup_key`](Self::dedup_key) is the id: there is one, it is worth that ([`IdOrigin::is_signed`]), and the
    /// scheme goes by it.
    #[must_use]
    pub fn is_known_by_id(&self) -> bool {
        self.key == KeyRule::SignedId && self.id.is_some() && self.origin.is_signed()
    }

    /// The digest of the signed bytes, from the digest of the body that was checked.
    ///
    /// Where only the body is signed, that is the body's digest itself. Else it is the SHA-256 of the signed text before
    /// the body, behind its length (8 bytes, big-endian), of that behind the body, and of the body's digest.
    #[must_use]
    pub fn signed_digest(&self, body: &Digest) -> Digest {
        if self.around.is_empty() {
            return *body;
        }
        let (before, after) = (self.around.before(), self.around.after());
        let digest = Sha256::new()
            .chain_update((before.len() as u64).to_be_bytes())
            .chain_update(before)
            .chain_update(after)
            .chain_update(body.as_bytes());
        Digest::from_bytes(digest.finalize().into())
    }
}

/// Where an event's id comes from, and so what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdOrigin {
    /// A header that the signature covers.
    SignedHeader,
    /// A field of the body, which the signature covers; or which is as good as the rest of the body, where a token is sent
    /// along and nothing is signed.
    SignedBody,
    /// A header that the signature does not cover. Whoever holds one signed request can send it again under any id, so
    /// this one is a label and never a key.
    Unsigned,
    /// The event came without an id.
    None,
}

impl IdOrigin {
    /// Its name: `signed_header`, `signed_body`, `unsigned` or `none`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SignedHeader => "signed_header",
            Self::SignedBody => "signed_body",
            Self::Unsigned => "unsigned",
            Self::None => "none",
        }
    }

    /// Whether the id is worth as much as the proof itself, and may be a key: the signature covers it; or, where a token is
    /// sent along and nothing is signed, it stands in the body that came with the token. Then whoever holds the token can
    /// write any id, as they can write any body.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::SignedHeader | Self::SignedBody)
    }
}

impl fmt::Display for IdOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
