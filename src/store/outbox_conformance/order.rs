//! That messages of one ordering key go one at a time and in order, and what one that will not be delivered means for
//! those behind it.

use super::{
    LEASE, SECOND, Subject, again, by_id, cancelled, claim, claim_all, claim_of, claim_one, claimed, dead, delivered,
    endpoint, enqueue, entry, ids, message, ordered, put, put_on_dead, release, replayed, report, settle, state, to,
};
use crate::store::{ClaimMessages, Enqueue, Fate, MessageFilter, MessageState, OnDead, OutboxStore, Settlement};

/// Only the first one that has no end can be claimed; other keys, and messages without one, do not wait.
pub async fn messages_with_one_ordering_key_go_one_at_a_time_in_order(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    put(&*store, endpoint("desk")).await;
    let first = [ordered("a_1", "a"), ordered("a_2", "a"), ordered("b_1", "b"), message("free"), ordered("a_3", "a")];
    for message in first {
        enqueue(&*store, vec![to("shop", message)]).await;
        subject.advance(SECOND).await;
    }
    enqueue(&*store, vec![to("desk", ordered("other", "a"))]).await;
    let all = claim_all(&*store).await;
    assert_eq!(ids(&all), ["a_1", "b_1", "free", "other"], "a key is one endpoint's");
    let mut head = all.into_iter().find(|claimed| claimed.lease.key.id.as_str() == "a_1").expect("it was claimed");
    for next in ["a_2", "a_3"] {
        assert!(claim_all(&*store).await.is_empty(), "while the one before {next} is being delivered");
        settle(&*store, &head, delivered()).await;
        head = claim_one(&*store).await;
        assert_eq!(head.lease.key.id.as_str(), next);
    }
    settle(&*store, &head, delivered()).await;
    assert!(claim_all(&*store).await.is_empty());
}

/// Many dispatchers change nothing about the order.
pub async fn an_ordering_key_keeps_its_order_among_many_dispatchers(subject: &dyn Subject) {
    const MESSAGES: usize = 24;
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let batch = (0..MESSAGES).flat_map(|n| ["a", "b"].map(|key| to("shop", ordered(&format!("{key}_{n:02}"), key))));
    enqueue(&*store, batch.collect()).await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut dispatchers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, seen) = (subject.store(), std::sync::Arc::clone(&seen));
        dispatchers.spawn(async move {
            while seen.lock().expect("nobody panicked").len() < 2 * MESSAGES {
                for one in claimed(&*store, claim_of(4)).await {
                    seen.lock().expect("nobody panicked").push(one.lease.key.id.as_str().to_owned());
                    settle(&*store, &one, delivered()).await;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    dispatchers.join_all().await;
    let seen = seen.lock().expect("nobody panicked");
    for key in ["a", "b"] {
        let of_key: Vec<_> = seen.iter().filter(|id| id.starts_with(key)).collect();
        assert_eq!(of_key.len(), MESSAGES);
        assert!(of_key.is_sorted(), "{of_key:?}");
    }
}

/// C089: while the first one waits for its next try, those behind it wait too, whatever the endpoint says.
pub async fn while_the_first_one_waits_for_a_retry_those_behind_it_wait(subject: &dyn Subject) {
    let store = subject.store();
    for (at, on_dead) in [("block", OnDead::Block), ("park", OnDead::Park), ("skip", OnDead::Skip)] {
        put_on_dead(&*store, at, on_dead).await;
        enqueue(&*store, vec![to(at, ordered("msg_1", "a")), to(at, ordered("msg_2", "a"))]).await;
        let head = claim_one(&*store).await;
        assert_eq!(head.lease.key.id.as_str(), "msg_1");
        settle(&*store, &head, again(30 * SECOND)).await;
        assert!(claim_all(&*store).await.is_empty(), "{at}");
        subject.advance(30 * SECOND).await;
        let head = claim_one(&*store).await;
        assert_eq!((head.lease.key.id.as_str(), head.lease.attempt), ("msg_1", 2), "{at}");
        subject.advance(LEASE).await;
        let head = claim_one(&*store).await;
        assert_eq!((head.lease.key.id.as_str(), head.lease.attempt), ("msg_1", 3), "{at}: its lease ran out");
        assert!(claim_all(&*store).await.is_empty(), "{at}");
        settle(&*store, &head, delivered()).await;
        let second = claim_one(&*store).await;
        assert_eq!((second.lease.key.id.as_str(), second.lease.attempt), ("msg_2", 1), "{at}");
        settle(&*store, &second, delivered()).await;
    }
}

/// C089, `Block`: those behind wait for an operator, who replays the first one or takes it back.
pub async fn a_blocking_message_holds_up_those_behind_it_until_an_operator_decides(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Block).await;
    let failed = Settlement::new(Fate::Failed("ask".into()), report(500, "odd"));
    for (number, end) in [dead("no"), failed].into_iter().enumerate() {
        let [one, two, three] = ["1", "2", "3"].map(|n| format!("msg_{number}{n}"));
        let key = format!("key {number}");
        enqueue(&*store, [&one, &two, &three].map(|id| to("shop", ordered(id, &key))).into()).await;
        settle(&*store, &claim_one(&*store).await, end.clone()).await;
        subject.advance(LEASE).await;
        assert!(claim_all(&*store).await.is_empty());
        assert_eq!(state(&*store, "shop", &two).await, MessageState::Pending);
        assert_eq!(store.next_due().await.expect("the store answers"), None, "nothing falls due by itself");

        assert_eq!(replayed(&*store, by_id(&one)).await.len(), 1);
        let head = claim_one(&*store).await;
        assert_eq!(head.lease.key.id.as_str(), one);
        assert!(claim_all(&*store).await.is_empty());
        settle(&*store, &head, end).await;
        assert_eq!(cancelled(&*store, by_id(&one)).await.len(), 1);
        for expected in [&two, &three] {
            let next = claim_one(&*store).await;
            assert_eq!(next.lease.key.id.as_str(), expected);
            settle(&*store, &next, delivered()).await;
        }
    }
}

/// C089, `Skip`: those behind go on without it.
pub async fn a_skipped_message_lets_those_behind_it_pass(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    enqueue(&*store, ["msg_1", "msg_2", "msg_3"].map(|id| to("shop", ordered(id, "a"))).into()).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    let failed = Settlement::new(Fate::Failed("ask".into()), report(500, "odd"));
    for (expected, end) in [("msg_2", failed), ("msg_3", delivered())] {
        let next = claim_one(&*store).await;
        assert_eq!(next.lease.key.id.as_str(), expected);
        assert!(claim_all(&*store).await.is_empty(), "one at a time");
        settle(&*store, &next, end).await;
    }
}

/// A message that was being delivered when one before it was replayed, and whose sender died, waits for that one and no
/// longer.
pub async fn what_lost_its_sender_behind_a_replayed_message_goes_on_right_after_it(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    enqueue(&*store, ["msg_1", "msg_2"].map(|id| to("shop", ordered(id, "a"))).into()).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    assert_eq!(claim_one(&*store).await.lease.key.id.as_str(), "msg_2");
    assert_eq!(replayed(&*store, by_id("msg_1")).await.len(), 1);
    subject.advance(2 * LEASE).await;
    let head = claim_one(&*store).await;
    assert_eq!(head.lease.key.id.as_str(), "msg_1");
    assert!(claim_all(&*store).await.is_empty());
    settle(&*store, &head, delivered()).await;
    let next = claim_one(&*store).await;
    assert_eq!((next.lease.key.id.as_str(), next.lease.attempt), ("msg_2", 2));
}

/// C089, `Park`: those behind become dead letters too, and are replayed together, in order.
pub async fn parked_messages_are_replayed_together_in_order(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Park).await;
    let all = ["msg_1", "msg_2", "msg_3", "msg_4"];
    enqueue(&*store, all[..3].iter().map(|id| to("shop", ordered(id, "a"))).collect()).await;
    enqueue(&*store, vec![to("shop", ordered("elsewhere", "b"))]).await;
    let head = claim_all(&*store).await.into_iter().find(|claimed| claimed.lease.key.id.as_str() == "msg_1");
    settle(&*store, &head.expect("it was claimed"), dead("no")).await;
    for id in ["msg_2", "msg_3"] {
        let parked = entry(&*store, "shop", id).await;
        assert_eq!((parked.state, parked.due, parked.attempts), (MessageState::DeadLetter, None, 0), "{id}");
        assert!(parked.reason.is_some_and(|reason| reason.contains("msg_1")), "{id}");
    }
    assert_eq!(state(&*store, "shop", "elsewhere").await, MessageState::Delivering);

    // One that comes later is parked when a claim meets it: it must not get ahead of them.
    enqueue(&*store, vec![to("shop", ordered("msg_4", "a"))]).await;
    assert!(claim_all(&*store).await.is_empty());
    let parked = entry(&*store, "shop", "msg_4").await;
    assert_eq!((parked.state, parked.due, parked.attempts), (MessageState::DeadLetter, None, 0));

    let dead = MessageFilter { state: Some(MessageState::DeadLetter), ..MessageFilter::default() };
    let keys = replayed(&*store, dead).await;
    assert_eq!(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), all, "the oldest first");
    for expected in all {
        let next = claim(&*store, 9).await;
        assert_eq!(ids(&next), [expected]);
        settle(&*store, &next[0], delivered()).await;
    }
}

/// C083, C089: what dies because its senders died concerns those behind it no less.
pub async fn a_head_whose_attempts_are_used_up_blocks_parks_or_is_skipped(subject: &dyn Subject) {
    let store = subject.store();
    for (at, on_dead) in [("block", OnDead::Block), ("park", OnDead::Park), ("skip", OnDead::Skip)] {
        put_on_dead(&*store, at, on_dead).await;
        enqueue(&*store, vec![to(at, ordered("msg_1", "a")), to(at, ordered("msg_2", "a"))]).await;
    }
    let asked = || ClaimMessages { max_attempts: 1, ..claim_of(9) };
    assert_eq!(claimed(&*store, asked()).await.len(), 3);
    subject.advance(LEASE).await;
    let mut next = Vec::new();
    for _ in 0..8 {
        next.extend(claimed(&*store, asked()).await);
    }
    let next: Vec<_> = next.iter().map(|one| (one.endpoint.name.as_str(), one.lease.key.id.as_str())).collect();
    assert_eq!(next, [("skip", "msg_2")]);
    for (at, expected) in [("block", MessageState::Pending), ("park", MessageState::DeadLetter)] {
        assert_eq!(state(&*store, at, "msg_1").await, MessageState::DeadLetter, "{at}");
        assert_eq!(state(&*store, at, "msg_2").await, expected, "{at}");
    }
}

/// What comes behind a message that a claim gives up is skipped to at once, also where that claim meets both.
pub async fn a_message_behind_one_that_a_claim_gives_up_is_not_put_off(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    enqueue(&*store, vec![to("shop", ordered("msg_1", "a"))]).await;
    let asked = || ClaimMessages { max_attempts: 1, ..claim_of(9) };
    assert_eq!(claimed(&*store, asked()).await.len(), 1);
    subject.advance(LEASE).await;
    enqueue(&*store, vec![to("shop", ordered("msg_2", "a"))]).await;
    let mut next = Vec::new();
    for _ in 0..8 {
        next.extend(claimed(&*store, asked()).await);
    }
    assert_eq!(ids(&next), ["msg_2"]);
}

/// A message that was replayed stands before one that is being delivered: it waits for that one to end, and then goes
/// before those that follow.
pub async fn a_replayed_message_waits_for_the_one_that_is_being_delivered(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    enqueue(&*store, ["msg_1", "msg_2", "msg_3"].map(|id| to("shop", ordered(id, "a"))).into()).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    let second = claim_one(&*store).await;
    assert_eq!(second.lease.key.id.as_str(), "msg_2");
    assert_eq!(replayed(&*store, by_id("msg_1")).await.len(), 1);
    assert!(claim_all(&*store).await.is_empty(), "one at a time");
    settle(&*store, &second, again(SECOND)).await;
    subject.advance(LEASE).await;
    for expected in ["msg_1", "msg_2", "msg_3"] {
        let next = claim(&*store, 9).await;
        assert_eq!(ids(&next), [expected]);
        settle(&*store, &next[0], delivered()).await;
    }
}

/// The end of the one before it makes a message due no earlier than it would be by itself.
pub async fn a_message_behind_another_keeps_its_own_delay(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    enqueue(&*store, vec![to("shop", ordered("msg_1", "a"))]).await;
    enqueue(&*store, vec![Enqueue { delay: 60 * SECOND, ..to("shop", ordered("msg_2", "a")) }]).await;
    let head = claim_one(&*store).await;
    assert!(claim_all(&*store).await.is_empty());
    settle(&*store, &head, delivered()).await;
    assert!(claim_all(&*store).await.is_empty());
    subject.advance(40 * SECOND).await;
    assert!(claim_all(&*store).await.is_empty());
    subject.advance(20 * SECOND).await;
    assert_eq!(ids(&claim(&*store, 9).await), ["msg_2"]);
}

/// C089: however many wait behind one that blocks, what does not is found.
pub async fn a_thousand_messages_behind_one_that_blocks_do_not_hide_others(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    enqueue(&*store, vec![to("shop", ordered("head", "a"))]).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    let behind: Vec<_> = (0..1_000).map(|n| to("shop", ordered(&format!("msg_{n:03}"), "a"))).collect();
    enqueue(&*store, behind).await;
    subject.advance(SECOND).await;
    enqueue(&*store, vec![to("shop", message("free")), to("shop", ordered("b_1", "b"))]).await;
    let mut found = Vec::new();
    for _ in 0..super::CLAIMS {
        found.extend(claimed(&*store, claim_of(64)).await);
    }
    assert_eq!(ids(&found), ["b_1", "free"]);

    // None of them is lost meanwhile, and the next one goes as soon as its turn comes.
    assert_eq!(cancelled(&*store, by_id("head")).await.len(), 1);
    for expected in ["msg_000", "msg_001", "msg_002"] {
        let next = claim(&*store, 9).await;
        assert_eq!(ids(&next), [expected]);
        settle(&*store, &next[0], delivered()).await;
    }
}

/// Whatever ends the first one lets the second go at once: nobody waits for a poll of what lies in the future.
pub async fn whatever_ends_a_message_lets_the_next_one_go(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    let ends = ["delivered", "dead", "failed", "cancelled", "released and cancelled"];
    for end in ends {
        let pair = ["1", "2"].map(|n| format!("{}_{n}", end.replace(' ', "_")));
        enqueue(&*store, pair.iter().map(|id| to("shop", ordered(id, end))).collect()).await;
        let head = if end == "cancelled" { None } else { Some(claim_one(&*store).await) };
        assert!(head.is_none() || claim_all(&*store).await.is_empty());
        match (end, head) {
            ("delivered", Some(head)) => settle(&*store, &head, delivered()).await,
            ("dead", Some(head)) => settle(&*store, &head, dead("no")).await,
            ("failed", Some(head)) => {
                settle(&*store, &head, Settlement::new(Fate::Failed("ask".into()), report(500, "odd"))).await;
            }
            (_, head) => {
                if let Some(head) = head {
                    release(&*store, &head).await;
                }
                assert_eq!(cancelled(&*store, by_id(&pair[0])).await.len(), 1);
            }
        }
        let next = claim_one(&*store).await;
        assert_eq!(next.lease.key.id.as_str(), pair[1], "{end}");
        settle(&*store, &next, delivered()).await;
    }
}

/// What the endpoint says counts when it is asked, and an operator may change it.
pub async fn an_operator_can_let_those_behind_a_dead_letter_pass(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Block).await;
    enqueue(&*store, ["msg_1", "msg_2"].map(|id| to("shop", ordered(id, "a"))).into()).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    assert!(claim_all(&*store).await.is_empty());
    put_on_dead(&*store, "shop", OnDead::Skip).await;
    // A store may have put it off meanwhile, though not for long.
    subject.advance(15 * LEASE).await;
    assert_eq!(ids(&claim(&*store, 9).await), ["msg_2"]);
}

/// A sequence that an operator cannot finish at once is not turned round by a limit.
pub async fn a_replay_of_a_part_keeps_the_order(subject: &dyn Subject) {
    let store = subject.store();
    put_on_dead(&*store, "shop", OnDead::Park).await;
    enqueue(&*store, ["msg_1", "msg_2", "msg_3"].map(|id| to("shop", ordered(id, "a"))).into()).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    assert_eq!(replayed(&*store, by_id("msg_2")).await.len(), 1);
    assert!(claim_all(&*store).await.is_empty(), "it stands behind a dead letter still");
    assert_eq!(state(&*store, "shop", "msg_2").await, MessageState::DeadLetter);
    let part = MessageFilter { limit: 2, ..MessageFilter::default() };
    assert_eq!(replayed(&*store, part).await.len(), 2);
    deliver(&*store, &["msg_1", "msg_2"]).await;
    assert!(claim_all(&*store).await.is_empty());
    assert_eq!(replayed(&*store, MessageFilter::default()).await.len(), 1);
    deliver(&*store, &["msg_3"]).await;
}

async fn deliver(store: &dyn OutboxStore, expected: &[&str]) {
    for id in expected {
        let next = claim(store, 9).await;
        assert_eq!(ids(&next), [*id]);
        settle(store, &next[0], delivered()).await;
    }
}
