//! Endpoints: adding, changing, disabling and removing them.

use http::{HeaderName, HeaderValue};

use super::{
    LEASE, SECOND, Subject, again, cancelled, claim_all, claim_of, claim_one, claimed, dead, delivered, endpoint,
    endpoint_entry, enqueue, entry, failing, message, name, put, queue, release, replayed, settle, state, to,
};
use crate::store::{Endpoint, EndpointNews, MessageFilter, MessageState, Settlement, StoreError};

/// An endpoint that is new has no past.
pub async fn a_new_endpoint_is_enabled_and_has_not_failed(subject: &dyn Subject) {
    let store = subject.store();
    let added = put(&*store, endpoint("shop")).await;
    assert_eq!(added.endpoint, endpoint("shop"));
    assert_eq!((&added.disabled, added.paused_until, added.failing_since, added.failures), (&None, None, None, 0));
    assert_eq!(added.updated, added.created);
    assert_eq!(endpoint_entry(&*store, "shop").await, added);
    put(&*store, endpoint("desk")).await;
    let all = store.endpoints().await.expect("the store answers");
    assert_eq!(all.iter().map(|entry| entry.endpoint.name.as_str()).collect::<Vec<_>>(), ["desk", "shop"]);
}

/// C097: settings are changed without a word about what happened, and messages stay.
pub async fn changing_an_endpoint_leaves_its_state_and_its_messages(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let news = EndpointNews { pause: Some(LEASE), disable: Some("410".into()), ..failing() };
    settle(&*store, &claim_one(&*store).await, Settlement { endpoint: news, ..again(SECOND) }).await;
    subject.advance(SECOND).await;
    let before = endpoint_entry(&*store, "shop").await;
    let messages = [entry(&*store, "shop", "msg_1").await, entry(&*store, "shop", "msg_2").await];

    let moved = Endpoint { url: "https://example.org/new".into(), ..endpoint("shop") };
    let changed = put(&*store, moved.clone()).await;
    assert_eq!(changed.endpoint, moved);
    assert!(changed.updated > before.updated);
    let state = |entry: &crate::store::EndpointEntry| {
        (entry.disabled.clone(), entry.paused_until, entry.failing_since, entry.failures, entry.created)
    };
    assert_eq!(state(&changed), state(&before));
    assert_eq!(endpoint_entry(&*store, "shop").await, changed);
    assert_eq!([entry(&*store, "shop", "msg_1").await, entry(&*store, "shop", "msg_2").await], messages);
}

/// A disabled endpoint gets nothing, and its messages wait; what is being delivered may end.
pub async fn a_disabled_endpoint_gets_nothing_until_it_is_enabled(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let running = claim_one(&*store).await;
    assert!(store.disable_endpoint(name("shop"), Some("maintenance".into())).await.expect("the store answers"));
    let shop = endpoint_entry(&*store, "shop").await;
    assert_eq!(shop.disabled.as_deref(), Some("maintenance"));
    enqueue(&*store, vec![to("shop", message("msg_3"))]).await;
    assert!(claim_all(&*store).await.is_empty());
    subject.advance(2 * LEASE).await;
    assert!(claim_all(&*store).await.is_empty(), "not even what was left behind");
    settle(&*store, &running, delivered()).await;
    assert!(store.disable_endpoint(name("shop"), Some("still".into())).await.expect("the store answers"));
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled.as_deref(), Some("still"), "an operator's word counts");

    assert!(store.disable_endpoint(name("shop"), None).await.expect("the store answers"));
    assert_eq!(claim_all(&*store).await.len(), 2);
}

/// Enabling forgets the failures and ends the pause.
pub async fn enabling_an_endpoint_resets_its_counters(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2"]).await;
    let news = EndpointNews { pause: Some(60 * LEASE), disable: Some("410".into()), ..failing() };
    settle(&*store, &claim_one(&*store).await, Settlement { endpoint: news, ..dead("no") }).await;
    let fails = endpoint_entry(&*store, "shop").await;
    assert!(fails.failing_since.is_some() && fails.paused_until.is_some() && fails.failures == 1);
    assert!(store.disable_endpoint(name("shop"), None).await.expect("the store answers"));
    let shop = endpoint_entry(&*store, "shop").await;
    assert_eq!((shop.disabled, shop.paused_until, shop.failing_since, shop.failures), (None, None, None, 0));
    assert_eq!(claim_all(&*store).await.len(), 1);
}

/// What could never be sent to is not taken in, and what is there stays as it was.
pub async fn an_endpoint_that_cannot_be_sent_to_is_refused(subject: &dyn Subject) {
    let store = subject.store();
    let before = put(&*store, endpoint("shop")).await;
    let with_url = |url: &str| Endpoint { url: url.to_owned(), ..endpoint("shop") };
    let with_header = |header: &'static str, value: &'static [u8]| {
        let mut endpoint = endpoint("shop");
        let value = HeaderValue::from_bytes(value).expect("a value");
        endpoint.headers.insert(HeaderName::from_static(header), value);
        endpoint
    };
    let mut idle = endpoint("shop");
    idle.settings.rate_per_second = Some(0);
    let secret = Endpoint { secrets: vec!["whsec_c2VjcmV0".to_owned()], ..endpoint("shop") };
    for refused in [
        with_url("https://user:pass@example.com/"),
        with_url("https://example.com/#top"),
        with_url("broker://user:pass@example.com/"),
        with_url("nowhere"),
        with_header("webhook-signature", b"v1,forged"),
        with_header("content-length", b"5"),
        with_header("x-token", b"\xff"),
        idle,
        secret,
    ] {
        let error = store.put_endpoint(refused.clone()).await.expect_err("it is refused");
        assert!(matches!(error, StoreError::Rejected(_)), "{refused:?}: {error}");
    }
    assert_eq!(endpoint_entry(&*store, "shop").await, before);
}

/// However often it is changed while it is disabled, that began once; and anew once it was enabled.
pub async fn each_time_that_an_endpoint_is_disabled_began_once(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1"]).await;
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled_since, None);
    let news = EndpointNews { disable: Some("410".into()), ..failing() };
    settle(&*store, &claim_one(&*store).await, Settlement { endpoint: news, ..dead("no") }).await;
    let first = endpoint_entry(&*store, "shop").await;
    assert_eq!(first.disabled_since, Some(first.updated));

    put(&*store, Endpoint { url: "https://example.org/new".into(), ..endpoint("shop") }).await;
    assert!(store.disable_endpoint(name("shop"), Some("by hand".into())).await.expect("the store answers"));
    let changed = endpoint_entry(&*store, "shop").await;
    assert_eq!((changed.disabled.as_deref(), changed.disabled_since), (Some("by hand"), first.disabled_since));

    assert!(store.disable_endpoint(name("shop"), None).await.expect("the store answers"));
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled_since, None);
    subject.advance(SECOND).await;
    assert!(store.disable_endpoint(name("shop"), Some("again".into())).await.expect("the store answers"));
    let again = endpoint_entry(&*store, "shop").await;
    assert!(again.disabled_since > first.disabled_since, "{again:?}");
}

/// A reason is a text for people: bounded, and text.
pub async fn the_reason_of_a_disabled_endpoint_is_bounded(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let fits = "x".repeat(crate::store::AttemptReport::MAX_ERROR_BYTES - 1);
    let long = Some(format!("{fits}é and more"));
    assert!(store.disable_endpoint(name("shop"), long).await.expect("the store answers"));
    assert_eq!(endpoint_entry(&*store, "shop").await.disabled, Some(fits));
}

/// Nothing is left waiting for an endpoint that is gone.
pub async fn the_messages_of_a_removed_endpoint_become_dead_letters(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["pending", "running", "delivered", "failed", "cancelled"]).await;
    queue(&*store, "desk", &["pending"]).await;
    let by_id = super::by_id;
    cancelled(&*store, by_id("cancelled")).await;
    for claimed in claim_all(&*store).await {
        let failed = Settlement::new(crate::store::Fate::Failed("ask".into()), super::report(500, "odd"));
        match claimed.lease.key.id.as_str() {
            "delivered" => settle(&*store, &claimed, delivered()).await,
            "failed" => settle(&*store, &claimed, failed).await,
            "pending" => release(&*store, &claimed).await,
            _ => {}
        }
    }
    assert!(store.remove_endpoint(name("shop")).await.expect("the store answers"));
    assert!(!store.remove_endpoint(name("shop")).await.expect("the store answers"), "once");
    assert_eq!(store.endpoint(name("shop")).await.expect("the store answers"), None);
    for (id, expected) in [
        ("pending", MessageState::DeadLetter),
        ("running", MessageState::DeadLetter),
        ("delivered", MessageState::Succeeded),
        ("failed", MessageState::Failed),
        ("cancelled", MessageState::Cancelled),
    ] {
        let kept = entry(&*store, "shop", id).await;
        assert_eq!((kept.state, kept.due), (expected, None), "{id}");
        assert!(expected != MessageState::DeadLetter || kept.reason.is_some(), "{id}");
    }
    assert_eq!(state(&*store, "desk", "pending").await, MessageState::Pending);

    // Nobody would ever send them, until the endpoint is there again.
    assert_eq!(replayed(&*store, MessageFilter::default()).await, Vec::new());
    subject.advance(2 * LEASE).await;
    let others = claimed(&*store, claim_of(9)).await;
    assert_eq!(others.iter().map(|claimed| claimed.endpoint.name.as_str()).collect::<Vec<_>>(), ["desk"]);
    let again = put(&*store, endpoint("shop")).await;
    assert_eq!((again.failures, again.failing_since), (0, None), "it is a new one");
    assert_eq!(replayed(&*store, MessageFilter::default()).await.len(), 3);
    assert_eq!(claim_all(&*store).await.len(), 3);
}

/// However many there are: all of them become dead letters, and the endpoint is gone.
pub async fn an_endpoint_with_many_messages_is_removed_with_all_of_them(subject: &dyn Subject) {
    const MANY: usize = 450;
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let many = (0..MANY).map(|number| to("shop", message(&format!("msg_{number}")))).collect();
    enqueue(&*store, many).await;
    assert!(store.remove_endpoint(name("shop")).await.expect("the store answers"));
    assert_eq!(store.endpoint(name("shop")).await.expect("the store answers"), None);
    let filter = MessageFilter { limit: 1_000, ..MessageFilter::default() };
    let listed = store.list_messages(filter).await.expect("the store answers");
    let dead = listed.iter().filter(|entry| entry.state == MessageState::DeadLetter && entry.due.is_none());
    assert_eq!((listed.len(), dead.count()), (MANY, MANY));
    store.check_outbox().await.expect("the store answers");
}
