//! What goes into the outbox, and what stays as it was.

use std::time::Duration;

use super::{
    SECOND, Subject, again, by_id, cancelled, claim, claim_all, claim_of, claim_one, claimed, dead, delivered,
    endpoint, enqueue, entry, event_id, ids, key, message, name, put, queue, release, settle, state, to,
};
use crate::store::{Endpoint, Enqueue, Fate, Message, MessageState, OutboxStore, Settlement, StoreError, TypePattern};

/// What is enqueued is pending, due at once, and whole.
pub async fn an_enqueued_message_is_pending_and_due_at_once(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let full = Message {
        content_type: "text/plain; charset=utf-8".into(),
        ordering_key: Some(name("order 7")),
        correlation_id: Some(name("flow-1")),
        causation_id: Some(name("msg_0")),
        schema_version: Some(u32::MAX),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..message("msg_1")
    };
    let enqueued = store.enqueue(vec![to("shop", full.clone())]).await.expect("the store answers");
    let said: Vec<_> = enqueued.iter().map(|enqueued| (&enqueued.id, &enqueued.endpoint, enqueued.created)).collect();
    assert_eq!(said, [(&event_id("msg_1"), &name("shop"), true)]);

    let kept = entry(&*store, "shop", "msg_1").await;
    assert_eq!((&kept.message, &kept.endpoint, kept.state), (&full, &name("shop"), MessageState::Pending));
    assert_eq!((kept.attempts, kept.replays, kept.due, kept.updated), (0, 0, Some(kept.created), kept.created));
    assert_eq!((kept.last_status, kept.last_error, kept.reason, kept.attempt_log), (None, None, None, Vec::new()));
    assert_eq!(claim_one(&*store).await.message, full);
}

/// Nothing is sent before its time.
pub async fn a_message_with_a_delay_is_due_after_it_and_not_before(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    enqueue(&*store, vec![Enqueue { delay: 60 * SECOND, ..to("shop", message("msg_1")) }]).await;
    let kept = entry(&*store, "shop", "msg_1").await;
    assert_eq!(kept.due, Some(kept.created.saturating_add(60 * SECOND)));
    // The clock of a server goes on by itself.
    subject.advance(40 * SECOND).await;
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    subject.advance(20 * SECOND).await;
    assert_eq!(ids(&claim(&*store, 9).await), ["msg_1"]);
}

/// C074: one row for each endpoint and id, however often it is enqueued, and the first one stays.
pub async fn enqueuing_again_changes_nothing_whatever_the_state(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["pending", "retried", "running", "delivered", "dead", "failed", "cancelled"]).await;
    cancelled(&*store, by_id("cancelled")).await;
    let failed = Settlement::new(Fate::Failed("ask".into()), super::report(500, "odd"));
    for claimed in claim_all(&*store).await {
        let settlement = match claimed.lease.key.id.as_str() {
            "retried" => again(90 * SECOND),
            "delivered" => delivered(),
            "dead" => dead("no"),
            "failed" => failed.clone(),
            "pending" => {
                release(&*store, &claimed).await;
                continue;
            }
            _ => continue,
        };
        settle(&*store, &claimed, settlement).await;
    }
    for (id, expected) in [
        ("pending", MessageState::Pending),
        ("retried", MessageState::Pending),
        ("running", MessageState::Delivering),
        ("delivered", MessageState::Succeeded),
        ("dead", MessageState::DeadLetter),
        ("failed", MessageState::Failed),
        ("cancelled", MessageState::Cancelled),
    ] {
        let before = entry(&*store, "shop", id).await;
        assert_eq!(before.state, expected, "{id}");
        let other = Message { payload: "other".into(), ordering_key: Some(name("other")), ..message(id) };
        let asked = Enqueue { delay: 9 * SECOND, ..to("shop", other) };
        assert_eq!(enqueue(&*store, vec![asked]).await, [false], "{id}");
        assert_eq!(entry(&*store, "shop", id).await, before, "{id}");
    }
}

/// The key is the id within its endpoint: what goes to two endpoints is two messages.
pub async fn one_id_goes_to_each_endpoint_once(subject: &dyn Subject) {
    let store = subject.store();
    for name in ["shop", "desk"] {
        put(&*store, endpoint(name)).await;
    }
    let both = || vec![to("shop", message("msg_1")), to("desk", message("msg_1")), to("shop", message("msg_1"))];
    assert_eq!(enqueue(&*store, both()).await, [true, true, false], "the third is the first one again");
    assert_eq!(enqueue(&*store, both()).await, [false; 3]);
    assert_eq!(claim_all(&*store).await.len(), 2);
}

/// Many callers that enqueue the same make one of it.
pub async fn a_message_enqueued_by_many_callers_is_there_once(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = subject.store();
        callers.spawn(async move { enqueue(&*store, vec![to("shop", message("msg_1"))]).await });
    }
    let created: Vec<bool> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(created.iter().filter(|created| **created).count(), 1);
    assert_eq!(claim_all(&*store).await.len(), 1);
}

/// A batch is there wholly or not at all.
pub async fn a_batch_with_an_unknown_endpoint_is_refused_whole(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let batch = vec![to("shop", message("msg_1")), to("nowhere", message("msg_2")), to("shop", message("msg_3"))];
    refused(&store.enqueue(batch).await);
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    assert_eq!(store.find_message(key("shop", "msg_1")).await.expect("the store answers"), None);
    refused(&store.enqueue(vec![to("Shop", message("msg_1"))]).await);
}

/// Limits are the same for every store, and one message over them takes its batch along.
pub async fn what_is_over_the_limits_is_refused_whole(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, Endpoint { types: types(&["*"]), ..endpoint("shop") }).await;
    let over = [
        Message { payload: vec![0; Enqueue::MAX_PAYLOAD_BYTES + 1].into(), ..message("msg_1") },
        message("msg.1"),
        message("msg_é"),
        message("msg_1 "),
        Message { content_type: String::new(), ..message("msg_1") },
        Message { content_type: "x".repeat(Enqueue::MAX_TEXT_BYTES + 1), ..message("msg_1") },
        Message { content_type: "a\r\nb: c".into(), ..message("msg_1") },
        Message { event_type: name("ordré"), ..message("msg_1") },
        Message { correlation_id: Some(name("ü")), ..message("msg_1") },
        Message { causation_id: Some(name(" x")), ..message("msg_1") },
        Message { traceparent: Some(String::new()), ..message("msg_1") },
    ];
    for message in over {
        refused(&store.enqueue(vec![to("shop", super::message("msg_0")), to("shop", message.clone())]).await);
        refused(&store.publish(message).await);
    }
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
}

/// A batch of nothing is no error.
pub async fn a_batch_may_be_empty(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(enqueue(&*store, Vec::new()).await, Vec::<bool>::new());
}

/// What is published goes to everyone who wants it, and to nobody else.
pub async fn a_published_message_goes_to_every_endpoint_that_wants_its_type(subject: &dyn Subject) {
    let store = subject.store();
    for (name, patterns) in [
        ("zoo", &["order.*"][..]),
        ("all", &["*"]),
        ("both", &["order.paid", "*.paid"]),
        ("none", &[]),
        ("other", &["order", "Order.*", "order.paid.*"]),
    ] {
        put(&*store, Endpoint { types: types(patterns), ..endpoint(name) }).await;
    }
    assert!(store.disable_endpoint(name("zoo"), Some("closed".into())).await.expect("the store answers"));
    assert_eq!(published(&*store, message("msg_1")).await, [("all", true), ("both", true), ("zoo", true)].map(owned));
    let other = Message { payload: "other".into(), ..message("msg_1") };
    assert_eq!(published(&*store, other).await, [("all", false), ("both", false), ("zoo", false)].map(owned));
    assert_eq!(claim_all(&*store).await.len(), 2, "the disabled one gets it when it is enabled");
    assert_eq!(entry(&*store, "all", "msg_1").await.message, message("msg_1"));

    assert!(store.disable_endpoint(name("zoo"), None).await.expect("the store answers"));
    assert_eq!(claim_one(&*store).await.lease.key, key("zoo", "msg_1"));
    assert!(store.remove_endpoint(name("all")).await.expect("the store answers"));
    let nobodys = Message { event_type: name("user.made"), ..message("msg_2") };
    assert_eq!(published(&*store, nobodys).await, Vec::new());
    assert_eq!(state(&*store, "all", "msg_1").await, MessageState::DeadLetter);
}

fn types(patterns: &[&str]) -> Vec<TypePattern> {
    patterns.iter().map(|pattern| TypePattern::new(pattern).expect("a pattern")).collect()
}

async fn published(store: &dyn OutboxStore, message: Message) -> Vec<(String, bool)> {
    let published = store.publish(message).await.expect("the store answers");
    published.iter().map(|enqueued| (enqueued.endpoint.to_string(), enqueued.created)).collect()
}

fn owned((name, created): (&str, bool)) -> (String, bool) {
    (name.to_owned(), created)
}

fn refused<T: std::fmt::Debug>(answer: &Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Rejected(_))), "{answer:?}");
}

/// A delay that no clock can hold is the last moment there is, and no error.
pub async fn a_delay_may_be_longer_than_time(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    enqueue(&*store, vec![Enqueue { delay: Duration::MAX, ..to("shop", message("msg_1")) }]).await;
    subject.advance(60 * SECOND).await;
    assert!(claimed(&*store, claim_of(9)).await.is_empty());
    assert_eq!(state(&*store, "shop", "msg_1").await, MessageState::Pending);
}
