//! Handshakes: what a provider sends to learn that an endpoint is there, and the one text that may be signed for it.

use std::fmt;

/// What a provider sends beside its events, to try an endpoint.
///
/// A receiver answers these itself, and never stores one as an event. Which of them a provider uses stands in its
/// [`Scheme`](super::Scheme::handshakes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handshake {
    /// A signed body of type `webhook_callback_verification_pending`, whose `challenge` is wanted back. Twitch.
    CallbackVerification,
    /// GET with `challenge`, which is wanted back. Dropbox.
    Challenge,
    /// GET with `crc_token`, whose MAC is wanted back. X.
    ChallengeResponse,
    /// A signed body with an empty list `events`: answered 200, with nothing in it. Xero, LINE, Asana.
    EmptyEvents,
    /// HEAD, before the webhook is made: answered 200. Trello, Intercom.
    Head,
    /// POST with `X-Hook-Secret`, from which on events are signed with it. Asana. Taken only while somebody waits for it.
    HookSecret,
    /// GET with `hub.challenge`, which is wanted back if `hub.verify_token` is the agreed one. Meta.
    HubChallenge,
    /// A signed body of type 1, wanted back as `{"type":1}`, or of type 0, answered 204. Discord.
    Ping,
    /// An event like any other, signed and stored, that the handler answers. GitHub, Linear, PagerDuty.
    PingEvent,
    /// A form that holds `webhook_id` alone, unsigned: answered 200. WooCommerce.
    UnsignedPing,
    /// A body of event `endpoint.url_validation`, whose `plainToken` is wanted back with its MAC. Zoom.
    UrlValidation,
    /// A signed body of type `url_verification`, whose `challenge` is wanted back. Slack.
    UrlVerification,
    /// GET with `X-Okta-Verification-Challenge`, which is wanted back. Okta.
    VerificationHeader,
}

impl Handshake {
    /// What the provider sends, and what it wants to hear.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::CallbackVerification => {
                "a signed body with `challenge` while the subscription is pending; it, as text"
            }
            Self::Challenge => "GET with `challenge`; it, as text",
            Self::ChallengeResponse => "GET with `crc_token`; its MAC, as JSON",
            Self::EmptyEvents => "a signed body without events; 200",
            Self::Head => "HEAD; 200",
            Self::HookSecret => "POST with `X-Hook-Secret`; the same header, while a registration is pending",
            Self::HubChallenge => "GET with `hub.challenge` and the verify token; the challenge, as text",
            Self::Ping => "a signed body of type 1 or 0; `{\"type\":1}` or 204",
            Self::PingEvent => "a signed event `ping`; the handler's 2xx",
            Self::UnsignedPing => "a form `webhook_id=N`, unsigned; 200",
            Self::UrlValidation => "a body `endpoint.url_validation`; its token and the token's MAC, as JSON",
            Self::UrlVerification => "a signed body `url_verification`; its `challenge`, as text",
            Self::VerificationHeader => "GET with `X-Okta-Verification-Challenge`; it, as JSON",
        }
    }

    /// Whether a receiver answers it, and its handler never sees it.
    #[must_use]
    pub const fn is_answered(self) -> bool {
        !matches!(self, Self::PingEvent)
    }
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// A text from somebody who has proven nothing, short and plain enough to be signed with the key of a webhook.
///
/// The answer to such a handshake is a MAC of a text that anybody may choose. Where an event's signed text could be one of
/// these, anybody could have an event signed. So it holds none of `:`, `{`, `"` and spaces: no JSON, no form and no
/// `v0:timestamp:body` is among them. What is left, a bare word as the body of a scheme that signs the body alone, the
/// receiver refuses as an event.
#[derive(Clone, Copy)]
pub(crate) struct ChallengeToken<'a>(&'a str);

impl<'a> ChallengeToken<'a> {
    /// Takes 1 to 128 letters, digits and the characters of base64 and UUIDs.
    pub(crate) fn new(text: &'a str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
        ((1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(plain)).then_some(Self(text))
    }

    pub(crate) const fn as_str(&self) -> &'a str {
        self.0
    }
}

const MAX_TOKEN_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c037_no_signed_text_of_an_event_is_a_token() {
        for token in
            ["9b4507b3-9040-4669-9ca3-6b94edb50553", "qgg8vlvZRS6UYooatFL8Aw", "YWI+/w==", "a_b", &"x".repeat(128)]
        {
            assert!(ChallengeToken::new(token).is_some(), "{token}");
        }
        for hostile in [
            "",
            "v0:1700000000:{\"event\":\"x\"}",
            "1700000000.x",
            "{}",
            "[]",
            "\"a\"",
            "a b",
            "a\n",
            "a%3Ab",
            "payload&x",
            "é",
            "a\0",
            &"x".repeat(129),
        ] {
            assert!(ChallengeToken::new(hostile).is_none(), "{hostile:?}");
        }
    }
}
