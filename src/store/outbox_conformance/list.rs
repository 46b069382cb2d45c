//! What an operator sees, and what a dispatcher waits for.

use std::time::Duration;

use super::{
    SECOND, Subject, again, claim_all, claim_one, dead, delivered, endpoint, enqueue, entry, event_id, message, name,
    ordered, put, queue, renew, settle, to,
};
use crate::store::{EndpointNews, Enqueue, Message, MessageFilter, MessageState, OutboxStore, Settlement};

/// What changed last is shown first; renewing a lease is no change.
pub async fn a_list_of_messages_shows_what_changed_last_first(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for id in ["msg_1", "msg_2", "msg_3"] {
        enqueue(&*store, vec![to("shop", message(id))]).await;
        subject.advance(SECOND).await;
    }
    assert_eq!(listed(&*store, MessageFilter::default()).await, ["msg_3", "msg_2", "msg_1"]);
    let first = claim_one(&*store).await;
    assert_eq!(listed(&*store, MessageFilter::default()).await, ["msg_1", "msg_3", "msg_2"]);
    subject.advance(SECOND).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    subject.advance(SECOND).await;
    renew(&*store, &first).await;
    assert_eq!(listed(&*store, MessageFilter::default()).await, ["msg_2", "msg_1", "msg_3"]);
    assert_eq!(listed(&*store, MessageFilter { limit: 2, ..MessageFilter::default() }).await, ["msg_2", "msg_1"]);
    assert!(listed(&*store, MessageFilter { limit: 0, ..MessageFilter::default() }).await.is_empty());
}

/// Of those that changed at one time the one that was enqueued last is shown first.
pub async fn a_batch_is_listed_the_last_one_first(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    assert_eq!(listed(&*store, MessageFilter::default()).await, ["msg_3", "msg_2", "msg_1"]);
}

/// Page by page each one is met once, those that changed at one time too; what changes meanwhile is not met again.
pub async fn a_list_of_messages_goes_on_where_its_page_ended(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    subject.advance(SECOND).await;
    enqueue(&*store, vec![to("shop", message("msg_4")), to("shop", message("msg_5"))]).await;
    subject.advance(SECOND).await;
    let all = MessageFilter::default();
    let of_shop = MessageFilter { endpoint: Some(name("shop")), ..all.clone() };
    for filter in [all.clone(), of_shop] {
        for limit in [1, 2, 5, 6] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let filter = MessageFilter { limit, ..filter.clone() };
                let page = store.page_messages(filter, after).await.expect("the store answers");
                seen.extend(page.rows.into_iter().map(|entry| entry.message.id.as_str().to_owned()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, ["msg_5", "msg_4", "msg_3", "msg_2", "msg_1"], "{limit} at a time");
        }
    }
    let first = store.page_messages(MessageFilter { limit: 2, ..all.clone() }, None).await.expect("the store answers");
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    let rest = store.page_messages(all.clone(), first.next).await.expect("the store answers");
    assert_eq!((rest.rows.len(), rest.next), (2, None), "one has moved to the front");
    let before = MessageFilter { updated_before: Some(first.rows[1].updated), ..all };
    let older = store.page_messages(before, None).await.expect("the store answers");
    assert_eq!(older.rows.len(), 2);
}

/// Each condition narrows the list, and all of them together.
pub async fn a_list_of_messages_can_be_narrowed(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    subject.advance(SECOND).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    subject.advance(SECOND).await;
    put(&*store, endpoint("desk")).await;
    let other = Message { event_type: name("user.made"), ..message("msg_2") };
    for message in [message("msg_1"), other] {
        enqueue(&*store, vec![to("desk", message)]).await;
        subject.advance(SECOND).await;
    }
    let all = MessageFilter::default();
    let of_desk = MessageFilter { endpoint: Some(name("desk")), ..all.clone() };
    let of_one = MessageFilter { id: Some(event_id("msg_1")), ..all.clone() };
    let of_type = MessageFilter { event_type: Some(name("order.paid")), ..all.clone() };
    let dead = MessageFilter { state: Some(MessageState::DeadLetter), ..all };
    for (filter, expected) in [
        (of_desk.clone(), &["msg_2", "msg_1"][..]),
        (of_one.clone(), &["msg_1", "msg_1"]),
        (of_type.clone(), &["msg_1", "msg_1"]),
        (MessageFilter { event_type: Some(name("Order.paid")), ..of_type.clone() }, &[]),
        (dead.clone(), &["msg_1"]),
        (MessageFilter { state: dead.state, ..of_desk.clone() }, &[]),
        (MessageFilter { id: of_one.id, event_type: of_type.event_type, limit: 1, ..of_desk }, &["msg_1"]),
    ] {
        assert_eq!(listed(&*store, filter.clone()).await, expected, "{filter:?}");
    }
}

/// What belongs together is found by its correlation id, page by page, beside what belongs elsewhere or to nothing; and it alone is
/// taken back and replayed.
pub async fn messages_that_belong_together_are_found_by_it(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    put(&*store, endpoint("desk")).await;
    let of = |id: &str, flow: &str| Message { correlation_id: Some(name(flow)), ..message(id) };
    for (endpoint, message) in [
        ("shop", of("msg_1", "order-7")),
        ("shop", message("msg_2")),
        ("desk", of("msg_3", "order-7")),
        ("shop", of("msg_4", "Order-7")),
        ("shop", of("msg_5", "order-7")),
        ("desk", of("order-7", "order-8")),
    ] {
        enqueue(&*store, vec![to(endpoint, message)]).await;
        subject.advance(SECOND).await;
    }
    let together = MessageFilter { correlation_id: Some(name("order-7")), ..MessageFilter::default() };
    let to_shop = MessageFilter { endpoint: Some(name("shop")), ..together.clone() };
    for (filter, expected) in [
        (together.clone(), &["msg_5", "msg_3", "msg_1"][..]),
        (to_shop.clone(), &["msg_5", "msg_1"]),
        (MessageFilter { id: Some(event_id("msg_3")), ..together.clone() }, &["msg_3"]),
        (MessageFilter { id: Some(event_id("msg_2")), ..together.clone() }, &[]),
        (MessageFilter { state: Some(MessageState::Succeeded), ..together.clone() }, &[]),
        (MessageFilter { event_type: Some(name("user.made")), ..together.clone() }, &[]),
        (MessageFilter { correlation_id: Some(name("order-9")), ..together.clone() }, &[]),
    ] {
        assert_eq!(listed(&*store, filter.clone()).await, expected, "{filter:?}");
    }
    let first = MessageFilter { limit: 2, ..together.clone() };
    let first = store.page_messages(first, None).await.expect("the store answers");
    let rest = store.page_messages(together.clone(), first.next).await.expect("the store answers");
    assert_eq!((first.rows.len(), rest.rows.len(), rest.next), (2, 1, None));

    let cancelled = store.cancel(to_shop).await.expect("the store answers");
    assert_eq!(cancelled.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["msg_1", "msg_5"]);
    for _ in 0..4 {
        settle(&*store, &claim_one(&*store).await, dead("no")).await;
    }
    let replayed = store.replay(together, Duration::ZERO).await.expect("the store answers");
    assert_eq!(replayed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["msg_3"]);
}

/// A list is short of what may be long; everything else is as `find_message` shows it.
pub async fn a_list_of_messages_shows_no_payloads_and_no_attempts(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    let mut expected = entry(&*store, "shop", "msg_1").await;
    assert_eq!((expected.message.payload.len(), expected.attempt_log.len()), (super::BODY.len(), 1));
    expected.message.payload.clear();
    expected.attempt_log.clear();
    assert_eq!(store.list_messages(MessageFilter::default()).await.expect("the store answers"), [expected]);
}

/// A dispatcher knows how long it may sleep.
pub async fn the_next_due_time_is_that_of_the_first_to_fall_due(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let next = async || store.next_due().await.expect("the store answers");
    assert_eq!(next().await, None);
    enqueue(&*store, vec![Enqueue { delay: 50 * SECOND, ..to("shop", message("late")) }]).await;
    near(next().await, 50);
    enqueue(&*store, vec![to("shop", message("now"))]).await;
    assert_eq!(next().await, Some(Duration::ZERO));
    let running = claim_one(&*store).await;
    near(next().await, 50);
    subject.advance(30 * SECOND).await;
    near(next().await, 20);
    settle(&*store, &running, again(5 * SECOND)).await;
    near(next().await, 5);
    subject.advance(60 * SECOND).await;
    assert_eq!(next().await, Some(Duration::ZERO));
    for claimed in claim_all(&*store).await {
        near(next().await, 60);
        settle(&*store, &claimed, dead("no")).await;
    }
    assert_eq!(next().await, None);
}

/// Of a disabled endpoint nothing is due; of a paused one when the pause is over.
pub async fn the_next_due_time_heeds_pauses_and_disabled_endpoints(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let next = async || store.next_due().await.expect("the store answers");
    let news = EndpointNews { pause: Some(40 * SECOND), ..EndpointNews::default() };
    settle(&*store, &claim_one(&*store).await, Settlement { endpoint: news, ..again(SECOND) }).await;
    near(next().await, 40);
    queue(&*store, "desk", &["msg_1"]).await;
    assert_eq!(next().await, Some(Duration::ZERO));
    assert!(store.disable_endpoint(name("desk"), Some("closed".into())).await.expect("the store answers"));
    near(next().await, 40);
    assert!(store.disable_endpoint(name("shop"), Some("closed".into())).await.expect("the store answers"));
    assert_eq!(next().await, None);
}

/// What is held up by its ordering key is not waited for.
pub async fn the_next_due_time_is_not_that_of_what_is_held_up(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    enqueue(&*store, vec![to("shop", ordered("msg_1", "a")), to("shop", ordered("msg_2", "a"))]).await;
    let next = async || store.next_due().await.expect("the store answers");
    let head = claim_one(&*store).await;
    assert!(claim_all(&*store).await.is_empty());
    near(next().await, 60);
    settle(&*store, &head, again(30 * SECOND)).await;
    assert!(claim_all(&*store).await.is_empty());
    near(next().await, 30);
    subject.advance(30 * SECOND).await;
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    assert_eq!(next().await, Some(Duration::ZERO));
}

/// How long the longest due message of each endpoint has been due. A pause does not hide it; nothing is due of an endpoint
/// that is disabled, nor what is being delivered, nor what waits behind another one.
pub async fn the_longest_due_message_of_each_endpoint_says_how_far_dispatchers_are_behind(subject: &dyn Subject) {
    let store = subject.store();
    let behind = async || store.oldest_due_messages().await.expect("the store answers");
    queue(&*store, "shop", &[]).await;
    assert_eq!(behind().await, []);
    enqueue(&*store, vec![Enqueue { delay: 50 * SECOND, ..to("shop", message("late")) }]).await;
    assert_eq!(behind().await, []);
    enqueue(&*store, vec![to("shop", message("msg_1"))]).await;
    subject.advance(20 * SECOND).await;
    queue(&*store, "desk", &["msg_1"]).await;
    subject.advance(10 * SECOND).await;
    let [desk, shop] = &*behind().await else { panic!("two are behind") };
    assert_eq!((desk.0.as_str(), shop.0.as_str()), ("desk", "shop"));
    behind_by(desk.1, 10);
    behind_by(shop.1, 30);

    let news = EndpointNews { pause: Some(600 * SECOND), ..EndpointNews::default() };
    for claimed in claim_all(&*store).await {
        assert_eq!(behind().await.len(), 0);
        settle(&*store, &claimed, Settlement { endpoint: news.clone(), ..again(5 * SECOND) }).await;
    }
    subject.advance(15 * SECOND).await;
    assert_eq!(behind().await.len(), 2);
    assert!(store.disable_endpoint(name("desk"), Some("closed".into())).await.expect("the store answers"));
    let [shop] = &*behind().await else { panic!("one is behind") };
    behind_by(shop.1, 10);
}

/// Whoever goes through all messages meets each of them, also those that change meanwhile.
pub async fn all_message_keys_are_there_once_in_the_order_in_which_they_came(subject: &dyn Subject) {
    let store = subject.store();
    let none = store.message_keys(0, 10).await.expect("the store answers");
    assert_eq!((none.keys, none.next), (Vec::new(), None));
    let ids = ["msg_1", "msg_2", "msg_3", "msg_4", "msg_5"];
    queue(&*store, "shop", &ids).await;
    let (mut met, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let stretch = store.message_keys(start, 2).await.expect("the store answers");
        met.extend(stretch.keys);
        from = stretch.next;
        settle(&*store, &claim_one(&*store).await, dead("no")).await;
    }
    let met: Vec<_> = met.iter().map(|key| (key.endpoint.as_str(), key.id.as_str())).collect();
    assert_eq!(met, ids.map(|id| ("shop", id)));
}

/// So many seconds, and those that the clock of a server went on by itself.
fn behind_by(span: Duration, seconds: u32) {
    let expected = seconds * SECOND;
    assert!(span >= expected && span < expected + 10 * SECOND, "{span:?} is not {expected:?}");
}

/// So many seconds, but for those that the clock of a server went on by itself.
fn near(next: Option<Duration>, seconds: u32) {
    let next = next.expect("something waits");
    let expected = seconds * SECOND;
    assert!(next <= expected && next + 10 * SECOND > expected, "{next:?} is not {expected:?}");
}

async fn listed(store: &dyn OutboxStore, filter: MessageFilter) -> Vec<String> {
    let listed = store.list_messages(filter).await.expect("the store answers");
    listed.iter().map(|entry| entry.message.id.as_str().to_owned()).collect()
}
