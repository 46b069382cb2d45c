//! What every store promises to the sender, one function for each promise. For those who write a store.
//!
//! [`outbox_conformance_tests!`](crate::outbox_conformance_tests) makes one named test of each:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::clock::ManualClock;
//! use countersign::store::outbox_conformance::{Moved, Subject};
//! use countersign::store::{MemoryStore, OutboxStore};
//! use countersign::Timestamp;
//!
//! struct InMemory {
//!     clock: Arc<ManualClock>,
//!     store: Arc<MemoryStore>,
//! }
//!
//! impl Subject for InMemory {
//!     fn store(&self) -> Arc<dyn OutboxStore> {
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
//! countersign::outbox_conformance_tests!(in_memory);
//! ```
//!
//! Every function panics where the promise is broken, and expects a store that holds nothing else.

mod attempts;
mod claim;
mod contents;
mod dropped;
mod endpoints;
mod enqueue;
mod fairness;
mod lease;
mod list;
mod meanwhile;
mod operate;
mod order;
mod purge;
mod settle;

use std::sync::Arc;
use std::time::Duration;

pub use self::attempts::*;
pub use self::claim::*;
pub use self::contents::*;
pub use self::dropped::*;
pub use self::endpoints::*;
pub use self::enqueue::*;
pub use self::fairness::*;
pub use self::lease::*;
pub use self::list::*;
pub use self::meanwhile::*;
pub use self::operate::*;
pub use self::order::*;
pub use self::purge::*;
pub use self::settle::*;
pub use super::conformance::Moved;
use super::{
    AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, EndpointEntry, EndpointHealth, EndpointNews, Enqueue, Fate,
    Message, MessageFilter, MessageKey, MessageLease, MessageState, OnDead, OutboxEntry, OutboxStore, Settled,
    Settlement,
};
use crate::{EventId, Name};

/// An empty store under test, and a hold on its time.
pub trait Subject: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn OutboxStore>;

    /// Lets `span` pass for the store. One that goes by its database's clock can move what it has stored into the past
    /// instead.
    fn advance(&self, span: Duration) -> Moved<'_>;
}

/// One `#[tokio::test]` for each promise of an [`OutboxStore`].
///
/// Takes the name of an `async fn() -> impl Subject` that makes an empty store. The crate that uses it needs `tokio`
/// with its features `macros` and `rt-multi-thread`.
///
/// For a store whose server may not be there, say `optional` before the name of an `async fn() -> Option<impl Subject>`.
/// `None` leaves the test out: let the function say why, and fail where a server must be there.
#[macro_export]
macro_rules! outbox_conformance_tests {
    ($make:path) => {
        async fn made_for_each_outbox_promise()
        -> ::core::option::Option<impl $crate::store::outbox_conformance::Subject> {
            ::core::option::Option::Some($make().await)
        }

        $crate::outbox_conformance_tests! { @all made_for_each_outbox_promise }
    };
    (optional $make:path) => {
        $crate::outbox_conformance_tests! { @all $make }
    };
    (@all $make:path) => {
        $crate::outbox_conformance_tests! { @each $make;
            a_batch_may_be_empty
            a_batch_with_an_unknown_endpoint_is_refused_whole
            a_delay_may_be_longer_than_time
            a_message_enqueued_by_many_callers_is_there_once
            a_message_with_a_delay_is_due_after_it_and_not_before
            a_published_message_goes_to_every_endpoint_that_wants_its_type
            an_enqueued_message_is_pending_and_due_at_once
            enqueuing_again_changes_nothing_whatever_the_state
            one_id_goes_to_each_endpoint_once
            what_is_over_the_limits_is_refused_whole

            a_claim_brings_the_endpoint_as_it_is_now
            a_claim_keeps_to_its_limit
            a_claimed_message_is_leased_with_its_endpoint
            a_retry_is_claimed_when_it_is_due_and_not_before
            no_two_claims_get_the_same_message
            the_longest_due_message_is_claimed_first
            what_has_an_end_is_never_claimed

            a_claim_keeps_to_its_quotas
            a_limit_is_dealt_out_evenly
            a_thousand_messages_for_one_endpoint_do_not_hide_the_one_for_another
            claims_of_a_single_message_reach_both_lanes
            claims_of_a_single_message_reach_every_endpoint
            one_in_four_was_tried_before
            replayed_messages_do_not_get_ahead_of_new_ones

            a_blocking_message_holds_up_those_behind_it_until_an_operator_decides
            a_head_whose_attempts_are_used_up_blocks_parks_or_is_skipped
            a_message_behind_one_that_a_claim_gives_up_is_not_put_off
            a_message_behind_another_keeps_its_own_delay
            a_replay_of_a_part_keeps_the_order
            a_replayed_message_waits_for_the_one_that_is_being_delivered
            a_skipped_message_lets_those_behind_it_pass
            a_thousand_messages_behind_one_that_blocks_do_not_hide_others
            an_operator_can_let_those_behind_a_dead_letter_pass
            an_ordering_key_keeps_its_order_among_many_dispatchers
            messages_with_one_ordering_key_go_one_at_a_time_in_order
            parked_messages_are_replayed_together_in_order
            what_lost_its_sender_behind_a_replayed_message_goes_on_right_after_it
            whatever_ends_a_message_lets_the_next_one_go
            while_the_first_one_waits_for_a_retry_those_behind_it_wait

            a_lapsed_lease_goes_to_one_of_many_callers
            a_lapsed_lease_that_nobody_took_over_settles_still
            a_late_holder_changes_nothing
            a_lease_that_nobody_was_given_changes_nothing
            a_message_whose_lease_ran_out_is_claimed_again
            a_released_message_is_due_at_once_and_its_attempt_does_not_count
            a_renewed_message_is_held
            an_endpoint_may_have_its_own_number_of_attempts
            a_claim_says_what_it_gives_up
            attempts_that_run_out_use_up_a_messages_attempts
            everything_that_a_dead_dispatcher_held_is_sent_by_the_next

            a_delivered_message_has_succeeded
            a_message_that_is_given_up_says_why
            a_paused_endpoint_gets_nothing_until_the_longest_pause_is_over
            an_attempt_is_settled_once
            an_attempt_that_does_not_count_is_noted
            an_attempt_without_an_answer_leaves_the_last_status
            an_endpoint_that_answers_or_was_not_asked_is_not_disabled_for_its_failures
            an_endpoint_that_fails_for_too_long_is_disabled
            an_endpoint_with_many_messages_is_removed_with_all_of_them
            an_endpoint_that_is_gone_is_disabled_and_keeps_its_backlog
            an_endpoints_failures_are_counted_until_an_attempt_succeeds
            attempts_settled_at_one_time_end_each_in_its_own_way

            a_message_delivered_meanwhile_has_succeeded
            a_replay_takes_the_message_from_whoever_delivered_it_for_a_removed_endpoint
            news_of_a_url_that_an_endpoint_has_left_is_not_taken
            what_would_be_sent_again_to_a_removed_endpoint_stays_a_dead_letter

            a_report_may_be_empty
            an_attempt_is_noted_byte_for_byte
            attempts_say_after_which_replay_they_were_made
            the_log_of_attempts_is_bounded
            what_is_noted_of_an_attempt_is_bounded

            a_disabled_endpoint_gets_nothing_until_it_is_enabled
            a_new_endpoint_is_enabled_and_has_not_failed
            an_endpoint_that_cannot_be_sent_to_is_refused
            changing_an_endpoint_leaves_its_state_and_its_messages
            each_time_that_an_endpoint_is_disabled_began_once
            enabling_an_endpoint_resets_its_counters
            the_messages_of_a_removed_endpoint_become_dead_letters
            the_reason_of_a_disabled_endpoint_is_bounded

            a_message_can_be_taken_back_until_it_is_being_delivered
            a_message_is_never_without_a_next_step
            a_replay_keeps_to_its_filter_its_limit_and_its_pace
            a_replay_that_is_asked_for_twice_is_done_once
            a_replayed_message_is_pending_with_all_its_attempts_before_it
            replay_leaves_every_other_message_alone
            what_changed_after_a_moment_is_left_out_of_a_replay
            what_succeeded_is_replayed_by_its_name_alone

            a_batch_is_listed_the_last_one_first
            a_list_of_messages_can_be_narrowed
            a_list_of_messages_goes_on_where_its_page_ended
            messages_that_belong_together_are_found_by_it
            a_list_of_messages_shows_no_payloads_and_no_attempts
            a_list_of_messages_shows_what_changed_last_first
            all_message_keys_are_there_once_in_the_order_in_which_they_came
            the_longest_due_message_of_each_endpoint_says_how_far_dispatchers_are_behind
            the_next_due_time_heeds_pauses_and_disabled_endpoints
            the_next_due_time_is_not_that_of_what_is_held_up
            the_next_due_time_is_that_of_the_first_to_fall_due

            a_mebibyte_is_sent_byte_for_byte
            endpoints_come_back_as_they_were_given
            names_compare_as_bytes
            nothing_is_found_where_nothing_is
            ordering_keys_compare_as_bytes
            payloads_are_sent_byte_for_byte
            the_longest_texts_are_kept_whole

            a_purge_keeps_to_its_limit_and_takes_the_oldest_first
            a_purged_message_leaves_nothing_behind
            an_age_counts_from_the_last_change
            purge_never_touches_messages_that_have_no_end
            purge_takes_what_is_done_and_leaves_dead_letters

            a_settlement_dropped_at_any_point_is_there_whole_or_not_at_all
            an_enqueue_dropped_at_any_point_leaves_all_of_its_batch_or_none
            an_operators_call_dropped_at_any_point_can_be_made_again
            what_a_dropped_claim_took_comes_back
        }
    };
    (@each $make:path; $($promise:ident)+) => {$(
        #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            if let ::core::option::Option::Some(subject) = $make().await {
                $crate::store::outbox_conformance::$promise(&subject).await;
            }
        }
    )+};
}

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// More claims than any store needs before it hands out what is due. None does not mean that there are no more.
const CLAIMS: usize = 64;

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn event_id(text: &str) -> EventId {
    EventId::new(text).expect("a valid id")
}

fn key(endpoint: &str, id: &str) -> MessageKey {
    MessageKey { endpoint: name(endpoint), id: event_id(id) }
}

fn endpoint(text: &str) -> Endpoint {
    Endpoint::new(name(text), "https://example.com/hooks")
}

/// The body of every message that has no other.
const BODY: &[u8] = br#"{"a":1}"#;

fn message(id: &str) -> Message {
    Message::new(event_id(id), name("order.paid"), BODY)
}

fn ordered(id: &str, ordering_key: &str) -> Message {
    Message { ordering_key: Some(name(ordering_key)), ..message(id) }
}

fn to(endpoint: &str, message: Message) -> Enqueue {
    Enqueue::new(name(endpoint), message)
}

async fn put(store: &dyn OutboxStore, endpoint: Endpoint) -> EndpointEntry {
    store.put_endpoint(endpoint).await.expect("the store answers")
}

/// An endpoint that does this where a message of an ordering key will not be delivered.
async fn put_on_dead(store: &dyn OutboxStore, endpoint: &str, on_dead: OnDead) {
    let mut endpoint = self::endpoint(endpoint);
    endpoint.settings.on_dead = on_dead;
    put(store, endpoint).await;
}

/// Whether each is new.
async fn enqueue(store: &dyn OutboxStore, messages: Vec<Enqueue>) -> Vec<bool> {
    let enqueued = store.enqueue(messages).await.expect("the store answers");
    enqueued.into_iter().map(|enqueued| enqueued.created).collect()
}

/// Messages for one endpoint, which is added.
async fn queue(store: &dyn OutboxStore, at: &str, ids: &[&str]) {
    put(store, endpoint(at)).await;
    let messages = ids.iter().map(|id| to(at, message(id))).collect();
    assert!(enqueue(store, messages).await.into_iter().all(|created| created));
}

fn claim_of(limit: u32) -> ClaimMessages {
    ClaimMessages { max_attempts: 20, ..ClaimMessages::new(limit, LEASE) }
}

async fn claimed(store: &dyn OutboxStore, claim: ClaimMessages) -> Vec<ClaimedMessage> {
    store.claim_messages(claim).await.expect("the store answers").messages
}

/// What there is to claim, at most so many, as soon as a claim finds something.
async fn claim(store: &dyn OutboxStore, limit: u32) -> Vec<ClaimedMessage> {
    for _ in 0..CLAIMS {
        let found = claimed(store, claim_of(limit)).await;
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

async fn claim_one(store: &dyn OutboxStore) -> ClaimedMessage {
    claim(store, 1).await.pop().expect("something is due")
}

/// Claims until there is nothing left to claim.
async fn claim_all(store: &dyn OutboxStore) -> Vec<ClaimedMessage> {
    let mut all = Vec::new();
    let mut in_vain = 0;
    while in_vain < 4 {
        let found = claimed(store, claim_of(ClaimMessages::MOST)).await;
        in_vain = if found.is_empty() { in_vain + 1 } else { 0 };
        all.extend(found);
    }
    all
}

/// The ids of what was claimed, in the order of their text: that of a claim says nothing.
fn ids(claimed: &[ClaimedMessage]) -> Vec<&str> {
    let mut ids: Vec<&str> = claimed.iter().map(|claimed| claimed.lease.key.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn report(status: u16, error: &str) -> AttemptReport {
    AttemptReport {
        took: 25 * SECOND / 1_000,
        status: http::StatusCode::from_u16(status).ok(),
        error: (!error.is_empty()).then(|| error.to_owned()),
        ..AttemptReport::default()
    }
}

fn delivered() -> Settlement {
    Settlement::new(Fate::Delivered, report(200, ""))
}

fn again(after: Duration) -> Settlement {
    let again = Settlement::new(Fate::Again { after, counts: true }, report(503, "down"));
    Settlement { endpoint: failing(), ..again }
}

/// An attempt has shown that the endpoint does not work.
fn failing() -> EndpointNews {
    EndpointNews { health: EndpointHealth::Fails, ..EndpointNews::default() }
}

fn dead(reason: &str) -> Settlement {
    Settlement::new(Fate::Dead(reason.to_owned()), report(400, "refused"))
}

async fn settled(store: &dyn OutboxStore, lease: &MessageLease, settlement: Settlement) -> Settled {
    store.settle(lease.clone(), settlement).await.expect("the store answers")
}

/// Settles what its holder holds.
async fn settle(store: &dyn OutboxStore, claimed: &ClaimedMessage, settlement: Settlement) {
    assert_eq!(settled(store, &claimed.lease, settlement).await, Settled::Done);
}

/// Gives back what its holder holds.
async fn release(store: &dyn OutboxStore, claimed: &ClaimedMessage) {
    let released = store.release_message(claimed.lease.clone()).await.expect("the store answers");
    assert_eq!(released, Settled::Done);
}

/// Holds on to what its holder holds.
async fn renew(store: &dyn OutboxStore, claimed: &ClaimedMessage) {
    let renewed = store.renew_message(claimed.lease.clone(), LEASE).await.expect("the store answers");
    assert_eq!(renewed, Settled::Done);
}

async fn entry(store: &dyn OutboxStore, endpoint: &str, id: &str) -> OutboxEntry {
    store.find_message(key(endpoint, id)).await.expect("the store answers").expect("the message is there")
}

async fn state(store: &dyn OutboxStore, endpoint: &str, id: &str) -> MessageState {
    entry(store, endpoint, id).await.state
}

async fn endpoint_entry(store: &dyn OutboxStore, text: &str) -> EndpointEntry {
    store.endpoint(name(text)).await.expect("the store answers").expect("the endpoint is there")
}

async fn replayed(store: &dyn OutboxStore, filter: MessageFilter) -> Vec<MessageKey> {
    store.replay(filter, Duration::ZERO).await.expect("the store answers")
}

async fn cancelled(store: &dyn OutboxStore, filter: MessageFilter) -> Vec<MessageKey> {
    store.cancel(filter).await.expect("the store answers")
}

fn by_id(id: &str) -> MessageFilter {
    MessageFilter { id: Some(event_id(id)), ..MessageFilter::default() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_macro() {
        let files = [
            include_str!("attempts.rs"),
            include_str!("claim.rs"),
            include_str!("contents.rs"),
            include_str!("dropped.rs"),
            include_str!("endpoints.rs"),
            include_str!("enqueue.rs"),
            include_str!("fairness.rs"),
            include_str!("lease.rs"),
            include_str!("list.rs"),
            include_str!("operate.rs"),
            include_str!("order.rs"),
            include_str!("purge.rs"),
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
