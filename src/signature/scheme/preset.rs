//! A row of the table of providers: everything that is to be known about one, as constants.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::{Carrier, Constant, Family, KeyBy, RepeatedId, Scheme};
use crate::secret::SecretFormat;
use crate::signature::form::Form;
use crate::signature::signed::{Framing, Part, SignedText};
use crate::signature::window::{ReplayWindow, Unit};
use crate::signature::{Algorithm, Encoding, Handshake};

/// One row. It begins as what most providers do: HMAC-SHA256 of the body, in hex, with a text as the key.
#[derive(Clone, Copy)]
pub(super) struct Preset {
    pub(super) name: &'static str,
    facts: Facts,
    secret: SecretFormat,
    algorithm: Algorithm,
    encoding: Encoding,
    names: Names,
    /// Another set of names, of which a request has one.
    also: Option<Names>,
    carry: Carry,
    signed: &'static [Piece],
    framing: Framing,
    unit: Option<Unit>,
    window: u64,
    body_time: Option<&'static str>,
    body_id: Option<&'static str>,
    constants: &'static [(&'static str, Option<&'static str>, bool)],
    key_by: KeyBy,
    repeated: RepeatedId,
    prefers_5xx: bool,
    form: Option<fn() -> Arc<dyn Form>>,
}

/// What is told to people, and what suits a provider's habits.
#[derive(Clone, Copy)]
pub(in crate::signature) struct Facts {
    pub(super) provider: &'static str,
    /// Where the provider describes it.
    pub(super) docs: &'static str,
    pub(super) handshakes: &'static [Handshake],
    /// How long the provider waits for an answer, in seconds.
    pub(super) patience: Option<u64>,
    pub(super) retries: Option<&'static str>,
    pub(super) notes: &'static str,
    pub(super) key_reason: &'static str,
}

/// A part of the signed text, as it stands in a row.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    Lit(&'static str),
    Id,
    Time,
    Body,
    Method,
    Url,
    UrlDecoded,
    Header(&'static str),
}

#[derive(Clone, Copy)]
struct Names {
    signature: &'static [&'static str],
    timestamp: Option<&'static str>,
    id: Option<&'static str>,
}

#[derive(Clone, Copy)]
enum Carry {
    Whole(&'static str),
    List { separator: u8, spaced: bool, tag: &'static str, timestamp: Option<&'static str> },
    TimeFirst,
}

impl Preset {
    pub(super) const fn new(name: &'static str, provider: &'static str, docs: &'static str) -> Self {
        Self {
            name,
            facts: Facts { provider, docs, handshakes: &[], patience: None, retries: None, notes: "", key_reason: "" },
            secret: SecretFormat::Text,
            algorithm: Algorithm::HmacSha256,
            encoding: Encoding::Hex,
            names: Names { signature: &[], timestamp: None, id: None },
            also: None,
            carry: Carry::Whole(""),
            signed: &[Piece::Body],
            framing: Framing::Joined,
            unit: None,
            window: 300,
            body_time: None,
            body_id: None,
            constants: &[],
            key_by: KeyBy::SignedId,
            repeated: RepeatedId::Replay,
            prefers_5xx: false,
            form: None,
        }
    }

    /// Another provider that signs like this one.
    pub(super) const fn renamed(mut self, name: &'static str, provider: &'static str, docs: &'static str) -> Self {
        let fresh = Self::new(name, provider, docs);
        self.name = name;
        self.facts = fresh.facts;
        self.repeated = fresh.repeated;
        self
    }

    /// The headers that may hold signatures.
    pub(super) const fn signature(mut self, headers: &'static [&'static str]) -> Self {
        self.names.signature = headers;
        self
    }

    /// What stands before the signature.
    pub(super) const fn prefix(mut self, prefix: &'static str) -> Self {
        self.carry = Carry::Whole(prefix);
        self
    }

    /// The header is a list, whose signatures begin with `tag`.
    pub(super) const fn list(mut self, separator: u8, tag: &'static str) -> Self {
        self.carry = Carry::List { separator, spaced: false, tag, timestamp: None };
        self
    }

    /// The header is a list with a timestamp in it.
    pub(super) const fn fields(
        mut self,
        separator: u8,
        timestamp: &'static str,
        tag: &'static str,
        unit: Unit,
    ) -> Self {
        self.carry = Carry::List { separator, spaced: false, tag, timestamp: Some(timestamp) };
        self.unit = Some(unit);
        self
    }

    /// A space may stand behind the separators of the list.
    pub(super) const fn spaced(mut self) -> Self {
        if let Carry::List { separator, tag, timestamp, .. } = self.carry {
            self.carry = Carry::List { separator, spaced: true, tag, timestamp };
        }
        self
    }

    /// The header is a timestamp and signatures behind it, with commas between them.
    pub(super) const fn time_first(mut self, unit: Unit) -> Self {
        self.carry = Carry::TimeFirst;
        self.unit = Some(unit);
        self
    }

    pub(super) const fn base64(mut self) -> Self {
        self.encoding = Encoding::Base64;
        self
    }

    pub(super) const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    pub(super) const fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    pub(super) const fn secret(mut self, format: SecretFormat) -> Self {
        self.secret = format;
        self
    }

    /// The timestamp's header.
    pub(super) const fn timestamp(mut self, header: &'static str, unit: Unit) -> Self {
        self.names.timestamp = Some(header);
        self.unit = Some(unit);
        self
    }

    /// The timestamp's place in the body.
    pub(super) const fn timestamp_in_body(mut self, path: &'static str, unit: Unit) -> Self {
        self.body_time = Some(path);
        self.unit = Some(unit);
        self
    }

    /// Where the timestamp stands is the form's own matter.
    pub(super) const fn timed(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// How far the timestamp may lie from the present, in seconds.
    pub(super) const fn window(mut self, seconds: u64) -> Self {
        self.window = seconds;
        self
    }

    /// The signed text.
    pub(super) const fn signs(mut self, signed: &'static [Piece]) -> Self {
        self.signed = signed;
        self
    }

    /// Each part behind its length.
    pub(super) const fn length_prefixed(mut self) -> Self {
        self.framing = Framing::LengthPrefixed;
        self
    }

    /// The id's header. Whether it is signed says the signed text.
    pub(super) const fn id(mut self, header: &'static str) -> Self {
        self.names.id = Some(header);
        self
    }

    /// The id's place in the body.
    pub(super) const fn id_in_body(mut self, path: &'static str) -> Self {
        self.body_id = Some(path);
        self
    }

    /// Other names for the headers: of signature, timestamp and id.
    pub(super) const fn also(
        mut self,
        signature: &'static [&'static str],
        timestamp: &'static str,
        id: &'static str,
    ) -> Self {
        self.also = Some(Names { signature, timestamp: Some(timestamp), id: Some(id) });
        self
    }

    /// Headers with one right value; `true` where they must be there. One without a value must not be there.
    pub(super) const fn constants(mut self, constants: &'static [(&'static str, Option<&'static str>, bool)]) -> Self {
        self.constants = constants;
        self
    }

    /// What events are remembered by, and why not by what is usual.
    pub(super) const fn known_by(mut self, key_by: KeyBy, reason: &'static str) -> Self {
        self.key_by = key_by;
        self.facts.key_reason = reason;
        self
    }

    /// An id stands for the same bytes on every attempt.
    pub(super) const fn promises_equal_bodies(mut self) -> Self {
        self.repeated = RepeatedId::Conflict;
        self
    }

    /// What the provider sends beside its events, to try an endpoint.
    pub(super) const fn handshakes(mut self, handshakes: &'static [Handshake]) -> Self {
        self.facts.handshakes = handshakes;
        self
    }

    /// How long the provider waits for an answer, in seconds.
    pub(super) const fn waits(mut self, seconds: u64) -> Self {
        self.facts.patience = Some(seconds);
        self
    }

    /// What becomes of a delivery that failed.
    pub(super) const fn retries(mut self, retries: &'static str) -> Self {
        self.facts.retries = Some(retries);
        self
    }

    /// The provider sends nothing again, or later, that was answered with 4xx.
    pub(super) const fn prefers_5xx(mut self) -> Self {
        self.prefers_5xx = true;
        self
    }

    pub(super) const fn notes(mut self, notes: &'static str) -> Self {
        self.facts.notes = notes;
        self
    }

    /// A way to sign that no template can say.
    pub(super) const fn form(mut self, form: fn() -> Arc<dyn Form>) -> Self {
        self.form = Some(form);
        self
    }
}

impl From<&Preset> for Scheme {
    fn from(preset: &Preset) -> Self {
        let families = std::iter::once(&preset.names).chain(&preset.also);
        let status = if preset.prefers_5xx { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CONFLICT };
        Scheme {
            name: preset.name,
            facts: preset.facts,
            secret_format: preset.secret,
            algorithm: preset.algorithm,
            encoding: preset.encoding,
            families: families.map(Names::family).collect(),
            carrier: preset.carry.carrier(),
            signed: text(preset.signed, preset.framing),
            time: preset.unit,
            window: ReplayWindow::symmetric(Duration::from_secs(preset.window)),
            body_time: preset.body_time,
            body_id: preset.body_id.map(Cow::Borrowed),
            constants: preset.constants.iter().map(Constant::of).collect(),
            key_by: preset.key_by,
            repeated_id: preset.repeated,
            in_flight_status: status,
            form: preset.form.map(|form| form()),
        }
    }
}

impl Names {
    fn family(&self) -> Family {
        Family {
            signature: self.signature.iter().map(|name| HeaderName::from_static(name)).collect(),
            timestamp: self.timestamp.map(HeaderName::from_static),
            id: self.id.map(HeaderName::from_static),
        }
    }
}

impl Carry {
    fn carrier(self) -> Carrier {
        match self {
            Self::Whole(prefix) => Carrier::Whole { prefix: Cow::Borrowed(prefix) },
            Self::List { separator, spaced, tag, timestamp } => Carrier::List { separator, spaced, tag, timestamp },
            Self::TimeFirst => Carrier::TimeFirst,
        }
    }
}

fn text(pieces: &[Piece], framing: Framing) -> SignedText {
    let mut halves = pieces.splitn(2, |piece| matches!(piece, Piece::Body));
    let mut half = || halves.next().unwrap_or_default().iter().filter_map(Piece::part).collect();
    SignedText { before: half(), after: half(), framing }
}

impl Piece {
    fn part(&self) -> Option<Part> {
        Some(match *self {
            Self::Lit(text) => Part::literal(text),
            Self::Id => Part::Id,
            Self::Time => Part::Timestamp,
            Self::Body => return None,
            Self::Method => Part::Method,
            Self::Url => Part::Url,
            Self::UrlDecoded => Part::UrlDecoded,
            Self::Header(name) => Part::Header(HeaderName::from_static(name)),
        })
    }
}
