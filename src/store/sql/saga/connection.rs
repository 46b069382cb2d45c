//! Sagas on a connection of the caller's.

use std::future::Future;

use sqlx::Connection as _;

use super::super::fault::{Fault, unavailable};
use super::row;
use crate::store::{OutboxConnection, SagaEntry, SagaKey, SagaStep, SqlConnection, StoreError};
use crate::{Name, Timestamp};

/// A connection of `sqlx`'s to a database in which sagas live, beside inbox and outbox: those that are an
/// [`OutboxConnection`]. A transaction is reached through: `&mut *transaction`.
///
/// What moves a saga is in the module [`saga`](crate::saga). Here is what operators ask. Nothing else can implement it.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: &sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use countersign::store::SagaConnection;
/// use countersign::{Clock, Name, SystemClock};
///
/// // Where is it stuck?
/// let an_hour_ago = SystemClock.now().saturating_sub(Duration::from_secs(3_600));
/// let mut connection = pool.acquire().await?;
/// for stuck in connection.open_sagas(&Name::new("order")?, an_hour_ago, 100).await? {
///     println!("{} at {:?} since {}", stuck.key.instance, stuck.step, stuck.moved);
/// }
/// # Ok(())
/// # }
/// ```
pub trait SagaConnection: SqlConnection + OutboxConnection + SagaWrites {
    /// Where an instance stands.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed, [`StoreError::Corrupt`] where the row cannot be read.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn find_saga(&mut self, key: &SagaKey) -> impl Future<Output = Result<Option<SagaEntry>, StoreError>> + Send;

    /// All that an instance has answered, in order.
    ///
    /// # Errors
    ///
    /// As [`find_saga`](Self::find_saga).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn saga_steps(&mut self, key: &SagaKey) -> impl Future<Output = Result<Vec<SagaStep>, StoreError>> + Send;

    /// Instances that have no end and have not moved since a moment, the one that has not moved for longest first; at most
    /// `limit`. One that cannot be read is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn open_sagas(
        &mut self,
        saga: &Name,
        unmoved_since: Timestamp,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<SagaEntry>, StoreError>> + Send;

    /// The sagas of which there is an instance, by name.
    ///
    /// # Errors
    ///
    /// As [`find_saga`](Self::find_saga).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    fn saga_names(&mut self) -> impl Future<Output = Result<Vec<Name>, StoreError>> + Send;

    /// Forgets instances that ended before a moment, with their history; at most `limit`. Returns how many.
    ///
    /// An event that comes after that finds none, as if there had never been one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] where the database failed.
    ///
    /// # Cancel safety
    ///
    /// In a transaction, roll that back. Without one, what has been forgotten stays so.
    fn purge_sagas(
        &mut self,
        ended_before: Timestamp,
        limit: u32,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// What the module `saga` needs. Nobody else can name it.
pub trait SagaWrites: Send {
    /// The moment, by the database's clock; on SQLite, by the system's.
    fn saga_clock(&mut self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// Where an instance stands; nobody else moves it before this transaction ends.
    fn lock_saga(&mut self, key: &SagaKey) -> impl Future<Output = Result<Option<SagaEntry>, StoreError>> + Send;

    /// Writes where an instance stands now, and what it has answered. `false`, and the transaction must be rolled back, where
    /// it is not at the version `before` any more, or, for 0, is there already.
    fn save_saga(
        &mut self,
        before: u64,
        entry: &SagaEntry,
        steps: &[SagaStep],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

fn failed(fault: fn(&sqlx::Error) -> Fault, doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| match fault(&error) {
        Fault::Row => StoreError::Rejected(error.to_string()),
        Fault::Busy | Fault::Connection => unavailable(doing, error),
    }
}

/// Numbers that are counted up from 1 fit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `$text` is how a text is bound: MySQL keeps it as bytes. `$prepared`: behind a pooler of PostgreSQL's nothing is prepared
/// by name. `$looks_first`: under MySQL's usual isolation, to lock a row that is not there locks the gap in which it would be,
/// and all others that begin there wait, or wait for each other.
macro_rules! saga_connection {
    ($connection:ty, $database:ident, $text:ident, $prepared:literal, $looks_first:literal, $clock:ident) => {
        impl SagaConnection for $connection {
            async fn find_saga(&mut self, key: &SagaKey) -> Result<Option<SagaEntry>, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let query = sqlx::query(statements::FIND).persistent($prepared);
                let query = query.bind($text(key.saga.as_str())).bind($text(key.instance.as_str()));
                let found = query.fetch_optional(&mut *self).await.map_err(failed(fault::of, "looking for a saga"))?;
                found.as_ref().map(row::entry).transpose()
            }

            async fn saga_steps(&mut self, key: &SagaKey) -> Result<Vec<SagaStep>, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let query = sqlx::query(statements::STEPS).persistent($prepared);
                let query = query.bind($text(key.saga.as_str())).bind($text(key.instance.as_str()));
                let found = query.fetch_all(&mut *self).await.map_err(failed(fault::of, "reading a saga's history"))?;
                found.iter().map(row::step).collect()
            }

            async fn open_sagas(
                &mut self,
                saga: &Name,
                unmoved_since: Timestamp,
                limit: u32,
            ) -> Result<Vec<SagaEntry>, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let query = sqlx::query(statements::OPEN).persistent($prepared).bind($text(saga.as_str()));
                let query = query.bind(unmoved_since.as_micros()).bind(i64::from(limit));
                let found = query.fetch_all(&mut *self).await.map_err(failed(fault::of, "listing sagas"))?;
                Ok(row::readable(&found))
            }

            async fn saga_names(&mut self) -> Result<Vec<Name>, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let mut names: Vec<Name> = Vec::new();
                loop {
                    let last = names.last().map(|name| name.as_str().to_owned()).unwrap_or_default();
                    let query = sqlx::query(statements::NEXT_NAME).persistent($prepared).bind($text(&last));
                    let found = query.fetch_optional(&mut *self).await;
                    let Some(found) = found.map_err(failed(fault::of, "listing sagas"))? else { return Ok(names) };
                    names.push(row::saga(&found)?);
                }
            }

            async fn purge_sagas(&mut self, ended_before: Timestamp, limit: u32) -> Result<u64, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let query = sqlx::query(statements::ENDED).persistent($prepared);
                let query = query.bind(ended_before.as_micros()).bind(i64::from(limit));
                let found = query.fetch_all(&mut *self).await.map_err(failed(fault::of, "purging sagas"))?;
                let mut purged = 0;
                for key in found.iter().map(row::key) {
                    let SagaKey { saga, instance } = key?;
                    // A late event may have taken it up again since it was found: then it is not over.
                    let mut both = self.begin().await.map_err(failed(fault::of, "purging sagas"))?;
                    let query = sqlx::query(statements::FORGET).persistent($prepared);
                    let query = query.bind($text(saga.as_str())).bind($text(instance.as_str()));
                    let query = query.bind(ended_before.as_micros());
                    let gone = query.execute(&mut *both).await.map_err(failed(fault::of, "purging sagas"))?;
                    if gone.rows_affected() == 1 {
                        let query = sqlx::query(statements::FORGET_STEPS).persistent($prepared);
                        let query = query.bind($text(saga.as_str())).bind($text(instance.as_str()));
                        query.execute(&mut *both).await.map_err(failed(fault::of, "purging sagas"))?;
                        purged += 1;
                    }
                    both.commit().await.map_err(failed(fault::of, "purging sagas"))?;
                }
                Ok(purged)
            }
        }

        impl SagaWrites for $connection {
            async fn saga_clock(&mut self) -> Result<Timestamp, StoreError> {
                $clock(self).await
            }

            async fn lock_saga(&mut self, key: &SagaKey) -> Result<Option<SagaEntry>, StoreError> {
                use super::super::$database::{fault, saga as statements};
                if $looks_first && self.find_saga(key).await?.is_none() {
                    return Ok(None);
                }
                let query = sqlx::query(statements::LOCK).persistent($prepared);
                let query = query.bind($text(key.saga.as_str())).bind($text(key.instance.as_str()));
                let found = query.fetch_optional(&mut *self).await.map_err(failed(fault::of, "taking up a saga"))?;
                found.as_ref().map(row::entry).transpose()
            }

            async fn save_saga(
                &mut self,
                before: u64,
                entry: &SagaEntry,
                steps: &[SagaStep],
            ) -> Result<bool, StoreError> {
                use super::super::$database::{fault, saga as statements};
                let SagaKey { saga, instance } = &entry.key;
                let (version, step) = (signed(entry.version), entry.step.as_ref().map(|step| $text(step.as_str())));
                let (moved, ended) = (entry.moved.as_micros(), entry.ended.map(Timestamp::as_micros));
                let saved = if before == 0 {
                    let query = sqlx::query(statements::BEGIN).persistent($prepared);
                    let query = query.bind($text(saga.as_str())).bind($text(instance.as_str())).bind(version);
                    let query = query.bind(step).bind($text(entry.body.as_str())).bind(entry.created.as_micros());
                    query.bind(moved).bind(ended).execute(&mut *self).await
                } else {
                    let query = sqlx::query(statements::MOVE).persistent($prepared).bind(version).bind(step);
                    let query = query.bind($text(entry.body.as_str())).bind(moved).bind(ended);
                    let query = query.bind($text(saga.as_str())).bind($text(instance.as_str()));
                    query.bind(signed(before)).execute(&mut *self).await
                };
                match saved {
                    Ok(saved) if saved.rows_affected() == 1 => {}
                    Ok(_) => return Ok(false),
                    Err(sqlx::Error::Database(error)) if error.is_unique_violation() => return Ok(false),
                    Err(error) => return Err(failed(fault::of, "moving a saga")(error)),
                }
                for step in steps {
                    let sent =
                        serde_json::to_string(&step.sent).map_err(|error| StoreError::Rejected(error.to_string()))?;
                    let query = sqlx::query(statements::NOTE).persistent($prepared);
                    let query = query.bind($text(saga.as_str())).bind($text(instance.as_str()));
                    let query = query.bind(signed(step.number)).bind(step.at.as_micros());
                    let query = query.bind($text(step.event_id.as_str())).bind($text(step.event_type.as_str()));
                    let query = query.bind($text(step.answer.as_str()));
                    let query = query.bind(step.from.as_ref().map(|step| $text(step.as_str())));
                    let query = query.bind(step.to.as_ref().map(|step| $text(step.as_str())));
                    let query = query.bind(step.reason.as_ref().map(|reason| $text(reason.as_str())));
                    let query = query.bind($text(sent.as_str()));
                    query.execute(&mut *self).await.map_err(failed(fault::of, "noting a saga's step"))?;
                }
                Ok(true)
            }
        }
    };
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
const fn plain(text: &str) -> &str {
    text
}

#[cfg(feature = "mysql")]
const fn bytes(text: &str) -> &[u8] {
    text.as_bytes()
}

/// The clock of this database is the system's.
#[cfg(feature = "sqlite")]
async fn system_clock(_: &mut sqlx::SqliteConnection) -> Result<Timestamp, StoreError> {
    use crate::clock::{Clock as _, SystemClock};
    Ok(SystemClock.now())
}

#[cfg(feature = "postgres")]
async fn postgres_clock(connection: &mut sqlx::PgConnection) -> Result<Timestamp, StoreError> {
    use super::super::postgres::{CLOCK, fault};
    use sqlx::Row as _;
    let found = sqlx::query(CLOCK).persistent(false).fetch_one(connection).await;
    let now = found.and_then(|row| row.try_get("now"));
    now.map(Timestamp::from_micros).map_err(failed(fault::of, "asking for the time"))
}

#[cfg(feature = "mysql")]
async fn mysql_clock(connection: &mut sqlx::MySqlConnection) -> Result<Timestamp, StoreError> {
    use super::super::mysql::{CLOCK, fault};
    use sqlx::Row as _;
    let found = sqlx::query(CLOCK).fetch_one(connection).await;
    let now = found.and_then(|row| row.try_get("now"));
    now.map(Timestamp::from_micros).map_err(failed(fault::of, "asking for the time"))
}

#[cfg(feature = "sqlite")]
saga_connection!(sqlx::SqliteConnection, sqlite, plain, true, false, system_clock);
#[cfg(feature = "postgres")]
saga_connection!(sqlx::PgConnection, postgres, plain, false, false, postgres_clock);
#[cfg(feature = "mysql")]
saga_connection!(sqlx::MySqlConnection, mysql, bytes, true, true, mysql_clock);
