//! Brings the schema up to date, and refuses one that is beyond this version.
//!
//! The bookkeeping is our own table, `countersign_schema`: a row for each migration that was applied. Looking and
//! changing happen within one `BEGIN IMMEDIATE`, so that of twenty processes that start at once one migrates and
//! nineteen find nothing to do.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use super::fault;
use crate::Timestamp;
use crate::store::StoreError;

/// One step. Steps are never changed once they were released.
struct Migration {
    version: u32,
    /// Whether a program that does not know this step must leave the file alone.
    breaking: bool,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 1] =
    [Migration { version: 1, breaking: true, sql: include_str!("../migrations/sqlite/0001_inbox.sql") }];

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
    if missing(&applied(connection).await?)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(BOOKKEEPING).execute(&mut *transaction).await?;
    let missing = missing(&applied(&mut transaction).await?)?;
    for step in &missing {
        sqlx::raw_sql(step.sql).execute(&mut *transaction).await?;
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
    let missing = missing(&applied(connection).await?)?;
    if missing.is_empty() {
        return Ok(());
    }
    let versions: Vec<String> = missing.iter().map(|step| step.version.to_string()).collect();
    Err(Failed::Schema(format!("migration {} has not been applied: run `countersign migrate`", versions.join(", "))))
}

/// The newest migration that the file has; 0 where it has none.
pub(super) async fn version(connection: &mut SqliteConnection) -> Result<u32, Failed> {
    Ok(applied(connection).await?.iter().map(|row| row.version).max().unwrap_or(0))
}

/// Why a schema could not be brought up to date.
pub(super) enum Failed {
    Database(sqlx::Error),
    Schema(String),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Database(error) => fault::unavailable("reading or changing the schema", error),
            Failed::Schema(text) => Self::Schema(text),
        }
    }
}

struct Applied {
    version: u32,
    breaking: bool,
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

fn missing(applied: &[Applied]) -> Result<Vec<&'static Migration>, Failed> {
    let newest = MIGRATIONS.iter().map(|step| step.version).max().unwrap_or(0);
    if let Some(beyond) = applied.iter().find(|row| row.breaking && row.version > newest) {
        return Err(Failed::Schema(format!(
            "the file has migration {}, and this program knows them up to {newest}: use a newer countersign",
            beyond.version
        )));
    }
    Ok(MIGRATIONS.iter().filter(|step| applied.iter().all(|row| row.version != step.version)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_stand_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|a, b| a.version < b.version));
    }

    #[test]
    fn a_newer_schema_is_refused_only_where_it_breaks() {
        let known = || MIGRATIONS.iter().map(|step| Applied { version: step.version, breaking: step.breaking });
        let with = |breaking| known().chain([Applied { version: 9_999, breaking }]).collect::<Vec<_>>();
        assert!(matches!(missing(&with(true)), Err(Failed::Schema(text)) if text.contains("9999")));
        assert!(matches!(missing(&with(false)), Ok(missing) if missing.is_empty()));
    }
}
