//! What one endpoint may take from the others: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use countersign::send::Backoff;
use countersign::store::MessageState;
use tokio::net::TcpListener;

use super::{Receiver, Running, Sender, later, named, on_each_outbox, status};
use crate::support::until;

#[tokio::test]
async fn c088_a_tar_pit_with_a_thousand_messages_does_not_hold_up_a_healthy_endpoint() {
    on_each_outbox(async |sender| {
        let tar_pit = Receiver::answering(async |_| std::future::pending().await).await;
        let healthy = Receiver::with_statuses(&[200]).await;
        sender.endpoint("tar-pit", tar_pit.url()).await;
        sender.endpoint("healthy", healthy.url()).await;
        for number in 0..1_000 {
            sender.enqueue("tar-pit", &format!("msg_{number}"), "{}").await;
        }
        sender.enqueue("healthy", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher().concurrency(16).grace(Duration::ZERO));
        sender.until_state("healthy", "msg_1", MessageState::Succeeded).await;
        // And one that comes when the tar pit has all it can get.
        until("the tar pit has its share", async || tar_pit.seen().len() >= 4).await;
        sender.enqueue("healthy", "msg_2", "{}").await;
        let began = Instant::now();
        sender.until_state("healthy", "msg_2", MessageState::Succeeded).await;
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_never_gets_more_attempts_at_one_time_than_it_wants() {
    on_each_outbox(async |sender| {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let receiver = {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            Receiver::answering(move |_| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                async move {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    now.fetch_sub(1, SeqCst);
                    status(200)
                }
            })
            .await
        };
        sender.endpoint_with("shop", receiver.url(), |shop| shop.settings.max_in_flight = Some(2)).await;
        for number in 0..30 {
            sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
        }
        let running = Running::start(sender.dispatcher().concurrency(64));
        sender.until_done().await;
        running.stop().await;
        assert_eq!(most.load(SeqCst), 2);
        let entries = sender.all().await;
        assert!(entries.iter().all(|entry| entry.attempts == 1), "what was given back was not counted");
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_gets_no_more_attempts_in_a_second_than_it_wants() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[200]).await;
        sender.endpoint_with("shop", receiver.url(), |shop| shop.settings.rate_per_second = Some(20)).await;
        for number in 0..30 {
            sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
        }
        let began = Instant::now();
        let running = Running::start(sender.dispatcher().poll(Duration::from_secs(3_600)));
        sender.until_done().await;
        running.stop().await;
        let took = receiver.seen()[29].at - began;
        // 2 at once, and 28 more at 50 ms: the last one 1.4 s after the first.
        assert!(took >= Duration::from_millis(1_350), "{took:?}");
        assert!(took <= Duration::from_secs(8), "and no poll is waited for: {took:?}");
    })
    .await;
}

#[tokio::test]
async fn a_breaker_leaves_a_dead_endpoint_alone_and_uses_up_no_attempts() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| status(if seen.before < 5 { 500 } else { 200 })).await;
        sender.endpoint("flaps", receiver.url()).await;
        for number in 0..40 {
            sender.enqueue("flaps", &format!("msg_{number}"), "{}").await;
        }
        let pause = Duration::from_millis(400);
        let builder = sender.dispatcher().breaker(3, Backoff::new(pause, pause)).endpoint_concurrency(1);
        let running = Running::start(builder.poll(Duration::from_secs(3_600)));
        sender.until_done().await;
        running.stop().await;
        let seen = receiver.seen();
        // Three failures open it; the probe fails, and the next one too; after that all are delivered.
        assert_eq!(seen.len(), 45);
        for number in [3, 4, 5] {
            let waited = seen[number].at - seen[number - 1].at;
            assert!(waited >= pause - Duration::from_millis(20), "{number}: {waited:?}");
        }
        let entries = sender.all().await;
        assert!(entries.iter().all(|entry| entry.state == MessageState::Succeeded));
        assert_eq!(entries.iter().map(|entry| u64::from(entry.attempts)).sum::<u64>(), 45);
    })
    .await;
}

#[tokio::test]
async fn retry_after_pauses_the_whole_endpoint_and_a_busy_copy_only_itself() {
    on_each_outbox(async |sender| {
        let limited =
            Receiver::answering(async |seen| if seen.before == 0 { later(429, 2) } else { status(200) }).await;
        let running_there = Receiver::answering(async |seen| {
            let is_first = seen.header("webhook-id") == "msg_0" && seen.before < 2;
            if is_first { later(409, 1) } else { status(200) }
        })
        .await;
        sender.endpoint("limited", limited.url()).await;
        sender.endpoint("running-there", running_there.url()).await;
        sender.enqueue("limited", "msg_0", "{}").await;
        sender.enqueue("running-there", "msg_0", "{}").await;
        let running = Running::start(sender.dispatcher().endpoint_concurrency(1));
        until("both have answered", async || !limited.seen().is_empty() && !running_there.seen().is_empty()).await;
        until("it is on record", async || {
            let found = sender.store.endpoint(named("limited")).await.expect("the store answers");
            found.is_some_and(|found| found.paused_until.is_some())
        })
        .await;
        for number in 1..5 {
            sender.enqueue("limited", &format!("msg_{number}"), "{}").await;
            sender.enqueue("running-there", &format!("msg_{number}"), "{}").await;
        }
        sender.until_done().await;
        running.stop().await;

        let seen = limited.seen();
        assert!(seen[1].at - seen[0].at >= Duration::from_millis(1_950), "{:?}", seen[1].at - seen[0].at);
        let entry = sender.entry("limited", "msg_0").await;
        assert_eq!((entry.state, entry.attempts), (MessageState::Succeeded, 2));

        let seen = running_there.seen();
        let back = seen.iter().rposition(|request| request.header("webhook-id") == "msg_0").expect("it came back");
        assert_eq!(back, seen.len() - 1, "the others did not wait for it");
        let entry = sender.entry("running-there", "msg_0").await;
        assert_eq!((entry.state, entry.attempts), (MessageState::Succeeded, 1), "a copy that runs costs no attempt");
    })
    .await;
}

#[tokio::test]
async fn c114_a_receiver_that_never_answers_costs_a_slot_for_no_longer_than_an_attempt_may_take() {
    let sender = Sender::in_memory();
    // Nobody accepts: the connection is there, and nothing ever comes.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    sender.endpoint_with("silent", url, |silent| silent.settings.max_attempts = Some(1)).await;
    for number in 0..6 {
        sender.enqueue("silent", &format!("msg_{number}"), "{}").await;
    }
    let builder =
        sender.dispatcher().concurrency(2).endpoint_concurrency(2).attempt_timeout(Duration::from_millis(300));
    let running = Running::start(builder);
    let began = Instant::now();
    sender.until_done().await;
    running.stop().await;
    assert!((900..8_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}
