//! What an outcome means for its message: a pure function.

use std::time::Duration;

use http::StatusCode;

use super::retry_after::retry_after;
use super::{Answer, Failure, Override, Overrides};
use crate::clock::Timestamp;

/// What an outcome means.
///
/// | outcome | verdict |
/// |---|---|
/// | 2xx, however its body ended | delivered |
/// | 408, 425, 429, 5xx | retry |
/// | 409 with a usable `Retry-After` | retry, and it does not count: another delivery of it is running there |
/// | 410 | gone |
/// | 3xx, other 4xx, 1xx | permanent |
/// | no connection, no look-up, no answer in time, connection lost, no usable HTTP | retry |
/// | refused by the policy, a URL or request that cannot be sent | permanent |
///
/// A policy's refusal is permanent even where a name may lead elsewhere later: whoever mends the name or the policy
/// replays what was refused, instead of finding out days later that nothing was ever sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The receiver has it.
    Delivered,
    /// The endpoint is gone and wants nothing more.
    Gone,
    /// The receiver will not take it.
    Permanent,
    /// It may be delivered later.
    Retry(Retry),
}

/// How a message is to be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// How long the receiver asks us to wait, unlimited. Given by 409, 429 and 503.
    pub after: Option<Duration>,
    /// Whether that holds for all messages to the endpoint (429, 503), and not for this one only.
    pub holds_endpoint: bool,
    /// Whether nothing was tried, in effect: the attempt does not count towards the most that are made.
    pub is_free: bool,
}

/// The verdict on an outcome.
#[must_use]
pub fn classify(outcome: &Result<Answer, Failure>, overrides: &Overrides, now: Timestamp) -> Verdict {
    match outcome {
        Ok(answer) => match overrides.find(answer.status) {
            Some(Override::Delivered) => Verdict::Delivered,
            Some(Override::Gone) => Verdict::Gone,
            Some(Override::Permanent) => Verdict::Permanent,
            Some(Override::Retry) => Verdict::Retry(retry(answer, now)),
            None => by_status(answer, now),
        },
        Err(failure) => by_failure(failure),
    }
}

fn by_status(answer: &Answer, now: Timestamp) -> Verdict {
    match answer.status.as_u16() {
        200..=299 => Verdict::Delivered,
        408 | 425 | 429 | 500..=599 => Verdict::Retry(retry(answer, now)),
        409 => match retry(answer, now) {
            retry @ Retry { after: Some(_), .. } => Verdict::Retry(Retry { is_free: true, ..retry }),
            // A conflict that time does not resolve.
            Retry { after: None, .. } => Verdict::Permanent,
        },
        410 => Verdict::Gone,
        _ => Verdict::Permanent,
    }
}

fn retry(answer: &Answer, now: Timestamp) -> Retry {
    let (is_said, holds_endpoint) = match answer.status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => (true, true),
        StatusCode::CONFLICT => (true, false),
        _ => (false, false),
    };
    let after = if is_said { retry_after(&answer.headers, now) } else { None };
    Retry { after, holds_endpoint: holds_endpoint && after.is_some(), is_free: false }
}

fn by_failure(failure: &Failure) -> Verdict {
    match failure {
        Failure::Closed(_)
        | Failure::Connect { .. }
        | Failure::Dns { .. }
        | Failure::Other { is_transient: true, .. }
        | Failure::Protocol(_)
        | Failure::Timeout(_)
        | Failure::Tls { .. } => Verdict::Retry(Retry::default()),
        Failure::Other { is_transient: false, .. } | Failure::Refused(_) | Failure::Request(_) | Failure::Target(_) => {
            Verdict::Permanent
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header};

    use super::*;
    use crate::send::{Ending, Policy, Stage};

    fn now() -> Timestamp {
        Timestamp::from_unix_seconds(1_700_000_000).expect("a moment")
    }

    fn answer(status: u16, retry_after: Option<&str>) -> Result<Answer, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(header::RETRY_AFTER, value.parse().expect("a header value"));
        }
        Ok(Answer::new(StatusCode::from_u16(status).expect("a status")).with_headers(headers))
    }

    fn verdict(status: u16, retry_after: Option<&str>) -> Verdict {
        classify(&answer(status, retry_after), &Overrides::none(), now())
    }

    #[test]
    fn c122_every_status_means_what_the_table_says() {
        for status in 100..=999 {
            let expected = match status {
                200..=299 => Verdict::Delivered,
                408 | 425 | 429 | 500..=599 => Verdict::Retry(Retry::default()),
                410 => Verdict::Gone,
                _ => Verdict::Permanent,
            };
            assert_eq!(verdict(status, None), expected, "{status}");
        }
    }

    #[test]
    fn retry_after_is_read_on_409_429_and_503_only() {
        let after = Some(Duration::from_secs(7));
        for status in [429, 503] {
            let expected = Retry { after, holds_endpoint: true, is_free: false };
            assert_eq!(verdict(status, Some("7")), Verdict::Retry(expected), "{status}");
        }
        let expected = Retry { after, holds_endpoint: false, is_free: true };
        assert_eq!(verdict(409, Some("7")), Verdict::Retry(expected));
        for status in [408, 425, 500, 502, 504] {
            assert_eq!(verdict(status, Some("7")), Verdict::Retry(Retry::default()), "{status}");
        }
        assert_eq!(verdict(409, Some("-7")), Verdict::Permanent, "not conforming: as if it were not there");
        assert_eq!(verdict(503, Some("1.5")), Verdict::Retry(Retry::default()));
        assert_eq!(verdict(301, Some("7")), Verdict::Permanent);
    }

    #[test]
    fn an_answer_whose_body_failed_is_still_what_its_status_says() {
        for ending in [Ending::Complete, Ending::Cut, Ending::Failed, Ending::TimedOut] {
            for (status, expected) in [(204, Verdict::Delivered), (410, Verdict::Gone), (400, Verdict::Permanent)] {
                let outcome = answer(status, None).map(|answer| answer.with_body("x", ending));
                assert_eq!(classify(&outcome, &Overrides::none(), now()), expected, "{ending:?}");
            }
        }
    }

    #[test]
    fn c139_a_failed_look_up_is_retried_and_a_refusal_is_not() {
        let judged = |failure| classify(&Err(failure), &Overrides::none(), now());
        let text = String::new;
        for failure in [
            Failure::Dns { host: text(), reason: text() },
            Failure::Timeout(Stage::Resolve),
            Failure::Timeout(Stage::Connect),
            Failure::Timeout(Stage::Tls),
            Failure::Timeout(Stage::Head),
            Failure::Connect { address: text(), reason: text() },
            Failure::Tls { host: text(), reason: text() },
            Failure::Closed(text()),
            Failure::Protocol(text()),
            Failure::Other { is_transient: true, reason: text() },
        ] {
            assert_eq!(judged(failure.clone()), Verdict::Retry(Retry::default()), "{failure:?}");
        }
        let refusal = Policy::new().check(&"https://127.0.0.1/".parse().expect("a target")).expect_err("loopback");
        for failure in [
            Failure::Refused(refusal),
            Failure::Target("nonsense".parse::<crate::send::Target>().expect_err("no URL")),
            Failure::Request(text()),
            Failure::Other { is_transient: false, reason: text() },
        ] {
            assert_eq!(judged(failure.clone()), Verdict::Permanent, "{failure:?}");
        }
    }

    #[test]
    fn overrides_go_before_the_table_and_a_status_before_its_class() {
        let overrides: Overrides =
            "4xx=retry,404=delivered, 5xx=permanent,503=gone,409=permanent,404=gone".parse().expect("overrides");
        let judged = |status| classify(&answer(status, Some("7")), &overrides, now());
        assert_eq!(judged(400), Verdict::Retry(Retry::default()));
        assert_eq!(judged(404), Verdict::Delivered, "the first one holds");
        assert_eq!(judged(500), Verdict::Permanent);
        assert_eq!(judged(503), Verdict::Gone);
        assert_eq!(judged(409), Verdict::Permanent);
        assert_eq!(judged(410), Verdict::Retry(Retry::default()));
        assert_eq!(judged(200), Verdict::Delivered);
        assert_eq!(
            judged(429),
            Verdict::Retry(Retry { after: Some(Duration::from_secs(7)), holds_endpoint: true, is_free: false })
        );
    }
}
