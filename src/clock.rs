//! Time as this crate keeps it: whole microseconds since the Unix epoch, read from a [`Clock`].
//!
//! Every decision that depends on the time takes it as a value, so that it can be tested at its edges. Arithmetic is
//! checked or saturating: a timestamp that a stranger sent is only ever compared.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Where the time comes from.
///
/// [`SystemClock`] is the one to use; tests use `ManualClock` (feature `test-util`).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// The operating system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
        };
        Timestamp(micros)
    }
}

/// A moment, in microseconds since the Unix epoch, UTC.
///
/// ```
/// use countersign::Timestamp;
///
/// let moment = Timestamp::from_unix_seconds(1_700_000_000).unwrap();
/// assert_eq!(moment.to_string(), "2023-11-14T22:13:20Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment that lies this many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The moment that lies this many milliseconds after the Unix epoch; `None` where it does not fit.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Option<Self> {
        match millis.checked_mul(1_000) {
            Some(micros) => Some(Self(micros)),
            None => None,
        }
    }

    /// The moment that lies this many seconds after the Unix epoch; `None` where it does not fit.
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Option<Self> {
        match seconds.checked_mul(1_000_000) {
            Some(micros) => Some(Self(micros)),
            None => None,
        }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_unix_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment, `span` later; the last moment there is where that does not fit.
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// This moment, `span` earlier; the first moment there is where that does not fit.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// How long after `earlier` this moment lies; zero where it does not.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        let span = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_micros(u64::try_from(span).unwrap_or(0))
    }
}

/// A span as microseconds; the largest number there is where it does not fit.
fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// RFC 3339, UTC. Moments outside the years 0 to 9999 have no such form and are written as a count of microseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000)
            .ok()
            .and_then(|moment| moment.format(&Rfc3339).ok());
        match text {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As it is written: RFC 3339, with any offset.
impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let moment = OffsetDateTime::parse(&text, &Rfc3339).map_err(serde::de::Error::custom)?;
        // Four digits of a year fit in any case.
        i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000)).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A clock that stands still until it is told to move. For tests.
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(std::sync::atomic::AtomicI64::new(now.0))
    }

    /// Moves the clock on by `span`.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(micros(span), std::sync::atomic::Ordering::SeqCst);
    }

    /// Sets the clock, to an earlier moment too.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_never_overflows() {
        let last = Timestamp::from_micros(i64::MAX);
        let first = Timestamp::from_micros(i64::MIN);
        assert_eq!(last.saturating_add(Duration::MAX), last);
        assert_eq!(first.saturating_sub(Duration::MAX), first);
        assert_eq!(last.saturating_since(first).as_micros(), u128::from(u64::MAX));
        assert_eq!(first.saturating_since(last), Duration::ZERO);
        assert_eq!(Timestamp::from_unix_seconds(i64::MAX), None);
        assert_eq!(Timestamp::from_unix_millis(i64::MIN), None);
    }

    #[test]
    fn every_moment_can_be_printed() {
        assert_eq!(Timestamp::from_micros(1).to_string(), "1970-01-01T00:00:00.000001Z");
        assert_eq!(Timestamp::from_micros(i64::MAX).to_string(), "9223372036854775807us");
        assert_eq!(Timestamp::from_micros(-1_500_000).as_unix_seconds(), -2);
    }
}
