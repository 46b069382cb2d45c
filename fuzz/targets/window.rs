//! Timestamps and the window: the verdict is that of plain arithmetic on numbers that cannot overflow.

use std::time::Duration;

use countersign::signature::{Head, Message, Signer};
use countersign::{Keyring, ReplayWindow, Scheme, Timestamp, Verifier, VerifyError};
use http::{HeaderMap, HeaderValue, Method};

use super::input::{Input, other_secret};

const SIGNATURE: &str = "x-sig";
const TIME: &str = "x-time";

/// Reads a unit, a timestamp's text, the present, and the window's past and future in microseconds.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let unit = if input.line() == b"ms" { Unit { name: "x-time:ms", micros: 1_000 } } else { SECONDS };
    let text = input.line();
    let now = input.moment();
    let past = Duration::from_micros(input.number().unsigned_abs());
    let future = Duration::from_micros(input.number().unsigned_abs());

    let Some(headers) = signed(text) else { return };
    let scheme = Scheme::hmac([("header", SIGNATURE), ("signed", "{timestamp}.{body}"), ("timestamp", unit.name)]);
    let verifier = Verifier::new(scheme.expect("a scheme"), keyring()).expect("a verifier");
    for (past, future) in [(past, future), (Duration::MAX, future), (past, Duration::MAX), Default::default()] {
        let window = ReplayWindow::new(past, future);
        assert_eq!(window.span(), past.checked_add(future).unwrap_or(Duration::MAX));
        let verifier = verifier.clone().with_window(window);
        let verified = verifier.verify_at(Head::new(&Method::POST, "", &headers), BODY, now);
        unit.check(text, now, window, verified.map(|verified| verified.timestamp()));
    }
}

const BODY: &[u8] = b"{}";

fn keyring() -> Keyring {
    Keyring::new(other_secret(b"window"))
}

/// A right signature for any text. No signer writes most of these, so the text is signed as the beginning of a body.
fn signed(text: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(text).ok()?;
    let signer = Signer::new(Scheme::hmac([("header", SIGNATURE)]).expect("a scheme"), keyring()).expect("a signer");
    let whole = [text, b".", BODY].concat();
    let mut headers = signer.sign(&Message::new(Timestamp::default(), &whole)).expect("a message");
    headers.insert(TIME, value);
    Some(headers)
}

struct Unit {
    name: &'static str,
    micros: i128,
}

const SECONDS: Unit = Unit { name: "x-time", micros: 1_000_000 };

impl Unit {
    fn check(
        &self,
        text: &[u8],
        now: Timestamp,
        window: ReplayWindow,
        verdict: Result<Option<Timestamp>, VerifyError>,
    ) {
        let Some(sent) = number(text) else {
            return assert!(matches!(verdict, Err(VerifyError::Malformed { .. })), "{verdict:?}");
        };
        let age = i128::from(now.as_micros()).div_euclid(self.micros) - sent;
        match verdict {
            Err(VerifyError::TooOld { age: told }) => {
                assert!(age > self.count(window.past()));
                assert_eq!(self.count(told), age);
            }
            Err(VerifyError::TooNew { ahead: told }) => {
                assert!(-age > self.count(window.future()));
                assert_eq!(self.count(told), -age);
            }
            Ok(moment) => {
                assert!(age <= self.count(window.past()) && -age <= self.count(window.future()));
                let micros = i64::try_from(sent * self.micros).ok();
                assert_eq!(moment.map(Timestamp::as_micros), micros);
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A span in whole units.
    fn count(&self, span: Duration) -> i128 {
        i128::try_from(span.as_micros()).expect("less than 2^95") / self.micros
    }
}

/// What a timestamp may be: ASCII digits, no larger than an `i64`.
fn number(text: &[u8]) -> Option<i128> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let significant = digits.trim_start_matches('0');
    match (digits, significant) {
        ("", _) => None,
        (_, "") => Some(0),
        _ => significant.parse::<i64>().ok().map(i128::from),
    }
}
