//! How a MySQL store is opened.

use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool};

use super::super::fault::unavailable;
#[cfg(feature = "send")]
use super::super::outbox::later::Later;
use super::super::queue::Queue;
use super::super::source::Source;
use super::super::writers::{Writers, check_length};
use super::connection::{Connection, patience};
use super::{Inner, MySqlStore, migrate};
use crate::store::StoreError;

/// Settings of a [`MySqlStore`].
#[derive(Clone)]
#[must_use]
pub struct MySqlOptions {
    database: Database,
    migrate: bool,
    busy_timeout: Duration,
    queue: usize,
    writers: usize,
}

/// The pool is the application's, or one of our own.
#[derive(Clone)]
enum Database {
    Pool(MySqlPool),
    Url(String),
}

impl MySqlOptions {
    pub(super) fn url(url: &str) -> Self {
        Self::new(Database::Url(url.to_owned()))
    }

    pub(super) fn pool(pool: MySqlPool) -> Self {
        Self::new(Database::Pool(pool))
    }

    const fn new(database: Database) -> Self {
        Self { database, migrate: true, busy_timeout: Duration::from_secs(5), queue: 4_096, writers: 1 }
    }

    /// Whether to bring the schema up to date. `true` by default; `false` refuses a database that is not.
    pub const fn with_migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// How long to go on where other transactions are in the way, before [`StoreError::Unavailable`]. 5 seconds by
    /// default; a call may wait twice this long.
    pub const fn with_busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How many calls may wait for each writer, 1 to 1,048,576, before [`StoreError::Overloaded`]. 4,096 by default.
    pub const fn with_queue(mut self, calls: usize) -> Self {
        self.queue = calls;
        self
    }

    /// How many connections write, 1 to 64. 1 by default: the fewer, the larger their batches. More of them can help where
    /// the server is far away. The outbox has as many of its own, once it is used.
    pub const fn with_writers(mut self, writers: usize) -> Self {
        self.writers = writers;
        self
    }

    /// Connects, and opens the store.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Config`]: the settings cannot work, and what to do about it. No message holds the URL.
    /// - [`StoreError::Schema`]: the schema is of a newer version, or was not brought up to date.
    /// - [`StoreError::Unavailable`]: the database could not be reached.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: a migration that was cut off is repeated by the next store that opens.
    pub async fn open(self) -> Result<MySqlStore, StoreError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| StoreError::Config("a MySQL store is opened within a tokio runtime".into()))?;
        check_length(self.queue)?;
        if !(1..=64).contains(&self.writers) {
            return Err(StoreError::Config(format!("{} writers: 1 to 64 can be had", self.writers)));
        }
        let source = match self.database {
            Database::Pool(pool) => Source::Pool(pool),
            Database::Url(url) => Source::Own(parse(&url)?),
        };
        let connected = source.connect().await;
        let mut connection = connected.map_err(|error| unavailable("connecting to MySQL", error))?;
        migrate::prepare(&mut connection).await.map_err(|error| unavailable("connecting to MySQL", error))?;
        let applied = if self.migrate {
            migrate::migrate(&mut connection).await?
        } else {
            migrate::verify(&mut connection).await?;
            Vec::new()
        };
        let mut first = Some(connection);
        let connection = {
            let source = source.clone();
            move |connection| Connection { connection, source: source.clone(), named_locks: false }
        };
        let databases = (0..self.writers).map(|_| connection(first.take())).collect();
        let (calls, patience) = (self.queue, patience(self.busy_timeout));
        let writers = Writers::start(&runtime, databases, calls, patience);
        let queue = Queue(writers.with_one_aside(&runtime, connection(None), calls, patience));
        #[cfg(feature = "send")]
        let outbox = Later::new(move || {
            let databases = (0..self.writers).map(|_| connection(None)).collect();
            let writers = Writers::start(&runtime, databases, calls, patience);
            writers.with_one_aside(&runtime, connection(None), calls, patience)
        });
        let (pool, own) = (source.readers(), source.is_own());
        Ok(MySqlStore(Arc::new(Inner {
            queue,
            #[cfg(feature = "send")]
            outbox,
            pool,
            own,
            applied,
        })))
    }
}

fn parse(url: &str) -> Result<MySqlConnectOptions, StoreError> {
    // The error of the driver may quote the URL, and with it the password.
    let wrong = || StoreError::Config("this is no URL of a MySQL database: write mysql://user@host/name".into());
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    if !matches!(scheme, "mysql" | "mariadb") {
        return Err(wrong());
    }
    let options: MySqlConnectOptions = format!("mysql://{rest}").parse().map_err(|_| wrong())?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(StoreError::Config("the URL names no database: write mysql://user@host/name".into()));
    }
    Ok(options.disable_statement_logging())
}

impl std::fmt::Debug for MySqlOptions {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlOptions").field("writers", &self.writers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_none_is_refused_without_its_password() {
        for url in [
            "",
            "hunter2",
            "postgres://u:hunter2@h/d",
            "mysql:u:hunter2@h",
            "mysql://u:hunter2@h:x/d",
            "mysql://u:hunter2@h",
        ] {
            let error = parse(url).expect_err("to be refused");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let options = MySqlOptions::url("mysql://u:hunter2@h/d");
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
