//! Where the connections of a server's store come from.

use std::io;
use std::time::Duration;

use sqlx::{ConnectOptions as _, Connection, Database, Pool};
use tokio::time::timeout;

/// How long a server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(5);

type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// The application's pool, or settings of our own.
#[derive(Debug)]
pub(super) enum Source<DB: Database> {
    Own(Options<DB>),
    Pool(Pool<DB>),
}

// Not derived: that would ask it of the database too, which is a mere name.
impl<DB: Database> Clone for Source<DB> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(options) => Self::Own(options.clone()),
            Self::Pool(pool) => Self::Pool(pool.clone()),
        }
    }
}

impl<DB: Database> Source<DB> {
    /// A connection for a writer. Out of a pool it is taken for good, so that a pool of one is not used up by its writer;
    /// what the pool does to new connections has been done to it.
    ///
    /// Our own are made without a pool, which would go on trying where a server refuses: callers are told at once.
    pub(super) async fn connect(&self) -> Result<DB::Connection, sqlx::Error> {
        match self {
            Self::Own(options) => timeout(PATIENCE, options.connect()).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the server did not let us in in time").into())
            }),
            Self::Pool(pool) => Ok(pool.acquire().await?.detach()),
        }
    }

    /// A pool for those who read.
    pub(super) fn readers(&self) -> Pool<DB> {
        match self {
            Self::Own(options) => sqlx::pool::PoolOptions::new()
                .max_connections(4)
                .acquire_timeout(PATIENCE)
                .connect_lazy_with(options.clone()),
            Self::Pool(pool) => pool.clone(),
        }
    }

    /// Whether the pool of those who read is ours to close.
    pub(super) const fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}
