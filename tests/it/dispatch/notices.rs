//! What operators are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::notice::Notice;
use countersign::store::{ClaimMessages, MessageState};
use serde_json::Value;

use super::{Receiver, Running, named, on_each_outbox, status};
use crate::support::until;

#[tokio::test]
async fn c154_a_dead_letter_and_a_disabled_endpoint_are_told_by_hook_by_event_and_by_count() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| {
            status(match seen.header("webhook-id") {
                "msg_dies" => 400,
                _ => 410,
            })
        })
        .await;
        let operator = Receiver::with_statuses(&[200]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.endpoint("ops", operator.url()).await;
        let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let hook = {
            let told = Arc::clone(&told);
            move |notice: &Notice| told.lock().expect("no test panics in here").push(notice.clone())
        };
        let telling = sender.notices("ops", hook);
        let running = Running::start(sender.dispatcher().notices(&telling.notices));
        sender.enqueue("shop", "msg_dies", "{}").await;
        sender.until_state("shop", "msg_dies", MessageState::DeadLetter).await;
        sender.enqueue("shop", "msg_gone", "{}").await;
        until("both are told", async || operator.seen().len() == 2).await;
        sender.until_done().await;
        let tally = running.tally.clone();
        running.stop().await;
        let tallied = tally.now();

        let told = told.lock().expect("no test panics in here").clone();
        assert_eq!(told.len(), 2);
        assert!(matches!(&told[0], Notice::MessageDead { id, attempts: 1, .. } if id.as_str() == "msg_dies"));
        assert!(matches!(&told[1], Notice::EndpointDisabled { endpoint, .. } if *endpoint == named("shop")));
        assert_eq!((tallied.dead, tallied.disabled), (1, 1));

        // Two messages to one endpoint, in any order.
        let seen = operator.seen();
        let of_type = |event_type: &str| {
            let found = seen.iter().find(|request| request.header("webhook-type") == event_type).expect(event_type);
            (found, serde_json::from_slice::<Value>(&found.body).expect("JSON"))
        };
        let (request, dead) = of_type("message.dead");
        assert_eq!(request.header("causation-id"), "msg_dies");
        assert_eq!(
            (&dead["id"], &dead["endpoint"], &dead["type"]),
            (&"msg_dies".into(), &"shop".into(), &"order.paid".into())
        );
        assert!(dead["reason"].as_str().is_some_and(|reason| reason.contains("400")));
        let (_, disabled) = of_type("endpoint.disabled");
        assert!(disabled["reason"].as_str().is_some_and(|reason| reason.contains("410")));
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_the_store_disabled_for_failing_too_long_is_told_too() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500]).await;
        let operator = Receiver::with_statuses(&[200]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.endpoint("ops", operator.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let told = sender.notices("ops", |_| {});
        let builder = || sender.dispatcher().disable_after(Some(Duration::from_millis(200))).notices(&told.notices);
        // However many see it, the operator's endpoint gets it once.
        let (one, two) = (Running::start(builder()), Running::start(builder()));
        until("it is told", async || !operator.seen().is_empty()).await;
        sender.until_done().await;
        one.stop().await;
        two.stop().await;
        assert_eq!(operator.seen().len(), 1);
        assert_eq!(operator.seen()[0].header("webhook-type"), "endpoint.disabled");
    })
    .await;
}

/// That it is enabled and goes again is another occasion, which the same dispatcher tells too.
#[tokio::test]
async fn each_time_that_an_endpoint_is_disabled_is_told_once() {
    on_each_outbox(async |sender| {
        let gone = Receiver::with_statuses(&[410]).await;
        let operator = Receiver::with_statuses(&[200]).await;
        sender.endpoint("shop", gone.url()).await;
        sender.endpoint("ops", operator.url()).await;
        for id in ["msg_1", "msg_2"] {
            sender.enqueue("shop", id, "{}").await;
        }
        let told = sender.notices("ops", |_| {});
        let running = Running::start(sender.dispatcher().notices(&told.notices));
        until("it is told", async || operator.seen().len() == 1).await;
        assert!(sender.store.disable_endpoint(named("shop"), None).await.expect("the store answers"));
        until("it is told again", async || operator.seen().len() == 2).await;
        sender.until_done().await;
        running.stop().await;
        let seen = operator.seen();
        assert_eq!(seen.len(), 2);
        assert_ne!(seen[0].header("webhook-id"), seen[1].header("webhook-id"));
    })
    .await;
}

#[tokio::test]
async fn nothing_is_sent_to_the_operators_endpoint_about_itself() {
    on_each_outbox(async |sender| {
        let operator = Receiver::with_statuses(&[400]).await;
        sender.endpoint("ops", operator.url()).await;
        sender.enqueue("ops", "msg_1", "{}").await;
        let told = sender.notices("ops", |_| {});
        let running = Running::start(sender.dispatcher().notices(&told.notices));
        sender.until_done().await;
        running.stop().await;
        told.end().await;
        assert_eq!((operator.seen().len(), sender.all().await.len()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn an_operators_endpoint_that_is_not_there_costs_no_message() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[400]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let told = sender.notices("nobody", |_| {});
        let running = Running::start(sender.dispatcher().notices(&told.notices));
        sender.until_state("shop", "msg_1", MessageState::DeadLetter).await;
        running.stop().await;
    })
    .await;
}

/// Nobody has attempted it when it is given up: the dispatchers that did are dead, and only the claim sees it.
#[tokio::test]
async fn a_message_whose_senders_died_is_told_when_it_is_given_up() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[200]).await;
        sender.endpoint_with("shop", receiver.url(), |endpoint| endpoint.settings.max_attempts = Some(1)).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let mut claimed = Vec::new();
        while claimed.is_empty() {
            let claim = ClaimMessages::new(1, Duration::from_millis(1));
            claimed = sender.store.claim_messages(claim).await.expect("an answer").messages;
        }
        let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let hook = {
            let told = Arc::clone(&told);
            move |notice: &Notice| told.lock().expect("no test panics in here").push(notice.clone())
        };
        let telling = sender.notices("ops", hook);
        let running = Running::start(sender.dispatcher().notices(&telling.notices));
        until("it is told", async || !told.lock().expect("no test panics in here").is_empty()).await;
        running.stop().await;
        let told = told.lock().expect("no test panics in here").clone();
        assert!(
            matches!(&told[..], [Notice::MessageDead { id, attempts: 1, reason, .. }]
                if id.as_str() == "msg_1" && reason.contains("used up")),
            "{told:?}"
        );
        assert!(receiver.seen().is_empty());
    })
    .await;
}
