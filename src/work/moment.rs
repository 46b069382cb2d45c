//! Moments to come, however far off.

use std::time::Duration;

use tokio::time::Instant;

/// The moment a span after another one. A span that no clock can count to ends in thirty years: who waits for it waits for
/// as long as the process runs.
pub(crate) fn after(now: Instant, span: Duration) -> Instant {
    now.checked_add(span.min(FAR)).unwrap_or(now)
}

const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
