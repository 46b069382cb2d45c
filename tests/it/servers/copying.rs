//! `copy` between stores of different kinds.

use countersign::store::SqliteStore;
use sqlx::{Connection as _, SqliteConnection};

use super::{mysql, postgres};
use crate::cli::countersign;
use crate::copying::{copied, exports, fill, goes_on};
use crate::dispatch::Receiver;

/// A file that is filled.
struct File {
    folder: tempfile::TempDir,
    receiver: Receiver,
}

impl File {
    async fn new() -> Self {
        let receiver = Receiver::with_statuses(&[200]).await;
        let new = Self { folder: tempfile::tempdir().expect("a folder"), receiver };
        let store = new.open("old").await;
        fill(&store, &new.receiver.url()).await;
        store.close().await.expect("it closes");
        new
    }

    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.folder.path().join(name).display())
    }

    async fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::open(self.folder.path().join(name)).await.expect("a store")
    }

    async fn execute(&self, statements: &'static str) {
        let mut connection = SqliteConnection::connect(&self.url("old")).await.expect("a connection");
        sqlx::raw_sql(statements).execute(&mut connection).await.expect("it is done");
        connection.close().await.expect("it closes");
    }
}

/// From a file to both servers and back: every row of the last store is the first one's, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_trip_over_all_kinds_of_stores_loses_nothing() {
    let Some(postgres) = postgres::Database::create().await else { return };
    let Some(mysql) = mysql::Database::create().await else { return };
    let file = File::new().await;
    let (old, new) = (file.url("old"), file.url("new"));
    let before = exports(&old);
    for (from, to) in [(&old, &postgres.url), (&postgres.url, &mysql.url), (&mysql.url, &new)] {
        copied(from, to);
        assert_eq!(exports(to), before, "the target is a {}", to.split(':').next().unwrap_or_default());
    }
    // What exports do not show, they compare too: tokens, due times, settings.
    let answer = countersign(["copy", "--dry-run", "--json", "--from", &old, "--to", &new]).run().exits(0).json();
    for table in ["endpoint", "inbox", "inbox_failure", "outbox", "attempt"] {
        assert_eq!(answer["tables"][table]["equal"], answer["tables"][table]["rows"], "{answer}");
    }
    for (from, to) in [(&old, &mysql.url), (&mysql.url, &postgres.url)] {
        assert_eq!(copied(from, to)["added"], 0);
    }
    goes_on(&file.open("new").await, &new, &file.receiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_copied_to_postgres_goes_on_there_behind_its_last_numbers() {
    let Some(database) = postgres::Database::create().await else { return };
    let file = File::new().await;
    copied(&file.url("old"), &database.url);
    goes_on(&database.open().await, &database.url, &file.receiver).await;
    assert!(database.number("SELECT max(id) FROM countersign_outbox").await > 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_copied_to_mysql_goes_on_there_behind_its_last_numbers() {
    let Some(database) = mysql::Database::create().await else { return };
    let file = File::new().await;
    copied(&file.url("old"), &database.url);
    goes_on(&database.open().await, &database.url, &file.receiver).await;
    assert!(database.number("SELECT max(id) FROM countersign_outbox").await > 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_through_a_pooler_that_hands_out_connections_for_one_transaction() {
    let Some(database) = postgres::Database::create().await else { return };
    let Some(pooled) = database.through_pgbouncer() else { return };
    let file = File::new().await;
    let pooled = format!("{pooled}?statement-cache-capacity=0");
    copied(&file.url("old"), &pooled);
    copied(&pooled, &file.url("new"));
    assert_eq!(exports(&file.url("old")), exports(&file.url("new")));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_the_target_cannot_hold_is_named_before_anything_is_written() {
    let Some(postgres) = postgres::Database::create().await else { return };
    let Some(mysql) = mysql::Database::create().await else { return };
    let file = File::new().await;
    file.execute(
        "UPDATE countersign_inbox SET error = 'a' || char(0) WHERE id = 2;
         UPDATE countersign_attempt SET kind = CAST(x'ff' AS TEXT) WHERE message = 1;
         UPDATE countersign_outbox SET content_type = hex(zeroblob(200)) WHERE id = 3",
    )
    .await;
    let copy = |to: &str| countersign(["copy", "--from", &file.url("old"), "--to", to]).run().exits(1);
    copy(&postgres.url)
        .says("cannot hold 2 rows")
        .says("countersign_inbox, id 2: `error` holds a NUL")
        .says("message 1, seq 1: `kind` is not UTF-8");
    copy(&mysql.url)
        .says("cannot hold 2 rows")
        .says("countersign_outbox, id 3: `content_type` has more than 255 bytes")
        .says("message 1, seq 1: `kind` is not UTF-8");
    for (table, left) in [
        ("postgres", postgres.number("SELECT count(*) FROM countersign_endpoint").await),
        ("mysql", mysql.number("SELECT count(*) FROM countersign_endpoint").await),
    ] {
        assert_eq!(left, 0, "{table}");
    }
    file.execute(
        "UPDATE countersign_inbox SET error = 'a' WHERE id = 2; UPDATE countersign_attempt SET kind = NULL;
         UPDATE countersign_outbox SET content_type = 'text/plain' WHERE id = 3",
    )
    .await;
    copied(&file.url("old"), &postgres.url);
    copied(&file.url("old"), &mysql.url);
}

/// A lease on a server ends by the server's clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_use_is_refused_as_a_source() {
    for url in [
        postgres::Database::create().await.map(|database| database.url.clone()),
        mysql::Database::create().await.map(|database| database.url.clone()),
    ] {
        let Some(url) = url else { continue };
        let file = File::new().await;
        copied(&file.url("old"), &url);
        let store: Box<dyn countersign::store::InboxStore> = if url.starts_with("mysql") {
            Box::new(countersign::store::MySqlStore::connect(&url).await.expect("a store"))
        } else {
            Box::new(countersign::store::PostgresStore::connect(&url).await.expect("a store"))
        };
        crate::copying::acquire(&*store, "running").await;
        let target = file.url("new");
        countersign(["copy", "--from", &url, "--to", &target]).run().exits(1).says("1 events and 0 messages");
    }
}
