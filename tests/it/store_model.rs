//! Random operations on a store and on the one in memory: both must say the same throughout.
//!
//! SQLite goes by the same clock. A server goes by its own: before each step the clock of the one in memory is set to it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use countersign::clock::ManualClock;
use countersign::store::{
    Accept, CachedInbox, Claim, Failure, InboxStore, KeptRequest, Lease, ListFilter, MemoryStore, OtherBody, Receipt,
    ReceiptKey, ReceiptState, Reserve, Reserved, ResultBody, Retention, SqliteStore, StoredResult, Token, Unclear,
};
use countersign::{DedupKey, Digest, EventId, Name, Timestamp};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const KEYS: u8 = 4;
const LEASE: Duration = units(60);
const RETENTION: Retention = Retention { results: units(90), keys: units(200) };

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn a_cache_in_front_changes_nothing(steps in vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let clock = start();
            let cached = CachedInbox::new(MemoryStore::with_clock(Arc::clone(&clock)), 1 << 20);
            compare_with(steps, &clock, &cached, &OneClock(Arc::clone(&clock))).await;
        });
    }

    #[test]
    fn the_sqlite_store_does_what_the_one_in_memory_does(steps in vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(compare(steps));
    }
}

/// So many cases, or as many as `PROPTEST_CASES` says. What a test that fails has printed begins it anew.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let seed = match asked.rng_seed {
        RngSeed::Random => RandomState::new().build_hasher().finish(),
        RngSeed::Fixed(seed) => seed,
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { cases };
    eprintln!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}");
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), ..asked }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Accept { key: u8, body: bool, refuse: bool, ordered: bool, suspect: bool },
    Advance(u64),
    Claim { consumer: bool, limit: u32, max_attempts: u32, hold: bool },
    Complete { lease: usize, body: Option<Vec<u8>> },
    Conclude(u8),
    Fail { lease: usize, dead: bool, answered: bool, kept: bool, retry_in: Option<u64> },
    Forget(u8),
    Purge(u32),
    Release(usize),
    Renew { lease: usize, span: u64 },
    Reserve { key: u8, body: bool, refuse: bool, max_attempts: u32, hold: bool },
    Retry(u8),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let body = proptest::option::of(vec(any::<u8>(), 0..20));
    prop_oneof![
        7 => (0..KEYS, any::<bool>(), any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(key, body, refuse, ordered, suspect)| Step::Accept { key, body, refuse, ordered, suspect }),
        6 => (proptest::bool::weighted(0.9), 0u32..4, 0u32..4, proptest::bool::weighted(0.2))
            .prop_map(|(consumer, limit, max_attempts, hold)| Step::Claim { consumer, limit, max_attempts, hold }),
        2 => (0usize..6).prop_map(Step::Release),
        3 => (0u64..80).prop_map(Step::Advance),
        4 => (0usize..6, body).prop_map(|(lease, body)| Step::Complete { lease, body }),
        4 => (0usize..6, any::<bool>(), any::<bool>(), any::<bool>(), proptest::option::of(0u64..90))
            .prop_map(|(lease, dead, answered, kept, retry_in)| Step::Fail { lease, dead, answered, kept, retry_in }),
        1 => (0..KEYS).prop_map(Step::Forget),
        1 => (0u32..4).prop_map(Step::Purge),
        2 => (0usize..6, 0u64..90).prop_map(|(lease, span)| Step::Renew { lease, span }),
        9 => (0..KEYS, any::<bool>(), any::<bool>(), 0u32..4, proptest::bool::weighted(0.2)).prop_map(
            |(key, body, refuse, max_attempts, hold)| Step::Reserve { key, body, refuse, max_attempts, hold }
        ),
        1 => (0..KEYS).prop_map(Step::Conclude),
        1 => (0..KEYS).prop_map(Step::Retry),
    ]
}

async fn compare(steps: Vec<Step>) {
    let clock = start();
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteStore::options(directory.path().join("model.db")).with_clock(Arc::clone(&clock));
    let sqlite = options.open().await.expect("the store opens");
    let time = OneClock(Arc::clone(&clock));
    compare_with(steps, &clock, &sqlite, &time).await;
    sqlite.close().await.expect("the store closes");
}

fn start() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_unix_seconds(1_700_000_000).expect("in range")))
}

/// The time of the store that is compared.
pub(crate) trait Time: Sync {
    /// How much later the clock in memory is than the times that the store shows. `None`: they are the same.
    fn ahead(&self) -> Option<Duration>;

    /// Lets time pass for the store, and sets the clock in memory.
    fn advance<'a>(&'a self, clock: &'a ManualClock, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

pub(crate) struct OneClock(pub(crate) Arc<ManualClock>);

impl Time for OneClock {
    fn ahead(&self) -> Option<Duration> {
        None
    }

    fn advance<'a>(&'a self, _clock: &'a ManualClock, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.advance(span);
        Box::pin(std::future::ready(()))
    }
}

pub(crate) async fn compare_with(steps: Vec<Step>, clock: &Arc<ManualClock>, store: &dyn InboxStore, time: &dyn Time) {
    let memory = MemoryStore::with_clock(Arc::clone(clock));
    // The same lease of both stores: only their tokens differ.
    let mut leases: Vec<(Lease, Lease)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        if let Step::Advance(span) = step {
            time.advance(clock, units(*span)).await;
        } else {
            time.advance(clock, Duration::ZERO).await;
        }
        take(step, &memory, store, &mut leases, time).await;
        same_receipts(&memory, store, time, step).await;
        // Lists show nothing that receipts do not, but their order: some of them will do.
        if number % 5 == 4 || number + 1 == steps.len() {
            same_lists(&memory, store, time, step).await;
        }
    }
}

/// The spans of steps. What two of them differ by at least is longer than a step takes on the slowest machine: a server's
/// clock goes on meanwhile, and the one in memory does not.
pub(crate) const fn units(count: u64) -> Duration {
    Duration::from_secs(10 * count)
}

/// Two clocks that were set to each other are this near.
pub(crate) const NEAR: Duration = Duration::from_secs(9);

/// The receipt as the one in memory would show it, where its times are near.
fn aligned(mut receipt: Receipt, memory: &Receipt, time: &dyn Time) -> Receipt {
    receipt.first_seen = near(receipt.first_seen, memory.first_seen, time);
    receipt.updated = near(receipt.updated, memory.updated, time);
    if let (Some(until), Some(expected)) = (receipt.lease_until, memory.lease_until) {
        receipt.lease_until = Some(near(until, expected, time));
    }
    if let (Some(due), Some(expected)) = (receipt.due, memory.due) {
        receipt.due = Some(near(due, expected, time));
    }
    for (failure, expected) in receipt.failures.iter_mut().zip(&memory.failures) {
        failure.at = near(failure.at, expected.at, time);
    }
    receipt
}

/// The time that is expected, where the one that is shown is near it.
pub(crate) fn near(shown: Timestamp, expected: Timestamp, time: &dyn Time) -> Timestamp {
    let Some(ahead) = time.ahead() else { return shown };
    let shown = shown.saturating_add(ahead);
    let apart = shown.saturating_since(expected).max(expected.saturating_since(shown));
    if apart < NEAR { expected } else { shown }
}

async fn take(
    step: &Step,
    memory: &MemoryStore,
    store: &dyn InboxStore,
    leases: &mut Vec<(Lease, Lease)>,
    time: &dyn Time,
) {
    /// Recent leases, so that late holders occur; one that nobody handed out where there are too few.
    fn pick(leases: &[(Lease, Lease)], back: usize) -> (Lease, Lease) {
        leases.iter().rev().nth(back).cloned().unwrap_or_else(|| {
            let lease = Lease { key: key(0), token: Token::from_bytes([7; 16]), attempt: 1 };
            (lease.clone(), lease)
        })
    }
    match step {
        Step::Advance(_) => {}
        Step::Accept { key: number, body, refuse, ordered, suspect } => {
            let asked = Accept {
                key: key(*number),
                event_id: None,
                correlation_id: None,
                body: Digest::of(if *body { b"one" } else { b"two" }),
                other_body: if *refuse { OtherBody::Refuse } else { OtherBody::Accept },
                request: request(),
                ordering_key: ordered.then(|| Name::new("order").expect("a name")),
                quarantine: suspect.then(|| "suspect".into()),
            };
            let left = memory.accept(asked.clone()).await.expect("an answer");
            assert_eq!(store.accept(asked).await.expect("an answer"), left, "{step:?}");
        }
        Step::Claim { consumer, limit, max_attempts, hold } => {
            let consumer = if *consumer { key(0).consumer } else { Name::new("nobody").expect("a name") };
            let asked =
                Claim { consumer, limit: *limit, lease: LEASE, max_attempts: *max_attempts, unclear: unclear(*hold) };
            let mut left = memory.claim(asked.clone()).await.expect("an answer");
            let mut right = store.claim(asked).await.expect("an answer");
            assert_eq!(left.len(), right.len(), "{step:?}");
            // What stood behind an event that this very claim buried comes at its place in memory, and last from a store
            // that had looked at the others by then.
            for claimed in [&mut left, &mut right] {
                claimed.sort_by(|one, two| one.lease.key.cmp(&two.lease.key));
            }
            for (mut one, mut two) in left.into_iter().zip(right) {
                leases.push((one.lease.clone(), two.lease.clone()));
                (one.lease.token, two.lease.token) = (Token::from_bytes([0; 16]), Token::from_bytes([0; 16]));
                two.first_seen = near(two.first_seen, one.first_seen, time);
                assert_eq!(two, one, "{step:?}");
            }
        }
        Step::Release(lease) => {
            let (one, two) = pick(leases, *lease);
            let left = memory.release(one).await.expect("an answer");
            assert_eq!(store.release(two).await.expect("an answer"), left, "{step:?}");
        }
        Step::Complete { lease, body } => {
            let (one, two) = pick(leases, *lease);
            let left = memory.complete(one, result(body.as_deref())).await.expect("an answer");
            assert_eq!(store.complete(two, result(body.as_deref())).await.expect("an answer"), left, "{step:?}");
        }
        Step::Fail { lease, dead, answered, kept, retry_in } => {
            let (one, two) = pick(leases, *lease);
            let failure = Failure {
                error: format!("failed at {}", clock_text(memory).await),
                result: answered.then(|| result(Some(b"down"))),
                dead: dead.then(|| "permanent".into()),
                request: kept.then(request),
                retry_in: retry_in.map(units),
            };
            let left = memory.fail(one, failure.clone()).await.expect("an answer");
            assert_eq!(store.fail(two, failure).await.expect("an answer"), left, "{step:?}");
        }
        Step::Forget(number) => {
            let left = memory.forget(key(*number)).await.expect("an answer");
            assert_eq!(store.forget(key(*number)).await.expect("an answer"), left, "{step:?}");
        }
        Step::Purge(limit) => {
            let left = memory.purge(RETENTION, *limit).await.expect("an answer");
            assert_eq!(store.purge(RETENTION, *limit).await.expect("an answer"), left, "{step:?}");
        }
        Step::Renew { lease, span } => {
            let (one, two) = pick(leases, *lease);
            let span = units(*span);
            let left = memory.renew(one, span).await.expect("an answer");
            assert_eq!(store.renew(two, span).await.expect("an answer"), left, "{step:?}");
        }
        Step::Reserve { key: number, body, refuse, max_attempts, hold } => {
            let asked = Reserve {
                key: key(*number),
                event_id: (number.is_multiple_of(2)).then(|| EventId::new(&format!("label_{number}")).expect("an id")),
                correlation_id: None,
                body: Digest::of(if *body { b"one" } else { b"two" }),
                lease: LEASE,
                max_attempts: *max_attempts,
                other_body: if *refuse { OtherBody::Refuse } else { OtherBody::Accept },
                unclear: unclear(*hold),
            };
            let left = memory.reserve(asked.clone()).await.expect("an answer");
            match (left, store.reserve(asked).await.expect("an answer")) {
                (Reserved::Acquired(one), Reserved::Acquired(two)) => {
                    assert_eq!((&one.key, one.attempt), (&two.key, two.attempt));
                    leases.push((one, two));
                }
                (Reserved::Processing(one), Reserved::Processing(two)) => {
                    assert!(one.abs_diff(two) < NEAR, "{one:?} {two:?} {step:?}");
                }
                (left, right) => assert_eq!(right, left, "{step:?}"),
            }
        }
        Step::Conclude(number) => {
            let left = memory.conclude(key(*number)).await.expect("an answer");
            assert_eq!(store.conclude(key(*number)).await.expect("an answer"), left, "{step:?}");
        }
        Step::Retry(number) => {
            let left = memory.retry(key(*number)).await.expect("an answer");
            assert_eq!(store.retry(key(*number)).await.expect("an answer"), left, "{step:?}");
        }
    }
}

const fn unclear(hold: bool) -> Unclear {
    if hold { Unclear::Hold } else { Unclear::RunAgain }
}

async fn same_receipts(memory: &MemoryStore, store: &dyn InboxStore, time: &dyn Time, step: &Step) {
    for number in 0..KEYS {
        let left = memory.find(key(number)).await.expect("an answer");
        let right = store.find(key(number)).await.expect("an answer");
        match (left, right) {
            (Some(left), Some(right)) => assert_eq!(aligned(right, &left, time), left, "after {step:?}"),
            (left, right) => assert_eq!(right, left, "after {step:?}"),
        }
    }
}

async fn same_lists(memory: &MemoryStore, store: &dyn InboxStore, time: &dyn Time, step: &Step) {
    let label = DedupKey::parse("label_2").expect("a key");
    let all = ListFilter::default();
    let filters = [
        all.clone(),
        ListFilter { limit: 2, ..all.clone() },
        ListFilter { state: Some(ReceiptState::Failed), ..all.clone() },
        ListFilter { state: Some(ReceiptState::Processing), limit: 1, ..all.clone() },
        ListFilter { source: Some(key(1).source), ..all.clone() },
        ListFilter { key: Some(label), ..all.clone() },
        ListFilter { key: Some(key(0).key), state: Some(ReceiptState::Succeeded), ..all },
    ];
    for filter in filters {
        let left = memory.list(filter.clone()).await.expect("an answer");
        let right = store.list(filter.clone()).await.expect("an answer");
        assert_eq!(right.len(), left.len(), "{filter:?} after {step:?}");
        let right: Vec<_> = right.into_iter().zip(&left).map(|(right, left)| aligned(right, left, time)).collect();
        assert_eq!(right, left, "{filter:?} after {step:?}");
    }
}

async fn clock_text(memory: &MemoryStore) -> String {
    let newest = memory.list(ListFilter { limit: 1, ..ListFilter::default() }).await.expect("an answer");
    newest.first().map(|receipt| receipt.updated.to_string()).unwrap_or_default()
}

fn key(number: u8) -> ReceiptKey {
    ReceiptKey {
        consumer: Name::new("orders").expect("a name"),
        source: Name::new(if number.is_multiple_of(2) { "shop" } else { "Shop" }).expect("a name"),
        key: DedupKey::from_id(&EventId::new(&format!("evt_{}", number / 2)).expect("an id")),
    }
}

fn result(body: Option<&[u8]>) -> StoredResult {
    let mut headers = HeaderMap::new();
    headers.append("x-odd", HeaderValue::from_bytes(b"\xff").expect("a value"));
    let body = body.map_or(ResultBody::Omitted, |body| ResultBody::Kept(body.to_vec().into()));
    StoredResult { status: StatusCode::ACCEPTED, headers, body }
}

fn request() -> KeptRequest {
    KeptRequest {
        method: Method::PUT,
        target: "/".into(),
        headers: HeaderMap::new(),
        body: b"\0".as_slice().into(),
        proof: "{}".into(),
    }
}
