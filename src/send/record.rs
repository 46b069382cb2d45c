//! The record of an attempt: its lease is held while it runs, and how it ended is written until that is surely there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, error, error_span, warn};

use super::attempt::Desk;
use super::measure;
use crate::store::{AttemptReport, MessageLease, Settled, Settlement};
use crate::work::{Renewal, after, in_time};

impl Desk {
    /// Writes the settlement, again and again where the store does not answer, until the lease is surely gone: the message
    /// is sent, and only the record of it is missing. Says whether it is there.
    pub(super) async fn settle(
        &self,
        lease: &MessageLease,
        replays: u32,
        settlement: Settlement,
        renewal: &Renewal,
    ) -> bool {
        let lost = renewal.lost();
        let mut pause = Duration::from_millis(50);
        let mut unsure = false;
        loop {
            // Asked before the call: a lease that ends during it leaves room for one more.
            let is_last = lost.is_cancelled();
            match in_time(self.store.settle(lease.clone(), settlement.clone())).await {
                Ok(Settled::Done) => return true,
                Ok(Settled::LeaseLost) if unsure && self.is_recorded(lease, replays, &settlement.report).await => {
                    return true;
                }
                Ok(Settled::LeaseLost) => {
                    warn!("lease lost: how this attempt ended is not recorded");
                    measure::lease_lost();
                    return false;
                }
                Err(error) if error.is_transient() && !is_last => {
                    debug!(%error, "the store did not take how the attempt ended; trying again");
                    unsure = true;
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = lost.cancelled() => {}
                    }
                    pause = Duration::from_secs(1).min(pause * 2);
                }
                Err(error) => {
                    error!(%error, "how the attempt ended could not be recorded: the message is sent again");
                    return false;
                }
            }
        }
    }

    /// Whether a call that seemed to fail did take effect: the message is settled, by this attempt.
    async fn is_recorded(&self, lease: &MessageLease, replays: u32, report: &AttemptReport) -> bool {
        let found = in_time(self.store.find_message(lease.key.clone())).await;
        found.ok().flatten().is_some_and(|entry| {
            entry.attempt_log.iter().any(|attempt| {
                attempt.replay == replays
                    && attempt.number == lease.attempt
                    && attempt.report.status == report.status
                    && attempt.report.took.as_micros() == report.took.as_micros()
            })
        })
    }

    /// Keeps the lease, which was asked for then, for as long as the attempt may take, and its record after it.
    pub(super) fn hold(&self, lease: &MessageLease, asked: Instant) -> Renewal {
        let span = self.settings.lease;
        let named = error_span!("lease", id = %lease.key.id, endpoint = %lease.key.endpoint, attempt = lease.attempt);
        let (store, lease) = (Arc::clone(&self.store), lease.clone());
        // An attempt takes less than a lease: after two of them something hangs, and others may try.
        Renewal::begin(named, asked, span, after(Instant::now(), span.saturating_mul(2)), move || {
            let (store, lease) = (Arc::clone(&store), lease.clone());
            Box::pin(async move { store.renew_message(lease, span).await })
        })
    }
}
