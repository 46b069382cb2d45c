//! Messages that share an ordering key.

use std::time::Duration;

use countersign::store::{MessageFilter, MessageState, OnDead};

use super::{Receiver, Running, named, on_each_outbox, status};
use crate::support::{Counts, until};

#[tokio::test]
async fn c089_keyed_messages_arrive_in_order_and_a_failing_head_holds_up_its_own_key_alone() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| {
            let fails = seen.header("webhook-id") == "a_0" && seen.header("webhook-attempt") != "4";
            status(if fails { 500 } else { 200 })
        })
        .await;
        sender.endpoint("shop", receiver.url()).await;
        for number in 0..10 {
            for key in ["a", "b", "c"] {
                let id = format!("{key}_{number}");
                sender.enqueue_with("shop", &id, "{}", |message| message.ordering_key = Some(named(key))).await;
            }
        }
        let (one, two) = (Running::start(sender.dispatcher()), Running::start(sender.dispatcher()));
        sender.until_done().await;
        one.stop().await;
        two.stop().await;
        let seen = receiver.seen();
        for key in ["a", "b", "c"] {
            let ids: Vec<_> =
                seen.iter().map(|request| request.header("webhook-id")).filter(|id| id.starts_with(key)).collect();
            let again = if key == "a" { 3 } else { 0 };
            let expected: Vec<_> =
                (0..again).map(|_| "a_0".to_owned()).chain((0..10).map(|n| format!("{key}_{n}"))).collect();
            assert_eq!(ids, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn c089_behind_a_dead_letter_messages_wait_or_are_parked_or_go_on_as_the_endpoint_says() {
    on_each_outbox(async |sender| {
        // The first of each order dies at its first attempt, whichever endpoint's turn it is.
        let met = Counts::default();
        let receiver = Receiver::answering(move |seen| {
            let id = seen.header("webhook-id");
            let dies = met.count(id) == 1 && id.ends_with("_0");
            async move { status(if dies { 400 } else { 200 }) }
        })
        .await;
        for (name, on_dead) in [("block", OnDead::Block), ("park", OnDead::Park), ("skip", OnDead::Skip)] {
            sender.endpoint_with(name, receiver.url(), |endpoint| endpoint.settings.on_dead = on_dead).await;
            for number in 0..3 {
                let id = format!("{name}_{number}");
                sender.enqueue_with(name, &id, "{}", |message| message.ordering_key = Some(named("k"))).await;
            }
        }
        let running = Running::start(sender.dispatcher().endpoint_concurrency(1));
        let states = async |name: &str| {
            let mut states = Vec::new();
            for number in 0..3 {
                states.push(sender.state(name, &format!("{name}_{number}")).await);
            }
            states
        };
        let (dead, pending, sent) = (MessageState::DeadLetter, MessageState::Pending, MessageState::Succeeded);
        until("each has gone as far as it can", async || {
            states("block").await == [dead, pending, pending]
                && states("park").await == [dead, dead, dead]
                && states("skip").await == [dead, sent, sent]
        })
        .await;

        // All can be sent again together, in order.
        let replayed = sender.store.replay(MessageFilter::default(), Duration::ZERO).await.expect("the store answers");
        assert_eq!(replayed.len(), 5);
        sender.until_done().await;
        running.stop().await;
        for name in ["block", "park", "skip"] {
            assert_eq!(states(name).await, [sent, sent, sent], "{name}");
        }
        for name in ["block", "park"] {
            let seen = receiver.seen();
            let ids: Vec<_> =
                seen.iter().map(|request| request.header("webhook-id")).filter(|id| id.starts_with(name)).collect();
            assert_eq!(ids, [0, 0, 1, 2].map(|number| format!("{name}_{number}")));
        }
    })
    .await;
}
