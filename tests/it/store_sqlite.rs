//! What only the SQLite store promises: files, processes, commits that are shared.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign::store::{
    InboxStore, Lease, ListFilter, OtherBody, ReceiptKey, ReceiptState, Reserve, Reserved, ResultBody, Retention,
    Settled, SqliteStore, StoreError, StoredResult, Unclear,
};
use countersign::{DedupKey, Digest, EventId, Name};
use http::{HeaderMap, StatusCode};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tempfile::TempDir;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_moment_share_a_commit() {
    let (_directory, store) = fresh().await;
    let before = store.commits();
    let leases = reserve_all(&store, 0..64).await;
    let reserved = store.commits() - before;
    assert!(reserved <= 16, "64 reservations took {reserved} commits");

    complete_all(&store, leases).await;
    let completed = store.commits() - before - reserved;
    assert!(completed <= 16, "64 ends took {completed} commits");
}

#[tokio::test]
async fn a_repeat_of_a_succeeded_event_writes_nothing() {
    let (directory, store) = fresh().await;
    let leases = reserve_all(&store, 0..3).await;
    complete_all(&store, leases).await;
    let mut beside = connect(&directory.path().join("inbox.db")).await;
    let before = data_version(&mut beside).await;
    for number in 0..3 {
        assert!(matches!(store.reserve(request(number)).await, Ok(Reserved::Succeeded(_))));
        assert!(store.reserve(request(number)).await.is_ok());
    }
    assert_eq!(data_version(&mut beside).await, before, "no other connection sees a change");
    store.check().await.expect("it works");
    assert_ne!(data_version(&mut beside).await, before, "a check does write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c091_many_stores_on_one_file_never_fail_under_load() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let mut running = JoinSet::new();
    for handle in 0..6 {
        let store = SqliteStore::open(&path).await.expect("the store opens");
        for task in 0..4 {
            let store = store.clone();
            running.spawn(async move {
                let mut acquired = 0;
                for number in 0..40 {
                    // Each event is asked for through every handle.
                    match store.reserve(request(task * 1_000 + number)).await.expect("no error") {
                        Reserved::Acquired(lease) => {
                            acquired += 1;
                            let settled = store.complete(lease, done()).await.expect("no error");
                            assert_eq!(settled, Settled::Done);
                        }
                        Reserved::Processing(_) | Reserved::Succeeded(_) => {}
                        other => panic!("handle {handle}: {other:?}"),
                    }
                    if number % 10 == 0 {
                        store.list(ListFilter::default()).await.expect("no error");
                        store.purge(Retention::default(), 100).await.expect("no error");
                    }
                }
                acquired
            });
        }
    }
    assert_eq!(running.join_all().await.into_iter().sum::<u32>(), 160, "each event ran once");
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, store) = fresh().await;
    reserve_all(&store, 0..1).await;
    for name in ["inbox.db", "inbox.db-wal", "inbox.db-shm"] {
        let mode = std::fs::metadata(directory.path().join(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn c092_a_database_in_memory_is_refused() {
    for path in ["", ":memory:"] {
        let Err(StoreError::Config(text)) = SqliteStore::open(path).await else { panic!("{path:?} was opened") };
        assert!(text.contains("MemoryStore"), "{text}");
    }
}

#[tokio::test]
async fn c092_a_path_is_the_name_of_a_file_whatever_it_holds() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["a b.db", "a?mode=memory", "50%25.db", "file:x?mode=memory", "é#&=.db", ":memory:", "'x'.db"] {
        let path = directory.path().join(name);
        let store = SqliteStore::open(&path).await.expect("the store opens");
        assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Acquired(_))));
        store.close().await.expect("the store closes");
        assert!(path.metadata().is_ok_and(|found| found.len() > 0), "{name}");
    }
    let mut names: Vec<_> = directory.path().read_dir().expect("a directory").flatten().collect();
    names.retain(|entry| entry.file_name().to_string_lossy().ends_with("-wal"));
    assert!(names.is_empty(), "a closed store is one file: {names:?}");
}

/// A relative path cannot be tried within this process without changing its directory: another one is started.
#[test]
fn c092_a_relative_path_that_looks_like_a_uri_is_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let status = child("relative", "file:x?mode=memory", directory.path()).status().expect("the process starts");
    assert!(status.success());
    assert!(directory.path().join("file:x?mode=memory").exists());
}

#[tokio::test]
async fn c092_files_that_cannot_work_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = async |path: &Path| match SqliteStore::open(path).await {
        Err(StoreError::Config(text)) => text,
        other => panic!("{}: {other:?}", path.display()),
    };
    assert!(refused(directory.path()).await.contains("directory"));
    assert!(refused(&directory.path().join("none/inbox.db")).await.contains("does not exist"));

    let text = directory.path().join("text.db");
    std::fs::write(&text, "this is a text, and long enough to be taken for a header of some kind ".repeat(20))
        .expect("x");
    assert!(refused(&text).await.contains("not a SQLite database"));

    let read_only = directory.path().join("read_only.db");
    SqliteStore::open(&read_only).await.expect("the store opens").close().await.expect("the store closes");
    let mut permissions = read_only.metadata().expect("a file").permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&read_only, permissions).expect("permissions");
    assert!(refused(&read_only).await.contains("read-only"));

    let absent = directory.path().join("absent.db");
    let Err(StoreError::Config(text)) = SqliteStore::options(&absent).with_create(false).open().await else {
        panic!("it was opened");
    };
    assert!(text.contains("no such file") && !absent.exists(), "{text}");

    let Err(StoreError::Config(text)) = SqliteStore::options(&absent).with_queue(0).open().await else {
        panic!("it was opened");
    };
    assert!(text.contains("queue"), "{text}");
}

#[tokio::test]
async fn c092_a_log_that_was_removed_is_no_harm_to_a_closed_store() {
    let (directory, store) = fresh().await;
    let leases = reserve_all(&store, 0..5).await;
    complete_all(&store, leases).await;
    store.close().await.expect("the store closes");
    for file in ["inbox.db-wal", "inbox.db-shm"] {
        assert!(!directory.path().join(file).exists(), "{file} is left");
    }
    let store = SqliteStore::open(directory.path().join("inbox.db")).await.expect("the store opens");
    assert_eq!(succeeded(&store).await, 5);
}

#[tokio::test]
async fn c092_a_log_that_is_removed_while_it_is_open_takes_nothing_with_it() {
    let (folder, store) = fresh().await;
    complete_all(&store, reserve_all(&store, 0..3).await).await;
    assert_eq!(succeeded(&store).await, 3, "a reader has the files open too");
    for file in ["inbox.db-wal", "inbox.db-shm"] {
        std::fs::remove_file(folder.path().join(file)).expect("it is there");
    }
    complete_all(&store, reserve_all(&store, 3..5).await).await;

    // What a process that starts after a crash would find.
    let other = SqliteStore::open(folder.path().join("inbox.db")).await.expect("a store");
    assert_eq!(succeeded(&other).await, 5);
    assert_eq!(succeeded(&store).await, 5);
}

#[tokio::test]
async fn c092_nothing_is_answered_from_a_file_that_is_not_there_any_more() {
    let (folder, store) = fresh().await;
    let (path, away) = (folder.path().join("inbox.db"), folder.path().join("away.db"));
    complete_all(&store, reserve_all(&store, 0..1).await).await;
    std::fs::rename(&path, &away).expect("moved");
    for _ in 0..2 {
        let refused = store.reserve(request(1)).await.expect_err("there is no file");
        assert!(refused.is_transient(), "{refused}");
        store.check().await.expect_err("it is not ready");
        assert!(!path.exists(), "an empty one in its place would make every event new");
    }
    std::fs::rename(&away, &path).expect("moved back");
    assert!(matches!(store.reserve(request(0)).await, Ok(Reserved::Succeeded(_))));
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Acquired(_))));
}

#[tokio::test]
async fn c092_a_file_that_is_put_in_the_place_of_the_open_one_is_not_taken_for_it() {
    let (folder, store) = fresh().await;
    let (other_folder, other) = fresh().await;
    complete_all(&store, reserve_all(&store, 0..1).await).await;
    other.close().await.expect("closed");
    std::fs::rename(other_folder.path().join("inbox.db"), folder.path().join("inbox.db")).expect("moved");
    for number in [0, 1] {
        let refused = store.reserve(request(number)).await.expect_err("it is another file");
        assert!(refused.to_string().contains("replaced"), "{refused}");
    }
}

#[tokio::test]
async fn a_closed_store_answers_with_an_error() {
    let (_directory, store) = fresh().await;
    let clone = store.clone();
    store.close().await.expect("the store closes");
    assert!(matches!(clone.reserve(request(1)).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(clone.check().await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(clone.find(request(1).key).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(clone.close().await, Err(StoreError::Unavailable { .. })));
}

#[test]
fn a_store_whose_runtime_has_ended_answers_with_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let first = runtime();
    let store = first.block_on(SqliteStore::open(&path)).expect("the store opens");
    first.block_on(store.check()).expect("it works");
    drop(first);
    let answer = runtime().block_on(store.reserve(request(1)));
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_store_that_was_dropped_loses_nothing() {
    let (directory, store) = fresh().await;
    let leases = reserve_all(&store, 0..5).await;
    complete_all(&store, leases).await;
    drop(store);
    let store = SqliteStore::open(directory.path().join("inbox.db")).await.expect("the store opens");
    assert_eq!(succeeded(&store).await, 5);
}

/// C057: what was answered before the process was killed is there afterwards.
#[tokio::test]
async fn c057_a_process_that_is_killed_loses_nothing_that_was_answered() {
    use std::io::{BufRead as _, BufReader};

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let mut process = child("endless", path.to_str().expect("text"), directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts");
    let mut answered = Vec::new();
    for line in BufReader::new(process.stdout.take().expect("its output")).lines().map_while(Result::ok) {
        // The harness prints lines of its own, and may print before ours.
        if let Some((_, number)) = line.split_once("answered ") {
            answered.push(number.parse::<u32>().expect("a number"));
        }
        if answered.len() == 50 {
            process.kill().expect("the process is killed");
        }
    }
    process.wait().expect("the process has ended");
    assert!(answered.len() >= 50);

    let store = SqliteStore::open(&path).await.expect("the store opens");
    for number in answered {
        let receipt = store.find(request(number).key).await.expect("an answer").expect("it is there");
        assert_eq!(receipt.state, ReceiptState::Succeeded, "event {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c102_twenty_stores_that_open_at_once_all_come_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let mut opening = JoinSet::new();
    for _ in 0..20 {
        let path = path.clone();
        opening.spawn(async move { SqliteStore::open(path).await.expect("the store opens") });
    }
    let stores = opening.join_all().await;
    assert_eq!(
        stores.iter().filter(|store| store.applied_migrations() == [1, 2, 3]).count(),
        1,
        "one of them migrates"
    );
    for store in stores {
        assert_eq!(store.schema_version().await.expect("an answer"), 3);
    }
}

#[test]
fn c102_twenty_processes_that_start_at_once_all_come_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let text = path.to_str().expect("text");
    let started: Vec<_> = (0..20)
        .map(|_| child("open", text, directory.path()).stdout(Stdio::null()).spawn().expect("the process starts"))
        .collect();
    for mut process in started {
        assert!(process.wait().expect("the process has ended").success());
    }
}

/// Not a test of its own: the other process of those that need one. It is this program, told so by its environment.
#[tokio::test]
async fn the_other_process() {
    let (Ok(task), Ok(path)) = (env::var("COUNTERSIGN_TEST_TASK"), env::var("COUNTERSIGN_TEST_PATH")) else {
        assert!(env::var_os("COUNTERSIGN_TEST_TASK").is_none());
        return;
    };
    let store = SqliteStore::open(&path).await.expect("the store opens");
    let last = if task == "endless" { u32::MAX } else { 1 };
    for number in 0..last {
        match store.reserve(request(number)).await.expect("an answer") {
            Reserved::Acquired(lease) => {
                assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);
                println!("answered {number}");
            }
            Reserved::Processing(_) | Reserved::Succeeded(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn child(task: &str, path: &str, directory: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", "store_sqlite::the_other_process", "--nocapture"])
        .env("COUNTERSIGN_TEST_TASK", task)
        .env("COUNTERSIGN_TEST_PATH", path)
        .current_dir(directory);
    command
}

#[tokio::test]
async fn a_schema_that_is_not_up_to_date_is_refused_where_it_may_not_be_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let Err(StoreError::Schema(text)) = SqliteStore::options(&path).with_migrate(false).open().await else {
        panic!("it was opened");
    };
    assert!(text.contains("countersign migrate"), "{text}");

    SqliteStore::open(&path).await.expect("the store opens").close().await.expect("the store closes");
    let store = SqliteStore::options(&path).with_migrate(false).open().await.expect("the store opens");
    assert!(store.applied_migrations().is_empty());
    store.check().await.expect("it works");
}

#[tokio::test]
async fn a_schema_that_was_half_lost_is_told_as_that() {
    for (statement, told) in [
        ("DELETE FROM countersign_schema", "not recorded"),
        ("DELETE FROM countersign_schema WHERE version = 2", "not recorded"),
        ("DROP TABLE countersign_inbox", "`countersign_inbox` is gone"),
    ] {
        let (directory, store) = fresh().await;
        store.close().await.expect("the store closes");
        let path = directory.path().join("inbox.db");
        sqlx::query(statement).execute(&mut connect(&path).await).await.expect("a change");
        let Err(StoreError::Schema(text)) = SqliteStore::open(&path).await else { panic!("it was opened") };
        assert!(text.contains(told) && text.contains("restore a backup"), "{statement}: {text}");
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused_where_it_breaks() {
    let (directory, store) = fresh().await;
    store.close().await.expect("the store closes");
    let path = directory.path().join("inbox.db");
    let mut beside = connect(&path).await;
    let insert = "INSERT INTO countersign_schema (version, breaking, applied_at) VALUES (7, 0, 0)";
    sqlx::query(insert).execute(&mut beside).await.expect("a row");
    let store = SqliteStore::open(&path).await.expect("an addition does not matter");
    assert_eq!(store.schema_version().await.expect("an answer"), 7);

    sqlx::query("UPDATE countersign_schema SET breaking = 1 WHERE version = 7").execute(&mut beside).await.expect("x");
    let Err(StoreError::Schema(text)) = SqliteStore::open(&path).await else { panic!("it was opened") };
    assert!(text.contains("migration 7") && text.contains("newer"), "{text}");
}

#[tokio::test]
async fn c082_the_database_refuses_states_that_make_no_sense() {
    let (directory, store) = fresh().await;
    reserve_all(&store, 0..1).await;
    let mut beside = connect(&directory.path().join("inbox.db")).await;
    for change in [
        "UPDATE countersign_inbox SET state = 'failed'",
        "UPDATE countersign_inbox SET token = NULL",
        "UPDATE countersign_inbox SET lease_until = NULL",
        "UPDATE countersign_inbox SET token = x'00'",
        "UPDATE countersign_inbox SET state = 'dead_letter', token = NULL, lease_until = NULL",
        "UPDATE countersign_inbox SET state = 'succeeded', token = NULL, lease_until = NULL",
        "UPDATE countersign_inbox SET state = 'received', token = NULL, lease_until = NULL",
        "UPDATE countersign_inbox SET state = 'other', token = NULL, lease_until = NULL",
        "UPDATE countersign_inbox SET reason = 'why'",
        "UPDATE countersign_inbox SET due = 1",
        "UPDATE countersign_inbox SET due = lease_until",
        "UPDATE countersign_inbox SET quarantined = 1",
        "UPDATE countersign_inbox SET attempts = -1",
        "UPDATE countersign_inbox SET result_body = x'00'",
        "UPDATE countersign_inbox SET request_body = x'00'",
        "UPDATE countersign_inbox SET consumer = NULL",
    ] {
        let error = sqlx::query(change).execute(&mut beside).await.expect_err(change);
        let error = error.into_database_error().expect("the database's");
        assert!(
            error.kind() == sqlx::error::ErrorKind::CheckViolation || change.ends_with("NULL"),
            "{change}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_is_named_and_harms_no_other() {
    let (directory, store) = fresh().await;
    let leases = reserve_all(&store, 0..4).await;
    complete_all(&store, leases).await;
    let mut beside = connect(&directory.path().join("inbox.db")).await;
    sqlx::raw_sql(
        "PRAGMA ignore_check_constraints = ON;
         UPDATE countersign_inbox SET result_headers = x'01ffff' WHERE key = 'evt_0';
         UPDATE countersign_inbox SET result_status = 7 WHERE key = 'evt_1';
         UPDATE countersign_inbox SET attempts = -1 WHERE key = 'evt_2';",
    )
    .execute(&mut beside)
    .await
    .expect("a change by hand");
    let mut asking = JoinSet::new();
    for number in 0..4 {
        let store = store.clone();
        asking.spawn(async move { (number, store.reserve(request(number)).await) });
    }
    for (number, answer) in asking.join_all().await {
        match answer {
            Err(StoreError::Corrupt(text)) => assert!(number < 3 && text.contains("id "), "{number}: {text}"),
            other => assert!(number == 3 && matches!(other, Ok(Reserved::Succeeded(_))), "{number}: {other:?}"),
        }
    }
    assert!(matches!(store.find(request(1).key).await, Err(StoreError::Corrupt(_))));
    let listed = store.list(ListFilter::default()).await.expect("a list of the others");
    assert_eq!(listed.iter().map(|receipt| receipt.key.key.as_str()).collect::<Vec<_>>(), ["evt_3"]);
    assert!(store.forget(request(1).key).await.expect("an answer"), "an operator can remove it");
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Acquired(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_does_not_fail_its_batch() {
    let (directory, store) = fresh().await;
    let mut beside = connect(&directory.path().join("inbox.db")).await;
    sqlx::raw_sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON countersign_inbox WHEN NEW.key = 'evt_7'
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    )
    .execute(&mut beside)
    .await
    .expect("a trigger");
    let mut asking = JoinSet::new();
    for number in 0..32 {
        let store = store.clone();
        asking.spawn(async move { (number, store.reserve(request(number)).await) });
    }
    for (number, answer) in asking.join_all().await {
        match answer {
            Ok(Reserved::Acquired(_)) => assert_ne!(number, 7),
            other => assert!(number == 7 && matches!(other, Err(StoreError::Rejected(_))), "{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_file_that_is_busy_for_too_long_is_an_error_and_later_works_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let options = SqliteStore::options(&path).with_busy_timeout(Duration::from_millis(50));
    let store = options.open().await.expect("the store opens");
    let mut beside = connect(&path).await;
    let writing = beside.begin_with("BEGIN IMMEDIATE").await.expect("the right to write");
    let answer = store.reserve(request(1)).await;
    assert!(matches!(&answer, Err(error @ StoreError::Unavailable { .. }) if error.is_transient()), "{answer:?}");
    assert!(store.check().await.is_err(), "a check sees it too");
    assert_eq!(store.find(request(1).key).await.expect("reading goes on"), None);
    drop(writing);
    beside.close().await.expect("the connection closes");
    assert!(matches!(store.reserve(request(1)).await, Ok(Reserved::Acquired(_))));
}

#[tokio::test]
async fn a_full_queue_takes_the_end_of_a_run_and_refuses_new_ones_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    let store = SqliteStore::options(&path).with_queue(2).open().await.expect("the store opens");
    let Ok(Reserved::Acquired(lease)) = store.reserve(request(7)).await else { panic!("it is new") };
    // One thread: the writer does not run before this task waits for something.
    let mut waiting = Vec::new();
    for number in 0..2 {
        let mut call = store.reserve(request(number));
        assert!(poll_once(&mut call).await.is_none());
        waiting.push(call);
    }
    assert!(matches!(store.reserve(request(9)).await, Err(StoreError::Overloaded(2))));
    assert_eq!(store.renew(lease.clone(), Duration::from_secs(60)).await.ok(), Some(Settled::Done));
    assert_eq!(store.complete(lease, done()).await.ok(), Some(Settled::Done));
    for call in waiting {
        assert!(matches!(call.await, Ok(Reserved::Acquired(_))));
    }
}

#[tokio::test]
async fn a_reservation_whose_caller_is_gone_is_not_made() {
    let (_directory, store) = fresh().await;
    let mut call = store.reserve(request(1));
    assert!(poll_once(&mut call).await.is_none());
    drop(call);
    store.check().await.expect("it works");
    assert_eq!(store.find(request(1).key).await.expect("an answer"), None);
}

#[tokio::test]
async fn c104_what_runs_often_uses_an_index() {
    let (directory, _store) = fresh().await;
    let mut beside = connect(&directory.path().join("inbox.db")).await;
    for (index, statement) in [
        (
            "countersign_inbox_state",
            "EXPLAIN QUERY PLAN SELECT id, updated FROM countersign_inbox INDEXED BY countersign_inbox_state
             WHERE state = 'succeeded' AND updated <= 1 ORDER BY updated, id LIMIT 2",
        ),
        (
            "countersign_inbox_result",
            "EXPLAIN QUERY PLAN SELECT id FROM countersign_inbox INDEXED BY countersign_inbox_result
             WHERE state IN ('succeeded', 'failed') AND result_body IS NOT NULL AND updated <= 1
             ORDER BY updated, id LIMIT 2",
        ),
        (
            "countersign_inbox_state",
            "EXPLAIN QUERY PLAN SELECT id, updated FROM countersign_inbox
             WHERE state = 'failed' AND (1 IS NULL OR consumer = 1) ORDER BY updated DESC, id DESC LIMIT 2",
        ),
    ] {
        let plan: Vec<String> = sqlx::query(statement)
            .fetch_all(&mut beside)
            .await
            .expect("a plan")
            .iter()
            .map(|row| row.try_get("detail").expect("a text"))
            .collect();
        let plan = plan.join("; ");
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

async fn fresh() -> (TempDir, SqliteStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("inbox.db")).await.expect("the store opens");
    (directory, store)
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("a connection")
}

async fn data_version(connection: &mut SqliteConnection) -> i64 {
    sqlx::query("PRAGMA data_version").fetch_one(connection).await.expect("an answer").try_get(0).expect("a number")
}

async fn reserve_all(store: &SqliteStore, numbers: std::ops::Range<u32>) -> Vec<Lease> {
    let mut running = JoinSet::new();
    for number in numbers {
        let store = store.clone();
        running.spawn(async move {
            match store.reserve(request(number)).await.expect("an answer") {
                Reserved::Acquired(lease) => lease,
                other => panic!("{other:?}"),
            }
        });
    }
    running.join_all().await
}

async fn complete_all(store: &SqliteStore, leases: Vec<Lease>) {
    let mut running = JoinSet::new();
    for lease in leases {
        let store = store.clone();
        running.spawn(async move { store.complete(lease, done()).await.expect("an answer") });
    }
    assert!(running.join_all().await.into_iter().all(|settled| settled == Settled::Done));
}

async fn succeeded(store: &SqliteStore) -> usize {
    let filter = ListFilter { state: Some(ReceiptState::Succeeded), ..ListFilter::default() };
    store.list(filter).await.expect("an answer").len()
}

async fn poll_once<T>(call: &mut countersign::store::StoreFuture<'_, T>) -> Option<Result<T, StoreError>> {
    std::future::poll_fn(|context| match call.as_mut().poll(context) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

fn request(number: u32) -> Reserve {
    let id = EventId::new(&format!("evt_{number}")).expect("an id");
    Reserve {
        key: ReceiptKey {
            consumer: Name::new("orders").expect("a name"),
            source: Name::new("shop").expect("a name"),
            key: DedupKey::from_id(&id),
        },
        event_id: Some(id),
        correlation_id: None,
        body: Digest::of(b"{}"),
        lease: Duration::from_secs(60),
        max_attempts: 20,
        other_body: OtherBody::Accept,
        unclear: Unclear::RunAgain,
    }
}

fn done() -> StoredResult {
    StoredResult {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: ResultBody::Kept(b"done".as_slice().into()),
    }
}
