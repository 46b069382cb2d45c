//! The time within which a signed request counts, and the way a timestamp is written.

use std::time::Duration;

use super::{VerifyError, date};
use crate::clock::Timestamp;

/// How far a request's timestamp may lie from the present: 300 seconds on either side, unless said otherwise.
///
/// The edges are inside. The limits are compared in the scheme's own unit, whole seconds for most.
///
/// A captured request can be replayed for as long as it lies in the window. One that was dated ahead lives for
/// [`span`](Self::span), so keys of seen events must be kept longer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    past: Duration,
    future: Duration,
}

impl ReplayWindow {
    /// A window that reaches back by `past` and ahead by `future`.
    #[must_use]
    pub const fn new(past: Duration, future: Duration) -> Self {
        Self { past, future }
    }

    /// A window that reaches equally far to both sides.
    #[must_use]
    pub const fn symmetric(limit: Duration) -> Self {
        Self::new(limit, limit)
    }

    /// How old a request may be.
    #[must_use]
    pub const fn past(&self) -> Duration {
        self.past
    }

    /// How far ahead a request may be dated.
    #[must_use]
    pub const fn future(&self) -> Duration {
        self.future
    }

    /// The longest time for which one request can be accepted.
    #[must_use]
    pub const fn span(&self) -> Duration {
        self.past.saturating_add(self.future)
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::symmetric(Duration::from_secs(300))
    }
}

/// The unit in which a scheme writes its timestamps. It is fixed: a number in another unit is outside the window, never
/// divided until it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    /// RFC 3339, with any offset; compared in whole seconds.
    Rfc3339,
    /// The date of HTTP, as in `Sun, 06 Nov 1994 08:49:37 GMT`.
    HttpDate,
}

impl Unit {
    /// Reads a timestamp. A number is ASCII digits and nothing else, no larger than an `i64`; a date is one of the
    /// calendar.
    pub(super) fn parse(self, text: &[u8]) -> Option<i64> {
        match self {
            Self::Seconds | Self::Millis => digits(text),
            Self::Rfc3339 => date::rfc3339(text),
            Self::HttpDate => date::http(text),
        }
    }

    /// What is wrong with a timestamp that cannot be read.
    pub(super) const fn fault(self) -> &'static str {
        match self {
            Self::Seconds | Self::Millis => "the timestamp is not a whole number in ASCII digits",
            Self::Rfc3339 => "the timestamp is no date of RFC 3339",
            Self::HttpDate => "the timestamp is no date of HTTP",
        }
    }

    /// Its name, for people.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "Unix seconds",
            Self::Millis => "Unix milliseconds",
            Self::Rfc3339 => "RFC 3339",
            Self::HttpDate => "HTTP date",
        }
    }

    /// The text that stands for a number.
    pub(super) fn write(self, number: i64) -> String {
        match self {
            Self::Seconds | Self::Millis => number.to_string(),
            Self::Rfc3339 => date::write_rfc3339(number),
            Self::HttpDate => date::write_http(number),
        }
    }

    /// The number that stands for a moment.
    pub(super) const fn of(self, moment: Timestamp) -> i64 {
        match self {
            Self::Seconds | Self::Rfc3339 | Self::HttpDate => moment.as_unix_seconds(),
            Self::Millis => moment.as_micros().div_euclid(1_000),
        }
    }

    /// The moment that a number stands for; `None` where it is too far away to be one.
    pub(super) const fn moment(self, number: i64) -> Option<Timestamp> {
        match self {
            Self::Seconds | Self::Rfc3339 | Self::HttpDate => Timestamp::from_unix_seconds(number),
            Self::Millis => Timestamp::from_unix_millis(number),
        }
    }

    /// Whether `sent` lies in the window around `now`.
    pub(super) fn judge(self, sent: i64, now: Timestamp, window: ReplayWindow) -> Result<(), VerifyError> {
        // 128 bits: the difference of any two 64-bit numbers fits.
        let age = i128::from(self.of(now)) - i128::from(sent);
        if age > self.count(window.past) {
            Err(VerifyError::TooOld { age: self.span(age) })
        } else if -age > self.count(window.future) {
            Err(VerifyError::TooNew { ahead: self.span(-age) })
        } else {
            Ok(())
        }
    }

    fn count(self, span: Duration) -> i128 {
        match self {
            Self::Seconds | Self::Rfc3339 | Self::HttpDate => i128::from(span.as_secs()),
            Self::Millis => i128::try_from(span.as_millis()).unwrap_or(i128::MAX),
        }
    }

    fn span(self, count: i128) -> Duration {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        match self {
            Self::Seconds | Self::Rfc3339 | Self::HttpDate => Duration::from_secs(count),
            Self::Millis => Duration::from_millis(count),
        }
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_i64, |number, digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn now() -> Timestamp {
        Timestamp::from_micros(NOW * 1_000_000 + 999_999)
    }

    #[test]
    fn c031_a_timestamp_is_ascii_digits_that_fit() {
        for text in [
            "",
            "-1",
            "+1700000000",
            "1700000000.0",
            "1.7e9",
            " 1700000000",
            "1700000000 ",
            "0x6553F100",
            "99999999999999999999",
            "9223372036854775808",
            "NaN",
            "١٧٠٠٠٠٠٠٠٠",
            "1_700",
        ] {
            assert_eq!(Unit::Seconds.parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Unit::Seconds.parse(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(Unit::Seconds.parse(b"0"), Some(0));
    }

    #[test]
    fn c031_no_timestamp_and_no_clock_overflow_the_difference() {
        let window = ReplayWindow::symmetric(Duration::MAX);
        for now in [i64::MIN, 0, i64::MAX] {
            for sent in [0, i64::MAX] {
                for unit in [Unit::Seconds, Unit::Millis] {
                    assert_eq!(unit.judge(sent, Timestamp::from_micros(now), window), Ok(()));
                    assert!(
                        unit.judge(sent, Timestamp::from_micros(now), ReplayWindow::default()).is_err() || sent == now
                    );
                }
            }
        }
    }

    #[test]
    fn c046_the_edges_are_inside_and_the_future_has_its_own_limit() {
        let window = ReplayWindow::new(Duration::from_secs(300), Duration::from_secs(60));
        for (sent, expected) in [
            (NOW - 299, Ok(())),
            (NOW - 300, Ok(())),
            (NOW - 301, Err(VerifyError::TooOld { age: Duration::from_secs(301) })),
            (NOW + 60, Ok(())),
            (NOW + 61, Err(VerifyError::TooNew { ahead: Duration::from_secs(61) })),
            (NOW + 315_576_000, Err(VerifyError::TooNew { ahead: Duration::from_secs(315_576_000) })),
        ] {
            assert_eq!(Unit::Seconds.judge(sent, now(), window), expected, "{sent}");
        }
    }

    #[test]
    fn c047_a_number_in_the_wrong_unit_is_outside_the_window() {
        let window = ReplayWindow::default();
        assert!(matches!(Unit::Seconds.judge(NOW * 1_000, now(), window), Err(VerifyError::TooNew { .. })));
        assert!(matches!(Unit::Millis.judge(NOW, now(), window), Err(VerifyError::TooOld { .. })));
        assert_eq!(Unit::Millis.judge(NOW * 1_000 + 999 - 300_000, now(), window), Ok(()));
        assert!(Unit::Millis.judge(NOW * 1_000 + 998 - 300_000, now(), window).is_err());
        assert_eq!(Unit::Millis.judge(NOW * 1_000 + 999 + 300_000, now(), window), Ok(()));
        assert!(Unit::Millis.judge(NOW * 1_000 + 1_000 + 300_000, now(), window).is_err());
    }

    #[test]
    fn the_span_is_both_sides_together() {
        assert_eq!(ReplayWindow::default().span(), Duration::from_secs(600));
        assert_eq!(ReplayWindow::symmetric(Duration::MAX).span(), Duration::MAX);
    }
}
