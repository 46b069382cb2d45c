//! What becomes of a message that is claimed, settled, replayed or cancelled, and of its endpoint: the decisions that
//! all stores share.
//!
//! They are functions of values, so that they can be read and tested without a database. A store looks the row up, asks
//! here, and carries out what that says within the same transaction; or its statement says the same.

use std::time::Duration;

use super::admission::{self, kept_text};
use super::{
    AttemptReport, ClaimMessages, Endpoint, EndpointHealth, EndpointNews, Fate, MessageFilter, MessageState, OnDead,
    Settlement,
};
use crate::{EventId, Timestamp};

/// What stands before a message in its ordering key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// This one is a dead letter or failed, and all before the message have an end.
    Ended(EventId),
    Nothing,
    /// One that has no end; or one that comes later, but is being delivered.
    Open,
}

/// What to do with a message whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Make it a dead letter.
    Bury {
        /// The last attempt left no word: note it.
        lapsed: bool,
        reason: String,
    },
    /// Leave it: its turn has not come.
    HeldUp,
    /// Give it to the one who asks: new token, next attempt.
    TakeOver {
        /// The last attempt left no word: note it.
        lapsed: bool,
    },
}

/// Whether a message that is pending, or whose lease ran out, can be handed out.
pub(super) fn turn(state: MessageState, attempts: u32, allowed: u32, ahead: &Ahead, on_dead: OnDead) -> Turn {
    let lapsed = state == MessageState::Delivering;
    match (ahead, on_dead) {
        (Ahead::Open, _) | (Ahead::Ended(_), OnDead::Block) => return Turn::HeldUp,
        (Ahead::Ended(head), OnDead::Park) => return Turn::Bury { lapsed, reason: parked(head) },
        (Ahead::Nothing, _) | (Ahead::Ended(_), OnDead::Skip) => {}
    }
    if attempts < allowed {
        return Turn::TakeOver { lapsed };
    }
    Turn::Bury { lapsed, reason: format!("attempts used up: {attempts} of {allowed}") }
}

/// How many attempts a message to this endpoint gets.
pub(super) fn allowed_attempts(claim: &ClaimMessages, endpoint: &Endpoint) -> u32 {
    endpoint.settings.max_attempts.unwrap_or(claim.max_attempts).max(1)
}

/// Why a message is a dead letter that stands behind this one.
pub(super) fn parked(head: &EventId) -> String {
    kept_text(&format!("{PARKED_BEHIND}{head}{OF_ITS_ORDER}"))
}

/// Which message that is, read from the reason.
pub(super) fn parked_behind(reason: &str) -> Option<EventId> {
    EventId::new(reason.strip_prefix(PARKED_BEHIND)?.strip_suffix(OF_ITS_ORDER)?).ok()
}

const PARKED_BEHIND: &str = "parked behind ";
const OF_ITS_ORDER: &str = ", which has the same ordering key";

/// Why a message is a dead letter whose endpoint is gone.
pub(super) const ENDPOINT_REMOVED: &str = "its endpoint was removed";
/// Why a message is cancelled.
pub(super) const CANCELLED: &str = "taken back";

/// Where a message goes from an attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) state: MessageState,
    pub(super) attempts: u32,
    pub(super) due: Option<Timestamp>,
    pub(super) reason: Option<String>,
}

impl Course {
    pub(super) fn of(fate: &Fate, attempts: u32, now: Timestamp) -> Self {
        let end = |state, reason: Option<&str>| Self { state, attempts, due: None, reason: reason.map(kept_text) };
        match fate {
            Fate::Again { after, counts } => Self {
                state: MessageState::Pending,
                attempts: attempts.saturating_sub(u32::from(!counts)),
                due: Some(now.saturating_add(*after)),
                reason: None,
            },
            Fate::Dead(reason) => end(MessageState::DeadLetter, Some(reason)),
            Fate::Delivered => end(MessageState::Succeeded, None),
            Fate::Failed(reason) => end(MessageState::Failed, Some(reason)),
        }
    }

    /// The same of a message whose endpoint was removed meanwhile, which made it a dead letter for this reason: it stays one
    /// where it would be sent again.
    pub(super) fn without_endpoint(self, reason: Option<String>) -> Self {
        match self.state {
            MessageState::Pending => Self { state: MessageState::DeadLetter, due: None, reason, ..self },
            _ => self,
        }
    }

    /// Where it goes from an attempt that was not made.
    pub(super) fn released(attempts: u32, now: Timestamp) -> Self {
        Self::of(&Fate::Again { after: Duration::ZERO, counts: false }, attempts, now)
    }
}

/// Whether this end of a message concerns those behind it: [`OnDead`].
pub(super) const fn holds_up(state: MessageState) -> bool {
    matches!(state, MessageState::DeadLetter | MessageState::Failed)
}

/// Whether a message has no end yet.
pub(super) const fn is_open(state: MessageState) -> bool {
    matches!(state, MessageState::Pending | MessageState::Delivering)
}

/// Whether a replay that asks for this state, and names an id or not, changes a message in that one.
pub(super) fn is_replayed(state: MessageState, filter: &MessageFilter) -> bool {
    match state {
        MessageState::DeadLetter | MessageState::Failed => filter.state.is_none_or(|asked| asked == state),
        MessageState::Succeeded => filter.state == Some(state) && filter.id.is_some(),
        MessageState::Cancelled | MessageState::Delivering | MessageState::Pending => false,
    }
}

/// Whether a cancellation that asks for this state changes a message in that one.
pub(super) fn is_cancelled(state: MessageState, filter: &MessageFilter) -> bool {
    let asked = filter.state.is_none_or(|asked| asked == state);
    asked && matches!(state, MessageState::Pending | MessageState::DeadLetter | MessageState::Failed)
}

/// How an endpoint has been doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) disabled: Option<String>,
    pub(super) disabled_since: Option<Timestamp>,
    pub(super) paused_until: Option<Timestamp>,
    pub(super) failing_since: Option<Timestamp>,
    pub(super) failures: u64,
}

impl Health {
    /// How it does after an attempt. The same as before: nothing needs to be written.
    pub(super) fn after(&self, settlement: &Settlement, now: Timestamp) -> Self {
        let news = &settlement.endpoint;
        let mut health = self.clone();
        let shown = if settlement.fate == Fate::Delivered { EndpointHealth::Works } else { news.health };
        match shown {
            EndpointHealth::Unknown => {}
            EndpointHealth::Works => (health.failures, health.failing_since) = (0, None),
            EndpointHealth::Fails => {
                health.failures = health.failures.saturating_add(1);
                health.failing_since = health.failing_since.or(Some(now));
            }
        }
        health.paused_until = health.paused_until.max(news.pause.map(|pause| now.saturating_add(pause)));
        let asked = news.disable.as_deref().map(kept_text);
        let worn_out = || {
            let patience = news.disable_after.filter(|_| shown == EndpointHealth::Fails)?;
            let is_over = health.failing_since?.saturating_add(patience) <= now;
            let is_worn = is_over && health.failures >= EndpointNews::LEAST_FAILURES;
            is_worn.then(|| format!("it has not worked for {} s", patience.as_secs()))
        };
        let reason = health.disabled.clone().or(asked).or_else(worn_out);
        health.disabled_since = health.disabled_since.or(reason.is_some().then_some(now));
        health.disabled = reason;
        health
    }

    /// How it does once it is disabled for this reason. One that is disabled already has been since then.
    pub(super) fn disabled(self, reason: &str, now: Timestamp) -> Self {
        Self { disabled: Some(kept_text(reason)), disabled_since: self.disabled_since.or(Some(now)), ..self }
    }
}

/// The report as every store keeps it.
pub(super) fn kept_report(mut report: AttemptReport) -> AttemptReport {
    report.took = Duration::from_micros(u64::try_from(report.took.as_micros()).unwrap_or(u64::MAX));
    report.body.truncate(AttemptReport::MAX_BODY_BYTES);
    report.error = report.error.as_deref().map(kept_text);
    report.kind = report.kind.as_deref().map(kept_text);
    report
}

/// What is noted of an attempt that left no word.
pub(super) fn lapsed_report() -> AttemptReport {
    AttemptReport { error: Some(admission::LAPSED.into()), kind: Some("lapsed".into()), ..AttemptReport::default() }
}

/// What is to be seen as the last error after this attempt, where `before` was.
pub(super) fn last_error(fate: &Fate, report: &AttemptReport, before: Option<String>) -> Option<String> {
    if *fate == Fate::Delivered { None } else { report.error.clone().or(before) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn c083_attempts_that_end_without_a_word_use_up_attempts() {
        let lapsed = |attempts| turn(MessageState::Delivering, attempts, 3, &Ahead::Nothing, OnDead::Block);
        assert_eq!(lapsed(2), Turn::TakeOver { lapsed: true });
        assert_eq!(lapsed(3), Turn::Bury { lapsed: true, reason: "attempts used up: 3 of 3".into() });
    }

    #[test]
    fn what_stands_before_a_message_decides_whether_it_goes() {
        let behind = |ahead: &Ahead, on_dead| turn(MessageState::Pending, 0, 3, ahead, on_dead);
        let dead = Ahead::Ended(EventId::new("msg_1").expect("an id"));
        for on_dead in [OnDead::Block, OnDead::Park, OnDead::Skip] {
            assert_eq!(behind(&Ahead::Open, on_dead), Turn::HeldUp, "{on_dead:?}");
            assert_eq!(behind(&Ahead::Nothing, on_dead), Turn::TakeOver { lapsed: false }, "{on_dead:?}");
        }
        assert_eq!(behind(&dead, OnDead::Block), Turn::HeldUp);
        assert_eq!(behind(&dead, OnDead::Skip), Turn::TakeOver { lapsed: false });
        let Turn::Bury { lapsed: false, reason } = behind(&dead, OnDead::Park) else { panic!("it is parked") };
        assert!(reason.contains("msg_1"), "{reason}");
        assert_eq!(parked_behind(&reason), EventId::new("msg_1").ok());
        assert_eq!(parked_behind("the receiver answered 400"), None);
    }

    #[test]
    fn an_attempt_that_does_not_count_leaves_the_message_and_the_endpoint_as_they_were() {
        let fate = Fate::Again { after: DAY, counts: false };
        let now = Timestamp::from_micros(5);
        let course = Course::of(&fate, 3, now);
        assert_eq!((course.attempts, course.due), (2, Some(now.saturating_add(DAY))));
        let failing = Health { failures: 4, failing_since: Some(now), ..Health::default() };
        assert_eq!(failing.after(&Settlement::new(fate, AttemptReport::default()), now), failing);
    }

    #[test]
    fn an_endpoint_is_disabled_at_the_end_of_its_patience_and_not_before() {
        let start = Timestamp::from_micros(1_000_000);
        let news = EndpointNews { health: EndpointHealth::Fails, disable_after: Some(DAY), ..EndpointNews::default() };
        let again = Fate::Again { after: DAY, counts: true };
        let failed = Settlement { endpoint: news, ..Settlement::new(again, AttemptReport::default()) };
        let first = Health::default().after(&failed, start);
        assert_eq!((first.failures, first.failing_since, &first.disabled), (1, Some(start), &None));
        let end = start.saturating_add(DAY);
        let second = first.after(&failed, end);
        assert_eq!((second.failures, &second.disabled), (2, &None), "two failures may be chance");
        let first = first.after(&failed, start);
        assert_eq!(first.after(&failed, Timestamp::from_micros(end.as_micros() - 1)).disabled, None);
        let worn_out = first.after(&failed, end);
        assert_eq!(worn_out.disabled.as_deref(), Some("it has not worked for 86400 s"));

        let delivered = Settlement { fate: Fate::Delivered, ..failed };
        assert_eq!(first.after(&delivered, end), Health::default());
    }

    #[test]
    fn an_endpoint_that_answers_works_although_it_refuses_and_one_that_was_not_asked_is_as_before() {
        let now = Timestamp::from_micros(5);
        let later = now.saturating_add(9 * DAY);
        let refused = |health| Settlement {
            endpoint: EndpointNews { health, disable_after: Some(DAY), ..EndpointNews::default() },
            ..Settlement::new(Fate::Dead("400".into()), AttemptReport::default())
        };
        let failing = Health { failures: 9, failing_since: Some(now), ..Health::default() };
        assert_eq!(failing.after(&refused(EndpointHealth::Works), later), Health::default());
        assert_eq!(failing.after(&refused(EndpointHealth::Unknown), later), failing);
        assert!(failing.after(&refused(EndpointHealth::Fails), later).disabled.is_some());
    }

    #[test]
    fn a_longer_pause_and_an_earlier_reason_stay() {
        let now = Timestamp::from_micros(0);
        let news = |pause, disable: &str| Settlement {
            endpoint: EndpointNews { pause: Some(pause), disable: Some(disable.into()), ..EndpointNews::default() },
            ..Settlement::new(Fate::Delivered, AttemptReport::default())
        };
        let first = Health::default().after(&news(2 * DAY, "gone"), now);
        assert_eq!((first.paused_until, first.disabled.as_deref()), (Some(now.saturating_add(2 * DAY)), Some("gone")));
        assert_eq!(first.after(&news(DAY, "gone again"), now), first);
        let later = first.after(&news(3 * DAY, "gone again"), now);
        assert_eq!((later.paused_until, later.disabled.as_deref()), (Some(now.saturating_add(3 * DAY)), Some("gone")));
    }

    #[test]
    fn a_message_that_succeeded_is_replayed_by_its_name_alone() {
        let by_id = MessageFilter { id: EventId::new("msg_1").ok(), ..MessageFilter::default() };
        let succeeded = MessageFilter { state: Some(MessageState::Succeeded), ..MessageFilter::default() };
        let both = MessageFilter { state: succeeded.state, ..by_id.clone() };
        assert!(is_replayed(MessageState::Succeeded, &both));
        assert!(!is_replayed(MessageState::Succeeded, &by_id) && !is_replayed(MessageState::Succeeded, &succeeded));
        assert!(!is_replayed(MessageState::DeadLetter, &both) && is_replayed(MessageState::DeadLetter, &by_id));
    }
}
