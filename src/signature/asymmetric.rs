//! Key pairs: the receiver verifies with the public half, and only the sender has the other one.

use std::fmt;
use std::sync::Arc;

use ed25519_dalek::{Signature as Ed25519Signature, Signer as _, SigningKey, VerifyingKey};
use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
use p256::ecdsa::{Signature as P256Signature, SigningKey as P256SigningKey, VerifyingKey as P256VerifyingKey};
use sha2::{Digest as _, Sha256};
use subtle::Choice;

use super::mac::{Algorithm, Tag};
use crate::secret::Secret;

/// A text that is being checked or signed with one key. A clone of a fresh one is cheap.
#[derive(Clone)]
pub(super) enum PublicTrial {
    /// Ed25519 hashes the signature before the text, so that this has to be kept.
    Ed25519 {
        pair: Arc<Ed25519Pair>,
        text: Vec<u8>,
    },
    P256 {
        pair: Arc<P256Pair>,
        digest: Sha256,
    },
}

pub(super) struct Ed25519Pair {
    public: VerifyingKey,
    private: Option<SigningKey>,
}

pub(super) struct P256Pair {
    public: P256VerifyingKey,
    private: Option<P256SigningKey>,
}

impl PublicTrial {
    /// `None` where the algorithm has no pairs, or the secret is none of its keys.
    pub(super) fn new(algorithm: Algorithm, secret: &Secret) -> Option<Self> {
        let bytes = secret.expose();
        match algorithm {
            Algorithm::Ed25519 => {
                let pair = if secret.is_public() {
                    Ed25519Pair { public: VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?, private: None }
                } else {
                    let private = SigningKey::from_bytes(bytes.try_into().ok()?);
                    Ed25519Pair { public: private.verifying_key(), private: Some(private) }
                };
                Some(Self::Ed25519 { pair: Arc::new(pair), text: Vec::new() })
            }
            Algorithm::EcdsaP256 => {
                let pair = if secret.is_public() {
                    P256Pair { public: P256VerifyingKey::from_sec1_bytes(bytes).ok()?, private: None }
                } else {
                    let private = P256SigningKey::from_slice(bytes).ok()?;
                    P256Pair { public: *private.verifying_key(), private: Some(private) }
                };
                Some(Self::P256 { pair: Arc::new(pair), digest: Sha256::new() })
            }
            _ => None,
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Ed25519 { text, .. } => text.extend_from_slice(bytes),
            Self::P256 { digest, .. } => digest.update(bytes),
        }
    }

    /// Whether one of the signatures is right.
    pub(super) fn matches(self, signatures: &[Tag]) -> Choice {
        // Nothing here is secret: the first right one ends it.
        let right = match self {
            Self::Ed25519 { pair, text } => signatures.iter().any(|tag| {
                let signature = Ed25519Signature::from_bytes(&tag.to_array());
                pair.public.verify_strict(&text, &signature).is_ok()
            }),
            Self::P256 { pair, digest } => {
                let digest = digest.finalize();
                signatures.iter().any(|tag| {
                    let signature = P256Signature::from_slice(&tag.to_array());
                    signature.is_ok_and(|signature| pair.public.verify_prehash(&digest, &signature).is_ok())
                })
            }
        };
        Choice::from(u8::from(right))
    }

    /// `None` with the public half alone.
    pub(super) fn sign(self) -> Option<Tag> {
        match self {
            Self::Ed25519 { pair, text } => Some(Tag::new(&pair.private.as_ref()?.sign(&text).to_bytes())),
            Self::P256 { pair, digest } => {
                let digest = digest.finalize();
                let signature: P256Signature = pair.private.as_ref()?.sign_prehash(&digest).ok()?;
                Some(Tag::new(&signature.to_bytes()))
            }
        }
    }
}

/// Shows nothing: it may hold a private key.
impl fmt::Debug for PublicTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicTrial(..)")
    }
}
