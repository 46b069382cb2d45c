//! The providers: a row each. What a preset's replay protection rests on, and what its ids are worth, stands beside it.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderName, StatusCode};

use super::{Carrier, Family, RepeatedId, Scheme, WEBHOOK_TYPE};
use crate::secret::SecretFormat;
use crate::signature::signed::{Framing, Part, SignedText};
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Encoding};

/// Every preset, in the order in which they are listed to people.
pub(super) const ALL: [fn() -> Scheme; 8] = [
    Scheme::standard,
    Scheme::envelope,
    Scheme::github,
    Scheme::github_sha1,
    Scheme::stripe,
    Scheme::slack,
    Scheme::shopify,
    Scheme::svix,
];

impl Scheme {
    /// Standard Webhooks v1: `webhook-id`, `webhook-timestamp` and `webhook-signature`, HMAC-SHA256.
    ///
    /// Signed are id, timestamp and body. The timestamp bounds replays, and the id is a sound key. An id with a dot is
    /// refused: the dot separates the signed parts, and `a.1` + `2` would be signed like `a` + `1.2`.
    ///
    /// Secrets are base64 of 24 bytes or more, with `whsec_` in front of it or without.
    #[must_use]
    pub fn standard() -> Self {
        Scheme {
            secret_format: WHSEC,
            encoding: Encoding::Base64,
            families: vec![family(["webhook-signature"], Some("webhook-timestamp"), Some("webhook-id"))],
            carrier: Carrier::List { separator: b' ', tag: "v1,", timestamp: None },
            signed: SignedText::new([Part::Id, DOT, Part::Timestamp, DOT]),
            time: Some(Unit::Seconds),
            repeated_id: RepeatedId::Conflict,
            ..body_only("standard", "Standard Webhooks")
        }
    }

    /// This crate's own scheme, which also covers what `standard` leaves open: the event's type and the content type.
    ///
    /// Headers: `webhook-id`, `webhook-timestamp` (Unix seconds), `webhook-type`, `content-type`, and
    /// `webhook-signature`, a list of `v1e,` + base64 separated by spaces. Type and content type may be absent.
    ///
    /// The signature is HMAC-SHA256 over
    ///
    /// 1. the text `countersign.envelope.v1` and a NUL byte, which no signed text of another scheme begins with;
    /// 2. timestamp, id, type, content type and body, each as its length in bytes (8 bytes, big-endian) and the bytes
    ///    as they are in the header or body. An absent header is the length `ff ff ff ff ff ff ff ff` and no bytes.
    ///
    /// So no two different envelopes share a signed text, and ids may hold any character. Secrets are those of
    /// [`standard`](Self::standard). The timestamp bounds replays, and the id is a sound key.
    #[must_use]
    pub fn envelope() -> Self {
        let parts = [ENVELOPE, Part::Timestamp, Part::Id, Part::Header(WEBHOOK_TYPE), Part::Header(CONTENT_TYPE)];
        Scheme {
            name: "envelope",
            provider: "countersign",
            carrier: Carrier::List { separator: b' ', tag: "v1e,", timestamp: None },
            signed: SignedText { framing: Framing::LengthPrefixed, ..SignedText::new(parts) },
            ..Self::standard()
        }
    }

    /// GitHub: `X-Hub-Signature-256`, HMAC-SHA256 of the body.
    ///
    /// No timestamp is signed: what stops a replay is the table of seen events alone, for as long as it remembers.
    /// `X-GitHub-Delivery` is not signed: whoever holds one request can send it again under any id. So events are known
    /// by the digest of their bodies, and the id is a label.
    #[must_use]
    pub fn github() -> Self {
        Scheme {
            families: vec![family(["x-hub-signature-256"], None, Some("x-github-delivery"))],
            carrier: prefixed("sha256="),
            handshake: Some("an event `ping`, signed like any other; answer 2xx"),
            ..body_only("github", "GitHub")
        }
    }

    /// GitHub's older header, `X-Hub-Signature`, HMAC-SHA1 of the body. For GitHub Enterprise servers that send no
    /// other.
    ///
    /// It is used by name only: [`github`](Self::github) never falls back to it. For the rest it is like that one.
    #[must_use]
    pub fn github_sha1() -> Self {
        Scheme {
            name: "github-sha1",
            algorithm: Algorithm::HmacSha1,
            families: vec![family(["x-hub-signature"], None, Some("x-github-delivery"))],
            carrier: prefixed("sha1="),
            ..Self::github()
        }
    }

    /// Stripe: `Stripe-Signature`, with fields `t=` (Unix seconds) and `v1=`, HMAC-SHA256 of timestamp and body.
    ///
    /// The timestamp bounds replays on both sides; Stripe's own libraries check the past only. The id is the body's
    /// field `id`, which is signed and the same for every attempt. Fields other than `v1`, `v0` among them, are ignored.
    ///
    /// A secret is the whole text `whsec_…`; it is not base64, other than with [`standard`](Self::standard).
    #[must_use]
    pub fn stripe() -> Self {
        Scheme {
            families: vec![family(["stripe-signature"], None, None)],
            carrier: Carrier::List { separator: b',', tag: "v1=", timestamp: Some("t=") },
            signed: SignedText::new([Part::Timestamp, DOT]),
            time: Some(Unit::Seconds),
            body_id: Some(Cow::Borrowed("id")),
            ..body_only("stripe", "Stripe")
        }
    }

    /// Slack: `X-Slack-Signature` and `X-Slack-Request-Timestamp`, HMAC-SHA256 of version, timestamp and body.
    ///
    /// The timestamp bounds replays. The Events API has an id in the body, `event_id`, which is signed and the same for
    /// every attempt. Slash commands and interactions have none: they are known by the digest of their signed bytes.
    #[must_use]
    pub fn slack() -> Self {
        Scheme {
            families: vec![family(["x-slack-signature"], Some("x-slack-request-timestamp"), None)],
            carrier: prefixed("v0="),
            signed: SignedText::new([Part::literal("v0:"), Part::Timestamp, Part::literal(":")]),
            time: Some(Unit::Seconds),
            body_id: Some(Cow::Borrowed("event_id")),
            handshake: Some("a signed body of type `url_verification`; answer its `challenge` as text"),
            ..body_only("slack", "Slack")
        }
    }

    /// Shopify: `X-Shopify-Hmac-Sha256`, HMAC-SHA256 of the body, in base64.
    ///
    /// No timestamp is signed: what stops a replay is the table of seen events alone, for as long as it remembers.
    /// `X-Shopify-Webhook-Id` is not signed, nor are topic and shop: events are known by the digest of their bodies, and
    /// the id is a label.
    #[must_use]
    pub fn shopify() -> Self {
        Scheme {
            encoding: Encoding::Base64,
            families: vec![family(["x-shopify-hmac-sha256"], None, Some("x-shopify-webhook-id"))],
            ..body_only("shopify", "Shopify")
        }
    }

    /// Svix and those who send with it: [`standard`](Self::standard) with headers `svix-id`, `svix-timestamp` and
    /// `svix-signature`, or `webhook-…`.
    ///
    /// A request is read under the names of one family, that of its signature: an id of one family never goes with the
    /// signature of the other.
    #[must_use]
    pub fn svix() -> Self {
        let standard = Self::standard();
        let mut families = vec![family(["svix-signature"], Some("svix-timestamp"), Some("svix-id"))];
        families.extend(standard.families);
        Scheme { name: "svix", provider: "Svix", families, repeated_id: RepeatedId::Replay, ..Self::standard() }
    }
}

/// What most providers share: HMAC-SHA256 of the body, in hex, with a text as the key.
pub(super) fn body_only(name: &'static str, provider: &'static str) -> Scheme {
    Scheme {
        name,
        provider,
        secret_format: SecretFormat::Text,
        algorithm: Algorithm::HmacSha256,
        encoding: Encoding::Hex,
        families: Vec::new(),
        carrier: prefixed(""),
        signed: SignedText::body(),
        time: None,
        body_id: None,
        repeated_id: RepeatedId::Replay,
        in_flight_status: StatusCode::CONFLICT,
        handshake: None,
    }
}

/// The form of secrets of Standard Webhooks; its specification asks for 24 bytes.
const WHSEC: SecretFormat = SecretFormat::Base64 { prefix: "whsec_", min_bytes: 24 };

const DOT: Part = Part::Literal(Cow::Borrowed("."));
const ENVELOPE: Part = Part::Literal(Cow::Borrowed("countersign.envelope.v1\0"));

fn family<const N: usize>(
    signature: [&'static str; N],
    timestamp: Option<&'static str>,
    id: Option<&'static str>,
) -> Family {
    Family {
        signature: signature.map(HeaderName::from_static).into(),
        timestamp: timestamp.map(HeaderName::from_static),
        id: id.map(HeaderName::from_static),
    }
}

const fn prefixed(prefix: &'static str) -> Carrier {
    Carrier::Whole { prefix: Cow::Borrowed(prefix) }
}
