//! Ways to sign that no template around the body can say: a canonical form of the request, a signature inside the body,
//! a token that carries the body's digest.
//!
//! A [`Form`] says what was signed, and with which signatures; keys, comparison, id and window are the
//! [`Verifier`](super::Verifier)'s, as for every other scheme. So a form never sees a secret.

pub(super) mod adyen;
pub(super) mod mailgun;
#[cfg(feature = "asymmetric")]
pub(super) mod plaid;
pub(super) mod twilio;

use std::fmt;

use http::{HeaderMap, HeaderName};

use super::header::{Head, Signatures};
use super::keyring::Key;
use super::mac::{Algorithm, Tag};
use super::trial::Trial;
use super::verified::IdOrigin;
use super::{Message, SignError, VerifyError};
use crate::event::{EventId, NameError};

/// A way to sign.
pub(super) trait Form: fmt::Debug + Send + Sync {
    /// Reads the head. Whatever can be refused without the body is refused here; the rest is said once the body is
    /// there.
    fn open(&self, head: &Head<'_>) -> Result<Opened, VerifyError>;

    /// The headers that a sender adds. The keys are those that are live, the current one first; there is at least one.
    fn sign(&self, message: &Message<'_>, hand: &Hand<'_>) -> Result<HeaderMap, SignError>;

    /// Where the ids of its events come from, if they carry one.
    /// Whether the signature leaves the body out although it could cover it.
    fn omits_body(&self) -> bool {
        false
    }

    fn id_origin(&self) -> IdOrigin {
        IdOrigin::None
    }

    /// The headers that it reads and that are no signatures. Those of signatures are in the scheme's families.
    fn other_headers(&self) -> &[HeaderName] {
        &[]
    }

    /// Whether it signs the URL.
    fn signs_url(&self) -> bool {
        false
    }

    /// Whether its signature stands in the body, which only the provider writes.
    fn is_in_body(&self) -> bool {
        false
    }

    /// The signed text, for people.
    fn describe(&self) -> String;
}

/// A head that was read, waiting for the body.
pub(super) type Opened = Box<dyn FnOnce(&[u8]) -> Result<Claim, VerifyError> + Send>;

/// What a request claims to have been signed. Nothing of it is proven.
pub(super) struct Claim {
    /// The signed text, all of it.
    pub(super) text: Vec<u8>,
    /// The other form of it, for senders that are known to sign one or the other.
    pub(super) or_text: Option<Vec<u8>>,
    /// One of these has to be right.
    pub(super) signatures: Signatures,
    /// How they were made. Never what the request says, unless from a closed list.
    pub(super) algorithm: Algorithm,
    /// The key that the sender says it used. Keys of another name are not tried; keys without one are.
    pub(super) key_id: Option<String>,
    /// Whether the body is the one that the text speaks of. If not, the signature is as good as wrong.
    pub(super) binds_body: bool,
    /// The signed timestamp, in the scheme's unit.
    pub(super) sent: Option<i64>,
    /// The moment after which the sender wants it refused, in the scheme's unit.
    pub(super) until: Option<i64>,
    /// The event's id, and where it was found. Spoken of only after the signature was found to be right.
    pub(super) id: Option<(Result<EventId, NameError>, IdOrigin)>,
}

impl Claim {
    /// A claim about a text that has the body in it, or its digest.
    pub(super) fn new(text: Vec<u8>, signatures: Signatures, algorithm: Algorithm) -> Self {
        Self {
            text,
            or_text: None,
            signatures,
            algorithm,
            key_id: None,
            binds_body: true,
            sent: None,
            until: None,
            id: None,
        }
    }
}

/// The keys of a sender, without the keys themselves.
pub(super) struct Hand<'a>(&'a [&'a Key]);

impl<'a> Hand<'a> {
    pub(super) fn new(live: &'a [&'a Key]) -> Self {
        Self(live)
    }

    /// The current key's signature of this text.
    pub(super) fn sign(&self, algorithm: Algorithm, text: &[u8]) -> Result<Tag, SignError> {
        let key = self.0.first().ok_or(SignError::NoLiveSecret)?;
        let mut trial = Trial::new(algorithm, &key.secret).map_err(|_| SignError::PublicKeyOnly)?;
        trial.update(text);
        trial.sign()
    }

    /// The current key's name, if it has one.
    #[cfg_attr(not(feature = "asymmetric"), allow(dead_code, reason = "keys with names come with that feature"))]
    pub(super) fn key_id(&self) -> Option<&str> {
        self.0.first().and_then(|key| key.secret.key_id()).map(|name| &**name)
    }
}
