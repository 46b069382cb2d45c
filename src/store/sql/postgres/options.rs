//! How a PostgreSQL store is opened.

use std::sync::Arc;
#[cfg(feature = "send")]
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{ConnectOptions as _, Row as _};

use super::super::fault::unavailable;
#[cfg(feature = "send")]
use super::super::outbox::later::Later;
use super::super::queue::Queue;
use super::super::source::Source;
use super::super::writers::{Writers, check_length};
use super::connection::{Connection, patience};
#[cfg(feature = "send")]
use super::outbox::Listening;
use super::read::Reader;
use super::{Inner, PostgresStore, migrate};
use crate::store::StoreError;

/// Settings of a [`PostgresStore`].
#[derive(Clone)]
#[must_use]
pub struct PostgresOptions {
    database: Database,
    migrate: bool,
    prepared: bool,
    busy_timeout: Duration,
    queue: usize,
    writers: usize,
    #[cfg(feature = "send")]
    notifications: bool,
    #[cfg(feature = "send")]
    listen_url: Option<String>,
}

/// The pool is the application's, or one of our own.
#[derive(Clone)]
enum Database {
    Pool(PgPool),
    Url(String),
}

impl PostgresOptions {
    pub(super) fn url(url: &str) -> Self {
        Self::new(Database::Url(url.to_owned()))
    }

    pub(super) fn pool(pool: PgPool) -> Self {
        Self::new(Database::Pool(pool))
    }

    const fn new(database: Database) -> Self {
        Self {
            database,
            migrate: true,
            prepared: true,
            busy_timeout: Duration::from_secs(5),
            queue: 4_096,
            writers: 1,
            #[cfg(feature = "send")]
            notifications: true,
            #[cfg(feature = "send")]
            listen_url: None,
        }
    }

    /// Whether to bring the schema up to date. `true` by default; `false` refuses a database that is not.
    pub const fn with_migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether statements are prepared once for each connection. `true` by default.
    ///
    /// Say `false` behind a pooler that hands out connections for one transaction at a time (PgBouncer's
    /// `pool_mode = transaction`), where what was prepared may be gone, or somebody else's. In a URL:
    /// `statement-cache-capacity=0`.
    pub const fn with_prepared_statements(mut self, prepared: bool) -> Self {
        self.prepared = prepared;
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

    /// Whether this store tells dispatchers elsewhere of new messages (`NOTIFY`), and hears of those of others (`LISTEN`, on
    /// a connection of its own, once a dispatcher wants to be told). `true` by default.
    ///
    /// Without it they are found by the next poll. Messages that are enqueued in a transaction of the application's go by
    /// the setting `countersign.notify` of that connection, see [`OutboxConnection`](crate::store::OutboxConnection).
    #[cfg(feature = "send")]
    #[cfg_attr(docsrs, doc(cfg(feature = "send")))]
    pub const fn with_notifications(mut self, notifications: bool) -> Self {
        self.notifications = notifications;
        self
    }

    /// Where to listen: a URL that leads to the same database past a pooler that hands out connections for one transaction
    /// at a time, through which nothing is heard. Without one, nobody listens where statements are not prepared.
    #[cfg(feature = "send")]
    #[cfg_attr(docsrs, doc(cfg(feature = "send")))]
    pub fn with_listen_url(mut self, url: &str) -> Self {
        self.listen_url = Some(url.to_owned());
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
    /// May be dropped: the schema has then been brought up to date wholly or not at all.
    pub async fn open(self) -> Result<PostgresStore, StoreError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| StoreError::Config("a PostgreSQL store is opened within a tokio runtime".into()))?;
        check_length(self.queue)?;
        if !(1..=64).contains(&self.writers) {
            return Err(StoreError::Config(format!("{} writers: 1 to 64 can be had", self.writers)));
        }
        let (source, prepared) = match self.database {
            Database::Pool(pool) => (Source::Pool(pool), self.prepared),
            Database::Url(url) => {
                let (options, prepared) = parse(&url)?;
                (Source::Own(options), self.prepared && prepared)
            }
        };
        #[cfg(feature = "send")]
        let listening = match self.listen_url {
            _ if !self.notifications => None,
            Some(url) => Some(Source::Own(parse(&url)?.0)),
            None => prepared.then(|| source.clone()),
        };
        let connected = source.connect().await;
        let mut connection = connected.map_err(|error| unavailable("connecting to PostgreSQL", error))?;
        check_encoding(&mut connection).await?;
        let applied = if self.migrate {
            migrate::migrate(&mut connection).await?
        } else {
            migrate::verify(&mut connection).await?;
            Vec::new()
        };
        let mut first = Some(connection);
        let connection = {
            let source = source.clone();
            move |connection| Connection {
                connection,
                source: source.clone(),
                prepared,
                set_up: false,
                #[cfg(feature = "send")]
                announces: self.notifications,
                #[cfg(feature = "send")]
                floors: Default::default(),
            }
        };
        let databases = (0..self.writers).map(|_| connection(first.take())).collect();
        let (calls, patience) = (self.queue, patience(self.busy_timeout));
        let writers = Writers::start(&runtime, databases, calls, patience);
        let queue = Queue(writers.with_one_aside(&runtime, connection(None), calls, patience));
        #[cfg(feature = "send")]
        let outbox = {
            let runtime = runtime.clone();
            Later::new(move || {
                let databases = (0..self.writers).map(|_| connection(None)).collect();
                let writers = Writers::start(&runtime, databases, calls, patience);
                writers.with_one_aside(&runtime, connection(None), calls, patience)
            })
        };
        let own = source.is_own();
        let reader = Reader { pool: source.readers(), prepared };
        Ok(PostgresStore(Arc::new(Inner {
            queue,
            #[cfg(feature = "send")]
            outbox,
            #[cfg(feature = "send")]
            listening: Listening { runtime, source: listening, listener: OnceLock::new() },
            reader,
            own,
            applied,
        })))
    }
}

/// What the URL says, and whether statements may be prepared.
fn parse(url: &str) -> Result<(PgConnectOptions, bool), StoreError> {
    // The error of the driver may quote the URL, and with it the password.
    let wrong =
        || StoreError::Config("this is no URL of a PostgreSQL database: write postgres://user@host/name".into());
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return Err(wrong());
    }
    let options: PgConnectOptions = url.parse().map_err(|_| wrong())?;
    let prepared = !rest.split(['?', '&']).skip(1).any(|setting| setting == "statement-cache-capacity=0");
    Ok((options.disable_statement_logging(), prepared))
}

/// Ids are UTF-8 and must come back byte for byte.
async fn check_encoding(connection: &mut PgConnection) -> Result<(), StoreError> {
    let failed = |error| unavailable("asking for the encoding of the database", error);
    let row = sqlx::raw_sql("SELECT current_setting('server_encoding')").fetch_one(connection).await.map_err(failed)?;
    match row.try_get::<&str, _>(0).map_err(failed)? {
        "UTF8" | "SQL_ASCII" => Ok(()),
        other => Err(StoreError::Config(format!(
            "the database's encoding is {other}, which cannot hold every id: create it with ENCODING 'UTF8'"
        ))),
    }
}

impl std::fmt::Debug for PostgresOptions {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions").field("writers", &self.writers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_none_is_refused_without_its_password() {
        for url in ["", "hunter2", "mysql://u:hunter2@h/d", "postgres:u:hunter2@h", "postgres://u:hunter2@h:x/d"] {
            let error = parse(url).expect_err("to be refused");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let options = PostgresOptions::url("postgres://u:hunter2@h/d");
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn a_url_can_forbid_prepared_statements() {
        assert!(parse("postgres://h/d?sslmode=disable").expect("options").1);
        assert!(!parse("postgres://h/d?sslmode=disable&statement-cache-capacity=0").expect("options").1);
    }
}
