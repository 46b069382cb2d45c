//! What the receiver counts: requests by what became of them, and runs by what is on record of them.

use std::time::Duration;

use super::RejectionKind;
use super::run::{Ran, Unrecorded};
use crate::Name;
use crate::store::ReceiptKey;
use crate::telemetry::{self, Value};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Stored, to be run later.
    Accepted,
    BadBody,
    BadKey,
    /// The handler gave it up, or its attempts are used up.
    DeadLetter,
    Failed,
    /// A repeat of an event that was given up without an answer.
    GivenUp,
    Handshake,
    /// Accepted before, and has no end yet.
    Known,
    /// The handler came to an end, and somebody else has taken the event over.
    LeaseLost,
    OtherBody,
    Overloaded,
    /// Another delivery of the event is being handled.
    Processing,
    Quarantined,
    /// The signature, or the handshake.
    Refused,
    Replayed,
    StoreUnavailable,
    Succeeded,
}

impl Received {
    const ALL: [Self; 17] = [
        Self::Accepted,
        Self::BadBody,
        Self::BadKey,
        Self::DeadLetter,
        Self::Failed,
        Self::GivenUp,
        Self::Handshake,
        Self::Known,
        Self::LeaseLost,
        Self::OtherBody,
        Self::Overloaded,
        Self::Processing,
        Self::Quarantined,
        Self::Refused,
        Self::Replayed,
        Self::StoreUnavailable,
        Self::Succeeded,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::BadBody => "bad_body",
            Self::BadKey => "bad_key",
            Self::DeadLetter => "dead_letter",
            Self::Failed => "failed",
            Self::GivenUp => "given_up",
            Self::Handshake => "handshake",
            Self::Known => "known",
            Self::LeaseLost => "lease_lost",
            Self::OtherBody => "other_body",
            Self::Overloaded => "overloaded",
            Self::Processing => "processing",
            Self::Quarantined => "quarantined",
            Self::Refused => "refused",
            Self::Replayed => "replayed",
            Self::StoreUnavailable => "store_unavailable",
            Self::Succeeded => "succeeded",
        }
    }

    /// Of a request that did not get as far as the inbox.
    const fn of(rejection: &RejectionKind) -> Self {
        match rejection {
            RejectionKind::BodyIncomplete(_)
            | RejectionKind::BodyTaken(_)
            | RejectionKind::BodyTooLarge
            | RejectionKind::BodyTooSlow => Self::BadBody,
            RejectionKind::GaveUp | RejectionKind::OutcomeUnclear => Self::GivenUp,
            RejectionKind::HandlerFailed(_) => Self::Failed,
            RejectionKind::Handshake(_) | RejectionKind::Unverified(_) => Self::Refused,
            RejectionKind::InvalidKey(_) => Self::BadKey,
            RejectionKind::OtherBody => Self::OtherBody,
            RejectionKind::Overloaded => Self::Overloaded,
            RejectionKind::Processing => Self::Processing,
            RejectionKind::StoreUnavailable(_) | RejectionKind::Unsettled(_) => Self::StoreUnavailable,
        }
    }

    const fn is_duplicate(self) -> bool {
        matches!(self, Self::GivenUp | Self::Known | Self::OtherBody | Self::Processing | Self::Replayed)
    }
}

/// Begins the counts of a source, so that each is there before there is something to count: else the first of a kind is no
/// change that an alert could see. All of them, since nobody knows here whether a `DedupLayer` stands behind.
pub(super) fn begin(source: &Name) {
    for outcome in Received::ALL {
        telemetry::count(telemetry::RECEIVED, &[Value::Named(source), Value::Word(outcome.as_str())], 0);
    }
    telemetry::count(telemetry::DUPLICATES, &[Value::Named(source)], 0);
}

pub(super) fn received(source: &Name, outcome: Received) {
    telemetry::count(telemetry::RECEIVED, &[Value::Named(source), Value::Word(outcome.as_str())], 1);
    if outcome.is_duplicate() {
        telemetry::count(telemetry::DUPLICATES, &[Value::Named(source)], 1);
    }
}

/// A request went no further than its check.
pub(super) fn turned_away(source: &Name, rejection: &RejectionKind) {
    received(source, Received::of(rejection));
    if let RejectionKind::Unverified(error) = rejection {
        telemetry::count(telemetry::SIGNATURES_REFUSED, &[Value::Named(source), Value::Word(error.reason())], 1);
    }
}

/// How a run ended, as its handler and its count of attempts have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    DeadLetter,
    Failed,
    Succeeded,
}

/// What is on record of a run, and with it of the delivery that it was for.
pub(super) fn ran(key: &ReceiptKey, ran: &Ran) -> Received {
    let (outcome, received) = match (&ran.recorded, ran.end) {
        (Ok(()), End::DeadLetter) => ("dead_letter", Received::DeadLetter),
        (Ok(()), End::Failed) => ("failed", Received::Failed),
        (Ok(()), End::Succeeded) => ("succeeded", Received::Succeeded),
        (Err(Unrecorded::LeaseLost), end) => {
            telemetry::count(telemetry::LEASES_LOST, &[Value::Word("inbox")], 1);
            ("lease_lost", if end == End::Failed { Received::Failed } else { Received::LeaseLost })
        }
        (Err(Unrecorded::Store(_)), end) => {
            ("unsettled", if end == End::Failed { Received::Failed } else { Received::StoreUnavailable })
        }
    };
    count_run(key, outcome);
    received
}

/// An event was made a dead letter, since no run of it could begin.
pub(super) fn set_aside(key: &ReceiptKey) {
    count_run(key, "dead_letter");
}

fn count_run(key: &ReceiptKey, outcome: &'static str) {
    let values = [Value::Named(&key.consumer), Value::Named(&key.source), Value::Word(outcome)];
    telemetry::count(telemetry::RUNS, &values, 1);
}

pub(super) fn handler_took(key: &ReceiptKey, span: Duration) {
    telemetry::observe(telemetry::HANDLER_TIME, &[Value::Named(&key.consumer), Value::Named(&key.source)], span);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = Received::ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(names.len(), Received::ALL.len());
        assert!(Received::Known.is_duplicate() && !Received::Accepted.is_duplicate());
        assert!(!Received::LeaseLost.is_duplicate(), "it was run for this delivery");
    }
}
