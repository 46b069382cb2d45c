//! What the outboxes on servers keep to when a proxy loses their connections, at every message of a call.

use std::time::Duration;

use countersign::store::{
    AttemptReport, ClaimMessages, Endpoint, Enqueue, Fate, Message, MessageKey, MessageLease, MessageState, MySqlStore,
    OutboxEntry, OutboxStore, PostgresStore, Settled, Settlement, TypePattern,
};
use countersign::{EventId, Name};

use super::proxy::{Faults, Side};
use super::{mysql, postgres};

macro_rules! lost_connections {
    ($name:ident, $room:ident, $store:ident) => {
        #[tokio::test]
        async fn $name() {
            let Some(database) = $room::Database::create().await else { return };
            let (url, faults) = database.behind_proxy().await;
            let store = $store::connect(&url).await.expect("the store opens");
            each_call_takes_effect_once(&store, &faults).await;
        }
    };
}

lost_connections!(
    connections_to_postgres_lost_anywhere_make_each_message_and_end_each_attempt_once,
    postgres,
    PostgresStore
);
lost_connections!(connections_to_mysql_lost_anywhere_make_each_message_and_end_each_attempt_once, mysql, MySqlStore);

/// One cut is mended by the store itself: whether its commit was seen or not, the caller hears what is true.
async fn each_call_takes_effect_once(store: &dyn OutboxStore, faults: &Faults) {
    let mut endpoint = Endpoint::new(name("a"), "https://example.com/hooks");
    endpoint.types = vec![TypePattern::new("order.*").expect("a pattern")];
    store.put_endpoint(endpoint).await.expect("an answer");
    for side in [Side::Question, Side::Answer] {
        let mut cuts = 0;
        for at in 1.. {
            let was_cut = enqueue(store, faults, side, at).await
                | publish(store, faults, side, at).await
                | settle(store, faults, side, at).await
                | release(store, faults, side, at).await;
            if !was_cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 2, "nothing was cut");
    }
}

async fn enqueue(store: &dyn OutboxStore, faults: &Faults, side: Side, at: u32) -> bool {
    let message = message(&format!("msg_enqueued_{side:?}_{at}"));
    faults.plan(side, at, false);
    let enqueued = store.enqueue(vec![Enqueue::new(name("a"), message.clone())]).await;
    let was_cut = faults.heal();
    assert!(enqueued.expect("an answer")[0].created, "it is new: {side:?} {at}");
    let again = store.enqueue(vec![Enqueue::new(name("a"), message)]).await;
    assert!(!again.expect("an answer")[0].created, "it is there: {side:?} {at}");
    was_cut
}

async fn publish(store: &dyn OutboxStore, faults: &Faults, side: Side, at: u32) -> bool {
    faults.plan(side, at, false);
    let published = store.publish(message(&format!("msg_published_{side:?}_{at}"))).await;
    let was_cut = faults.heal();
    let published = published.expect("an answer");
    assert!(published.len() == 1 && published[0].created, "{side:?} {at}");
    was_cut
}

async fn settle(store: &dyn OutboxStore, faults: &Faults, side: Side, at: u32) -> bool {
    let lease = claim(store).await;
    let settlement = || Settlement::new(Fate::Delivered, AttemptReport::default());
    faults.plan(side, at, false);
    let settled = store.settle(lease.clone(), settlement()).await;
    let was_cut = faults.heal();
    assert_eq!(settled.expect("an answer"), Settled::Done, "{side:?} {at}");
    assert_eq!(store.settle(lease.clone(), settlement()).await.expect("an answer"), Settled::LeaseLost);
    let entry = entry(store, &lease).await;
    assert_eq!((entry.state, entry.attempt_log.len()), (MessageState::Succeeded, 1), "{side:?} {at}");
    was_cut
}

/// The message is taken again by the next claim of this test, and ended.
async fn release(store: &dyn OutboxStore, faults: &Faults, side: Side, at: u32) -> bool {
    let lease = claim(store).await;
    faults.plan(side, at, false);
    let released = store.release_message(lease.clone()).await;
    let was_cut = faults.heal();
    assert_eq!(released.expect("an answer"), Settled::Done, "{side:?} {at}");
    assert_eq!(store.release_message(lease.clone()).await.expect("an answer"), Settled::LeaseLost, "a late holder");
    let entry = entry(store, &lease).await;
    assert_eq!((entry.state, entry.attempts), (MessageState::Pending, 0), "{side:?} {at}");
    was_cut
}

async fn claim(store: &dyn OutboxStore) -> MessageLease {
    let claim = ClaimMessages::new(1, Duration::from_secs(600));
    store.claim_messages(claim).await.expect("an answer").messages.remove(0).lease
}

async fn entry(store: &dyn OutboxStore, lease: &MessageLease) -> OutboxEntry {
    let MessageKey { endpoint, id } = lease.key.clone();
    store.find_message(MessageKey { endpoint, id }).await.expect("an answer").expect("it is there")
}

fn message(id: &str) -> Message {
    Message::new(EventId::new(id).expect("an id"), name("order.paid"), "{}")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}
