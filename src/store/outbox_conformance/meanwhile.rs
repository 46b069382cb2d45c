//! What may happen to a message and its endpoint while the message is being delivered.
//!
//! Whoever holds the lease says how the attempt ended, and nothing but another holder takes that right away: a message that
//! was delivered has succeeded.

use std::time::Duration;

use super::{
    LEASE, Subject, again, by_id, cancelled, claim_all, claim_one, dead, delivered, endpoint, endpoint_entry, entry,
    failing, name, put, queue, release, renew, replayed, settle, settled, state,
};
use crate::store::{
    Endpoint, EndpointNews, MessageFilter, MessageState, OutboxRetention, OutboxStore, Settled, Settlement,
};

/// Whatever an operator does.
pub async fn a_message_delivered_meanwhile_has_succeeded(subject: &dyn Subject) {
    let store = subject.store();
    for done in Meanwhile::ALL {
        let shop = done.name();
        queue(&*store, shop, &["msg_1"]).await;
        let running = claim_one(&*store).await;
        done.happens(&*store).await;
        renew(&*store, &running).await;
        settle(&*store, &running, delivered()).await;

        let end = entry(&*store, shop, "msg_1").await;
        assert_eq!((end.state, end.due, &end.reason), (MessageState::Succeeded, None, &None), "{shop}");
        assert_eq!((end.attempts, end.attempt_log.len(), &end.last_error), (1, 1, &None), "{shop}");
        assert_eq!(settled(&*store, &running.lease, dead("no")).await, Settled::LeaseLost, "{shop}: once");
        let endpoint = store.endpoint(name(shop)).await.expect("the store answers");
        assert_eq!(endpoint.is_some(), done != Meanwhile::Remove, "{shop}: it does not come back");
    }
}

/// There is nowhere to send it. It keeps its reason; one that was refused meanwhile has that one.
pub async fn what_would_be_sent_again_to_a_removed_endpoint_stays_a_dead_letter(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["again", "dead", "died", "released"]).await;
    let all = claim_all(&*store).await;
    assert!(store.remove_endpoint(name("shop")).await.expect("the store answers"));
    let reason = entry(&*store, "shop", "died").await.reason;
    for running in &all {
        match running.lease.key.id.as_str() {
            "again" => settle(&*store, running, again(Duration::ZERO)).await,
            "dead" => settle(&*store, running, dead("refused")).await,
            "released" => release(&*store, running).await,
            _ => renew(&*store, running).await,
        }
    }
    for (id, attempts, noted) in [("again", 1, 1), ("dead", 1, 1), ("died", 1, 0), ("released", 0, 0)] {
        let kept = entry(&*store, "shop", id).await;
        assert_eq!((kept.state, kept.due), (MessageState::DeadLetter, None), "{id}");
        assert_eq!((kept.attempts, kept.attempt_log.len()), (attempts, noted), "{id}");
        assert_eq!(kept.reason, if id == "dead" { Some("refused".into()) } else { reason.clone() }, "{id}");
    }
    // An endpoint of that name is another one: nothing is sent to it that nobody asked for.
    put(&*store, endpoint("shop")).await;
    subject.advance(2 * LEASE).await;
    assert!(claim_all(&*store).await.is_empty());
    assert_eq!(store.next_due().await.expect("the store answers"), None);
    for running in &all {
        let expected = if running.lease.key.id.as_str() == "died" { Settled::Done } else { Settled::LeaseLost };
        assert_eq!(settled(&*store, &running.lease, delivered()).await, expected, "{:?}", running.lease.key);
    }
    assert_eq!(state(&*store, "shop", "died").await, MessageState::Succeeded, "it was delivered after all");
}

/// It is sent anew then, and so is what was taken back: the old attempt says nothing about that.
pub async fn a_replay_takes_the_message_from_whoever_delivered_it_for_a_removed_endpoint(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["replayed", "cancelled"]).await;
    let running = claim_all(&*store).await;
    assert_eq!(running.len(), 2);
    assert!(store.remove_endpoint(name("shop")).await.expect("the store answers"));
    put(&*store, endpoint("shop")).await;
    assert_eq!(replayed(&*store, by_id("replayed")).await.len(), 1);
    assert_eq!(cancelled(&*store, by_id("cancelled")).await.len(), 1);
    for running in &running {
        assert_eq!(settled(&*store, &running.lease, delivered()).await, Settled::LeaseLost);
    }
    assert_eq!(state(&*store, "shop", "cancelled").await, MessageState::Cancelled);
    assert_eq!(claim_one(&*store).await.replays, 1);
}

/// An endpoint that has moved is not disabled for what its old address answered, and does not wait for it.
pub async fn news_of_a_url_that_an_endpoint_has_left_is_not_taken(subject: &dyn Subject) {
    let store = subject.store();
    queue(&*store, "shop", &["msg_1", "msg_2", "msg_3"]).await;
    let all = claim_all(&*store).await;
    let old = all[0].endpoint.url.clone();
    let moved = Endpoint { url: "https://example.org/new".into(), ..endpoint("shop") };
    let before = put(&*store, moved.clone()).await;
    let news = |url: &str| EndpointNews {
        url: Some(url.to_owned()),
        pause: Some(LEASE),
        disable: Some("410".into()),
        ..failing()
    };
    settle(&*store, &all[0], Settlement { endpoint: news(&old), ..again(LEASE) }).await;
    assert_eq!(endpoint_entry(&*store, "shop").await, before);
    settle(&*store, &all[1], Settlement { endpoint: news(&moved.url), ..again(LEASE) }).await;
    let after = endpoint_entry(&*store, "shop").await;
    assert_eq!((after.disabled.as_deref(), after.failures), (Some("410"), 1));
    let works = EndpointNews { url: Some(old), ..EndpointNews::default() };
    settle(&*store, &all[2], Settlement { endpoint: works, ..delivered() }).await;
    assert_eq!(endpoint_entry(&*store, "shop").await, after, "the old address works: the new one does not");
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    AddAnew,
    Cancel,
    Change,
    Disable,
    Enable,
    Purge,
    Remove,
    Replay,
}

impl Meanwhile {
    const ALL: [Self; 8] = [
        Self::AddAnew,
        Self::Cancel,
        Self::Change,
        Self::Disable,
        Self::Enable,
        Self::Purge,
        Self::Remove,
        Self::Replay,
    ];

    /// That of the endpoint that it is done to.
    const fn name(self) -> &'static str {
        match self {
            Self::AddAnew => "added-anew",
            Self::Cancel => "cancelled",
            Self::Change => "changed",
            Self::Disable => "disabled",
            Self::Enable => "enabled",
            Self::Purge => "purged",
            Self::Remove => "removed",
            Self::Replay => "replayed",
        }
    }

    async fn happens(self, store: &dyn OutboxStore) {
        let this = || name(self.name());
        let all = || MessageFilter { endpoint: Some(this()), ..MessageFilter::default() };
        match self {
            Self::AddAnew => {
                assert!(store.remove_endpoint(this()).await.expect("the store answers"));
                put(store, endpoint(self.name())).await;
            }
            Self::Cancel => assert_eq!(cancelled(store, all()).await, Vec::new()),
            Self::Change => {
                put(store, Endpoint { url: "https://example.org/new".into(), ..endpoint(self.name()) }).await;
            }
            Self::Disable | Self::Enable => {
                let reason = (self == Self::Disable).then(|| "closed".to_owned());
                assert!(store.disable_endpoint(this(), reason).await.expect("the store answers"));
            }
            Self::Purge => {
                let mut retention = OutboxRetention::default();
                (retention.done, retention.dead) = (Duration::ZERO, Some(Duration::ZERO));
                store.purge_messages(retention, u32::MAX).await.expect("the store answers");
            }
            Self::Remove => assert!(store.remove_endpoint(this()).await.expect("the store answers")),
            Self::Replay => assert_eq!(replayed(store, all()).await, Vec::new()),
        }
    }
}
