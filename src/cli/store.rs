//! `--store`: which store a command works on.

use std::ops::Deref;
use std::path::PathBuf;

use clap::Args;
use countersign::Timestamp;
use countersign::store::copy::CopyEnd;
use countersign::store::{InboxStore, MySqlStore, OutboxStore, PostgresStore, SagaStore, SqliteStore, StoreError};

use crate::error::CliError;

/// Which store, and whether its schema may be changed.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Store: `sqlite:PATH`, a file that is created if absent by what writes to it; `postgres://USER@HOST/NAME` or
    /// `mysql://USER@HOST/NAME`
    // Its value is not shown in the help: it may hold a password.
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_STORE", hide_env_values = true)]
    #[arg(default_value = "sqlite:countersign.db")]
    store: String,
    /// Use the store as it is: do not create it, nor bring its schema up to date
    #[arg(long)]
    no_migrate: bool,
}

impl StoreArgs {
    /// What is wrong with the URL, as far as that shows in it.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.place().map(drop)
    }

    fn place(&self) -> Result<Place<'_>, CliError> {
        Place::parse(&self.store).map_err(|error| error.of("--store"))
    }

    /// Opens the store for what begins something in it. [`close`] it at the end.
    pub(crate) async fn open(&self) -> Result<Store, CliError> {
        let may_change = !self.no_migrate;
        Ok(self.place()?.open(may_change, may_change).await?)
    }

    /// Opens the store for what looks at it, or changes what is in it: where there is none, there is nothing to find, and
    /// its name is mistyped.
    pub(crate) async fn open_existing(&self) -> Result<Store, CliError> {
        let place = self.place()?;
        if let Place::Sqlite(path) = &place
            && !path.exists()
        {
            return Err(CliError::unreachable(format!(
                "there is no store at {}, and this command makes none: check --store or COUNTERSIGN_STORE",
                path.display()
            )));
        }
        Ok(place.open(false, !self.no_migrate).await?)
    }

    /// Opens the store as it is: it is not made, and its schema stays.
    pub(crate) async fn open_as_it_is(&self) -> Result<Store, Unopened> {
        self.place()?.open(false, false).await
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// It is there, and its schema does not fit.
    Schema(CliError),
    /// It is not there, or nobody knows where that would be.
    Store(CliError),
}

impl From<CliError> for Unopened {
    fn from(error: CliError) -> Self {
        Self::Store(error)
    }
}

impl From<Unopened> for CliError {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Schema(error) | Unopened::Store(error) => error,
        }
    }
}

/// Whether a URL names a file, which can be made, or a server, which cannot.
pub(crate) fn is_a_file(url: &str) -> Result<bool, CliError> {
    Ok(matches!(Place::parse(url)?, Place::Sqlite(_)))
}

/// Opens the store of a URL: made if absent, and brought up to date, or as it is. [`close`] it at the end.
pub(crate) async fn open_url(url: &str, may_change: bool) -> Result<Store, CliError> {
    Ok(Place::parse(url)?.open(may_change, may_change).await?)
}

/// The store that a URL names. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    MySql(MySqlStore),
    Postgres(PostgresStore),
    Sqlite(SqliteStore),
}

impl Store {
    pub(crate) async fn schema_version(&self) -> Result<u32, StoreError> {
        match self {
            Self::MySql(store) => store.schema_version().await,
            Self::Postgres(store) => store.schema_version().await,
            Self::Sqlite(store) => store.schema_version().await,
        }
    }

    /// The moment that it goes by.
    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        match self {
            Self::MySql(store) => store.now().await,
            Self::Postgres(store) => store.now().await,
            Self::Sqlite(store) => store.now().await,
        }
    }

    /// What kind of store it is.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::MySql(_) => "mysql",
            Self::Postgres(_) => "postgres",
            Self::Sqlite(_) => "sqlite",
        }
    }

    pub(crate) fn applied_migrations(&self) -> &[u32] {
        match self {
            Self::MySql(store) => store.applied_migrations(),
            Self::Postgres(store) => store.applied_migrations(),
            Self::Sqlite(store) => store.applied_migrations(),
        }
    }

    /// For those who keep it, whichever it is.
    pub(crate) fn shared(&self) -> std::sync::Arc<dyn InboxStore> {
        match self.clone() {
            Self::MySql(store) => std::sync::Arc::new(store),
            Self::Postgres(store) => std::sync::Arc::new(store),
            Self::Sqlite(store) => std::sync::Arc::new(store),
        }
    }

    /// As one end of a copy.
    pub(crate) const fn copy_end(&self) -> CopyEnd<'_> {
        match self {
            Self::MySql(store) => CopyEnd::MySql(store),
            Self::Postgres(store) => CopyEnd::Postgres(store),
            Self::Sqlite(store) => CopyEnd::Sqlite(store),
        }
    }

    /// The sender's half of it.
    pub(crate) fn sagas(&self) -> &dyn SagaStore {
        match self {
            Self::MySql(store) => store,
            Self::Postgres(store) => store,
            Self::Sqlite(store) => store,
        }
    }

    pub(crate) fn outbox(&self) -> std::sync::Arc<dyn OutboxStore> {
        match self.clone() {
            Self::MySql(store) => std::sync::Arc::new(store),
            Self::Postgres(store) => std::sync::Arc::new(store),
            Self::Sqlite(store) => std::sync::Arc::new(store),
        }
    }
}

/// A store of any kind is asked in the same way.
impl Deref for Store {
    type Target = dyn InboxStore;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::MySql(store) => store,
            Self::Postgres(store) => store,
            Self::Sqlite(store) => store,
        }
    }
}

/// Closes the store. What was asked of it is committed before, so that a failure here loses nothing.
pub(crate) async fn close(store: Store) {
    let closed = match store {
        Store::MySql(store) => store.close().await,
        Store::Postgres(store) => store.close().await,
        Store::Sqlite(store) => store.close().await,
    };
    if let Err(error) = closed {
        tracing::warn!("the store was not closed cleanly, and nothing is lost: {error}");
    }
}

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place<'a> {
    MySql(&'a str),
    Postgres(&'a str),
    Sqlite(PathBuf),
}

impl<'a> Place<'a> {
    // Never the URL itself in a message: it may hold a password.
    fn parse(url: &'a str) -> Result<Self, CliError> {
        match url.split_once(':') {
            Some(("sqlite", path)) => sqlite_path(path).map(Self::Sqlite),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url)),
            Some(("mysql" | "mariadb", _)) => Ok(Self::MySql(url)),
            Some(_) | None => Err(CliError::usage(
                "the URL names no known kind of store; write `sqlite:PATH`, `postgres://…` or `mysql://…`",
            )),
        }
    }
}

impl Place<'_> {
    async fn open(self, create: bool, migrate: bool) -> Result<Store, Unopened> {
        let is_a_file = matches!(self, Self::Sqlite(_));
        let opened = match self {
            Self::Sqlite(path) => {
                let options = SqliteStore::options(path).with_create(create).with_migrate(migrate);
                options.open().await.map(Store::Sqlite)
            }
            Self::Postgres(url) => PostgresStore::options(url).with_migrate(migrate).open().await.map(Store::Postgres),
            Self::MySql(url) => MySqlStore::options(url).with_migrate(migrate).open().await.map(Store::MySql),
        };
        opened.map_err(|error| match error {
            // What is wrong with the URL was said before: this is about what stands, or does not, at the path.
            StoreError::Config(_) if is_a_file => Unopened::Store(CliError::unreachable(error.to_string())),
            StoreError::Schema(_) => Unopened::Schema(error.into()),
            _ => Unopened::Store(error.into()),
        })
    }
}

/// The path is literal: `?`, `%` and spaces in it are part of a file's name.
fn sqlite_path(path: &str) -> Result<PathBuf, CliError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    match path {
        "" => Err(CliError::usage("the path is empty; write `sqlite:PATH`")),
        // It would be gone with the command.
        ":memory:" => Err(CliError::usage("a store in memory holds nothing; write `sqlite:PATH`")),
        _ => Ok(path.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_literally() {
        for (url, path) in [
            ("sqlite:a b?c%20d.db", "a b?c%20d.db"),
            ("sqlite:/var/x.db", "/var/x.db"),
            ("sqlite:///var/x.db", "/var/x.db"),
            ("sqlite://x.db", "x.db"),
            ("sqlite:file:x", "file:x"),
        ] {
            assert_eq!(Place::parse(url).expect("a path"), Place::Sqlite(path.into()), "{url}");
        }
    }

    #[test]
    fn a_server_is_told_by_its_scheme() {
        assert!(matches!(Place::parse("postgresql://h/d"), Ok(Place::Postgres("postgresql://h/d"))));
        assert!(matches!(Place::parse("mariadb://h/d"), Ok(Place::MySql("mariadb://h/d"))));
    }

    #[tokio::test]
    async fn what_cannot_be_opened_is_refused_without_its_password() {
        for url in [
            "postgres:u:hunter2@h/d",
            "postgres://u:hunter2@h:x/d",
            "mysql://u:hunter2@h:x/d",
            "mysql://u:hunter2@h",
            "redis://:hunter2@h",
            "hunter2",
            "",
            "sqlite:",
            "sqlite::memory:",
        ] {
            let args = StoreArgs { store: url.into(), no_migrate: false };
            let error = args.open().await.expect_err("to be refused");
            assert!(matches!(error, CliError::Usage(_)), "{url}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
