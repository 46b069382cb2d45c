//! That bytes stay what they were, and that names are told apart by every byte.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    Subject, claim_all, claim_one, delivered, endpoint, enqueue, entry, event_id, key, message, name, ordered, put,
    settle, to,
};
use crate::event::MAX_NAME_BYTES;
use crate::store::conformance::BODIES;
use crate::store::{Endpoint, EndpointSettings, Enqueue, Message, MessageKey, OnDead, OutboxStore, TypePattern};
use crate::{EventId, Name};

/// C068: what is sent are the bytes that were enqueued, on every attempt.
pub async fn payloads_are_sent_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    for (number, body) in BODIES.into_iter().enumerate() {
        let sent = Message { payload: body.into(), ..message(&format!("msg_{number}")) };
        enqueue(&*store, vec![to("shop", sent.clone())]).await;
        for attempt in 1..=2 {
            let claimed = claim_one(&*store).await;
            assert_eq!((&claimed.message, claimed.lease.attempt), (&sent, attempt));
            if attempt == 2 {
                settle(&*store, &claimed, delivered()).await;
            } else {
                settle(&*store, &claimed, super::again(std::time::Duration::ZERO)).await;
            }
        }
        assert_eq!(entry(&*store, "shop", sent.id.as_str()).await.message, sent);
    }
}

/// A large payload is a payload.
pub async fn a_mebibyte_is_sent_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let payload: Vec<u8> = (0_u32..1_024 * 1_024).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sent = Message { payload: payload.into(), ..message("msg_1") };
    enqueue(&*store, vec![to("shop", sent.clone())]).await;
    assert!(claim_one(&*store).await.message == sent, "the bytes differ");
    assert!(entry(&*store, "shop", "msg_1").await.message == sent, "the bytes differ");
}

/// C066, C067: no case, accent, width or space makes two names one.
pub async fn names_compare_as_bytes(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let ids =
        ["msg_aB", "msg_Ab", "msg_ab", "1", "01", "+1", "a%", "a_", "a", "A", "'", "\"", "\\", "a b", "a  b", "null"];
    assert_eq!(enqueue(&*store, ids.iter().map(|id| to("shop", message(id))).collect()).await, [true; 16]);
    for id in ids {
        assert_eq!(entry(&*store, "shop", id).await.message.id, event_id(id));
        assert_eq!(store.list_messages(super::by_id(id)).await.expect("the store answers").len(), 1, "{id:?}");
    }
    assert_eq!(claim_all(&*store).await.len(), ids.len());

    let names = ["Shop", "SHOP", "shop ", " shop", "é", "e", "e\u{301}", "ß", "ss", "ａ", "a%", "😀", "'", "\\"];
    for name in names {
        put(&*store, endpoint(name)).await;
        assert_eq!(enqueue(&*store, vec![to(name, message("msg_aB"))]).await, [true], "{name:?}");
    }
    let mut sorted: Vec<&str> = names.into_iter().chain(["shop"]).collect();
    sorted.sort_unstable();
    let listed = store.endpoints().await.expect("the store answers");
    assert_eq!(listed.iter().map(|entry| entry.endpoint.name.as_str()).collect::<Vec<_>>(), sorted);
    assert_eq!(claim_all(&*store).await.len(), names.len());
}

/// C066: two ordering keys that look alike are two.
pub async fn ordering_keys_compare_as_bytes(subject: &dyn Subject) {
    let store = subject.store();
    put(&*store, endpoint("shop")).await;
    let keys = ["k", "K", "k ", "é", "e", "e\u{301}", "ß", "ss", "1", "01", "😀"];
    let messages = keys.iter().enumerate().map(|(number, key)| to("shop", ordered(&format!("msg_{number}"), key)));
    enqueue(&*store, messages.collect()).await;
    let claimed = claim_all(&*store).await;
    assert_eq!(claimed.len(), keys.len());
    for claimed in claimed {
        let number: usize = claimed.message.id.as_str().trim_start_matches("msg_").parse().expect("a number");
        assert_eq!(claimed.message.ordering_key, Some(name(keys[number])));
    }
}

/// C067: the longest names are kept whole, and two that share a prefix stay two.
pub async fn the_longest_texts_are_kept_whole(subject: &dyn Subject) {
    let store = subject.store();
    let long = |last: &str| format!("{}{last}", "x".repeat(MAX_NAME_BYTES - 1));
    let wide = |last: &str| Name::new(&format!("{}{last}", "é".repeat((MAX_NAME_BYTES - 1) / 2))).expect("a name");
    for last in ["a", "b"] {
        put(&*store, Endpoint { name: wide(last), ..endpoint("shop") }).await;
        let text = long(last);
        let sent = Message {
            id: EventId::new(&text).expect("an id"),
            event_type: name(&text),
            content_type: text.clone(),
            ordering_key: Some(wide(last)),
            correlation_id: Some(name(&text)),
            causation_id: Some(name(&text)),
            traceparent: Some(text),
            ..message("msg_1")
        };
        assert_eq!(enqueue(&*store, vec![Enqueue::new(wide(last), sent.clone())]).await, [true]);
        let key = MessageKey { endpoint: wide(last), id: sent.id.clone() };
        let kept = store.find_message(key).await.expect("the store answers").expect("the message is there");
        assert_eq!((kept.message, kept.endpoint), (sent, wide(last)));
    }
    assert_eq!(claim_all(&*store).await.len(), 2);
}

/// What an endpoint is comes back as it was given, headers in their order.
pub async fn endpoints_come_back_as_they_were_given(subject: &dyn Subject) {
    let store = subject.store();
    let given = odd_endpoint();
    put(&*store, given.clone()).await;
    same_endpoint(&super::endpoint_entry(&*store, "shop").await.endpoint, &given);
    enqueue(&*store, vec![to("shop", message("msg_1"))]).await;
    same_endpoint(&claim_one(&*store).await.endpoint, &given);
    let bare = Endpoint { headers: HeaderMap::new(), ..endpoint("shop") };
    same_endpoint(&put(&*store, bare.clone()).await.endpoint, &bare);
    same_endpoint(&store.endpoints().await.expect("the store answers")[0].endpoint, &bare);
}

fn odd_endpoint() -> Endpoint {
    let settings = EndpointSettings {
        max_in_flight: Some(u32::MAX),
        rate_per_second: Some(1),
        timeout_ms: Some(u64::MAX),
        max_attempts: Some(u32::MAX),
        max_age_seconds: Some(86_400),
        on_dead: OnDead::Park,
        verdicts: vec![("404".into(), "retry".into()), ("4xx".into(), "permanent".into())],
    };
    Endpoint {
        url: "https://example.com:8443/hooks/%C3%A9?a=b&c='\"é".into(),
        scheme: "envelope".into(),
        secrets: vec!["file:/run/secrets/new".into(), "env:OLD".into()],
        types: ["order.*", "*", "ü.\"'\\"].map(|text| TypePattern::new(text).expect("a pattern")).into(),
        headers: [("x-b", "a \" b\tc"), ("x-a", "'\\"), ("authorization", "Bearer t0ken==")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect(),
        settings,
        ..endpoint("shop")
    }
}

fn same_endpoint(kept: &Endpoint, given: &Endpoint) {
    assert_eq!(kept, given);
    assert_eq!(kept.headers.iter().collect::<Vec<_>>(), given.headers.iter().collect::<Vec<_>>());
}

/// Nothing is found where nothing was enqueued.
pub async fn nothing_is_found_where_nothing_is(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(store.find_message(key("shop", "msg_1")).await.expect("the store answers"), None);
    assert_eq!(store.endpoint(name("shop")).await.expect("the store answers"), None);
    assert_eq!(store.endpoints().await.expect("the store answers"), Vec::new());
    assert_eq!(store.list_messages(super::by_id("msg_1")).await.expect("the store answers"), Vec::new());
    assert_eq!(store.next_due().await.expect("the store answers"), None);
    assert!(claim_all(&*store).await.is_empty());
    assert_eq!(super::replayed(&*store, super::by_id("msg_1")).await, Vec::new());
    assert_eq!(super::cancelled(&*store, super::by_id("msg_1")).await, Vec::new());
    assert!(!store.disable_endpoint(name("shop"), None).await.expect("the store answers"));
    assert!(!store.remove_endpoint(name("shop")).await.expect("the store answers"));
    assert_eq!(purged(&*store).await, 0);
}

async fn purged(store: &dyn OutboxStore) -> u64 {
    let retention = crate::store::OutboxRetention::default();
    store.purge_messages(retention, 9).await.expect("the store answers")
}
