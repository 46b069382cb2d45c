//! All that a store holds, carried into another one: from a file to a server, or back.
//!
//! A copy walks both ends at once, table by table and in the order of the rows' numbers, a page of each in memory. It does so
//! three times: to find what stands in the way, before anything is written; to add what is missing; and to compare. Rows are
//! carried as they are, with their numbers, so that orders stay, and histories stay with what they belong to.

pub(super) mod end;
mod report;
pub(super) mod row;
pub(super) mod table;
mod walk;

pub use self::end::Running;
use self::end::{AnyEnd, End};
pub use self::report::{Copied, CopyError, Survey, TableSurvey};
pub use self::table::Table;
use self::walk::{Meeting, Walk};
#[cfg(feature = "mysql")]
use super::mysql::MySqlStore;
#[cfg(feature = "postgres")]
use super::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use crate::store::StoreError;

/// A store that can be one end of a copy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CopyEnd<'a> {
    /// A file.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a SqliteStore),
    /// A database of a PostgreSQL server.
    #[cfg(feature = "postgres")]
    Postgres(&'a PostgresStore),
    /// A database of a MySQL or MariaDB server.
    #[cfg(feature = "mysql")]
    MySql(&'a MySqlStore),
}

impl CopyEnd<'_> {
    async fn open(self) -> Result<Box<dyn End>, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.copy_end().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.copy_end().await,
            #[cfg(feature = "mysql")]
            Self::MySql(store) => store.copy_end().await,
        }
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub step: Step,
    /// With which table.
    pub table: Table,
    /// How many of its rows have been dealt with in this step.
    pub rows: u64,
}

/// What a copy is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// It looks for what stands in the way.
    Looking,
    /// It adds what is missing.
    Adding,
    /// It compares both ends.
    Comparing,
}

/// Copies all that a store holds into another one: receipts with their results and requests, messages with their attempts,
/// endpoints with their settings. Secrets are not in a store, only where they are found.
///
/// Every row is carried as it is, with its number. So those of one ordering key stay in their order, a repeat of an event is
/// answered with the stored result, and a message that is pending is delivered once, by whoever works on the target. The new
/// rows of the target are numbered behind the copied ones.
///
/// **Stop all that uses the source**, for good: what is owed stands in both stores afterwards, and would be run by both. A copy is
/// refused while a lease is held, since the end of that run would be written to the source alone, and the event run once
/// more by the target. A lease that has ended goes along as it is: its event is claimed at the target as it would have
/// been at the source.
///
/// A copy adds rows and changes none. One that was interrupted can be begun again; what the target has already is compared. Other
/// rows in the target are a reason to refuse, before anything is written. The source is only read, as it was at one moment; that
/// it did not change meanwhile is found out at the end.
///
/// Sagas are not carried: a store that holds some is refused.
///
/// What an append to a history left behind without its message, or receipt, is reached by nobody, and is not carried.
///
/// `told` hears how far it is.
///
/// # Errors
///
/// [`CopyError`] says what stood in the way.
///
/// # Cancel safety
///
/// May be dropped: what was added stays, and the copy can be begun again.
///
/// ```
/// # use countersign::store::SqliteStore;
/// # use countersign::store::copy::{CopyEnd, CopyError, copy};
/// # async fn example(old: SqliteStore, new: SqliteStore) -> Result<(), CopyError> {
/// let copied = copy(CopyEnd::Sqlite(&old), CopyEnd::Sqlite(&new), |_| ()).await?;
/// println!("{} rows were added, and {} are there", copied.added, copied.survey.rows());
/// # Ok(())
/// # }
/// ```
pub async fn copy(
    from: CopyEnd<'_>,
    to: CopyEnd<'_>,
    mut told: impl FnMut(Progress) + Send,
) -> Result<Copied, CopyError> {
    let mut source = from.open().await.map_err(CopyError::Source)?;
    let mut target = to.open().await.map_err(CopyError::Target)?;
    let before = hold_against(&mut *source, Some(&mut *target), Step::Looking, &mut told).await?;
    if before.running.events > 0 || before.running.messages > 0 {
        return Err(CopyError::Running(before.running));
    }
    if before.foreign() > 0 || before.differing() > 0 {
        return Err(CopyError::Unlike(Box::new(before)));
    }
    if before.unfit() > 0 {
        return Err(CopyError::Unfit(Box::new(before)));
    }
    let mut added = 0;
    for table in Table::ALL {
        added += add_missing(table, &mut *source, &mut *target, &mut told).await?;
        target.number_behind(table).await.map_err(CopyError::Target)?;
    }
    // As it is now, and not as it was: what it looked like before need not be kept any longer.
    drop(source);
    let mut source = from.open().await.map_err(CopyError::Source)?;
    let survey = hold_against(&mut *source, Some(&mut *target), Step::Comparing, &mut told).await?;
    if survey.missing() > 0 || survey.differing() > 0 || survey.foreign() > 0 {
        return Err(CopyError::Changed(Box::new(survey)));
    }
    Ok(Copied { added, survey })
}

/// Holds two stores against each other, and changes neither: what [`copy`] would find. Without a target, the source alone.
///
/// # Errors
///
/// [`CopyError::Source`] or [`CopyError::Target`], where one cannot be read.
///
/// # Cancel safety
///
/// May be dropped: it only reads.
pub async fn survey(
    from: CopyEnd<'_>,
    to: Option<CopyEnd<'_>>,
    mut told: impl FnMut(Progress) + Send,
) -> Result<Survey, CopyError> {
    let mut source = from.open().await.map_err(CopyError::Source)?;
    let Some(to) = to else { return hold_against(&mut *source, None, Step::Looking, &mut told).await };
    let mut target = to.open().await.map_err(CopyError::Target)?;
    hold_against(&mut *source, Some(&mut *target), Step::Looking, &mut told).await
}

async fn hold_against(
    source: &mut AnyEnd,
    mut target: Option<&mut AnyEnd>,
    step: Step,
    told: &mut (impl FnMut(Progress) + Send),
) -> Result<Survey, CopyError> {
    let now = source.snapshot().await.map_err(CopyError::Source)?;
    let running = source.running(now).await.map_err(CopyError::Source)?;
    match source.sagas().await.map_err(CopyError::Source)? {
        0 => {}
        sagas => return Err(CopyError::Sagas(sagas.unsigned_abs())),
    }
    let mut survey = Survey { running, ..Survey::default() };
    for table in Table::ALL {
        let mut counts = TableSurvey::of(table);
        let mut walk = Walk::of(table, source, target.as_deref_mut());
        while let Some(meeting) = walk.next().await? {
            survey.note(&mut counts, &meeting, walk.target());
            told(Progress { step, table, rows: counts.rows });
        }
        survey.tables.push(counts);
    }
    Ok(survey)
}

/// How many rows were added.
async fn add_missing(
    table: Table,
    source: &mut AnyEnd,
    target: &mut AnyEnd,
    told: &mut (impl FnMut(Progress) + Send),
) -> Result<u64, CopyError> {
    let (mut rows, mut added) = (0, 0);
    let (mut waiting, mut size) = (Vec::new(), 0);
    let mut walk = Walk::of(table, source, Some(target));
    while let Some(meeting) = walk.next().await? {
        rows += 1;
        if let Meeting::Missing(row) = meeting {
            added += 1;
            size += row.size();
            waiting.push(row);
        }
        if waiting.len() >= BATCH_ROWS || size >= BATCH_BYTES {
            walk.add(&waiting).await?;
            waiting.clear();
            size = 0;
        }
        told(Progress { step: Step::Adding, table, rows });
    }
    walk.add(&waiting).await?;
    Ok(added)
}

/// From how many rows on they are added.
const BATCH_ROWS: usize = 500;

/// From how many bytes on no more rows are waited for.
const BATCH_BYTES: usize = 4 << 20;
