//! What the sender counts.

use std::time::Duration;

use crate::Name;
use crate::store::{Buried, Fate, Settlement};
use crate::telemetry::{self, Level, Value};

/// An attempt runs until this is dropped.
pub(super) fn sending(endpoint: &Name) -> Level {
    telemetry::level(telemetry::SENDING, endpoint)
}

/// What became of an attempt is on record. `age` is that of its message, by the store's clock.
pub(super) fn settled(endpoint: &Name, settlement: &Settlement, age: Duration) {
    let of_endpoint = [Value::Named(endpoint)];
    match &settlement.fate {
        Fate::Delivered => telemetry::observe(telemetry::DELIVERY_TIME, &of_endpoint, age),
        Fate::Again { .. } if settlement.endpoint.disable.is_some() => {}
        Fate::Again { after, .. } => telemetry::observe(telemetry::RETRY_WAIT, &of_endpoint, *after),
        Fate::Dead(_) | Fate::Failed(_) => telemetry::count(telemetry::DEAD_LETTERS, &of_endpoint, 1),
    }
    attempted(endpoint, outcome(settlement), settlement.report.took);
}

/// What becomes of the message, in one word.
pub(super) const fn outcome(settlement: &Settlement) -> &'static str {
    match &settlement.fate {
        Fate::Delivered => "delivered",
        // It waits for somebody to enable the endpoint.
        Fate::Again { .. } if settlement.endpoint.disable.is_some() => "held",
        Fate::Again { .. } => "retried",
        Fate::Dead(_) | Fate::Failed(_) => "dead",
    }
}

/// An attempt left no trace in the store.
pub(super) fn unsettled(endpoint: &Name, settlement: &Settlement) {
    attempted(endpoint, "unsettled", settlement.report.took);
}

/// Somebody else has taken the message over.
pub(super) fn lease_lost() {
    telemetry::count(telemetry::LEASES_LOST, &[Value::Word("outbox")], 1);
}

/// The destination policy refused an attempt.
pub(super) fn refused(endpoint: &Name) {
    telemetry::count(telemetry::REFUSED, &[Value::Named(endpoint)], 1);
}

pub(super) fn disabled(endpoint: &Name) {
    telemetry::count(telemetry::ENDPOINTS_DISABLED, &[Value::Named(endpoint)], 1);
}

/// A claim gave these up.
pub(super) fn buried(buried: &[Buried]) {
    for Buried { key, .. } in buried {
        telemetry::count(telemetry::DEAD_LETTERS, &[Value::Named(&key.endpoint)], 1);
    }
}

fn attempted(endpoint: &Name, outcome: &'static str, took: Duration) {
    telemetry::count(telemetry::ATTEMPTS, &[Value::Named(endpoint), Value::Word(outcome)], 1);
    telemetry::observe(telemetry::ATTEMPT_TIME, &[Value::Named(endpoint)], took);
}
