//! A service's own database: a file, or a schema in a PostgreSQL database. The service's tables stand in it beside inbox,
//! outbox and sagas, so that one transaction reaches all of them.

use std::error::Error;
use std::sync::Arc;

use axum::http::StatusCode;
use countersign::receive::Outcome;
use countersign::store::{InboxStore, OutboxStore, PostgresStore, SqliteStore};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{PgPool, SqlitePool};

#[derive(Clone, Debug)]
pub(crate) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// What the library keeps in it.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) inbox: Arc<dyn InboxStore>,
    pub(crate) outbox: Arc<dyn OutboxStore>,
}

impl Database {
    /// Opens the database of the service with this name, `tables` and all: in the folder `ORDERS_FOLDER`, or in the PostgreSQL
    /// database `ORDERS_POSTGRES`.
    pub(crate) async fn open(name: &'static str, tables: &'static str) -> Result<(Self, Stores), Box<dyn Error>> {
        if let Ok(url) = std::env::var("ORDERS_POSTGRES") {
            // The name is one of four in this program's own text.
            let schema = sqlx::AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {name}"));
            let first = PgPoolOptions::new().max_connections(1).connect(&url).await?;
            sqlx::query(schema).execute(&first).await?;
            first.close().await;
            let options = url.parse::<sqlx::postgres::PgConnectOptions>()?.options([("search_path", name)]);
            let pool = PgPoolOptions::new().max_connections(12).connect_with(options).await?;
            let store = PostgresStore::from_pool(pool.clone()).with_writers(1).open().await?;
            sqlx::raw_sql(tables).execute(&pool).await?;
            let stores = Stores { inbox: Arc::new(store.clone()), outbox: Arc::new(store) };
            return Ok((Self::Postgres(pool), stores));
        }
        let folder = std::env::var("ORDERS_FOLDER").map_err(|_| "set ORDERS_FOLDER to where the databases are")?;
        let file = std::path::Path::new(&folder).join(format!("{name}.db"));
        // The store first: it sets up the file, and keeps writers and readers out of each other's way.
        let store = SqliteStore::open(&file).await?;
        // A file has one writer at a time: several of our own would only wait for each other.
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(SqliteConnectOptions::new().filename(&file)).await?;
        sqlx::raw_sql(tables).execute(&pool).await?;
        let stores = Stores { inbox: Arc::new(store.clone()), outbox: Arc::new(store) };
        Ok((Self::Sqlite(pool), stores))
    }
}

/// Runs a block in a transaction, and commits it; whatever leaves the block early rolls back. Statements write their
/// parameters as `$1`, which both databases read.
macro_rules! transaction {
    ($database:expr, |$connection:ident| $block:block) => {
        match $database {
            // In a file a transaction asks for the right to write at once: one that comes to it later may be refused.
            $crate::database::Database::Sqlite(pool) => {
                $crate::database::transaction!(@within pool.begin_with("BEGIN IMMEDIATE"), $connection, $block)
            }
            $crate::database::Database::Postgres(pool) => {
                $crate::database::transaction!(@within pool.begin(), $connection, $block)
            }
        }
    };
    (@within $begun:expr, $connection:ident, $block:block) => {{
        let mut transaction = $begun.await.map_err($crate::database::not_now)?;
        let $connection = &mut *transaction;
        let done = $block;
        transaction.commit().await.map_err($crate::database::not_now)?;
        done
    }};
}

/// Reads one number, whichever database it is.
macro_rules! number {
    ($database:expr, $statement:literal) => {
        match $database {
            $crate::database::Database::Sqlite(pool) => sqlx::query_scalar::<_, i64>($statement).fetch_one(pool).await,
            $crate::database::Database::Postgres(pool) => {
                sqlx::query_scalar::<_, i64>($statement).fetch_one(pool).await
            }
        }
        .map_err($crate::database::unavailable)
    };
}

pub(crate) use {number, transaction};

/// A database that is busy or gone: whoever sent it comes again.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
pub(crate) fn not_now(error: sqlx::Error) -> Outcome {
    Outcome::transient(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
pub(crate) fn unavailable(error: sqlx::Error) -> StatusCode {
    tracing::warn!(%error, "the database");
    StatusCode::SERVICE_UNAVAILABLE
}
