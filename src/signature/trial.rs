//! One key at work on one text, whatever its algorithm: fed piece by piece, then compared with signatures or written as
//! one.

use subtle::{Choice, ConstantTimeEq};

#[cfg(feature = "asymmetric")]
use super::asymmetric::PublicTrial;
use super::mac::{Algorithm, Mac, Tag};
use super::{ConfigError, SignError};
use crate::secret::Secret;

/// One key at work on one text. A clone of a fresh one costs no hashing.
#[derive(Clone)]
pub(super) enum Trial {
    Mac(Mac),
    #[cfg(feature = "asymmetric")]
    Public(PublicTrial),
}

impl Trial {
    pub(super) fn new(algorithm: Algorithm, secret: &Secret) -> Result<Self, ConfigError> {
        #[cfg(feature = "asymmetric")]
        if let Some(trial) = PublicTrial::new(algorithm, secret) {
            return Ok(Self::Public(trial));
        }
        // A public key is known to everybody: a MAC with it as the key could be anybody's.
        let mac = if secret.is_public() { None } else { Mac::new(algorithm, secret) };
        mac.map(Self::Mac).ok_or(ConfigError::KeyOfOtherKind(algorithm))
    }

    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Mac(mac) => mac.update(bytes),
            #[cfg(feature = "asymmetric")]
            Self::Public(trial) => trial.update(bytes),
        }
    }

    /// Ends it: whether one of the signatures is right. For MACs in time that depends on their number only.
    #[inline]
    pub(super) fn matches(self, signatures: &[Tag]) -> Choice {
        match self {
            Self::Mac(mac) => any_equal(mac.finish(), signatures),
            #[cfg(feature = "asymmetric")]
            Self::Public(trial) => trial.matches(signatures),
        }
    }

    /// The same for a trial that was given nothing yet, and a whole text in pieces.
    #[inline]
    pub(super) fn matches_text(&self, text: &[&[u8]], signatures: &[Tag]) -> Choice {
        match self {
            Self::Mac(mac) => any_equal(mac.of(text), signatures),
            #[cfg(feature = "asymmetric")]
            Self::Public(fresh) => {
                let mut trial = fresh.clone();
                text.iter().for_each(|piece| trial.update(piece));
                trial.matches(signatures)
            }
        }
    }

    /// Ends it: the signature.
    pub(super) fn sign(self) -> Result<Tag, SignError> {
        match self {
            Self::Mac(mac) => Ok(mac.finish()),
            #[cfg(feature = "asymmetric")]
            Self::Public(trial) => trial.sign().ok_or(SignError::PublicKeyOnly),
        }
    }
}

/// All of them are looked at.
#[inline]
fn any_equal(expected: Tag, signatures: &[Tag]) -> Choice {
    signatures.iter().fold(Choice::from(0), |found, signature| found | expected.ct_eq(signature))
}
