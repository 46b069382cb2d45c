//! When a receiver asks us to come back.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, header};

use crate::clock::Timestamp;

/// How long the header `Retry-After` of an answer asks us to wait, as RFC 9110 writes it: seconds, or a date in any of
/// its three forms.
///
/// A date is counted from the answer's own `Date`, so that a receiver whose clock is wrong gets the time that it means;
/// without one, from `now`. One that has passed is no wait at all.
///
/// `None` where there is no such header, or one that does not conform: a sign, a fraction, a unit, a list, two of them, a
/// weekday that does not fit. A number that is too large is a long time and no mistake. The result is as long as the
/// receiver says; [`RetryPolicy`](super::RetryPolicy) limits it.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = only(headers, &header::RETRY_AFTER)?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let due = moment(text)?;
    let from = only(headers, &header::DATE).and_then(moment).unwrap_or(now);
    Some(due.saturating_since(from))
}

/// The header's value, where there is one only.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn moment(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tue, 14 Nov 2023 22:13:20 GMT
    const NOW: i64 = 1_700_000_000;

    fn asked(values: &[(HeaderName, &[u8])]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name.clone(), http::HeaderValue::from_bytes(value).expect("a header value"));
        }
        retry_after(&headers, Timestamp::from_unix_seconds(NOW).expect("a moment"))
    }

    fn seconds(value: &str) -> Option<u64> {
        asked(&[(header::RETRY_AFTER, value.as_bytes())]).map(|wait| wait.as_secs())
    }

    #[test]
    fn c118_a_number_that_is_too_large_is_a_long_time() {
        assert_eq!(seconds("9999999999"), Some(9_999_999_999));
        assert_eq!(seconds("2147483648"), Some(2_147_483_648));
        assert_eq!(seconds("18446744073709551616"), Some(u64::MAX));
        assert_eq!(seconds(&"9".repeat(40)), Some(u64::MAX));
        assert_eq!(seconds("00030"), Some(30));
    }

    #[test]
    fn c119_what_does_not_conform_is_ignored() {
        for value in ["-5", "+5", "1.5", " 30", "30 ", "30, 60", "", "30s", "0x1e", "1e3", "soon", "３０"] {
            assert_eq!(asked(&[(header::RETRY_AFTER, value.as_bytes())]), None, "{value:?}");
        }
        assert_eq!(asked(&[(header::RETRY_AFTER, b"3\xff0")]), None);
        assert_eq!(asked(&[(header::RETRY_AFTER, b"30"), (header::RETRY_AFTER, b"30")]), None);
        assert_eq!(seconds("0"), Some(0));
    }

    #[test]
    fn c120_all_three_forms_of_a_date_are_read() {
        for value in ["Tue, 14 Nov 2023 22:14:20 GMT", "Tuesday, 14-Nov-23 22:14:20 GMT", "Tue Nov 14 22:14:20 2023"] {
            assert_eq!(seconds(value), Some(60), "{value}");
        }
        assert_eq!(seconds("Sun Nov  6 08:49:37 1994"), Some(0), "it has passed");
        assert_eq!(seconds("Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799 - NOW.unsigned_abs()));
        for value in [
            "Mon, 14 Nov 2023 22:14:20 GMT",
            "Tue, 14 Nov 2023 22:14:20 CET",
            "Tue, 14 Nov 2023 25:14:20 GMT",
            "Tue, 31 Feb 2023 22:14:20 GMT",
            "2023-11-14T22:14:20Z",
            "Fri, 31 Dec 99999 23:59:59 GMT",
        ] {
            assert_eq!(seconds(value), None, "{value}");
        }
    }

    #[test]
    fn c120_a_date_is_counted_by_the_receivers_own_clock() {
        let due: &[u8] = b"Tue, 14 Nov 2023 23:14:20 GMT";
        let asked_at = |date: &[u8]| asked(&[(header::RETRY_AFTER, due), (header::DATE, date)]);
        assert_eq!(asked_at(b"Tue, 14 Nov 2023 23:13:20 GMT"), Some(Duration::from_secs(60)), "its clock is ahead");
        assert_eq!(asked_at(b"nonsense"), Some(Duration::from_secs(3_660)));
        assert_eq!(asked_at(b"Tue, 14 Nov 2023 23:59:59 GMT"), Some(Duration::ZERO));
    }
}
