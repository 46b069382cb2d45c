//! `copy` from a file into a file: what is carried, what is refused, and what an interruption leaves.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use countersign::store::{InboxStore as _, OutboxStore as _, Settled, SqliteStore};
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::{Program, countersign};
use crate::copying::{FILLED, acquire, claim, copied, exports, fill, goes_on, name, result};
use crate::dispatch::Receiver;

/// Two files, the first of which is filled.
struct Move {
    folder: tempfile::TempDir,
    receiver: Receiver,
}

impl Move {
    async fn new() -> Self {
        let new =
            Self { folder: tempfile::tempdir().expect("a folder"), receiver: Receiver::with_statuses(&[200]).await };
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

    fn copy(&self, args: &[&str]) -> Program {
        let (from, to) = (self.url("old"), self.url("new"));
        countersign(["copy", "--from", &from, "--to", &to]).args(args)
    }

    async fn execute(&self, name: &str, statements: &str) {
        let mut connection = SqliteConnection::connect(&self.url(name)).await.expect("a connection");
        let statements = sqlx::AssertSqlSafe(statements.to_owned());
        sqlx::raw_sql(statements).execute(&mut connection).await.expect("it is done");
        connection.close().await.expect("it closes");
    }

    async fn number(&self, name: &str, query: &'static str) -> i64 {
        let mut connection = SqliteConnection::connect(&self.url(name)).await.expect("a connection");
        sqlx::raw_sql(query).fetch_one(&mut connection).await.expect("a row").try_get(0).expect("a number")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_carried_and_the_target_goes_on_where_the_source_stopped() {
    let shop = Move::new().await;
    let answer = copied(&shop.url("old"), &shop.url("new"));
    assert_eq!(answer["added"], FILLED.iter().map(|(_, rows)| rows).sum::<u64>());
    assert_eq!(exports(&shop.url("old")), exports(&shop.url("new")));
    let store = shop.open("new").await;
    goes_on(&store, &shop.url("new"), &shop.receiver).await;
    assert_eq!(shop.number("new", "SELECT max(id) FROM countersign_inbox").await, 7, "behind the copied ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_made_again_adds_nothing_and_one_for_people_says_so() {
    let shop = Move::new().await;
    copied(&shop.url("old"), &shop.url("new"));
    assert_eq!(copied(&shop.url("old"), &shop.url("new"))["added"], 0);
    let text = shop.copy(&[]).run().exits(0).text();
    assert!(text.contains("0 rows were added, 22 were there") && text.contains("3 pending"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_copied_and_makes_nothing() {
    let shop = Move::new().await;
    let answer = shop.copy(&["--dry-run", "--json"]).run().exits(0).json();
    for (table, rows) in FILLED {
        assert_eq!(answer["tables"][table]["missing"], rows, "{table}");
    }
    assert!(answer["target_not_looked_at"].as_str().expect("a reason").contains("no such file"), "{answer}");
    assert!(!shop.folder.path().join("new").exists());
    copied(&shop.url("old"), &shop.url("new"));
    let answer = shop.copy(&["--dry-run", "--json"]).run().exits(0).json();
    assert_eq!((&answer["tables"]["outbox"]["missing"], &answer["tables"]["outbox"]["equal"]), (&0.into(), &7.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_holds_other_rows_is_refused_and_nothing_is_written() {
    let shop = Move::new().await;
    let other = shop.open("new").await;
    for id in ["one", "two"] {
        let lease = acquire(&other, id).await;
        assert_eq!(other.complete(lease, result()).await.expect("it is done"), Settled::Done);
    }
    other.close().await.expect("it closes");
    let ended =
        shop.copy(&[]).run().exits(1).says("nothing was written").says("countersign_inbox, id 1: only the target");
    assert_eq!(ended.text(), "");
    assert_eq!(shop.number("new", "SELECT count(*) FROM countersign_inbox").await, 2);
    assert_eq!(shop.number("new", "SELECT count(*) FROM countersign_endpoint").await, 0);
    let answer = shop.copy(&["--dry-run", "--json"]).run().exits(1).json();
    assert_eq!(
        (&answer["tables"]["inbox"]["foreign"], &answer["tables"]["inbox"]["differing"]),
        (&1.into(), &1.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_differs_in_one_byte_is_named_with_its_column_and_stays() {
    for (change, said) in [
        (
            "UPDATE countersign_outbox SET payload = x'009f92960b' WHERE id = 1",
            "countersign_outbox, id 1: it differs in `payload`",
        ),
        ("UPDATE countersign_inbox SET reason = reason || ' ' WHERE state = 'dead_letter'", "it differs in `reason`"),
        ("UPDATE countersign_endpoint SET settings = '{ }' WHERE id = 3", "it differs in `settings`"),
        ("UPDATE countersign_attempt SET took = took + 1 WHERE message = 2", "message 2, seq 1: it differs in `took`"),
        ("UPDATE countersign_inbox_failure SET error = NULLIF('x', '') WHERE seq = 2", "it differs in `error`"),
    ] {
        let shop = Move::new().await;
        copied(&shop.url("old"), &shop.url("new"));
        shop.execute("new", change).await;
        let before = exports(&shop.url("new"));
        shop.copy(&[]).run().exits(1).says(said);
        assert_eq!(exports(&shop.url("new")), before, "{change}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_in_use_is_refused_until_its_leases_have_ended_and_then_its_events_run_at_the_target() {
    let shop = Move::new().await;
    let old = shop.open("old").await;
    acquire(&old, "running").await;
    claim(&old).await;
    old.close().await.expect("it closes");
    shop.copy(&[]).run().exits(1).says("1 events and 1 messages are being run");
    assert_eq!(shop.number("new", "SELECT count(*) FROM countersign_inbox").await, 0);
    shop.copy(&["--dry-run"]).run().exits(1).says("2 leases are held");
    // As if a minute had passed since whoever held them was killed.
    let past = "UPDATE countersign_inbox SET lease_until = lease_until - 60000000 WHERE state = 'processing';
        UPDATE countersign_outbox SET due = due - 60000000, claim_at = claim_at - 60000000 WHERE state = 'delivering'";
    shop.execute("old", past).await;
    shop.copy(&[]).run().exits(0);
    let new = shop.open("new").await;
    assert_eq!(acquire(&new, "running").await.attempt, 2, "as the source would have counted it");
    let claimed = claim(&new).await;
    assert_eq!((claimed.lease.key.id.as_str(), claimed.lease.attempt), ("first", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wrote_by_hand_is_carried_byte_for_byte() {
    let shop = Move::new().await;
    let odd = "UPDATE countersign_endpoint SET scheme = 'no such scheme', settings = 'not JSON' WHERE name = 'desk';
        UPDATE countersign_inbox SET error = CAST(x'61ff0062' AS TEXT) WHERE id = 2;
        UPDATE countersign_outbox SET content_type = CAST(x'00ff' AS TEXT), last_error = char(0) WHERE id = 1;
        UPDATE countersign_attempt SET kind = CAST(x'fe' AS TEXT) WHERE message = 1";
    shop.execute("old", odd).await;
    copied(&shop.url("old"), &shop.url("new"));
    for query in [
        "SELECT hex(error) = '61FF0062' FROM countersign_inbox WHERE id = 2",
        "SELECT hex(content_type) = '00FF' AND hex(last_error) = '00' FROM countersign_outbox WHERE id = 1",
        "SELECT hex(kind) = 'FE' AND typeof(kind) = 'text' FROM countersign_attempt WHERE message = 1",
        "SELECT scheme = 'no such scheme' AND settings = 'not JSON' FROM countersign_endpoint WHERE name = 'desk'",
    ] {
        assert_eq!(shop.number("new", query).await, 1, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_no_store_would_write_is_named_and_the_copy_goes_on_when_it_is_mended() {
    let shop = Move::new().await;
    let lost = "PRAGMA ignore_check_constraints = ON; UPDATE countersign_outbox SET state = 'lost' WHERE id = 4";
    shop.execute("old", lost).await;
    shop.copy(&[]).run().exits(1).says("countersign_outbox, id 4").says("run this again");
    let mended = "PRAGMA ignore_check_constraints = ON; UPDATE countersign_outbox SET state = 'pending' WHERE id = 4";
    shop.execute("old", mended).await;
    copied(&shop.url("old"), &shop.url("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_killed_anywhere_is_finished_by_the_next_one() {
    let shop = Move::new().await;
    let many = "WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 20100)
        INSERT INTO countersign_outbox (id, endpoint, message_id, type, content_type, payload, state, created, since, updated)
        SELECT i, 'shop', 'many_' || i, 't', 'text/plain', randomblob(100), 'succeeded', i, i, i FROM n";
    shop.execute("old", many).await;
    let (from, to) = (shop.url("old"), shop.url("new"));
    let mut cut_short = 0;
    for rows in [1_000, 5_000, 12_000] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_countersign"))
            .args(["copy", "--from", &from, "--to", &to])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        while process.try_wait().expect("a status").is_none() && Instant::now() < deadline {
            if shop.folder.path().join("new").exists() && shop.rows_of_new().await >= rows {
                process.kill().expect("it is killed");
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        process.wait().expect("it ends");
        let there = shop.rows_of_new().await;
        cut_short += u32::from((rows..20_008).contains(&there));
    }
    assert!(cut_short > 0, "each of the three was quicker than its end");
    let ended = countersign(["copy", "--json", "--from", &from, "--to", &to]).run().exits(0).json();
    assert_eq!(ended["tables"]["outbox"]["equal"], 20_008);
    assert_eq!(exports(&from), exports(&to));
}

impl Move {
    /// None while there is no table.
    async fn rows_of_new(&self) -> i64 {
        let Ok(mut connection) = SqliteConnection::connect(&self.url("new")).await else { return 0 };
        let row = sqlx::raw_sql("SELECT count(*) FROM countersign_outbox").fetch_one(&mut connection).await;
        row.map_or(0, |row| row.try_get(0).expect("a number"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_cannot_be_ends_of_a_copy_are_refused_before_anything_is_made() {
    let shop = Move::new().await;
    let (old, absent) = (shop.url("old"), shop.url("absent"));
    countersign(["copy", "--from", &old, "--to", &old]).run().exits(2).says("the same store");
    countersign(["copy", "--from", &absent, "--to", &old]).run().exits(3).says("no such file");
    assert!(!shop.folder.path().join("absent").exists());
    countersign(["copy", "--from", &old]).run().exits(2).says("--to");
    let roundabout = format!("sqlite:{}/./old", shop.folder.path().display());
    countersign(["copy", "--from", &old, "--to", &roundabout]).run().exits(2).says("the same store");
    // Which end is meant, also where both are of one kind; and a dry run does not pass over a server that is not there.
    countersign(["copy", "--from", &old, "--to", "redis://localhost"])
        .run()
        .exits(2)
        .says("--to: the URL names no known");
    let nobody = "postgres://nobody@127.0.0.1:9/x";
    for args in [&["--dry-run"][..], &[]] {
        countersign(["copy", "--from", &old, "--to", nobody]).args(args).run().exits(3).says("--to: ");
        countersign(["copy", "--from", nobody, "--to", &old]).args(args).run().exits(3).says("--from: ");
    }
    shop.copy(&["--no-migrate"]).run().exits(3).says("no such file");
    let store = shop.open("old").await;
    assert!(store.endpoint(name("shop")).await.expect("an answer").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_sagas_is_refused_since_they_would_stay_behind() {
    let shop = Move::new().await;
    let saga = "INSERT INTO countersign_saga (saga, instance, version, body, created, moved) VALUES ('order', '7', 1, '{}', 1, 1)";
    shop.execute("old", saga).await;
    for args in [&["--dry-run"][..], &[]] {
        shop.copy(args).run().exits(1).says("holds 1 sagas");
    }
    assert_eq!(shop.number("new", "SELECT count(*) FROM countersign_inbox").await, 0, "nothing was written");
}
