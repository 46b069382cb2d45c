//! A PostgreSQL database as one end of a copy.

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, Postgres, Row as _};

use super::super::copy::end::{End, PAGE_ROWS, Running, page_of};
use super::super::copy::row::{Cell, Place, Row};
use super::super::copy::table::{Column, Kind, Table, columns};
use super::super::fault::{Fault, corrupt, unavailable};
use super::super::transactor::Done;
use super::{PostgresStore, fault, statements};
use crate::Timestamp;
use crate::store::{StoreError, StoreFuture};

impl PostgresStore {
    /// On a connection of its own: a copy must not keep others from reading.
    pub(in crate::store::sql) async fn copy_end(&self) -> Result<Box<dyn End>, StoreError> {
        let connected = self.0.reader.pool.acquire().await;
        let connection = connected.map_err(|error| unavailable("connecting for a copy", error))?.detach();
        Ok(Box::new(Server { connection, prepared: self.0.reader.prepared, in_snapshot: false }))
    }
}

struct Server {
    connection: PgConnection,
    prepared: bool,
    in_snapshot: bool,
}

impl End for Server {
    fn snapshot(&mut self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move {
            let failed = |error| unavailable("opening a snapshot of the database", error);
            let rows = sqlx::raw_sql(SNAPSHOT).fetch_all(&mut self.connection).await.map_err(failed)?;
            self.in_snapshot = true;
            let now = rows.last().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get("now"));
            now.map(Timestamp::from_micros).map_err(failed)
        })
    }

    fn running(&mut self, now: Timestamp) -> StoreFuture<'_, Running> {
        Box::pin(async move {
            let query = sqlx::query(RUNNING).persistent(self.prepared).bind(now.as_micros());
            let row = query.fetch_one(&mut self.connection).await;
            let row = row.map_err(|error| unavailable("looking for what is being run", error))?;
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
            let counted = sqlx::query_scalar(SAGAS).persistent(self.prepared).fetch_one(&mut self.connection).await;
            counted.map_err(|error| unavailable("counting sagas", error))
        })
    }

    fn rows(&mut self, table: Table, from: Place) -> StoreFuture<'_, Vec<Row>> {
        Box::pin(async move {
            // A transaction keeps a page on one connection of a pooler.
            let alone = !self.in_snapshot;
            let rows = async {
                if alone {
                    sqlx::raw_sql(statements::BEGIN_READING).execute(&mut self.connection).await?;
                }
                let rows = page(&mut self.connection, self.prepared, table, from).await?;
                if alone {
                    sqlx::raw_sql(statements::ROLLBACK).execute(&mut self.connection).await?;
                }
                Ok(rows)
            };
            rows.await.map_err(|error| unavailable("reading rows to copy", error))
        })
    }

    fn insert<'a>(&'a mut self, table: Table, rows: &'a [Row]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let inserted = insert(&mut self.connection, self.prepared, table, rows).await;
            inserted.map_err(|error| match fault::of(&error) {
                Fault::Row => StoreError::Rejected(error.to_string()),
                Fault::Busy | Fault::Connection => unavailable("adding rows of a copy", error),
            })
        })
    }

    fn number_behind(&mut self, table: Table) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let Some(statement) = number_behind(table) else { return Ok(()) };
            let set = sqlx::raw_sql(statement).execute(&mut self.connection).await;
            set.map(drop).map_err(|error| unavailable("numbering new rows behind the copied ones", error))
        })
    }

    fn misfit(&self, column: &Column, cell: &Cell) -> Option<&'static str> {
        let Cell::Bytes(bytes) = cell else { return None };
        match std::str::from_utf8(bytes) {
            _ if !column.kind.is_text() => None,
            Err(_) => Some("is not UTF-8, which PostgreSQL asks of text"),
            Ok(text) => text.contains('\0').then_some("holds a NUL character, which PostgreSQL cannot keep in text"),
        }
    }
}

async fn page(connection: &mut PgConnection, prepared: bool, table: Table, from: Place) -> Done<Vec<Row>> {
    let sizes =
        placed(sizes(table), table, from).persistent(prepared).bind(PAGE_ROWS).fetch_all(&mut *connection).await?;
    let sizes = sizes.iter().map(|row| row.try_get::<i32, _>(0).map(i64::from)).collect::<Done<Vec<_>>>()?;
    let page = i64::try_from(page_of(sizes)).unwrap_or(PAGE_ROWS);
    let rows = placed(read(table), table, from).persistent(prepared).bind(page).fetch_all(connection).await?;
    rows.iter().map(|row| row_of(row, table)).collect()
}

/// All of them or none, each column as an array.
async fn insert(connection: &mut PgConnection, prepared: bool, table: Table, rows: &[Row]) -> Done {
    let mut query = sqlx::query(add(table)).persistent(prepared);
    for (at, column) in table.columns().iter().enumerate() {
        let cells = rows.iter().map(|row| row.0.get(at).unwrap_or(&Cell::Null));
        query = match column.kind {
            Kind::Number => query.bind(cells.map(number).collect::<Vec<_>>()),
            Kind::Flag => query.bind(cells.map(|cell| number(cell).map(|number| number != 0)).collect::<Vec<_>>()),
            Kind::Name | Kind::Prose | Kind::Text => query.bind(cells.map(text).collect::<Done<Vec<_>>>()?),
            Kind::Block | Kind::Body => {
                query.bind(cells.map(|cell| bytes(cell).map(<[u8]>::to_vec)).collect::<Vec<_>>())
            }
        };
    }
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(DURABLE).execute(&mut *transaction).await?;
    query.execute(&mut *transaction).await?;
    transaction.commit().await
}

const fn number(cell: &Cell) -> Option<i64> {
    if let Cell::Number(number) = cell { Some(*number) } else { None }
}

const fn bytes(cell: &Cell) -> Option<&[u8]> {
    if let Cell::Bytes(bytes) = cell { Some(bytes.as_slice()) } else { None }
}

fn text(cell: &Cell) -> Done<Option<String>> {
    let text = bytes(cell).map(|bytes| String::from_utf8(bytes.to_vec())).transpose();
    text.map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

fn row_of(row: &PgRow, table: Table) -> Done<Row> {
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
fn placed(statement: &'static str, table: Table, from: Place) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(statement).bind(from.0);
    if table.is_history() { query.bind(from.1) } else { query }
}

/// Pages are read by their index; between two of them the other end may take its time.
const SNAPSHOT: &str = "\
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off;
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now";

/// Whatever the server's setting: what was copied is copied.
const DURABLE: &str = "\
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

const SAGAS: &str = "SELECT count(*) FROM countersign_saga";

const RUNNING: &str = "\
SELECT count(*) FILTER (WHERE is_event) AS events, count(*) FILTER (WHERE NOT is_event) AS messages, max(until) AS until
FROM (
    SELECT true AS is_event, lease_until AS until FROM countersign_inbox WHERE state = 'processing'
    UNION ALL
    SELECT false, due FROM countersign_outbox WHERE state = 'delivering') AS run
WHERE until > $1";

/// How large rows are, whose bodies need not be read for it.
const fn sizes(table: Table) -> &'static str {
    match table {
        Table::Endpoint => {
            "SELECT octet_length(settings) FROM countersign_endpoint WHERE id >= $1 ORDER BY id LIMIT $2"
        }
        Table::Inbox => {
            "SELECT coalesce(octet_length(result_body), 0) + coalesce(octet_length(request_body), 0) \
             + coalesce(octet_length(request_headers), 0)
             FROM countersign_inbox WHERE id >= $1 ORDER BY id LIMIT $2"
        }
        Table::InboxFailure => {
            "SELECT octet_length(error) FROM countersign_inbox_failure
             WHERE (receipt, seq) >= ($1, $2) ORDER BY receipt, seq LIMIT $3"
        }
        Table::Outbox => "SELECT octet_length(payload) FROM countersign_outbox WHERE id >= $1 ORDER BY id LIMIT $2",
        Table::Attempt => {
            "SELECT octet_length(headers) + octet_length(body) FROM countersign_attempt AS attempt
             WHERE (message, seq) >= ($1, $2)
                 AND EXISTS (SELECT 1 FROM countersign_outbox AS outbox WHERE outbox.id = attempt.message)
             ORDER BY message, seq LIMIT $3"
        }
    }
}

const fn read(table: Table) -> &'static str {
    match table {
        Table::Endpoint => {
            concat!("SELECT ", columns!(endpoint), " FROM countersign_endpoint WHERE id >= $1 ORDER BY id LIMIT $2")
        }
        Table::Inbox => {
            concat!("SELECT ", columns!(inbox "key"), " FROM countersign_inbox WHERE id >= $1 ORDER BY id LIMIT $2")
        }
        Table::InboxFailure => concat!(
            "SELECT ",
            columns!(inbox_failure),
            " FROM countersign_inbox_failure WHERE (receipt, seq) >= ($1, $2) ORDER BY receipt, seq LIMIT $3"
        ),
        Table::Outbox => {
            concat!("SELECT ", columns!(outbox), " FROM countersign_outbox WHERE id >= $1 ORDER BY id LIMIT $2")
        }
        Table::Attempt => concat!(
            "SELECT ",
            columns!(attempt),
            " FROM countersign_attempt AS attempt
             WHERE (message, seq) >= ($1, $2)
                 AND EXISTS (SELECT 1 FROM countersign_outbox AS outbox WHERE outbox.id = attempt.message)
             ORDER BY message, seq LIMIT $3"
        ),
    }
}

/// Each column is an array.
const fn add(table: Table) -> &'static str {
    match table {
        Table::Endpoint => concat!(
            "INSERT INTO countersign_endpoint (",
            columns!(endpoint),
            ") OVERRIDING SYSTEM VALUE SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], \
             $6::text[], $7::bytea[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], \
             $14::bigint[], $15::bigint[]) ON CONFLICT DO NOTHING"
        ),
        Table::Inbox => concat!(
            "INSERT INTO countersign_inbox (",
            columns!(inbox "key"),
            ") OVERRIDING SYSTEM VALUE SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], \
             $6::text[], $7::bytea[], $8::bigint[], $9::text[], $10::bigint[], $11::bytea[], $12::bigint[], $13::bigint[], \
             $14::boolean[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::bigint[], $21::bytea[], \
             $22::bytea[], $23::text[], $24::text[], $25::bytea[], $26::bytea[], $27::text[]) ON CONFLICT DO NOTHING"
        ),
        Table::InboxFailure => concat!(
            "INSERT INTO countersign_inbox_failure (",
            columns!(inbox_failure),
            ") SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[]) \
             ON CONFLICT DO NOTHING"
        ),
        Table::Outbox => concat!(
            "INSERT INTO countersign_outbox (",
            columns!(outbox),
            ") OVERRIDING SYSTEM VALUE SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], \
             $6::bytea[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[], $13::bigint[], \
             $14::bigint[], $15::bigint[], $16::bytea[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], \
             $21::bigint[], $22::bigint[], $23::text[], $24::text[]) ON CONFLICT DO NOTHING"
        ),
        Table::Attempt => concat!(
            "INSERT INTO countersign_attempt (",
            columns!(attempt),
            ") SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
             $7::bigint[], $8::bytea[], $9::bytea[], $10::text[], $11::text[]) ON CONFLICT DO NOTHING"
        ),
    }
}

/// A sequence hands out numbers whatever is in the table.
const fn number_behind(table: Table) -> Option<&'static str> {
    match table {
        Table::Endpoint => Some(
            "SELECT setval(pg_get_serial_sequence('countersign_endpoint', 'id'), greatest(max(id),
                 nextval(pg_get_serial_sequence('countersign_endpoint', 'id')))) FROM countersign_endpoint",
        ),
        Table::Inbox => Some(
            "SELECT setval(pg_get_serial_sequence('countersign_inbox', 'id'), greatest(max(id),
                 nextval(pg_get_serial_sequence('countersign_inbox', 'id')))) FROM countersign_inbox",
        ),
        Table::Outbox => Some(
            "SELECT setval(pg_get_serial_sequence('countersign_outbox', 'id'), greatest(max(id),
                 nextval(pg_get_serial_sequence('countersign_outbox', 'id')))) FROM countersign_outbox",
        ),
        Table::InboxFailure | Table::Attempt => None,
    }
}
