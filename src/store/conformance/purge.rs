//! What ages, and what does not (C071).

use std::time::Duration;

use http::StatusCode;

use super::{SECOND, Subject, acquire, answer, complete, fail, failure, key, receipt, request, reserved};
use crate::store::{Failure, InboxStore, ListFilter, Purged, ReceiptState, Reserved, ResultBody, Retention, Settled};

const RETENTION: Retention = Retention { results: Duration::from_secs(100), keys: Duration::from_secs(1_000) };

/// The two ages: first the body goes, later the key, and then the event is a first one.
pub async fn purge_takes_bodies_before_keys(subject: &dyn Subject) {
    let store = subject.store();
    succeed(&*store, "evt_1").await;
    subject.advance(RETENTION.results - SECOND).await;
    assert_eq!(purge(&*store, 10).await, (0, 0));
    subject.advance(SECOND).await;
    assert_eq!(purge(&*store, 10).await, (1, 0));
    assert_eq!(purge(&*store, 10).await, (0, 0), "it has no body any more");

    let Reserved::Succeeded(repeat) = reserved(&*store, request("evt_1")).await else { panic!("it is still done") };
    let result = repeat.result.expect("its status is kept");
    assert_eq!((result.status, result.body), (StatusCode::OK, ResultBody::Omitted));

    subject.advance(RETENTION.keys - RETENTION.results - SECOND).await;
    assert_eq!(purge(&*store, 10).await, (0, 0));
    subject.advance(SECOND).await;
    assert_eq!(purge(&*store, 10).await, (0, 1));
    assert_eq!(acquire(&*store, request("evt_1")).await.attempt, 1);
}

/// Unfinished work and dead letters wait for somebody, however long.
pub async fn purge_never_touches_what_has_no_end(subject: &dyn Subject) {
    let store = subject.store();
    let _lapsed = acquire(&*store, request("evt_1")).await;
    let lease = acquire(&*store, request("evt_2")).await;
    let refused = answer(StatusCode::UNPROCESSABLE_ENTITY, b"no");
    let dead = Failure { result: Some(refused.clone()), dead: Some("permanent".into()), ..failure("refused") };
    assert_eq!(fail(&*store, lease, dead).await, Settled::Done);

    subject.advance(10 * RETENTION.keys).await;
    let _held = acquire(&*store, request("evt_3")).await;
    assert_eq!(purge(&*store, 10).await, (0, 0));
    assert_eq!(receipt(&*store, "evt_1").await.state, ReceiptState::Processing);
    assert_eq!(receipt(&*store, "evt_2").await.result, Some(refused));
    assert_eq!(receipt(&*store, "evt_3").await.state, ReceiptState::Processing);
}

/// A failed event is remembered for as long as a done one: its sender has given up by then.
pub async fn purge_takes_failed_receipts_by_their_last_failure(subject: &dyn Subject) {
    let store = subject.store();
    let lease = acquire(&*store, request("evt_1")).await;
    assert_eq!(fail(&*store, lease, failure("down")).await, Settled::Done);
    subject.advance(RETENTION.keys - SECOND).await;
    let lease = acquire(&*store, request("evt_1")).await;
    let down = Failure { result: Some(answer(StatusCode::BAD_GATEWAY, b"down")), ..failure("down") };
    assert_eq!(fail(&*store, lease, down).await, Settled::Done);
    subject.advance(RETENTION.keys - SECOND).await;
    assert_eq!(purge(&*store, 10).await, (1, 0));
    assert_eq!(receipt(&*store, "evt_1").await.failures.len(), 2);
    subject.advance(SECOND).await;
    assert_eq!(purge(&*store, 10).await, (0, 1));
    assert_eq!(store.find(key("evt_1")).await.expect("the store answers"), None);
}

/// One call is bounded, and what is oldest goes first.
pub async fn purge_keeps_to_its_limit_and_takes_the_oldest(subject: &dyn Subject) {
    let store = subject.store();
    for number in 0..7 {
        let id = format!("evt_{number}");
        if number % 2 == 0 {
            succeed(&*store, &id).await;
        } else {
            let lease = acquire(&*store, request(&id)).await;
            let down = Failure { result: Some(answer(StatusCode::BAD_GATEWAY, b"down")), ..failure("down") };
            assert_eq!(fail(&*store, lease, down).await, Settled::Done);
        }
        subject.advance(SECOND).await;
    }
    subject.advance(RETENTION.keys).await;
    assert_eq!(purge(&*store, 0).await, (0, 0));
    assert_eq!(purge(&*store, 3).await, (3, 3), "three keys, and the bodies of the next three");
    let left = store.list(ListFilter::default()).await.expect("the store answers");
    let left: Vec<&str> = left.iter().map(|receipt| receipt.key.key.as_str()).collect();
    assert_eq!(left, ["evt_6", "evt_5", "evt_4", "evt_3"]);
    assert_eq!(purge(&*store, 3).await, (1, 3));
    assert_eq!(purge(&*store, 3).await, (0, 1));
    assert_eq!(purge(&*store, 3).await, (0, 0));
}

async fn succeed(store: &dyn InboxStore, id: &str) {
    let lease = acquire(store, request(id)).await;
    assert_eq!(lease.attempt, 1);
    assert_eq!(complete(store, lease, answer(StatusCode::OK, b"done")).await, Settled::Done);
}

async fn purge(store: &dyn InboxStore, limit: u32) -> (u64, u64) {
    let Purged { results, keys } = store.purge(RETENTION, limit).await.expect("the store answers");
    (results, keys)
}
