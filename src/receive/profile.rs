//! Settings by name, for those who know what a second run would cost and not which settings follow from it.

use super::KeyFrom;
use crate::store::Unclear;

/// What a second run of an event would cost, and so what is done where nobody can tell whether the first one had its effect.
///
/// All receivers and processors of one consumer have the same profile: what one of them holds, another one must not run.
///
/// ```
/// use countersign::receive::{DedupLayer, Profile};
/// use countersign::store::MemoryStore;
///
/// // Payouts, by way of a bank that knows no idempotency keys.
/// let dedup = DedupLayer::builder(MemoryStore::new()).profile(Profile::Strict).build()?;
/// # Ok::<(), countersign::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// What failed runs again, and so does what ended without a word: after a crash, a time-out, a lost lease. For effects that
    /// are written with [`complete_in`](super::Reservation), or that know a repeat by their idempotency key. The default.
    #[default]
    Standard,
    /// What ended without a word is not run again by itself: a lease that ran out, a handler that took too long, panicked, or
    /// answered 5xx other than 503, and [`Outcome::Unclear`](super::Outcome::Unclear). It is a dead letter, and its sender gets
    /// 503, until an operator has looked, and [concludes](crate::store::InboxStore::conclude) or
    /// [retries](crate::store::InboxStore::retry) it. What failed clearly (a 3xx, 4xx or 503,
    /// [`Outcome::Transient`](super::Outcome::Transient)) runs again.
    ///
    /// For effects that cannot be undone, outside the database, where nobody can tell a repeat: every crash then costs a person's
    /// time, and no crash costs money. What stands behind a held event in its order goes on.
    Strict,
    /// Two deliveries with equal bodies are one event, whatever ids they carry: [`KeyFrom::Body`]. For senders that make up a new
    /// id, or sign anew, for each attempt. Not for those whose events can be equal and distinct, like a heartbeat.
    Relaxed,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Strict, Self::Relaxed];

    pub(super) const fn unclear(self) -> Unclear {
        match self {
            Self::Standard | Self::Relaxed => Unclear::RunAgain,
            Self::Strict => Unclear::Hold,
        }
    }

    pub(super) const fn key(self) -> KeyFrom {
        match self {
            Self::Standard | Self::Strict => KeyFrom::Scheme,
            Self::Relaxed => KeyFrom::Body,
        }
    }
}
