//! How a run ended, and what follows from it: a pure function of values.

use http::StatusCode;

use crate::envelope::ContractError;

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
}

/// Status and outcome → verdict. Without an outcome, 2xx is done and everything else is failed: a 404 too, since the
/// route, the account or the fix may be there at the next delivery.
pub(super) fn verdict(status: StatusCode, outcome: Option<Outcome>, attempt: u32, max_attempts: u32) -> Verdict {
    let error = match outcome {
        None if status.is_success() => return Verdict::Done,
        Some(Outcome::Done) => return Verdict::Done,
        Some(Outcome::Permanent(reason)) => return Verdict::Dead { error: reason.clone(), reason },
        Some(Outcome::Transient(reason)) => reason,
        None => format!("the handler answered {status}"),
    };
    failed(error, attempt, max_attempts)
}

/// A run that failed: for good, when it was the last one allowed.
pub(super) fn failed(error: String, attempt: u32, max_attempts: u32) -> Verdict {
    if attempt < max_attempts {
        Verdict::Failed { error }
    } else {
        Verdict::Dead { error, reason: format!("{max_attempts} attempts were used up") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c059_without_an_outcome_only_2xx_is_done() {
        for status in 100..=999 {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(verdict(status, None, 1, 20) == Verdict::Done, status.is_success(), "{status}");
        }
    }

    #[test]
    fn the_last_attempt_that_fails_is_dead() {
        let end = |attempt| verdict(StatusCode::BAD_GATEWAY, None, attempt, 3);
        assert!(matches!(end(2), Verdict::Failed { .. }));
        assert!(matches!(end(3), Verdict::Dead { .. }));
        assert!(matches!(end(4), Verdict::Dead { .. }));
    }

    #[test]
    fn an_outcome_overrules_the_status() {
        assert_eq!(verdict(StatusCode::NOT_FOUND, Some(Outcome::Done), 1, 20), Verdict::Done);
        assert!(matches!(verdict(StatusCode::OK, Some(Outcome::permanent("no")), 1, 20), Verdict::Dead { .. }));
        assert!(matches!(verdict(StatusCode::OK, Some(Outcome::transient("no")), 1, 20), Verdict::Failed { .. }));
    }
}
