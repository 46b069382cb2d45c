//! The bookkeeping that all databases share: which steps there are, which are missing, and which are beyond this version.
//!
//! It is our own table, `countersign_schema`: a row for each migration that was applied. How it is read and changed so
//! that of twenty processes that start at once one migrates and nineteen find nothing to do, each database says itself.

use super::fault;
use crate::store::StoreError;

/// One step. Steps are never changed once they were released.
#[derive(Debug)]
pub(super) struct Migration {
    pub(super) version: u32,
    /// Whether a program that does not know this step must leave the database alone.
    pub(super) breaking: bool,
    pub(super) sql: &'static str,
}

#[cfg(feature = "sqlite")]
impl Migration {
    /// The tables that it makes.
    fn tables(&self) -> impl Iterator<Item = &'static str> {
        self.sql.lines().filter_map(|line| {
            let name = line.strip_prefix("CREATE TABLE ")?;
            name.strip_prefix("IF NOT EXISTS ").unwrap_or(name).split([' ', '(']).next()
        })
    }
}

/// A step that was applied.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) version: u32,
    pub(super) breaking: bool,
}

/// Why a schema could not be brought up to date.
#[derive(Debug)]
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

/// The steps that were not applied. Fails where one was applied that this version cannot work beside.
pub(super) fn missing(
    migrations: &'static [Migration],
    applied: &[Applied],
) -> Result<Vec<&'static Migration>, Failed> {
    let newest = migrations.iter().map(|step| step.version).max().unwrap_or(0);
    if let Some(beyond) = applied.iter().find(|row| row.breaking && row.version > newest) {
        return Err(Failed::Schema(format!(
            "the database has migration {}, and this program knows them up to {newest}: use a newer countersign",
            beyond.version
        )));
    }
    Ok(migrations.iter().filter(|step| applied.iter().all(|row| row.version != step.version)).collect())
}

/// Refuses a schema that has lost a table of a step that was applied.
#[cfg(feature = "sqlite")]
pub(super) fn refuse_lost(
    migrations: &'static [Migration],
    applied: &[Applied],
    is_there: impl Fn(&str) -> bool,
) -> Result<(), Failed> {
    let in_place = migrations.iter().filter(|step| applied.iter().any(|row| row.version == step.version));
    match in_place.flat_map(Migration::tables).find(|table| !is_there(table)) {
        None => Ok(()),
        Some(table) => Err(Failed::Schema(format!(
            "the table `{table}` is gone although its migration was applied: restore a backup, or begin with an empty database"
        ))),
    }
}

/// A step that the database refuses because of what it already holds.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn in_the_way(step: &Migration, error: &sqlx::Error) -> Failed {
    Failed::Schema(format!(
        "migration {} is not recorded as applied, and cannot be: {error}. If its tables are there, their record in \
         `countersign_schema` was lost: restore a backup, or begin with an empty database",
        step.version
    ))
}

/// Refuses a schema that lacks a step, for those who may not change it.
pub(super) fn refuse_missing(migrations: &'static [Migration], applied: &[Applied]) -> Result<(), Failed> {
    let missing = missing(migrations, applied)?;
    if missing.is_empty() {
        return Ok(());
    }
    let versions: Vec<String> = missing.iter().map(|step| step.version.to_string()).collect();
    Err(Failed::Schema(format!("migration {} has not been applied: run `countersign migrate`", versions.join(", "))))
}

/// The newest step that was applied; 0 where there is none.
pub(super) fn newest(applied: &[Applied]) -> u32 {
    applied.iter().map(|row| row.version).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    static MIGRATIONS: [Migration; 2] =
        [Migration { version: 1, breaking: true, sql: "" }, Migration { version: 2, breaking: false, sql: "" }];

    #[test]
    fn what_was_not_applied_is_missing_and_refused_where_it_may_not_be_applied() {
        let first = [Applied { version: 1, breaking: true }];
        let left: Vec<u32> = missing(&MIGRATIONS, &first).expect("a list").iter().map(|step| step.version).collect();
        assert_eq!(left, [2]);
        assert!(
            matches!(refuse_missing(&MIGRATIONS, &first), Err(Failed::Schema(text)) if text.contains("migration 2"))
        );
        assert_eq!((newest(&first), newest(&[])), (1, 0));
    }

    #[test]
    fn a_newer_schema_is_refused_only_where_it_breaks() {
        let known = || MIGRATIONS.iter().map(|step| Applied { version: step.version, breaking: step.breaking });
        let with = |breaking| known().chain([Applied { version: 9_999, breaking }]).collect::<Vec<_>>();
        assert!(matches!(missing(&MIGRATIONS, &with(true)), Err(Failed::Schema(text)) if text.contains("9999")));
        assert!(matches!(missing(&MIGRATIONS, &with(false)), Ok(missing) if missing.is_empty()));
    }
}
