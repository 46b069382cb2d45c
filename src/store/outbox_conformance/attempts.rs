//! What is noted of attempts.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::{SECOND, Subject, claim_one, dead, delivered, enqueue, entry, message, queue, replayed, settle, to};
use crate::store::conformance::{BODIES, odd_headers};
use crate::store::{Attempt, AttemptReport, Fate, MessageFilter, Settlement};

/// An attempt is noted with all that its sender tells, byte for byte.
pub async fn an_attempt_is_noted_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &[]).await;
    for (number, body) in BODIES.into_iter().enumerate() {
        let id = format!("msg_{number}");
        enqueue(&*store, vec![to("shop", message(&id))]).await;
        let report = AttemptReport {
            took: Duration::from_micros(1_234_567),
            status: StatusCode::from_u16(299).ok(),
            headers: odd_headers(),
            body: body.into(),
            error: Some("é 😀 \"'\\\n\t".into()),
            kind: Some("policy".into()),
        };
        settle(&*store, &claim_one(&*store).await, Settlement::new(Fate::Dead("no".into()), report.clone())).await;
        let end = entry(&*store, "shop", &id).await;
        let noted = &end.attempt_log[0];
        assert_eq!(noted, &Attempt { replay: 0, number: 1, at: end.updated, report });
        let order: Vec<_> = noted.report.headers.iter().collect();
        assert_eq!(order, odd_headers().iter().collect::<Vec<_>>());
    }
}

/// Nothing said is nothing noted: an empty report comes back empty.
pub async fn a_report_may_be_empty(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, Settlement::new(Fate::Delivered, AttemptReport::default())).await;
    let end = entry(&*store, "shop", "msg_1").await;
    assert_eq!(end.attempt_log[0].report, AttemptReport::default());
    assert_eq!((end.last_status, end.last_error), (None, None));
}

/// A text for people is bounded, and stays text; the beginning of a body is its beginning.
pub async fn what_is_noted_of_an_attempt_is_bounded(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let fits = "x".repeat(AttemptReport::MAX_ERROR_BYTES - 1);
    let body: Vec<u8> = (0..AttemptReport::MAX_BODY_BYTES + 9).map(|n| n.to_le_bytes()[0]).collect();
    let report = AttemptReport {
        took: Duration::from_nanos(1_999),
        body: body.clone().into(),
        error: Some(format!("{fits}é and more")),
        kind: Some("a\0b".into()),
        ..AttemptReport::default()
    };
    let fate = Fate::Dead(format!("{fits}é"));
    settle(&*store, &claim_one(&*store).await, Settlement::new(fate, report)).await;
    let end = entry(&*store, "shop", "msg_1").await;
    assert_eq!((end.reason.as_deref(), end.last_error.as_deref()), (Some(&*fits), Some(&*fits)));
    let noted = &end.attempt_log[0].report;
    assert_eq!(noted.body, Bytes::from(body).slice(..AttemptReport::MAX_BODY_BYTES));
    assert_eq!(noted.error.as_deref(), Some(&*fits));
    assert_eq!(noted.kind.as_deref(), Some("a\u{fffd}b"), "not every database can hold NUL in text");
    assert_eq!(noted.took, Duration::from_micros(1), "whole microseconds");
}

/// The last attempts are remembered; the first ones of very many are not.
pub async fn the_log_of_attempts_is_bounded(subject: &dyn Subject) {
    const MORE: usize = 3;
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    let again = || Settlement::new(Fate::Again { after: Duration::ZERO, counts: false }, super::report(409, "busy"));
    for number in 0..Attempt::MAX_KEPT + MORE {
        let mut settlement = again();
        settlement.report.error = Some(format!("attempt {number}"));
        settle(&*store, &claim_one(&*store).await, settlement).await;
    }
    let log = entry(&*store, "shop", "msg_1").await.attempt_log;
    let noted: Vec<_> = log.iter().filter_map(|attempt| attempt.report.error.clone()).collect();
    let expected: Vec<_> = (MORE..Attempt::MAX_KEPT + MORE).map(|number| format!("attempt {number}")).collect();
    assert_eq!(noted, expected);
}

/// The attempts before a replay and those after it are told apart.
pub async fn attempts_say_after_which_replay_they_were_made(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    settle(&*store, &claim_one(&*store).await, super::again(SECOND)).await;
    subject.advance(SECOND).await;
    settle(&*store, &claim_one(&*store).await, dead("no")).await;
    for _ in 0..2 {
        assert_eq!(replayed(&*store, MessageFilter::default()).await.len(), 1);
        settle(&*store, &claim_one(&*store).await, dead("no")).await;
    }
    assert_eq!(replayed(&*store, MessageFilter::default()).await.len(), 1);
    settle(&*store, &claim_one(&*store).await, delivered()).await;
    let log = entry(&*store, "shop", "msg_1").await.attempt_log;
    let numbers: Vec<_> = log.iter().map(|attempt| (attempt.replay, attempt.number)).collect();
    assert_eq!(numbers, [(0, 1), (0, 2), (1, 1), (2, 1), (3, 1)]);
    assert!(log.is_sorted_by_key(|attempt| attempt.at));
}
