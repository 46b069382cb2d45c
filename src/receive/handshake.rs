//! Before or beside the check: the handshakes of providers, answered without a handler and never stored.
//!
//! Three moments, each a function: on the head alone, on a body that came without a signature, and on a body whose
//! signature was right. Whatever is sent back is short, of plain characters, and never of a type that a browser would run.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use tracing::info;

use super::{HookRegistration, Rejection, RejectionKind, ResponseBody};
use crate::signature::{ChallengeToken, Handshake, Head, Verifier, body_field};
use crate::{Digest, Secret};

/// The handshakes that one source may ask for, and what answering them takes.
#[derive(Clone, Debug)]
pub(super) struct Handshakes {
    kinds: &'static [Handshake],
    /// Agreed with the provider, beside the secret.
    verify_token: Option<Secret>,
    pub(super) registration: Option<HookRegistration>,
}

/// What a request that is a handshake gets.
pub(super) type Answer = Result<Response<ResponseBody>, Rejection>;

/// No handshake has a larger body.
pub(super) const MAX_BODY_BYTES: usize = 4 * 1024;

impl Handshakes {
    pub(super) fn new(
        kinds: &'static [Handshake],
        verify_token: Option<Secret>,
        registration: Option<HookRegistration>,
    ) -> Self {
        Self { kinds, verify_token, registration }
    }

    fn has(&self, kind: Handshake) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether the provider validates a receiver with right and wrong signatures, and wants an empty 401 for the wrong ones.
    pub(super) fn tries_wrong_signatures(&self) -> bool {
        self.has(Handshake::EmptyEvents)
    }

    /// The answer to a request whose head says that it is a handshake.
    pub(super) fn answer_head(&self, parts: &Parts, verifier: &Verifier) -> Option<Answer> {
        let kinds = self.kinds.iter().copied();
        if parts.method == Method::GET || parts.method == Method::HEAD {
            kinds.filter_map(|kind| self.answer_get(kind, parts, verifier)).next()
        } else if parts.method == Method::POST && self.has(Handshake::HookSecret) {
            parts.headers.get(HOOK_SECRET).map(|secret| self.take_secret(&parts.headers, secret, verifier))
        } else {
            None
        }
    }

    fn answer_get(&self, kind: Handshake, parts: &Parts, verifier: &Verifier) -> Option<Answer> {
        let query = Query(parts.uri.query().unwrap_or_default());
        match kind {
            Handshake::Head if parts.method == Method::HEAD => Some(Ok(nothing(kind, StatusCode::OK))),
            Handshake::Challenge => query.has("challenge").then(|| echo(kind, query.value("challenge").as_deref())),
            Handshake::ChallengeResponse => query.has("crc_token").then(|| {
                sign(query.value("crc_token").as_deref(), verifier, |_, mac| {
                    as_json(kind, &json!({ "response_token": format!("sha256={mac}") }))
                })
            }),
            Handshake::HubChallenge => (query.value("hub.mode").as_deref() == Some("subscribe")).then(|| {
                self.check_token(query.value("hub.verify_token").as_deref())?;
                echo(kind, query.value("hub.challenge").as_deref())
            }),
            Handshake::VerificationHeader => parts.headers.contains_key(OKTA_CHALLENGE).then(|| {
                // Its secret stands in a header of every request, of this one too.
                let head = Head::new(&parts.method, "", &parts.headers);
                verifier.verify(head, b"").map_err(|error| Rejection::new(RejectionKind::Unverified(error)))?;
                let challenge = echoable(single(&parts.headers, &OKTA_CHALLENGE)).ok_or_else(bad_challenge)?;
                Ok(as_json(kind, &json!({ "verification": challenge })))
            }),
            _ => None,
        }
    }

    /// Whether a request without a signature may be a handshake: some providers do not sign theirs.
    pub(super) fn may_be_unsigned(&self, parts: &Parts, verifier: &Verifier) -> bool {
        let scheme = verifier.scheme();
        (self.has(Handshake::UrlValidation) || self.has(Handshake::UnsignedPing))
            && parts.method == Method::POST
            && !parts.headers.keys().any(|name| scheme.is_signature_header(name))
    }

    /// The answer to a body that came without a signature, if it is a handshake.
    pub(super) fn answer_unsigned(&self, body: &[u8], verifier: &Verifier) -> Option<Answer> {
        if self.has(Handshake::UnsignedPing) && is_webhook_id(body) {
            return Some(Ok(nothing(Handshake::UnsignedPing, StatusCode::OK)));
        }
        self.has(Handshake::UrlValidation).then(|| answer_validation(body, verifier)).flatten()
    }

    /// The answer to a body whose signature was right, if it is a handshake.
    pub(super) fn answer_signed(&self, body: &[u8], verifier: &Verifier) -> Option<Answer> {
        if body.len() > MAX_BODY_BYTES {
            return None;
        }
        self.kinds.iter().find_map(|kind| answer_body(*kind, body, verifier))
    }

    fn check_token(&self, given: Option<&str>) -> Result<(), Rejection> {
        let agreed =
            self.verify_token.as_ref().ok_or_else(|| refused("no verify token is configured; set the agreed one"))?;
        let given = given.ok_or_else(|| refused("the verify token is absent"))?;
        // Of digests: the time tells nothing of a length either.
        let (agreed, given) = (Digest::of(agreed.expose()), Digest::of(given.as_bytes()));
        if bool::from(agreed.as_bytes().ct_eq(given.as_bytes())) {
            Ok(())
        } else {
            Err(refused("the verify token is not the agreed one"))
        }
    }

    fn take_secret(&self, headers: &HeaderMap, value: &HeaderValue, verifier: &Verifier) -> Answer {
        let token = single(headers, &HOOK_SECRET).and_then(ChallengeToken::new);
        let text = token
            .map(|token| token.as_str())
            .ok_or_else(|| refused("the secret is too long or holds odd characters"))?;
        if text.len() < MIN_SECRET_BYTES {
            return Err(refused("the secret has fewer than 16 characters"));
        }
        let secret = verifier.scheme().parse_secret(text).map_err(|_| refused("the secret cannot be used"))?;
        // A secret that could not be used beside the others must not be answered as if it were.
        verifier.with_secret(secret.clone()).map_err(|_| refused("the secret cannot be used beside the others"))?;
        let taken = self.registration.as_ref().is_some_and(|registration| registration.offer(text, &secret));
        if !taken {
            return Err(refused("no registration is pending, or its secret could not be kept"));
        }
        let mut response = nothing(Handshake::HookSecret, StatusCode::OK);
        response.headers_mut().insert(HOOK_SECRET, value.clone());
        Ok(response)
    }
}

fn answer_body(kind: Handshake, body: &[u8], verifier: &Verifier) -> Option<Answer> {
    let is = |path: &str, expected: &str| body_field(body, path).as_deref() == Some(expected);
    match kind {
        Handshake::CallbackVerification => is("subscription.status", "webhook_callback_verification_pending")
            .then(|| echo(kind, body_field(body, "challenge").as_deref())),
        // Anybody can have such a word signed, by asking for it as a challenge: it proves nothing.
        Handshake::ChallengeResponse => std::str::from_utf8(body)
            .is_ok_and(|text| ChallengeToken::new(text).is_some())
            .then(|| Err(refused("a bare word is no event: it may be a challenge of somebody else"))),
        Handshake::EmptyEvents => has_no_events(body).then(|| Ok(nothing(kind, StatusCode::OK))),
        // Its webhook events are of type 1 too. They have no id, and an event inside.
        Handshake::Ping
            if is("type", "1") && body_field(body, "id").is_some() && body_field(body, "event.type").is_none() =>
        {
            Some(Ok(as_json(kind, &json!({ "type": 1 }))))
        }
        Handshake::Ping if is("type", "0") => Some(Ok(nothing(kind, StatusCode::NO_CONTENT))),
        Handshake::UrlValidation => answer_validation(body, verifier),
        Handshake::UrlVerification => {
            is("type", "url_verification").then(|| echo(kind, body_field(body, "challenge").as_deref()))
        }
        _ => None,
    }
}

/// Zoom's, which it may sign or not.
fn answer_validation(body: &[u8], verifier: &Verifier) -> Option<Answer> {
    let is_validation = body_field(body, "event").as_deref() == Some("endpoint.url_validation");
    is_validation.then(|| {
        sign(body_field(body, "payload.plainToken").as_deref(), verifier, |token, mac| {
            as_json(Handshake::UrlValidation, &json!({ "plainToken": token, "encryptedToken": mac }))
        })
    })
}

/// Signs a challenge, if it can be no event.
fn sign(
    challenge: Option<&str>,
    verifier: &Verifier,
    answer: impl FnOnce(&str, String) -> Response<ResponseBody>,
) -> Answer {
    let token = challenge.and_then(ChallengeToken::new).ok_or_else(bad_challenge)?;
    let mac = verifier.answer(token).ok_or_else(|| refused("every secret has expired"))?;
    Ok(answer(token.as_str(), mac))
}

fn echo(kind: Handshake, challenge: Option<&str>) -> Answer {
    let challenge = echoable(challenge).ok_or_else(bad_challenge)?;
    Ok(answer(kind, HeaderValue::from_static("text/plain; charset=utf-8"), challenge.to_owned().into()))
}

/// A text that means nothing to anybody who gets to see it.
fn echoable(text: Option<&str>) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-.~:".contains(&byte);
    text.filter(|text| (1..=MAX_ECHO_BYTES).contains(&text.len()) && text.bytes().all(plain))
}

/// A shorter one that comes over the network could be guessed.
const MIN_SECRET_BYTES: usize = 16;

const MAX_ECHO_BYTES: usize = 256;

fn as_json(kind: Handshake, value: &serde_json::Value) -> Response<ResponseBody> {
    answer(kind, HeaderValue::from_static("application/json"), value.to_string().into())
}

fn answer(kind: Handshake, content_type: HeaderValue, body: Bytes) -> Response<ResponseBody> {
    let mut response = nothing(kind, StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.map(|_| ResponseBody::full(body))
}

/// An answer without a body, with the handshake in its extensions.
fn nothing(kind: Handshake, status: StatusCode) -> Response<ResponseBody> {
    info!(handshake = ?kind, "a handshake was answered");
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(kind);
    response
}

fn refused(why: &'static str) -> Rejection {
    Rejection::new(RejectionKind::Handshake(why))
}

fn bad_challenge() -> Rejection {
    refused("the challenge is absent, there twice, too long, or holds characters that no provider uses")
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// What WooCommerce sends when a webhook is made.
fn is_webhook_id(body: &[u8]) -> bool {
    let digits = body.strip_prefix(b"webhook_id=").unwrap_or_default();
    (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

fn has_no_events(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Body {
        events: Vec<IgnoredAny>,
    }
    serde_json::from_slice::<Body>(body).is_ok_and(|body| body.events.is_empty())
}

/// The query of a URL, as forms are written.
#[derive(Clone, Copy)]
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// The one value of this name; `None` where there are several, or it is not UTF-8.
    fn value(self, name: &str) -> Option<Cow<'a, str>> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (Some(value), None) => value,
            _ => None,
        }
    }

    fn has(self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    fn values(self, name: &str) -> impl Iterator<Item = Option<Cow<'a, str>>> {
        let pairs = self.0.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(move |(other, _)| decode(other).as_deref() == Some(name)).map(|(_, value)| decode(value))
    }
}

/// Undoes the escapes of a form; `None` where one is broken, or the result is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(rest.next()?)? << 4 | digit(rest.next()?)?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

const HOOK_SECRET: HeaderName = HeaderName::from_static("x-hook-secret");
const OKTA_CHALLENGE: HeaderName = HeaderName::from_static("x-okta-verification-challenge");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_form_and_a_name_that_stands_twice_has_no_value() {
        let query = Query("a=1&hub%2Emode=sub%20scribe&b=x+y&b=z&c&%zz=1&d=%ff");
        assert_eq!(query.value("a").as_deref(), Some("1"));
        assert_eq!(query.value("hub.mode").as_deref(), Some("sub scribe"));
        assert_eq!((query.value("b"), query.has("b")), (None, true));
        assert_eq!(query.value("c").as_deref(), Some(""));
        assert_eq!((query.value("d"), query.has("e")), (None, false));
    }

    #[test]
    fn a_list_of_events_is_empty_only_where_it_is_one() {
        assert!(has_no_events(br#"{"destination":"U1","events":[]}"#));
        for body in [r#"{"events":[{}]}"#, r#"{"events":{}}"#, "{}", "", "[]", r#"{"events":[]} x"#] {
            assert!(!has_no_events(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn a_ping_of_a_shop_is_one_number() {
        assert!(is_webhook_id(b"webhook_id=17"));
        for body in ["webhook_id=", "webhook_id=1&a=b", "webhook_id=-1", "id=1", "webhook_id=123456789012345678901"] {
            assert!(!is_webhook_id(body.as_bytes()), "{body}");
        }
    }
}
