//! What a person should know about an inbox, whoever made it so: [`watch_forever`] looks for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use crate::clock::{Clock, SystemClock};
use crate::notice::{Notice, Notices, Walk};
use crate::store::{InboxStore, ListFilter, Receipt, ReceiptKey, ReceiptState, StoreError, StoreFuture};
use crate::telemetry::{self, Instrument};
use crate::work::{Watched, in_time, watch};
use crate::{Name, Timestamp};

/// Watches the events of one consumer, every five seconds: tells what was given up, a backlog that is too old, and a store that
/// fails. A [`Processor`](super::Processor) that has [`notices`](super::ProcessorBuilder::notices) does this itself; beside a
/// [`DedupLayer`](super::DedupLayer) without one, spawn it.
///
/// It looks at what is stored. So it also finds what a claim gave up because its handlers died, in whatever process.
///
/// # Cancel safety
///
/// It may be dropped at any point.
///
/// ```
/// # async fn example(store: countersign::store::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
/// use countersign::Name;
/// use countersign::notice::Notices;
/// use countersign::receive::watch_forever;
///
/// let (notices, telling) = Notices::builder().hook(|notice| eprintln!("{notice:?}")).build();
/// tokio::spawn(telling.run(std::future::pending()));
/// let watching = tokio::spawn(watch_forever(store, Name::new("billing")?, notices));
/// // At the end of the process:
/// watching.abort();
/// # Ok(())
/// # }
/// ```
pub async fn watch_forever(store: impl InboxStore, consumer: Name, notices: Notices) -> Infallible {
    watch(&mut Inbox::new(Arc::new(store), consumer), &notices).await
}

/// The inbox of one consumer.
pub(super) struct Inbox {
    store: Arc<dyn InboxStore>,
    consumer: Name,
    /// What died before this is old.
    begin: Timestamp,
    /// What was told of late, and when it had died.
    told: HashMap<ReceiptKey, Timestamp>,
}

impl Inbox {
    pub(super) fn new(store: Arc<dyn InboxStore>, consumer: Name) -> Self {
        let begin = SystemClock.now().saturating_sub(OVERLAP);
        Self { store, consumer, begin, told: HashMap::new() }
    }

    /// The dead letters that were not told yet, oldest first.
    async fn died(&self) -> Result<Vec<Receipt>, StoreError> {
        let mut filter = ListFilter {
            consumer: Some(self.consumer.clone()),
            state: Some(ReceiptState::DeadLetter),
            limit: FEW,
            ..ListFilter::default()
        };
        loop {
            let found = in_time(self.store.list(filter.clone())).await?;
            let is_full = u32::try_from(found.len()).is_ok_and(|found| found >= filter.limit);
            if is_full && found.last().is_some_and(|oldest| self.is_news(oldest)) {
                if filter.limit < MANY {
                    filter.limit = MANY;
                    continue;
                }
                warn!("more than {MANY} events were given up within seconds: not all of them are told");
            }
            return Ok(found.into_iter().rev().filter(|receipt| self.is_news(receipt)).collect());
        }
    }

    fn is_news(&self, receipt: &Receipt) -> bool {
        receipt.updated > self.begin && self.told.get(&receipt.key) != Some(&receipt.updated)
    }
}

impl Watched for Inbox {
    const WALK: Walk = Walk::Inbox;
    const GAUGE: Instrument = telemetry::INBOX_OLDEST_DUE;

    fn check(&self) -> StoreFuture<'_, ()> {
        self.store.check()
    }

    fn oldest_due(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
        Box::pin(async move {
            let behind = self.store.oldest_due(self.consumer.clone()).await?;
            Ok(behind.map(|span| (self.consumer.clone(), span)).into_iter().collect())
        })
    }

    async fn look(&mut self, notices: &Notices) {
        let died = match self.died().await {
            Ok(died) => died,
            Err(error) => return debug!(%error, "whether events were given up could not be seen"),
        };
        for receipt in died {
            notices.tell(&dead_letter(&receipt));
            // Of two that died together one may be seen after the other: a commit takes its time.
            self.begin = self.begin.max(receipt.updated.saturating_sub(OVERLAP));
            self.told.insert(receipt.key, receipt.updated);
        }
        let begin = self.begin;
        self.told.retain(|_, updated| *updated > begin);
    }
}

fn dead_letter(receipt: &Receipt) -> Notice {
    let ReceiptKey { consumer, source, key } = &receipt.key;
    Notice::EventDead {
        consumer: consumer.clone(),
        source: source.clone(),
        key: key.to_string(),
        event_id: receipt.event_id.clone(),
        reason: receipt.reason.clone().unwrap_or_default(),
        attempts: receipt.attempts,
        since: receipt.updated,
    }
}

/// How long a commit may take to be seen, and how far clocks may differ.
const OVERLAP: Duration = Duration::from_secs(60);
/// How many dead letters are read at each look, and how many where all of those were new.
const FEW: u32 = 20;
const MANY: u32 = 2_000;
