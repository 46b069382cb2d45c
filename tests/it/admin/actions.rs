//! What an operator does: each action by a form and by a call, and what it leaves alone.

use countersign::EventId;
use std::time::Duration;

use countersign::store::{
    ClaimMessages, Enqueue, Fate, InboxStore, Message, MessageKey, MessageState, OutboxStore, ReceiptKey, ReceiptState,
    Reserve, Settled, Settlement, Unclear,
};
use http::StatusCode;
use serde_json::json;

use super::{Stage, report, reserve, text};

impl Stage {
    async fn state_of(&self, key: &ReceiptKey) -> Option<ReceiptState> {
        self.store.find(key.clone()).await.expect("an answer").map(|receipt| receipt.state)
    }

    async fn message(&self, endpoint: &str, id: &str) -> (MessageState, u32) {
        let key = MessageKey { endpoint: text(endpoint), id: EventId::new(id).expect("an id") };
        let entry = self.store.find_message(key).await.expect("an answer").expect("a message");
        (entry.state, entry.replays)
    }

    async fn three_dead(&self) {
        for name in ["shop", "bank"] {
            self.endpoint(name, "https://shop.example/hooks").await;
        }
        for (endpoint, id) in [("shop", "msg_1"), ("shop", "msg_2"), ("bank", "msg_3")] {
            self.dead(endpoint, id, "order.paid", report(500, "no", "no"), "given up").await;
        }
    }
}

#[tokio::test]
async fn an_event_is_retried_released_and_forgotten() {
    let stage = Stage::open().await;
    let dead = stage.failed("evt_dead", "no", Some("given up")).await;
    let held = stage.quarantined("evt_held", "looks odd").await;
    let done = stage.succeeded("evt_done", "ok").await;
    let fields = |action: &'static str, id: &'static str| {
        [("action", action), ("consumer", "orders"), ("source", "shop"), ("key", id)]
    };
    for (id, key, state) in [("evt_dead", &dead, ReceiptState::Failed), ("evt_held", &held, ReceiptState::Received)] {
        let page = format!("receipt?consumer=orders&source=shop&key={id}");
        let answer = stage.submit(&page, "receipt", &fields("retry", id)).await;
        assert_eq!((answer.status, answer.headers["location"].as_bytes()), (StatusCode::SEE_OTHER, page.as_bytes()));
        assert_eq!(stage.state_of(key).await, Some(state));
        let again = stage.submit(&page, "receipt", &fields("retry", id)).await;
        assert!(
            again.status == StatusCode::SEE_OTHER || id == "evt_held",
            "asked twice it is done once: {}",
            again.text()
        );
        assert_eq!(stage.state_of(key).await, Some(state));
    }
    let page = "receipt?consumer=orders&source=shop&key=evt_done";
    let answer = stage.submit(page, "receipt", &fields("retry", "evt_done")).await;
    assert_eq!((answer.status, stage.state_of(&done).await), (StatusCode::CONFLICT, Some(ReceiptState::Succeeded)));
    let answer = stage.submit(page, "receipt", &fields("forget", "evt_done")).await;
    assert_eq!((answer.status, stage.state_of(&done).await), (StatusCode::SEE_OTHER, None));
    assert_eq!(stage.get(page).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_message_is_replayed_once_however_often_it_is_asked_for_and_taken_back() {
    let stage = Stage::open().await;
    stage.three_dead().await;
    let page = "message?endpoint=shop&id=msg_1";
    let fields = |action: &'static str| [("action", action), ("endpoint", "shop"), ("id", "msg_1")];
    for _ in 0..2 {
        let answer = stage.submit(page, "message", &fields("replay")).await;
        assert_eq!(
            (answer.status, stage.message("shop", "msg_1").await),
            (StatusCode::SEE_OTHER, (MessageState::Pending, 1))
        );
    }
    for _ in 0..2 {
        // The page of a message that was taken back offers nothing: this is one that was open before.
        let answer = stage.submit("endpoint?name=shop", "message", &fields("cancel")).await;
        assert_eq!(
            (answer.status, stage.message("shop", "msg_1").await),
            (StatusCode::SEE_OTHER, (MessageState::Cancelled, 1))
        );
    }
    let answer = stage.submit("message?endpoint=shop&id=msg_2", "message", &fields("replay")).await;
    assert_eq!(
        (answer.status, stage.message("shop", "msg_1").await.0),
        (StatusCode::CONFLICT, MessageState::Cancelled)
    );
    assert_eq!(stage.message("shop", "msg_2").await.0, MessageState::DeadLetter);
}

#[tokio::test]
async fn one_that_was_delivered_is_sent_again_when_that_is_asked_for() {
    let stage = Stage::open().await;
    stage.endpoint("shop", "https://shop.example/hooks").await;
    stage.pending("shop", "msg_1", "order.paid", "{}").await;
    let claimed = stage.store.claim_messages(ClaimMessages::new(1, Duration::from_secs(60))).await.expect("a claim");
    let end = Settlement::new(Fate::Delivered, report(200, "", ""));
    assert_eq!(stage.store.settle(claimed.messages[0].lease.clone(), end).await.expect("an answer"), Settled::Done);
    let page = "message?endpoint=shop&id=msg_1";
    let fields = |action: &'static str| [("action", action), ("endpoint", "shop"), ("id", "msg_1")];
    assert_eq!(stage.submit(page, "message", &fields("replay")).await.status, StatusCode::CONFLICT);
    assert_eq!(stage.message("shop", "msg_1").await, (MessageState::Succeeded, 0));
    assert_eq!(stage.submit(page, "message", &fields("resend")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(stage.message("shop", "msg_1").await, (MessageState::Pending, 1));
}

#[tokio::test]
async fn an_event_of_which_nobody_can_tell_what_came_is_concluded_and_one_that_may_run_is_not() {
    let stage = Stage::open().await;
    let held = stage.failed("evt_held", "the bank did not answer", Some(Unclear::HELD)).await;
    let failed = stage.failed("evt_failed", "down", None).await;
    let page = |id: &str| format!("receipt?consumer=orders&source=shop&key={id}");
    let shown = stage.get(&page("evt_held")).await.text();
    for told in [Unclear::HELD, "look, then conclude it or retry it", r#"value="conclude""#, "brings that about again"]
    {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    assert!(!stage.get(&page("evt_failed")).await.text().contains(r#"value="conclude""#));
    let fields = |id: &'static str| [("action", "conclude"), ("consumer", "orders"), ("source", "shop"), ("key", id)];
    let answer = stage.submit(&page("evt_held"), "receipt", &fields("evt_held")).await;
    assert_eq!((answer.status, stage.state_of(&held).await), (StatusCode::SEE_OTHER, Some(ReceiptState::Succeeded)));
    let answer = stage.submit(&page("evt_failed"), "receipt", &fields("evt_failed")).await;
    assert_eq!((answer.status, stage.state_of(&failed).await), (StatusCode::CONFLICT, Some(ReceiptState::Failed)));
}

#[tokio::test]
async fn all_that_fit_are_replayed_and_no_others() {
    let stage = Stage::open().await;
    stage.three_dead().await;
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros().to_string();
    // What has changed since the page was made was not on it.
    for (shown, changed) in [("1", 0), (now.as_str(), 2)] {
        let fields = [("action", "replay"), ("state", "dead_letter"), ("endpoint", "shop"), ("type", "")];
        let fields = [&fields[..], &[("correlation_id", ""), ("shown", shown)]].concat();
        let answer = stage.submit("outbox?state=dead_letter&endpoint=shop", "outbox", &fields).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
        let page = stage.get(answer.headers["location"].to_str().expect("text")).await.text();
        assert!(page.contains(&format!("{changed} messages were changed")), "{page}");
    }
    for (state, endpoint) in [("", "shop"), ("dead_letter", "")] {
        let fields = [("action", "cancel"), ("state", state), ("endpoint", endpoint), ("type", "")];
        let fields = [&fields[..], &[("correlation_id", ""), ("shown", now.as_str())]].concat();
        let answer = stage.submit("endpoint?name=shop", "outbox", &fields).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "everything of everybody is not one step");
    }
    let states = [
        stage.message("shop", "msg_1").await.0,
        stage.message("shop", "msg_2").await.0,
        stage.message("bank", "msg_3").await.0,
    ];
    assert_eq!(states, [MessageState::Pending, MessageState::Pending, MessageState::DeadLetter]);
}

#[tokio::test]
async fn what_belongs_together_is_shown_and_changed_alone() {
    let stage = Stage::open().await;
    stage.three_dead().await;
    for (endpoint, id, flow) in [("shop", "msg_4", "order 7&"), ("shop", "msg_5", "order-8")] {
        let mut message = Message::new(EventId::new(id).expect("an id"), text("order.paid"), "{}");
        message.correlation_id = Some(text(flow));
        stage.store.enqueue(vec![Enqueue::new(text(endpoint), message)]).await.expect("an answer");
    }
    for (id, correlation_id) in [("evt_1", Some(text("order 7&"))), ("evt_2", None)] {
        stage.store.reserve(Reserve { correlation_id, ..reserve(id) }).await.expect("an answer");
    }
    let flow = "correlation_id=order+7%26";
    for (list, there, not) in [("outbox", "msg_4", "msg_5"), ("inbox", "evt_1", "evt_2")] {
        let page = stage.get(&format!("{list}?{flow}")).await.text();
        assert!(page.contains(there) && !page.contains(not), "{page}");
        let listed = stage.json(&format!("api/{list}?{flow}")).await.to_string();
        assert!(listed.contains(there) && !listed.contains(not), "{listed}");
    }
    // From one to all the others.
    for one in ["message?endpoint=shop&id=msg_4", "receipt?consumer=orders&source=shop&key=evt_1"] {
        let page = stage.get(one).await.text();
        for list in ["inbox", "outbox"] {
            assert!(page.contains(&format!("{list}?correlation_id=order%207%26")), "{page}");
        }
    }
    let (page, now) = (
        format!("outbox?state=pending&endpoint=shop&{flow}"),
        std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros().to_string(),
    );
    assert!(stage.get(&page).await.text().contains("that belong to order 7&#38;"));
    let fields = [("action", "cancel"), ("state", "pending"), ("endpoint", "shop"), ("type", ""), ("shown", &*now)];
    let left_out = stage.submit(&page, "outbox", &fields).await;
    assert_eq!(left_out.status, StatusCode::BAD_REQUEST, "a form that does not say it could mean all of them");
    let answer = stage.submit(&page, "outbox", &[&fields[..], &[("correlation_id", "order 7&")]].concat()).await;
    let next = answer.headers["location"].to_str().expect("text").to_owned();
    assert!(next.contains(flow) && stage.get(&next).await.text().contains("1 messages were changed"), "{next}");
    assert_eq!(stage.message("shop", "msg_4").await.0, MessageState::Cancelled);
    assert_eq!(stage.message("shop", "msg_5").await.0, MessageState::Pending);
    let cancel = json!({ "all": true, "correlation_id": "order-8" });
    assert_eq!(stage.post_json("api/outbox/cancel", &cancel).await.status, StatusCode::OK);
    assert_eq!(stage.message("shop", "msg_5").await.0, MessageState::Cancelled);
    assert_eq!(stage.message("shop", "msg_1").await.0, MessageState::DeadLetter);
    let both = json!({ "endpoint": "shop", "id": "msg_1", "correlation_id": "order-8" });
    assert_eq!(stage.post_json("api/outbox/replay", &both).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_endpoint_is_disabled_with_a_reason_and_enabled() {
    let stage = Stage::open().await;
    stage.endpoint("shop", "https://shop.example/hooks").await;
    let disabled = async || stage.store.endpoint(text("shop")).await.expect("an answer").expect("it").disabled;
    for (reason, kept) in [("until Monday", "until Monday"), ("  ", "by an operator")] {
        let fields = [("action", "disable"), ("name", "shop"), ("reason", reason)];
        assert_eq!(stage.submit("endpoint?name=shop", "endpoint", &fields).await.status, StatusCode::SEE_OTHER);
        assert_eq!(disabled().await.as_deref(), Some(kept));
        let fields = [("action", "enable"), ("name", "shop")];
        assert_eq!(stage.submit("endpoint?name=shop", "endpoint", &fields).await.status, StatusCode::SEE_OTHER);
        assert_eq!(disabled().await, None);
    }
    let fields = [("action", "enable"), ("name", "nobody")];
    assert_eq!(stage.submit("endpoint?name=shop", "endpoint", &fields).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_api_does_the_same() {
    let stage = Stage::open().await;
    let dead = stage.failed("evt_dead", "no", Some("given up")).await;
    let key = json!({ "consumer": "orders", "source": "shop", "key": "evt_dead" });
    let answer = stage.post_json("api/inbox/retry", &key).await;
    assert_eq!((answer.status, stage.state_of(&dead).await), (StatusCode::OK, Some(ReceiptState::Failed)));
    assert_eq!(stage.post_json("api/inbox/forget", &key).await.status, StatusCode::CONFLICT, "the only copy");
    assert!(stage.state_of(&dead).await.is_some());
    let force = json!({ "consumer": "orders", "source": "shop", "key": "evt_dead", "force": true });
    assert_eq!(stage.post_json("api/inbox/forget", &force).await.status, StatusCode::OK);
    assert_eq!(stage.state_of(&dead).await, None);
    assert_eq!(stage.post_json("api/inbox/retry", &key).await.problem(), "not-found");

    let unclear = stage.failed("evt_unclear", "no answer", Some(Unclear::HELD)).await;
    let key = json!({ "consumer": "orders", "source": "shop", "key": "evt_unclear" });
    for _ in 0..2 {
        assert_eq!(stage.post_json("api/inbox/conclude", &key).await.status, StatusCode::OK);
        assert_eq!(stage.state_of(&unclear).await, Some(ReceiptState::Succeeded));
    }

    stage.three_dead().await;
    for (body, status) in [
        (json!({}), StatusCode::BAD_REQUEST),
        (json!({ "all": false }), StatusCode::BAD_REQUEST),
        (json!({ "endpoint": "shop" }), StatusCode::BAD_REQUEST),
        (json!({ "all": true, "endpont": "shop" }), StatusCode::BAD_REQUEST),
        (json!({ "endpoint": "shop", "id": "nobody" }), StatusCode::NOT_FOUND),
    ] {
        for call in ["api/outbox/replay", "api/outbox/cancel"] {
            assert_eq!(stage.post_json(call, &body).await.status, status, "{call} {body}");
        }
    }
    assert_eq!(stage.json("api/outbox?state=dead_letter").await["messages"].as_array().map(Vec::len), Some(3));
    let answer = stage.post_json("api/outbox/replay", &json!({ "endpoint": "shop", "id": "msg_1" })).await;
    assert_eq!((answer.status, stage.message("shop", "msg_1").await.0), (StatusCode::OK, MessageState::Pending));
    stage.post_json("api/outbox/cancel", &json!({ "all": true, "endpoint": "shop" })).await;
    assert_eq!(stage.message("shop", "msg_2").await.0, MessageState::Cancelled);
    assert_eq!(stage.message("bank", "msg_3").await.0, MessageState::DeadLetter);

    stage.post_json("api/endpoints/disable", &json!({ "name": "shop", "reason": "until Monday" })).await;
    assert_eq!(stage.json("api/endpoints/endpoint?name=shop").await["disabled"], "until Monday");
    stage.post_json("api/endpoints/enable", &json!({ "name": "shop" })).await;
    assert_eq!(stage.json("api/endpoints/endpoint?name=shop").await["enabled"], true);
}
