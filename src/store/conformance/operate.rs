//! What an operator sees and does.

use http::StatusCode;

use super::{
    LEASE, SECOND, Subject, accept, accepted, acquire, answer, claim, claim_one, complete, event_id, fail, failure,
    key, name, receipt, request,
};
use crate::store::{
    Accept, Failure, InboxStore, KeptRequest, Lease, ListFilter, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved,
    ResultBody, Settled, StoredResult,
};
use crate::{DedupKey, Digest};

/// C070: a way to run a finished event again.
pub async fn a_forgotten_event_is_a_first_one(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);

    assert!(store.forget(key("evt_1")).await.expect("the store answers"));
    assert_eq!(store.find(key("evt_1")).await.expect("the store answers"), None);
    assert!(!store.forget(key("evt_1")).await.expect("the store answers"));

    assert_eq!(acquire(&*store, request("evt_1")).await.attempt, 1);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!((receipt.failures.len(), receipt.result), (0, None));
}

/// C070: an operator gives a dead letter another chance.
pub async fn a_dead_letter_that_is_retried_has_all_its_attempts_again(subject: &dyn Subject) {
    let store = subject.store();
    let asked = Reserve { max_attempts: 2, ..request("evt_1") };
    let lease = acquire(&*store, asked.clone()).await;
    let dead = Failure { dead: Some("permanent".into()), ..failure("refused") };
    assert_eq!(fail(&*store, lease, dead).await, Settled::Done);
    subject.advance(SECOND).await;
    assert_eq!(store.retry(key("evt_1")).await.expect("the store answers"), Some(ReceiptState::Failed));

    let retried = receipt(&*store, "evt_1").await;
    assert_eq!((retried.state, retried.attempts, retried.reason), (ReceiptState::Failed, 0, None));
    assert_eq!(retried.error.as_deref(), Some("refused"));
    assert!(retried.updated > retried.first_seen);
    for attempt in 1..=2 {
        let lease = acquire(&*store, asked.clone()).await;
        assert_eq!(lease.attempt, attempt);
        assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    }
    assert_eq!(receipt(&*store, "evt_1").await.failures.len(), 3);
}

/// Only a dead letter needs another chance.
pub async fn retry_leaves_every_other_state_alone(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(store.retry(key("evt_0")).await.expect("the store answers"), None);
    let _held = acquire(&*store, request("evt_1")).await;
    let failed = acquire(&*store, request("evt_2")).await;
    let done = acquire(&*store, request("evt_3")).await;
    assert_eq!(fail(&*store, failed, failure("down")).await, Settled::Done);
    assert_eq!(complete(&*store, done, answer(StatusCode::OK, b"done")).await, Settled::Done);
    let states = [ReceiptState::Processing, ReceiptState::Failed, ReceiptState::Succeeded];
    for (id, state) in ["evt_1", "evt_2", "evt_3"].into_iter().zip(states) {
        let before = receipt(&*store, id).await;
        assert_eq!(store.retry(key(id)).await.expect("the store answers"), Some(state));
        assert_eq!(receipt(&*store, id).await, before);
    }
}

/// An operator has seen to it that it had its effect: it is done, without another run, and its history stays.
pub async fn a_dead_letter_that_is_concluded_has_succeeded_without_a_run(subject: &dyn Subject) {
    let store = subject.store();
    accept(&*store, accepted("evt_1")).await;
    let lease = claim_one(&*store).await.lease;
    let dead =
        Failure { dead: Some("unclear".into()), result: Some(answer(StatusCode::BAD_GATEWAY, b"?")), ..failure("?") };
    assert_eq!(fail(&*store, lease.clone(), dead).await, Settled::Done);
    subject.advance(SECOND).await;
    for _ in 0..2 {
        let concluded = store.conclude(key("evt_1")).await.expect("the store answers");
        assert_eq!(concluded, Some(ReceiptState::Succeeded));
    }

    let done = receipt(&*store, "evt_1").await;
    assert_eq!(
        (done.state, done.attempts, done.due, done.reason, done.error),
        (ReceiptState::Succeeded, 1, None, None, None)
    );
    assert!(done.request.is_none() && done.updated > done.first_seen);
    assert_eq!(done.failures.len(), 1);
    let result = Some(answer(StatusCode::OK, b""));
    let result = result.map(|result| StoredResult { headers: http::HeaderMap::new(), ..result });
    assert_eq!(done.result, result);
    let repeat = store.reserve(request("evt_1")).await.expect("the store answers");
    assert_eq!(repeat, Reserved::Succeeded(Repeat { result, same_body: true }));
    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"late")).await, Settled::LeaseLost);
    assert!(claim(&*store, 9).await.is_empty());
}

/// What may still run is not an operator's to end.
pub async fn conclude_leaves_every_other_state_alone(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(store.conclude(key("evt_0")).await.expect("the store answers"), None);
    let _held = acquire(&*store, request("evt_1")).await;
    let failed = acquire(&*store, request("evt_2")).await;
    let done = acquire(&*store, request("evt_3")).await;
    assert_eq!(fail(&*store, failed, failure("down")).await, Settled::Done);
    assert_eq!(complete(&*store, done, answer(StatusCode::OK, b"done")).await, Settled::Done);
    accept(&*store, accepted("evt_4")).await;
    let states = [ReceiptState::Processing, ReceiptState::Failed, ReceiptState::Succeeded, ReceiptState::Received];
    for (id, state) in ["evt_1", "evt_2", "evt_3", "evt_4"].into_iter().zip(states) {
        let before = receipt(&*store, id).await;
        assert_eq!(store.conclude(key(id)).await.expect("the store answers"), Some(state));
        assert_eq!(receipt(&*store, id).await, before);
    }
}

/// A key that was never reserved has no receipt.
pub async fn nothing_is_found_where_nothing_was_reserved(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(store.find(key("evt_1")).await.expect("the store answers"), None);
    assert_eq!(listed(&*store, ListFilter::default()).await, Vec::<String>::new());
}

/// What moved last is what an operator looks for.
pub async fn a_list_shows_what_changed_last_first(subject: &dyn Subject) {
    let store = subject.store();
    let mut leases = Vec::new();
    for id in ["evt_1", "evt_2", "evt_3", "evt_4"] {
        leases.push(acquire(&*store, request(id)).await);
        subject.advance(SECOND).await;
    }
    let done = answer(StatusCode::OK, b"done");
    assert_eq!(complete(&*store, leases[1].clone(), done).await, Settled::Done);
    subject.advance(SECOND).await;
    assert_eq!(fail(&*store, leases[0].clone(), failure("down")).await, Settled::Done);
    subject.advance(SECOND).await;
    assert_eq!(store.renew(leases[2].clone(), LEASE).await.expect("the store answers"), Settled::Done);
    assert_eq!(listed(&*store, ListFilter::default()).await, ["evt_1", "evt_2", "evt_4", "evt_3"]);
    assert_eq!(listed(&*store, ListFilter { limit: 2, ..ListFilter::default() }).await, ["evt_1", "evt_2"]);
    assert!(listed(&*store, ListFilter { limit: 0, ..ListFilter::default() }).await.is_empty());
}

/// Every part of a filter narrows, and all of them together.
pub async fn a_list_can_be_narrowed(subject: &dyn Subject) {
    let store = subject.store();
    let digest = DedupKey::from_digest(&Digest::of(b"body"));
    let rows = [
        ("a", "x", DedupKey::from_id(&event_id("evt_1")), Some("evt_1")),
        ("a", "y", DedupKey::from_id(&event_id("evt_1")), Some("evt_1")),
        ("b", "x", digest.clone(), Some("evt_1")),
        ("b", "y", digest.clone(), None),
    ];
    let mut leases: Vec<Lease> = Vec::new();
    for (consumer, source, key, id) in rows {
        let key = ReceiptKey { consumer: name(consumer), source: name(source), key };
        let asked = Reserve { key, event_id: id.map(event_id), ..request("evt_1") };
        leases.push(acquire(&*store, asked).await);
        subject.advance(SECOND).await;
    }
    let all = ListFilter::default();
    let count = async |filter: ListFilter| listed(&*store, filter).await.len();
    assert_eq!(count(all.clone()).await, 4);
    assert_eq!(count(ListFilter { consumer: Some(name("a")), ..all.clone() }).await, 2);
    assert_eq!(count(ListFilter { source: Some(name("y")), ..all.clone() }).await, 2);
    assert_eq!(count(ListFilter { key: Some(digest), ..all.clone() }).await, 2);
    let by_id = ListFilter { key: Some(DedupKey::from_id(&event_id("evt_1"))), ..all.clone() };
    assert_eq!(count(by_id.clone()).await, 3, "the key, or the event's id");
    assert_eq!(count(ListFilter { limit: 2, ..by_id.clone() }).await, 2);
    assert_eq!(count(ListFilter { consumer: Some(name("b")), source: Some(name("x")), ..by_id.clone() }).await, 1);
    assert_eq!(count(ListFilter { consumer: Some(name("A")), ..all.clone() }).await, 0);

    assert_eq!(complete(&*store, leases[0].clone(), answer(StatusCode::OK, b"done")).await, Settled::Done);
    let dead = Failure { dead: Some("permanent".into()), ..failure("refused") };
    assert_eq!(fail(&*store, leases[1].clone(), dead).await, Settled::Done);
    assert_eq!(fail(&*store, leases[2].clone(), failure("down")).await, Settled::Done);
    for state in [ReceiptState::Succeeded, ReceiptState::DeadLetter, ReceiptState::Failed, ReceiptState::Processing] {
        let found = store.list(ListFilter { state: Some(state), ..all.clone() }).await.expect("the store answers");
        assert_eq!(found.iter().map(|receipt| receipt.state).collect::<Vec<_>>(), [state]);
    }
    assert_eq!(count(ListFilter { state: Some(ReceiptState::Succeeded), ..by_id.clone() }).await, 1);
    assert_eq!(count(ListFilter { state: Some(ReceiptState::Received), ..all }).await, 0);
}

/// What belongs together is found by its correlation id, page by page, beside what belongs elsewhere or to nothing. It is what the
/// first delivery said, whatever later ones say.
pub async fn events_that_belong_together_are_found_by_it(subject: &dyn Subject) {
    let store = subject.store();
    let flow = |id: &str| Some(name(id));
    for (id, correlation_id) in [("evt_1", flow("order-7")), ("evt_2", None), ("evt_3", flow("Order-7"))] {
        acquire(&*store, Reserve { correlation_id, ..request(id) }).await;
        subject.advance(SECOND).await;
    }
    let lease = acquire(&*store, Reserve { correlation_id: flow("order-7"), ..request("evt_4") }).await;
    for (id, correlation_id) in [("evt_5", flow("order-7")), ("order-7", flow("order-8")), ("evt_6", None)] {
        subject.advance(SECOND).await;
        accept(&*store, Accept { correlation_id, ..accepted(id) }).await;
    }
    for correlation_id in [None, flow("order-9")] {
        let again = Reserve { correlation_id: correlation_id.clone(), ..request("evt_1") };
        assert!(!matches!(store.reserve(again).await.expect("the store answers"), Reserved::Acquired(_)));
        store.accept(Accept { correlation_id, ..accepted("evt_5") }).await.expect("the store answers");
    }
    let together = ListFilter { correlation_id: flow("order-7"), ..ListFilter::default() };
    let key = |id: &str| Some(DedupKey::from_id(&event_id(id)));
    for (filter, expected) in [
        (together.clone(), &["evt_5", "evt_4", "evt_1"][..]),
        (ListFilter { state: Some(ReceiptState::Received), ..together.clone() }, &["evt_5"]),
        (ListFilter { key: key("evt_4"), ..together.clone() }, &["evt_4"]),
        (ListFilter { key: key("evt_2"), ..together.clone() }, &[]),
        (ListFilter { consumer: Some(name("nobody")), ..together.clone() }, &[]),
        (ListFilter { correlation_id: flow("order-9"), ..ListFilter::default() }, &[]),
    ] {
        assert_eq!(listed(&*store, filter.clone()).await, expected, "{filter:?}");
    }
    let first = store.page(ListFilter { limit: 2, ..together.clone() }, None).await.expect("the store answers");
    let rest = store.page(together.clone(), first.next).await.expect("the store answers");
    assert_eq!((first.rows.len(), rest.rows.len(), rest.next), (2, 1, None));

    assert_eq!(complete(&*store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
    for (id, expected) in [("evt_1", flow("order-7")), ("evt_2", None), ("evt_4", flow("order-7"))] {
        assert_eq!(receipt(&*store, id).await.correlation_id, expected, "{id}");
    }
    assert_eq!(listed(&*store, together).await, ["evt_4", "evt_5", "evt_1"]);
}

/// Page by page each one is met once, those that changed at one time too; what changes meanwhile is not met again.
pub async fn a_list_goes_on_where_its_page_ended(subject: &dyn Subject) {
    let store = subject.store();
    let mut leases = Vec::new();
    for number in 0..7 {
        leases.push(acquire(&*store, request(&format!("evt_{number}"))).await);
        if number % 3 == 2 {
            subject.advance(SECOND).await;
        }
    }
    subject.advance(SECOND).await;
    let (all, of_shop) = (ListFilter::default(), ListFilter { source: Some(name("shop")), ..ListFilter::default() });
    let mut met = listed(&*store, all.clone()).await;
    for filter in [all, of_shop] {
        for limit in [1, 2, 3, 7, 8] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = store.page(ListFilter { limit, ..filter.clone() }, after).await.expect("the store answers");
                seen.extend(page.rows.into_iter().map(|receipt| receipt.key.key.as_str().to_owned()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, met, "{limit} at a time");
        }
        let first = store.page(ListFilter { limit: 3, ..filter.clone() }, None).await.expect("the store answers");
        let changed = leases.remove(0);
        assert_eq!(complete(&*store, changed.clone(), answer(StatusCode::OK, b"done")).await, Settled::Done);
        let rest = store.page(filter, first.next).await.expect("the store answers");
        assert!(rest.rows.iter().all(|receipt| receipt.key != changed.key), "it has moved to the front");
        met.retain(|key| key != changed.key.key.as_str());
        met.insert(0, changed.key.key.as_str().to_owned());
        subject.advance(SECOND).await;
    }
}

/// A list of many receipts stays small.
pub async fn a_list_shows_no_bodies(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    let kept = KeptRequest {
        method: http::Method::POST,
        target: "/".into(),
        headers: http::HeaderMap::new(),
        body: b"body".as_slice().into(),
        proof: "{}".into(),
    };
    let down = Failure { result: Some(answer(StatusCode::BAD_GATEWAY, b"down")), request: Some(kept), ..failure("x") };
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    let rows = store.list(ListFilter::default()).await.expect("the store answers");
    let mut whole = receipt(&*store, "evt_1").await;
    whole.failures.clear();
    whole.request = None;
    if let Some(result) = &mut whole.result {
        result.body = ResultBody::Omitted;
    }
    assert_eq!(rows, [whole]);
}

/// The check does not fail without a cause, nor leave anything behind.
pub async fn a_store_that_works_passes_its_check(subject: &dyn Subject) {
    let store = subject.store();
    store.check().await.expect("it works");
    store.check().await.expect("it still works");
    assert!(listed(&*store, ListFilter::default()).await.is_empty());
}

async fn listed(store: &dyn InboxStore, filter: ListFilter) -> Vec<String> {
    let rows = store.list(filter).await.expect("the store answers");
    rows.iter().map(|receipt| receipt.key.key.as_str().to_owned()).collect()
}

/// Whoever goes through all receipts meets each of them, also those that change meanwhile.
pub async fn all_keys_are_there_once_in_the_order_in_which_they_came(subject: &dyn Subject) {
    let store = subject.store();
    let none = store.keys(0, 10).await.expect("the store answers");
    assert_eq!((none.keys, none.next), (Vec::new(), None));
    let ids: Vec<String> = (0..5).map(|number| format!("evt_{number}")).collect();
    for id in &ids {
        acquire(&*store, request(id)).await;
    }
    let (mut met, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let stretch = store.keys(start, 2).await.expect("the store answers");
        assert!(stretch.keys.len() <= 2);
        met.extend(stretch.keys);
        from = stretch.next;
        // It changes, and is met nevertheless, and once.
        let new = acquire(&*store, request(&format!("evt_new_{}", met.len()))).await;
        assert_eq!(fail(&*store, new, failure("no")).await, Settled::Done);
        if met.len() > 20 {
            break;
        }
    }
    let met: Vec<_> = met.iter().map(|key| key.key.as_str()).take(ids.len()).collect();
    assert_eq!(met, ids);
}
