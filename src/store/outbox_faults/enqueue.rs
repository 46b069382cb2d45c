//! Connections that are lost while messages are taken in: whoever was not told asks again, and it is the same message.

use super::connection::{everywhere, goes_out};
use super::{FaultySubject, claim_exactly, delivered, entry, found, message, name, new, settle, shop, succeeded};
use crate::store::{Endpoint, Enqueued, MessageKey, MessageState, StoreError, TypePattern};

/// Enqueued once or twice, it is one message, and goes out once.
pub async fn a_connection_lost_anywhere_in_an_enqueue_makes_one_message(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let prepare = async |_: &str| ();
    let call = async |id: &str, ()| store.enqueue(vec![new(id)]).await;
    let check = async |id: &str, (), answered: Result<Vec<Enqueued>, StoreError>| {
        let told = answered.is_ok_and(|enqueued| {
            assert!(enqueued.len() == 1 && enqueued[0].created, "{id}: nobody else made it: {enqueued:?}");
            true
        });
        let again = store.enqueue(vec![new(id)]).await.expect("the store answers");
        assert!(!told || !again[0].created, "{id}: it was made twice");
        let there = entry(&*store, id).await;
        assert_eq!((there.state, there.attempts), (MessageState::Pending, 0), "{id}");
        goes_out(&*store, id).await;
        succeeded(&*store, id).await;
    };
    everywhere(subject, "msg", prepare, call, check).await;
}

/// One transaction holds all of a batch.
pub async fn a_connection_lost_anywhere_in_a_batch_enqueues_all_of_it_or_none(subject: &dyn FaultySubject) {
    let store = subject.store();
    shop(&*store).await;
    let batch = |id: &str| [1, 2, 3].map(|number| format!("{id}_{number}"));
    let prepare = async |_: &str| ();
    let call = async |id: &str, ()| store.enqueue(batch(id).iter().map(|id| new(id)).collect()).await;
    let check = async |id: &str, (), answered: Result<Vec<Enqueued>, StoreError>| {
        let mut there = 0;
        for id in batch(id) {
            there += usize::from(found(&*store, &id).await.is_some());
        }
        assert!(there == 3 || answered.is_err() && there == 0, "{id}: {there} of 3");
        let again = store.enqueue(batch(id).iter().map(|id| new(id)).collect()).await.expect("the store answers");
        assert!(again.iter().all(|enqueued| enqueued.created == (there == 0)), "{id}: {again:?}");
        for claimed in claim_exactly(&*store, 3).await {
            settle(&*store, &claimed.lease, delivered()).await;
        }
    };
    everywhere(subject, "msg", prepare, call, check).await;
}

/// Everybody who wants it gets it, and gets it once.
pub async fn a_connection_lost_anywhere_in_a_publish_makes_one_message_for_each_endpoint(subject: &dyn FaultySubject) {
    const ENDPOINTS: [&str; 2] = ["desk", "shop"];
    let store = subject.store();
    for endpoint in ENDPOINTS {
        let mut endpoint = Endpoint::new(name(endpoint), "https://example.com/hooks");
        endpoint.types = vec![TypePattern::new("order.*").expect("a pattern")];
        store.put_endpoint(endpoint).await.expect("the store answers");
    }
    let prepare = async |_: &str| ();
    let call = async |id: &str, ()| store.publish(message(id)).await;
    let check = async |id: &str, (), answered: Result<Vec<Enqueued>, StoreError>| {
        if let Ok(published) = &answered {
            assert!(published.len() == 2 && published.iter().all(|enqueued| enqueued.created), "{id}: {published:?}");
        }
        let again = store.publish(message(id)).await.expect("the store answers");
        let names: Vec<&str> = again.iter().map(|enqueued| enqueued.endpoint.as_str()).collect();
        assert_eq!(names, ENDPOINTS, "{id}");
        assert!(answered.is_err() || again.iter().all(|enqueued| !enqueued.created), "{id}: {again:?}");
        for claimed in claim_exactly(&*store, 2).await {
            settle(&*store, &claimed.lease, delivered()).await;
        }
        for endpoint in ENDPOINTS {
            let key = MessageKey { endpoint: name(endpoint), id: super::event_id(id) };
            let end = store.find_message(key).await.expect("the store answers").expect("it is there");
            assert_eq!((end.state, end.attempts), (MessageState::Succeeded, 1), "{id}");
        }
    };
    everywhere(subject, "msg", prepare, call, check).await;
}
