//! The program on each server's store.

use crate::cli::countersign;
use crate::strict_gateway::{killed_behind_the_request, killed_in_the_middle_of_a_run};

#[tokio::test]
async fn the_program_works_on_postgres() {
    if let Some(database) = super::postgres::Database::create().await {
        works_on(&database.url);
    }
}

#[tokio::test]
async fn the_program_works_on_mysql() {
    if let Some(database) = super::mysql::Database::create().await {
        works_on(&database.url);
        works_on(&database.url.replacen("mysql:", "mariadb:", 1));
    }
}

#[tokio::test]
async fn with_strict_a_process_that_is_killed_leaves_its_event_to_an_operator_on_postgres() {
    for deferred in [false, true] {
        let Some(database) = super::postgres::Database::create().await else { return };
        killed(&database.url, deferred).await;
    }
}

#[tokio::test]
async fn with_strict_a_process_that_is_killed_leaves_its_event_to_an_operator_on_mysql() {
    for deferred in [false, true] {
        let Some(database) = super::mysql::Database::create().await else { return };
        killed(&database.url, deferred).await;
    }
}

async fn killed(url: &str, deferred: bool) {
    match deferred {
        false => killed_in_the_middle_of_a_run(url).await,
        true => killed_behind_the_request(url).await,
    }
}

fn works_on(url: &str) {
    let migrated = countersign(["migrate", "--store", url]).run().exits(0);
    assert!(migrated.text().contains("schema version 3"), "{}", migrated.text());
    countersign(["inbox", "list", "--no-migrate", "--store", url]).run().exits(0);
    countersign(["inbox", "show", "evt_1", "--store", url]).run().exits(1).says("evt_1");
    let purged = countersign(["purge", "--store", url]).run().exits(0);
    assert!(purged.text().contains("0 keys"), "{}", purged.text());
    for table in ["inbox", "outbox"] {
        assert_eq!(countersign([table, "export", "--store", url]).run().exits(0).text(), "");
    }
    let examined = countersign(["doctor", "--json", "--store", url]).run().exits(0).json();
    let status = |check: &str| {
        let checks = examined["checks"].as_array().expect("an array");
        checks.iter().find(|found| found["check"] == check).map(|found| found["status"].clone())
    };
    for check in ["store", "schema", "clock", "backlog"] {
        assert_eq!(status(check), Some("ok".into()), "{check}");
    }
}

/// A server whose clock is an hour ahead: its tables are in a schema that has a clock of its own.
#[tokio::test]
async fn the_program_finds_a_clock_that_is_off() {
    let Some(database) = super::postgres::Database::create().await else { return };
    let clock = "CREATE SCHEMA ahead; CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$";
    database.execute(clock).await;
    let url = format!("{}?options=-csearch_path%3Dahead%2Cpg_catalog", database.url);
    countersign(["migrate", "--store", &url]).run().exits(0);
    let ended = countersign(["doctor", "--json", "--store", &url]).run().exits(1);
    let answer = ended.json();
    let checks = answer["checks"].as_array().expect("an array");
    let clock = checks.iter().find(|found| found["check"] == "clock").expect("it is checked");
    let detail = clock["detail"].as_str().expect("text");
    assert!(clock["status"] == "failed" && (detail.contains("3599 s off") || detail.contains("3600 s off")), "{clock}");
    countersign(["doctor", "--max-skew", "2h", "--store", &url]).run().exits(0);
}
