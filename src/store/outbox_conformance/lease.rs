//! The right to deliver: that it runs out, can be held on to and given back, and has one holder.

use super::{
    LEASE, SECOND, Subject, again, claim, claim_all, claim_of, claim_one, claimed, dead, delivered, endpoint, enqueue,
    entry, ids, key, message, put, queue, release, renew, settle, settled, to,
};
use crate::store::{ClaimMessages, EndpointSettings, MessageLease, MessageState, OutboxStore, Settled, Token};

/// C075: what a dead dispatcher left is claimed like everything else, and its attempt counts.
pub async fn a_message_whose_lease_ran_out_is_claimed_again(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let late = claim_one(&*store).await.lease;
    subject.advance(LEASE - 10 * SECOND).await;
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    subject.advance(10 * SECOND).await;
    let holder = claim_one(&*store).await.lease;
    assert_eq!((holder.attempt, holder.row == late.row, holder.token == late.token), (2, true, false));

    let held = entry(&*store, "shop", "msg_1").await;
    let noted: Vec<_> = held.attempt_log.iter().map(|attempt| (attempt.replay, attempt.number)).collect();
    assert_eq!(noted, [(0, 1)], "the attempt that left no word");
    assert_eq!(held.last_error, held.attempt_log[0].report.error);
    assert!(held.last_error.is_some());
}

/// C058, C079: who lost the lease cannot end the attempt of the one who took over, nor what came after.
pub async fn a_late_holder_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let late = claim_one(&*store).await.lease;
    subject.advance(LEASE).await;
    let holder = claim_one(&*store).await;
    too_late(subject, &late).await;

    settle(&*store, &holder, again(SECOND)).await;
    too_late(subject, &late).await;
    too_late(subject, &holder.lease).await;
    subject.advance(SECOND).await;
    let holder = claim_one(&*store).await;
    too_late(subject, &late).await;
    settle(&*store, &holder, delivered()).await;
    too_late(subject, &late).await;
    too_late(subject, &holder.lease).await;
}

/// Nothing that names this lease changes its message or its endpoint.
async fn too_late(subject: &dyn Subject, lease: &MessageLease) {
    let store = subject.store();
    let read = async || {
        let endpoint = store.endpoint(lease.key.endpoint.clone()).await.expect("the store answers");
        (store.find_message(lease.key.clone()).await.expect("the store answers"), endpoint)
    };
    let before = read().await;
    let mut worst = dead("late");
    worst.endpoint.disable = Some("late".into());
    worst.endpoint.pause = Some(LEASE);
    for settlement in [delivered(), again(SECOND), worst] {
        assert_eq!(settled(&*store, lease, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(store.renew_message(lease.clone(), 9 * LEASE).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(store.release_message(lease.clone()).await.expect("the store answers"), Settled::LeaseLost);
    assert_eq!(read().await, before);
}

/// C080: a name is no right. Neither is a token that was never drawn, nor one of another message.
pub async fn a_lease_that_nobody_was_given_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let held = claim_all(&*store).await;
    let [one, two] = &held[..] else { panic!("both are due") };
    too_late(subject, &MessageLease { token: Token::from_bytes([7; 16]), ..one.lease.clone() }).await;
    too_late(subject, &MessageLease { token: two.lease.token, ..one.lease.clone() }).await;
    let nowhere = MessageLease { key: key("nowhere", "msg_1"), row: i64::MAX, ..one.lease.clone() };
    assert_eq!(settled(&*store, &nowhere, delivered()).await, Settled::LeaseLost);
    settle(&*store, one, delivered()).await;
    settle(&*store, two, delivered()).await;
}

/// An attempt that was slow has ended all the same, while nobody else began another.
pub async fn a_lapsed_lease_that_nobody_took_over_settles_still(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let held = claim_all(&*store).await;
    let [one, two] = &held[..] else { panic!("both are due") };
    subject.advance(2 * LEASE).await;
    settle(&*store, one, delivered()).await;
    renew(&*store, two).await;
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    settle(&*store, two, delivered()).await;
}

/// C076, C077: who works for longer than its lease can hold on to it.
pub async fn a_renewed_message_is_held(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let holder = claim_one(&*store).await;
    let before = entry(&*store, "shop", "msg_1").await;
    for _ in 0..3 {
        subject.advance(LEASE - 10 * SECOND).await;
        renew(&*store, &holder).await;
        assert!(claimed(&*store, claim_of(9)).await.is_empty());
    }
    let after = entry(&*store, "shop", "msg_1").await;
    assert_eq!((after.state, after.attempts), (before.state, before.attempts));
    assert!(after.due > Some(after.updated.saturating_add(2 * LEASE)), "counted from now");
    settle(&*store, &holder, delivered()).await;
}

/// C076: what is given back is as if it had not been taken.
pub async fn a_released_message_is_due_at_once_and_its_attempt_does_not_count(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    for _ in 0..3 {
        let lease = claim_one(&*store).await.lease;
        assert_eq!(lease.attempt, 1);
        assert_eq!(store.release_message(lease.clone()).await.expect("the store answers"), Settled::Done);
        assert_eq!(store.release_message(lease).await.expect("the store answers"), Settled::LeaseLost, "once");
    }
    let back = entry(&*store, "shop", "msg_1").await;
    assert_eq!((back.state, back.attempts, back.due), (MessageState::Pending, 0, Some(back.updated)));
    assert!(back.attempt_log.is_empty());

    settle(&*store, &claim_one(&*store).await, again(SECOND)).await;
    subject.advance(SECOND).await;
    release(&*store, &claim_one(&*store).await).await;
    let back = entry(&*store, "shop", "msg_1").await;
    assert_eq!((back.state, back.attempts, back.due), (MessageState::Pending, 1, Some(back.updated)));
    assert_eq!(back.last_error.as_deref(), Some("down"));
}

/// C083: a message that kills whoever sends it ends as a dead letter, and holds nobody up.
pub async fn attempts_that_run_out_use_up_a_messages_attempts(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let asked = || ClaimMessages { max_attempts: 3, ..claim_of(9) };
    for attempt in 1..=3 {
        let claimed = claimed(&*store, asked()).await;
        assert_eq!(claimed.iter().map(|claimed| claimed.lease.attempt).collect::<Vec<_>>(), [attempt]);
        subject.advance(LEASE).await;
    }
    enqueue(&*store, vec![to("shop", message("msg_2"))]).await;
    let mut next = Vec::new();
    for _ in 0..4 {
        next.extend(claimed(&*store, asked()).await);
    }
    assert_eq!(ids(&next), ["msg_2"]);
    let dead = entry(&*store, "shop", "msg_1").await;
    assert_eq!((dead.state, dead.attempts, dead.due), (MessageState::DeadLetter, 3, None));
    assert_eq!(dead.reason.as_deref(), Some("attempts used up: 3 of 3"));
    assert_eq!(dead.attempt_log.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 2, 3]);
}

/// An operator is told of what a claim gives up, so the claim says what that was, and once.
pub async fn a_claim_says_what_it_gives_up(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let asked = || ClaimMessages { max_attempts: 2, ..claim_of(9) };
    for _ in 0..2 {
        assert_eq!(claimed(&*store, asked()).await.len(), 1);
        subject.advance(LEASE).await;
    }
    let mut buried = Vec::new();
    for _ in 0..4 {
        let claims = store.claim_messages(asked()).await.expect("the store answers");
        assert!(claims.messages.is_empty());
        buried.extend(claims.buried);
    }
    let [given_up] = &buried[..] else { panic!("{buried:?}") };
    assert_eq!((&given_up.key, &given_up.event_type), (&key("shop", "msg_1"), &message("msg_1").event_type));
    assert_eq!((given_up.attempts, given_up.replays), (2, 0));
    assert_eq!(Some(&given_up.reason), entry(&*store, "shop", "msg_1").await.reason.as_ref());
}

/// How many attempts there are says the endpoint, where it says so; there is always one.
pub async fn an_endpoint_may_have_its_own_number_of_attempts(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let with = |max_attempts| {
        let mut endpoint = endpoint("shop");
        endpoint.settings = EndpointSettings { max_attempts, ..EndpointSettings::default() };
        endpoint
    };
    put(&*store, with(Some(2))).await;
    let asked = |max_attempts| ClaimMessages { max_attempts, ..claim_of(9) };
    assert_eq!(claimed(&*store, asked(1)).await.len(), 1);
    subject.advance(LEASE).await;
    assert_eq!(claimed(&*store, asked(1)).await.len(), 1, "the endpoint says two");
    subject.advance(LEASE).await;
    put(&*store, with(None)).await;
    assert_eq!(claimed(&*store, asked(3)).await.len(), 1);
    subject.advance(LEASE).await;
    put(&*store, with(Some(2))).await;
    assert!(claim(&*store, 9).await.is_empty());
    let dead = entry(&*store, "shop", "msg_1").await;
    assert_eq!((dead.state, dead.reason.as_deref()), (MessageState::DeadLetter, Some("attempts used up: 3 of 2")));

    enqueue(&*store, vec![to("shop", message("msg_2"))]).await;
    put(&*store, with(None)).await;
    assert_eq!(claimed(&*store, asked(0)).await.len(), 1, "there is always one");
}

/// Many callers that come upon a lapsed lease: one of them gets it.
pub async fn a_lapsed_lease_goes_to_one_of_many_callers(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let _dies = claim_one(&*store).await;
    subject.advance(LEASE).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = subject.store();
        callers.spawn(async move { claimed(&*store, claim_of(9)).await.len() });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<usize>(), 1);
}

/// C076: a dispatcher that is gone for good leaves nothing behind that needs a hand.
pub async fn everything_that_a_dead_dispatcher_held_is_sent_by_the_next(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let batch = (0..20).map(|n| to("shop", message(&format!("msg_{n}"))));
    enqueue(&*store, batch.collect()).await;
    assert_eq!(claim_all(&*store).await.len(), 20);
    subject.advance(LEASE).await;
    deliver_all(&*store, 20).await;
}

async fn deliver_all(store: &dyn OutboxStore, expected: usize) {
    let all = claim_all(store).await;
    assert_eq!(all.len(), expected);
    for claimed in all {
        assert_eq!(claimed.lease.attempt, 2);
        settle(store, &claimed, delivered()).await;
    }
}
