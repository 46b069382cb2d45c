//! What an operator does to messages, and that nothing is left without a next step.

use std::time::Duration;

use super::{
    LEASE, SECOND, Subject, again, by_id, cancelled, claim_all, claim_of, claim_one, claimed, dead, delivered,
    endpoint, enqueue, entry, ids, key, message, name, put, queue, release, renew, replayed, report, settle, state, to,
};
use crate::store::{
    ClaimMessages, EndpointNews, Fate, Message, MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxStore,
    Settlement,
};

/// C070: a dead letter is sent again as the same message, with all its attempts before it.
pub async fn a_replayed_message_is_pending_with_all_its_attempts_before_it(subject: &dyn Subject) {
    let store = subject.store();
    for (number, end) in [dead("no"), failed()].into_iter().enumerate() {
        let id = format!("msg_{number}");
        queue(&*store, "shop", &[&id]).await;
        settle(&*store, &claim_one(&*store).await, again(SECOND)).await;
        subject.advance(SECOND).await;
        settle(&*store, &claim_one(&*store).await, end).await;
        subject.advance(LEASE).await;
        let before = entry(&*store, "shop", &id).await;
        assert_eq!(replayed(&*store, by_id(&id)).await, [key("shop", &id)]);

        let after = entry(&*store, "shop", &id).await;
        assert_eq!((after.state, after.attempts, after.replays), (MessageState::Pending, 0, 1));
        assert_eq!((after.due, &after.reason), (Some(after.updated), &None));
        assert!(after.updated >= before.updated.saturating_add(LEASE));
        let history = |entry: &OutboxEntry| (entry.created, entry.last_status, entry.attempt_log.clone());
        assert_eq!((&after.message, history(&after)), (&before.message, history(&before)));
        subject.advance(SECOND).await;
        let again = claim_one(&*store).await;
        assert_eq!((again.lease.attempt, again.replays), (1, 1));
        assert_eq!((&again.message, again.created), (&message(&id), entry(&*store, "shop", &id).await.created));
        assert!(again.age >= SECOND && again.age < LEASE, "its age counts from the replay: {:?}", again.age);
        settle(&*store, &again, delivered()).await;
    }
}

/// Asking twice does it once.
pub async fn a_replay_that_is_asked_for_twice_is_done_once(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = subject.store();
        callers.spawn(async move { replayed(&*store, by_id("msg_1")).await.len() });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<usize>(), 1);
    assert_eq!(entry(&*store, "shop", "msg_1").await.replays, 1);
    let running = claim_one(&*store).await;
    assert_eq!(replayed(&*store, by_id("msg_1")).await, Vec::new(), "it is being delivered");
    settle(&*store, &running, delivered()).await;
    assert_eq!(replayed(&*store, by_id("msg_1")).await, Vec::new(), "it is delivered");
}

/// A large backlog is let go in an order and at a pace that its endpoint can bear.
pub async fn a_replay_keeps_to_its_filter_its_limit_and_its_pace(subject: &dyn Subject) {
    let store = subject.store();
    for at in ["shop", "desk"] {
        put(&*store, endpoint(at)).await;
        let other = |id: &str| Message { event_type: name("user.made"), ..message(id) };
        enqueue(&*store, ["msg_1", "msg_2", "msg_3"].map(|id| to(at, message(id))).into()).await;
        enqueue(&*store, vec![to(at, other("msg_4")), to(at, message("msg_5"))]).await;
    }
    for claimed in claim_all(&*store).await {
        let is_last = claimed.lease.key.id.as_str() == "msg_5";
        settle(&*store, &claimed, if is_last { failed() } else { dead("no") }).await;
    }
    let of_desk = MessageFilter { endpoint: Some(name("desk")), limit: 2, ..MessageFilter::default() };
    let keys = store.replay(of_desk.clone(), 10 * SECOND).await.expect("the store answers");
    assert_eq!(keys, [key("desk", "msg_1"), key("desk", "msg_2")], "the oldest first");
    let [one, two] = [entry(&*store, "desk", "msg_1").await, entry(&*store, "desk", "msg_2").await];
    assert_eq!((one.due, two.due), (Some(one.updated), Some(two.updated.saturating_add(10 * SECOND))));
    assert_eq!(ids(&claimed(&*store, claim_of(9)).await), ["msg_1"]);

    let of_type = MessageFilter { event_type: Some(name("user.made")), ..of_desk.clone() };
    assert_eq!(replayed(&*store, of_type).await, [key("desk", "msg_4")]);
    let only_failed = MessageFilter { state: Some(MessageState::Failed), ..of_desk.clone() };
    assert_eq!(replayed(&*store, only_failed).await, [key("desk", "msg_5")]);
    assert_eq!(replayed(&*store, MessageFilter { limit: 0, ..of_desk.clone() }).await, Vec::new());
    assert_eq!(replayed(&*store, MessageFilter { limit: 9, ..of_desk }).await, [key("desk", "msg_3")]);
    assert_eq!(replayed(&*store, by_id("msg_1")).await, [key("shop", "msg_1")]);
    let longest = store.replay(MessageFilter::default(), Duration::MAX).await.expect("the store answers");
    assert_eq!(longest.len(), 4);
}

/// A replay in steps ends, although what it lets go may die again meanwhile.
pub async fn what_changed_after_a_moment_is_left_out_of_a_replay(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    for claimed in claim_all(&*store).await {
        settle(&*store, &claimed, dead("no")).await;
        subject.advance(SECOND).await;
    }
    // Time that moves may move what is stored into the past: from here on it stands.
    let last = entry(&*store, "shop", "msg_3").await.updated;
    let old = MessageFilter { updated_before: Some(last), ..MessageFilter::default() };
    assert_eq!(store.list_messages(old.clone()).await.expect("the store answers").len(), 2);
    assert_eq!(
        store.list_messages(MessageFilter { limit: 1, ..old.clone() }).await.expect("the store answers").len(),
        1
    );
    let one = MessageFilter { limit: 1, ..old.clone() };
    for expected in ["msg_1", "msg_2"] {
        assert_eq!(replayed(&*store, one.clone()).await, [key("shop", expected)]);
        settle(&*store, &claim_one(&*store).await, dead("again")).await;
    }
    assert_eq!(replayed(&*store, one).await, Vec::new(), "all are newer");
    let by_id = MessageFilter { updated_before: old.updated_before, ..by_id("msg_1") };
    assert_eq!(replayed(&*store, by_id.clone()).await, Vec::new());
    assert_eq!(store.list_messages(by_id).await.expect("the store answers"), Vec::new());
}

/// What succeeded is sent again only where somebody names it and says so.
pub async fn what_succeeded_is_replayed_by_its_name_alone(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    let succeeded = MessageFilter { state: Some(MessageState::Succeeded), ..MessageFilter::default() };
    assert_eq!(replayed(&*store, by_id("msg_1")).await, Vec::new());
    assert_eq!(replayed(&*store, succeeded.clone()).await, Vec::new());
    let both = MessageFilter { state: succeeded.state, ..by_id("msg_1") };
    assert_eq!(replayed(&*store, both).await, [key("shop", "msg_1")]);
    assert_eq!((claim_one(&*store).await.lease.attempt, entry(&*store, "shop", "msg_1").await.replays), (1, 1));
}

/// Nothing else is replayed, whatever the filter says.
pub async fn replay_leaves_every_other_message_alone(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["pending", "running", "cancelled"]).await;
    cancelled(&*store, by_id("cancelled")).await;
    for claimed in claim_all(&*store).await {
        if claimed.lease.key.id.as_str() == "pending" {
            settle(&*store, &claimed, again(60 * SECOND)).await;
        }
    }
    for (id, expected) in [
        ("pending", MessageState::Pending),
        ("running", MessageState::Delivering),
        ("cancelled", MessageState::Cancelled),
    ] {
        let before = entry(&*store, "shop", id).await;
        assert_eq!(before.state, expected);
        for asked in [None, Some(expected)] {
            assert_eq!(replayed(&*store, MessageFilter { state: asked, ..by_id(id) }).await, Vec::new(), "{id}");
        }
        assert_eq!(entry(&*store, "shop", id).await, before, "{id}");
    }
}

/// What is taken back is not sent; what is being delivered cannot be taken back.
pub async fn a_message_can_be_taken_back_until_it_is_being_delivered(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["pending", "dead", "failed", "running", "delivered"]).await;
    for claimed in claim_all(&*store).await {
        match claimed.lease.key.id.as_str() {
            "pending" => settle(&*store, &claimed, again(60 * SECOND)).await,
            "dead" => settle(&*store, &claimed, dead("no")).await,
            "failed" => settle(&*store, &claimed, failed()).await,
            "delivered" => settle(&*store, &claimed, delivered()).await,
            _ => {}
        }
    }
    let untouched = [entry(&*store, "shop", "running").await, entry(&*store, "shop", "delivered").await];
    let asked = |state| MessageFilter { state: Some(state), ..MessageFilter::default() };
    assert_eq!(cancelled(&*store, asked(MessageState::Delivering)).await, Vec::new());
    assert_eq!(cancelled(&*store, asked(MessageState::Succeeded)).await, Vec::new());
    assert_eq!(cancelled(&*store, asked(MessageState::Failed)).await, [key("shop", "failed")]);
    let first = MessageFilter { limit: 1, ..MessageFilter::default() };
    assert_eq!(cancelled(&*store, first).await, [key("shop", "pending")], "the oldest first");
    assert_eq!(cancelled(&*store, MessageFilter::default()).await, [key("shop", "dead")]);
    assert_eq!(cancelled(&*store, MessageFilter::default()).await, Vec::<MessageKey>::new(), "once");
    for id in ["pending", "dead", "failed"] {
        let kept = entry(&*store, "shop", id).await;
        assert_eq!((kept.state, kept.due, kept.attempts), (MessageState::Cancelled, None, 1), "{id}");
        assert!(kept.reason.is_some() && kept.attempt_log.len() == 1, "{id}");
    }
    assert_eq!([entry(&*store, "shop", "running").await, entry(&*store, "shop", "delivered").await], untouched);
    subject.advance(LEASE).await;
    assert_eq!(ids(&claim_all(&*store).await), ["running"]);
}

/// C082, C085: whatever happens to a message, it waits for a time to come, is held until one, or has an end.
pub async fn a_message_is_never_without_a_next_step(subject: &dyn Subject) {
    let store = subject.store();
    let pause = EndpointNews { pause: Some(SECOND), ..EndpointNews::default() };
    let busy = Settlement::new(Fate::Again { after: Duration::ZERO, counts: false }, report(409, "busy"));
    let endless = Settlement::new(Fate::Again { after: 30 * SECOND, counts: true }, report(200, ""));
    let ends = [delivered(), dead("no"), failed(), again(SECOND), busy, endless];
    for (number, end) in ends.into_iter().enumerate() {
        let id = format!("msg_{number}");
        queue(&*store, "shop", &[&id]).await;
        let next = async |what: &str| legal(&entry(&*store, "shop", &id).await, what);
        next("enqueued").await;
        let held = claim_one(&*store).await;
        next("claimed").await;
        renew(&*store, &held).await;
        next("renewed").await;
        release(&*store, &held).await;
        next("released").await;
        let _dies = claim_one(&*store).await;
        subject.advance(LEASE).await;
        next("lapsed").await;
        let held = claim_one(&*store).await;
        next("taken over").await;
        let settlement = Settlement { endpoint: pause.clone(), ..end };
        settle(&*store, &held, settlement).await;
        next("settled").await;
        subject.advance(LEASE).await;
        if state(&*store, "shop", &id).await == MessageState::Pending {
            let claimed = claimed(&*store, ClaimMessages { max_attempts: 2, ..claim_of(9) }).await;
            assert!(claimed.is_empty() || claimed[0].lease.attempt == 2, "{claimed:?}");
            next("claimed for the last time").await;
            subject.advance(LEASE).await;
            assert!(super::claimed(&*store, ClaimMessages { max_attempts: 2, ..claim_of(9) }).await.is_empty());
            assert_eq!(state(&*store, "shop", &id).await, MessageState::DeadLetter);
            next("buried").await;
        }
        replayed(&*store, by_id(&id)).await;
        next("replayed").await;
        cancelled(&*store, by_id(&id)).await;
        next("cancelled").await;
        assert!(entry(&*store, "shop", &id).await.due.is_none(), "it has an end");
    }
    assert_eq!(store.next_due().await.expect("the store answers"), None);
}

fn legal(entry: &OutboxEntry, what: &str) {
    let open = matches!(entry.state, MessageState::Pending | MessageState::Delivering);
    assert_eq!(entry.due.is_some(), open, "{what}: {entry:?}");
    let says_why = matches!(entry.state, MessageState::DeadLetter | MessageState::Failed | MessageState::Cancelled);
    assert_eq!(entry.reason.is_some(), says_why, "{what}: {entry:?}");
    assert!(entry.state != MessageState::Delivering || entry.attempts > 0, "{what}: {entry:?}");
}

fn failed() -> Settlement {
    Settlement::new(Fate::Failed("ask".into()), report(500, "odd"))
}
