//! How a run ended, and what follows from it: a pure function of values.

use http::StatusCode;

use crate::envelope::ContractError;
use crate::store::Unclear;

/// How a handler ends an event on purpose, when its status does not say it.
///
/// Put it into the extensions of the response; in axum, return it, alone or with a status:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::http::StatusCode;
/// use axum::response::IntoResponse;
/// use countersign::receive::Outcome;
///
/// async fn handler() -> impl IntoResponse {
///     (StatusCode::NOT_FOUND, Outcome::permanent("there is no such account"))
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The event is done, whatever the status. A repeat gets this response.
    Done,
    /// The event can never be handled: it is a dead letter, for this reason, and a repeat gets this response.
    Permanent(String),
    /// The event was not handled this time. Its next delivery runs it again. A 2xx response is answered as 503, since
    /// the sender would not deliver it again after a 2xx.
    Transient(String),
    /// Nobody can tell whether the event was handled: what was called did not answer. With [`Profile::Strict`](super::Profile) it
    /// waits for an operator; else it is run again, as after [`Outcome::Transient`].
    Unclear(String),
}

impl Outcome {
    /// The event can never be handled, for this reason.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self::Permanent(reason.into())
    }

    /// The event was not handled this time, for this reason.
    pub fn transient(reason: impl Into<String>) -> Self {
        Self::Transient(reason.into())
    }

    /// Nobody can tell whether the event was handled, for this reason.
    pub fn unclear(reason: impl Into<String>) -> Self {
        Self::Unclear(reason.into())
    }
}

/// A dead letter with its reason, or, where somebody else may know more, tried again.
impl From<ContractError> for Outcome {
    fn from(error: ContractError) -> Self {
        let reason = error.to_string();
        if error.is_transient() { Self::Transient(reason) } else { Self::Permanent(reason) }
    }
}

/// What becomes of the receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has succeeded.
    Done,
    /// It has failed; the next delivery runs it.
    Failed { error: String },
    /// It has failed, and is not run again.
    Dead { error: String, reason: String },
    /// Nobody can tell what came of it: it is not run again until an operator says so.
    Held { error: String },
}

/// How often an event is run, and what becomes of one whose outcome is unclear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) max_attempts: u32,
    pub(super) unclear: Unclear,
}

/// Status and outcome → verdict. Without an outcome, 2xx is done and everything else is failed: a 404 too, since the
/// route, the account or the fix may be there at the next delivery.
///
/// An error of the server may have come after the effect, so that it is unclear, unless it says that it is not available.
pub(super) fn verdict(status: StatusCode, outcome: Option<Outcome>, attempt: u32, limits: Limits) -> Verdict {
    match outcome {
        None if status.is_success() => Verdict::Done,
        Some(Outcome::Done) => Verdict::Done,
        Some(Outcome::Permanent(reason)) => Verdict::Dead { error: reason.clone(), reason },
        Some(Outcome::Transient(reason)) => failed(reason, attempt, limits),
        Some(Outcome::Unclear(reason)) => unclear(reason, attempt, limits),
        None => {
            let error = format!("the handler answered {status}");
            match status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
                true => unclear(error, attempt, limits),
                false => failed(error, attempt, limits),
            }
        }
    }
}

/// A run of which nobody can tell whether it had its effect.
pub(super) fn unclear(error: String, attempt: u32, limits: Limits) -> Verdict {
    match limits.unclear {
        Unclear::RunAgain => failed(error, attempt, limits),
        Unclear::Hold => Verdict::Held { error },
    }
}

/// A run that failed: for good, when it was the last one allowed.
pub(super) fn failed(error: String, attempt: u32, Limits { max_attempts, .. }: Limits) -> Verdict {
    if attempt < max_attempts {
        Verdict::Failed { error }
    } else {
        Verdict::Dead { error, reason: format!("{max_attempts} attempts were used up") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limits(max_attempts: u32) -> Limits {
        Limits { max_attempts, unclear: Unclear::RunAgain }
    }

    #[test]
    fn c059_without_an_outcome_only_2xx_is_done() {
        for status in 100..=999 {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(verdict(status, None, 1, limits(20)) == Verdict::Done, status.is_success(), "{status}");
        }
    }

    #[test]
    fn the_last_attempt_that_fails_is_dead() {
        let end = |attempt| verdict(StatusCode::BAD_GATEWAY, None, attempt, limits(3));
        assert!(matches!(end(2), Verdict::Failed { .. }));
        assert!(matches!(end(3), Verdict::Dead { .. }));
        assert!(matches!(end(4), Verdict::Dead { .. }));
    }

    #[test]
    fn an_outcome_overrules_the_status() {
        let verdict = |status, outcome| verdict(status, Some(outcome), 1, limits(20));
        assert_eq!(verdict(StatusCode::NOT_FOUND, Outcome::Done), Verdict::Done);
        assert!(matches!(verdict(StatusCode::OK, Outcome::permanent("no")), Verdict::Dead { .. }));
        assert!(matches!(verdict(StatusCode::OK, Outcome::transient("no")), Verdict::Failed { .. }));
        assert!(matches!(verdict(StatusCode::OK, Outcome::unclear("no")), Verdict::Failed { .. }));
    }

    #[test]
    fn where_unclear_outcomes_are_held_a_clear_failure_is_still_run_again() {
        let strict = Limits { unclear: Unclear::Hold, ..limits(20) };
        let held = |status: u16, outcome| {
            let status = StatusCode::from_u16(status).expect("a status");
            matches!(verdict(status, outcome, 1, strict), Verdict::Held { .. })
        };
        for status in [500, 502, 504, 599] {
            assert!(held(status, None), "{status}");
            assert!(!held(status, Some(Outcome::transient("nothing was done"))), "{status}");
        }
        for status in [200, 302, 404, 409, 422, 429, 503] {
            assert!(!held(status, None), "{status}");
            assert!(held(status, Some(Outcome::unclear("the bank did not answer"))), "{status}");
        }
    }
}
