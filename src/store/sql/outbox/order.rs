//! What the end of a message means for those that stand behind it in its ordering key.
//!
//! Claims do not look at a message that is held up as often as at others: it is postponed. So whatever ends a message, or
//! gives it back, has the first one of its order looked at again, within its own transaction. A due time stays what it was:
//! should this fail to reach a message, it is looked at when its postponement is over.

use super::super::transactor::Done;
use super::database::Database;
use crate::store::delivery;
use crate::store::{MessageKey, MessageState, OnDead};
use crate::{EventId, Name, Timestamp};

/// A message with an order that is not being delivered any more.
#[derive(Debug)]
pub(super) struct Ending {
    id: i64,
    message: EventId,
    order: Option<(Name, Name)>,
    /// Whether it takes those behind it along.
    parks: bool,
}

impl Ending {
    pub(super) fn new(
        id: i64,
        key: &MessageKey,
        ordering_key: Option<Name>,
        state: MessageState,
        on_dead: OnDead,
    ) -> Self {
        Self {
            id,
            message: key.id.clone(),
            order: ordering_key.map(|order| (key.endpoint.clone(), order)),
            parks: delivery::holds_up(state) && on_dead == OnDead::Park,
        }
    }

    pub(super) fn dead(id: i64, key: &MessageKey, ordering_key: Option<Name>, on_dead: OnDead) -> Self {
        Self::new(id, key, ordering_key, MessageState::DeadLetter, on_dead)
    }
}

pub(super) async fn after<D: Database>(database: &mut D, ends: &[Ending], now: Timestamp) -> Done {
    for Ending { id, message, order, parks } in ends {
        if let Some((endpoint, key)) = order.as_ref().filter(|_| *parks) {
            database.park(*id, (endpoint, key), &delivery::parked(message), now).await?;
        }
    }
    promote(database, ends.iter().filter_map(|end| end.order.as_ref())).await
}

/// Has claims look at the first message of each of these orders.
pub(super) async fn promote<'a, D: Database>(database: &mut D, orders: impl Iterator<Item = &'a (Name, Name)>) -> Done {
    let mut orders: Vec<(&Name, &Name)> = orders.map(|(endpoint, key)| (endpoint, key)).collect();
    orders.sort_unstable();
    orders.dedup();
    if orders.is_empty() { Ok(()) } else { database.promote(&orders).await }
}
