//! A cache of finished results in front of any store.
//!
//! Senders repeat in bursts: a provider that had a bad minute delivers again what was done seconds ago. Such a repeat is
//! answered here, and the database hears nothing of it. Only what is certain and over is kept: an event that succeeded,
//! with the digest of the body seen first. All else, also a repeat with another body, which is to be counted, goes through.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::future::Cache;
use moka::policy::EvictionPolicy;

use super::{
    Accept, Accepted, Claim, Claimed, Cursor, Failure, InboxStore, Keys, Lease, ListFilter, OtherBody, Page, Purged,
    Receipt, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved, ResultBody, Retention, Settled, StoreFuture,
    StoredResult, Token,
};
use crate::{DedupKey, Digest, Name};

/// A store whose finished results are also kept in memory: a repeat of an event that succeeded costs no round trip to the
/// database.
///
/// It is bounded in bytes, and what was used least recently goes first. It holds succeeded events alone: never one that
/// runs, failed or is a dead letter. An event gets in when it is completed through this store, or when its first repeat is
/// answered by the database: after a restart, or where another process completed it.
///
/// # What others change
///
/// What this store is told to [`forget`](InboxStore::forget) or [`purge`](InboxStore::purge) is gone from the cache when
/// the call returns. What *another process* forgets or purges, a handle to the store beneath, or a call that was dropped,
/// is noticed after the time to live: until then its repeats get the result that was stored. That is why the time to live
/// is short: 60 seconds by default, which covers a burst, and is what an operator waits for after `inbox forget`.
///
/// ```
/// # use countersign::store::{CachedInbox, InboxStore, MemoryStore};
/// # tokio_test(async {
/// let store = CachedInbox::new(MemoryStore::new(), 16 * 1024 * 1024);
/// store.check().await.unwrap();
/// assert_eq!(store.hits(), 0);
/// # });
/// # fn tokio_test(run: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run)
/// # }
/// ```
pub struct CachedInbox<S> {
    store: S,
    ended: Cache<ReceiptKey, Arc<Ended>>,
    /// The bodies of events that run, where they are known to be those seen first.
    running: Cache<Token, Digest>,
    /// Counts what is forgotten and purged. What was put in before the last time is not shown any more.
    epoch: AtomicU64,
    hits: AtomicU64,
    bytes: u64,
}

/// An event that succeeded.
#[derive(Clone)]
struct Ended {
    /// Of the body seen first.
    body: Digest,
    result: StoredResult,
    epoch: u64,
}

impl<S: InboxStore> CachedInbox<S> {
    /// How long a result is kept in memory, unless said otherwise.
    pub const TIME_TO_LIVE: Duration = Duration::from_secs(60);

    /// Puts a cache of about this many bytes in front of a store; 0 keeps nothing.
    #[must_use]
    pub fn new(store: S, bytes: u64) -> Self {
        Self {
            store,
            ended: cache(bytes, Self::TIME_TO_LIVE),
            running: Cache::builder().max_capacity(RUNS).eviction_policy(EvictionPolicy::lru()).build(),
            epoch: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            bytes,
        }
    }

    /// Keeps a result for this long, a day at most: also how long it takes until something that another process forgot is
    /// noticed. Make it no longer than a result may outlive its [`Retention`].
    #[must_use]
    pub fn with_time_to_live(mut self, span: Duration) -> Self {
        self.ended = cache(self.bytes, span);
        self
    }

    /// How many calls were answered from memory.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The store beneath.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The stored end of an event, for a delivery with the body seen first.
    async fn repeat(&self, key: &ReceiptKey, body: &Digest) -> Option<Repeat> {
        let ended = self.ended.get(key).await?;
        if ended.body != *body || ended.epoch != self.epoch() {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(Repeat { result: Some(ended.result.clone()), same_body: true })
    }

    /// Keeps what the store answered a repeat with. `epoch` was read before the store was asked.
    async fn keep_repeat(&self, key: ReceiptKey, body: Digest, repeat: &Repeat, epoch: u64) {
        if let Repeat { result: Some(result), same_body: true } = repeat {
            self.keep(key, Ended { body, result: result.clone(), epoch }).await;
        }
    }

    async fn keep(&self, key: ReceiptKey, ended: Ended) {
        self.ended.insert(key, Arc::new(ended)).await;
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }
}

impl<S: InboxStore> InboxStore for CachedInbox<S> {
    fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
        Box::pin(async move {
            if let Some(repeat) = self.repeat(&request.key, &request.body).await {
                return Ok(Reserved::Succeeded(repeat));
            }
            let (key, body, epoch) = (request.key.clone(), request.body, self.epoch());
            // Whoever accepts other bodies may be given the event with one of them: an earlier run may have failed, been
            // given back, or been retried. Such an event gets in with its first repeat.
            let is_first = request.other_body == OtherBody::Refuse || key.key == DedupKey::from_digest(&body);
            let reserved = self.store.reserve(request).await?;
            match &reserved {
                Reserved::Acquired(lease) if is_first => self.running.insert(lease.token, body).await,
                Reserved::Succeeded(repeat) => self.keep_repeat(key, body, repeat, epoch).await,
                _ => {}
            }
            Ok(reserved)
        })
    }

    fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
        Box::pin(async move {
            if let Some(repeat) = self.repeat(&request.key, &request.body).await {
                return Ok(Accepted::Succeeded(repeat));
            }
            let (key, body, epoch) = (request.key.clone(), request.body, self.epoch());
            let accepted = self.store.accept(request).await?;
            if let Accepted::Succeeded(repeat) = &accepted {
                self.keep_repeat(key, body, repeat, epoch).await;
            }
            Ok(accepted)
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(async move {
            let claimed = self.store.claim(claim).await?;
            for claimed in &claimed {
                self.running.insert(claimed.lease.token, claimed.body).await;
            }
            Ok(claimed)
        })
    }

    fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            self.running.invalidate(&lease.token).await;
            self.store.release(lease).await
        })
    }

    fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            let epoch = self.epoch();
            let body = self.running.get(&lease.token).await;
            let (key, token) = (lease.key.clone(), lease.token);
            let ended = body.map(|body| Ended { body, result: result.clone(), epoch });
            let settled = self.store.complete(lease, result).await?;
            self.running.invalidate(&token).await;
            if let (Settled::Done, Some(ended)) = (settled, ended) {
                self.keep(key, ended).await;
            }
            Ok(settled)
        })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
        Box::pin(async move {
            self.running.invalidate(&lease.token).await;
            self.store.fail(lease, failure).await
        })
    }

    fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
        self.store.renew(lease, span)
    }

    fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
        self.store.find(key)
    }

    fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>> {
        self.store.page(filter, after)
    }

    /// What succeeded is not retried: nothing that is kept here changes.
    fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        self.store.retry(key)
    }

    /// Nor is a dead letter ever kept here.
    fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
        self.store.conclude(key)
    }

    fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let _outdated = Outdated(&self.epoch);
            self.store.forget(key).await
        })
    }

    fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
        Box::pin(async move {
            let outdated = Outdated(&self.epoch);
            let purged = self.store.purge(retention, limit).await?;
            if purged == Purged::default() {
                outdated.nothing();
            }
            Ok(purged)
        })
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        self.store.check()
    }

    fn oldest_due(&self, consumer: Name) -> StoreFuture<'_, Option<Duration>> {
        self.store.oldest_due(consumer)
    }

    fn keys(&self, from: u64, limit: u32) -> StoreFuture<'_, Keys<ReceiptKey>> {
        self.store.keys(from, limit)
    }
}

impl<S: fmt::Debug> fmt::Debug for CachedInbox<S> {
    /// Without what it holds: bodies are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedInbox").field("store", &self.store).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Outdates all that is kept, once the call that holds it has taken effect or was dropped.
///
/// All, and not one key: an answer that is under way at this moment would be put in afterwards. It carries the count that
/// stood when it was asked for, and so it is never shown.
struct Outdated<'a>(&'a AtomicU64);

impl Outdated<'_> {
    /// It turned out that nothing was removed: what is cached still holds.
    fn nothing(self) {
        std::mem::forget(self);
    }
}

impl Drop for Outdated<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The usual policy would let in only what is asked for often; a repeat comes soon, or not at all.
fn cache(bytes: u64, time_to_live: Duration) -> Cache<ReceiptKey, Arc<Ended>> {
    Cache::builder()
        .max_capacity(bytes)
        .weigher(|key, ended: &Arc<Ended>| u32::try_from(weight(key, &ended.result)).unwrap_or(u32::MAX))
        .eviction_policy(EvictionPolicy::lru())
        .time_to_live(time_to_live.min(LONGEST))
        .build()
}

fn weight(key: &ReceiptKey, result: &StoredResult) -> usize {
    /// An entry without its texts: about what the cache and the structures themselves take.
    const ENTRY: usize = 512;
    let names = key.consumer.as_str().len() + key.source.as_str().len() + key.key.as_str().len();
    let headers: usize = result.headers.iter().map(|(name, value)| 64 + name.as_str().len() + value.len()).sum();
    let body = match &result.body {
        ResultBody::Kept(body) => body.len(),
        ResultBody::Omitted => 0,
    };
    ENTRY + names + headers + body
}

/// How many runs are followed at one time, about 2 MB. An event whose run is not gets in with its first repeat.
const RUNS: u64 = 16_384;

/// The longest time to live: no event is repeated from memory for a day after it was forgotten elsewhere.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::Name;
    use crate::store::{MemoryStore, Unclear};

    #[tokio::test]
    async fn a_repeat_of_a_completed_event_is_answered_from_memory() {
        let store = CachedInbox::new(MemoryStore::new(), 1 << 20);
        let lease = acquire(&store, request(b"body", OtherBody::Refuse)).await;
        assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
        for _ in 0..3 {
            let again = store.reserve(request(b"body", OtherBody::Accept)).await.expect("an answer");
            let Reserved::Succeeded(repeat) = again else { panic!("{again:?}") };
            assert_eq!(repeat, Repeat { result: Some(done()), same_body: true });
        }
        assert_eq!(store.hits(), 3);
    }

    #[tokio::test]
    async fn another_body_is_counted_by_the_store_beneath() {
        let store = CachedInbox::new(MemoryStore::new(), 1 << 20);
        let lease = acquire(&store, request(b"body", OtherBody::Refuse)).await;
        assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
        for number in 1..=3 {
            let other = store.reserve(request(b"other", OtherBody::Accept)).await.expect("an answer");
            assert!(matches!(other, Reserved::Succeeded(Repeat { same_body: false, .. })), "{other:?}");
            let receipt = store.find(request(b"", OtherBody::Accept).key).await.expect("an answer").expect("a receipt");
            assert_eq!((receipt.other_bodies, store.hits()), (number, 0));
        }
    }

    /// The run's body may not be the one seen first: that is known only from the store.
    #[tokio::test]
    async fn where_other_bodies_are_accepted_an_event_gets_in_with_its_first_repeat() {
        let store = CachedInbox::new(MemoryStore::new(), 1 << 20);
        let given_back = acquire(&store, request(b"body", OtherBody::Accept)).await;
        assert_eq!(store.release(given_back).await.expect("an answer"), Settled::Done);
        let lease = acquire(&store, request(b"other", OtherBody::Accept)).await;
        assert_eq!(lease.attempt, 1, "it looks like a first one");
        assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
        let other = store.reserve(request(b"other", OtherBody::Accept)).await.expect("an answer");
        assert!(matches!(other, Reserved::Succeeded(Repeat { same_body: false, .. })), "{other:?}");
        for hits in [0, 1, 2] {
            let same = store.reserve(request(b"body", OtherBody::Accept)).await.expect("an answer");
            assert!(matches!(same, Reserved::Succeeded(Repeat { same_body: true, .. })), "{same:?}");
            assert_eq!(store.hits(), hits);
        }
    }

    #[tokio::test]
    async fn what_is_forgotten_is_a_first_one_at_once() {
        let store = CachedInbox::new(MemoryStore::new(), 1 << 20);
        for _ in 0..3 {
            let lease = acquire(&store, request(b"body", OtherBody::Refuse)).await;
            assert_eq!(store.complete(lease.clone(), done()).await.expect("an answer"), Settled::Done);
            assert!(store.forget(lease.key).await.expect("an answer"));
        }
    }

    #[tokio::test]
    async fn what_others_forget_is_noticed_after_the_time_to_live() {
        let beneath = MemoryStore::new();
        let store = CachedInbox::new(beneath.clone(), 1 << 20).with_time_to_live(Duration::from_millis(30));
        let lease = acquire(&store, request(b"body", OtherBody::Refuse)).await;
        assert_eq!(store.complete(lease.clone(), done()).await.expect("an answer"), Settled::Done);
        assert!(beneath.forget(lease.key).await.expect("an answer"));
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !matches!(
            store.reserve(request(b"body", OtherBody::Refuse)).await.expect("an answer"),
            Reserved::Acquired(_)
        ) {
            assert!(std::time::Instant::now() < deadline, "it was never noticed");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn it_stays_within_its_bytes() {
        let store = CachedInbox::new(MemoryStore::new(), 64 * 1_024);
        for number in 0..200 {
            let body = format!("{number}");
            let key = ReceiptKey {
                key: DedupKey::from_digest(&Digest::of(body.as_bytes())),
                ..request(b"", OtherBody::Accept).key
            };
            let asked = Reserve { key, ..request(body.as_bytes(), OtherBody::Accept) };
            let lease = acquire(&store, asked).await;
            let result = StoredResult { body: ResultBody::Kept(vec![0; 4_096].into()), ..done() };
            assert_eq!(store.complete(lease, result).await.expect("an answer"), Settled::Done);
        }
        store.ended.run_pending_tasks().await;
        let held = store.ended.weighted_size();
        assert!((16 * 1_024..=64 * 1_024).contains(&held), "{held} bytes");
    }

    fn request(body: &[u8], other_body: OtherBody) -> Reserve {
        let name = Name::new("n").expect("a name");
        let key = ReceiptKey { consumer: name.clone(), source: name, key: DedupKey::parse("evt_1").expect("a key") };
        let lease = Duration::from_secs(60);
        Reserve {
            key,
            event_id: None,
            correlation_id: None,
            body: Digest::of(body),
            lease,
            max_attempts: 20,
            other_body,
            unclear: Unclear::RunAgain,
        }
    }

    fn done() -> StoredResult {
        let body = ResultBody::Kept(b"done".as_slice().into());
        StoredResult { status: StatusCode::OK, headers: HeaderMap::new(), body }
    }

    async fn acquire(store: &dyn InboxStore, request: Reserve) -> Lease {
        match store.reserve(request).await.expect("an answer") {
            Reserved::Acquired(lease) => lease,
            other => panic!("{other:?}"),
        }
    }
}
