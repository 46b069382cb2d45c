//! What rows of the outbox hold: moments to the microsecond, and what belongs to them when an endpoint is written again.

use std::time::Duration;

use countersign::store::{
    AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, Enqueue, Fate, Message, OutboxStore, Settled, Settlement,
};
use countersign::{EventId, Name};

use super::{mysql, postgres};

/// A moment is a number of microseconds, so that none is rounded into the future; a span with nanoseconds loses those.
macro_rules! c094 {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = database.open().await;
            put(&store, "https://example.com/hooks").await;
            let ends = |moment: &'static str| format!("SELECT {moment} FROM countersign_outbox");
            // The last microsecond of a second, as well as the first.
            for number in 0..20 {
                let id = format!("msg_{number}");
                store.enqueue(vec![new(&id)]).await.expect("an answer");
                let claimed = claim_one(&store, Duration::new(59, 999_999_999)).await;
                let (due, updated) = (database.number(&ends("due")).await, database.number(&ends("updated")).await);
                assert_eq!(due - updated, 59_999_999, "{id}: due at once, and its lease is not rounded up");
                let renewed = store.renew_message(claimed.lease.clone(), Duration::new(60, 1)).await;
                assert_eq!(renewed.expect("an answer"), Settled::Done);
                let again = Fate::Again { after: Duration::from_nanos(999_999_999), counts: true };
                assert_eq!(settle(&store, &claimed, again).await, Settled::Done);
                let (due, updated) = (database.number(&ends("due")).await, database.number(&ends("updated")).await);
                assert_eq!(due - updated, 999_999, "{id}");
                database
                    .execute("UPDATE countersign_outbox SET due = due - 1000000, claim_at = claim_at - 1000000")
                    .await;
                let claimed = claim_one(&store, Duration::from_secs(60)).await;
                assert_eq!((claimed.lease.key.id.as_str(), claimed.lease.attempt), (&*id, 2));
                assert_eq!(settle(&store, &claimed, Fate::Delivered).await, Settled::Done);
                database.execute("DELETE FROM countersign_attempt").await;
                database.execute("DELETE FROM countersign_outbox").await;
            }
        }
    };
}

c094!(c094_on_postgres_what_is_enqueued_now_is_claimable_now_and_no_span_is_rounded, postgres);
c094!(c094_on_mysql_what_is_enqueued_now_is_claimable_now_and_no_span_is_rounded, mysql);

/// An endpoint that is put again is the same row: nothing that belongs to it goes and comes back.
macro_rules! c097 {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = database.open().await;
            put(&store, "https://example.com/hooks").await;
            store.enqueue(vec![new("msg_1"), new("msg_2")]).await.expect("an answer");
            let claimed = claim_one(&store, Duration::from_secs(60)).await;
            let again = Fate::Again { after: Duration::ZERO, counts: true };
            assert_eq!(settle(&store, &claimed, again).await, Settled::Done);
            let row = database.number("SELECT id FROM countersign_endpoint").await;

            put(&store, "https://example.org/hooks").await;
            assert_eq!(database.number("SELECT id FROM countersign_endpoint").await, row, "the row is another one");
            assert_eq!(database.number("SELECT COUNT(*) FROM countersign_outbox WHERE state = 'pending'").await, 2);
            assert_eq!(database.number("SELECT COUNT(*) FROM countersign_attempt").await, 1);
            assert_eq!(claim_one(&store, Duration::from_secs(60)).await.endpoint.url, "https://example.org/hooks");
        }
    };
}

c097!(c097_on_postgres_an_endpoint_that_is_put_again_keeps_its_messages_and_their_attempts, postgres);
c097!(c097_on_mysql_an_endpoint_that_is_put_again_keeps_its_messages_and_their_attempts, mysql);

macro_rules! c082 {
    ($name:ident, $room:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let store = database.open().await;
            crate::outbox_by_hand::stops_nobody(&store, async |sql| database.execute(sql).await).await;
        }
    };
}

c082!(c082_what_somebody_wrote_by_hand_stops_nobody_on_postgres, postgres);
c082!(c082_what_somebody_wrote_by_hand_stops_nobody_on_mysql, mysql);

async fn put(store: &dyn OutboxStore, url: &str) {
    store.put_endpoint(Endpoint::new(name("shop"), url)).await.expect("an answer");
}

async fn claim_one(store: &dyn OutboxStore, lease: Duration) -> ClaimedMessage {
    let claimed = store.claim_messages(ClaimMessages::new(1, lease)).await.expect("an answer").messages;
    claimed.into_iter().next().expect("something is due")
}

async fn settle(store: &dyn OutboxStore, claimed: &ClaimedMessage, fate: Fate) -> Settled {
    let settlement = Settlement::new(fate, AttemptReport::default());
    store.settle(claimed.lease.clone(), settlement).await.expect("an answer")
}

fn new(id: &str) -> Enqueue {
    Enqueue::new(name("shop"), Message::new(EventId::new(id).expect("an id"), name("order.paid"), "{}"))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
