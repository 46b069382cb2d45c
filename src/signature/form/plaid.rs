//! Plaid: a JSON Web Token in a header, signed with ES256, that carries the digest of the body.
//!
//! The algorithm is fixed here. What the token says of it is compared, and never chooses anything.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::{Claim, Form, Hand, Opened};
use crate::event::Digest;
use crate::signature::header::{Head, Signatures, malformed, required};
use crate::signature::{Algorithm, Encoding, Message, SignError, VerifyError};

pub(in crate::signature) fn form() -> Arc<dyn Form> {
    Arc::new(Plaid)
}

#[derive(Debug)]
struct Plaid;

const TOKEN: HeaderName = HeaderName::from_static("plaid-verification");

impl Form for Plaid {
    fn open(&self, head: &Head<'_>) -> Result<Opened, VerifyError> {
        let token = required(head.headers(), &TOKEN)?.to_str().map_err(|_| malformed(&TOKEN, "it is no text"))?;
        let (text, signature) = token.rsplit_once('.').ok_or_else(|| malformed(&TOKEN, "it is no token"))?;
        let (header, claims) = text.split_once('.').ok_or_else(|| malformed(&TOKEN, "it has not three parts"))?;
        let header: TokenHeader = part(header)?;
        if header.alg != "ES256" || header.crit.is_some() {
            return Err(malformed(&TOKEN, "it names another way to sign than the scheme's"));
        }
        let claims: TokenClaims = part(claims)?;
        let signature = Encoding::Base64Url.decode(signature.as_bytes(), Algorithm::EcdsaP256);
        let signature = signature.ok_or_else(|| malformed(&TOKEN, "it holds no well-formed signature"))?;

        let text = text.as_bytes().to_vec();
        Ok(Box::new(move |body| {
            Ok(Claim {
                key_id: Some(header.kid),
                binds_body: claims.request_body_sha256.eq_ignore_ascii_case(&Digest::of(body).to_string()),
                sent: Some(claims.iat),
                ..Claim::new(text, Signatures::from_iter([signature]), Algorithm::EcdsaP256)
            })
        }))
    }

    fn sign(&self, message: &Message<'_>, hand: &Hand<'_>) -> Result<HeaderMap, SignError> {
        let iat = message.timestamp.as_unix_seconds();
        if iat < 0 {
            return Err(SignError::NegativeTimestamp);
        }
        let header = json!({ "alg": "ES256", "kid": hand.key_id().unwrap_or_default(), "typ": "JWT" });
        let claims = json!({ "iat": iat, "request_body_sha256": Digest::of(message.body).to_string() });
        let encode = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(header), encode(claims));
        let tag = hand.sign(Algorithm::EcdsaP256, text.as_bytes())?;
        let token = format!("{text}.{}", Encoding::Base64Url.encode(tag, Algorithm::EcdsaP256));
        let value = HeaderValue::try_from(token).map_err(|_| SignError::InvalidHeader(TOKEN))?;
        Ok(HeaderMap::from_iter([(TOKEN, value)]))
    }

    fn describe(&self) -> String {
        "a JSON Web Token whose claim `request_body_sha256` is the digest of the body".to_owned()
    }
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: String,
    /// Extensions that have to be understood. None is.
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct TokenClaims {
    iat: i64,
    request_body_sha256: String,
}

fn part<T: DeserializeOwned>(text: &str) -> Result<T, VerifyError> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed(&TOKEN, "a part of it is no base64url"))?;
    // A list would be read as the fields in their order, and a JWT's parts are objects.
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err(malformed(&TOKEN, "a part of it is no JSON object"));
    }
    serde_json::from_slice(&json).map_err(|_| malformed(&TOKEN, "a part of it is not what the scheme needs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_token_are_objects() {
        let read = |json: &str| part::<TokenClaims>(&URL_SAFE_NO_PAD.encode(json));
        assert!(read(r#" {"iat":1,"request_body_sha256":"x"}"#).is_ok());
        assert!(read(r#"[1,"x"]"#).is_err());
        assert!(part::<TokenHeader>(&URL_SAFE_NO_PAD.encode(r#"["ES256","k",null]"#)).is_err());
    }
}
