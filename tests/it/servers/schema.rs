//! The schema that migrations make, as it was committed; and twenty processes that make it at once.
//!
//! `COUNTERSIGN_WRITE_SCHEMA=1` writes the dumps anew instead of comparing them.

use std::path::Path;
use std::process::Stdio;

use countersign::store::{InboxStore as _, MySqlStore, SqliteStore, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::proxy::Side;
use super::{mysql, postgres};
use crate::cli::countersign;

#[tokio::test]
async fn the_schema_of_sqlite_is_the_one_that_was_committed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    SqliteStore::open(&path).await.expect("the store opens").close().await.expect("it closes");
    let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.expect("a connection");
    let statements = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name";
    let rows = sqlx::raw_sql(statements).fetch_all(&mut connection).await.expect("rows");
    let statements = rows.iter().map(|row| plain(&row.try_get::<String, _>(0).expect("text")));
    compare("sqlite", &statements.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn the_schema_of_postgres_is_the_one_that_was_committed() {
    const LINES: &str = "\
        SELECT line FROM (
            SELECT relname, 0 AS part, 0 AS place, 'CREATE TABLE ' || relname || ' (' AS line
            FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
            UNION ALL
            SELECT relname, 1, attnum, '    ' || attname || ' ' || format_type(atttypid, atttypmod)
                || coalesce(' COLLATE ' || quote_ident(collname), '')
                || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
                || CASE attidentity WHEN 'a' THEN ' GENERATED ALWAYS AS IDENTITY' ELSE '' END
                || coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), '')
            FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
            LEFT JOIN pg_collation ON pg_collation.oid = attcollation AND collname <> 'default'
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND attnum > 0 AND NOT attisdropped
            UNION ALL
            SELECT relname, 2, 0, '    CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(pg_constraint.oid)
            FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
            WHERE relnamespace = current_schema()::regnamespace AND contype IN ('c', 'f', 'p', 'u')
            UNION ALL
            SELECT relname, 3, 0, ')' || coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '') || ';'
            FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
            UNION ALL
            SELECT tablename, 4, 0, replace(indexdef, current_schema() || '.', '') || ';'
            FROM pg_indexes WHERE schemaname = current_schema()
        ) AS parts ORDER BY relname COLLATE \"C\", part, place, line COLLATE \"C\"";
    let Some(database) = postgres::Database::create().await else { return };
    database.open().await.close().await.expect("the store closes");
    let rows = sqlx::raw_sql(LINES).fetch_all(&mut postgres::connect(&database.url).await).await.expect("rows");
    let lines: Vec<String> = rows.iter().map(|row| row.try_get(0).expect("text")).collect();
    // The last part of a table has no comma behind it.
    compare("postgres", &lines.join("\n").replace("\n    ", ",\n    ").replace("(,\n", "(\n"));
}

#[tokio::test]
async fn the_schema_of_mysql_is_the_one_that_was_committed() {
    let Some(database) = mysql::Database::create().await else { return };
    database.open().await.close().await.expect("the store closes");
    let mut connection = mysql::connect(&database.url).await;
    let version = sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut connection).await.expect("a row");
    if !version.try_get::<String, _>(0).expect("text").contains("MariaDB") {
        eprintln!("LEFT OUT: the dump is MariaDB's, which writes a schema in its own way");
        return;
    }
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name";
    let mut dump = String::new();
    for table in sqlx::raw_sql(tables).fetch_all(&mut connection).await.expect("rows") {
        let table: String = table.try_get(0).expect("text");
        let show = sqlx::AssertSqlSafe(format!("SHOW CREATE TABLE {table}"));
        let shown: String =
            sqlx::raw_sql(show).fetch_one(&mut connection).await.expect("a row").try_get(1).expect("text");
        // What stands behind the engine is the database's own: the next number, the usual character set.
        let (columns, _) = shown.split_once(") ENGINE=InnoDB").expect("InnoDB");
        dump.push_str(&format!("{columns}) ENGINE=InnoDB;\n"));
    }
    compare("mysql", &dump);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c102_twenty_processes_that_start_at_once_on_sqlite_all_come_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("inbox.db").display());
    twenty_come_up(&url, directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c102_twenty_processes_that_start_at_once_on_postgres_all_come_up() {
    let Some(database) = postgres::Database::create().await else { return };
    twenty_come_up(&database.url, Path::new(".")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c102_twenty_processes_that_start_at_once_on_mysql_all_come_up() {
    let Some(database) = mysql::Database::create().await else { return };
    twenty_come_up(&database.url, Path::new(".")).await;
}

/// Ten that migrate and end, and ten that receive; one of the twenty makes the schema.
async fn twenty_come_up(url: &str, directory: &Path) {
    let (mut migrating, mut receiving) = (JoinSet::new(), JoinSet::new());
    for _ in 0..10 {
        let owned = url.to_owned();
        migrating.spawn_blocking(move || countersign(["migrate", "--json", "--store", &owned]).run().exits(0).text());
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.args(["receive", "--scheme", "github", "--secret-env", "SECRET", "--listen", "127.0.0.1:0"]);
        command.args(["--upstream", "http://127.0.0.1:9", "--store", url]).env("SECRET", "a secret for this test");
        command.current_dir(directory).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the program starts");
        receiving.spawn(async move {
            let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
            let ready = lines.next_line().await.expect("its stdout is read").expect("it says that it listens");
            assert!(ready.starts_with("listening on "), "{ready}");
            process.kill().await.expect("it is ended");
        });
    }
    receiving.join_all().await;
    let answers = migrating.join_all().await;
    let answers = answers.iter().map(|text| serde_json::from_str::<serde_json::Value>(text).expect("JSON"));
    let answers: Vec<_> = answers.collect();
    let applied = answers.iter().filter(|answer| answer["applied"].as_array().is_some_and(|list| !list.is_empty()));
    assert!(applied.count() <= 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer["schema_version"] == answers[0]["schema_version"]), "{answers:?}");
    let last = countersign(["migrate", "--store", url]).run().exits(0);
    assert!(last.text().contains("up to date"), "{}", last.text());
}

#[tokio::test]
async fn a_newer_schema_that_breaks_is_refused_by_the_program() {
    let newer = "INSERT INTO countersign_schema (version, breaking, applied_at) VALUES (9999, TRUE, 0)";
    if let Some(database) = postgres::Database::create().await {
        database.open().await.close().await.expect("the store closes");
        database.execute(newer).await;
        refused(&database.url);
    }
    if let Some(database) = mysql::Database::create().await {
        database.open().await.close().await.expect("the store closes");
        database.execute(newer).await;
        refused(&database.url);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inbox.db");
    SqliteStore::open(&path).await.expect("the store opens").close().await.expect("it closes");
    let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.expect("a connection");
    sqlx::raw_sql(newer).execute(&mut connection).await.expect("a row");
    refused(&format!("sqlite:{}", path.display()));
}

fn refused(url: &str) {
    for command in [&["migrate"][..], &["inbox", "list"], &["purge"]] {
        countersign(command.iter().chain(&["--store", url])).run().fails().says("9999").says("use a newer countersign");
    }
}

/// MySQL commits every statement that changes a schema: wherever its connection breaks, a migration is told and repeated.
#[tokio::test]
async fn c102_a_migration_on_mysql_that_is_cut_off_anywhere_is_repaired() {
    let mut point = 0_u32;
    loop {
        point += 1;
        let Some(database) = mysql::Database::create().await else { return };
        let (url, faults) = database.behind_proxy().await;
        let side = if point.is_multiple_of(2) { Side::Answer } else { Side::Question };
        faults.plan(side, point.div_ceil(2), true);
        let opened = MySqlStore::options(&url).open().await;
        if !faults.heal() {
            opened.expect("nothing was cut").close().await.expect("the store closes");
            if point.is_multiple_of(2) {
                break;
            }
            continue;
        }
        if opened.is_err() {
            match MySqlStore::options(&database.url).with_migrate(false).open().await {
                Err(StoreError::Schema(text)) => assert!(text.contains("run `countersign migrate`"), "{point}: {text}"),
                other => drop(other.expect("it was done, and only its answer was lost")),
            }
        }
        countersign(["migrate", "--store", &database.url]).run().exits(0);
        database.open().await.check().await.expect("it works");
    }
    assert!(point > 12, "a migration is more than {point} messages");
}

/// Without comments and superfluous spaces.
fn plain(sql: &str) -> String {
    let mut plain = String::new();
    for line in sql.lines() {
        let code = line.split("--").next().unwrap_or_default();
        let indent = if code.starts_with(' ') { "    " } else { "" };
        let words: Vec<&str> = code.split_whitespace().collect();
        if !words.is_empty() {
            plain.push_str(&format!("{indent}{}\n", words.join(" ")));
        }
    }
    plain.truncate(plain.trim_end().len());
    plain.push(';');
    plain
}

fn compare(database: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema").join(format!("{database}.sql"));
    let found = format!("{}\n", found.trim_end());
    if std::env::var_os("COUNTERSIGN_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &found).expect("the dump is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == found,
        "the schema is not that of {}; where that is meant, run this test with COUNTERSIGN_WRITE_SCHEMA=1\n{found}",
        path.display()
    );
}
