//! Forgetting, now and then, what has reached its age.

use std::time::Duration;

use tracing::{debug, warn};

use super::{InboxStore, Purged, Retention};
use crate::{Clock as _, SystemClock};

/// Purges a store about every 90 seconds for as long as this is polled. It never returns: spawn it beside the server,
/// with the same retention that the [`DedupLayer`](crate::receive::DedupLayer) was given, and abort it at the end.
///
/// Any number of processes may do so for one store. What fails is logged, and tried again at the next turn.
///
/// # Cancel safety
///
/// May be dropped at any point.
pub async fn purge_forever(store: impl InboxStore, retention: Retention) {
    loop {
        tokio::time::sleep(PAUSE + jitter()).await;
        loop {
            match store.purge(retention, PASS).await {
                Ok(Purged { results: 0, keys: 0 }) => break,
                Ok(Purged { results, keys }) => debug!(results, keys, "what had reached its age was removed"),
                Err(error) => {
                    warn!(%error, "what has reached its age was not removed; trying again later");
                    break;
                }
            }
        }
    }
}

/// Keeps processes that started together from purging together.
fn jitter() -> Duration {
    Duration::from_micros(u64::try_from(SystemClock.now().as_micros()).unwrap_or(0) % 60_000_000)
}

const PAUSE: Duration = Duration::from_secs(60);

/// How much one pass removes: little enough that deliveries do not wait for it.
const PASS: u32 = 1_000;
