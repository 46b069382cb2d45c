//! One attempt, from top to bottom: sign and send, classify, decide, settle, tell.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::HeaderValue;
use tokio::time::{Instant, timeout};
use tracing::{Span, debug, warn};

use super::decide::{Facts, decide, health, lasting_health};
use super::disabled::Disabled;
use super::key_source::Signers;
use super::limits::Slot;
use super::measure;
use super::outgoing::Unsendable;
use super::report::report;
use super::tally::{Event, Tally};
use super::{Answer, Failure, Overrides, RetryPolicy, Transport, Verdict, classify};
use crate::clock::{Clock, SystemClock};
use crate::notice::Notices;
use crate::store::{AttemptReport, ClaimedMessage, Endpoint, EndpointHealth, Fate, Message, OutboxStore, Settlement};
use crate::work::chance;

/// What all attempts of a dispatcher share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) store: Arc<dyn OutboxStore>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) signers: Signers,
    pub(super) notices: Notices,
    pub(super) disabled: Disabled,
    pub(super) tally: Tally,
    pub(super) settings: AttemptSettings,
}

/// What is the same for all attempts.
#[derive(Clone, Debug)]
pub(super) struct AttemptSettings {
    pub(super) answer_limit: usize,
    pub(super) disable_after: Option<Duration>,
    pub(super) lease: Duration,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Duration,
    pub(super) user_agent: HeaderValue,
}

/// How an attempt ended, before anything is made of it.
pub(super) struct Ended {
    pub(super) verdict: Verdict,
    pub(super) report: AttemptReport,
    pub(super) health: EndpointHealth,
    pub(super) lasting_health: EndpointHealth,
    /// What this side must mend before the message can be sent at all.
    pub(super) unsendable: bool,
}

impl Desk {
    /// Delivers one message that was asked for then, and records what became of it.
    pub(super) async fn deliver(&self, claimed: ClaimedMessage, slot: Slot, asked: Instant) {
        // Until whoever has to know is told: who waits for the end of all attempts waits for that too.
        let _running = (self.tally.begin(), measure::sending(&claimed.lease.key.endpoint));
        let began = Instant::now();
        let renewal = self.hold(&claimed.lease, asked);
        let ClaimedMessage { lease, message, endpoint, age, replays, .. } = claimed;

        let ended = self.attempt(&endpoint, &message, lease.attempt).await;
        match ended.health {
            EndpointHealth::Works => slot.works(),
            EndpointHealth::Fails => slot.fails(),
            EndpointHealth::Unknown => drop(slot),
        }
        let settlement = self.judge(&endpoint, lease.attempt, age, ended);
        self.log(&settlement);

        if !self.settle(&lease, replays, settlement.clone(), &renewal).await {
            self.tally.count(Event::Unsettled);
            measure::unsettled(&endpoint.name, &settlement);
            return;
        }
        drop(renewal);
        self.count(&settlement);
        measure::settled(&endpoint.name, &settlement, age.saturating_add(began.elapsed()));
        self.tell(&lease, &message.event_type, replays, &settlement).await;
    }

    /// Makes one attempt, and changes nothing in the store.
    pub(super) async fn attempt(&self, endpoint: &Endpoint, message: &Message, attempt: u32) -> Ended {
        let began = Instant::now();
        // Keys and transport are the application's: what panics there costs this attempt.
        let outcome = match AssertUnwindSafe(self.send(endpoint, message, attempt)).catch_unwind().await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(unsendable)) => return unsendable.ended(began),
            Err(_panic) => Err(transient("the transport, or the source of keys, panicked")),
        };
        let verdict = classify(&outcome, &overrides(endpoint), SystemClock.now());
        if let Err(Failure::Refused(_)) = &outcome {
            self.tally.count(Event::Refused);
            measure::refused(&endpoint.name);
        }
        Ended {
            verdict,
            health: health(&outcome, verdict),
            lasting_health: lasting_health(&outcome, verdict),
            report: report(outcome, began.elapsed(), self.settings.answer_limit),
            unsendable: false,
        }
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        message: &Message,
        attempt: u32,
    ) -> Result<Result<Answer, Failure>, Unsendable> {
        let outgoing = self.outgoing(endpoint, message, attempt).await?;
        // The transport holds to these times; this one is for a transport that does not.
        let deadline = outgoing.total_timeout + Duration::from_secs(1);
        let sent = timeout(deadline, self.transport.send(outgoing)).await;
        Ok(sent.unwrap_or_else(|_elapsed| Err(transient("the transport did not keep to its time"))))
    }

    fn judge(&self, endpoint: &Endpoint, attempt: u32, age: Duration, ended: Ended) -> Settlement {
        let Ended { verdict, report, lasting_health, unsendable, .. } = ended;
        let ending = match (&report.error, report.status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => status.to_string(),
            (None, None) => String::new(),
        };
        let mut policy = self.settings.retry;
        if let Some(attempts) = endpoint.settings.max_attempts {
            policy = policy.with_max_attempts(attempts);
        }
        if let Some(seconds) = endpoint.settings.max_age_seconds {
            policy = policy.with_max_age(Duration::from_secs(seconds));
        }
        let facts = Facts { attempt, age, chance: chance(), health: lasting_health };
        let (fate, news) = decide(verdict, &ending, facts, &policy, self.settings.disable_after);
        if unsendable && matches!(fate, Fate::Dead(_)) && verdict == Verdict::Permanent {
            // Nobody refused it, and the endpoint was not asked.
            return Settlement::new(Fate::Failed(format!("it cannot be sent: {ending}")), report);
        }
        let mut settlement = Settlement::new(fate, report);
        settlement.endpoint = news;
        settlement.endpoint.url = Some(endpoint.url.clone());
        settlement
    }

    fn log(&self, settlement: &Settlement) {
        let Settlement { fate, report, endpoint: news } = settlement;
        let AttemptReport { took, status, error, kind, .. } = report;
        let (status, kind) = (status.map(|status| status.as_u16()), kind.as_deref());
        let span = Span::current();
        span.record("outcome", measure::outcome(settlement));
        if let Some(status) = status {
            span.record("status", status);
        }
        match fate {
            Fate::Delivered => debug!(?took, status, "delivered"),
            Fate::Again { after, counts } => {
                warn!(?took, status, kind, error, ?after, counts, pause = ?news.pause, "not delivered: it is tried again");
            }
            // The notice warns of it.
            Fate::Dead(reason) | Fate::Failed(reason) => debug!(?took, status, kind, reason, "given up"),
        }
    }

    fn count(&self, settlement: &Settlement) {
        self.tally.count(match settlement.fate {
            Fate::Delivered => Event::Delivered,
            // It waits for somebody to enable the endpoint: that is counted as such.
            Fate::Again { .. } if settlement.endpoint.disable.is_some() => return,
            Fate::Again { .. } => Event::Retried,
            Fate::Dead(_) | Fate::Failed(_) => Event::Dead,
        });
    }
}

/// For how long at least a store that does not answer is told how an attempt ended: so much longer than the attempt is
/// its lease.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(5);

fn transient(reason: &str) -> Failure {
    Failure::Other { is_transient: true, reason: reason.to_owned() }
}

/// What the endpoint wants made of answers. What cannot be read was refused when the endpoint was added by our own
/// program; elsewhere it is passed over.
fn overrides(endpoint: &Endpoint) -> Overrides {
    let pairs = endpoint.settings.verdicts.iter().map(|(statuses, meaning)| (statuses, meaning));
    Overrides::from_pairs(pairs).unwrap_or_else(|error| {
        warn!(%error, endpoint = %endpoint.name, "the endpoint's verdicts are passed over");
        Overrides::none()
    })
}
