//! Brings the schema of a file up to date. Looking and changing happen within one `BEGIN IMMEDIATE`.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use super::super::migrate::{Applied, Failed, Migration, in_the_way, missing, newest, refuse_lost, refuse_missing};
use super::fault::{self, code};
use crate::Timestamp;

static MIGRATIONS: [Migration; 3] = [
    Migration { version: 1, breaking: true, sql: include_str!("../migrations/sqlite/0001_inbox.sql") },
    // Tables of their own: a program that knows only the inbox works beside them.
    Migration { version: 2, breaking: false, sql: include_str!("../migrations/sqlite/0002_outbox.sql") },
    Migration { version: 3, breaking: false, sql: include_str!("../migrations/sqlite/0003_saga.sql") },
];

const BOOKKEEPING: &str = "\
CREATE TABLE IF NOT EXISTS countersign_schema (
    version    INTEGER PRIMARY KEY,
    breaking   INTEGER NOT NULL CHECK (breaking IN (0, 1)),
    applied_at INTEGER NOT NULL,
    checked_at INTEGER
) STRICT";

/// Applies what is missing, and returns the versions applied.
pub(super) async fn migrate(connection: &mut SqliteConnection, now: Timestamp) -> Result<Vec<u32>, Failed> {
    // Most starts find everything in place: they need not wait for the right to write.
    let before = applied(connection).await?;
    refuse_lost_tables(connection, &before).await?;
    if missing(&MIGRATIONS, &before)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(BOOKKEEPING).execute(&mut *transaction).await?;
    let missing = missing(&MIGRATIONS, &applied(&mut transaction).await?)?;
    for step in &missing {
        sqlx::raw_sql(step.sql).execute(&mut *transaction).await.map_err(|error| {
            match fault::primary_code(&error) {
                Some(code::ERROR) => in_the_way(step, &error),
                _ => Failed::Database(error),
            }
        })?;
        sqlx::query("INSERT INTO countersign_schema (version, breaking, applied_at) VALUES (?1, ?2, ?3)")
            .bind(step.version)
            .bind(step.breaking)
            .bind(now.as_micros())
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(missing.iter().map(|step| step.version).collect())
}

/// Refuses a schema that this version cannot use as it is.
pub(super) async fn verify(connection: &mut SqliteConnection) -> Result<(), Failed> {
    let applied = applied(connection).await?;
    refuse_missing(&MIGRATIONS, &applied)?;
    refuse_lost_tables(connection, &applied).await
}

/// The newest migration that the file has; 0 where it has none.
pub(super) async fn version(connection: &mut SqliteConnection) -> Result<u32, Failed> {
    Ok(newest(&applied(connection).await?))
}

async fn refuse_lost_tables(connection: &mut SqliteConnection, applied: &[Applied]) -> Result<(), Failed> {
    let rows = sqlx::query("SELECT name FROM sqlite_schema WHERE type = 'table'").fetch_all(connection).await?;
    let tables = rows.iter().map(|row| row.try_get("name")).collect::<Result<Vec<String>, _>>()?;
    refuse_lost(&MIGRATIONS, applied, |table| tables.iter().any(|there| there == table))
}

async fn applied(connection: &mut SqliteConnection) -> Result<Vec<Applied>, Failed> {
    let known = sqlx::query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'countersign_schema'")
        .fetch_optional(&mut *connection)
        .await?;
    if known.is_none() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query("SELECT version, breaking FROM countersign_schema").fetch_all(connection).await?;
    rows.iter()
        .map(|row| Ok(Applied { version: row.try_get("version")?, breaking: row.try_get("breaking")? }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_stand_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|a, b| a.version < b.version));
    }
}
