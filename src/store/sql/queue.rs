//! The side of a store that callers see: calls go to the writers, and answers come back.

use std::time::Duration;

use super::call::{Call, PurgeStep};
use super::writers::{Writers, ask, insist};
use crate::store::{
    Accept, Accepted, Claim, Claimed, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, Reserved, Retention,
    Settled, StoreError, StoredResult, Token,
};

/// The inbox's calls, on their way to writers that take them, and maybe others.
#[derive(Debug)]
pub(super) struct Queue<C = Call>(pub(super) Writers<C>);

impl<C: From<Call>> Queue<C> {
    pub(super) async fn reserve(&self, request: Reserve) -> Result<Reserved, StoreError> {
        let writer = self.0.of(&request.key)?;
        ask(writer, (request, Token::random()?), Call::Reserve).await
    }

    pub(super) async fn accept(&self, request: Accept) -> Result<Accepted, StoreError> {
        ask(self.0.of(&request.key)?, Box::new(request), Call::Accept).await
    }

    /// By the first writer: which receipts it will be about is not known, and it waits for no lock of another one.
    pub(super) async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let writer = self.0.first()?;
        let tokens = (0..claim.most()).map(|_| Token::random()).collect::<Result<Vec<_>, _>>()?;
        ask(writer, (claim, tokens), Call::Claim).await
    }

    pub(super) async fn release(&self, lease: Lease) -> Result<Settled, StoreError> {
        insist(self.0.of(&lease.key)?, lease, Call::Release).await
    }

    pub(super) async fn complete(&self, lease: Lease, result: StoredResult) -> Result<Settled, StoreError> {
        insist(self.0.of(&lease.key)?, (lease, result), Call::Complete).await
    }

    pub(super) async fn fail(&self, lease: Lease, failure: Failure) -> Result<Settled, StoreError> {
        insist(self.0.of(&lease.key)?, (lease, Box::new(failure)), Call::Fail).await
    }

    pub(super) async fn renew(&self, lease: Lease, span: Duration) -> Result<Settled, StoreError> {
        insist(self.0.of(&lease.key)?, (lease, span), Call::Renew).await
    }

    pub(super) async fn retry(&self, key: ReceiptKey) -> Result<Option<ReceiptState>, StoreError> {
        ask(self.0.of(&key)?, key, Call::Retry).await
    }

    pub(super) async fn conclude(&self, key: ReceiptKey) -> Result<Option<ReceiptState>, StoreError> {
        ask(self.0.of(&key)?, key, Call::Conclude).await
    }

    pub(super) async fn forget(&self, key: ReceiptKey) -> Result<bool, StoreError> {
        ask(self.0.of(&key)?, key, Call::Forget).await
    }

    /// Small steps, each a transaction: so that no row is locked for long, and where there is one connection for all, so
    /// that nobody waits for long.
    pub(super) async fn purge(&self, retention: Retention, limit: u32) -> Result<Purged, StoreError> {
        /// A few milliseconds' work.
        const STEP: u32 = 200;
        let writer = self.0.aside()?;
        let mut left = Purged { results: limit.into(), keys: limit.into() };
        let mut purged = Purged::default();
        let most = |left: u64| u32::try_from(left).unwrap_or(STEP).min(STEP);
        while left.keys > 0 || left.results > 0 {
            // Bodies after keys: what is about to go as a whole need not lose its body first.
            let keys = most(left.keys);
            let step = PurgeStep { retention, keys, results: if keys > 0 { 0 } else { most(left.results) } };
            let done = ask(writer, step, Call::Purge).await?;
            purged.keys += done.keys;
            purged.results += done.results;
            // Less than was asked for: there is no more.
            left.keys = if done.keys < step.keys.into() { 0 } else { left.keys - done.keys };
            if keys == 0 {
                left.results = if done.results < step.results.into() { 0 } else { left.results - done.results };
            }
        }
        Ok(purged)
    }

    /// Every writer: each has a connection of its own that may have failed.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        for writer in self.0.all() {
            ask(writer, (), Call::Check).await?;
        }
        Ok(())
    }
}

/// The contract, for a store whose inner part has a `queue`: all that writes goes there. How it reads is its own.
macro_rules! inbox_store {
    (
        $store:ty,
        |$inner:ident| find($key:ident): $find:expr,
        page($filter:ident, $after:ident): $page:expr,
        oldest_due($consumer:ident): $oldest_due:expr,
        keys($from:ident, $limit:ident): $keys:expr
    ) => {
        use $crate::store::{
            Accept, Accepted, Claim, Claimed, Cursor, Failure, InboxStore, Lease, ListFilter, Page, Purged, Receipt,
            ReceiptKey, ReceiptState, Reserve, Reserved, Retention, Settled, StoreFuture, StoredResult,
        };

        impl InboxStore for $store {
            fn reserve(&self, request: Reserve) -> StoreFuture<'_, Reserved> {
                Box::pin(self.0.queue.reserve(request))
            }

            fn accept(&self, request: Accept) -> StoreFuture<'_, Accepted> {
                Box::pin(self.0.queue.accept(request))
            }

            fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
                Box::pin(self.0.queue.claim(claim))
            }

            fn release(&self, lease: Lease) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.release(lease))
            }

            fn complete(&self, lease: Lease, result: StoredResult) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.complete(lease, result))
            }

            fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.fail(lease, failure))
            }

            fn renew(&self, lease: Lease, span: Duration) -> StoreFuture<'_, Settled> {
                Box::pin(self.0.queue.renew(lease, span))
            }

            fn find(&self, key: ReceiptKey) -> StoreFuture<'_, Option<Receipt>> {
                let $inner = &*self.0;
                let $key = key;
                Box::pin($find)
            }

            fn page(&self, filter: ListFilter, after: Option<Cursor>) -> StoreFuture<'_, Page<Receipt>> {
                let $inner = &*self.0;
                let ($filter, $after) = (filter, after);
                Box::pin($page)
            }

            fn retry(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
                Box::pin(self.0.queue.retry(key))
            }

            fn conclude(&self, key: ReceiptKey) -> StoreFuture<'_, Option<ReceiptState>> {
                Box::pin(self.0.queue.conclude(key))
            }

            fn forget(&self, key: ReceiptKey) -> StoreFuture<'_, bool> {
                Box::pin(self.0.queue.forget(key))
            }

            fn purge(&self, retention: Retention, limit: u32) -> StoreFuture<'_, Purged> {
                Box::pin(self.0.queue.purge(retention, limit))
            }

            fn check(&self) -> StoreFuture<'_, ()> {
                Box::pin(self.0.queue.check())
            }

            fn oldest_due(&self, consumer: $crate::Name) -> StoreFuture<'_, Option<Duration>> {
                let $inner = &*self.0;
                let $consumer = consumer;
                Box::pin($oldest_due)
            }

            fn keys(&self, from: u64, limit: u32) -> StoreFuture<'_, $crate::store::Keys<ReceiptKey>> {
                let $inner = &*self.0;
                let ($from, $limit) = (i64::try_from(from).unwrap_or(i64::MAX), limit);
                Box::pin($keys)
            }
        }
    };
}

pub(super) use inbox_store;
