//! The side of the outbox that callers see: calls go to the writers, and answers come back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::super::writers::{Sender, Writers, ask, insist};
use super::call::{Call, PurgeStep, Removal, Replay, STEP, Selected, Selection, Sweep};
use crate::store::fairness::Chance;
use crate::store::measure;
use crate::store::{
    ClaimMessages, Claims, Endpoint, EndpointEntry, Enqueue, Enqueued, Message, MessageFilter, MessageKey,
    MessageLease, OutboxRetention, Settled, Settlement, StoreError, Token,
};
use crate::{EventId, Name};

/// The outbox's calls, on their way to writers that take them, and maybe others.
#[derive(Debug)]
pub(in crate::store::sql) struct Queue<C = Call> {
    pub(in crate::store::sql) writers: Writers<C>,
    /// Told when a call has made something due.
    pub(in crate::store::sql) wake: Arc<Notify>,
}

impl<C: From<Call>> Queue<C> {
    pub(in crate::store::sql) fn new(writers: Writers<C>) -> Self {
        Self { writers, wake: Arc::default() }
    }

    pub(in crate::store::sql) async fn put_endpoint(&self, endpoint: Endpoint) -> Result<EndpointEntry, StoreError> {
        endpoint.check()?;
        let put = ask(self.writers.first()?, Box::new(endpoint), Call::PutEndpoint).await;
        let (entry, held_up) = put?;
        if held_up {
            // Those that are left where this fails are looked at when their postponement is over.
            self.sweep(Sweep::Promote(entry.endpoint.name.clone())).await?;
        }
        self.waking(Ok(entry))
    }

    pub(in crate::store::sql) async fn disable_endpoint(
        &self,
        name: Name,
        reason: Option<String>,
    ) -> Result<bool, StoreError> {
        let disabled = ask(self.writers.first()?, (name, reason), Call::DisableEndpoint).await;
        self.waking(disabled)
    }

    pub(in crate::store::sql) async fn remove_endpoint(&self, name: Name) -> Result<bool, StoreError> {
        // Aside: it waits for transactions that enqueue for the endpoint.
        loop {
            match ask(self.writers.aside()?, name.clone(), Call::RemoveEndpoint).await? {
                Removal::Done => return Ok(true),
                Removal::NotThere => return Ok(false),
                Removal::TooLarge => {
                    let reason = Some(BEING_REMOVED.to_owned());
                    ask(self.writers.aside()?, (name.clone(), reason), Call::DisableEndpoint).await?;
                    self.sweep(Sweep::Bury(name.clone())).await?;
                }
            }
        }
    }

    /// In small steps between the batches of other callers.
    async fn sweep(&self, sweep: Sweep) -> Result<(), StoreError> {
        while ask(self.writers.aside()?, sweep.clone(), Call::Sweep).await? >= u64::from(STEP) {}
        Ok(())
    }

    pub(in crate::store::sql) async fn enqueue(&self, messages: Vec<Enqueue>) -> Result<Vec<Enqueued>, StoreError> {
        messages.iter().try_for_each(|new| Enqueue::check(&new.message))?;
        let has_order = messages.iter().any(|new| new.message.ordering_key.is_some());
        let writer = self.writer_of_new(messages.first().map(|new| &new.message.id), has_order)?;
        let enqueued = ask(writer, (messages, Token::random()?), Call::Enqueue).await;
        self.waking(measure::enqueued(enqueued))
    }

    pub(in crate::store::sql) async fn publish(&self, message: Message) -> Result<Vec<Enqueued>, StoreError> {
        Enqueue::check(&message)?;
        let writer = self.writer_of_new(Some(&message.id), message.ordering_key.is_some())?;
        let enqueued = ask(writer, (message, Token::random()?), Call::Publish).await;
        self.waking(measure::enqueued(enqueued))
    }

    /// By the first writer: which messages it will be about is not known, and it waits for no lock of another one.
    pub(in crate::store::sql) async fn claim(&self, claim: ClaimMessages) -> Result<Claims, StoreError> {
        let tokens = (0..claim.limit.min(ClaimMessages::MOST)).map(|_| Token::random());
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        ask(self.writers.first()?, (claim, tokens, Chance::draw()?), Call::Claim).await
    }

    pub(in crate::store::sql) async fn settle(
        &self,
        lease: MessageLease,
        settlement: Settlement,
    ) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease)?, (lease, Box::new(settlement)), Call::Settle).await
    }

    pub(in crate::store::sql) async fn renew(
        &self,
        lease: MessageLease,
        span: Duration,
    ) -> Result<Settled, StoreError> {
        insist(self.writer_of(&lease)?, (lease, span), Call::Renew).await
    }

    pub(in crate::store::sql) async fn release(&self, lease: MessageLease) -> Result<Settled, StoreError> {
        let released = insist(self.writer_of(&lease)?, lease, Call::Release).await;
        self.waking(released)
    }

    pub(in crate::store::sql) async fn replay(
        &self,
        filter: MessageFilter,
        gap: Duration,
    ) -> Result<Vec<MessageKey>, StoreError> {
        let replayed = self.in_steps(filter, Walk::Replay { gap }).await;
        self.waking(replayed)
    }

    pub(in crate::store::sql) async fn cancel(&self, filter: MessageFilter) -> Result<Vec<MessageKey>, StoreError> {
        let cancelled = self.in_steps(filter, Walk::Cancel).await;
        self.waking(cancelled)
    }

    /// Small steps between the batches of other callers, so that none of them waits for long.
    pub(in crate::store::sql) async fn purge(&self, retention: OutboxRetention, limit: u32) -> Result<u64, StoreError> {
        let (mut left, mut purged) = (limit, 0);
        while left > 0 {
            let most = left.min(STEP);
            let done = ask(self.writers.aside()?, PurgeStep { retention, most }, Call::Purge).await?;
            purged += done;
            // Less than was asked for: there is no more.
            left = if done < u64::from(most) { 0 } else { left - most };
        }
        Ok(purged)
    }

    /// Every writer: each has a connection of its own that may have failed.
    pub(in crate::store::sql) async fn check(&self) -> Result<(), StoreError> {
        for writer in self.writers.all() {
            ask(writer, (), Call::Check).await?;
        }
        Ok(())
    }

    /// Walks through what fits a filter, from the oldest to the newest.
    async fn in_steps(&self, filter: MessageFilter, walk: Walk) -> Result<Vec<MessageKey>, StoreError> {
        let (mut after, mut keys) = (0, Vec::new());
        loop {
            let done = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            let most = filter.limit.saturating_sub(done).min(STEP);
            if most == 0 {
                return Ok(keys);
            }
            let selection = Selection { filter: filter.clone(), after, most };
            let changed = self.step(walk, selection, done).await?;
            let is_last = changed.looked_at < usize::try_from(most).unwrap_or(usize::MAX);
            after = changed.last.unwrap_or(after);
            keys.extend(changed.keys);
            if is_last {
                return Ok(keys);
            }
        }
    }

    async fn step(&self, walk: Walk, selection: Selection, done: u32) -> Result<Selected, StoreError> {
        let writer = self.writers.first()?;
        match walk {
            Walk::Cancel => ask(writer, selection, Call::Cancel).await,
            Walk::Replay { gap } => {
                ask(writer, Replay { selection, wait: gap.saturating_mul(done), gap }, Call::Replay).await
            }
        }
    }

    /// What has an order may have to wait for a transaction of the application's that has the same one in hand. It waits
    /// aside, so that claims and settlements do not.
    fn writer_of_new(&self, id: Option<&EventId>, has_order: bool) -> Result<&Sender<C>, StoreError> {
        if has_order { self.writers.aside() } else { self.writers.of(&id) }
    }

    /// All calls about one message go to the same writer.
    fn writer_of(&self, lease: &MessageLease) -> Result<&Sender<C>, StoreError> {
        self.writers.of(&lease.row)
    }

    fn waking<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_ok() {
            self.wake.notify_one();
        }
        done
    }
}

/// What is done with the messages that fit a filter.
#[derive(Clone, Copy, Debug)]
enum Walk {
    Cancel,
    Replay { gap: Duration },
}

/// Why an endpoint gets nothing while its messages are being made dead letters.
const BEING_REMOVED: &str = "it is being removed";

/// The contract, for a store whose inner part can say where its `outbox` is: all that writes goes there. How it reads is
/// its own.
macro_rules! outbox_store {
    ($store:ty, |$inner:ident|
     endpoints($name:ident): $endpoints:expr,
     unreadable_endpoints: $unreadable:expr,
     find($key:ident): $find:expr,
     page($filter:ident, $after:ident): $page:expr,
     next_due: $next_due:expr,
     oldest_due: $oldest_due:expr,
     keys($from:ident, $limit:ident): $keys:expr,
     wake: $wake:expr $(,)?) => {
        mod outbox_store {
            use std::sync::Arc;
            use std::time::Duration;

            use tokio::sync::Notify;

            use super::*;
            use $crate::Name;
            use $crate::store::{
                ClaimMessages, Claims, Endpoint, EndpointEntry, Enqueue, Enqueued, Message, MessageFilter, MessageKey,
                MessageLease, OutboxEntry, OutboxRetention, OutboxStore, Settled, Settlement, StoreFuture,
            };

            impl OutboxStore for $store {
                fn put_endpoint(&self, endpoint: Endpoint) -> StoreFuture<'_, EndpointEntry> {
                    Box::pin(self.0.outbox().put_endpoint(endpoint))
                }

                fn endpoints(&self) -> StoreFuture<'_, Vec<EndpointEntry>> {
                    let ($inner, $name) = (&*self.0, None::<Name>);
                    Box::pin($endpoints)
                }

                fn unreadable_endpoints(&self) -> StoreFuture<'_, Vec<(String, $crate::store::StoreError)>> {
                    let $inner = &*self.0;
                    Box::pin($unreadable)
                }

                fn endpoint(&self, name: Name) -> StoreFuture<'_, Option<EndpointEntry>> {
                    let ($inner, $name) = (&*self.0, Some(name));
                    let found = $endpoints;
                    Box::pin(async move { Ok(found.await?.into_iter().next()) })
                }

                fn disable_endpoint(&self, name: Name, reason: Option<String>) -> StoreFuture<'_, bool> {
                    Box::pin(self.0.outbox().disable_endpoint(name, reason))
                }

                fn remove_endpoint(&self, name: Name) -> StoreFuture<'_, bool> {
                    Box::pin(self.0.outbox().remove_endpoint(name))
                }

                fn enqueue(&self, messages: Vec<Enqueue>) -> StoreFuture<'_, Vec<Enqueued>> {
                    Box::pin(self.0.outbox().enqueue(messages))
                }

                fn publish(&self, message: Message) -> StoreFuture<'_, Vec<Enqueued>> {
                    Box::pin(self.0.outbox().publish(message))
                }

                fn claim_messages(&self, claim: ClaimMessages) -> StoreFuture<'_, Claims> {
                    Box::pin(self.0.outbox().claim(claim))
                }

                fn settle(&self, lease: MessageLease, settlement: Settlement) -> StoreFuture<'_, Settled> {
                    Box::pin(self.0.outbox().settle(lease, settlement))
                }

                fn renew_message(&self, lease: MessageLease, span: Duration) -> StoreFuture<'_, Settled> {
                    Box::pin(self.0.outbox().renew(lease, span))
                }

                fn release_message(&self, lease: MessageLease) -> StoreFuture<'_, Settled> {
                    Box::pin(self.0.outbox().release(lease))
                }

                fn find_message(&self, key: MessageKey) -> StoreFuture<'_, Option<OutboxEntry>> {
                    let ($inner, $key) = (&*self.0, key);
                    Box::pin($find)
                }

                fn page_messages(
                    &self,
                    filter: MessageFilter,
                    after: Option<Cursor>,
                ) -> StoreFuture<'_, Page<OutboxEntry>> {
                    let ($inner, $filter, $after) = (&*self.0, filter, after);
                    Box::pin($page)
                }

                fn replay(&self, filter: MessageFilter, gap: Duration) -> StoreFuture<'_, Vec<MessageKey>> {
                    Box::pin(self.0.outbox().replay(filter, gap))
                }

                fn cancel(&self, filter: MessageFilter) -> StoreFuture<'_, Vec<MessageKey>> {
                    Box::pin(self.0.outbox().cancel(filter))
                }

                fn next_due(&self) -> StoreFuture<'_, Option<Duration>> {
                    let $inner = &*self.0;
                    Box::pin($next_due)
                }

                fn purge_messages(&self, retention: OutboxRetention, limit: u32) -> StoreFuture<'_, u64> {
                    Box::pin(self.0.outbox().purge(retention, limit))
                }

                fn check_outbox(&self) -> StoreFuture<'_, ()> {
                    Box::pin(self.0.outbox().check())
                }

                fn oldest_due_messages(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
                    let $inner = &*self.0;
                    Box::pin($oldest_due)
                }

                fn message_keys(&self, from: u64, limit: u32) -> StoreFuture<'_, $crate::store::Keys<MessageKey>> {
                    let $inner = &*self.0;
                    let ($from, $limit) = (i64::try_from(from).unwrap_or(i64::MAX), limit);
                    Box::pin($keys)
                }

                fn wake(&self) -> Option<Arc<Notify>> {
                    let $inner = &*self.0;
                    Some($wake)
                }
            }
        }
    };
}

pub(in crate::store::sql) use outbox_store;
