//! What every store promises, one function for each promise. For those who write a store.
//!
//! [`inbox_conformance_tests!`](crate::inbox_conformance_tests) makes one named test of each, so that a store shows at
//! a glance what it keeps and what it does not:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::clock::ManualClock;
//! use countersign::store::conformance::{Moved, Subject};
//! use countersign::store::{InboxStore, MemoryStore};
//! use countersign::Timestamp;
//!
//! struct InMemory {
//!     clock: Arc<ManualClock>,
//!     store: Arc<MemoryStore>,
//! }
//!
//! impl Subject for InMemory {
//!     fn store(&self) -> Arc<dyn InboxStore> {
//!         self.store.clone()
//!     }
//!
//!     fn advance(&self, span: Duration) -> Moved<'_> {
//!         self.clock.advance(span);
//!         Box::pin(std::future::ready(()))
//!     }
//! }
//!
//! async fn in_memory() -> InMemory {
//!     let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
//!     let store = Arc::new(MemoryStore::with_clock(clock.clone()));
//!     InMemory { clock, store }
//! }
//!
//! countersign::inbox_conformance_tests!(in_memory);
//! ```
//!
//! Every function panics where the promise is broken, and expects a store that holds nothing else.

mod accept;
mod cancel;
mod claim;
mod contents;
mod operate;
mod purge;
mod reserve;
mod settle;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

pub use self::accept::*;
pub use self::cancel::*;
pub use self::claim::*;
pub use self::contents::*;
pub use self::operate::*;
pub use self::purge::*;
pub use self::reserve::*;
pub use self::settle::*;
use super::{
    Accept, Accepted, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, OtherBody, Receipt, ReceiptKey, Reserve,
    Reserved, ResultBody, Settled, StoredResult, Unclear,
};
use crate::{DedupKey, Digest, EventId, Name};

/// What [`Subject::advance`] returns: ready when the store's time has moved.
pub type Moved<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// An empty store under test, and a hold on its time.
pub trait Subject: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn InboxStore>;

    /// Lets `span` pass for the store. One that goes by its database's clock can move what it has stored into the past
    /// instead.
    fn advance(&self, span: Duration) -> Moved<'_>;
}

/// One `#[tokio::test]` for each promise of an [`InboxStore`].
///
/// Takes the name of an `async fn() -> impl Subject` that makes an empty store. The crate that uses it needs `tokio`
/// with its features `macros` and `rt-multi-thread`.
///
/// For a store whose server may not be there, say `optional` before the name of an `async fn() -> Option<impl Subject>`.
/// `None` leaves the test out: let the function say why, and fail where a server must be there.
#[macro_export]
macro_rules! inbox_conformance_tests {
    ($make:path) => {
        async fn made_for_each_promise() -> ::core::option::Option<impl $crate::store::conformance::Subject> {
            ::core::option::Option::Some($make().await)
        }

        $crate::inbox_conformance_tests! { @all made_for_each_promise }
    };
    (optional $make:path) => {
        $crate::inbox_conformance_tests! { @all $make }
    };
    (@all $make:path) => {
        $crate::inbox_conformance_tests! { @each $make;
            a_failed_event_that_is_accepted_is_due_at_once
            a_running_event_that_is_accepted_outlives_its_run
            a_suspect_delivery_of_a_known_event_changes_only_a_failed_one
            accepting_again_what_has_no_end_changes_nothing
            accepting_what_has_an_end_repeats_it
            an_accepted_event_is_received_and_due_at_once
            an_accepted_event_stays_owed_when_a_delivery_runs_it
            an_event_accepted_by_many_callers_is_stored_once
            an_event_in_quarantine_is_never_claimed
            another_body_is_counted_or_refused_when_it_is_accepted
            purge_never_touches_what_is_owed
            quarantine_ends_by_retry_or_by_another_delivery

            a_claim_gets_its_consumers_events_alone
            a_claim_that_left_no_word_is_held_where_that_is_asked_for
            a_claim_whose_lease_ran_out_is_claimed_again
            a_claimed_event_is_leased_with_its_request
            a_dead_letter_with_its_request_that_is_retried_is_due_at_once
            a_failed_event_is_claimed_when_it_is_due_and_not_before
            a_failed_event_with_its_request_that_is_retried_is_due_at_once
            a_released_event_is_due_at_once_and_its_run_does_not_count
            a_released_inline_run_is_not_due
            an_accepted_event_is_never_without_a_next_step
            an_event_in_quarantine_does_not_hold_up_its_ordering_key
            an_inline_run_whose_lease_ran_out_is_left_to_the_next_delivery
            claimed_requests_come_back_byte_for_byte
            claims_that_run_out_use_up_the_attempts
            events_with_one_ordering_key_are_claimed_one_by_one_in_order
            no_two_claims_get_the_same_event
            the_longest_due_event_says_how_far_processors_are_behind
            the_longest_due_is_claimed_first
            what_has_no_request_is_never_due

            a_call_dropped_at_any_point_takes_effect_wholly_or_not_at_all
            a_complete_dropped_at_any_point_keeps_its_whole_result_or_none
            an_accept_or_claim_dropped_at_any_point_loses_no_event

            an_error_is_cut_at_the_end_of_a_character
            an_empty_body_and_an_omitted_one_are_told_apart
            ids_compare_as_bytes
            kept_requests_come_back_byte_for_byte
            results_come_back_byte_for_byte
            the_longest_names_are_kept_whole

            a_dead_letter_that_is_concluded_has_succeeded_without_a_run
            a_dead_letter_that_is_retried_has_all_its_attempts_again
            a_forgotten_event_is_a_first_one
            a_list_can_be_narrowed
            a_list_goes_on_where_its_page_ended
            events_that_belong_together_are_found_by_it
            a_list_shows_what_changed_last_first
            a_list_shows_no_bodies
            a_store_that_works_passes_its_check
            all_keys_are_there_once_in_the_order_in_which_they_came
            conclude_leaves_every_other_state_alone
            nothing_is_found_where_nothing_was_reserved
            retry_leaves_every_other_state_alone

            purge_keeps_to_its_limit_and_takes_the_oldest
            purge_never_touches_what_has_no_end
            purge_takes_bodies_before_keys
            purge_takes_failed_receipts_by_their_last_failure

            a_lease_that_ran_out_is_noted_among_the_failures
            a_repeat_of_a_succeeded_event_changes_nothing
            a_repeat_while_it_runs_is_told_how_long_to_wait
            a_run_that_left_no_word_is_held_where_that_is_asked_for
            a_run_with_another_body_leaves_the_first_digest
            another_body_is_accepted_and_counted
            another_body_is_refused_and_counted_in_every_state
            leases_that_run_out_use_up_the_attempts
            reserve_after_the_lease_gives_a_new_token_and_counts
            reserve_gives_the_event_to_exactly_one_of_many_callers
            reserve_gives_a_lapsed_lease_to_exactly_one_of_many_callers
            scopes_do_not_collide
            the_first_reserve_gets_the_event
            the_same_event_succeeds_once_for_many_callers

            a_dead_letter_is_not_run_again_and_repeats_its_answer
            a_failed_event_is_run_again
            a_failure_without_an_answer_leaves_the_last_one
            a_history_of_failures_is_bounded
            a_late_complete_after_a_takeover_changes_nothing
            a_late_failure_or_renewal_after_a_takeover_changes_nothing
            a_lapsed_lease_that_nobody_took_over_can_still_be_settled
            a_lease_is_settled_once
            a_renewed_lease_holds
            attempts_used_up_by_failures_make_a_dead_letter
            settling_a_forgotten_receipt_changes_nothing
            success_drops_the_kept_request_and_keeps_the_history
        }
    };
    (@each $make:path; $($promise:ident)+) => {$(
        #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            if let ::core::option::Option::Some(subject) = $make().await {
                $crate::store::conformance::$promise(&subject).await;
            }
        }
    )+};
}

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn event_id(text: &str) -> EventId {
    EventId::new(text).expect("a valid id")
}

fn key(id: &str) -> ReceiptKey {
    ReceiptKey { consumer: name("orders"), source: name("shop"), key: DedupKey::from_id(&event_id(id)) }
}

/// The first body under every key of these tests.
const BODY: &[u8] = br#"{"a":1}"#;

fn request(id: &str) -> Reserve {
    Reserve {
        key: key(id),
        event_id: Some(event_id(id)),
        correlation_id: None,
        body: Digest::of(BODY),
        lease: LEASE,
        max_attempts: 20,
        other_body: OtherBody::Accept,
        unclear: Unclear::RunAgain,
    }
}

fn other_body(id: &str, other_body: OtherBody) -> Reserve {
    Reserve { body: Digest::of(b"another"), other_body, ..request(id) }
}

fn accepted(id: &str) -> Accept {
    let Reserve { key, event_id, correlation_id, body, other_body, .. } = request(id);
    Accept {
        key,
        event_id,
        correlation_id,
        body,
        other_body,
        request: kept_request(),
        ordering_key: None,
        quarantine: None,
    }
}

fn claim_of(limit: u32) -> Claim {
    Claim { consumer: name("orders"), limit, lease: LEASE, max_attempts: 20, unclear: Unclear::RunAgain }
}

fn kept_request() -> KeptRequest {
    KeptRequest {
        method: http::Method::POST,
        target: "/hooks/shop?x=1".into(),
        headers: http::HeaderMap::new(),
        body: BODY.into(),
        proof: "{}".into(),
    }
}

fn answer(status: StatusCode, body: &'static [u8]) -> StoredResult {
    StoredResult { status, headers: HeaderMap::new(), body: ResultBody::Kept(body.into()) }
}

fn failure(error: &str) -> Failure {
    Failure { error: error.into(), result: None, dead: None, request: None, retry_in: None }
}

async fn reserved(store: &dyn InboxStore, request: Reserve) -> Reserved {
    store.reserve(request).await.expect("the store answers")
}

async fn acquire(store: &dyn InboxStore, request: Reserve) -> Lease {
    match reserved(store, request).await {
        Reserved::Acquired(lease) => lease,
        other => panic!("the event should be free to run: {other:?}"),
    }
}

async fn accept(store: &dyn InboxStore, request: Accept) -> Accepted {
    store.accept(request).await.expect("the store answers")
}

async fn claim(store: &dyn InboxStore, limit: u32) -> Vec<Claimed> {
    store.claim(claim_of(limit)).await.expect("the store answers")
}

async fn claim_one(store: &dyn InboxStore) -> Claimed {
    claim(store, 1).await.pop().expect("something is due")
}

async fn complete(store: &dyn InboxStore, lease: Lease, result: StoredResult) -> Settled {
    store.complete(lease, result).await.expect("the store answers")
}

async fn fail(store: &dyn InboxStore, lease: Lease, failure: Failure) -> Settled {
    store.fail(lease, failure).await.expect("the store answers")
}

async fn receipt(store: &dyn InboxStore, id: &str) -> Receipt {
    store.find(key(id)).await.expect("the store answers").expect("the receipt is there")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_macro() {
        let files = [
            include_str!("accept.rs"),
            include_str!("cancel.rs"),
            include_str!("claim.rs"),
            include_str!("contents.rs"),
            include_str!("operate.rs"),
            include_str!("purge.rs"),
            include_str!("reserve.rs"),
            include_str!("settle.rs"),
        ];
        let listed = include_str!("mod.rs");
        for promise in files.iter().flat_map(|file| file.lines()).filter_map(|line| line.strip_prefix("pub async fn "))
        {
            let name = promise.split('(').next().unwrap_or_default();
            assert!(listed.lines().any(|line| line.trim() == name), "{name} is in no store's tests");
        }
    }
}
