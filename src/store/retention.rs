//! Forgetting, now and then, what has reached its age.

use std::time::Duration;

use tracing::{debug, warn};

use super::{InboxStore, Purged, Retention};
#[cfg(feature = "send")]
use super::{OutboxRetention, OutboxStore};
use crate::{Clock as _, SystemClock};

/// Purges a store about every 90 seconds for as long as this is polled. It never returns: spawn it beside the server,
/// with the same retention that the [`DedupLayer`](crate::receive::DedupLayer) was given, and abort it at the end.
///
/// Any number of processes may do so for one store: one of them purges at a time, and the others leave it to that one. What
/// fails is logged, and tried again at the next turn.
///
/// # Cancel safety
///
/// May be dropped at any point.
pub async fn purge_forever(store: impl InboxStore, retention: Retention) {
    loop {
        tokio::time::sleep(PAUSE + jitter()).await;
        loop {
            match store.purge(retention, PASS).await {
                Ok(Purged { results: 0, keys: 0 }) => break,
                Ok(Purged { results, keys }) => debug!(results, keys, "what had reached its age was removed"),
                Err(error) => {
                    warn!(%error, "what has reached its age was not removed; trying again later");
                    break;
                }
            }
        }
    }
}

/// The same for an outbox: spawn it beside the [`Dispatcher`](crate::send::Dispatcher). Without it every message that was
/// ever delivered stays, with its payload and its attempts.
///
/// # Cancel safety
///
/// May be dropped at any point.
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub async fn purge_messages_forever(store: impl OutboxStore, retention: OutboxRetention) {
    loop {
        tokio::time::sleep(PAUSE + jitter()).await;
        loop {
            match store.purge_messages(retention, PASS).await {
                Ok(0) => break,
                Ok(messages) => debug!(messages, "messages that had reached their age were removed"),
                Err(error) => {
                    warn!(%error, "messages that have reached their age were not removed; trying again later");
                    break;
                }
            }
        }
    }
}

/// Keeps processes that started together from purging together.
fn jitter() -> Duration {
    Duration::from_micros(u64::try_from(SystemClock.now().as_micros()).unwrap_or(0) % 60_000_000)
}

const PAUSE: Duration = Duration::from_secs(60);

/// How much one pass removes: little enough that deliveries do not wait for it.
const PASS: u32 = 1_000;

#[cfg(all(test, feature = "send", feature = "test-util"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::{
        AttemptReport, ClaimMessages, Endpoint, Enqueue, Fate, MemoryStore, Message, MessageFilter, MessageState,
        Settled, Settlement,
    };
    use crate::{EventId, Name, Timestamp};

    #[tokio::test(start_paused = true)]
    async fn what_was_delivered_is_forgotten_at_its_age_and_what_was_given_up_is_kept() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn crate::Clock>));
        let shop = Name::new("shop").expect("a name");
        store.put_endpoint(Endpoint::new(shop.clone(), "https://example.com/")).await.expect("an answer");
        for id in ["delivered", "dead"] {
            let id = EventId::new(id).expect("an id");
            let message = Message::new(id, Name::new("a").expect("a name"), "{}");
            store.enqueue(vec![Enqueue::new(shop.clone(), message)]).await.expect("an answer");
        }
        let claimed = store.claim_messages(ClaimMessages::new(9, PAUSE)).await.expect("an answer");
        for one in claimed.messages {
            let is_dead = one.lease.key.id.as_str() == "dead";
            let fate = if is_dead { Fate::Dead("no".into()) } else { Fate::Delivered };
            let settlement = Settlement::new(fate, AttemptReport::default());
            assert_eq!(store.settle(one.lease, settlement).await.expect("an answer"), Settled::Done);
        }
        let purging = tokio::spawn(purge_messages_forever(Arc::clone(&store), OutboxRetention::default()));
        let left = async || {
            tokio::time::sleep(4 * PAUSE).await;
            store.list_messages(MessageFilter::default()).await.expect("an answer")
        };
        assert_eq!(left().await.len(), 2);
        clock.advance(OutboxRetention::default().done);
        let left = left().await;
        assert_eq!(left.iter().map(|entry| entry.state).collect::<Vec<_>>(), [MessageState::DeadLetter]);
        purging.abort();
    }
}
