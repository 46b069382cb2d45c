//! Lists of tables that have grown: of `COUNTERSIGN_ROWS` receipts and as many messages (60,000 where it is not set).

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::store::{InboxStore, ListFilter, MessageFilter, MessageState, OutboxStore, ReceiptState, SqliteStore};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use super::growth::rows;
use super::postgres;
use crate::dispatch::named;

/// How long a list may take. It grows with the page and not with the table.
const LIMIT: Duration = Duration::from_millis(200);
/// How long one may take whose filter fits hardly any of a million rows: it goes through the index.
const THOROUGH: Duration = Duration::from_millis(400);
/// The last page that the administration shows, and one row behind it.
const DEEPEST: u32 = 10_051;

#[tokio::test(flavor = "multi_thread")]
async fn lists_take_as_long_in_a_large_table_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lists.db");
    let store = Arc::new(SqliteStore::open(&path).await.expect("the store opens"));
    let mut beside = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("a connection");
    let numbers = format!(
        "(WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {}) SELECT n FROM counted)",
        rows()
    );
    for statement in fill(&numbers, "zeroblob(32)", "x'01'", "zeroblob(1024)") {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut beside).await.expect("it is filled");
    }
    beside.close().await.expect("the connection closes");
    held_to("SQLite", &*store, &*store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_take_as_long_in_a_large_table_on_postgres() {
    let Some(database) = postgres::Database::create().await else { return };
    let store = database.open().await;
    let numbers = format!("(SELECT generate_series(1, {}) AS n)", rows());
    for statement in fill(&numbers, "sha256('x')", "'\\x01'::bytea", "convert_to(repeat('x', 1024), 'UTF8')") {
        database.execute(&statement).await;
    }
    database.execute("VACUUM ANALYZE").await;
    held_to("PostgreSQL", &store, &store).await;
}

/// Most have succeeded, one in ten thousand belongs to a source, an endpoint and a type that are rare.
fn fill(numbers: &str, digest: &str, headers: &str, payload: &str) -> [String; 3] {
    let state = "CASE WHEN n % 1000 = 1 THEN 'dead_letter' WHEN n % 500 = 2 THEN 'failed' ELSE 'succeeded' END";
    let reason = |states: &str| format!("CASE WHEN {states} THEN 'it was given up' END");
    let rare = |usual: &str| format!("CASE WHEN n % 10000 = 7 THEN 'rare' ELSE {usual} END");
    let usual = rare("'usual'");
    [
        format!(
            "INSERT INTO countersign_inbox (consumer, source, key, body_digest, state, attempts, first_seen, updated,
                 reason, result_status, result_headers, result_body)
             SELECT 'shop', {usual}, 'evt_' || n, {digest}, {state}, 1, n, n, {}, 200, {headers}, {headers}
             FROM {numbers} AS counted",
            reason("n % 1000 = 1")
        ),
        format!(
            "INSERT INTO countersign_endpoint (name, url, scheme, secrets, types, headers, settings, created, updated)
             VALUES ('usual', 'https://shop.example/', 'standard', '[]', '[]', {headers}, '{{}}', 1, 1)"
        ),
        format!(
            "INSERT INTO countersign_outbox (endpoint, message_id, type, content_type, payload, state, attempts, created,
                 since, updated, reason)
             SELECT {usual}, 'msg_' || n, {usual}, 'application/json', {payload}, {state}, 1, n, n, n, {}
             FROM {numbers} AS counted",
            reason("n % 1000 = 1 OR n % 500 = 2")
        ),
    ]
}

async fn held_to(database: &str, inbox: &dyn InboxStore, outbox: &dyn OutboxStore) {
    let rows = rows();
    let thorough = LIMIT.max(THOROUGH.mul_f64(rows as f64 / 1e6));
    let source = |name: &str| ListFilter { source: Some(named(name)), ..ListFilter::default() };
    let state = Some(ReceiptState::DeadLetter);
    for (what, limit, least, filter) in [
        ("all", LIMIT, 100, ListFilter::default()),
        ("the deepest page", LIMIT, rows.min(10_051), ListFilter { limit: DEEPEST, ..ListFilter::default() }),
        ("dead letters", LIMIT, rows / 1_000, ListFilter { state, ..ListFilter::default() }),
        ("a usual source", LIMIT, 100, source("usual")),
        ("a rare source", thorough, rows / 10_000, source("rare")),
        ("a source that nothing came from", thorough, 0, source("nobody")),
    ] {
        let began = Instant::now();
        let found = inbox.list(filter.clone()).await.expect("the store answers").len();
        judge(&format!("{database}: receipts, {what}"), began.elapsed(), limit, found, least.min(filter.limit.into()));
    }
    let filter = |set: &dyn Fn(&mut MessageFilter)| {
        let mut filter = MessageFilter::default();
        set(&mut filter);
        filter
    };
    let endpoint = |name: &str| filter(&|filter| filter.endpoint = Some(named(name)));
    let of_type = |name: &str| filter(&|filter| filter.event_type = Some(named(name)));
    let state = Some(MessageState::DeadLetter);
    for (what, limit, least, filter) in [
        ("all", LIMIT, 100, MessageFilter::default()),
        ("the deepest page", LIMIT, rows.min(10_051), filter(&|filter| filter.limit = DEEPEST)),
        ("dead letters", LIMIT, rows / 1_000, filter(&|filter| filter.state = state)),
        ("a usual endpoint", LIMIT, 100, endpoint("usual")),
        ("a rare endpoint", thorough, rows / 10_000, endpoint("rare")),
        ("a rare type", thorough, rows / 10_000, of_type("rare")),
        ("a type that nothing is of", thorough, 0, of_type("nothing")),
    ] {
        let began = Instant::now();
        let found = outbox.list_messages(filter.clone()).await.expect("the store answers").len();
        judge(&format!("{database}: messages, {what}"), began.elapsed(), limit, found, least.min(filter.limit.into()));
    }
    let began = Instant::now();
    outbox.next_due().await.expect("the store answers");
    outbox.oldest_due_messages().await.expect("the store answers");
    judge(&format!("{database}: what is due"), began.elapsed(), LIMIT, 0, 0);
}

fn judge(what: &str, took: Duration, limit: Duration, found: usize, expected: u64) {
    println!("{what}: {found} in {took:.1?}");
    assert!(u64::try_from(found).is_ok_and(|found| found >= expected), "{what}: {found} of {expected}");
    // Built for debugging, most of the time is this side's, and the machine does other things beside.
    let limit = if cfg!(debug_assertions) { limit * 5 } else { limit };
    assert!(took < limit, "{what}: {took:?}, and {limit:?} are allowed");
}
