//! The algorithms, and those of them in which both sides hold the same key: its precomputed state, and the comparison.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq};

use crate::secret::Secret;

/// How a scheme computes its signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// HMAC with SHA-1. For providers that offer nothing else; never as a fallback.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// SHA-256 of the secret and the signed text. Whoever knows one digest can compute that of a longer text: for
    /// providers' older versions only.
    Sha256,
    /// No signature: the secret itself is sent along. Whoever sees one request can send any other.
    Token,
    /// Ed25519, checked strictly.
    Ed25519,
    /// ECDSA on the curve P-256 with SHA-256.
    EcdsaP256,
}

impl Algorithm {
    /// Its name, `hmac-sha256` for example.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha1 => "hmac-sha1",
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha512 => "hmac-sha512",
            Self::Sha256 => "sha256",
            Self::Token => "token",
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256 => "ecdsa-p256-sha256",
        }
    }

    /// Whether the receiver needs a public key only, and cannot sign with it.
    #[must_use]
    pub const fn is_asymmetric(self) -> bool {
        matches!(self, Self::Ed25519 | Self::EcdsaP256)
    }

    /// How many bytes a signature has.
    pub(super) const fn tag_bytes(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            // Tokens are compared by their digests, so that their lengths do not show.
            Self::HmacSha256 | Self::Sha256 | Self::Token => 32,
            Self::HmacSha512 | Self::Ed25519 | Self::EcdsaP256 => 64,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A MAC in progress. A clone of a fresh one costs no hashing: the key's two blocks are already in it.
#[derive(Clone)]
pub(super) enum Mac {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    // Twice as large as the others, and rare.
    Sha512(Box<Hmac<Sha512>>),
    /// A digest that was begun with the secret.
    Digest(Sha256),
    /// The secret's digest, whatever is fed.
    Token(Tag),
}

impl Mac {
    /// `None` where the two sides have different keys.
    pub(super) fn new(algorithm: Algorithm, secret: &Secret) -> Option<Self> {
        let key = secret.expose();
        Some(match algorithm {
            Algorithm::HmacSha1 => Self::Sha1(keyed(key)),
            Algorithm::HmacSha256 => Self::Sha256(keyed(key)),
            Algorithm::HmacSha512 => Self::Sha512(Box::new(keyed(key))),
            Algorithm::Sha256 => Self::Digest(Sha256::new_with_prefix(key)),
            Algorithm::Token => Self::Token(Tag::of_token(key)),
            Algorithm::Ed25519 | Algorithm::EcdsaP256 => return None,
        })
    }

    /// That of a whole text, in pieces, for a MAC that was given nothing yet. What is inside is cloned and not this: so
    /// it is not moved about.
    #[inline]
    pub(super) fn of(&self, text: &[&[u8]]) -> Tag {
        match self {
            Self::Sha1(fresh) => whole(fresh, text),
            Self::Sha256(fresh) => whole(fresh, text),
            Self::Sha512(fresh) => whole(&**fresh, text),
            Self::Digest(begun) => {
                let mut digest = begun.clone();
                text.iter().for_each(|piece| digest.update(piece));
                Tag::new(&digest.finalize())
            }
            Self::Token(token) => *token,
        }
    }

    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(mac) => mac.update(bytes),
            Self::Sha256(mac) => mac.update(bytes),
            Self::Sha512(mac) => mac.update(bytes),
            Self::Digest(digest) => digest.update(bytes),
            Self::Token(_) => {}
        }
    }

    /// Ends it.
    #[inline]
    pub(super) fn finish(self) -> Tag {
        match self {
            Self::Sha1(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::Sha256(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::Sha512(mac) => Tag::new(&mac.finalize().into_bytes()),
            Self::Digest(digest) => Tag::new(&digest.finalize()),
            Self::Token(token) => token,
        }
    }
}

/// A signature's decoded bytes, filled up with zeros to the longest one there is.
///
/// Words instead of bytes, because constant-time comparison takes its toll for each element. Both sides of a comparison
/// have the same length before the filling: the reader of headers accepts no other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag([u64; MAX_TAG_BYTES / 8]);

pub(super) const MAX_TAG_BYTES: usize = 64;

impl Tag {
    /// The tag of these bytes, of which there are at most [`MAX_TAG_BYTES`].
    #[inline]
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut filled = [0; MAX_TAG_BYTES];
        let length = bytes.len().min(MAX_TAG_BYTES);
        if let (Some(to), Some(from)) = (filled.get_mut(..length), bytes.get(..length)) {
            to.copy_from_slice(from);
        }
        let mut words = [0; MAX_TAG_BYTES / 8];
        let (chunks, _) = filled.as_chunks::<8>();
        words.iter_mut().zip(chunks).for_each(|(to, from)| *to = u64::from_ne_bytes(*from));
        Self(words)
    }

    /// What stands for a token.
    pub(super) fn of_token(token: &[u8]) -> Self {
        Self::new(&Sha256::digest(token))
    }

    /// All of its bytes.
    #[cfg(feature = "asymmetric")]
    pub(super) fn to_array(self) -> [u8; MAX_TAG_BYTES] {
        let mut bytes = [0; MAX_TAG_BYTES];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        chunks.iter_mut().zip(self.0).for_each(|(to, from)| *to = from.to_ne_bytes());
        bytes
    }

    /// Its bytes, the filling cut off.
    pub(super) fn to_bytes(self, algorithm: Algorithm) -> Vec<u8> {
        self.0.into_iter().flat_map(u64::to_ne_bytes).take(algorithm.tag_bytes()).collect()
    }
}

impl ConstantTimeEq for Tag {
    #[inline]
    fn ct_eq(&self, other: &Self) -> Choice {
        // One comparison of all differences: that of each word for itself has its barriers against the optimizer.
        let differences = self.0.iter().zip(&other.0).fold(0, |differences, (one, other)| differences | (one ^ other));
        differences.ct_eq(&0)
    }
}

#[inline]
fn whole<M: hmac::Mac + Clone>(fresh: &M, text: &[&[u8]]) -> Tag {
    let mut mac = fresh.clone();
    text.iter().for_each(|piece| mac.update(piece));
    Tag::new(&mac.finalize().into_bytes())
}

fn keyed<M: KeyInit>(key: &[u8]) -> M {
    match M::new_from_slice(key) {
        Ok(mac) => mac,
        // HMAC hashes long keys and fills up short ones: every length is one that it takes.
        Err(_) => unreachable!("HMAC takes keys of any length"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretFormat;

    #[test]
    fn each_algorithm_gives_the_published_result() {
        let secret = SecretFormat::Text.parse("key").expect("a secret");
        let text = b"The quick brown fox jumps over the lazy dog";
        for (algorithm, expected) in [
            (Algorithm::HmacSha1, "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"),
            (Algorithm::HmacSha256, "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"),
        ] {
            let mut mac = Mac::new(algorithm, &secret).expect("a MAC");
            mac.update(text);
            let hex: String = mac.finish().to_bytes(algorithm).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }

    #[test]
    fn a_text_has_one_mac_however_it_is_cut() {
        let secret = SecretFormat::Text.parse("key").expect("a secret");
        for algorithm in
            [Algorithm::HmacSha1, Algorithm::HmacSha256, Algorithm::HmacSha512, Algorithm::Sha256, Algorithm::Token]
        {
            let fresh = Mac::new(algorithm, &secret).expect("a MAC");
            let mut fed = fresh.clone();
            fed.update(b"1700000000.{}");
            let expected = fed.finish().to_bytes(algorithm);
            assert_eq!(fresh.of(&[b"1700000000.{}"]).to_bytes(algorithm), expected, "{algorithm}");
            assert_eq!(fresh.of(&[b"1700000000.", b"", b"{", b"}"]).to_bytes(algorithm), expected, "{algorithm}");
        }
    }

    #[test]
    fn c034_tags_differ_when_any_of_their_bytes_does() {
        let bytes: Vec<u8> = (1..=64).collect();
        let tag = Tag::new(&bytes);
        assert!(bool::from(tag.ct_eq(&Tag::new(&bytes))));
        for place in 0..64 {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert!(!bool::from(tag.ct_eq(&Tag::new(&other))), "{place}");
        }
    }
}
