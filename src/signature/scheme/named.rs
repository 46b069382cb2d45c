//! Schemes by their names.

use std::fmt;
use std::str::FromStr;

use super::Scheme;
use super::presets;

impl Scheme {
    /// The preset of this name. Parsing the name as a `Scheme` does the same, and says what may have been meant.
    ///
    /// The scheme `hmac` is not one of them: it needs options, see [`Scheme::hmac`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        presets::all().find(|preset| preset.name == name).map(Self::from)
    }

    /// All presets.
    pub fn all() -> impl Iterator<Item = Self> {
        presets::all().map(Self::from)
    }

    /// Standard Webhooks v1: `webhook-id`, `webhook-timestamp` and `webhook-signature`, HMAC-SHA256.
    ///
    /// Signed are id, timestamp and body. The timestamp bounds replays, and the id is a sound key. An id with a dot is
    /// refused: the dot separates the signed parts, and `a.1` + `2` would be signed like `a` + `1.2`.
    ///
    /// Secrets are base64 of 24 bytes or more, with `whsec_` in front of it or without.
    #[must_use]
    pub fn standard() -> Self {
        Self::from(&presets::STANDARD)
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
        Self::from(&presets::ENVELOPE)
    }

    /// GitHub: `X-Hub-Signature-256`, HMAC-SHA256 of the body.
    ///
    /// No timestamp is signed: what stops a replay is the table of seen events alone, for as long as it remembers.
    /// `X-GitHub-Delivery` is not signed: whoever holds one request can send it again under any id. So events are known
    /// by the digest of their bodies, and the id is a label.
    #[must_use]
    pub fn github() -> Self {
        Self::from(&presets::GITHUB)
    }

    /// GitHub's older header, `X-Hub-Signature`, HMAC-SHA1 of the body. For GitHub Enterprise servers that send no
    /// other.
    ///
    /// It is used by name only: [`github`](Self::github) never falls back to it. For the rest it is like that one.
    #[must_use]
    pub fn github_sha1() -> Self {
        Self::from(&presets::GITHUB_SHA1)
    }

    /// Stripe: `Stripe-Signature`, with fields `t=` (Unix seconds) and `v1=`, HMAC-SHA256 of timestamp and body.
    ///
    /// The timestamp bounds replays on both sides; Stripe's own libraries check the past only. The id is the body's
    /// field `id`, which is signed and the same for every attempt. Fields other than `v1`, `v0` among them, are ignored.
    ///
    /// A secret is the whole text `whsec_…`; it is not base64, other than with [`standard`](Self::standard).
    #[must_use]
    pub fn stripe() -> Self {
        Self::from(&presets::STRIPE)
    }

    /// Slack: `X-Slack-Signature` and `X-Slack-Request-Timestamp`, HMAC-SHA256 of version, timestamp and body.
    ///
    /// The timestamp bounds replays. The Events API has an id in the body, `event_id`, which is signed and the same for
    /// every attempt. Slash commands and interactions have none: they are known by the digest of their signed bytes.
    #[must_use]
    pub fn slack() -> Self {
        Self::from(&presets::SLACK)
    }

    /// Shopify: `X-Shopify-Hmac-Sha256`, HMAC-SHA256 of the body, in base64.
    ///
    /// No timestamp is signed: what stops a replay is the table of seen events alone, for as long as it remembers.
    /// `X-Shopify-Webhook-Id` is not signed, nor are topic and shop: events are known by the digest of their bodies, and
    /// the id is a label.
    #[must_use]
    pub fn shopify() -> Self {
        Self::from(&presets::SHOPIFY)
    }

    /// Svix and those who send with it: [`standard`](Self::standard) with headers `svix-id`, `svix-timestamp` and
    /// `svix-signature`, or `webhook-…`.
    ///
    /// A request is read under the names of one family, that of its signature: an id of one family never goes with the
    /// signature of the other.
    #[must_use]
    pub fn svix() -> Self {
        Self::from(&presets::SVIX)
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        Self::named(name).ok_or_else(|| UnknownScheme { needs_asymmetric: presets::ASYMMETRIC.contains(&name) })
    }
}

/// There is no scheme of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScheme {
    needs_asymmetric: bool,
}

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.needs_asymmetric {
            f.write_str("this scheme verifies with a public key; build `countersign` with its feature `asymmetric`")
        } else {
            f.write_str("there is no scheme of that name; `Scheme::all` lists the presets")
        }
    }
}

impl std::error::Error for UnknownScheme {}
