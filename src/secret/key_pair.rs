//! Halves of key pairs, and the texts in which providers write them.
//!
//! A private key is kept as its 32 bytes, a public one as it is compared: 32 bytes for Ed25519, the uncompressed point for
//! P-256. Both are checked here, so that no verifier is built with a key that nothing can have been signed with.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::{SigningKey, VerifyingKey};
use p256::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _};
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use super::{Half, Secret, SecretError, hex_bytes};
use crate::clock::{Clock as _, SystemClock};

const ED25519: SecretError = SecretError::NotKey("an Ed25519 key: `whpk_` for verifying, `whsk_` for signing");
const ED25519_HEX: SecretError = SecretError::NotKey("an Ed25519 key in hex: 64 digits for verifying, 128 for signing");
const P256: SecretError = SecretError::NotKey("a P-256 key in base64 (SubjectPublicKeyInfo, or PKCS #8 for signing)");
const JWK: SecretError = SecretError::NotKey("a P-256 key as JSON: an object with `kty`, `crv`, `x` and `y`");

pub(super) fn ed25519(text: &str) -> Result<Secret, SecretError> {
    if text.starts_with("whsec_") {
        return Err(SecretError::NotKey("half of a pair: a `whsec_` secret is for the scheme `standard`"));
    }
    let decoded = |digits| STANDARD.decode(digits).map(Zeroizing::new).map_err(|_| ED25519);
    if let Some(digits) = text.strip_prefix("whpk_") {
        return ed25519_public(&decoded(digits)?).ok_or(ED25519);
    }
    let digits = text.strip_prefix("whsk_").ok_or(ED25519)?;
    ed25519_private(&decoded(digits)?).ok_or(ED25519)
}

/// The same; 32 bytes without a prefix are a public key.
pub(super) fn ed25519_base64(text: &str) -> Result<Secret, SecretError> {
    if text.starts_with("wh") && text.contains('_') { ed25519(text) } else { ed25519(&format!("whpk_{text}")) }
}

pub(super) fn ed25519_hex(text: &str) -> Result<Secret, SecretError> {
    let bytes = hex_bytes(text).map_err(|_| ED25519_HEX)?;
    // Here 32 bytes are a public key: those of a private one alone look the same.
    if bytes.len() == 32 { ed25519_public(&bytes) } else { ed25519_private(&bytes) }.ok_or(ED25519_HEX)
}

pub(super) fn p256(text: &str) -> Result<Secret, SecretError> {
    let digits = text.split("-----").nth(2).unwrap_or(text);
    let digits: Zeroizing<String> = Zeroizing::new(digits.split_ascii_whitespace().collect());
    let der = Zeroizing::new(STANDARD.decode(digits.as_bytes()).map_err(|_| P256)?);
    if let Ok(public) = p256::PublicKey::from_public_key_der(&der) {
        return Ok(half(Half::Public, public.to_sec1_bytes().to_vec(), None));
    }
    let private = p256::SecretKey::from_pkcs8_der(&der).map_err(|_| P256)?;
    Ok(half(Half::Whole, private.to_bytes().to_vec(), None))
}

pub(super) fn p256_jwk(text: &str) -> Result<Secret, SecretError> {
    let answered = serde_json::from_str::<KeyAnswer>(text).map(|answer| answer.key);
    let mut key: Jwk = answered.or_else(|_| serde_json::from_str(text)).map_err(|_| JWK)?;
    if key.expired_at.is_some_and(|end| end <= SystemClock.now().as_unix_seconds()) {
        return Err(SecretError::Expired);
    }
    if key.kty != "EC" || key.crv != "P-256" || key.alg.as_deref().is_some_and(|alg| alg != "ES256") {
        return Err(JWK);
    }
    let number = |digits: &str| URL_SAFE_NO_PAD.decode(digits).ok().filter(|bytes| bytes.len() == 32).ok_or(JWK);
    let point = [&[UNCOMPRESSED], number(&key.x)?.as_slice(), number(&key.y)?.as_slice()].concat();
    let public = p256::PublicKey::from_sec1_bytes(&point).map_err(|_| JWK)?;
    let key_id = key.kid.take().map(Arc::from);
    let Some(digits) = key.d.take().map(Zeroizing::new) else { return Ok(half(Half::Public, point, key_id)) };

    let bytes = Zeroizing::new(number(&digits)?);
    let private = p256::SecretKey::from_slice(&bytes).map_err(|_| JWK)?;
    if private.public_key() != public {
        return Err(JWK);
    }
    Ok(half(Half::Whole, bytes.to_vec(), key_id))
}

/// The first byte of a point that is written with both of its coordinates.
const UNCOMPRESSED: u8 = 4;

/// A JSON Web Key, as far as it matters here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
    y: String,
    d: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    /// Unix seconds. Plaid's own, null until it signs with another key.
    expired_at: Option<i64>,
}

/// What Plaid's key endpoint answers, with the key inside.
#[derive(Deserialize)]
struct KeyAnswer {
    key: Jwk,
}

impl Drop for Jwk {
    fn drop(&mut self) {
        self.d.zeroize();
    }
}

fn ed25519_public(bytes: &[u8]) -> Option<Secret> {
    let key = VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?;
    // With a weak key, one signature fits many texts.
    (!key.is_weak()).then(|| half(Half::Public, bytes.to_vec(), None))
}

fn ed25519_private(bytes: &[u8]) -> Option<Secret> {
    let seed = match bytes.len() {
        32 => bytes,
        // Refuses a public key that is not that of the private one.
        64 => SigningKey::from_keypair_bytes(bytes.try_into().ok()?).ok().and(bytes.get(..32))?,
        _ => return None,
    };
    Some(half(Half::Whole, seed.to_vec(), None))
}

fn half(half: Half, bytes: Vec<u8>, key_id: Option<Arc<str>>) -> Secret {
    Secret { bytes: Zeroizing::new(bytes), half, key_id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretFormat;

    const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";

    #[test]
    fn a_public_key_verifies_only_and_a_private_one_does_both() {
        assert!(ed25519(PUBLIC).expect("a key").is_public());
        let seed = STANDARD.encode([7; 32]);
        let private = ed25519(&format!("whsk_{seed}")).expect("a key");
        assert!(!private.is_public());
        let pair = SigningKey::from_bytes(&[7; 32]).to_keypair_bytes();
        let same = ed25519(&format!("whsk_{}", STANDARD.encode(pair))).expect("a key");
        assert_eq!(private.expose(), same.expose());
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_shown() {
        for text in ["whpk_", "whpk_AAAA", "1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", "whsk_QQ==", "whsec_QQ=="] {
            let refused = ed25519(text).expect_err("to be refused");
            assert!(matches!(refused, SecretError::NotKey(_)) && !refused.to_string().contains("1SiA"), "{text}");
        }
        assert_eq!(ed25519_hex("00").unwrap_err(), ED25519_HEX);
        assert_eq!(p256("MFkw").unwrap_err(), P256);
        for text in ["{}", "[]", r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#] {
            assert_eq!(p256_jwk(text).unwrap_err(), JWK, "{text}");
        }
    }

    #[test]
    fn keys_of_other_tools_are_read_with_their_lines() {
        let der = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
        let plain = SecretFormat::P256.parse(der).expect("a key");
        let (first, second) = der.split_at(64);
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----");
        assert_eq!(SecretFormat::P256.parse(&pem).expect("a key").expose(), plain.expose());
        assert!(plain.is_public());
        let jwk = "{\n  \"kty\": \"EC\", \"crv\": \"P-256\",\n  \"x\": \"HhhTL9R1TALzBB2cdc6zO4P_2BrHzk_ogsyxyYvFiW4\",\n  \"y\": \"pGwxHE4v9A3ZajZT5uRURdMt_khuztdcepDGoYiBwKM\"\n}";
        let answer = format!(r#"{{"key":{},"request_id":"r"}}"#, jwk.replace("\"kty\"", "\"expired_at\":null,\"kty\""));
        assert!(SecretFormat::P256Jwk.parse(&answer).expect("a key").is_public());
        let expired = answer.replace("null", "1600000000");
        assert_eq!(SecretFormat::P256Jwk.parse(&expired).unwrap_err(), SecretError::Expired);
        assert!(SecretFormat::P256Jwk.parse(jwk).expect("a key").is_public());
    }

    #[test]
    fn a_weak_public_key_is_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(ed25519_public(&identity).is_none());
        assert!(ed25519_public(&[0; 32]).is_none());
    }
}
