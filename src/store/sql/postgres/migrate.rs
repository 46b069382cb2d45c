//! Brings the schema of a database up to date, within one transaction.
//!
//! An advisory lock makes those wait that start at the same moment. It belongs to the transaction, so that it also works
//! through a pooler that hands out connections for a transaction at a time.

use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use super::super::migrate::{Applied, Failed, Migration, in_the_way, missing, newest, refuse_missing};
use super::statements;

static MIGRATIONS: [Migration; 3] = [
    Migration { version: 1, breaking: true, sql: include_str!("../migrations/postgres/0001_inbox.sql") },
    // Tables of their own: a program that knows only the inbox works beside them.
    Migration { version: 2, breaking: false, sql: include_str!("../migrations/postgres/0002_outbox.sql") },
    Migration { version: 3, breaking: false, sql: include_str!("../migrations/postgres/0003_saga.sql") },
];

/// "countersg" as a number: one lock in each database.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7165916604736876903)";

const BOOKKEEPING: &str = "\
CREATE TABLE IF NOT EXISTS countersign_schema (
    version    bigint  PRIMARY KEY,
    breaking   boolean NOT NULL,
    applied_at bigint  NOT NULL,
    checked_at bigint
)";

/// Applies what is missing, and returns the versions applied.
pub(super) async fn migrate(connection: &mut PgConnection) -> Result<Vec<u32>, Failed> {
    // Most starts find everything in place: they need not wait for each other.
    if missing(&MIGRATIONS, &applied(connection).await?)?.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::raw_sql("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").execute(&mut *connection).await?;
    match migrate_within(connection).await {
        Ok(versions) => {
            sqlx::raw_sql(statements::COMMIT).execute(connection).await?;
            Ok(versions)
        }
        Err(failed) => {
            sqlx::raw_sql(statements::ROLLBACK).execute(connection).await?;
            Err(failed)
        }
    }
}

/// Refuses a schema that this version cannot use as it is.
pub(super) async fn verify(connection: &mut PgConnection) -> Result<(), Failed> {
    refuse_missing(&MIGRATIONS, &applied(connection).await?)
}

/// The newest migration that the database has; 0 where it has none.
pub(super) async fn version(connection: &mut PgConnection) -> Result<u32, Failed> {
    Ok(newest(&applied(connection).await?))
}

async fn migrate_within(connection: &mut PgConnection) -> Result<Vec<u32>, Failed> {
    sqlx::raw_sql(LOCK).execute(&mut *connection).await?;
    sqlx::raw_sql(BOOKKEEPING).execute(&mut *connection).await?;
    let missing = missing(&MIGRATIONS, &applied(connection).await?)?;
    for step in &missing {
        sqlx::raw_sql(step.sql).execute(&mut *connection).await.map_err(|error| {
            match error.as_database_error().and_then(|error| error.code()).as_deref() {
                Some(DUPLICATE_TABLE | DUPLICATE_OBJECT) => in_the_way(step, &error),
                _ => Failed::Database(error),
            }
        })?;
        let insert = "INSERT INTO countersign_schema (version, breaking, applied_at)
            VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)";
        let query = sqlx::query(insert).persistent(false).bind(i64::from(step.version)).bind(step.breaking);
        query.execute(&mut *connection).await?;
    }
    Ok(missing.iter().map(|step| step.version).collect())
}

const DUPLICATE_TABLE: &str = "42P07";
const DUPLICATE_OBJECT: &str = "42710";

async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>, Failed> {
    // As plain text, without parameters: it needs no transaction to stay on one connection of a pooler.
    let known = "SELECT to_regclass('countersign_schema') IS NOT NULL";
    if !sqlx::raw_sql(known).fetch_one(&mut *connection).await?.try_get::<bool, _>(0)? {
        return Ok(Vec::new());
    }
    let rows = sqlx::raw_sql("SELECT version, breaking FROM countersign_schema").fetch_all(connection).await?;
    let applied = |row: &sqlx::postgres::PgRow| {
        let version = u32::try_from(row.try_get::<i64, _>("version")?).unwrap_or(u32::MAX);
        Ok(Applied { version, breaking: row.try_get("breaking")? })
    };
    rows.iter().map(applied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_stand_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|a, b| a.version < b.version));
    }
}
