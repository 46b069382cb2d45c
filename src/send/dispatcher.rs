//! The dispatcher: claims what is due, and sees to it that each message is delivered or dead.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use http::HeaderValue;
use tokio::time::Instant;
use tracing::{Instrument, error_span, field, warn};

use super::attempt::{AttemptSettings, Desk, Ended, SETTLE_TIME};
use super::breaker::BreakerSettings;
use super::disabled::Disabled;
use super::key_source::Signers;
use super::limits::{Limits, Quotas, Slot};
use super::{Backoff, EnvAndFiles, KeySource, RetryPolicy, Tally, Transport, Verdict};
use crate::Name;
use crate::notice::{Notices, Walk};
use crate::signature::{ConfigError, Scheme};
use crate::store::{
    AttemptReport, ClaimMessages, ClaimedMessage, Claims, Endpoint, Message, MessageLease, OutboxStore, Settled,
    StoreError, StoreFuture,
};
use crate::telemetry::{self, Traceparent};
use crate::work::{Pace, Watched, Work, in_time, run_until, watch};

/// Delivers the messages of an outbox, signed, until each of them is delivered or dead.
///
/// Any number of dispatchers, in any number of processes, share the messages of one store: each is delivered by one of
/// them, and by another one if that one dies. One may run in the process that enqueues.
///
/// ```no_run
/// # async fn example(store: countersign::store::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
/// use countersign::send::{Dispatcher, Guard, HttpTransport, Policy};
///
/// // Over HTTPS to public addresses, with secrets from the environment and from files.
/// let transport = HttpTransport::builder(Guard::new(Policy::new())).build()?;
/// let dispatcher = Dispatcher::builder(store, transport).concurrency(128).build()?;
///
/// let stop = tokio_util::sync::CancellationToken::new();
/// let dispatching = tokio::spawn(dispatcher.run(stop.clone().cancelled_owned()));
/// // At the end of the process:
/// stop.cancel();
/// dispatching.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it does nothing until it runs"]
pub struct Dispatcher {
    desk: Arc<Desk>,
    limits: Limits,
    pace: Pace,
}

/// Settings of a [`Dispatcher`].
#[must_use]
pub struct DispatcherBuilder {
    store: Arc<dyn OutboxStore>,
    transport: Arc<dyn Transport>,
    keys: Arc<dyn KeySource>,
    schemes: HashMap<String, Scheme>,
    notices: Notices,
    attempt: AttemptSettings,
    user_agent: String,
    breaker: BreakerSettings,
    endpoint_concurrency: Option<u32>,
    pace: Pace,
}

/// How a message that was sent on trial was received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trial {
    /// What would be made of it.
    pub verdict: Verdict,
    /// What would be noted of it.
    pub report: AttemptReport,
}

impl Dispatcher {
    /// Begins to set up a dispatcher of the messages in this store.
    pub fn builder(store: impl OutboxStore, transport: impl Transport) -> DispatcherBuilder {
        DispatcherBuilder {
            store: Arc::new(store),
            transport: Arc::new(transport),
            keys: Arc::new(EnvAndFiles),
            schemes: HashMap::new(),
            notices: Notices::default(),
            attempt: AttemptSettings {
                answer_limit: AttemptReport::MAX_BODY_BYTES,
                disable_after: Some(Duration::from_secs(5 * 24 * 60 * 60)),
                lease: Duration::from_secs(60),
                retry: RetryPolicy::new(),
                timeout: Duration::from_secs(20),
                user_agent: HeaderValue::from_static(""),
            },
            user_agent: concat!("countersign/", env!("CARGO_PKG_VERSION")).to_owned(),
            breaker: BreakerSettings {
                after: 5,
                pauses: Backoff::new(Duration::from_secs(10), Duration::from_secs(5 * 60)),
            },
            endpoint_concurrency: None,
            pace: Pace { slots: 64, poll: Duration::from_secs(1), grace: Duration::from_secs(30) },
        }
    }

    /// Delivers until `shutdown` resolves; then claims no more, waits for the attempts that run, and gives back the messages
    /// of those that have not ended within the grace, so that another dispatcher takes them at once.
    ///
    /// A store that fails and a transport that panics do not end it.
    ///
    /// # Cancel safety
    ///
    /// Where this is dropped, the attempts that run are dropped too, and their messages are sent again when their leases
    /// end.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let wake = self.desk.store.wake().unwrap_or_default();
        let rounds = Rounds { desk: self.desk, limits: self.limits, seen: Mutex::default(), poll: self.pace.poll };
        let (mut outbox, notices) = (Outbox(Arc::clone(&rounds.desk.store)), rounds.desk.notices.clone());
        tokio::select! {
            biased;
            () = run_until(Arc::new(rounds), self.pace, &wake, shutdown) => {}
            never = watch(&mut outbox, &notices) => match never {},
        }
    }

    /// Sends one message now and once, past the outbox: nothing in the store is read or changed. It never fails: what goes
    /// wrong is what the [`Trial`] says.
    ///
    /// # Cancel safety
    ///
    /// Where this is dropped the request is dropped too; the receiver may have had it.
    pub async fn try_out(&self, endpoint: &Endpoint, message: &Message) -> Trial {
        let Ended { verdict, report, .. } = self.desk.attempt(endpoint, message, 1).await;
        Trial { verdict, report }
    }

    /// What it does, counted. Take it before [`run`](Self::run).
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.desk.tally.clone()
    }
}

impl DispatcherBuilder {
    /// How many bytes of an answer's body are read and kept with the attempt, up to
    /// [`AttemptReport::MAX_BODY_BYTES`], which is the default. 0 keeps none.
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.attempt.answer_limit = bytes.min(AttemptReport::MAX_BODY_BYTES);
        self
    }

    /// How long an attempt may take, from looking up the name to the end of the answer. 20 seconds by default. An
    /// endpoint's own setting goes before it, up to the lease less 5 seconds.
    pub fn attempt_timeout(mut self, time: Duration) -> Self {
        self.attempt.timeout = time;
        self
    }

    /// After how many failures in a row (no answer, or a 5xx) an endpoint is left alone, and for how long: at first, and
    /// at most. Then one attempt shows whether it works again. 5 failures, 10 seconds up to 5 minutes by default; 0
    /// failures for never. Meanwhile its messages wait, and no attempts are used up.
    pub fn breaker(mut self, failures: u32, pauses: Backoff) -> Self {
        self.breaker = BreakerSettings { after: failures, pauses };
        self
    }

    /// How many attempts are made at one time. 64 by default.
    pub fn concurrency(mut self, attempts: u32) -> Self {
        self.pace.slots = attempts;
        self
    }

    /// After how long an endpoint is disabled that does not work (no answer, a 5xx, or it wants the message later, as with 408, 425
    /// or 429), and has not worked for all that time. 5 days by default, `None` for never. One that refuses messages for good
    /// works.
    pub fn disable_after(mut self, time: Option<Duration>) -> Self {
        self.attempt.disable_after = time;
        self
    }

    /// How many attempts are made at one endpoint at one time, where it does not say otherwise. A quarter of all by
    /// default, so that one slow endpoint cannot take them all.
    pub fn endpoint_concurrency(mut self, attempts: u32) -> Self {
        self.endpoint_concurrency = Some(attempts);
        self
    }

    /// How long attempts that run may take once the dispatcher is to stop. 30 seconds by default. After that they are
    /// dropped, and their messages given back.
    pub fn grace(mut self, time: Duration) -> Self {
        self.pace.grace = time;
        self
    }

    /// Where the secrets come from: [`EnvAndFiles`] by default.
    pub fn keys(mut self, keys: impl KeySource) -> Self {
        self.keys = Arc::new(keys);
        self
    }

    /// How long a message is protected from being taken for left behind. It is renewed while the attempt runs, so this is
    /// how long a message waits after a crash. 60 seconds by default; 5 more than an attempt may take at least.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.attempt.lease = lease;
        self
    }

    /// Who is told what a person should know: what was given up, what was disabled, and what is late.
    pub fn notices(mut self, notices: &Notices) -> Self {
        self.notices = notices.clone();
        self
    }

    /// How often to look for what is due where nothing says that there is something, up to half as much again by chance.
    /// One second by default. What is known to become due earlier is looked for then.
    pub fn poll(mut self, time: Duration) -> Self {
        self.pace.poll = time;
        self
    }

    /// When and how often messages are tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.attempt.retry = policy;
        self
    }

    /// A scheme of your own, for endpoints whose scheme has this name. It goes before a preset.
    pub fn scheme(mut self, name: &str, scheme: Scheme) -> Self {
        self.schemes.insert(name.to_owned(), scheme);
        self
    }

    /// What to send as `user-agent`. `countersign/` and the version by default.
    pub fn user_agent(mut self, text: &str) -> Self {
        text.clone_into(&mut self.user_agent);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which of them cannot work.
    pub fn build(mut self) -> Result<Dispatcher, ConfigError> {
        at_least("attempt timeout", self.attempt.timeout, Duration::from_millis(1))?;
        // Else a message could be claimed again while an attempt still runs, or before its end is recorded.
        at_least("lease", self.attempt.lease, self.attempt.timeout.saturating_add(SETTLE_TIME))?;
        at_least("poll", self.pace.poll, Duration::from_millis(1))?;
        let per_endpoint = self.endpoint_concurrency.unwrap_or_else(|| self.pace.slots.div_ceil(4));
        if self.pace.slots == 0 || per_endpoint == 0 {
            return Err(ConfigError::NoConcurrency);
        }
        if self.attempt.retry.max_attempts() == 0 {
            return Err(ConfigError::NoAttempts);
        }
        self.attempt.user_agent = HeaderValue::from_str(&self.user_agent).map_err(|_| ConfigError::UserAgent)?;
        let desk = Desk {
            store: self.store,
            transport: self.transport,
            signers: Signers::new(self.keys, self.schemes, KEYS_KEPT_FOR),
            notices: self.notices,
            disabled: Disabled::default(),
            tally: Tally::default(),
            settings: self.attempt,
        };
        Ok(Dispatcher { desk: Arc::new(desk), limits: Limits::new(per_endpoint, self.breaker), pace: self.pace })
    }
}

impl fmt::Debug for DispatcherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatcherBuilder")
            .field("attempt", &self.attempt)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// Least time between two questions to the store when something is due next.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Such a question takes one part in so many of the time, where that leaves less than this between two.
const LOOKS_SHARE: u32 = 20;
const LONGEST_BETWEEN: Duration = Duration::from_secs(1);
/// How long secrets are remembered.
const KEYS_KEPT_FOR: Duration = Duration::from_secs(10);

fn at_least(what: &'static str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    if value < least { Err(ConfigError::TooShort { what, value, least }) } else { Ok(()) }
}

/// What is watched while a dispatcher runs.
struct Outbox(Arc<dyn OutboxStore>);

impl Watched for Outbox {
    const WALK: Walk = Walk::Outbox;
    const GAUGE: telemetry::Instrument = telemetry::OUTBOX_OLDEST_DUE;

    fn check(&self) -> StoreFuture<'_, ()> {
        self.0.check_outbox()
    }

    fn oldest_due(&self) -> StoreFuture<'_, Vec<(Name, Duration)>> {
        self.0.oldest_due_messages()
    }
}

/// The dispatcher as the loop sees it.
struct Rounds {
    desk: Arc<Desk>,
    limits: Limits,
    poll: Duration,
    seen: Mutex<Seen>,
}

/// When there will be something, as far as the last claim showed.
#[derive(Debug, Default)]
struct Seen {
    /// When the next message is due.
    due: Option<Instant>,
    /// When the store is asked for that again, at the earliest.
    look: Option<Instant>,
    /// When an endpoint may get more than it could.
    more: Option<Instant>,
}

impl Work for Rounds {
    /// With when it was asked for.
    type Item = (ClaimedMessage, Slot, Instant);
    type Lease = MessageLease;

    async fn claim(&self, free: u32) -> Result<Vec<Self::Item>, StoreError> {
        let AttemptSettings { lease, retry, .. } = &self.desk.settings;
        let began = Instant::now();
        let Quotas { by_name, next: more } = self.limits.quotas(began);
        let mut claim = ClaimMessages::new(free, *lease);
        claim.quota = self.limits.in_flight();
        claim.quotas = by_name;
        claim.max_attempts = retry.max_attempts();
        let Claims { messages: claimed, buried, .. } = in_time(self.desk.store.claim_messages(claim)).await?;

        let is_less = u32::try_from(claimed.len() + buried.len()).is_ok_and(|got| got < free);
        let now = Instant::now();
        let mut surplus = Vec::new();
        let mut items = Vec::with_capacity(claimed.len());
        for message in claimed {
            match self.limits.begin(&message.endpoint, now) {
                Some(slot) => items.push((message, slot, began)),
                None => surplus.push(message.lease),
            }
        }
        self.give_back(surplus).await;
        self.desk.tell_buried(&buried);
        // What an endpoint may get since this began it was not asked for: so that moment counts even if it is past.
        let more = more.into_iter().chain(self.limits.next(now)).min();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).more = more;
        if is_less {
            self.look_ahead(began).await;
        }
        Ok(items)
    }

    fn lease(&self, (message, ..): &Self::Item) -> MessageLease {
        message.lease.clone()
    }

    async fn run(&self, (message, slot, asked): Self::Item) {
        let MessageLease { key, attempt, .. } = &message.lease;
        // At the level of errors, so that whatever is logged within says which message it is about.
        let told = &message.message;
        let trace = told.traceparent.as_deref().and_then(Traceparent::parse);
        let span = error_span!(
            "deliver",
            id = %key.id,
            endpoint = %key.endpoint,
            attempt,
            event_type = told.event_type.as_str(),
            replay = message.replays,
            correlation_id = told.correlation_id.as_ref().map(Name::as_str),
            causation_id = told.causation_id.as_ref().map(Name::as_str),
            trace_id = trace.as_ref().map(Traceparent::trace_id),
            parent_id = trace.as_ref().map(Traceparent::parent_id),
            outcome = field::Empty,
            status = field::Empty,
        );
        self.desk.deliver(message, slot, asked).instrument(span).await;
    }

    async fn release(&self, lease: MessageLease) -> Result<Settled, StoreError> {
        self.desk.store.release_message(lease).await
    }

    fn next(&self) -> Option<Instant> {
        let Seen { due, more, .. } = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        due.into_iter().chain(more).min()
    }
}

impl Rounds {
    /// Gives back what its endpoint may not have now: a claim does not know the limits of an endpoint that it meets for
    /// the first time. Now they are known.
    async fn give_back(&self, surplus: Vec<MessageLease>) {
        let released = surplus.into_iter().map(|lease| in_time(self.desk.store.release_message(lease)));
        for released in join_all(released).await {
            if let Err(error) = released {
                warn!(%error, "a message beyond its endpoint's limits was not given back: its lease runs out");
            }
        }
    }

    /// Finds out when there is something next, at once or shortly after the last time. What was due when the claim `began`
    /// is claimed, held back by a limit, or on its way to somebody else.
    async fn look_ahead(&self, began: Instant) {
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.due = seen.due.filter(|due| *due > began);
            if let Some(again) = seen.look.filter(|again| *again > began) {
                // What ended since the last look may be due before what was seen then.
                seen.due = Some(seen.due.map_or(again, |due| due.min(again)));
                return;
            }
        }
        // A poll finds what this does not.
        let asked = Instant::now();
        let Ok(next) = in_time(self.desk.store.next_due()).await else { return };
        let now = Instant::now();
        // Where looking takes long it is done less often.
        let least = BETWEEN_LOOKS.min(self.poll / 4);
        let between = ((now - asked) * LOOKS_SHARE).clamp(least, LONGEST_BETWEEN.max(least));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.due = next.filter(|next| !next.is_zero()).map(|next| now + next.min(self.poll));
        seen.look = Some(now + between);
    }
}
