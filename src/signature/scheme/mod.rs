//! One provider's way to sign, as data.

mod hmac;
mod presets;

use std::borrow::Cow;
use std::fmt;

use http::{HeaderName, StatusCode};

use super::mac::Algorithm;
use super::signed::{Part, SignedText};
use super::verified::IdOrigin;
use super::window::{ReplayWindow, Unit};
use super::{ConfigError, Encoding};
use crate::secret::{Secret, SecretError, SecretFormat};

/// One provider's way to sign its events.
///
/// A scheme is data: what stands in which header, which text is signed, what its secrets look like. The receiver, the
/// sender and the program all work from the same one.
#[derive(Clone)]
pub struct Scheme {
    name: &'static str,
    provider: &'static str,
    secret_format: SecretFormat,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    /// Sets of headers, of which a request carries one. The first is the one that a sender uses.
    pub(super) families: Vec<Family>,
    pub(super) carrier: Carrier,
    pub(super) signed: SignedText,
    /// The unit of the timestamp, for schemes that sign one.
    pub(super) time: Option<Unit>,
    /// Where the verified body holds the id, for schemes that have no header for it.
    pub(super) body_id: Option<Cow<'static, str>>,
    repeated_id: RepeatedId,
    in_flight_status: StatusCode,
    handshake: Option<&'static str>,
}

/// Header names that belong together.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// The headers that hold signatures. One of them is enough, each may be there once.
    pub(super) signature: Vec<HeaderName>,
    /// The timestamp's header; none where it is a field of the signature's.
    pub(super) timestamp: Option<HeaderName>,
    pub(super) id: Option<HeaderName>,
}

impl Family {
    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.signature.iter().chain(&self.timestamp).chain(&self.id)
    }
}

/// How signatures stand in their header.
#[derive(Clone, Debug)]
pub(super) enum Carrier {
    /// A prefix and one signature.
    Whole { prefix: Cow<'static, str> },
    /// Items, of which those that begin with `tag` are signatures and the one that begins with `timestamp` is that.
    /// All others are skipped: a sender may add newer kinds.
    List { separator: u8, tag: &'static str, timestamp: Option<&'static str> },
}

/// What to answer when a signed id comes again with another body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepeatedId {
    /// Refuse it as a conflict. For schemes whose senders promise identical bytes on every attempt: another body is a
    /// second event under the same id, and the stored result would hide it.
    Conflict,
    /// Answer with the stored result, and count it. For providers that change a field between attempts.
    Replay,
}

pub(super) const WEBHOOK_TYPE: HeaderName = HeaderName::from_static("webhook-type");

impl Scheme {
    /// The preset of this name.
    ///
    /// The scheme `hmac` is not one of them: it needs options, see [`Scheme::hmac`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|scheme| scheme.name == name)
    }

    /// All presets.
    pub fn all() -> impl Iterator<Item = Self> {
        presets::ALL.into_iter().map(|preset| preset())
    }

    /// Its name, as in [`Scheme::named`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Who signs like this.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// How its secrets are written.
    #[must_use]
    pub fn secret_format(&self) -> SecretFormat {
        self.secret_format
    }

    /// Reads a secret in the form in which the provider shows it.
    ///
    /// # Errors
    ///
    /// [`SecretError`] says what is wrong with it and how to mend it.
    pub fn parse_secret(&self, text: &str) -> Result<Secret, SecretError> {
        self.secret_format.parse(text)
    }

    /// The algorithm of its signatures.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How its signatures are written.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The headers that it uses, of each family: signature, timestamp, id, and others that it signs.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        let signed = self.signed.parts().filter_map(|part| match part {
            Part::Header(name) => Some(name),
            Part::Literal(_) | Part::Id | Part::Timestamp | Part::Method | Part::Url => None,
        });
        self.families.iter().flat_map(Family::names).chain(signed)
    }

    /// Whether it signs a timestamp. Without one, nothing but the table of seen events stops a replay, for as long as
    /// that table remembers.
    #[must_use]
    pub fn signs_timestamp(&self) -> bool {
        self.time.is_some()
    }

    /// The window that requests have to lie in, unless a verifier is given another one. `None` where no timestamp is
    /// signed.
    #[must_use]
    pub fn window(&self) -> Option<ReplayWindow> {
        self.time.map(|_| ReplayWindow::default())
    }

    /// Whether it signs the URL, which then has to be configured as the sender knows it.
    #[must_use]
    pub fn signs_url(&self) -> bool {
        self.signed.covers(&Part::Url)
    }

    /// Where the ids of its events come from, if they carry one.
    #[must_use]
    pub fn id_origin(&self) -> IdOrigin {
        match self.families.first().map(|family| &family.id) {
            Some(Some(_)) if self.signs_id() => IdOrigin::SignedHeader,
            Some(Some(_)) => IdOrigin::Unsigned,
            _ if self.body_id.is_some() => IdOrigin::SignedBody,
            _ => IdOrigin::None,
        }
    }

    /// What to answer when a signed id comes again with another body.
    #[must_use]
    pub fn repeated_id(&self) -> RepeatedId {
        self.repeated_id
    }

    /// What to answer while the first delivery is still being handled: 409, or 503 for senders that give up on any 4xx.
    #[must_use]
    pub fn in_flight_status(&self) -> StatusCode {
        self.in_flight_status
    }

    /// What the provider sends to try an endpoint, and what it wants to hear; `None` if nothing.
    #[must_use]
    pub fn handshake(&self) -> Option<&'static str> {
        self.handshake
    }

    pub(super) fn signs_id(&self) -> bool {
        self.signed.covers(&Part::Id)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme").field("name", &self.name).field("signed", &self.signed).finish_non_exhaustive()
    }
}
