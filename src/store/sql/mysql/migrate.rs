//! Brings the schema of a database up to date.
//!
//! Every statement that changes a schema commits at once here. So a step is written down before it begins and once more
//! when it is done, and each of its statements may be run again: one that was cut off is told, and repeated from its
//! beginning. A named lock makes those wait that start at the same moment; the server frees it where its holder is gone.

use sqlx::Row as _;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::super::migrate::{Applied, Failed, Migration, missing, newest, refuse_missing};
use super::statements;

static MIGRATIONS: [Migration; 3] = [
    Migration { version: 1, breaking: true, sql: include_str!("../migrations/mysql/0001_inbox.sql") },
    // Tables of their own: a program that knows only the inbox works beside them.
    Migration { version: 2, breaking: false, sql: include_str!("../migrations/mysql/0002_outbox.sql") },
    Migration { version: 3, breaking: false, sql: include_str!("../migrations/mysql/0003_saga.sql") },
];

/// One lock for each database of a server. How long they wait: longer than a migration takes.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('countersign:', MD5(DATABASE())), 60) AS locked";

const UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('countersign:', MD5(DATABASE())))";

const BOOKKEEPING: &str = "\
CREATE TABLE IF NOT EXISTS countersign_schema (
    version    BIGINT  NOT NULL PRIMARY KEY,
    breaking   BOOLEAN NOT NULL,
    -- NULL: it was begun, and not finished.
    applied_at BIGINT,
    checked_at BIGINT
) ENGINE = InnoDB";

const APPLIED: &str =
    "SELECT version, CAST(breaking AS SIGNED) AS breaking FROM countersign_schema WHERE applied_at IS NOT NULL";

/// Applies what is missing, and returns the versions applied.
pub(super) async fn migrate(connection: &mut MySqlConnection) -> Result<Vec<u32>, Failed> {
    // Most starts find everything in place: they need not wait for each other.
    if missing(&MIGRATIONS, &applied(connection).await?)?.is_empty() {
        return Ok(Vec::new());
    }
    let locked = sqlx::raw_sql(LOCK).fetch_one(&mut *connection).await?.try_get::<Option<i64>, _>("locked")?;
    if locked != Some(1) {
        return Err(Failed::Database(sqlx::Error::PoolTimedOut));
    }
    let done = migrate_alone(connection).await;
    sqlx::raw_sql(UNLOCK).execute(connection).await?;
    done
}

/// Refuses a schema that this version cannot use as it is.
pub(super) async fn verify(connection: &mut MySqlConnection) -> Result<(), Failed> {
    let refused = refuse_missing(&MIGRATIONS, &applied(connection).await?);
    if refused.is_err() && is_known(connection).await? {
        let begun = "SELECT version FROM countersign_schema WHERE applied_at IS NULL ORDER BY version";
        if let Some(row) = sqlx::raw_sql(begun).fetch_optional(connection).await? {
            let version: i64 = row.try_get("version")?;
            return Err(Failed::Schema(format!(
                "migration {version} was begun and cut off: run `countersign migrate`, which repeats it"
            )));
        }
    }
    refused
}

/// The newest migration that the database has; 0 where it has none.
pub(super) async fn version(connection: &mut MySqlConnection) -> Result<u32, Failed> {
    Ok(newest(&applied(connection).await?))
}

async fn migrate_alone(connection: &mut MySqlConnection) -> Result<Vec<u32>, Failed> {
    sqlx::raw_sql(BOOKKEEPING).execute(&mut *connection).await?;
    let missing = missing(&MIGRATIONS, &applied(connection).await?)?;
    for step in &missing {
        let begin = "INSERT INTO countersign_schema (version, breaking) VALUES (?, ?)
            ON DUPLICATE KEY UPDATE applied_at = NULL";
        sqlx::query(begin).bind(i64::from(step.version)).bind(step.breaking).execute(&mut *connection).await?;
        sqlx::raw_sql(step.sql).execute(&mut *connection).await?;
        let end = "UPDATE countersign_schema
            SET applied_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) WHERE version = ?";
        sqlx::query(end).bind(i64::from(step.version)).execute(&mut *connection).await?;
    }
    Ok(missing.iter().map(|step| step.version).collect())
}

async fn applied(connection: &mut MySqlConnection) -> Result<Vec<Applied>, Failed> {
    if !is_known(connection).await? {
        return Ok(Vec::new());
    }
    let applied = |row: &MySqlRow| {
        let version = u32::try_from(row.try_get::<i64, _>("version")?).unwrap_or(u32::MAX);
        Ok(Applied { version, breaking: row.try_get::<i64, _>("breaking")? != 0 })
    };
    sqlx::raw_sql(APPLIED).fetch_all(connection).await?.iter().map(applied).collect()
}

async fn is_known(connection: &mut MySqlConnection) -> Result<bool, Failed> {
    let table = "SELECT 1 FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name = 'countersign_schema'";
    Ok(sqlx::raw_sql(table).fetch_optional(connection).await?.is_some())
}

/// What a new connection of the store's own is told first.
pub(super) async fn prepare(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statements::PREPARE).execute(connection).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_stand_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|a, b| a.version < b.version));
    }

    #[test]
    fn every_statement_of_a_migration_may_be_run_again() {
        for step in &MIGRATIONS {
            let text: String = step.sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
            for statement in text.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
                assert!(statement.starts_with("CREATE TABLE IF NOT EXISTS"), "{statement}");
            }
        }
    }
}
