//! Lists and the overview over stores that have grown: of `COUNTERSIGN_ROWS` events and as many messages (60,000 where it is
//! not set). With a million or more each answer has to come in 200 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use countersign::Name;
use countersign::admin::Admin;
use countersign::store::{Endpoint, InboxStore, OutboxStore, PostgresStore, SqliteStore};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::servers::PostgresDatabase;
use crate::support::{client, send, serve, until};

/// How long an answer may take where there are [`MANY`] rows.
const LIMIT: Duration = Duration::from_millis(200);
const MANY: u64 = 1_000_000;
/// So many rows one page looks at.
const LOOKED_AT: i64 = 10_000;
const ENDPOINTS: u64 = 50;
/// The oldest ones have a source, an endpoint and a type that no other has.
const RARE: u64 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_the_overview_stay_fast_in_a_large_sqlite_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    endpoints(&store).await;
    let mut beside = SqliteConnectOptions::new().filename(&path).connect().await.expect("a connection");
    for sql in fill(&SQLITE, rows()) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut beside).await.expect("rows");
    }
    beside.close().await.expect("the connection closes");
    let slowest = Pages::of(Arc::new(store.clone()), Arc::new(store)).await.visit_all().await;
    println!("SQLite, {} rows: {slowest:?} at most", rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_the_overview_read_no_table_of_a_large_postgresql_store_from_end_to_end() {
    let Some(database) = PostgresDatabase::create().await else { return };
    endpoints(&database.open().await).await;
    for sql in fill(&POSTGRES, rows()) {
        database.execute(&sql).await;
    }
    database.execute("VACUUM ANALYZE countersign_inbox, countersign_outbox").await;
    let before = Read::of(&database).await;
    // A connection says what it has read when it ends: those of the store end with it.
    let store = PostgresStore::connect(&database.url).await.expect("the store opens");
    let pages = Pages::of(Arc::new(store.clone()), Arc::new(store.clone())).await;
    let slowest = pages.visit_all().await;
    println!("PostgreSQL, {} rows: {slowest:?} at most", rows());
    let (visited, by_name) = (pages.visited(), pages.by_name());
    drop((pages, store));
    until("it is told what was read", async || Read::of(&database).await.lists > before.lists).await;
    let read = Read::of(&database).await;
    assert_eq!(read.scans - before.scans, 0, "no table is read from end to end");
    let entries = read.entries - before.entries;
    // Neither is an index from end to end, in which what is asked for does not stand first.
    assert!(read.by_name - before.by_name <= by_name, "{} for {by_name}", read.by_name - before.by_name);
    // The edge of a page, and the page.
    assert!(entries <= visited * 3 * LOOKED_AT, "{entries} entries of indexes for {visited} pages");
}

/// What PostgreSQL says was read of the two tables that grow.
#[derive(Clone, Copy)]
struct Read {
    scans: i64,
    entries: i64,
    lists: i64,
    by_name: i64,
}

impl Read {
    async fn of(database: &PostgresDatabase) -> Self {
        const TABLES: &str = "relname IN ('countersign_inbox', 'countersign_outbox')";
        const KEYS: &str = "indexrelname IN ('countersign_inbox_key', 'countersign_outbox_key')";
        let sum = async |what: &str, from: &str, of: &str| {
            database.number(&format!("SELECT coalesce(sum({what}), 0)::bigint FROM {from} WHERE {of}")).await
        };
        Self {
            scans: sum("seq_scan", "pg_stat_user_tables", TABLES).await,
            entries: sum("idx_tup_read", "pg_stat_user_indexes", TABLES).await,
            lists: sum("idx_scan", "pg_stat_user_indexes", TABLES).await,
            by_name: sum("idx_scan", "pg_stat_user_indexes", KEYS).await,
        }
    }
}

/// The pages of an operator, over real HTTP.
struct Pages {
    base: String,
    visited: AtomicI64,
    /// Those among them that name a key or an id.
    by_name: AtomicI64,
}

impl Pages {
    async fn of(inbox: Arc<dyn InboxStore>, outbox: Arc<dyn OutboxStore>) -> Self {
        let admin = Admin::on_loopback().expect("random bytes").with_inbox(inbox).with_outbox(outbox);
        Self { base: format!("http://{}", serve(admin.router()).await), visited: 0.into(), by_name: 0.into() }
    }

    /// Every list, by each filter: its first page, one deep in it, what only the oldest fit and what nothing fits; and the
    /// overview. Returns the time of the slowest.
    async fn visit_all(&self) -> Duration {
        let mut slowest = self.visit("overview").await.1;
        let inbox =
            ["", "source=s1", "source=rare", "source=none", "consumer=c1", "consumer=none", "key=evt_7", "key=none"];
        let outbox =
            ["", "endpoint=e1", "endpoint=rare", "endpoint=none", "type=t1", "type=none", "id=msg_7", "id=none"];
        let states = ["", "succeeded", "failed", "dead_letter"];
        let (of_inbox, of_outbox) = (["received", "processing"], ["pending", "delivering", "cancelled"]);
        for (list, filters, own) in [("inbox", inbox, &of_inbox[..]), ("outbox", outbox, &of_outbox)] {
            for state in states.iter().chain(own) {
                for filter in filters {
                    let target = format!("api/{list}?state={state}&{filter}");
                    let (first, took) = self.visit(&target).await;
                    slowest = slowest.max(took);
                    if let Some(next) = first["next"].as_str() {
                        slowest = slowest.max(self.visit(&format!("{target}&after={next}")).await.1);
                    }
                    // In the midst of all, where nobody has gone page by page.
                    let deep = now_micros() - micros(rows() / 2);
                    slowest = slowest.max(self.visit(&format!("{target}&after={deep}.0")).await.1);
                }
            }
            slowest = slowest.max(self.visit(list).await.1);
        }
        self.finds_the_oldest("api/inbox?source=rare", "events").await;
        self.finds_the_oldest("api/outbox?endpoint=rare", "messages").await;
        slowest
    }

    /// Page by page to the end: all that fit are found, though the first pages hold none of them.
    async fn finds_the_oldest(&self, target: &str, what: &str) {
        let (mut page, mut found) = (target.to_owned(), 0);
        loop {
            let (answer, _) = self.visit(&page).await;
            found += answer[what].as_array().expect("a list").len();
            let Some(next) = answer["next"].as_str() else { break };
            page = format!("{target}&after={next}");
        }
        assert_eq!(u64::try_from(found).expect("a few"), RARE, "{target}");
    }

    async fn visit(&self, target: &str) -> (Value, Duration) {
        let request = Request::get(format!("{}/{target}", self.base)).body(Full::default()).expect("a request");
        let http = client(false);
        let began = Instant::now();
        let answer = send(&http, request).await;
        let took = began.elapsed();
        self.visited.fetch_add(1, Ordering::Relaxed);
        if target.contains("&key=") || target.contains("&id=") {
            self.by_name.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(answer.status, StatusCode::OK, "{target}: {}", answer.text());
        if took > LIMIT / 2 {
            println!("{target}: {took:?}");
        }
        assert!(rows() < MANY || took < LIMIT, "{target}: {took:?}");
        (serde_json::from_slice(&answer.body).unwrap_or_default(), took)
    }

    fn visited(&self) -> i64 {
        self.visited.load(Ordering::Relaxed)
    }

    fn by_name(&self) -> i64 {
        self.by_name.load(Ordering::Relaxed)
    }
}

async fn endpoints(store: &dyn OutboxStore) {
    for name in (0..ENDPOINTS).map(|number| format!("e{number}")).chain(["rare".to_owned()]) {
        let name = Name::new(&name).expect("a name");
        store.put_endpoint(Endpoint::new(name, "https://example.com")).await.expect("the store answers");
    }
}

/// How a database writes what the others write differently.
struct Dialect {
    /// The numbers from 1 on, as `row`, with `n`.
    numbers: fn(u64) -> String,
    token: &'static str,
    digest: &'static str,
    no_headers: &'static str,
    body: &'static str,
    /// The column that this database has beside the others, and its value.
    last_token: (&'static str, &'static str),
}

const SQLITE: Dialect = Dialect {
    numbers: |rows| {
        format!(
            "(WITH RECURSIVE row (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM row WHERE n < {rows}) SELECT n FROM row)"
        )
    },
    token: "randomblob(16)",
    digest: "randomblob(32)",
    no_headers: "x'01'",
    body: "zeroblob(100)",
    last_token: ("", ""),
};

const POSTGRES: Dialect = Dialect {
    numbers: |rows| format!("(SELECT n FROM generate_series(1::bigint, {rows}) AS n)"),
    token: "decode(md5(n::text), 'hex')",
    digest: "decode(md5(n::text) || md5(n::text), 'hex')",
    no_headers: r"'\x01'::bytea",
    body: "convert_to(repeat('x', 100), 'UTF8')",
    last_token: (", last_token", ", decode(md5(n::text), 'hex')"),
};

/// Fills both walks: what has ended well, what has not, what waits and what is being done. Fifty rows share a commit.
fn fill(dialect: &Dialect, rows: u64) -> [String; 2] {
    let Dialect { numbers, token, digest, no_headers, body, last_token: (column, value) } = dialect;
    let numbers = numbers(rows);
    let at = format!("{} - ({rows} - n / 50 * 50) * {STEP}", now_micros());
    let inbox = format!(
        "INSERT INTO countersign_inbox (consumer, source, key, event_id, body_digest, state, attempts, token, lease_until,
             due, first_seen, updated, reason, result_status, result_headers, result_body, request_method, request_target,
             request_headers, request_body, request_proof)
         SELECT 'c' || n % 3, CASE WHEN n <= {RARE} THEN 'rare' ELSE 's' || n % 20 END, 'evt_' || n, 'evt_' || n, {digest},
             state, 1, CASE state WHEN 'processing' THEN {token} END, CASE state WHEN 'processing' THEN at + 600000000 END,
             CASE state WHEN 'received' THEN at END, at, at, CASE state WHEN 'dead_letter' THEN 'no' END,
             CASE state WHEN 'succeeded' THEN 200 END, CASE state WHEN 'succeeded' THEN {no_headers} END,
             CASE state WHEN 'succeeded' THEN {body} END, CASE state WHEN 'received' THEN 'POST' END,
             CASE state WHEN 'received' THEN '/' END, CASE state WHEN 'received' THEN {no_headers} END,
             CASE state WHEN 'received' THEN {body} END, CASE state WHEN 'received' THEN '{{}}' END
         FROM (SELECT n, {at} AS at, CASE WHEN n % 100 = 0 THEN 'dead_letter' WHEN n % 100 = 1 THEN 'failed'
             WHEN n % 100 = 2 THEN 'received' WHEN n % 1000 = 3 THEN 'processing' ELSE 'succeeded' END AS state
             FROM {numbers} AS row) AS made"
    );
    let outbox = format!(
        "INSERT INTO countersign_outbox (endpoint, message_id, type, content_type, payload, state, attempts, noted, token,
             due, claim_at, created, since, updated, last_status, reason{column})
         SELECT CASE WHEN n <= {RARE} THEN 'rare' ELSE 'e' || n % {ENDPOINTS} END, 'msg_' || n, 't' || n % 5,
             'application/json', {body}, state, 1, 1, CASE state WHEN 'delivering' THEN {token} END,
             CASE WHEN state IN ('pending', 'delivering') THEN at END,
             CASE WHEN state IN ('pending', 'delivering') THEN at END, at, at, at,
             CASE state WHEN 'succeeded' THEN 204 END,
             CASE WHEN state IN ('failed', 'dead_letter', 'cancelled') THEN 'no' END{value}
         FROM (SELECT n, {at} AS at, CASE WHEN n % 100 = 0 THEN 'dead_letter' WHEN n % 100 = 1 THEN 'failed'
             WHEN n % 100 = 2 THEN 'cancelled' WHEN n % 100 < 6 THEN 'pending' WHEN n % 1000 = 7 THEN 'delivering'
             ELSE 'succeeded' END AS state
             FROM {numbers} AS row) AS made"
    );
    [inbox, outbox]
}

/// Between two rows, in microseconds.
const STEP: u64 = 1_000;

fn micros(rows: u64) -> i64 {
    i64::try_from(rows * STEP).expect("a few years")
}

fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_micros()).expect("a moment")
}

fn rows() -> u64 {
    std::env::var("COUNTERSIGN_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(60_000)
}
