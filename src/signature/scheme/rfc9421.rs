//! HTTP Message Signatures, with the policy that they leave open.

use std::sync::Arc;

use super::{KeyBy, Scheme, presets};
use crate::secret::SecretFormat;
use crate::signature::message_signature::MessageSignature;
use crate::signature::{Algorithm, ConfigError};

impl Scheme {
    /// HTTP Message Signatures (RFC 9421), with the body covered by `Content-Digest` (RFC 9530).
    ///
    /// The RFC leaves to both ends what has to be signed. Here that is, unless said otherwise, `@method`, `@target-uri` (or
    /// `@path` with `@query`, or `@request-target`) and `content-digest`; the digest is computed again from the body. A
    /// signature that covers more is accepted, one that covers less is not. `created` is required and bounds replays, and
    /// `expires` is held to. Components with parameters, components that are not known, and components that are listed
    /// twice are refused; so are several signatures, unless `label` says which one counts.
    ///
    /// | option | value |
    /// |---|---|
    /// | `components` | what has to be covered, and what a sender covers, separated by spaces or commas |
    /// | `algorithm` | `hmac-sha256` (default); with the feature `asymmetric`, `ed25519` or `ecdsa-p256-sha256`. A request's `alg` never chooses: where it names another one, the request is refused |
    /// | `id` | where the event's id stands: `nonce`, or the name of a header, which then has to be covered. Without it events are known by the digest of what is signed |
    /// | `label` | which signature counts, and what a sender calls its own; the only one, and `sig1`, unless given |
    /// | `keyid` | what a sender calls its key; a receiver refuses a request that names another one |
    /// | `digest` | `sha-256` (default) or `sha-512`, for a sender; a receiver takes both |
    /// | `expires` | for how many seconds a sender's signature may be used; the receiver's window alone counts unless given |
    ///
    /// Without `content-digest` among the components, the body is not signed, and anybody can change it.
    ///
    /// Secrets are base64 of 16 bytes or more; for `ed25519`, `whpk_` and the public key or `whsk_` and the private one,
    /// where the public one may stand without its prefix; for `ecdsa-p256-sha256`, `SubjectPublicKeyInfo` or PKCS #8.
    ///
    /// ```
    /// # use countersign::signature::Scheme;
    /// let scheme = Scheme::rfc9421([
    ///     ("components", "@method @target-uri content-digest content-type"),
    ///     ("id", "x-event-id"),
    /// ])?;
    /// assert!(scheme.signs_timestamp() && scheme.signs_url());
    /// # Ok::<(), countersign::signature::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::SchemeOption`] names the option and says what is allowed.
    pub fn rfc9421<K, V>(options: impl IntoIterator<Item = (K, V)>) -> Result<Self, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let form = MessageSignature::from_options(options)?;
        let preset = Self::from(&presets::RFC9421);
        Ok(Self {
            algorithm: form.algorithm(),
            secret_format: secret_format(form.algorithm()).unwrap_or(preset.secret_format),
            key_by: if form.covers_body() || form.has_id() { KeyBy::SignedId } else { KeyBy::SignedText },
            form: Some(Arc::new(form)),
            ..preset
        })
    }
}

/// How the keys of a pair are written.
fn secret_format(algorithm: Algorithm) -> Option<SecretFormat> {
    match algorithm {
        #[cfg(feature = "asymmetric")]
        Algorithm::Ed25519 => Some(SecretFormat::Ed25519Base64),
        #[cfg(feature = "asymmetric")]
        Algorithm::EcdsaP256 => Some(SecretFormat::P256),
        _ => None,
    }
}
