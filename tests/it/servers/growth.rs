//! Claims on a table that has grown: of `COUNTERSIGN_ROWS` rows (60,000 where it is not set) one in six is pending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::store::{
    AttemptReport, ClaimMessages, Claims, Endpoint, Fate, MessageState, OutboxStore, Settled, Settlement,
};
use futures_util::future::join_all;

use super::postgres;
use crate::dispatch::{Receiver, Running, Sender, named};

/// Few, so that more than a thousand are taken of each: from there on a claim begins where the one before it did.
const ENDPOINTS: usize = 2;
/// How long a claim of 100 may take: 10 ms where this was built to be measured (`--release`). Else the machine does other
/// things beside, and most of the time is this side's; what grows with the table shows all the same.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 250 } else { 10 });

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_hundred_takes_as_long_in_a_large_table_and_behind_what_was_delivered() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    for number in 0..ENDPOINTS {
        let endpoint = Endpoint::new(named(&format!("e{number}")), "https://example.com");
        store.put_endpoint(endpoint).await.expect("the store answers");
    }
    let rows = rows();
    let pending = rows / 6;
    // What has ended leaves its entries in the index: nobody sweeps them up here.
    database.execute("ALTER TABLE countersign_outbox SET (autovacuum_enabled = false)").await;
    database
        .execute(&format!(
            "INSERT INTO countersign_outbox (endpoint, message_id, type, content_type, payload, state, attempts, noted,
                 last_token, created, since, updated, last_status)
             SELECT 'e' || n % {ENDPOINTS}, 'done_' || n, 'order.paid', 'application/json', convert_to(repeat('x', 100),
                 'UTF8'), 'succeeded', 1, 1, decode(md5(n::text), 'hex'), n, n, n, 204
             FROM generate_series(1, {}) AS n",
            rows - pending
        ))
        .await;
    database.execute(&waiting(&format!("'e' || n % {ENDPOINTS}"), pending)).await;
    database.execute("VACUUM ANALYZE countersign_outbox").await;

    let (fresh, _) = claims(&store, 20).await;
    println!("{rows} rows, {pending} of them pending: a claim of 100 takes {fresh:?}");
    assert!(fresh < LIMIT, "{fresh:?}");
    let (behind, delivered) = claims(&store, usize::try_from(pending / 200).expect("a number").min(500)).await;
    assert!(delivered > ENDPOINTS * 1_000, "{delivered}: too few for what is to be shown");
    println!("behind {delivered} that were delivered: {behind:?}");
    assert!(behind < LIMIT, "{behind:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c088_a_healthy_endpoint_is_reached_within_a_second_behind_a_hundred_thousand_for_a_dead_one() {
    let Some(database) = postgres::Database::create().await else { return };
    let sender = Sender::new(Arc::new(database.open().await));
    let receiver = Receiver::with_statuses(&[200]).await;
    // Nobody listens there.
    sender.endpoint("dead", "http://127.0.0.1:9/").await;
    sender.endpoint("healthy", receiver.url()).await;
    database.execute(&waiting("'dead'", (rows() / 6).max(100_000))).await;
    let running = Running::start(sender.dispatcher());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut enqueued = Vec::new();
    for number in 0..20 {
        sender.enqueue("healthy", &format!("msg_{number}"), "{}").await;
        enqueued.push((format!("msg_{number}"), Instant::now()));
    }
    for (id, _) in &enqueued {
        sender.until_state("healthy", id, MessageState::Succeeded).await;
    }
    let seen = receiver.seen();
    let waited = enqueued.iter().filter_map(|(id, at)| {
        let arrived = seen.iter().find(|request| request.header("webhook-id") == id)?.at;
        Some(arrived.saturating_duration_since(*at))
    });
    let longest = waited.max().expect("they arrived");
    println!("20 messages of a healthy endpoint: {longest:?} at most");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    running.stop().await;
}

/// Messages that are due, the one with the lowest number for the longest time.
fn waiting(endpoint: &str, count: u64) -> String {
    format!(
        "INSERT INTO countersign_outbox (endpoint, message_id, type, content_type, payload, state, due, claim_at,
             last_token, created, since, updated)
         SELECT {endpoint}, 'wait_' || n, 'order.paid', 'application/json', convert_to(repeat('x', 100), 'UTF8'),
             'pending', at, at, decode(md5(n::text), 'hex'), at, at, at
         FROM (SELECT n, (extract(epoch FROM now()) * 1000000)::bigint - 60000000 + n AS at
             FROM generate_series(1, {count}) AS n) AS row"
    )
}

/// Claims and settles so many times. Returns what a claim takes: what the quicker half of the last twenty took at most, since
/// the machine has more to do; and how many were delivered.
async fn claims(store: &dyn OutboxStore, times: usize) -> (Duration, usize) {
    let (mut took, mut delivered) = (Vec::new(), 0);
    for _ in 0..times {
        let began = Instant::now();
        let claim = ClaimMessages::new(100, Duration::from_secs(600));
        let Claims { messages, .. } = store.claim_messages(claim).await.expect("the store answers");
        took.push(began.elapsed());
        assert_eq!(messages.len(), 100);
        let delivery = || Settlement::new(Fate::Delivered, AttemptReport::default());
        let settled = join_all(messages.into_iter().map(|claimed| store.settle(claimed.lease, delivery()))).await;
        delivered += settled.iter().filter(|settled| matches!(settled, Ok(Settled::Done))).count();
    }
    assert_eq!(delivered, 100 * times);
    let mut last = took.split_off(took.len().saturating_sub(20));
    last.sort_unstable();
    (last[last.len() / 2], delivered)
}

pub(super) fn rows() -> u64 {
    std::env::var("COUNTERSIGN_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(60_000)
}
