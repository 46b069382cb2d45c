//! What becomes of a message after an attempt, and what that shows about its endpoint.

use super::{
    LEASE, SECOND, Subject, again, claim_all, claim_of, claim_one, claimed, dead, delivered, endpoint, endpoint_entry,
    enqueue, entry, failing, message, name, put, queue, report, settle, settled, to,
};
use crate::store::{AttemptReport, EndpointHealth, EndpointNews, Fate, MessageState, Settled, Settlement};

/// Delivered: it has an end, and what went wrong before is past.
pub async fn a_delivered_message_has_succeeded(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, again(SECOND)).await;
    subject.advance(SECOND).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    let done = entry(&*store, "shop", "msg_1").await;
    assert_eq!((done.state, done.attempts, done.due, done.reason), (MessageState::Succeeded, 2, None, None));
    assert_eq!((done.last_status.map(|status| status.as_u16()), done.last_error), (Some(200), None));
    assert_eq!(done.message, message("msg_1"));
    assert_eq!(done.attempt_log.len(), 2);
    assert_eq!(done.attempt_log[1].at, done.updated);
}

/// Dead and failed: it has an end, for a reason.
pub async fn a_message_that_is_given_up_says_why(subject: &dyn Subject) {
    let store = subject.store();
    for (fate, expected) in [
        (Fate::Dead("gone for good".into()), MessageState::DeadLetter),
        (Fate::Failed("ask Ann".into()), MessageState::Failed),
    ] {
        let (Fate::Dead(reason) | Fate::Failed(reason)) = fate.clone() else { panic!("both have a reason") };
        queue(&*store, expected.as_str(), &["msg_1"]).await;
        settle(&*store, &claim_one(&*store).await, Settlement::new(fate, report(410, "refused"))).await;
        let end = entry(&*store, expected.as_str(), "msg_1").await;
        assert_eq!((end.state, end.attempts, end.due), (expected, 1, None));
        assert_eq!((end.reason, end.last_error.as_deref()), (Some(reason), Some("refused")));
        assert_eq!(end.last_status.map(|status| status.as_u16()), Some(410));
    }
}

/// What is known of the last answer stays, where an attempt got none.
pub async fn an_attempt_without_an_answer_leaves_the_last_status(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, again(SECOND)).await;
    subject.advance(SECOND).await;
    let unheard = AttemptReport { error: Some("timed out".into()), ..AttemptReport::default() };
    let again = Fate::Again { after: SECOND, counts: true };
    settle(&*store, &claim_one(&*store).await, Settlement::new(again, unheard)).await;
    let kept = entry(&*store, "shop", "msg_1").await;
    assert_eq!(kept.last_status.map(|status| status.as_u16()), Some(503));
    assert_eq!(kept.last_error.as_deref(), Some("timed out"));
    assert_eq!(kept.attempt_log[1].report.status, None);
}

/// An attempt that found another copy being handled is as if it had not been made, but for what is noted of it.
pub async fn an_attempt_that_does_not_count_is_noted(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let busy = || Settlement::new(Fate::Again { after: SECOND, counts: false }, report(409, "busy"));
    for _ in 0..3 {
        let claimed = claim_one(&*store).await;
        assert_eq!(claimed.lease.attempt, 1);
        settle(&*store, &claimed, busy()).await;
        assert_eq!(entry(&*store, "shop", "msg_1").await.attempts, 0);
        subject.advance(SECOND).await;
    }
    let log = entry(&*store, "shop", "msg_1").await.attempt_log;
    assert_eq!(log.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 1, 1]);
    let shop = endpoint_entry(&*store, "shop").await;
    assert_eq!((shop.failures, shop.failing_since), (0, None), "it neither failed nor succeeded");
}

/// C079: of many that settle one attempt, one has settled it.
pub async fn an_attempt_is_settled_once(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let lease = claim_one(&*store).await.lease;
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (store, lease) = (subject.store(), lease.clone());
        let settlement = if number % 2 == 0 { delivered() } else { dead("no") };
        callers.spawn(async move { settled(&*store, &lease, settlement).await });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == Settled::Done).count(), 1);
    assert_eq!(entry(&*store, "shop", "msg_1").await.attempt_log.len(), 1);
}

/// Many that settle at one time do not mix up what is whose.
pub async fn attempts_settled_at_one_time_end_each_in_its_own_way(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let batch = (0..32).map(|n| to("shop", message(&format!("msg_{n:02}"))));
    enqueue(&*store, batch.collect()).await;
    let mut callers = tokio::task::JoinSet::new();
    for claimed in claim_all(&*store).await {
        let store = subject.store();
        callers.spawn(async move {
            let id = claimed.lease.key.id.as_str().to_owned();
            let number: u16 = id.trim_start_matches("msg_").parse().expect("a number");
            let report = report(400 + number, &id);
            let (fate, expected) = match number % 4 {
                0 => (Fate::Delivered, MessageState::Succeeded),
                1 => (Fate::Dead(id.clone()), MessageState::DeadLetter),
                2 => (Fate::Failed(id.clone()), MessageState::Failed),
                _ => (Fate::Again { after: 60 * SECOND, counts: true }, MessageState::Pending),
            };
            settle(&*store, &claimed, Settlement::new(fate, report)).await;
            (id, number, expected)
        });
    }
    for (id, number, expected) in callers.join_all().await {
        let end = entry(&*store, "shop", &id).await;
        assert_eq!((end.state, end.attempt_log.len()), (expected, 1), "{id}");
        assert_eq!(end.last_status.map(|status| status.as_u16()), Some(400 + number), "{id}");
        assert_eq!(end.attempt_log[0].report.error.as_deref(), Some(&*id));
        let says_why = matches!(expected, MessageState::DeadLetter | MessageState::Failed);
        assert_eq!(end.reason, says_why.then_some(id));
    }
    assert_eq!(claimed(&*store, claim_of(9)).await, Vec::new());
}

/// Attempts that fail are counted until one succeeds, and it is known since when.
pub async fn an_endpoints_failures_are_counted_until_an_attempt_succeeds(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3", "msg_4"]).await;
    let before = endpoint_entry(&*store, "shop").await;
    let failed = Settlement::new(Fate::Failed("ask".into()), report(500, "odd"));
    let failed = Settlement { endpoint: failing(), ..failed };
    let dead = |reason| Settlement { endpoint: failing(), ..dead(reason) };
    settle(&*store, &claim_one(&*store).await, again(60 * LEASE)).await;
    let first = endpoint_entry(&*store, "shop").await;
    assert!(first.failing_since >= Some(before.created));
    subject.advance(SECOND).await;
    let first = endpoint_entry(&*store, "shop").await;
    for end in [dead("no"), failed] {
        settle(&*store, &claim_one(&*store).await, end).await;
    }
    let fails = endpoint_entry(&*store, "shop").await;
    assert_eq!((fails.failures, fails.failing_since), (3, first.failing_since));
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    let well = endpoint_entry(&*store, "shop").await;
    assert_eq!((well.failures, well.failing_since, well.disabled), (0, None, None));
    assert_eq!(well.updated, first.updated, "nobody changed it");
}

/// `Retry-After`: the whole endpoint waits, and the longest wait counts.
pub async fn a_paused_endpoint_gets_nothing_until_the_longest_pause_is_over(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    queue(&*store, "desk", &["msg_1"]).await;
    let paused = |pause| Settlement { endpoint: EndpointNews { pause: Some(pause), ..failing() }, ..again(SECOND) };
    let all = claim_all(&*store).await;
    let of_shop: Vec<_> = all.iter().filter(|claimed| claimed.endpoint.name == name("shop")).collect();
    let [one, two, three] = of_shop[..] else { panic!("all are due") };
    settle(&*store, one, paused(2 * LEASE)).await;
    settle(&*store, two, paused(30 * SECOND)).await;
    settle(&*store, three, paused(LEASE)).await;
    enqueue(&*store, vec![to("shop", message("msg_4")), to("desk", message("msg_2"))]).await;
    let others = claim_all(&*store).await;
    assert_eq!(others.iter().map(|claimed| claimed.endpoint.name.as_str()).collect::<Vec<_>>(), ["desk"]);
    subject.advance(2 * LEASE - 20 * SECOND).await;
    let of_shop = claim_all(&*store).await.iter().filter(|claimed| claimed.endpoint.name == name("shop")).count();
    assert_eq!(of_shop, 0, "the longest pause counts");
    subject.advance(20 * SECOND).await;
    let of_shop = claim_all(&*store).await.iter().filter(|claimed| claimed.endpoint.name == name("shop")).count();
    assert_eq!(of_shop, 4);
}

/// 410: the endpoint gets nothing more, for a reason, and keeps its backlog.
pub async fn an_endpoint_that_is_gone_is_disabled_and_keeps_its_backlog(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    subject.advance(SECOND).await;
    let before = endpoint_entry(&*store, "shop").await;
    let gone = |reason: &str| Settlement {
        endpoint: EndpointNews { disable: Some(reason.into()), ..EndpointNews::default() },
        ..again(SECOND)
    };
    let one = claim_one(&*store).await;
    let two = claim_one(&*store).await;
    settle(&*store, &one, gone("410")).await;
    settle(&*store, &two, gone("410 again")).await;
    let shop = endpoint_entry(&*store, "shop").await;
    assert_eq!(shop.disabled.as_deref(), Some("410"), "the first reason stays");
    assert!(shop.updated > before.updated);
    subject.advance(60 * LEASE).await;
    assert!(claim_all(&*store).await.is_empty());
    assert_eq!(store.next_due().await.expect("the store answers"), None);
    for id in ["msg_1", "msg_2", "msg_3"] {
        assert_eq!(entry(&*store, "shop", id).await.state, MessageState::Pending, "{id}");
    }
    assert!(store.disable_endpoint(name("shop"), None).await.expect("the store answers"));
    assert_eq!(claim_all(&*store).await.len(), 3);
}

/// An endpoint that fails for days is disabled; one that succeeds now and then is not.
pub async fn an_endpoint_that_fails_for_too_long_is_disabled(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let patient = |settlement| Settlement {
        endpoint: EndpointNews { disable_after: Some(10 * LEASE), ..failing() },
        ..settlement
    };
    settle(&*store, &claim_one(&*store).await, patient(again(SECOND))).await;
    subject.advance(9 * LEASE).await;
    let last = claim_all(&*store).await;
    settle(&*store, &last[0], patient(again(SECOND))).await;
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled, None, "not yet");
    settle(&*store, &last[1], patient(delivered())).await;

    subject.advance(2 * LEASE).await;
    settle(&*store, &claim_one(&*store).await, patient(again(SECOND))).await;
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled, None, "one succeeded");
    for failures in [2, 3] {
        assert_eq!(endpoint_entry(&*store, "shop").await.disabled, None, "fewer than {failures} may be chance");
        subject.advance(10 * LEASE).await;
        settle(&*store, &claim_one(&*store).await, patient(again(SECOND))).await;
    }
    let shop = endpoint_entry(&*store, "shop").await;
    assert!(shop.disabled.is_some_and(|reason| !reason.is_empty()));
    assert!(claim_all(&*store).await.is_empty());
}

/// Only failures of the endpoint wear patience out: an answer about the message, and an attempt that was not made, do not.
pub async fn an_endpoint_that_answers_or_was_not_asked_is_not_disabled_for_its_failures(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3", "msg_4", "msg_5"]).await;
    let shown = |health, settlement| Settlement {
        endpoint: EndpointNews { health, disable_after: Some(LEASE), ..EndpointNews::default() },
        ..settlement
    };
    for _ in 0..2 {
        settle(&*store, &claim_one(&*store).await, shown(EndpointHealth::Fails, dead("no answer"))).await;
    }
    let failing = endpoint_entry(&*store, "shop").await;
    assert_eq!(failing.failures, 2);
    let unmade =
        shown(EndpointHealth::Unknown, Settlement::new(Fate::Failed("no key".into()), AttemptReport::default()));
    settle(&*store, &claim_one(&*store).await, unmade).await;
    assert_eq!(endpoint_entry(&*store, "shop").await, failing, "nothing was asked of it");
    settle(&*store, &claim_one(&*store).await, shown(EndpointHealth::Works, dead("400"))).await;
    let well = endpoint_entry(&*store, "shop").await;
    assert_eq!((well.failures, well.failing_since, well.disabled), (0, None, None), "it answers");
    subject.advance(9 * LEASE).await;
    settle(&*store, &claim_one(&*store).await, shown(EndpointHealth::Fails, dead("no answer"))).await;
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled, None);
}
