//! How a SQLite store is opened, and which files are refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Row as _};
use tokio::time::{Instant, sleep};

use super::super::fault::{Fault, unavailable};
use super::super::migrate::Failed;
use super::super::queue::Queue;
use super::super::writer::MAX_CALLS;
use super::super::writers::{Writers, check_length};
use super::connection::{Connection, patience};
use super::fault::{self, code};
use super::files::Files;
use super::{Inner, SqliteStore, migrate};
use crate::store::StoreError;
use crate::{Clock, SystemClock};

/// Settings of a [`SqliteStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SqliteOptions {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    create: bool,
    migrate: bool,
    busy_timeout: Duration,
    queue: usize,
}

impl SqliteOptions {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            clock: Arc::new(SystemClock),
            create: true,
            migrate: true,
            busy_timeout: Duration::from_secs(5),
            queue: 4_096,
        }
    }

    /// Goes by this clock instead of the system's. All processes on one file should go by the same.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Whether to create the file where there is none. Its directory must exist. `true` by default.
    pub const fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to bring the schema up to date. `true` by default; `false` refuses a file that is not.
    pub const fn with_migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// How long to wait for other processes that write to the file, before [`StoreError::Unavailable`]. 5 seconds by
    /// default; a call may wait twice this long.
    pub const fn with_busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How many calls may wait to be written, 1 to 1,048,576, before [`StoreError::Overloaded`]. 4,096 by default.
    pub const fn with_queue(mut self, calls: usize) -> Self {
        self.queue = calls;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Config`]: the settings or the file cannot work, and what to do about it.
    /// - [`StoreError::Schema`]: the file was written by a newer version, or not brought up to date.
    /// - [`StoreError::Unavailable`]: the file was busy for too long, or the disk failed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: the schema has then been brought up to date wholly or not at all.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| StoreError::Config("a SQLite store is opened within a tokio runtime".into()))?;
        check_length(self.queue)?;
        let path = literal(&self.path)?;
        let (inspected, create) = (path.clone(), self.create);
        runtime
            .spawn_blocking(move || inspect(&inspected, create))
            .await
            .map_err(|error| StoreError::Config(format!("the file could not be looked at: {error}")))??;

        // SQLite counts milliseconds in 31 bits.
        let busy_timeout = self.busy_timeout.min(Duration::from_millis(i32::MAX.unsigned_abs().into()));
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(busy_timeout)
            .synchronous(SqliteSynchronous::Full)
            // Keys are random: a batch touches pages all over the indexes, and finds them here.
            .pragma("cache_size", "-32768")
            // 32 MiB of log. Pages that change often are moved into the file once for many commits.
            .pragma("wal_autocheckpoint", "8192")
            // The rows that a batch returns: the two threads need not take turns for each few of them.
            .row_buffer_size(MAX_CALLS)
            .disable_statement_logging();
        let (connection, applied) = self.prepare(&options, busy_timeout).await?;

        // From here on the file is there: one that has been taken away must not come back empty.
        let reading = options.clone().pragma("query_only", "ON").pragma("cache_size", "-2048");
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .acquire_timeout(busy_timeout.max(Duration::from_secs(1)))
            .connect_lazy_with(reading);
        let mut files = Files::of(&path);
        // The connection has used them by now; from here on they stay where they are.
        files.are_in_place();
        let readers_of_writer = readers.clone();
        #[cfg(feature = "send")]
        let outbox_reader = super::outbox::Reader { pool: readers.clone(), clock: Arc::clone(&self.clock) };
        let database = Connection {
            connection: Some(connection),
            options,
            clock: Arc::clone(&self.clock),
            files,
            readers: readers_of_writer,
        };
        // One connection writes, whoever asks: a second one would only have the first wait for the file.
        let writers = Writers::start(&runtime, vec![database], self.queue, patience(busy_timeout));
        Ok(SqliteStore(Arc::new(Inner {
            path,
            #[cfg(feature = "send")]
            outbox: super::super::outbox::queue::Queue::new(writers.clone()),
            #[cfg(feature = "send")]
            outbox_reader,
            queue: Queue(writers),
            readers,
            clock: self.clock,
            applied,
        })))
    }

    /// Connects and brings the file into shape. Others may do the same at this moment: whoever meets them tries again.
    async fn prepare(
        &self,
        options: &SqliteConnectOptions,
        patience: Duration,
    ) -> Result<(SqliteConnection, Vec<u32>), StoreError> {
        let deadline = Instant::now() + patience;
        loop {
            match self.try_prepare(options).await {
                Err(Failed::Database(error)) if fault::of(&error) == Fault::Busy && Instant::now() < deadline => {
                    // SQLite does not wait itself where journal modes are changed.
                    sleep(Duration::from_millis(10)).await;
                }
                Err(Failed::Database(error)) => return Err(self.explain(error)),
                Err(Failed::Schema(text)) => return Err(StoreError::Schema(text)),
                Ok((Some(connection), applied)) => return Ok((connection, applied)),
                Ok((None, _)) => return Err(self.no_log()),
            }
        }
    }

    /// `None` where the file cannot have a write-ahead log.
    async fn try_prepare(
        &self,
        options: &SqliteConnectOptions,
    ) -> Result<(Option<SqliteConnection>, Vec<u32>), Failed> {
        let mut connection = options.clone().create_if_missing(self.create).connect().await?;
        let mode = sqlx::query("PRAGMA journal_mode").fetch_one(&mut connection).await?;
        if mode.try_get::<&str, _>(0)? != "wal" {
            let mode = sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&mut connection).await?;
            if mode.try_get::<&str, _>(0)? != "wal" {
                return Ok((None, Vec::new()));
            }
        }
        let applied = if self.migrate {
            migrate::migrate(&mut connection, self.clock.now()).await?
        } else {
            migrate::verify(&mut connection).await?;
            Vec::new()
        };
        Ok((Some(connection), applied))
    }

    fn no_log(&self) -> StoreError {
        StoreError::Config(format!(
            "{}: SQLite cannot keep a write-ahead log here. Network file systems cannot; use a local disk",
            self.path.display()
        ))
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        let path = self.path.display();
        match fault::primary_code(&error) {
            Some(code::NOT_A_DATABASE) => StoreError::Config(format!("{path} is not a SQLite database")),
            Some(code::READ_ONLY) => StoreError::Config(format!("{path} cannot be written to: it is read-only")),
            Some(code::CANNOT_OPEN) => StoreError::Config(format!(
                "{path} cannot be opened: this program may not read and write it, or create files beside it"
            )),
            _ => unavailable(&format!("opening {path}"), error),
        }
    }
}

/// A path as the name of a file and nothing else. SQLite reads some names as more than that.
fn literal(path: &Path) -> Result<PathBuf, StoreError> {
    let Some(text) = path.to_str() else {
        return Err(StoreError::Config(format!("{}: the path must be UTF-8", path.display())));
    };
    if text.is_empty() || text == ":memory:" {
        return Err(StoreError::Config(
            "a SQLite store needs a file: each connection would have a database of its own in memory. For a store in \
             memory use MemoryStore"
                .into(),
        ));
    }
    if text.contains('\0') {
        return Err(StoreError::Config("the path holds a NUL character".into()));
    }
    // Such a name would be taken for a URI, with `?` and `%` in it read as something else.
    Ok(if text.starts_with("file:") { Path::new(".").join(path) } else { path.to_owned() })
}

fn inspect(path: &Path, create: bool) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::Config(format!("{}: {why}", path.display())));
    match path.metadata() {
        Ok(found) if found.is_dir() => refuse("this is a directory; name a file"),
        Ok(found) if found.permissions().readonly() => refuse("the file is read-only"),
        Ok(_) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => refuse(&error.to_string()),
        Err(_) if !create => refuse("there is no such file, and it is not to be created"),
        Err(_) => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                refuse("its directory does not exist; create it first")
            }
            _ => make_private(path).or_else(|error| refuse(&error.to_string())),
        },
    }
}

/// Makes the file, for its owner's eyes only: it will hold what senders sent and what they were answered. SQLite gives
/// its log the same permissions.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}
