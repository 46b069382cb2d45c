//! A ledger beside the receipts of a store: one line for each event that was booked. Nothing in the table keeps an event
//! from being booked twice.

use std::sync::Arc;

use countersign::receive::{CompleteError, Outcome, Reservation, ResponseBody};
use countersign::store::{InboxStore, MySqlStore, PostgresStore, SqliteStore};
use http::Response;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Database, MySqlPool, PgPool, SqlitePool};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug)]
pub(crate) enum Books {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// Where a handler stops and waits for the test, and how its transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The handler runs.
    pub(crate) begun: CancellationToken,
    /// Then this is waited for.
    pub(crate) begin: CancellationToken,
    /// The ledger has been written.
    pub(crate) written: CancellationToken,
    /// Then this is waited for.
    pub(crate) complete: CancellationToken,
    /// The run has been completed, or not.
    pub(crate) completed: CancellationToken,
    /// Then this is waited for.
    pub(crate) end: CancellationToken,
    pub(crate) commit: bool,
}

impl Plan {
    /// Waits for nothing.
    pub(crate) fn at_once(commit: bool) -> Self {
        let plan = Self {
            begun: CancellationToken::new(),
            begin: CancellationToken::new(),
            written: CancellationToken::new(),
            complete: CancellationToken::new(),
            completed: CancellationToken::new(),
            end: CancellationToken::new(),
            commit,
        };
        plan.begin.cancel();
        plan.complete.cancel();
        plan.end.cancel();
        plan
    }
}

/// What can come of it, beside a response.
#[derive(Debug)]
pub(crate) enum Unbooked {
    Complete(CompleteError),
    Database(sqlx::Error),
}

impl From<Unbooked> for Outcome {
    fn from(unbooked: Unbooked) -> Self {
        match unbooked {
            Unbooked::Complete(error) => error.into(),
            Unbooked::Database(error) => Self::transient(error.to_string()),
        }
    }
}

impl From<sqlx::Error> for Unbooked {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// The same for each kind of connection.
macro_rules! book {
    ($begun:expr, $run:expr, $response:expr, $plan:expr, $insert:literal) => {{
        let mut transaction = $begun;
        // Not prepared by name, for the sake of poolers.
        let insert = sqlx::query($insert).persistent(false).bind($run.key().as_str());
        insert.execute(&mut *transaction).await?;
        $plan.written.cancel();
        $plan.complete.cancelled().await;
        let completed = $run.complete_in(&mut *transaction, $response).await;
        $plan.completed.cancel();
        let response = completed.map_err(Unbooked::Complete)?;
        $plan.end.cancelled().await;
        if $plan.commit {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(response)
    }};
}

impl Books {
    /// A ledger in the database that this URL names, through a pool of `size`.
    pub(crate) async fn open(url: &str, size: u32) -> Self {
        let books = match url.split_once(':') {
            Some(("sqlite", path)) => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let pool: SqlitePoolOptions = sized(size);
                Self::Sqlite(pool.connect_lazy_with(options))
            }
            Some(("postgres", _)) => {
                let pool: PgPoolOptions = sized(size);
                Self::Postgres(pool.connect_lazy(url).expect("a URL"))
            }
            _ => {
                let pool: MySqlPoolOptions = sized(size);
                Self::MySql(pool.connect_lazy(url).expect("a URL"))
            }
        };
        let table = "CREATE TABLE IF NOT EXISTS ledger (event VARCHAR(255) NOT NULL)";
        match &books {
            Self::Sqlite(pool) => sqlx::raw_sql(table).execute(pool).await.map(drop),
            Self::Postgres(pool) => sqlx::raw_sql(table).execute(pool).await.map(drop),
            Self::MySql(pool) => sqlx::raw_sql(table).execute(pool).await.map(drop),
        }
        .expect("a table");
        books
    }

    /// Books an event and completes its run, in one transaction.
    pub(crate) async fn book(
        &self,
        run: &Reservation,
        response: Response<String>,
        plan: &Plan,
    ) -> Result<Response<ResponseBody>, Unbooked> {
        plan.begun.cancel();
        plan.begin.cancelled().await;
        match self {
            Self::Sqlite(pool) => {
                let begun = pool.begin_with("BEGIN IMMEDIATE").await?;
                book!(begun, run, response, plan, "INSERT INTO ledger (event) VALUES (?1)")
            }
            Self::Postgres(pool) => {
                book!(pool.begin().await?, run, response, plan, "INSERT INTO ledger (event) VALUES ($1)")
            }
            Self::MySql(pool) => {
                book!(pool.begin().await?, run, response, plan, "INSERT INTO ledger (event) VALUES (?)")
            }
        }
    }
}

/// The store in the database that this URL names.
pub(crate) async fn store(url: &str) -> Arc<dyn InboxStore> {
    match url.split_once(':') {
        Some(("sqlite", path)) => Arc::new(SqliteStore::open(path).await.expect("a store")),
        Some(("postgres", _)) => Arc::new(PostgresStore::connect(url).await.expect("a store")),
        _ => Arc::new(MySqlStore::connect(url).await.expect("a store")),
    }
}

fn sized<DB: Database>(connections: u32) -> PoolOptions<DB> {
    PoolOptions::new().max_connections(connections)
}
