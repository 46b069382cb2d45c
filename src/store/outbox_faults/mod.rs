//! What every outbox keeps to when things break, one function for each promise. For those who write a store.
//!
//! Where [`outbox_conformance`](super::outbox_conformance) asks what a store does, this asks what is left when its connection
//! is lost between any two statements, when the outcome of a commit is unknown, when its clock jumps, when it is purged under
//! load, and when a dispatcher comes back after its lease.
//!
//! [`outbox_fault_tests!`](crate::outbox_fault_tests) makes one named test of each promise. A store without connections
//! leaves those about them out:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::Timestamp;
//! use countersign::clock::{Clock, ManualClock};
//! use countersign::store::outbox_conformance::{Moved, Subject};
//! use countersign::store::faults::Faults;
//! use countersign::store::{MemoryStore, OutboxStore};
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
//! impl Faults for InMemory {
//!     fn turn_back(&self, span: Duration) -> Moved<'_> {
//!         self.clock.set(self.clock.now().saturating_sub(span));
//!         Box::pin(std::future::ready(()))
//!     }
//! }
//!
//! async fn in_memory() -> InMemory {
//!     let clock = Arc::new(ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000).unwrap()));
//!     let store = Arc::new(MemoryStore::with_clock(clock.clone()));
//!     InMemory { clock, store }
//! }
//!
//! countersign::outbox_fault_tests!(in_memory);
//! ```
//!
//! Every function panics where the promise is broken, and expects a store that holds nothing else.

mod attempt;
mod clock;
mod connection;
mod enqueue;
mod load;
mod operator;
mod zombie;

use std::time::{Duration, Instant};

pub use self::attempt::*;
pub use self::clock::*;
pub use self::connection::*;
pub use self::enqueue::*;
pub use self::load::*;
pub use self::operator::*;
pub use self::zombie::*;
use super::faults::Faults;
pub use super::faults::{Break, Side};
use super::outbox_conformance::Subject;
use super::{
    AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, EndpointHealth, EndpointNews, Enqueue, Fate, Message,
    MessageFilter, MessageKey, MessageLease, MessageState, OutboxEntry, OutboxRetention, OutboxStore, Settled,
    Settlement, StoreError,
};
use crate::{EventId, Name};

/// An empty outbox under test, and a hold on what can go wrong with it.
pub trait FaultySubject: Subject + Faults {}

impl<S: Subject + Faults> FaultySubject for S {}

/// One `#[tokio::test]` for each promise of an [`OutboxStore`] when things break.
///
/// Takes the name of an `async fn() -> impl FaultySubject` that makes an empty store, or `optional` and that of an
/// `async fn() -> Option<impl FaultySubject>`, as [`outbox_conformance_tests!`](crate::outbox_conformance_tests) does.
#[macro_export]
macro_rules! outbox_fault_tests {
    ($make:path) => {
        async fn made_for_each_outbox_fault() -> ::core::option::Option<impl $crate::store::outbox_faults::FaultySubject>
        {
            ::core::option::Option::Some($make().await)
        }

        $crate::outbox_fault_tests! { @all made_for_each_outbox_fault }
    };
    (optional $make:path) => {
        $crate::outbox_fault_tests! { @all $make }
    };
    (@all $make:path) => {
        $crate::outbox_fault_tests! { @each $make;
            a_connection_lost_anywhere_in_a_batch_enqueues_all_of_it_or_none
            a_connection_lost_anywhere_in_an_enqueue_makes_one_message
            a_connection_lost_anywhere_in_a_publish_makes_one_message_for_each_endpoint

            a_connection_lost_anywhere_in_a_claim_delays_messages_at_most
            a_connection_lost_anywhere_in_a_release_or_renewal_leaves_the_message_to_somebody
            a_connection_lost_anywhere_in_a_settlement_ends_the_attempt_once
            a_failed_attempt_is_counted_once_wherever_a_connection_was_lost

            a_connection_lost_anywhere_in_a_change_of_an_endpoint_leaves_a_whole_one
            a_connection_lost_anywhere_in_a_purge_of_messages_removes_nothing_young
            a_connection_lost_anywhere_in_a_removal_strands_no_message
            a_connection_lost_anywhere_in_a_replay_or_cancellation_does_it_once

            a_connection_lost_while_reading_messages_is_made_anew
            connections_lost_under_load_deliver_every_message_once

            a_clock_set_back_forgets_no_message_that_is_owed
            a_clock_set_back_gives_no_message_to_two_dispatchers
            a_clock_set_back_keeps_the_order
            a_clock_set_back_makes_no_message_old
            a_clock_that_jumps_ahead_hands_messages_over_once
            a_message_renewed_after_the_clock_was_set_back_is_held_from_then

            a_purge_of_messages_under_load_fails_no_call_and_touches_nothing_young

            a_late_dispatcher_and_the_next_one_never_both_win
            a_late_dispatcher_changes_nothing_that_came_after_it
            a_late_dispatcher_finds_nothing_to_settle_where_its_message_was_purged
            a_late_dispatcher_has_no_part_in_a_replay
        }
    };
    (@each $make:path; $($promise:ident)+) => {$(
        #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            if let ::core::option::Option::Some(subject) = $make().await {
                $crate::store::outbox_faults::$promise(&subject).await;
            }
        }
    )+};
}

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// How long a database may take to notice that a connection is gone.
const PATIENCE: Duration = Duration::from_secs(30);

const BODY: &[u8] = b"{}";

/// More claims than any store needs before it hands out what is due. None does not mean that there are no more.
const CLAIMS: usize = 6;

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn event_id(id: &str) -> EventId {
    EventId::new(id).expect("a valid id")
}

/// Of a message to `shop`.
fn key(id: &str) -> MessageKey {
    MessageKey { endpoint: name("shop"), id: event_id(id) }
}

fn message(id: &str) -> Message {
    Message::new(event_id(id), name("order.paid"), BODY)
}

fn new(id: &str) -> Enqueue {
    Enqueue::new(name("shop"), message(id))
}

async fn shop(store: &dyn OutboxStore) {
    let shop = Endpoint::new(name("shop"), "https://example.com/hooks");
    store.put_endpoint(shop).await.expect("the store answers");
}

async fn enqueue(store: &dyn OutboxStore, id: &str) {
    let enqueued = store.enqueue(vec![new(id)]).await.expect("the store answers");
    assert!(enqueued.len() == 1 && enqueued[0].created, "{enqueued:?}");
}

fn claim_of(limit: u32) -> ClaimMessages {
    ClaimMessages { max_attempts: 1_000, ..ClaimMessages::new(limit, LEASE) }
}

/// All that there is to claim.
async fn claimed(store: &dyn OutboxStore) -> Vec<ClaimedMessage> {
    let mut all = Vec::new();
    for _ in 0..CLAIMS {
        all.extend(store.claim_messages(claim_of(ClaimMessages::MOST)).await.expect("the store answers").messages);
    }
    all
}

/// The messages that there are to claim, so many. A database may hold on to what a lost connection locked until it notices.
async fn claim_exactly(store: &dyn OutboxStore, messages: usize) -> Vec<ClaimedMessage> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < messages && Instant::now() < deadline {
        all.extend(claimed(store).await);
    }
    assert_eq!(all.len(), messages, "{all:?}");
    all
}

/// The one message that there is to claim.
async fn claim_one(store: &dyn OutboxStore) -> MessageLease {
    claim_exactly(store, 1).await.remove(0).lease
}

fn report() -> AttemptReport {
    AttemptReport {
        took: 25 * SECOND / 1_000,
        status: http::StatusCode::from_u16(200).ok(),
        ..AttemptReport::default()
    }
}

fn delivered() -> Settlement {
    Settlement::new(Fate::Delivered, report())
}

fn dead() -> Settlement {
    Settlement::new(Fate::Dead("no".into()), report())
}

/// It is to be tried again, and its endpoint does not work.
fn again(after: Duration) -> Settlement {
    let again = Settlement::new(Fate::Again { after, counts: true }, report());
    Settlement { endpoint: EndpointNews { health: EndpointHealth::Fails, ..EndpointNews::default() }, ..again }
}

async fn settled(store: &dyn OutboxStore, lease: &MessageLease, settlement: Settlement) -> Settled {
    store.settle(lease.clone(), settlement).await.expect("the store answers")
}

/// Settles what its holder holds.
async fn settle(store: &dyn OutboxStore, lease: &MessageLease, settlement: Settlement) {
    assert_eq!(settled(store, lease, settlement).await, Settled::Done, "{}", lease.key.id);
}

async fn found(store: &dyn OutboxStore, id: &str) -> Option<OutboxEntry> {
    store.find_message(key(id)).await.expect("the store answers")
}

async fn entry(store: &dyn OutboxStore, id: &str) -> OutboxEntry {
    found(store, id).await.expect("the message is there")
}

fn by_id(id: &str) -> MessageFilter {
    MessageFilter { id: Some(event_id(id)), ..MessageFilter::default() }
}

/// What is older than an hour.
async fn purge(store: &dyn OutboxStore, limit: u32) -> Result<u64, StoreError> {
    store.purge_messages(OutboxRetention { done: HOUR, dead: Some(HOUR) }, limit).await
}

/// It was delivered, and one attempt was made of it that left a word.
async fn succeeded(store: &dyn OutboxStore, id: &str) {
    let end = entry(store, id).await;
    assert_eq!((end.state, end.due), (MessageState::Succeeded, None), "{id}");
    assert_eq!(end.attempt_log.iter().filter(|attempt| attempt.report == report()).count(), 1, "{id}: {end:?}");
    assert_eq!(end.message, message(id), "{id}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_macro() {
        let files = [
            include_str!("attempt.rs"),
            include_str!("clock.rs"),
            include_str!("connection.rs"),
            include_str!("enqueue.rs"),
            include_str!("load.rs"),
            include_str!("operator.rs"),
            include_str!("zombie.rs"),
        ];
        let listed = include_str!("mod.rs");
        for promise in files.iter().flat_map(|file| file.lines()).filter_map(|line| line.strip_prefix("pub async fn "))
        {
            let name = promise.split('(').next().unwrap_or_default();
            assert!(listed.lines().any(|line| line.trim() == name), "{name} is in no store's tests");
        }
    }
}
