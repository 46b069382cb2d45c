//! The secrets of one source: the current one, and those that are being retired.

use super::ConfigError;
use super::mac::Algorithm;
use super::trial::Trial;
use crate::clock::Timestamp;
use crate::secret::Secret;

/// How many secrets one keyring may hold. Each is tried on every request.
pub const MAX_SECRETS: usize = 16;

/// The secrets of one source, the current one first.
///
/// To rotate without losing an event: put the new secret in front, keep the old one with an expiry, and remove it when
/// [`Verified::secret`](super::Verified::secret) no longer reports it.
///
/// ```
/// # use countersign::signature::{Keyring, Scheme};
/// # use countersign::{Clock, SystemClock};
/// # const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
/// let scheme = Scheme::github();
/// let keyring = Keyring::new(scheme.parse_secret("the new secret of today")?)
///     .with_previous_until(scheme.parse_secret("the secret of last year")?, SystemClock.now().saturating_add(DAY));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keyring {
    entries: Vec<Entry>,
}

impl Keyring {
    /// A keyring with one secret, which does not expire.
    #[must_use]
    pub fn new(current: Secret) -> Self {
        Self { entries: vec![Entry { secret: current, expires: None }] }
    }

    /// A keyring with these secrets, the current one first, none of which expires.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoLiveSecret`] if there is none, [`ConfigError::TooManySecrets`] for more than [`MAX_SECRETS`].
    pub fn from_secrets(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, ConfigError> {
        let entries: Vec<_> = secrets.into_iter().map(|secret| Entry { secret, expires: None }).collect();
        match entries.len() {
            0 => Err(ConfigError::NoLiveSecret),
            1..=MAX_SECRETS => Ok(Self { entries }),
            count => Err(ConfigError::TooManySecrets(count)),
        }
    }

    /// Adds an earlier secret that still counts, until it is taken out.
    #[must_use]
    pub fn with_previous(mut self, secret: Secret) -> Self {
        self.entries.push(Entry { secret, expires: None });
        self
    }

    /// Adds an earlier secret that still counts, up to this moment.
    #[must_use]
    pub fn with_previous_until(mut self, secret: Secret, expires: Timestamp) -> Self {
        self.entries.push(Entry { secret, expires: Some(expires) });
        self
    }

    /// Lets the current secret expire too: from that moment on it is refused.
    #[must_use]
    pub fn with_current_until(mut self, expires: Timestamp) -> Self {
        if let Some(current) = self.entries.first_mut() {
            current.expires = Some(expires);
        }
        self
    }

    /// The precomputed states of all its secrets.
    pub(super) fn into_keys(self, algorithm: Algorithm, now: Timestamp) -> Result<Box<[Key]>, ConfigError> {
        if self.entries.len() > MAX_SECRETS {
            return Err(ConfigError::TooManySecrets(self.entries.len()));
        }
        let key = |entry: Entry| {
            let trial = Trial::new(algorithm, &entry.secret)?;
            Ok(Key { trial, secret: entry.secret, expires: entry.expires })
        };
        let keys = self.entries.into_iter().map(key).collect::<Result<Box<[Key]>, ConfigError>>()?;
        if keys.iter().any(|key| key.is_live(now)) { Ok(keys) } else { Err(ConfigError::NoLiveSecret) }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    secret: Secret,
    expires: Option<Timestamp>,
}

/// One secret, ready to be used.
#[derive(Clone)]
pub(super) struct Key {
    /// A trial that was given nothing yet.
    pub(super) trial: Trial,
    /// For texts in another algorithm than the scheme's usual one, and for tokens.
    pub(super) secret: Secret,
    pub(super) expires: Option<Timestamp>,
}

impl Key {
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::from_bytes(b"a secret".to_vec()).expect("a secret")
    }

    #[test]
    fn c023_no_secret_or_only_expired_ones_is_a_configuration_error() {
        assert_eq!(Keyring::from_secrets([]).unwrap_err(), ConfigError::NoLiveSecret);
        let now = Timestamp::from_micros(1_000);
        let expired = Keyring::new(secret()).with_current_until(now);
        assert_eq!(expired.clone().into_keys(Algorithm::HmacSha256, now).err(), Some(ConfigError::NoLiveSecret));
        let earlier = Timestamp::from_micros(999);
        assert_eq!(expired.into_keys(Algorithm::HmacSha256, earlier).map(|keys| keys.len()), Ok(1));
    }

    #[test]
    fn c028_a_keyring_has_a_limit() {
        let many = (0..17).fold(Keyring::new(secret()), |ring, _| ring.with_previous(secret()));
        let refused = many.into_keys(Algorithm::HmacSha256, Timestamp::default()).err();
        assert_eq!(refused, Some(ConfigError::TooManySecrets(18)));
        assert_eq!(Keyring::from_secrets(vec![secret(); 17]).unwrap_err(), ConfigError::TooManySecrets(17));
        assert!(Keyring::from_secrets(vec![secret(); 16]).is_ok());
    }
}
