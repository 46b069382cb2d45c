//! A MySQL or MariaDB database as one end of a copy.

use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{Connection as _, MySql, Row as _};

use super::super::copy::end::{End, PAGE_ROWS, Running, page_of};
use super::super::copy::row::{Cell, Place, Row};
use super::super::copy::table::{Column, Kind, Table, columns};
use super::super::fault::{Fault, corrupt, unavailable};
use super::super::transactor::Done;
use super::{MySqlStore, fault, migrate};
use crate::Timestamp;
use crate::store::{StoreError, StoreFuture};

impl MySqlStore {
    /// On a connection of its own: a copy must not keep others from reading.
    pub(in crate::store::sql) async fn copy_end(&self) -> Result<Box<dyn End>, StoreError> {
        let failed = |error| unavailable("connecting for a copy", error);
        let mut connection = self.0.pool.acquire().await.map_err(failed)?.detach();
        migrate::prepare(&mut connection).await.map_err(failed)?;
        sqlx::raw_sql(AS_IT_IS).execute(&mut connection).await.map_err(failed)?;
        Ok(Box::new(Server { connection }))
    }
}

struct Server {
    connection: MySqlConnection,
}

impl End for Server {
    fn snapshot(&mut self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move {
            let failed = |error| unavailable("opening a snapshot of the database", error);
            let rows = sqlx::raw_sql(SNAPSHOT).fetch_all(&mut self.connection).await.map_err(failed)?;
            let now = rows.last().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get("now"));
            now.map(Timestamp::from_micros).map_err(failed)
        })
    }

    fn running(&mut self, now: Timestamp) -> StoreFuture<'_, Running> {
        Box::pin(async move {
            let query = sqlx::query(RUNNING).bind(now.as_micros()).fetch_one(&mut self.connection);
            let row = query.await.map_err(|error| unavailable("looking for what is being run", error))?;
            let count = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(|error| corrupt(&error));
            let until: Option<i64> = row.try_get("until").map_err(|error| corrupt(&error))?;
            Ok(Running {
                events: count("events")?,
                messages: count("messages")?,
                until: until.map(Timestamp::from_micros),
            })
        })
    }

    fn sagas(&mut self) -> StoreFuture<'_, i64> {
        Box::pin(async move {
            let counted = sqlx::query_scalar(SAGAS).fetch_one(&mut self.connection).await;
            counted.map_err(|error| unavailable("counting sagas", error))
        })
    }

    fn rows(&mut self, table: Table, from: Place) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async move {
            let failed = |error| unavailable("reading rows to copy", error);
            let sizes = placed(sizes(table), table, from).bind(PAGE_ROWS);
            let sizes = sizes.fetch_all(&mut self.connection).await.map_err(failed)?;
            let sizes = sizes.iter().map(|row| row.try_get(0)).collect::<Done<Vec<i64>>>().map_err(failed)?;
            let page = i64::try_from(page_of(sizes)).unwrap_or(PAGE_ROWS);
            let rows = placed(read(table), table, from).bind(page).fetch_all(&mut self.connection).await;
            rows.map_err(failed)?.iter().map(|row| row_of(row, table)).collect::<Done<_>>().map_err(failed)
        })
    }

    fn insert<'a>(&'a mut self, table: Table, rows: &'a [Row]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            insert(&mut self.connection, table, rows).await.map_err(|error| match fault::of(&error) {
                Fault::Row => StoreError::Rejected(error.to_string()),
                Fault::Busy | Fault::Connection => unavailable("adding rows of a copy", error),
            })
        })
    }

    /// MySQL numbers behind the largest by itself.
    fn number_behind(&mut self, _table: Table) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn misfit(&self, column: &Column, cell: &Cell) -> Option<&'static str> {
        let Cell::Bytes(bytes) = cell else { return None };
        match column.kind {
            Kind::Name if bytes.len() > 255 => Some("has more than 255 bytes, and MySQL keeps no more there"),
            Kind::Prose if bytes.len() > 65_535 => Some("has more than 65,535 bytes, and MySQL keeps no more there"),
            Kind::Prose if std::str::from_utf8(bytes).is_err() => Some("is not UTF-8, which MySQL asks of text"),
            Kind::Text | Kind::Block if bytes.len() >= 1 << 24 => {
                Some("has 16 MiB or more, and MySQL keeps less there")
            }
            _ => None,
        }
    }
}

/// All of them or none. One by one: together they might be more than the server takes in one packet.
async fn insert(connection: &mut MySqlConnection, table: Table, rows: &[Row]) -> Done {
    let mut transaction = connection.begin().await?;
    for row in rows {
        let mut query = sqlx::query(add(table));
        for (column, cell) in table.columns().iter().zip(&row.0) {
            query = match cell {
                Cell::Null => query.bind(None::<i64>),
                Cell::Number(number) => query.bind(*number),
                Cell::Bytes(bytes) if column.kind == Kind::Prose => {
                    let text = String::from_utf8(bytes.clone());
                    query.bind(text.map_err(|error| sqlx::Error::Encode(Box::new(error)))?)
                }
                Cell::Bytes(bytes) => query.bind(bytes.clone()),
            };
        }
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

fn row_of(row: &MySqlRow, table: Table) -> Done<Row> {
    let cell = |(at, column): (usize, &Column)| {
        let found = match column.kind {
            Kind::Number => row.try_get::<Option<i64>, _>(at)?.map(Cell::Number),
            Kind::Flag => row.try_get::<Option<bool>, _>(at)?.map(|flag| Cell::Number(flag.into())),
            _ => row.try_get_unchecked::<Option<Vec<u8>>, _>(at)?.map(Cell::Bytes),
        };
        Ok(found.unwrap_or(Cell::Null))
    };
    table.columns().iter().enumerate().map(cell).collect::<Done<_>>().map(Row)
}

/// A statement that reads from a place on.
fn placed(statement: &'static str, table: Table, from: Place) -> Query<'static, MySql, MySqlArguments> {
    let query = sqlx::query(statement).bind(from.0);
    if table.is_history() { query.bind(from.0).bind(from.1) } else { query }
}

/// A number that is 0 is one, and not asked to be made up.
const AS_IT_IS: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'";

const SNAPSHOT: &str = "\
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now";

const SAGAS: &str = "SELECT count(*) FROM countersign_saga";

const RUNNING: &str = "\
SELECT CAST(coalesce(sum(is_event), 0) AS SIGNED) AS events, CAST(coalesce(sum(1 - is_event), 0) AS SIGNED) AS messages,
    max(until) AS until
FROM (
    SELECT 1 AS is_event, lease_until AS until FROM countersign_inbox WHERE state = 'processing'
    UNION ALL
    SELECT 0, due FROM countersign_outbox WHERE state = 'delivering') AS run
WHERE until > ?";

/// How large rows are.
const fn sizes(table: Table) -> &'static str {
    match table {
        Table::Endpoint => {
            "SELECT CAST(length(settings) AS SIGNED) FROM countersign_endpoint WHERE id >= ? ORDER BY id LIMIT ?"
        }
        Table::Inbox => {
            "SELECT CAST(coalesce(length(result_body), 0) + coalesce(length(request_body), 0)
                 + coalesce(length(request_headers), 0) AS SIGNED)
             FROM countersign_inbox WHERE id >= ? ORDER BY id LIMIT ?"
        }
        Table::InboxFailure => {
            "SELECT CAST(length(error) AS SIGNED) FROM countersign_inbox_failure AS failure
             WHERE receipt >= ? AND (receipt > ? OR seq >= ?)
                 AND EXISTS (SELECT 1 FROM countersign_inbox AS inbox WHERE inbox.id = failure.receipt)
             ORDER BY receipt, seq LIMIT ?"
        }
        Table::Outbox => {
            "SELECT CAST(length(payload) AS SIGNED) FROM countersign_outbox WHERE id >= ? ORDER BY id LIMIT ?"
        }
        Table::Attempt => {
            "SELECT CAST(length(headers) + length(body) AS SIGNED) FROM countersign_attempt AS attempt
             WHERE message >= ? AND (message > ? OR seq >= ?)
                 AND EXISTS (SELECT 1 FROM countersign_outbox AS outbox WHERE outbox.id = attempt.message)
             ORDER BY message, seq LIMIT ?"
        }
    }
}

const fn read(table: Table) -> &'static str {
    match table {
        Table::Endpoint => {
            concat!("SELECT ", columns!(endpoint), " FROM countersign_endpoint WHERE id >= ? ORDER BY id LIMIT ?")
        }
        Table::Inbox => {
            concat!("SELECT ", columns!(inbox "`key`"), " FROM countersign_inbox WHERE id >= ? ORDER BY id LIMIT ?")
        }
        Table::InboxFailure => concat!(
            "SELECT ",
            columns!(inbox_failure),
            " FROM countersign_inbox_failure AS failure
             WHERE receipt >= ? AND (receipt > ? OR seq >= ?)
                 AND EXISTS (SELECT 1 FROM countersign_inbox AS inbox WHERE inbox.id = failure.receipt)
             ORDER BY receipt, seq LIMIT ?"
        ),
        Table::Outbox => {
            concat!("SELECT ", columns!(outbox), " FROM countersign_outbox WHERE id >= ? ORDER BY id LIMIT ?")
        }
        Table::Attempt => concat!(
            "SELECT ",
            columns!(attempt),
            " FROM countersign_attempt AS attempt
             WHERE message >= ? AND (message > ? OR seq >= ?)
                 AND EXISTS (SELECT 1 FROM countersign_outbox AS outbox WHERE outbox.id = attempt.message)
             ORDER BY message, seq LIMIT ?"
        ),
    }
}

const fn add(table: Table) -> &'static str {
    match table {
        Table::Endpoint => concat!(
            "INSERT INTO countersign_endpoint (",
            columns!(endpoint),
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id"
        ),
        Table::Inbox => concat!(
            "INSERT INTO countersign_inbox (",
            columns!(inbox "`key`"),
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id"
        ),
        Table::InboxFailure => concat!(
            "INSERT INTO countersign_inbox_failure (",
            columns!(inbox_failure),
            ") VALUES (?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE receipt = receipt"
        ),
        Table::Outbox => concat!(
            "INSERT INTO countersign_outbox (",
            columns!(outbox),
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id"
        ),
        Table::Attempt => concat!(
            "INSERT INTO countersign_attempt (",
            columns!(attempt),
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE message = message"
        ),
    }
}
