//! A file as one end of a copy.

use std::sync::Arc;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _, Sqlite};

use super::super::copy::end::{End, PAGE_ROWS, Running, page_of};
use super::super::copy::row::{Cell, Place, Row};
use super::super::copy::table::{Column, Kind, Table, columns};
use super::super::fault::{Fault, corrupt, unavailable};
use super::super::transactor::Done;
use super::{SqliteStore, fault};
use crate::store::{StoreError, StoreFuture};
use crate::{Clock, Timestamp};

impl SqliteStore {
    /// On a connection of its own: a copy must not keep others from reading.
    pub(in crate::store::sql) async fn copy_end(&self) -> Result<Box<dyn End>, StoreError> {
        let failed = |error| unavailable("opening the file for a copy", error);
        let mut connection = self.0.readers.acquire().await.map_err(failed)?.detach();
        sqlx::raw_sql("PRAGMA query_only = OFF; PRAGMA cache_size = -32768")
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        Ok(Box::new(File { connection, clock: Arc::clone(&self.0.clock) }))
    }
}

struct File {
    connection: SqliteConnection,
    clock: Arc<dyn Clock>,
}

impl End for File {
    fn snapshot(&mut self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move {
            // The first read of the transaction fixes what all others see.
            let begun = sqlx::raw_sql("BEGIN; SELECT count(*) FROM countersign_schema").execute(&mut self.connection);
            begun.await.map_err(|error| unavailable("opening a snapshot of the file", error))?;
            Ok(self.clock.now())
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

    /// SQLite numbers behind the largest by itself.
    fn number_behind(&mut self, _table: Table) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// It holds whatever another one does.
    fn misfit(&self, _column: &Column, _cell: &Cell) -> Option<&'static str> {
        None
    }
}

/// All of them or none.
async fn insert(connection: &mut SqliteConnection, table: Table, rows: &[Row]) -> Done {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for row in rows {
        let bind = |query: Query<'static, Sqlite, SqliteArguments>, cell: &Cell| match cell {
            Cell::Null => query.bind(None::<i64>),
            Cell::Number(number) => query.bind(*number),
            Cell::Bytes(bytes) => query.bind(bytes.clone()),
        };
        let query = row.0.iter().fold(sqlx::query(add(table)), bind);
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

fn row_of(row: &SqliteRow, table: Table) -> Done<Row> {
    let cell = |(at, column): (usize, &Column)| {
        let found = match column.kind {
            Kind::Number | Kind::Flag => row.try_get::<Option<i64>, _>(at)?.map(Cell::Number),
            _ => row.try_get_unchecked::<Option<Vec<u8>>, _>(at)?.map(Cell::Bytes),
        };
        Ok(found.unwrap_or(Cell::Null))
    };
    table.columns().iter().enumerate().map(cell).collect::<Done<_>>().map(Row)
}

/// A statement that reads from a place on.
fn placed(statement: &'static str, table: Table, from: Place) -> Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(statement).bind(from.0);
    if table.is_history() { query.bind(from.1) } else { query }
}

const SAGAS: &str = "SELECT count(*) FROM countersign_saga";

const RUNNING: &str = "\
SELECT count(*) FILTER (WHERE is_event) AS events, count(*) FILTER (WHERE NOT is_event) AS messages, max(until) AS until
FROM (
    SELECT 1 AS is_event, lease_until AS until FROM countersign_inbox WHERE state = 'processing'
    UNION ALL
    SELECT 0, due FROM countersign_outbox WHERE state = 'delivering')
WHERE until > ?1";

/// How large rows are, whose bodies SQLite need not read for it.
const fn sizes(table: Table) -> &'static str {
    match table {
        Table::Endpoint => "SELECT length(settings) FROM countersign_endpoint WHERE id >= ?1 ORDER BY id LIMIT ?2",
        Table::Inbox => {
            "SELECT coalesce(octet_length(result_body), 0) + coalesce(octet_length(request_body), 0) \
             + coalesce(octet_length(request_headers), 0)
             FROM countersign_inbox WHERE id >= ?1 ORDER BY id LIMIT ?2"
        }
        Table::InboxFailure => {
            "SELECT octet_length(error) FROM countersign_inbox_failure
             WHERE (receipt, seq) >= (?1, ?2) ORDER BY receipt, seq LIMIT ?3"
        }
        Table::Outbox => "SELECT octet_length(payload) FROM countersign_outbox WHERE id >= ?1 ORDER BY id LIMIT ?2",
        Table::Attempt => {
            "SELECT octet_length(headers) + octet_length(body) FROM countersign_attempt
             WHERE (message, seq) >= (?1, ?2) ORDER BY message, seq LIMIT ?3"
        }
    }
}

const fn read(table: Table) -> &'static str {
    match table {
        Table::Endpoint => {
            concat!("SELECT ", columns!(endpoint), " FROM countersign_endpoint WHERE id >= ?1 ORDER BY id LIMIT ?2")
        }
        Table::Inbox => {
            concat!("SELECT ", columns!(inbox "key"), " FROM countersign_inbox WHERE id >= ?1 ORDER BY id LIMIT ?2")
        }
        Table::InboxFailure => concat!(
            "SELECT ",
            columns!(inbox_failure),
            " FROM countersign_inbox_failure WHERE (receipt, seq) >= (?1, ?2) ORDER BY receipt, seq LIMIT ?3"
        ),
        Table::Outbox => {
            concat!("SELECT ", columns!(outbox), " FROM countersign_outbox WHERE id >= ?1 ORDER BY id LIMIT ?2")
        }
        Table::Attempt => concat!(
            "SELECT ",
            columns!(attempt),
            " FROM countersign_attempt WHERE (message, seq) >= (?1, ?2) ORDER BY message, seq LIMIT ?3"
        ),
    }
}

/// Text comes as bytes: SQLite does not hold it to be UTF-8.
const fn add(table: Table) -> &'static str {
    match table {
        Table::Endpoint => concat!(
            "INSERT INTO countersign_endpoint (",
            columns!(endpoint),
            ") VALUES (?1, CAST(?2 AS TEXT), CAST(?3 AS TEXT), CAST(?4 AS TEXT), CAST(?5 AS TEXT), CAST(?6 AS TEXT), ?7, \
             CAST(?8 AS TEXT), CAST(?9 AS TEXT), ?10, ?11, ?12, ?13, ?14, ?15) ON CONFLICT DO NOTHING"
        ),
        Table::Inbox => concat!(
            "INSERT INTO countersign_inbox (",
            columns!(inbox "key"),
            ") VALUES (?1, CAST(?2 AS TEXT), CAST(?3 AS TEXT), CAST(?4 AS TEXT), CAST(?5 AS TEXT), CAST(?6 AS TEXT), ?7, ?8, \
             CAST(?9 AS TEXT), ?10, ?11, ?12, ?13, ?14, CAST(?15 AS TEXT), ?16, ?17, CAST(?18 AS TEXT), CAST(?19 AS TEXT), ?20, \
             ?21, ?22, CAST(?23 AS TEXT), CAST(?24 AS TEXT), ?25, ?26, CAST(?27 AS TEXT)) ON CONFLICT DO NOTHING"
        ),
        Table::InboxFailure => concat!(
            "INSERT INTO countersign_inbox_failure (",
            columns!(inbox_failure),
            ") VALUES (?1, ?2, ?3, ?4, ?5, CAST(?6 AS TEXT)) ON CONFLICT DO NOTHING"
        ),
        Table::Outbox => concat!(
            "INSERT INTO countersign_outbox (",
            columns!(outbox),
            ") VALUES (?1, CAST(?2 AS TEXT), CAST(?3 AS TEXT), CAST(?4 AS TEXT), CAST(?5 AS TEXT), ?6, CAST(?7 AS TEXT), \
             CAST(?8 AS TEXT), CAST(?9 AS TEXT), ?10, CAST(?11 AS TEXT), CAST(?12 AS TEXT), ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
             ?20, ?21, ?22, CAST(?23 AS TEXT), CAST(?24 AS TEXT)) ON CONFLICT DO NOTHING"
        ),
        Table::Attempt => concat!(
            "INSERT INTO countersign_attempt (",
            columns!(attempt),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, CAST(?10 AS TEXT), CAST(?11 AS TEXT)) ON CONFLICT DO NOTHING"
        ),
    }
}
