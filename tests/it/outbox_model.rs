//! Random operations on an outbox and on the one in memory: both must say the same throughout.
//!
//! Claims take all that there is of some endpoints, in as many calls as that needs: which message a smaller claim gets is
//! left to chance, and how many of them a store needs is its own affair. What the limits and the turns of claims promise
//! stands in the conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::clock::ManualClock;
use countersign::store::{
    Attempt, AttemptReport, ClaimMessages, ClaimedMessage, Endpoint, EndpointEntry, EndpointHealth, EndpointNews,
    Enqueue, Fate, MemoryStore, Message, MessageFilter, MessageKey, MessageLease, MessageState, OnDead, OutboxEntry,
    OutboxRetention, OutboxStore, Settlement, Token, TypePattern,
};
use countersign::{Clock, EventId, Name, Timestamp};
use http::{HeaderMap, HeaderValue, StatusCode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::store_model::{NEAR, OneClock, Time, near, units};

const IDS: u8 = 4;
const LEASE: Duration = units(60);
const RETENTION: Duration = units(150);

/// One test that compares a store, made by an `async fn() -> Option<impl Modelled>`, with the one in memory.
macro_rules! outbox_model_test {
    ($name:ident, $cases:expr, $make:path) => {
        proptest::proptest! {
            #![proptest_config($crate::store_model::cases($cases))]

            #[test]
            fn $name(steps in proptest::collection::vec($crate::outbox_model::step(), 1..80)) {
                $crate::outbox_model::run(&steps, $make);
            }
        }
    };
}
pub(crate) use outbox_model_test;

outbox_model_test!(another_outbox_in_memory_does_what_the_first_does, 64, in_memory);

/// A store that is compared, empty, with the clock that the one in memory goes by.
pub(crate) trait Modelled {
    fn outbox(&self) -> &dyn OutboxStore;
    fn clock(&self) -> &Arc<ManualClock>;
    fn time(&self) -> &dyn Time;
}

/// A store that goes by the clock of the one in memory.
pub(crate) struct OnOneClock<S> {
    pub(crate) store: S,
    time: OneClock,
}

impl<S: OutboxStore> OnOneClock<S> {
    pub(crate) async fn new(open: impl AsyncFnOnce(Arc<ManualClock>) -> S) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000).expect("in range")));
        Self { store: open(Arc::clone(&clock)).await, time: OneClock(clock) }
    }
}

impl<S: OutboxStore> Modelled for OnOneClock<S> {
    fn outbox(&self) -> &dyn OutboxStore {
        &self.store
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.time.0
    }

    fn time(&self) -> &dyn Time {
        &self.time
    }
}

async fn in_memory() -> Option<OnOneClock<MemoryStore>> {
    Some(OnOneClock::new(async |clock| MemoryStore::with_clock(clock)).await)
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Advance(u64),
    Cancel(Filter),
    Claim { endpoints: [bool; 3], max_attempts: u32 },
    Disable { endpoint: u8, disable: bool },
    Enqueue(Vec<(u8, u8, u64)>),
    Publish(u8),
    Purge(u32),
    Put { endpoint: u8, max_attempts: Option<u32> },
    Release(usize),
    Remove(u8),
    Renew { lease: usize, span: u64 },
    Replay { filter: Filter, gap: u64 },
    Settle { lease: usize, fate: Fate, answered: bool, news: EndpointNews },
}

#[derive(Clone, Debug)]
pub(crate) struct Filter {
    endpoint: Option<u8>,
    id: Option<u8>,
    state: Option<MessageState>,
    limit: u32,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let one = (0u8..3, 0..IDS, prop_oneof![3 => Just(0u64), 1 => 1u64..90]);
    prop_oneof![
        8 => vec(one, 0..4).prop_map(Step::Enqueue),
        2 => (0..IDS).prop_map(Step::Publish),
        9 => (vec(proptest::bool::weighted(0.8), 3), 0u32..5)
            .prop_map(|(all, max_attempts)| Step::Claim { endpoints: [all[0], all[1], all[2]], max_attempts }),
        6 => (0u64..80).prop_map(Step::Advance),
        14 => (0usize..6, fate(), any::<bool>(), news())
            .prop_map(|(lease, fate, answered, news)| Step::Settle { lease, fate, answered, news }),
        2 => (0usize..6).prop_map(Step::Release),
        2 => (0usize..6, 0u64..90).prop_map(|(lease, span)| Step::Renew { lease, span }),
        4 => (filter(), 0u64..40).prop_map(|(filter, gap)| Step::Replay { filter, gap }),
        2 => filter().prop_map(Step::Cancel),
        3 => (0u8..3, option::of(1u32..4)).prop_map(|(endpoint, max_attempts)| Step::Put { endpoint, max_attempts }),
        3 => (0u8..3, proptest::bool::weighted(0.3)).prop_map(|(endpoint, disable)| Step::Disable { endpoint, disable }),
        1 => (0u8..3).prop_map(Step::Remove),
        1 => (0u32..4).prop_map(Step::Purge),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Delivered),
        4 => (0u64..90, proptest::bool::weighted(0.8))
            .prop_map(|(after, counts)| Fate::Again { after: units(after), counts }),
        3 => Just(Fate::Dead("no".into())),
        1 => Just(Fate::Failed("ask".into())),
    ]
}

fn news() -> impl Strategy<Value = EndpointNews> {
    let seldom = |spans| option::weighted(0.1, spans);
    let health = proptest::sample::select(vec![EndpointHealth::Fails, EndpointHealth::Unknown, EndpointHealth::Works]);
    let parts = (health, seldom(0u64..60), proptest::bool::weighted(0.03), seldom(0u64..200));
    parts.prop_map(|(health, pause, disable, disable_after)| {
        let mut news = EndpointNews::default();
        news.health = health;
        news.pause = pause.map(units);
        news.disable = disable.then(|| "410".into());
        news.disable_after = disable_after.map(units);
        news
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let state = prop_oneof![
        5 => Just(None),
        2 => Just(Some(MessageState::DeadLetter)),
        1 => Just(Some(MessageState::Failed)),
        1 => Just(Some(MessageState::Succeeded)),
        1 => Just(Some(MessageState::Pending)),
        1 => Just(Some(MessageState::Delivering)),
    ];
    (option::of(0u8..3), option::of(0..IDS), state, prop_oneof![0u32..4, Just(99)])
        .prop_map(|(endpoint, id, state, limit)| Filter { endpoint, id, state, limit })
}

pub(crate) fn run<M: Modelled>(steps: &[Step], make: impl AsyncFnOnce() -> Option<M>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let Some(modelled) = make().await else { return };
        let memory = MemoryStore::with_clock(Arc::clone(modelled.clock()));
        let (store, time) = (modelled.outbox(), modelled.time());
        let mut pair = Pair { memory, store, time, clock: modelled.clock(), leases: Vec::new() };
        for endpoint in 0..3 {
            pair.take(&Step::Put { endpoint, max_attempts: None }).await;
        }
        for (number, step) in steps.iter().enumerate() {
            let span = if let Step::Advance(span) = step { units(*span) } else { Duration::ZERO };
            time.advance(pair.clock, span).await;
            pair.take(step).await;
            pair.compare(step, number % 5 == 4 || number + 1 == steps.len()).await;
        }
    });
}

/// The store in memory and the one that is compared with it.
struct Pair<'a> {
    memory: MemoryStore,
    store: &'a dyn OutboxStore,
    time: &'a dyn Time,
    clock: &'a Arc<ManualClock>,
    /// The same lease of both: only their tokens and rows differ.
    leases: Vec<(MessageLease, MessageLease)>,
}

/// What both say, which must be the same.
macro_rules! same {
    ($pair:ident, $step:ident, $verb:ident($($argument:expr),*)) => {{
        let left = $pair.memory.$verb($($argument),*).await.expect("an answer");
        let right = $pair.store.$verb($($argument),*).await.expect("an answer");
        assert_eq!(right, left, "{:?}", $step);
    }};
}

impl Pair<'_> {
    async fn take(&mut self, step: &Step) {
        match step {
            Step::Advance(_) => {}
            Step::Cancel(filter) => same!(self, step, cancel(filter.asked())),
            Step::Claim { endpoints, max_attempts } => self.claim(*endpoints, *max_attempts, step).await,
            Step::Disable { endpoint, disable } => {
                let reason = disable.then(|| "maintenance".to_owned());
                same!(self, step, disable_endpoint(name(*endpoint), reason.clone()));
            }
            Step::Enqueue(messages) => {
                let asked = |(endpoint, id, delay): &(u8, u8, u64)| {
                    let mut asked = Enqueue::new(name(*endpoint), message(*id));
                    asked.delay = units(*delay);
                    asked
                };
                let messages: Vec<_> = messages.iter().map(asked).collect();
                let left = self.memory.enqueue(messages.clone()).await;
                let right = self.store.enqueue(messages).await;
                assert_eq!(right.ok(), left.ok(), "{step:?}");
            }
            Step::Publish(id) => same!(self, step, publish(message(*id))),
            Step::Purge(limit) => {
                // On a server, what changed at one time here changed one after the other.
                let limit = if self.time.ahead().is_some() && *limit > 0 { 99 } else { *limit };
                let mut retention = OutboxRetention::default();
                retention.done = RETENTION;
                same!(self, step, purge_messages(retention, limit));
            }
            Step::Put { endpoint, max_attempts } => {
                let given = self::endpoint(*endpoint, *max_attempts);
                let left = self.memory.put_endpoint(given.clone()).await.expect("an answer");
                let right = self.store.put_endpoint(given).await.expect("an answer");
                assert_eq!(self.aligned_endpoint(right, &left), left, "{step:?}");
            }
            Step::Release(lease) => {
                let (one, two) = self.lease(*lease);
                let left = self.memory.release_message(one).await.expect("an answer");
                assert_eq!(self.store.release_message(two).await.expect("an answer"), left, "{step:?}");
            }
            Step::Remove(endpoint) => same!(self, step, remove_endpoint(name(*endpoint))),
            Step::Renew { lease, span } => {
                let (one, two) = self.lease(*lease);
                let span = units(*span);
                let left = self.memory.renew_message(one, span).await.expect("an answer");
                assert_eq!(self.store.renew_message(two, span).await.expect("an answer"), left, "{step:?}");
            }
            Step::Replay { filter, gap } => {
                same!(self, step, replay(filter.asked(), units(*gap)));
            }
            Step::Settle { lease, fate, answered, news } => {
                let (one, two) = self.lease(*lease);
                let mut settlement = Settlement::new(fate.clone(), report(*answered, *fate == Fate::Delivered));
                settlement.endpoint = news.clone();
                let left = self.memory.settle(one, settlement.clone()).await.expect("an answer");
                assert_eq!(self.store.settle(two, settlement).await.expect("an answer"), left, "{step:?}");
            }
        }
    }

    async fn claim(&mut self, endpoints: [bool; 3], max_attempts: u32, step: &Step) {
        let mut asked = ClaimMessages::new(ClaimMessages::MOST, LEASE);
        asked.max_attempts = max_attempts;
        asked.quotas = (0..3).zip(endpoints).filter(|(_, asked)| !asked).map(|(number, _)| (name(number), 0)).collect();
        let left = claim_all(&self.memory, &asked).await;
        let right = claim_all(self.store, &asked).await;
        assert_eq!(right.keys().collect::<Vec<_>>(), left.keys().collect::<Vec<_>>(), "{step:?}");
        for (one, mut two) in left.into_values().zip(right.into_values()) {
            self.leases.push((one.lease.clone(), two.lease.clone()));
            assert!(two.age.abs_diff(one.age) < NEAR, "{two:?} is not {one:?}");
            (two.lease.token, two.lease.row, two.age) = (one.lease.token, one.lease.row, one.age);
            two.created = near(two.created, one.created, self.time);
            assert_eq!(two, one, "{step:?}");
        }
    }

    /// A recent lease, so that late holders occur; one that nobody was given where there are too few.
    fn lease(&self, back: usize) -> (MessageLease, MessageLease) {
        self.leases.iter().rev().nth(back).cloned().unwrap_or_else(|| {
            let lease = MessageLease { key: key(0, 0), row: 0, token: Token::from_bytes([7; 16]), attempt: 1 };
            (lease.clone(), lease)
        })
    }

    async fn compare(&self, step: &Step, lists_too: bool) {
        let mut someone_may_be_held_up = false;
        for (endpoint, id) in (0..3).flat_map(|endpoint| (0..IDS).map(move |id| (endpoint, id))) {
            let left = self.memory.find_message(key(endpoint, id)).await.expect("an answer");
            let right = self.store.find_message(key(endpoint, id)).await.expect("an answer");
            match (left, right) {
                (Some(left), Some(right)) => {
                    someone_may_be_held_up |=
                        left.message.ordering_key.is_some() && left.state == MessageState::Pending;
                    assert_eq!(self.aligned(right, &left), left, "after {step:?}");
                }
                (left, right) => assert_eq!(right, left, "after {step:?}"),
            }
        }
        let left = self.memory.endpoints().await.expect("an answer");
        let right = self.store.endpoints().await.expect("an answer");
        assert_eq!(right.len(), left.len(), "after {step:?}");
        let right: Vec<_> =
            right.into_iter().zip(&left).map(|(right, left)| self.aligned_endpoint(right, left)).collect();
        assert_eq!(right, left, "after {step:?}");

        let left = self.memory.next_due().await.expect("an answer").unwrap_or(Duration::MAX);
        let right = self.store.next_due().await.expect("an answer").unwrap_or(Duration::MAX);
        assert!(right <= left.saturating_add(NEAR), "{right:?} is later than {left:?} after {step:?}");
        assert!(someone_may_be_held_up || left.abs_diff(right) < NEAR, "{right:?} is not {left:?} after {step:?}");
        if lists_too {
            self.same_lists(step).await;
        }
    }

    async fn same_lists(&self, step: &Step) {
        let all = || Filter { endpoint: None, id: None, state: None, limit: 99 };
        let exact = self.time.ahead().is_none();
        let filters = [
            all(),
            Filter { endpoint: Some(1), ..all() },
            Filter { id: Some(2), ..all() },
            Filter { state: Some(MessageState::Pending), ..all() },
            Filter { state: Some(MessageState::DeadLetter), endpoint: Some(0), ..all() },
            Filter { limit: if exact { 3 } else { 99 }, ..all() },
        ];
        for filter in filters {
            let mut left = self.memory.list_messages(filter.asked()).await.expect("an answer");
            let mut right = self.store.list_messages(filter.asked()).await.expect("an answer");
            assert_eq!(right.len(), left.len(), "{filter:?} after {step:?}");
            if !exact {
                // On a server, what changed at one time here changed one after the other.
                for entries in [&mut left, &mut right] {
                    entries.sort_by_key(|entry| (entry.endpoint.clone(), entry.message.id.clone()));
                }
            }
            let right: Vec<_> = right.into_iter().zip(&left).map(|(right, left)| self.aligned(right, left)).collect();
            assert_eq!(right, left, "{filter:?} after {step:?}");
        }
    }

    /// The message as the one in memory would show it, where its times are near.
    fn aligned(&self, mut entry: OutboxEntry, memory: &OutboxEntry) -> OutboxEntry {
        entry.created = near(entry.created, memory.created, self.time);
        entry.updated = near(entry.updated, memory.updated, self.time);
        if let (Some(due), Some(expected)) = (entry.due, memory.due) {
            // While a message may be held up by its ordering key, a store may put it off.
            let may_be_held_up = memory.message.ordering_key.is_some() && memory.state == MessageState::Pending;
            let is_due = expected <= self.clock.now();
            entry.due = Some(if may_be_held_up && is_due { expected } else { near(due, expected, self.time) });
        }
        for (attempt, expected) in entry.attempt_log.iter_mut().zip(&memory.attempt_log) {
            let Attempt { at, .. } = attempt;
            *at = near(*at, expected.at, self.time);
        }
        entry
    }

    fn aligned_endpoint(&self, mut entry: EndpointEntry, memory: &EndpointEntry) -> EndpointEntry {
        let near_or_not = |shown: Option<Timestamp>, expected: Option<Timestamp>| match (shown, expected) {
            (Some(shown), Some(expected)) => Some(near(shown, expected, self.time)),
            _ => shown,
        };
        entry.created = near(entry.created, memory.created, self.time);
        entry.updated = near(entry.updated, memory.updated, self.time);
        entry.paused_until = near_or_not(entry.paused_until, memory.paused_until);
        entry.disabled_since = near_or_not(entry.disabled_since, memory.disabled_since);
        entry.failing_since = near_or_not(entry.failing_since, memory.failing_since);
        entry
    }
}

/// Claims until there is nothing left to claim. None does not mean that there are no more.
async fn claim_all(store: &dyn OutboxStore, asked: &ClaimMessages) -> BTreeMap<MessageKey, ClaimedMessage> {
    let mut all = BTreeMap::new();
    let mut in_vain = 0;
    while in_vain < usize::from(IDS) + 1 {
        let claimed = store.claim_messages(asked.clone()).await.expect("an answer").messages;
        in_vain = if claimed.is_empty() { in_vain + 1 } else { 0 };
        for claimed in claimed {
            let twice = all.insert(claimed.lease.key.clone(), claimed);
            assert_eq!(twice, None, "it was claimed already");
        }
    }
    all
}

impl Filter {
    fn asked(&self) -> MessageFilter {
        let mut filter = MessageFilter::default();
        filter.endpoint = self.endpoint.map(name);
        filter.id = self.id.map(id);
        filter.state = self.state;
        filter.limit = self.limit;
        filter
    }
}

fn key(endpoint: u8, number: u8) -> MessageKey {
    MessageKey { endpoint: name(endpoint), id: id(number) }
}

fn name(endpoint: u8) -> Name {
    Name::new(["Shop", "shop", "é"][usize::from(endpoint)]).expect("a name")
}

fn id(number: u8) -> EventId {
    EventId::new(&format!("msg_{number}")).expect("an id")
}

/// Each does something else where a message of an ordering key will not be delivered.
fn endpoint(number: u8, max_attempts: Option<u32>) -> Endpoint {
    let mut endpoint = Endpoint::new(name(number), format!("https://example.com/{}", max_attempts.unwrap_or(9)));
    endpoint.settings.on_dead = [OnDead::Block, OnDead::Park, OnDead::Skip][usize::from(number)];
    endpoint.settings.max_attempts = max_attempts;
    endpoint.types = if number == 1 { Vec::new() } else { vec![TypePattern::new("*.paid").expect("a pattern")] };
    endpoint
}

/// Three of four share an ordering key.
fn message(number: u8) -> Message {
    let mut message = Message::new(id(number), Name::new("order.paid").expect("a name"), vec![number, 0, 0xff]);
    message.ordering_key = (number > 0).then(|| Name::new("order").expect("a name"));
    message
}

fn report(answered: bool, well: bool) -> AttemptReport {
    let mut report = AttemptReport::default();
    report.took = Duration::from_millis(7);
    if answered {
        report.status = Some(if well { StatusCode::OK } else { StatusCode::BAD_GATEWAY });
        report.headers.append("x-odd", HeaderValue::from_bytes(b"\xff").expect("a value"));
        report.body = b"\0\xff".as_slice().into();
    } else {
        report.headers = HeaderMap::new();
        report.error = Some("timed out".into());
        report.kind = Some("timeout".into());
    }
    report
}
