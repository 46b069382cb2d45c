//! Which events have an order among themselves.

use super::Delivery;
use crate::signature::body_field;
use crate::{Digest, Name};

/// What makes events of one source run one by one, in the order in which they were first delivered, in deferred mode.
///
/// An event waits until those before it with the same value have succeeded or are dead letters: one that keeps failing
/// holds up the others until its attempts are used up. Senders do not promise to deliver in order, so an event can still
/// run after a later one that was delivered first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderBy {
    /// Those that have the same value in a field of the signed body, by its path: `data.object.id`. Events without it
    /// have no order.
    BodyField(String),
}

impl OrderBy {
    pub(super) fn ordering_key(&self, delivery: &Delivery) -> Option<Name> {
        let Self::BodyField(path) = self;
        let value = body_field(delivery.body(), path)?;
        // What is no name, too long say, is told apart from others by its digest.
        Name::new(&value).or_else(|_| Name::new(&format!("sha256:{}", Digest::of(value.as_bytes())))).ok()
    }
}
