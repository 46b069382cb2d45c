//! Connections that are lost while an operator changes something: it is done, or can be done again.

use std::time::{Duration, Instant};

use super::connection::{everywhere, goes_out};
use super::{
    FaultySubject, HOUR, PATIENCE, by_id, claim_one, claimed, dead, delivered, enqueue, entry, event_id, found, key,
    message, name, purge, settle, shop,
};
use crate::store::{
    Endpoint, EndpointEntry, Enqueue, MessageFilter, MessageKey, MessageState, OutboxStore, StoreError,
};

/// A replay that is asked for again because nobody knows whether it was done is one replay.
pub async fn a_connection_lost_anywhere_in_a_replay_or_cancellation_does_it_once(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let prepare = async |id: &str| {
        enqueue(&*store, id).await;
        settle(&*store, &claim_one(&*store).await, dead()).await;
    };
    let replay = async |id: &str, ()| store.replay(by_id(id), Duration::ZERO).await;
    let check = async |id: &str, (), answered: Result<Vec<MessageKey>, StoreError>| {
        match answered {
            Ok(replayed) => assert_eq!(replayed, [key(id)], "{id}"),
            Err(_) => {
                store.replay(by_id(id), Duration::ZERO).await.expect("the store answers");
            }
        }
        let again = entry(&*store, id).await;
        assert_eq!((again.state, again.replays, again.attempt_log.len()), (MessageState::Pending, 1, 1), "{id}");
        goes_out(&*store, id).await;
    };
    everywhere(subject, "replayed", prepare, replay, check).await;

    let cancel = async |id: &str, ()| store.cancel(by_id(id)).await;
    let check = async |id: &str, (), answered: Result<Vec<MessageKey>, StoreError>| {
        match answered {
            Ok(cancelled) => assert_eq!(cancelled, [key(id)], "{id}"),
            Err(_) => {
                store.cancel(by_id(id)).await.expect("the store answers");
            }
        }
        let end = entry(&*store, id).await;
        assert_eq!((end.state, end.replays, end.attempt_log.len()), (MessageState::Cancelled, 0, 1), "{id}");
        assert!(claimed(&*store).await.is_empty(), "{id}");
    };
    everywhere(subject, "cancelled", prepare, cancel, check).await;
}

/// The old settings or the new ones, enabled or disabled: never a mixture.
pub async fn a_connection_lost_anywhere_in_a_change_of_an_endpoint_leaves_a_whole_one(subject: &dyn FaultySubject) {
    let store = subject.store();
    let old = |id: &str| Endpoint::new(name(id), "https://example.com/old");
    let moved = |id: &str| Endpoint { scheme: "envelope".into(), ..Endpoint::new(name(id), "https://example.com/new") };
    let there = async |id: &str| store.endpoint(name(id)).await.expect("the store answers").expect("it is there");

    let prepare = async |id: &str| {
        store.put_endpoint(old(id)).await.expect("the store answers");
    };
    let change = async |id: &str, ()| store.put_endpoint(moved(id)).await;
    let check = async |id: &str, (), answered: Result<EndpointEntry, StoreError>| {
        let stands = there(id).await.endpoint;
        match answered {
            Ok(entry) => assert_eq!((&entry.endpoint, &stands), (&moved(id), &moved(id)), "{id}"),
            Err(_) => assert!(stands == old(id) || stands == moved(id), "{id}: {stands:?}"),
        }
        store.put_endpoint(moved(id)).await.expect("the store answers");
        assert_eq!(there(id).await.endpoint, moved(id), "{id}");
    };
    everywhere(subject, "changed", prepare, change, check).await;

    let disable = async |id: &str, ()| store.disable_endpoint(name(id), Some("closed".into())).await;
    let check = async |id: &str, (), answered: Result<bool, StoreError>| {
        let first = there(id).await;
        assert!(answered.is_err() || first.disabled.as_deref() == Some("closed"), "{id}");
        assert!(store.disable_endpoint(name(id), Some("closed".into())).await.expect("the store answers"), "{id}");
        let stands = there(id).await;
        assert_eq!(stands.disabled.as_deref(), Some("closed"), "{id}");
        assert!(first.disabled.is_none() || first.disabled_since == stands.disabled_since, "{id}: it began once");
    };
    everywhere(subject, "disabled", prepare, disable, check).await;
}

/// The endpoint is there with its messages, or gone with an end for each of them.
pub async fn a_connection_lost_anywhere_in_a_removal_strands_no_message(subject: &dyn FaultySubject) {
    let store = subject.store();
    let prepare = async |id: &str| {
        store.put_endpoint(Endpoint::new(name(id), "https://example.com/hooks")).await.expect("the store answers");
        let new = Enqueue::new(name(id), message("msg_1"));
        store.enqueue(vec![new]).await.expect("the store answers");
    };
    let state = async |id: &str| {
        let key = MessageKey { endpoint: name(id), id: event_id("msg_1") };
        store.find_message(key).await.expect("the store answers").expect("it is there").state
    };
    let call = async |id: &str, ()| store.remove_endpoint(name(id)).await;
    let check = async |id: &str, (), answered: Result<bool, StoreError>| {
        let is_there = store.endpoint(name(id)).await.expect("the store answers").is_some();
        assert!(!is_there || answered.is_err(), "{id}: it was told so");
        let expected = if is_there { MessageState::Pending } else { MessageState::DeadLetter };
        assert_eq!(state(id).await, expected, "{id}");
        store.remove_endpoint(name(id)).await.expect("the store answers");
        assert_eq!(state(id).await, MessageState::DeadLetter, "{id}");
        assert!(claimed(&*store).await.is_empty(), "{id}");
    };
    everywhere(subject, "removed", prepare, call, check).await;
}

/// What is old goes, now or with the next purge; what is young stays.
pub async fn a_connection_lost_anywhere_in_a_purge_of_messages_removes_nothing_young(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let sent = async |id: &str| {
        enqueue(&*store, id).await;
        settle(&*store, &claim_one(&*store).await, delivered()).await;
    };
    let prepare = async |id: &str| {
        sent(&format!("{id}_old")).await;
        subject.advance(2 * HOUR).await;
        sent(id).await;
    };
    let call = async |_: &str, ()| purge(&*store, 10).await;
    let check = async |id: &str, (), _answered: Result<u64, StoreError>| {
        // A database may hold on to what a lost connection locked until it notices.
        let deadline = Instant::now() + PATIENCE;
        while found(&*store, &format!("{id}_old")).await.is_some() {
            assert!(Instant::now() < deadline, "{id}: what is old is never removed");
            purge(&*store, 10).await.expect("the store answers");
        }
        let young = entry(&*store, id).await;
        assert_eq!((young.state, young.attempt_log.len()), (MessageState::Succeeded, 1), "{id}");
        let left = store.list_messages(MessageFilter { limit: 1_000, ..by_id(id) }).await.expect("the store answers");
        assert_eq!(left.len(), 1, "{id}");
    };
    everywhere(subject, "msg", prepare, call, check).await;
}
