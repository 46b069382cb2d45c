//! Endpoints that go, change, fail for days, and are tried out.

use std::sync::Arc;
use std::time::Duration;

use countersign::send::{Dispatcher, Verdict};
use countersign::store::{EndpointEntry, Message, MessageState};
use tokio::sync::Notify;

use super::{Receiver, Running, Sender, loopback, named, on_each_outbox, status};
use crate::support::{OTHER_SECRET, standard_at, until};

async fn found(sender: &Sender, name: &str) -> EndpointEntry {
    sender.store.endpoint(named(name)).await.expect("the store answers").expect("it is there")
}

#[tokio::test]
async fn c122_an_endpoint_that_is_gone_is_disabled_and_its_backlog_goes_out_when_it_is_enabled() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[410, 200]).await;
        sender.endpoint("shop", receiver.url()).await;
        for number in 0..5 {
            sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
        }
        let running = Running::start(sender.dispatcher().endpoint_concurrency(1));
        until("it is disabled", async || found(&sender, "shop").await.disabled.is_some()).await;
        sender.enqueue("shop", "msg_5", "{}").await;
        sender.until_done().await;
        assert_eq!(receiver.seen().len(), 1, "nothing more is sent to it");
        assert!(sender.all().await.iter().all(|entry| (entry.state, entry.attempts) == (MessageState::Pending, 0)));
        assert!(found(&sender, "shop").await.disabled.expect("a reason").contains("410"));

        assert!(sender.store.disable_endpoint(named("shop"), None).await.expect("the store answers"));
        until("all are delivered", async || {
            sender.all().await.iter().all(|entry| entry.state == MessageState::Succeeded)
        })
        .await;
        running.stop().await;
        assert_eq!(receiver.seen().len(), 7);
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_fails_for_too_long_is_disabled_and_enabling_it_forgets_that() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher().disable_after(Some(Duration::from_millis(300))));
        until("it is disabled", async || found(&sender, "shop").await.disabled.is_some()).await;
        running.stop().await;
        assert_eq!(sender.state("shop", "msg_1").await, MessageState::Pending);
        let seen = receiver.seen();
        assert!(seen.len() >= 3, "{}", seen.len());
        sender.store.disable_endpoint(named("shop"), None).await.expect("the store answers");
        let entry = found(&sender, "shop").await;
        assert_eq!((entry.disabled, entry.failures, entry.failing_since), (None, 0, None));
    })
    .await;
}

#[tokio::test]
async fn c125_each_attempt_goes_by_what_the_endpoint_is_then() {
    on_each_outbox(async |sender| {
        let old = Receiver::with_statuses(&[500]).await;
        let new = Receiver::with_statuses(&[200]).await;
        sender.endpoint("shop", old.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        until("it has been tried", async || !old.seen().is_empty()).await;
        let secret = sender.secret_file("other", OTHER_SECRET);
        sender
            .endpoint_with("shop", new.url(), |shop| {
                shop.secrets = vec![secret];
                shop.scheme = "envelope".to_owned();
            })
            .await;
        sender.until_done().await;
        running.stop().await;
        assert_eq!(sender.state("shop", "msg_1").await, MessageState::Succeeded);
        let request = &new.seen()[0];
        let verifier =
            crate::support::verifier(countersign::Scheme::named("envelope").expect("a scheme"), OTHER_SECRET);
        let head = countersign::signature::Head::new(&http::Method::POST, "", &request.headers);
        assert!(verifier.verify(head, &request.body).is_ok());
    })
    .await;
}

#[tokio::test]
async fn c125_messages_of_an_endpoint_that_is_removed_are_dead_letters() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        until("it has been tried", async || !receiver.seen().is_empty()).await;
        assert!(sender.store.remove_endpoint(named("shop")).await.expect("the store answers"));
        sender.until_done().await;
        running.stop().await;
        assert_eq!(sender.state("shop", "msg_1").await, MessageState::DeadLetter);
    })
    .await;
}

#[tokio::test]
async fn c125_a_message_that_was_on_its_way_when_its_endpoint_was_removed_is_told_as_delivered() {
    on_each_outbox(async |sender| {
        let removed = Arc::new(Notify::new());
        let wait = Arc::clone(&removed);
        let receiver = Receiver::answering(move |_| {
            let wait = Arc::clone(&wait);
            async move {
                wait.notified().await;
                status(200)
            }
        })
        .await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        until("it is on its way", async || !receiver.seen().is_empty()).await;
        assert!(sender.store.remove_endpoint(named("shop")).await.expect("the store answers"));
        removed.notify_one();
        sender.until_state("shop", "msg_1", MessageState::Succeeded).await;
        let tally = running.tally.clone();
        running.stop().await;
        let tallied = tally.now();
        assert_eq!((tallied.dead, tallied.unsettled), (0, 0));
    })
    .await;
}

/// The old receiver says that it is gone when the messages go elsewhere already.
#[tokio::test]
async fn c125_an_endpoint_that_has_moved_is_not_disabled_for_what_its_old_address_says() {
    on_each_outbox(async |sender| {
        let moved = Arc::new(Notify::new());
        let wait = Arc::clone(&moved);
        let old = Receiver::answering(move |_| {
            let wait = Arc::clone(&wait);
            async move {
                wait.notified().await;
                status(410)
            }
        })
        .await;
        let new = Receiver::with_statuses(&[200]).await;
        sender.endpoint("shop", old.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        until("it is on its way", async || !old.seen().is_empty()).await;
        sender.endpoint("shop", new.url()).await;
        moved.notify_one();
        sender.until_state("shop", "msg_1", MessageState::Succeeded).await;
        running.stop().await;
        assert_eq!((found(&sender, "shop").await.disabled, new.seen().len()), (None, 1));
    })
    .await;
}

#[tokio::test]
async fn c124_trying_an_endpoint_out_changes_nothing_however_it_ends() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| status(if seen.before < 20 { 410 } else { 200 })).await;
        sender.endpoint("shop", receiver.url()).await;
        let before = found(&sender, "shop").await;
        let dispatcher = Dispatcher::builder(sender.store.clone(), loopback()).build().expect("a dispatcher");
        for expected in [Verdict::Gone; 20].into_iter().chain([Verdict::Delivered]) {
            let message = Message::json("countersign.test", &1).expect("a message");
            assert_eq!(dispatcher.try_out(&before.endpoint, &message).await.verdict, expected);
        }
        assert_eq!(found(&sender, "shop").await, before);
        assert_eq!(sender.all().await.len(), 0);
        let request = &receiver.seen()[20];
        let id = request.header("webhook-id");
        let expected = standard_at(crate::support::SECRET, id, request.header("webhook-timestamp"), b"1");
        assert_eq!(request.headers["webhook-signature"], expected["webhook-signature"]);
    })
    .await;
}

#[tokio::test]
async fn what_an_endpoint_wants_made_of_a_status_goes_before_the_table() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[404, 404, 418]).await;
        sender
            .endpoint_with("shop", receiver.url(), |shop| {
                shop.settings.verdicts = vec![("404".into(), "retry".into()), ("4xx".into(), "delivered".into())];
            })
            .await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        let entry = sender.entry("shop", "msg_1").await;
        assert_eq!((entry.state, entry.attempts), (MessageState::Succeeded, 3));
    })
    .await;
}
