//! Leases: what a dispatcher holds, gives back, leaves behind and takes over.

use std::time::{Duration, Instant};

use countersign::ConfigError;
use countersign::send::{Backoff, Dispatcher, RetryPolicy};
use countersign::store::{MemoryStore, MessageState};

use super::{Receiver, Running, Sender, loopback, on_each_outbox, status};
use crate::support::{Gate, until};

#[tokio::test]
async fn c075_what_a_crash_left_behind_is_sent_when_its_lease_has_run_out() {
    on_each_outbox(async |sender| {
        let gate = Gate::default();
        let receiver = {
            let gate = gate.clone();
            Receiver::answering(move |seen| {
                let gate = gate.clone();
                async move {
                    if seen.header("webhook-attempt") == "1" {
                        gate.pass().await;
                    }
                    status(200)
                }
            })
            .await
        };
        sender.endpoint("shop", receiver.url()).await;
        for number in 0..20 {
            sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
        }
        let short = || {
            let builder = sender.dispatcher().attempt_timeout(Duration::from_millis(500));
            builder.lease(Duration::from_millis(5_500)).endpoint_concurrency(20)
        };
        let running = Running::start(short());
        until("all are being sent", async || receiver.seen().len() == 20).await;
        let killed = Instant::now();
        running.kill().await;
        gate.open();
        assert!(sender.all().await.iter().all(|entry| entry.state == MessageState::Delivering));
        let running = Running::start(short());
        sender.until_done().await;
        running.stop().await;
        assert!(killed.elapsed() < Duration::from_secs(9), "{:?}", killed.elapsed());
        let entries = sender.all().await;
        assert!(entries.iter().all(|entry| (entry.state, entry.attempts) == (MessageState::Succeeded, 2)));
    })
    .await;
}

#[tokio::test]
async fn c076_at_the_stop_what_ends_in_time_is_recorded_and_the_rest_is_taken_by_another_one_at_once() {
    on_each_outbox(async |sender| {
        let gate = Gate::default();
        let receiver = {
            let gate = gate.clone();
            Receiver::answering(move |seen| {
                let gate = gate.clone();
                async move {
                    if seen.header("webhook-id") != "msg_0" && seen.before < 5 {
                        gate.pass().await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    status(200)
                }
            })
            .await
        };
        sender.endpoint("shop", receiver.url()).await;
        for number in 0..5 {
            sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
        }
        let running = Running::start(sender.dispatcher().grace(Duration::from_millis(500)));
        until("all are being sent", async || receiver.seen().len() == 5).await;
        running.stop().await;
        assert_eq!(sender.state("shop", "msg_0").await, MessageState::Succeeded);
        for number in 1..5 {
            let entry = sender.entry("shop", &format!("msg_{number}")).await;
            assert_eq!((entry.state, entry.attempts), (MessageState::Pending, 0), "given back, and not counted");
        }
        let running = Running::start(sender.dispatcher());
        let began = Instant::now();
        sender.until_done().await;
        assert!(began.elapsed() < Duration::from_secs(5), "long before the leases would have run out");
        running.stop().await;
        assert_eq!(receiver.seen().len(), 9);
    })
    .await;
}

#[test]
fn c077_a_lease_that_an_attempt_could_outlast_is_refused() {
    let build = |timeout, lease| {
        let builder = Dispatcher::builder(MemoryStore::new(), loopback());
        builder.attempt_timeout(Duration::from_secs(timeout)).lease(Duration::from_secs(lease)).build().map(drop)
    };
    assert_eq!(build(20, 25), Ok(()));
    let least = Duration::from_secs(25);
    assert_eq!(build(20, 24), Err(ConfigError::TooShort { what: "lease", value: Duration::from_secs(24), least }));
    assert!(build(u64::MAX, u64::MAX).is_ok() || build(u64::MAX, u64::MAX).is_err(), "and nothing overflows");
    let builder = || Dispatcher::builder(MemoryStore::new(), loopback());
    assert_eq!(builder().concurrency(0).build().map(drop), Err(ConfigError::NoConcurrency));
    assert_eq!(builder().endpoint_concurrency(0).build().map(drop), Err(ConfigError::NoConcurrency));
    assert_eq!(builder().user_agent("a\nb").build().map(drop), Err(ConfigError::UserAgent));
    let never = RetryPolicy::new().with_max_attempts(0);
    assert_eq!(builder().retry(never).build().map(drop), Err(ConfigError::NoAttempts));
}

#[tokio::test]
async fn c077_an_attempt_that_an_endpoint_wants_to_be_longer_than_the_lease_ends_before_it() {
    let sender = Sender::in_memory();
    let receiver = Receiver::answering(async |_| std::future::pending().await).await;
    sender
        .endpoint_with("slow", receiver.url(), |slow| {
            slow.settings.timeout_ms = Some(3_600_000);
            slow.settings.max_attempts = Some(1);
        })
        .await;
    sender.enqueue("slow", "msg_1", "{}").await;
    let builder = sender.dispatcher().attempt_timeout(Duration::from_secs(1)).lease(Duration::from_secs(6));
    let running = Running::start(builder);
    sender.until_state("slow", "msg_1", MessageState::DeadLetter).await;
    running.stop().await;
    let entry = sender.entry("slow", "msg_1").await;
    assert!(entry.attempt_log[0].report.took < Duration::from_secs(4), "{:?}", entry.attempt_log);
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn c078_nothing_waits_under_a_lease_so_that_two_dispatchers_send_each_message_once() {
    on_each_outbox(async |sender| {
        // Each takes nearly all of its time, and there are many more than slots.
        let receiver = Receiver::answering(async |_| {
            tokio::time::sleep(Duration::from_millis(400)).await;
            status(200)
        })
        .await;
        sender.endpoint("slow", receiver.url()).await;
        for number in 0..50 {
            sender.enqueue("slow", &format!("msg_{number}"), "{}").await;
        }
        let builder = || {
            let builder = sender.dispatcher().concurrency(5).endpoint_concurrency(5);
            builder.attempt_timeout(Duration::from_secs(5)).lease(Duration::from_secs(10))
        };
        let (one, two) = (Running::start(builder()), Running::start(builder()));
        sender.until_done().await;
        let shares = [one.tally.now().delivered, two.tally.now().delivered];
        one.stop().await;
        two.stop().await;
        assert_eq!(receiver.seen().len(), 50, "no message was sent twice");
        assert!(shares.iter().all(|share| *share >= 5), "both took part: {shares:?}");
    })
    .await;
}

#[tokio::test]
async fn c086_many_dispatchers_do_not_multiply_the_attempts_for_one_message() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500, 500, 500, 200]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let delay = Duration::from_millis(700);
        let builder = || sender.dispatcher().retry(RetryPolicy::new().with_backoff(Backoff::new(delay, delay)));
        let twelve: Vec<_> = (0..12).map(|_| Running::start(builder())).collect();
        sender.until_done().await;
        for running in twelve {
            running.stop().await;
        }
        let seen = receiver.seen();
        assert_eq!(seen.len(), 4);
        for pair in seen.windows(2) {
            // From arrival to arrival: the answer's way back is within the delay.
            assert!(pair[1].at - pair[0].at >= delay - Duration::from_millis(20), "{:?}", pair[1].at - pair[0].at);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_enqueued_while_a_dispatcher_sleeps_goes_out_at_once() {
    let sender = Sender::in_memory();
    let receiver = Receiver::with_statuses(&[200]).await;
    sender.endpoint("shop", receiver.url()).await;
    let running = Running::start(sender.dispatcher().poll(Duration::from_secs(3_600)));
    sender.enqueue("shop", "msg_1", "{}").await;
    sender.until_state("shop", "msg_1", MessageState::Succeeded).await;
    // Also a while later, when it sleeps for an hour.
    tokio::time::sleep(Duration::from_millis(200)).await;
    sender.enqueue("shop", "msg_2", "{}").await;
    sender.until_state("shop", "msg_2", MessageState::Succeeded).await;
    running.stop().await;
}

#[tokio::test]
async fn a_retry_that_is_known_to_be_due_is_not_left_to_the_poll() {
    let sender = Sender::in_memory();
    let receiver = Receiver::with_statuses(&[500, 200]).await;
    sender.endpoint("shop", receiver.url()).await;
    sender.enqueue("shop", "msg_1", "{}").await;
    let running = Running::start(sender.dispatcher().poll(Duration::from_secs(3_600)));
    sender.until_done().await;
    running.stop().await;
    assert_eq!(receiver.seen().len(), 2);
}
