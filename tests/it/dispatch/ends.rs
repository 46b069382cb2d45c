//! How attempts end, and what becomes of messages: no path leaves one behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::response::Response;
use countersign::send::{Answer, Failure, Outgoing, RetryPolicy};
use countersign::store::{MessageFilter, MessageState};
use http::StatusCode;
use tokio::net::TcpListener;

use super::{Receiver, Running, Sender, on_each_outbox, status};
use crate::support::until;

#[tokio::test]
async fn what_fails_for_a_while_is_delivered_and_every_attempt_is_on_record() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| match seen.before {
            0 => Response::builder().status(500).header("x-why", "busy").body("come back".into()).expect("a response"),
            1 => status(408),
            2 => status(425),
            _ => status(202),
        })
        .await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        let tally = running.tally.clone();
        running.stop().await;
        // Counted after it is on record, and so for certain only now.
        let tallied = tally.now();
        let entry = sender.entry("shop", "msg_1").await;
        assert_eq!((entry.state, entry.attempts), (MessageState::Succeeded, 4));
        assert_eq!(entry.last_status, Some(StatusCode::ACCEPTED));
        let statuses: Vec<_> =
            entry.attempt_log.iter().filter_map(|attempt| Some(attempt.report.status?.as_u16())).collect();
        assert_eq!(statuses, [500, 408, 425, 202]);
        let first = &entry.attempt_log[0].report;
        assert_eq!((&first.body[..], &first.headers["x-why"]), (&b"come back"[..], &"busy".parse().expect("a value")));
        assert_eq!(first.error.as_deref(), Some("500 Internal Server Error"));
        assert_eq!((tallied.delivered, tallied.retried), (1, 3));
    })
    .await;
}

#[tokio::test]
async fn c122_other_refusals_than_410_are_dead_letters_with_the_reason_and_leave_the_endpoint_alone() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::answering(async |seen| {
            status(seen.header("webhook-id").strip_prefix("msg_").and_then(|code| code.parse().ok()).expect("a status"))
        })
        .await;
        sender.endpoint("shop", receiver.url()).await;
        let refusals = [400, 401, 403, 404, 409, 422];
        for code in refusals {
            sender.enqueue("shop", &format!("msg_{code}"), "{}").await;
        }
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        for code in refusals {
            let entry = sender.entry("shop", &format!("msg_{code}")).await;
            assert_eq!((entry.state, entry.attempts), (MessageState::DeadLetter, 1), "{code}");
            assert!(entry.reason.expect("a reason").contains(&code.to_string()));
        }
        let shop = sender.store.endpoint(super::named("shop")).await.expect("the store answers").expect("it is there");
        assert_eq!(shop.disabled, None);
    })
    .await;
}

#[tokio::test]
async fn c112_a_redirect_is_no_success_and_is_not_followed() {
    let sender = Sender::in_memory();
    let elsewhere = Receiver::with_statuses(&[200]).await;
    let to = elsewhere.url();
    let receiver = Receiver::answering(move |seen| {
        let to = to.clone();
        async move {
            let code: u16 = seen.header("webhook-id").strip_prefix("msg_").expect("ours").parse().expect("a status");
            let mut response = status(code);
            response.headers_mut().insert("location", to.parse().expect("a value"));
            response
        }
    })
    .await;
    sender.endpoint("shop", receiver.url()).await;
    for code in [301, 302, 303, 307, 308] {
        sender.enqueue("shop", &format!("msg_{code}"), "{}").await;
    }
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    running.stop().await;
    assert_eq!(elsewhere.seen().len(), 0);
    for code in [301, 302, 303, 307, 308] {
        let entry = sender.entry("shop", &format!("msg_{code}")).await;
        assert_eq!(entry.state, MessageState::DeadLetter);
        assert!(entry.reason.expect("a reason").contains("127.0.0.1"), "it says where to");
    }
}

#[tokio::test]
async fn attempts_that_are_used_up_and_an_age_that_is_reached_end_in_a_dead_letter() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500]).await;
        sender.endpoint_with("few", receiver.url(), |few| few.settings.max_attempts = Some(3)).await;
        sender.endpoint_with("old", receiver.url(), |old| old.settings.max_age_seconds = Some(0)).await;
        sender.enqueue("few", "msg_1", "{}").await;
        sender.enqueue("old", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        let few = sender.entry("few", "msg_1").await;
        assert_eq!((few.state, few.attempts), (MessageState::DeadLetter, 3));
        assert!(few.reason.expect("a reason").starts_with("all 3 attempts are used up"));
        let old = sender.entry("old", "msg_1").await;
        assert_eq!((old.state, old.attempts), (MessageState::DeadLetter, 1));
        assert!(old.reason.expect("a reason").contains("too old"));
    })
    .await;
}

#[tokio::test]
async fn c085_after_every_way_to_fail_a_message_is_due_later_or_has_an_end() {
    on_each_outbox(async |sender| {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
            listener.local_addr().expect("an address")
        };
        let port = silent.local_addr().expect("an address").port();
        let no_keys = format!("file:{}/absent", std::env::temp_dir().display());
        for (name, url, is_retried) in [
            ("silent", format!("http://127.0.0.1:{port}/"), true),
            ("closed", format!("http://{closed}/"), true),
            ("tls", format!("https://127.0.0.1:{port}/"), true),
            ("dns", "http://no-such-host.invalid/".to_owned(), true),
            ("policy", "http://127.0.0.2/".to_owned(), false),
            ("keys", format!("http://127.0.0.1:{port}/"), true),
            ("scheme", format!("http://127.0.0.1:{port}/"), false),
        ] {
            sender
                .endpoint_with(name, url, |endpoint| {
                    endpoint.settings.timeout_ms = Some(300);
                    endpoint.settings.max_attempts = Some(2);
                    if name == "keys" {
                        endpoint.secrets = vec![no_keys.clone()];
                    } else if name == "scheme" {
                        endpoint.scheme = "no-such-scheme".to_owned();
                    }
                })
                .await;
            sender.enqueue(name, "msg_1", "{}").await;
            sender.enqueue(name, "msg_2", "{}").await;
            let running = Running::start(sender.dispatcher());
            sender.until_done().await;
            running.stop().await;
            for id in ["msg_1", "msg_2"] {
                let entry = sender.entry(name, id).await;
                let end = if name == "scheme" { MessageState::Failed } else { MessageState::DeadLetter };
                assert_eq!(entry.state, end, "{name}");
                assert_eq!(entry.attempts, if is_retried { 2 } else { 1 }, "{name}: {:?}", entry.last_error);
                let kinds: Vec<_> = entry.attempt_log.iter().filter_map(|it| it.report.kind.as_deref()).collect();
                let expected = match name {
                    "silent" | "tls" => "timeout",
                    "closed" => "connect",
                    other => other,
                };
                assert!(kinds.iter().all(|kind| *kind == expected), "{name}: {kinds:?} {:?}", entry.last_error);
                assert!(!entry.reason.expect("a reason").contains("MfKQ9r8G"));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn c085_a_transport_or_hook_that_panics_costs_an_attempt_and_no_message() {
    let sender = Sender::in_memory();
    let calls = Arc::new(AtomicUsize::new(0));
    let panics = {
        let calls = Arc::clone(&calls);
        tower::service_fn(move |_: Outgoing| {
            let call = calls.fetch_add(1, SeqCst);
            async move {
                match call {
                    0 => std::panic::resume_unwind(Box::new("out of luck")),
                    1 => Err(Failure::Other { is_transient: false, reason: "no such topic".into() }),
                    _ => Ok(Answer::new(StatusCode::OK)),
                }
            }
        })
    };
    sender.endpoint("broker", "topic:orders").await;
    sender.enqueue("broker", "msg_1", "{}").await;
    let told = sender.notices("nobody", |_| std::panic::resume_unwind(Box::new("out of luck")));
    let running = Running::start(sender.dispatcher_over(panics).notices(&told.notices));
    sender.until_done().await;
    let entry = sender.entry("broker", "msg_1").await;
    assert_eq!((entry.state, entry.attempts), (MessageState::DeadLetter, 2));
    assert_eq!(entry.last_error.as_deref(), Some("no such topic"));

    // It goes on, and the hook's panic has cost nothing.
    sender.enqueue("broker", "msg_2", "{}").await;
    sender.until_state("broker", "msg_2", MessageState::Succeeded).await;
    running.stop().await;
}

#[tokio::test]
async fn c085_no_message_is_overdue_for_longer_than_a_poll_while_a_dispatcher_runs() {
    let sender = Sender::in_memory();
    let receiver = Receiver::answering(async |seen| {
        status(if seen.header("webhook-attempt").parse::<u32>().is_ok_and(|attempt| attempt < 4) { 500 } else { 200 })
    })
    .await;
    sender.endpoint("shop", receiver.url()).await;
    for number in 0..50 {
        sender.enqueue("shop", &format!("msg_{number}"), "{}").await;
    }
    let running = Running::start(sender.dispatcher().endpoint_concurrency(64));
    until("all are delivered", async || {
        let now = countersign::Clock::now(&countersign::SystemClock);
        let entries = sender.all().await;
        let waiting = entries.iter().filter(|entry| entry.state == MessageState::Pending);
        let late = waiting.filter_map(|entry| entry.due).map(|due| now.saturating_since(due)).max();
        // A poll is 75 ms at most; the rest is for a machine that does other things too.
        assert!(late.unwrap_or_default() < Duration::from_secs(2), "{late:?}");
        entries.iter().all(|entry| entry.state == MessageState::Succeeded)
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_message_that_is_replayed_has_all_its_attempts_before_it() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500, 500, 500, 200]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        for replays in 0..=3 {
            let running = Running::start(sender.dispatcher().retry(RetryPolicy::new().with_max_attempts(1)));
            sender.until_done().await;
            running.stop().await;
            let entry = sender.entry("shop", "msg_1").await;
            assert_eq!((entry.replays, entry.attempts), (replays, 1));
            let expected = if replays < 3 { MessageState::DeadLetter } else { MessageState::Succeeded };
            assert_eq!(entry.state, expected);
            // Asking twice does it once, and one that was delivered stays so.
            for count in [usize::from(replays < 3), 0] {
                let replayed = sender.store.replay(MessageFilter::default(), Duration::ZERO).await;
                assert_eq!(replayed.expect("the store answers").len(), count);
            }
        }
        assert_eq!(receiver.seen().len(), 4);
    })
    .await;
}
