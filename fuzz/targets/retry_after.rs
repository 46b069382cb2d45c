//! Retry-After: what it may say is read as it says, and everything else is as if it were not there.

use std::time::Duration;

use countersign::Timestamp;
use countersign::send::{Answer, Next, Overrides, Retry, RetryPolicy, Verdict, classify, retry_after};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::input::Input;

/// Reads the header's value, that of `Date`, and the present in microseconds.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (text, date, now) = (input.line(), input.line(), input.moment());
    let mut headers = HeaderMap::new();
    if !add(&mut headers, header::RETRY_AFTER, text) {
        return;
    }
    let _is_sent = !date.is_empty() && add(&mut headers, header::DATE, date);

    let asked = retry_after(&headers, now);
    assert_eq!(retry_after(&HeaderMap::new(), now), None);
    match (text.iter().all(u8::is_ascii_digit) && !text.is_empty(), asked) {
        (true, asked) => assert_eq!(asked, Some(seconds(text))),
        // A date names the moment in at least 24 bytes, and no moment is further than the year 9999.
        (false, Some(span)) => assert!(text.len() >= 24 && span <= Duration::from_micros(u64::MAX)),
        (false, None) => {}
    }
    add(&mut headers, header::RETRY_AFTER, b"1");
    assert_eq!(retry_after(&headers, now), None, "two of them are none");
    headers.remove(header::RETRY_AFTER);
    add(&mut headers, header::RETRY_AFTER, text);
    is_heeded_within_limits(&headers, asked, now);
}

fn is_heeded_within_limits(headers: &HeaderMap, asked: Option<Duration>, now: Timestamp) {
    for (status, is_heard) in [(429, true), (503, true), (409, true), (500, false)] {
        let answer = Answer::new(StatusCode::from_u16(status).expect("a status")).with_headers(headers.clone());
        let verdict = classify(&Ok(answer), &Overrides::none(), now);
        let Verdict::Retry(Retry { after, is_free, .. }) = verdict else {
            assert_eq!((status, asked), (409, None), "{verdict:?}");
            continue;
        };
        assert_eq!(after, asked.filter(|_| is_heard));
        assert_eq!(is_free, status == 409);
        let limit = Duration::from_secs(60);
        let policy = RetryPolicy::new().with_max_retry_after(limit);
        let Next::Retry(due) = policy.next(verdict, 1, Duration::ZERO, 0) else { panic!("it is tried again") };
        assert_eq!(due.after, after.unwrap_or_default().clamp(Duration::from_secs(5), limit));
        assert!(due.endpoint_held_for.is_none_or(|held| held <= due.after));
    }
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) -> bool {
    HeaderValue::from_bytes(value).map(|value| headers.append(name, value)).is_ok()
}

/// Counted by hand, up to the largest number there is.
fn seconds(digits: &[u8]) -> Duration {
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Duration::from_secs(digits.iter().fold(0, add))
}
