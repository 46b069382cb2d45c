//! What every store keeps to when things break, one function for each promise. For those who write a store.
//!
//! Where [`conformance`](super::conformance) asks what a store does, this asks what is left when its connection is lost
//! between any two statements, when the outcome of a commit is unknown, when its clock jumps, when it is purged under load,
//! and when a holder comes back after its lease.
//!
//! [`inbox_fault_tests!`](crate::inbox_fault_tests) makes one named test of each promise. A store without connections, or
//! without a clock that can be set, leaves some of them out:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::Timestamp;
//! use countersign::clock::{Clock, ManualClock};
//! use countersign::store::conformance::{Moved, Subject};
//! use countersign::store::faults::Faults;
//! use countersign::store::{InboxStore, MemoryStore};
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
//! countersign::inbox_fault_tests!(in_memory);
//! ```
//!
//! Every function panics where the promise is broken, and expects a store that holds nothing else.

mod clock;
mod connection;
mod load;
mod zombie;

use std::time::Duration;

use http::{HeaderMap, StatusCode};

pub use self::clock::*;
pub use self::connection::*;
pub use self::load::*;
pub use self::zombie::*;
use super::conformance::{Moved, Subject};
use super::{
    Accept, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, OtherBody, Receipt, ReceiptKey, Reserve, Reserved,
    ResultBody, StoredResult, Unclear,
};
use crate::{DedupKey, Digest, EventId, Name};

/// An empty store under test, and a hold on what can go wrong with it.
pub trait FaultySubject: Subject + Faults {}

impl<S: Subject + Faults> FaultySubject for S {}

/// A hold on what can go wrong with a store.
pub trait Faults {
    /// Plans to lose a connection. `false`: this store has none that could be lost, and the promise is left out.
    ///
    /// A proxy between the store and its database can do this without knowing what the messages mean.
    fn break_at(&self, _at: Break) -> bool {
        false
    }

    /// Lets connections through again, and drops what was planned. Whether it has happened.
    fn heal(&self) -> bool {
        false
    }

    /// Sets the clock of the store back. One that goes by its database's clock can move what it has stored into the future
    /// instead.
    fn turn_back(&self, span: Duration) -> Moved<'_>;
}

/// Where a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break {
    /// At which message of that side, counted from 1 from now on, over all connections of the store.
    pub message: u32,
    /// Whose message is lost, with the connection that carries it.
    pub side: Side,
    /// `false`: only that connection is lost, and a new one can be made at once. `true`: all are, and none can be made until
    /// [`heal`](Faults::heal).
    pub lasting: bool,
}

/// Whose message is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// The database's: what it answers to has been done. Where that was a commit, its outcome is unknown to the store.
    Answer,
    /// The store's: the database never sees it.
    Question,
}

/// One `#[tokio::test]` for each promise of an [`InboxStore`] when things break.
///
/// Takes the name of an `async fn() -> impl FaultySubject` that makes an empty store, or `optional` and that of an
/// `async fn() -> Option<impl FaultySubject>`, as [`inbox_conformance_tests!`](crate::inbox_conformance_tests) does.
#[macro_export]
macro_rules! inbox_fault_tests {
    ($make:path) => {
        async fn made_for_each_fault() -> ::core::option::Option<impl $crate::store::faults::FaultySubject> {
            ::core::option::Option::Some($make().await)
        }

        $crate::inbox_fault_tests! { @all made_for_each_fault }
    };
    (optional $make:path) => {
        $crate::inbox_fault_tests! { @all $make }
    };
    (@all $make:path) => {
        $crate::inbox_fault_tests! { @each $make;
            a_clock_set_back_gives_no_event_to_two_holders
            a_clock_set_back_loses_nothing_that_is_owed
            a_clock_set_back_makes_nothing_old
            a_lease_renewed_after_the_clock_was_set_back_counts_from_then
            a_clock_that_jumps_ahead_hands_events_over_once

            a_connection_lost_anywhere_loses_no_accepted_event
            a_connection_lost_anywhere_in_a_claim_delays_events_at_most
            a_connection_lost_anywhere_in_a_complete_keeps_the_whole_result_or_none
            a_connection_lost_anywhere_in_a_conclude_leaves_a_whole_receipt
            a_connection_lost_anywhere_in_a_fail_notes_one_failure
            a_connection_lost_anywhere_in_a_forget_or_retry_leaves_a_whole_receipt
            a_connection_lost_anywhere_in_a_purge_removes_nothing_young
            a_connection_lost_anywhere_in_a_release_or_renewal_leaves_the_event_to_somebody
            a_connection_lost_anywhere_in_a_reserve_gives_the_event_to_one_holder
            a_connection_lost_while_reading_is_made_anew
            connections_lost_under_load_run_every_event_once

            a_purge_under_load_fails_no_call_and_touches_nothing_young

            a_late_holder_changes_nothing_that_came_after_it
            a_late_holder_and_the_next_one_never_both_win
            a_late_holder_changes_nothing_about_an_event_that_is_held
            a_late_holder_finds_nothing_to_settle_where_its_event_was_forgotten
        }
    };
    (@each $make:path; $($promise:ident)+) => {$(
        #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            if let ::core::option::Option::Some(subject) = $make().await {
                $crate::store::faults::$promise(&subject).await;
            }
        }
    )+};
}

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

const BODY: &[u8] = b"{}";

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn event_id(id: &str) -> EventId {
    EventId::new(id).expect("a valid id")
}

fn key(id: &str) -> ReceiptKey {
    ReceiptKey { consumer: name("orders"), source: name("shop"), key: DedupKey::from_id(&event_id(id)) }
}

fn request(id: &str) -> Reserve {
    Reserve {
        key: key(id),
        event_id: Some(event_id(id)),
        correlation_id: None,
        body: Digest::of(BODY),
        lease: LEASE,
        max_attempts: 1_000,
        other_body: OtherBody::Refuse,
        unclear: Unclear::RunAgain,
    }
}

fn accepted(id: &str) -> Accept {
    let Reserve { key, event_id, correlation_id, body, other_body, .. } = request(id);
    let request = KeptRequest {
        method: http::Method::POST,
        target: "/hooks".into(),
        headers: HeaderMap::new(),
        body: BODY.into(),
        proof: "{}".into(),
    };
    Accept { key, event_id, correlation_id, body, other_body, request, ordering_key: None, quarantine: None }
}

fn claim_of(limit: u32) -> Claim {
    Claim { consumer: name("orders"), limit, lease: LEASE, max_attempts: 1_000, unclear: Unclear::RunAgain }
}

fn answer(body: &str) -> StoredResult {
    StoredResult {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: ResultBody::Kept(body.as_bytes().to_vec().into()),
    }
}

fn failure(error: &str) -> Failure {
    Failure { error: error.into(), result: None, dead: None, request: None, retry_in: None }
}

async fn reserved(store: &dyn InboxStore, id: &str) -> Reserved {
    store.reserve(request(id)).await.expect("the store answers")
}

async fn acquire(store: &dyn InboxStore, id: &str) -> Lease {
    match reserved(store, id).await {
        Reserved::Acquired(lease) => lease,
        other => panic!("{id} should be free to run: {other:?}"),
    }
}

async fn claimed(store: &dyn InboxStore) -> Vec<Claimed> {
    store.claim(claim_of(99)).await.expect("the store answers")
}

async fn found(store: &dyn InboxStore, id: &str) -> Option<Receipt> {
    store.find(key(id)).await.expect("the store answers")
}

async fn receipt(store: &dyn InboxStore, id: &str) -> Receipt {
    found(store, id).await.expect("the receipt is there")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_macro() {
        let files = [
            include_str!("clock.rs"),
            include_str!("connection.rs"),
            include_str!("load.rs"),
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
