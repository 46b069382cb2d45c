//! The two ends are one contract: what we send is what our own receiver, and others, accept.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, ReceiveLayer, VerifyLayer};
use countersign::send::RetryPolicy;
use countersign::store::{MemoryStore, MessageState, ReceiptState};
use countersign::{Clock, Scheme, SystemClock};

use super::{Receiver, Running, Sender, on_each_outbox};
use crate::support::{BODIES, Counts, Gate, SECRET, Server, TEXT_SECRET, until, verifier};

#[tokio::test]
async fn what_we_send_verifies_with_the_reference_library() {
    let sender = Sender::in_memory();
    let receiver = Receiver::with_statuses(&[500, 200]).await;
    sender.endpoint("shop", receiver.url()).await;
    for (number, body) in BODIES.into_iter().enumerate() {
        sender.enqueue("shop", &format!("msg_{number}"), body).await;
    }
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    running.stop().await;
    let webhook = standardwebhooks::Webhook::new(SECRET).expect("a secret");
    assert!(receiver.seen().len() > BODIES.len());
    for request in receiver.seen() {
        let verified = webhook.verify(&request.body, &request.headers);
        // It reads bodies as text; of those that are none it says so, and nothing else.
        assert!(verified.is_ok() || std::str::from_utf8(&request.body).is_err(), "{verified:?}");
    }
}

#[tokio::test]
async fn our_receiver_runs_once_what_our_sender_sends_more_than_once_under_every_scheme() {
    for name in ["standard", "envelope", "svix", "github", "shopify", "stripe", "slack"] {
        let scheme = Scheme::named(name).expect("a scheme");
        let secret = [SECRET, TEXT_SECRET].into_iter().find(|secret| scheme.parse_secret(secret).is_ok());
        let secret = secret.expect("a secret in its form");
        let runs = Counts::default();
        let handler = {
            let runs = runs.clone();
            async move |delivery: Delivery| {
                runs.count(&String::from_utf8_lossy(delivery.body()));
                StatusCode::NO_CONTENT
            }
        };
        let store = std::sync::Arc::new(MemoryStore::new());
        let app = Router::new().route("/hooks", post(handler));
        let layer = VerifyLayer::builder("test", verifier(scheme.clone(), secret));
        let server = Server::with(app, layer, DedupLayer::builder(store.clone()), store.clone()).await;

        let sender = Sender::in_memory();
        let url = format!("http://{}/hooks", server.address);
        let reference = sender.secret_file("text", secret);
        sender
            .endpoint_with("shop", url, |shop| {
                shop.secrets = vec![reference];
                shop.scheme = scheme.name().to_owned();
            })
            .await;
        // The id under both of the names that these schemes look for: without one, what is signed again a second later is
        // another event.
        let body = format!(r#"{{"id":"evt_1","event_id":"evt_1","sent":{}}}"#, SystemClock.now().as_micros());
        sender.enqueue("shop", "msg_1", body.clone()).await;
        let running = Running::start(sender.dispatcher().retry(RetryPolicy::new().with_max_attempts(1)));
        sender.until_done().await;
        let entry = sender.entry("shop", "msg_1").await;
        assert_eq!(entry.state, MessageState::Succeeded, "{}: {:?}", scheme.name(), entry.last_error);

        let mut filter = countersign::store::MessageFilter::default();
        filter.id = Some(entry.message.id);
        filter.state = Some(MessageState::Succeeded);
        sender.store.replay(filter, Duration::ZERO).await.expect("the store answers");
        sender.until_done().await;
        running.stop().await;
        let entry = sender.entry("shop", "msg_1").await;
        assert_eq!((entry.state, entry.replays), (MessageState::Succeeded, 1), "{}", name);
        assert_eq!(runs.of(&body), 1, "{name}");
        let headers = &entry.attempt_log.last().expect("an attempt").report.headers;
        assert!(headers.contains_key("idempotent-replayed"), "{name}");
    }
}

/// A store keeps the URL as an operator wrote it, and a client dials what that means: the receiver sees the latter.
#[tokio::test]
async fn a_scheme_that_signs_the_url_signs_the_one_that_is_dialled() {
    let rfc9421 = Scheme::rfc9421([("components", "@method @target-uri content-digest")]).expect("a scheme");
    for scheme in [Scheme::named("twilio").expect("a scheme"), rfc9421] {
        assert!(scheme.signs_url());
        let secret = [SECRET, TEXT_SECRET, "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="];
        let secret = secret.into_iter().find(|secret| scheme.parse_secret(secret).is_ok()).expect("one in its form");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let verify = VerifyLayer::builder("test", verifier(scheme.clone(), secret));
        let verify = verify.public_url(&format!("http://{address}")).build().expect("a layer");
        let app = Router::new().route("/hooks", post(async || StatusCode::NO_CONTENT));
        let receive = ReceiveLayer::new(verify, DedupLayer::new(MemoryStore::new())).expect("a receiver");
        let receiver = tokio::spawn(async move { axum::serve(listener, app.layer(receive)).await });

        let sender = Sender::in_memory();
        let reference = sender.secret_file("text", secret);
        sender
            .endpoint_with("shop", format!("HTTP://127.1:{}/in/../hooks?a=b c", address.port()), |shop| {
                shop.secrets = vec![reference];
                shop.scheme = scheme.name().to_owned();
            })
            .await;
        sender.enqueue("shop", "msg_1", "{}").await;
        let running = Running::start(sender.dispatcher().scheme(scheme.name(), scheme.clone()));
        sender.until_done().await;
        running.stop().await;
        let entry = sender.entry("shop", "msg_1").await;
        assert_eq!(entry.state, MessageState::Succeeded, "{}: {:?}", scheme.name(), entry.last_error);
        receiver.abort();
    }
}

#[tokio::test]
async fn a_receiver_that_still_runs_the_other_copy_is_asked_again_and_that_costs_no_attempt() {
    on_each_outbox(async |sender| {
        let (gate, runs) = (Gate::default(), Counts::default());
        let handler = {
            let (gate, runs) = (gate.clone(), runs.clone());
            async move |delivery: Delivery| {
                runs.count(delivery.event_id().map_or("", |id| id.as_str()));
                gate.pass().await;
                StatusCode::NO_CONTENT
            }
        };
        let server = Server::standard(Router::new().route("/hooks", post(handler))).await;
        sender.endpoint("shop", format!("http://{}/hooks", server.address)).await;
        sender.enqueue("shop", "msg_1", "{}").await;
        // The first attempt is given up before the handler has ended, which goes on.
        let short = sender.dispatcher().attempt_timeout(Duration::from_millis(200));
        let running = Running::start(short);
        until("the second one has met the first", async || {
            let entry = sender.entry("shop", "msg_1").await;
            entry.attempt_log.iter().any(|attempt| attempt.report.status == Some(StatusCode::CONFLICT))
                || entry.attempts >= 3
        })
        .await;
        gate.open();
        running.stop().await;
        let running = Running::start(sender.dispatcher());
        sender.until_done().await;
        running.stop().await;
        assert_eq!(runs.of("msg_1"), 1);
        assert_eq!(sender.state("shop", "msg_1").await, MessageState::Succeeded);
        let receipt = server.receipt("msg_1").await.expect("a receipt");
        assert_eq!(receipt.state, ReceiptState::Succeeded);
    })
    .await;
}
