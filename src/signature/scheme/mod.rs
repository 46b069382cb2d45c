//! One provider's way to sign, as data.

mod detect;
mod hmac;
mod named;
mod page;
mod preset;
mod presets;
#[cfg(feature = "rfc9421")]
mod rfc9421;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::form::Form;
use super::header::Head;
use super::mac::Algorithm;
use super::signed::{Part, SignedText};
use super::verified::{IdOrigin, KeyRule};
use super::window::{ReplayWindow, Unit};
use super::{ConfigError, Encoding, Handshake, body_id};
use crate::clock::Timestamp;
use crate::secret::{Secret, SecretError, SecretFormat};
pub use named::UnknownScheme;
use preset::Facts;

/// One provider's way to sign its events.
///
/// A scheme is data: what stands in which header, which text is signed, what its secrets look like. The receiver, the
/// sender and the program all work from the same one.
#[derive(Clone)]
pub struct Scheme {
    name: &'static str,
    facts: Facts,
    secret_format: SecretFormat,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    /// Sets of headers, of which a request carries one. The first is the one that a sender uses.
    pub(super) families: Vec<Family>,
    pub(super) carrier: Carrier,
    pub(super) signed: SignedText,
    /// The unit of the timestamp, for schemes that sign one.
    pub(super) time: Option<Unit>,
    window: ReplayWindow,
    /// Where the verified body holds the timestamp, for schemes that have no header for it.
    pub(super) body_time: Option<&'static str>,
    /// Where the verified body holds the id, for schemes that have no signed header for it.
    pub(super) body_id: Option<Cow<'static, str>>,
    pub(super) constants: Vec<Constant>,
    key_by: KeyBy,
    repeated_id: RepeatedId,
    in_flight_status: StatusCode,
    /// For ways to sign that are no text around the body.
    pub(super) form: Option<Arc<dyn Form>>,
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

/// A header whose value is fixed.
#[derive(Clone, Debug)]
pub(super) struct Constant {
    pub(super) name: HeaderName,
    /// The only right value. Without one, the header must not be there: it belongs to a stronger scheme.
    pub(super) value: Option<&'static str>,
    pub(super) required: bool,
}

impl Constant {
    fn of((name, value, required): &(&'static str, Option<&'static str>, bool)) -> Self {
        Self { name: HeaderName::from_static(name), value: *value, required: *required }
    }
}

/// What events of a scheme are remembered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyBy {
    /// Their id where it is signed, else the digest of their signed bytes.
    SignedId,
    /// The digest of the signed text, which the body is no part of.
    SignedText,
    /// The moment of their arrival: equal requests are events of their own.
    Arrival,
    /// The same where the list in this field of the body is empty, and usually else.
    ArrivalIfEmpty(&'static str),
}

/// How signatures stand in their header.
#[derive(Clone, Debug)]
pub(super) enum Carrier {
    /// A prefix and one signature.
    Whole { prefix: Cow<'static, str> },
    /// Items, of which those that begin with `tag` are signatures and the one that begins with `timestamp` is that.
    /// All others are skipped: a sender may add newer kinds.
    List { separator: u8, spaced: bool, tag: &'static str, timestamp: Option<&'static str> },
    /// A timestamp, and signatures behind it, with commas between them.
    TimeFirst,
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

/// A store that stalls for a moment must not lose a lease.
const SHORTEST_LEASE: Duration = Duration::from_secs(10);

pub(super) const WEBHOOK_TYPE: HeaderName = HeaderName::from_static("webhook-type");

impl Scheme {
    /// How long a delivery waits for another one where nothing is known of the sender. Most handlers are done by then.
    pub(crate) const USUAL_WAIT: Duration = Duration::from_millis(250);
    /// How long a run is protected where nothing is known of the sender. Nobody is to wait for longer after a crash.
    pub(crate) const USUAL_LEASE: Duration = Duration::from_secs(30);

    /// Its name, as in [`Scheme::named`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Who signs like this.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        self.facts.provider
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

    /// The headers that it reads, of each family: signature, timestamp, id; and others that it signs or whose value is
    /// fixed. None where everything stands in the body.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        let signed = self.signed.parts().filter_map(|part| match part {
            Part::Header(name) => Some(name),
            Part::Literal(_) | Part::Id | Part::Timestamp | Part::Method | Part::Url | Part::UrlDecoded => None,
        });
        let constant = self.constants.iter().filter(|constant| constant.value.is_some()).map(|constant| &constant.name);
        let others = self.form.iter().flat_map(|form| form.other_headers());
        self.families.iter().flat_map(Family::names).chain(signed).chain(constant).chain(others)
    }

    /// The header of its ids, if they have one. Whether it is signed says [`id_origin`](Self::id_origin); where that is a
    /// field of the body, this one is a label for events without it.
    #[must_use]
    pub fn id_header(&self) -> Option<&HeaderName> {
        self.families.first()?.id.as_ref()
    }

    /// The header of its timestamps, if they have one of their own.
    #[must_use]
    pub fn timestamp_header(&self) -> Option<&HeaderName> {
        self.families.first()?.timestamp.as_ref()
    }

    /// The path of its ids in the body, `event.id` for example, if they stand there. `[].` at its beginning is the only
    /// element of a list.
    #[must_use]
    pub fn id_field(&self) -> Option<&str> {
        self.body_id.as_deref()
    }

    /// The path of its timestamps in the body, if they stand there.
    #[must_use]
    pub fn timestamp_field(&self) -> Option<&'static str> {
        self.body_time
    }

    /// Whether its signatures stand in this header.
    #[must_use]
    pub fn is_signature_header(&self, name: &HeaderName) -> bool {
        self.families.iter().any(|family| family.signature.contains(name))
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
        self.time.map(|_| self.window)
    }

    /// Whether it signs the URL, which then has to be configured as the sender knows it.
    #[must_use]
    pub fn signs_url(&self) -> bool {
        match &self.form {
            Some(form) => form.signs_url(),
            None => self.signed.covers(&Part::Url) || self.signed.covers(&Part::UrlDecoded),
        }
    }

    /// Whether its signature stands in the body, which only the provider writes: a [`Signer`](super::Signer) cannot.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        self.form.as_ref().is_some_and(|form| form.is_in_body())
    }

    /// The signed text, as a template.
    #[must_use]
    pub fn signed_text(&self) -> String {
        match &self.form {
            Some(form) => form.describe(),
            None if self.algorithm == Algorithm::Token => "nothing: the secret itself is sent along".to_owned(),
            None => self.signed.describe(),
        }
    }

    /// Where the ids of its events come from, if they carry one.
    #[must_use]
    pub fn id_origin(&self) -> IdOrigin {
        if let Some(form) = &self.form {
            return form.id_origin();
        }
        match self.families.first().map(|family| &family.id) {
            Some(Some(_)) if self.signs_id() => IdOrigin::SignedHeader,
            _ if self.body_id.is_some() => IdOrigin::SignedBody,
            Some(Some(_)) => IdOrigin::Unsigned,
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

    /// How long a delivery may wait for another one of the same event, before it is sent away with
    /// [`in_flight_status`](Self::in_flight_status): 250 milliseconds, or a tenth of the time that the provider waits for an
    /// answer where that is less. The rest of that time is left for the store and the way back; a store that is slow or does
    /// not answer can still use it up.
    #[must_use]
    pub fn in_flight_wait(&self) -> Duration {
        self.patience().map_or(Self::USUAL_WAIT, |patience| Self::USUAL_WAIT.min(patience / 10))
    }

    /// How long a run is to be protected from being taken for dead: twice the time that the provider waits for an answer,
    /// within 10 and 30 seconds; 30 where that time is not known. A provider that gave up on a receiver that crashed sends
    /// the event again, some of them once or twice and soon: the event has to be free by then.
    #[must_use]
    pub fn lease(&self) -> Duration {
        let of_patience = |patience: Duration| patience.saturating_mul(2).clamp(SHORTEST_LEASE, Self::USUAL_LEASE);
        self.patience().map_or(Self::USUAL_LEASE, of_patience)
    }

    /// What the provider sends beside its events, to try an endpoint.
    #[must_use]
    pub fn handshakes(&self) -> &'static [Handshake] {
        self.facts.handshakes
    }

    /// How long the provider waits for an answer, where that is known.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.facts.patience.map(Duration::from_secs)
    }

    /// What becomes of a delivery that failed, where that is known.
    #[must_use]
    pub fn retries(&self) -> Option<&'static str> {
        self.facts.retries
    }

    /// Where the provider describes its way to sign.
    #[must_use]
    pub fn documentation(&self) -> &'static str {
        self.facts.docs
    }

    /// Whether the present matters to a check.
    pub(super) fn reads_clock(&self) -> bool {
        self.time.is_some() || matches!(self.key_by, KeyBy::Arrival | KeyBy::ArrivalIfEmpty(_))
    }

    /// Whether the body can be fed as it arrives.
    pub(super) fn streams(&self) -> bool {
        // Ed25519 needs the text in one piece, which the body already is.
        self.signed.streams() && self.algorithm != Algorithm::Ed25519
    }

    /// What an event with this body, arriving now, is remembered by.
    pub(super) fn key_rule(&self, body: &[u8], now: Timestamp) -> KeyRule {
        match self.key_by {
            KeyBy::SignedId => KeyRule::SignedId,
            KeyBy::SignedText => KeyRule::SignedText,
            KeyBy::Arrival => KeyRule::Arrival(now),
            KeyBy::ArrivalIfEmpty(path) if body_id::is_empty_list(body, path) => KeyRule::Arrival(now),
            KeyBy::ArrivalIfEmpty(_) => KeyRule::SignedId,
        }
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
