//! A saga behind a receiver: the move and the receipt are one commit, and each kind of failure ends where it should.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use countersign::envelope::Envelope;
use countersign::receive::{DedupLayer, Outcome, ReceiveLayer, Reservation, ResponseBody};
use countersign::saga;
use countersign::signature::Scheme;
use countersign::store::{Message, ReceiptState};
use countersign::{Cause, Name};
use http::{HeaderValue, Response, StatusCode};

use super::{Jar, Place, event, in_each_database, transaction, version};
use crate::support::{Answer, client, receipt, request, send, serve, standard, verify};

async fn on_event(
    State(place): State<Arc<Place>>,
    run: Reservation,
    coin: Envelope,
) -> Result<Response<ResponseBody>, Outcome> {
    let handled = transaction!(&place.pool, |connection| {
        let handled = saga::handle::<Jar, _>(connection, &run, &coin).await;
        (handled.is_ok(), handled)
    });
    Ok(handled?)
}

/// A receiver for coins.
async fn receiver(place: &Arc<Place>) -> String {
    let verify = verify(Scheme::standard()).build().expect("a layer");
    let receive = ReceiveLayer::new(verify, DedupLayer::new(place.inbox.clone())).expect("a receiver");
    let app = Router::new().route("/", post(on_event)).layer(receive).with_state(place.clone());
    format!("http://{}/", serve(app).await)
}

async fn deliver(url: &str, coin: &Envelope) -> Answer {
    let body = serde_json::to_vec(coin).expect("text");
    send(&client(false), request(url, standard(coin.id.as_str(), &body), body)).await
}

async fn state(place: &Place, key: &str) -> (ReceiptState, Option<String>) {
    let receipt = receipt(&*place.inbox, "default", "test", key).await.expect("a receipt");
    (receipt.state, receipt.reason)
}

#[tokio::test]
async fn a_delivery_moves_an_instance_once_however_often_it_comes() {
    in_each_database(|place| async move {
        let url = receiver(&place).await;
        for replayed in [false, true, true] {
            let answer = deliver(&url, &event("evt_1", "jar-1", "coin")).await;
            assert_eq!((answer.status, answer.is_replay()), (StatusCode::NO_CONTENT, replayed));
        }
        assert_eq!(state(&place, "evt_1").await.0, ReceiptState::Succeeded);
        let jar = transaction!(&place.pool, |connection| {
            (false, saga::find::<Jar, _>(connection, "jar-1").await.expect("an answer").expect("a jar"))
        });
        assert_eq!((jar.state, jar.steps.len()), (Some(Jar { coins: 1, full: false }), 1));
    })
    .await;
}

#[tokio::test]
async fn a_contract_failure_is_a_dead_letter_with_its_reason_and_a_newer_version_waits() {
    in_each_database(|place| async move {
        let url = receiver(&place).await;
        let refused = deliver(&url, &event("evt_2", "jar-1", "button")).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(state(&place, "evt_2").await, (ReceiptState::DeadLetter, Some("it is a button".to_owned())));

        let mut unreadable = event("evt_3", "jar-1", "coin");
        unreadable.event_type = Name::new("jar.stone").expect("a name");
        assert_eq!(deliver(&url, &unreadable).await.status, StatusCode::UNPROCESSABLE_ENTITY);
        let reason = Some("events of type jar.stone are not handled here".to_owned());
        assert_eq!(state(&place, "evt_3").await, (ReceiptState::DeadLetter, reason));

        let newer = deliver(&url, &version(2, "jar-1", "coin")).await;
        assert_eq!(newer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(state(&place, "evt_1").await.0, ReceiptState::Failed, "somebody who knows it may come");

        let body = serde_json::to_vec(&event("evt_5", "jar-1", "coin")).expect("text");
        let another = send(&client(false), request(&url, standard("evt_4", &body), body)).await;
        assert_eq!(another.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(state(&place, "evt_4").await.1.is_some_and(|reason| reason.contains("evt_5")));
    })
    .await;
}

#[tokio::test]
async fn what_a_handler_sends_belongs_to_what_it_handles_and_continues_its_trace() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    async fn make() -> Result<String, Outcome> {
        // In a task of its own too, where that is handed on.
        let cause = Cause::current().ok_or_else(|| Outcome::permanent("nothing is being handled"))?;
        let made = tokio::spawn(cause.scope(async { Message::json("made", &()) })).await;
        let message = made.expect("no panic").map_err(|error| Outcome::permanent(error.to_string()))?;
        let text = |name: Option<Name>| name.map_or_else(String::new, |name| name.to_string());
        Ok([text(message.correlation_id), text(message.causation_id), message.traceparent.unwrap_or_default()]
            .join(" "))
    }
    let (store, _folder) = crate::support::sqlite().await;
    let receive = ReceiveLayer::new(verify(Scheme::standard()).build().expect("a layer"), DedupLayer::new(store));
    let app = Router::new().route("/", post(make)).layer(receive.expect("a receiver"));
    let url = format!("http://{}/", serve(app).await);
    let mut headers = standard("evt_1", b"{}");
    headers.insert("correlation-id", HeaderValue::from_static("order-7"));
    headers.insert("traceparent", HeaderValue::from_static(TRACE));
    let answer = send(&client(false), request(&url, headers, "{}")).await;
    assert_eq!(answer.text(), format!("order-7 evt_1 {TRACE}"));
    let answer = send(&client(false), request(&url, standard("evt_2", b"{}"), "{}")).await;
    assert_eq!(answer.text(), "evt_2 evt_2 ", "one that belongs to nothing begins something of its own");
    assert_eq!(Cause::current(), None);
}

/// A transaction that is lost after the run was completed leaves the saga where it was, and the event to be delivered again.
#[tokio::test]
async fn a_lost_commit_moves_nothing_and_the_next_delivery_moves_it() {
    in_each_database(|place| async move {
        let lost = {
            let place = place.clone();
            let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
            post(async move |run: Reservation, coin: Envelope| {
                let commits = !first.swap(false, std::sync::atomic::Ordering::SeqCst);
                let response = transaction!(&place.pool, |connection| {
                    let handled = saga::handle::<Jar, _>(connection, &run, &coin).await;
                    (commits && handled.is_ok(), handled)
                });
                Ok::<_, Outcome>(response?)
            })
        };
        let receive = verify(Scheme::standard()).build().expect("a layer");
        let receive = ReceiveLayer::new(receive, DedupLayer::new(place.inbox.clone())).expect("a receiver");
        let url = format!("http://{}/", serve(Router::new().route("/", lost).layer(receive)).await);
        let coin = event("evt_1", "jar-1", "coin");
        assert_eq!(deliver(&url, &coin).await.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(state(&place, "evt_1").await.0, ReceiptState::Failed);
        assert_eq!(deliver(&url, &coin).await.status, StatusCode::NO_CONTENT);
        let jar = transaction!(&place.pool, |connection| {
            (false, saga::find::<Jar, _>(connection, "jar-1").await.expect("an answer").expect("a jar"))
        });
        assert_eq!((jar.state, jar.entry.version), (Some(Jar { coins: 1, full: false }), 1));
    })
    .await;
}
