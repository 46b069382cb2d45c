//! How far those who work are behind, and whether their store answers: for metrics, and for operators.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use super::in_time;
use crate::clock::{Clock, SystemClock};
use crate::notice::{Notice, Notices, Walk, seconds_since};
use crate::store::StoreFuture;
use crate::telemetry::{self, Instrument, Value};
use crate::{Name, Timestamp};

/// What can be watched.
pub(crate) trait Watched: Sync {
    /// Which walk it is.
    const WALK: Walk;
    /// What shows how far it is behind.
    const GAUGE: Instrument;

    /// Fails where the work would fail for want of the store.
    fn check(&self) -> StoreFuture<'_, ()>;

    /// For how long something has been due, for each consumer or endpoint that has something due.
    fn oldest_due(&self) -> StoreFuture<'_, Vec<(Name, Duration)>>;

    /// Looks for what else is to be told, where there is somebody to tell it to.
    fn look(&mut self, notices: &Notices) -> impl Future<Output = ()> + Send {
        let _ = notices;
        std::future::ready(())
    }
}

/// Reads what has been due longest, again and again, sets the gauge, and tells what operators should know. It never ends.
///
/// At an interval, and not when somebody asks: who asks a hundred times a second must not ask the store as often.
pub(crate) async fn watch<W: Watched>(watched: &mut W, notices: &Notices) -> Infallible {
    if !cfg!(feature = "telemetry") && !notices.is_heard() {
        return std::future::pending().await;
    }
    let mut lag = Lag::default();
    loop {
        if notices.is_heard() {
            let answer = in_time(watched.check()).await;
            // What a store refuses for good is no failure that ends.
            notices.store_answered(answer.map_err(|error| error.to_string()));
            watched.look(notices).await;
        }
        match in_time(watched.oldest_due()).await {
            Ok(behind) => lag.show(watched, behind, notices),
            Err(error) => debug!(%error, "how far this is behind could not be seen"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// What was seen before.
#[derive(Debug, Default)]
struct Lag {
    shown: HashSet<Name>,
    overdue: HashMap<Name, Timestamp>,
}

impl Lag {
    fn show<W: Watched>(&mut self, _: &W, mut behind: Vec<(Name, Duration)>, notices: &Notices) {
        let names: HashSet<Name> = behind.iter().map(|(name, _)| name.clone()).collect();
        for name in self.shown.difference(&names) {
            telemetry::set(W::GAUGE, &[Value::Named(name)], 0.0);
        }
        // Shortest first: of those whose names are counted together the longest stays.
        behind.sort_unstable_by_key(|(_, span)| *span);
        for (name, span) in &behind {
            telemetry::set(W::GAUGE, &[Value::Named(name)], span.as_secs_f64());
        }
        self.shown = names;
        if let Some(limit) = notices.overdue_after() {
            for notice in self.edges(W::WALK, behind, limit, SystemClock.now()) {
                notices.tell(&notice);
            }
        }
    }

    /// Whose backlog has become too old, and whose is not any more.
    fn edges(&mut self, walk: Walk, behind: Vec<(Name, Duration)>, limit: Duration, now: Timestamp) -> Vec<Notice> {
        let late: HashMap<Name, Duration> = behind.into_iter().filter(|(_, span)| *span > limit).collect();
        let over = self.overdue.extract_if(|name, _| !late.contains_key(name));
        let mut edges: Vec<_> = over
            .map(|(name, since)| {
                let lasted_seconds = seconds_since(since, now);
                Notice::BacklogRecovered { walk, name, since, lasted_seconds }
            })
            .collect();
        for (name, span) in late {
            self.overdue.entry(name.clone()).or_insert_with(|| {
                let (oldest_due_seconds, limit_seconds) = (span.as_secs(), limit.as_secs());
                edges.push(Notice::BacklogOverdue { walk, name, oldest_due_seconds, limit_seconds, since: now });
                now
            });
        }
        edges
    }
}

/// Metrics are collected every ten to sixty seconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_that_is_too_old_is_told_when_it_begins_and_when_it_ends_and_not_meanwhile() {
        let (mut lag, limit) = (Lag::default(), Duration::from_secs(60));
        let mut at = |second: i64, behind: &[(&'static str, u64)]| {
            let behind = behind.iter().map(|(name, span)| (Name::literal(name), Duration::from_secs(*span)));
            let now = Timestamp::from_micros(second * 1_000_000);
            let edges = lag.edges(Walk::Outbox, behind.collect(), limit, now);
            edges
                .iter()
                .map(|notice| (notice.kind(), notice.endpoint().expect("a name").to_string()))
                .collect::<Vec<_>>()
        };
        let told = |kind, name: &str| vec![(kind, name.to_owned())];
        assert_eq!(at(0, &[("shop", 60)]), []);
        assert_eq!(at(5, &[("shop", 65), ("other", 5)]), told("backlog.overdue", "shop"));
        assert_eq!(at(10, &[("shop", 70), ("other", 10)]), []);
        assert_eq!(at(15, &[("other", 15)]), told("backlog.recovered", "shop"));
        assert_eq!(at(20, &[]), []);
    }
}
