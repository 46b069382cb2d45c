//! What a store itself counts: what no dispatcher does, or hears of.

use super::{Enqueued, StoreError};
use crate::telemetry::{self, Value};

/// Counts those that are new.
pub(super) fn enqueued(enqueued: Result<Vec<Enqueued>, StoreError>) -> Result<Vec<Enqueued>, StoreError> {
    for new in enqueued.iter().flatten().filter(|enqueued| enqueued.created) {
        telemetry::count(telemetry::ENQUEUED, &[Value::Named(&new.endpoint)], 1);
    }
    enqueued
}

/// Counts and logs what a claim gave up whose caller is gone: no dispatcher tells it.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(super) fn untold(buried: &[super::Buried]) {
    for super::Buried { key, reason, .. } in buried {
        tracing::warn!(id = %key.id, endpoint = %key.endpoint, reason, "given up, and nobody is told: its dispatcher is gone");
        telemetry::count(telemetry::DEAD_LETTERS, &[Value::Named(&key.endpoint)], 1);
    }
}
