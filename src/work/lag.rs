//! How far those who work are behind, for metrics.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use super::in_time;
use crate::Name;
use crate::store::StoreFuture;
use crate::telemetry::{self, Instrument, Value};

/// Reads what has been due longest, again and again, and sets this gauge. It never ends.
///
/// At an interval, and not when somebody asks: who asks a hundred times a second must not ask the store as often.
pub(crate) async fn watch<'a>(
    gauge: Instrument,
    ask: impl Fn() -> StoreFuture<'a, Vec<(Name, Duration)>>,
) -> Infallible {
    if !cfg!(feature = "telemetry") {
        return std::future::pending().await;
    }
    let mut shown: HashSet<Name> = HashSet::new();
    loop {
        match in_time(ask()).await {
            Ok(behind) => {
                let names: HashSet<Name> = behind.iter().map(|(name, _)| name.clone()).collect();
                for name in shown.difference(&names) {
                    telemetry::set(gauge, &[Value::Named(name)], 0.0);
                }
                // Shortest first: of those whose names are counted together the longest stays.
                let mut behind = behind;
                behind.sort_unstable_by_key(|(_, span)| *span);
                for (name, span) in &behind {
                    telemetry::set(gauge, &[Value::Named(name)], span.as_secs_f64());
                }
                shown = names;
            }
            Err(error) => debug!(%error, "how far this is behind could not be seen"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// Metrics are collected every ten to sixty seconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);
