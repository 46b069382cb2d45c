//! `Content-Digest` (RFC 9530): the header by which a message signature covers the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use sha2::{Digest as _, Sha256, Sha512};

use crate::signature::VerifyError;

pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The digests that a header claims. There is at least one that can be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentDigest {
    sha256: Option<Vec<u8>>,
    sha512: Option<Vec<u8>>,
}

impl ContentDigest {
    /// Reads the header's value. Digests of other algorithms are passed over: they prove nothing.
    pub(super) fn parse(value: &str) -> Result<Self, VerifyError> {
        let digests: Dictionary = Parser::new(value).parse().map_err(|_| malformed("it is no dictionary"))?;
        let of = |name: &str, length: usize| match digests.get(name) {
            None => Ok(None),
            Some(ListEntry::Item(item)) => match &item.bare_item {
                BareItem::ByteSequence(bytes) if bytes.len() == length => Ok(Some(bytes.clone())),
                _ => Err(malformed("a digest has another length, or is none")),
            },
            Some(ListEntry::InnerList(_)) => Err(malformed("a digest has another length, or is none")),
        };
        match (of("sha-256", 32)?, of("sha-512", 64)?) {
            (None, None) => Err(malformed("it holds neither sha-256 nor sha-512")),
            (sha256, sha512) => Ok(Self { sha256, sha512 }),
        }
    }

    /// Whether every one of them is the body's.
    pub(super) fn fits(&self, body: &[u8]) -> bool {
        // Anybody can compute a digest: nothing is given away by the time that this takes.
        self.sha256.as_ref().is_none_or(|digest| *digest == Sha256::digest(body).as_slice())
            && self.sha512.as_ref().is_none_or(|digest| *digest == Sha512::digest(body).as_slice())
    }
}

/// Which digest a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DigestAlgorithm {
    Sha256,
    Sha512,
}

impl DigestAlgorithm {
    /// The header's value for a body.
    pub(super) fn header(self, body: &[u8]) -> String {
        match self {
            Self::Sha256 => format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body))),
            Self::Sha512 => format!("sha-512=:{}:", STANDARD.encode(Sha512::digest(body))),
        }
    }
}

fn malformed(fault: &'static str) -> VerifyError {
    VerifyError::Malformed { header: CONTENT_DIGEST, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"hello": "world"}"#;
    /// From RFC 9530, appendix D, and RFC 9421, appendix B.2.
    const SHA256: &str = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
    const SHA512: &str =
        "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:";

    #[test]
    fn the_published_digests_are_the_bodys() {
        for value in [SHA256, SHA512, &format!("{SHA256},  {SHA512}"), &format!("md5=:AAAA:, {SHA256}")] {
            let digest = ContentDigest::parse(value).expect("a digest");
            assert!(digest.fits(BODY) && !digest.fits(b"{}"), "{value}");
        }
        assert_eq!(
            (DigestAlgorithm::Sha256.header(BODY).as_str(), DigestAlgorithm::Sha512.header(BODY).as_str()),
            (SHA256, SHA512)
        );
    }

    #[test]
    fn every_digest_that_is_known_has_to_fit() {
        let other = DigestAlgorithm::Sha256.header(b"{}");
        assert!(!ContentDigest::parse(&format!("{other}, {SHA512}")).expect("a digest").fits(BODY));
    }

    #[test]
    fn a_header_without_a_digest_that_can_be_computed_is_refused() {
        for value in
            ["", "sha-256", "sha-256=:AAAA:", "md5=:AAAA:", "sha-256=(1)", "sha-256=\"x\"", "=", "SHA-256=:AAAA:"]
        {
            assert!(ContentDigest::parse(value).is_err(), "{value}");
        }
    }
}
