//! What an attempt means for its message and for its endpoint: a pure function of verdict, counts and spans.

use std::time::Duration;

use super::{Answer, Due, Failure, GiveUp, Next, RetryPolicy, Verdict};
use crate::store::{EndpointHealth as Health, EndpointNews, Fate};

/// What is known when an attempt has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Which attempt it was, from 1.
    pub(super) attempt: u32,
    /// How old its message is, by the store's clock.
    pub(super) age: Duration,
    /// Any number.
    pub(super) chance: u32,
    /// What it showed about the endpoint.
    pub(super) health: Health,
}

/// What becomes of the message, and what is told about its endpoint. `ending` says how the attempt ended, in words.
///
/// | verdict | message | endpoint |
/// |---|---|---|
/// | delivered | succeeded | works |
/// | retry | again, or a dead letter where its attempts or its time are used up | paused where it asked for it; disabled once it has failed for `disable_after` |
/// | permanent | dead letter | works, if it has said so itself |
/// | gone | again: the attempt does not count | disabled, and its backlog kept |
pub(super) fn decide(
    verdict: Verdict,
    ending: &str,
    facts: Facts,
    policy: &RetryPolicy,
    disable_after: Option<Duration>,
) -> (Fate, EndpointNews) {
    let Facts { attempt, age, chance, health } = facts;
    let shown = EndpointNews { health, disable_after, ..EndpointNews::default() };
    match policy.next(verdict, attempt, age, chance) {
        Next::Delivered => (Fate::Delivered, EndpointNews { health, ..EndpointNews::default() }),
        Next::Retry(Due { after, endpoint_held_for: pause, is_free }) => {
            (Fate::Again { after, counts: !is_free }, EndpointNews { pause, ..shown })
        }
        Next::GiveUp(GiveUp::Gone) => {
            let disable = Some(format!("it is gone: {ending}"));
            // It waits with the others for somebody to enable the endpoint, and is due when they are.
            (
                Fate::Again { after: Duration::ZERO, counts: false },
                EndpointNews { health, disable, ..EndpointNews::default() },
            )
        }
        Next::GiveUp(GiveUp::Permanent) => (Fate::Dead(format!("it will not be taken: {ending}")), shown),
        Next::GiveUp(GiveUp::AttemptsUsedUp) => {
            (Fate::Dead(format!("all {attempt} attempts are used up; the last one: {ending}")), shown)
        }
        Next::GiveUp(GiveUp::TooOld) => {
            (Fate::Dead(format!("it would be too old at its next attempt; the last one: {ending}")), shown)
        }
    }
}

/// What an outcome shows about the endpoint in the long run: for the store, which disables one that does not work for days.
/// One that only ever asks for time takes nothing either.
pub(super) fn lasting_health(outcome: &Result<Answer, Failure>, verdict: Verdict) -> Health {
    match verdict {
        Verdict::Retry(retry) if outcome.is_ok() && !retry.is_free => Health::Fails,
        Verdict::Delivered | Verdict::Gone | Verdict::Permanent | Verdict::Retry(_) => health(outcome, verdict),
    }
}

/// What an outcome shows about the endpoint for now: for the breaker. One that asks for time is paused by the store, and one
/// that answers at all works.
pub(super) fn health(outcome: &Result<Answer, Failure>, verdict: Verdict) -> Health {
    match outcome {
        Ok(_) if verdict == Verdict::Delivered => Health::Works,
        Ok(answer) if answer.status.is_server_error() => match verdict {
            Verdict::Retry(retry) if retry.holds_endpoint => Health::Unknown,
            Verdict::Delivered | Verdict::Gone | Verdict::Permanent | Verdict::Retry(_) => Health::Fails,
        },
        Ok(_) => Health::Works,
        Err(Failure::Refused(_) | Failure::Request(_) | Failure::Target(_)) => Health::Unknown,
        Err(Failure::Other { is_transient: false, .. }) => Health::Unknown,
        Err(
            Failure::Closed(_)
            | Failure::Connect { .. }
            | Failure::Dns { .. }
            | Failure::Other { is_transient: true, .. }
            | Failure::Protocol(_)
            | Failure::Timeout(_)
            | Failure::Tls { .. },
        ) => Health::Fails,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::clock::Timestamp;
    use crate::send::{Retry, Stage};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn decided(verdict: Verdict, attempt: u32, age: Duration) -> (Fate, EndpointNews) {
        let policy = RetryPolicy::new().with_max_attempts(3).with_max_age(DAY);
        decide(verdict, "503", Facts { attempt, age, chance: 0, health: Health::Fails }, &policy, Some(5 * DAY))
    }

    fn failing() -> EndpointNews {
        EndpointNews { health: Health::Fails, disable_after: Some(5 * DAY), ..EndpointNews::default() }
    }

    #[test]
    fn what_is_delivered_says_nothing_bad_about_its_endpoint() {
        let (fate, news) = decided(Verdict::Delivered, 3, DAY);
        assert_eq!((fate, news.disable, news.disable_after, news.pause), (Fate::Delivered, None, None, None));
    }

    #[test]
    fn a_receiver_that_asks_for_time_gets_it_for_the_whole_endpoint() {
        let after = Some(Duration::from_secs(60));
        let (fate, news) =
            decided(Verdict::Retry(Retry { after, holds_endpoint: true, is_free: false }), 1, Duration::ZERO);
        assert_eq!(fate, Fate::Again { after: Duration::from_secs(60), counts: true });
        assert_eq!(news, EndpointNews { pause: after, ..failing() });
    }

    #[test]
    fn a_copy_that_is_being_handled_costs_no_attempt_and_pauses_nobody_else() {
        let after = Some(Duration::from_secs(60));
        let (fate, news) =
            decided(Verdict::Retry(Retry { after, holds_endpoint: false, is_free: true }), 3, Duration::ZERO);
        assert_eq!(fate, Fate::Again { after: Duration::from_secs(60), counts: false });
        assert_eq!(news.pause, None);
    }

    #[test]
    fn attempts_and_age_end_in_a_dead_letter_with_its_reason() {
        for (attempt, age, expected) in
            [(3, Duration::ZERO, "all 3 attempts are used up; the last one: 503"), (1, 2 * DAY, "too old")]
        {
            let (fate, news) = decided(Verdict::Retry(Retry::default()), attempt, age);
            assert!(matches!(&fate, Fate::Dead(reason) if reason.contains(expected)), "{fate:?}");
            assert_eq!(news, failing());
        }
        let (fate, _) = decided(Verdict::Permanent, 1, Duration::ZERO);
        assert_eq!(fate, Fate::Dead("it will not be taken: 503".into()));
    }

    #[test]
    fn c122_only_gone_disables_at_once_and_keeps_its_message() {
        let (fate, news) = decided(Verdict::Gone, 3, 2 * DAY);
        assert_eq!(fate, Fate::Again { after: Duration::ZERO, counts: false });
        assert!(news.disable.is_some());
        for verdict in [Verdict::Permanent, Verdict::Retry(Retry::default()), Verdict::Delivered] {
            assert_eq!(decided(verdict, 1, Duration::ZERO).1.disable, None);
        }
    }

    #[test]
    fn in_the_long_run_an_endpoint_that_takes_nothing_fails_and_one_that_refuses_works() {
        for (status, expected) in [
            (204, Health::Works),
            (400, Health::Works),
            (404, Health::Works),
            (410, Health::Works),
            (429, Health::Fails),
            (500, Health::Fails),
            (503, Health::Fails),
        ] {
            let outcome = Ok(Answer::new(StatusCode::from_u16(status).expect("a status")));
            let verdict = crate::send::classify(&outcome, &crate::send::Overrides::none(), Timestamp::default());
            assert_eq!(lasting_health(&outcome, verdict), expected, "{status}");
        }
        let asked = Verdict::Retry(Retry { after: Some(DAY), holds_endpoint: true, is_free: false });
        assert_eq!(lasting_health(&Ok(Answer::new(StatusCode::SERVICE_UNAVAILABLE)), asked), Health::Fails);
        let unmade = Err(Failure::Request("x".into()));
        assert_eq!(lasting_health(&unmade, Verdict::Permanent), Health::Unknown);
    }

    #[test]
    fn an_endpoint_works_if_it_answers_and_fails_if_it_cannot() {
        let answered = |status| {
            let outcome = Ok(Answer::new(StatusCode::from_u16(status).expect("a status")));
            let verdict = crate::send::classify(&outcome, &crate::send::Overrides::none(), Timestamp::default());
            health(&outcome, verdict)
        };
        for (status, expected) in [
            (204, Health::Works),
            (301, Health::Works),
            (404, Health::Works),
            (410, Health::Works),
            (429, Health::Works),
            (500, Health::Fails),
            (503, Health::Fails),
        ] {
            assert_eq!(answered(status), expected, "{status}");
        }
        let asked = Verdict::Retry(Retry { after: Some(DAY), holds_endpoint: true, is_free: false });
        assert_eq!(health(&Ok(Answer::new(StatusCode::SERVICE_UNAVAILABLE)), asked), Health::Unknown);
        let retry = Verdict::Retry(Retry::default());
        assert_eq!(health(&Err(Failure::Timeout(Stage::Head)), retry), Health::Fails);
        assert_eq!(health(&Err(Failure::Request("x".into())), Verdict::Permanent), Health::Unknown);
    }
}
