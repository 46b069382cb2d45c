//! What goes over the wire, and that it is the same on every attempt.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign::EventId;
use countersign::send::{Backoff, RetryPolicy, Verdict};
use countersign::store::{Endpoint, Message, MessageState, OutboxStore as _, StoreError};
use sha2::{Digest as _, Sha256};

use super::{Receiver, Running, named, on_each_outbox, status};
use crate::support::{BODIES, OTHER_SECRET, standard_at};

#[tokio::test]
async fn c105_what_arrives_is_what_was_enqueued_signed_as_an_independent_implementation_signs_it() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[204]).await;
        sender.endpoint("shop", receiver.url()).await;
        for (number, body) in BODIES.into_iter().enumerate() {
            sender.enqueue("shop", &format!("msg_{number}"), body).await;
        }
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        let seen = receiver.seen();
        assert_eq!(seen.len(), BODIES.len());
        for request in &seen {
            let id = request.header("webhook-id");
            let number: usize = id.strip_prefix("msg_").expect("our id").parse().expect("a number");
            assert_eq!(&request.body[..], BODIES[number]);
            let expected = standard_at(crate::support::SECRET, id, request.header("webhook-timestamp"), &request.body);
            assert_eq!(request.headers["webhook-signature"], expected["webhook-signature"]);
            let digest = STANDARD.encode(Sha256::digest(&request.body));
            assert_eq!(request.header("content-digest"), format!("sha-256=:{digest}:"));
        }
    })
    .await;
}

#[tokio::test]
async fn an_endpoints_own_user_agent_goes_before_the_dispatchers() {
    let sender = super::Sender::in_memory();
    let receiver = Receiver::with_statuses(&[200]).await;
    sender.endpoint("shop", receiver.url()).await;
    let named = |shop: &mut countersign::store::Endpoint| {
        drop(shop.headers.insert("user-agent", "shop-7".parse().expect("a value")));
    };
    sender.endpoint_with("named", receiver.url(), named).await;
    for (number, endpoint) in ["shop", "named"].into_iter().enumerate() {
        sender.enqueue(endpoint, &format!("msg_{number}"), "{}").await;
    }
    let running = Running::start(sender.dispatcher().user_agent("we"));
    sender.until_done().await;
    running.stop().await;
    let mut agents: Vec<_> = receiver.seen().iter().map(|seen| seen.header("user-agent").to_owned()).collect();
    agents.sort_unstable();
    assert_eq!(agents, ["shop-7", "we"]);
}

#[tokio::test]
async fn the_headers_tell_what_the_message_is_and_which_attempt_it_is() {
    let sender = super::Sender::in_memory();
    let receiver = Receiver::with_statuses(&[500, 200]).await;
    sender
        .endpoint_with("shop", receiver.url(), |shop| {
            drop(shop.headers.insert("x-tenant", "7".parse().expect("a value")));
        })
        .await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    sender
        .enqueue_with("shop", "msg_1", "<a/>", |message| {
            message.content_type = "application/xml".into();
            message.schema_version = Some(3);
            message.traceparent = Some(trace.into());
            message.correlation_id = Some(super::named("order-7"));
            message.causation_id = Some(super::named("msg_0"));
        })
        .await;
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    running.stop().await;
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    for (request, attempt) in seen.iter().zip(["1", "2"]) {
        for (name, value) in [
            ("webhook-type", "order.paid"),
            ("webhook-attempt", attempt),
            ("content-type", "application/xml"),
            ("traceparent", trace),
            ("correlation-id", "order-7"),
            ("causation-id", "msg_0"),
            ("webhook-schema-version", "3"),
            ("x-tenant", "7"),
            ("content-length", "4"),
        ] {
            assert_eq!(request.header(name), value, "{name}");
        }
        assert!(request.header("user-agent").starts_with("countersign/"));
        assert_eq!(request.path, "/hooks");
    }
}

#[tokio::test]
async fn c107_each_attempt_has_its_own_timestamp_and_signature_and_c109_the_same_id_and_bytes() {
    on_each_outbox(async |sender| {
        let receiver = Receiver::with_statuses(&[500, 503, 200, 500, 200]).await;
        sender.endpoint("shop", receiver.url()).await;
        sender.enqueue("shop", "msg_1", BODIES[0]).await;
        let over_a_second = Backoff::new(Duration::from_millis(1_100), Duration::from_millis(1_100));
        let dispatcher = || sender.dispatcher().retry(RetryPolicy::new().with_backoff(over_a_second));
        let running = Running::start(dispatcher());
        sender.until_done().await;
        running.stop().await;

        // Another process, and a replay.
        let mut filter = countersign::store::MessageFilter::default();
        filter.id = Some(countersign::EventId::new("msg_1").expect("an id"));
        filter.state = Some(MessageState::Succeeded);
        assert_eq!(sender.store.replay(filter, Duration::ZERO).await.expect("the store answers").len(), 1);
        let running = Running::start(dispatcher());
        sender.until_done().await;
        running.stop().await;

        let seen = receiver.seen();
        assert_eq!(seen.len(), 5);
        for (index, pair) in seen.windows(2).enumerate() {
            assert_eq!(pair[0].header("webhook-id"), pair[1].header("webhook-id"));
            assert_eq!(pair[0].body, pair[1].body);
            // The replay began within the second of the attempt before it.
            if index != 2 {
                assert_ne!(pair[0].header("webhook-timestamp"), pair[1].header("webhook-timestamp"));
                assert_ne!(pair[0].header("webhook-signature"), pair[1].header("webhook-signature"));
            }
        }
        let attempts: Vec<_> = seen.iter().map(|request| request.header("webhook-attempt").to_owned()).collect();
        assert_eq!(attempts, ["1", "2", "3", "1", "2"]);
        let log = sender.entry("shop", "msg_1").await.attempt_log;
        let noted: Vec<_> = log.iter().map(|attempt| (attempt.replay, attempt.number)).collect();
        assert_eq!(noted, [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]);
    })
    .await;
}

#[tokio::test]
async fn c106_a_payload_is_the_same_bytes_after_a_failed_attempt() {
    on_each_outbox(async |sender| {
        let receiver =
            Receiver::answering(async |seen| status(if seen.header("webhook-attempt") == "1" { 500 } else { 200 }))
                .await;
        sender.endpoint("shop", receiver.url()).await;
        for (number, body) in BODIES.into_iter().enumerate() {
            sender.enqueue("shop", &format!("msg_{number}"), body).await;
        }
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        let seen = receiver.seen();
        for (number, body) in BODIES.into_iter().enumerate() {
            let id = format!("msg_{number}");
            let of_it: Vec<_> = seen.iter().filter(|request| request.header("webhook-id") == id).collect();
            assert_eq!(of_it.len(), 2, "{id}");
            assert!(of_it.iter().all(|request| request.body == body), "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn c110_headers_of_an_endpoint_never_replace_ours_even_where_no_store_has_checked_them() {
    let sender = super::Sender::in_memory();
    let receiver = Receiver::with_statuses(&[200]).await;
    let mut shop = Endpoint::new(named("shop"), receiver.url());
    shop.secrets = vec![sender.secret()];
    for name in [
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "webhook-type",
        "webhook-attempt",
        "content-type",
        "content-length",
        "correlation-id",
        "host",
    ] {
        shop.headers.append(name, "9".parse().expect("a value"));
        shop.headers.append(name, "forged".parse().expect("a value"));
    }
    let refused = sender.store.put_endpoint(shop.clone()).await;
    assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
    let message = Message::new(EventId::new("msg_1").expect("an id"), named("order.paid"), "{}");
    let dispatcher = sender.dispatcher().build().expect("a dispatcher");
    assert_eq!(dispatcher.try_out(&shop, &message).await.verdict, Verdict::Delivered);
    let request = &receiver.seen()[0];
    let expected = standard_at(crate::support::SECRET, "msg_1", request.header("webhook-timestamp"), b"{}");
    for (name, value) in [
        ("webhook-id", "msg_1"),
        ("webhook-signature", expected["webhook-signature"].to_str().expect("text")),
        ("webhook-type", "order.paid"),
        ("webhook-attempt", "1"),
        ("content-type", "application/json"),
        ("content-length", "2"),
        ("host", &receiver.address.to_string()),
    ] {
        assert_eq!(request.headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
    }
    assert!(request.headers.get("correlation-id").is_none(), "the message has none");
}

#[tokio::test]
async fn while_a_secret_is_rotated_all_live_ones_sign() {
    let sender = super::Sender::in_memory();
    let receiver = Receiver::with_statuses(&[200]).await;
    let (new, old) = (sender.secret_file("new", OTHER_SECRET), sender.secret());
    sender.endpoint_with("shop", receiver.url(), |shop| shop.secrets = vec![new, old]).await;
    sender.enqueue("shop", "msg_1", "{}").await;
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    running.stop().await;
    let request = &receiver.seen()[0];
    let signed_with = |secret| {
        let headers = standard_at(secret, "msg_1", request.header("webhook-timestamp"), b"{}");
        headers["webhook-signature"].to_str().expect("text").to_owned()
    };
    let both = format!("{} {}", signed_with(OTHER_SECRET), signed_with(crate::support::SECRET));
    assert_eq!(request.header("webhook-signature"), both);
}
