//! `--store`: which store a command works on.

use std::path::PathBuf;

use clap::Args;
use countersign::store::{SqliteStore, StoreError};

use crate::error::CliError;

/// Which store, and whether its schema may be changed.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Store: `sqlite:PATH`, a file that is created if absent
    // Its value is not shown in the help: it may hold a password.
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_STORE", hide_env_values = true)]
    #[arg(default_value = "sqlite:countersign.db")]
    store: String,
    /// Use the store as it is: do not create it, nor bring its schema up to date
    #[arg(long)]
    no_migrate: bool,
}

impl StoreArgs {
    /// Opens the store. [`close`] it at the end.
    pub(crate) async fn open(&self) -> Result<SqliteStore, CliError> {
        let path = sqlite_path(&self.store)?;
        let may_change = !self.no_migrate;
        let opened = SqliteStore::options(path).with_create(may_change).with_migrate(may_change).open().await;
        opened.map_err(|error| match error {
            // What is wrong with the URL was said before: this is about what stands, or does not, at the path.
            StoreError::Config(_) => CliError::unreachable(error.to_string()),
            _ => error.into(),
        })
    }
}

/// Closes the store. What was asked of it is committed before, so that a failure here loses nothing.
pub(crate) async fn close(store: SqliteStore) {
    if let Err(error) = store.close().await {
        tracing::warn!("the store was not closed cleanly, and nothing is lost: {error}");
    }
}

/// The path is literal: `?`, `%` and spaces in it are part of a file's name.
fn sqlite_path(url: &str) -> Result<PathBuf, CliError> {
    // Never the URL itself in a message: it may hold a password.
    match url.split_once(':') {
        Some(("sqlite", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            match path {
                "" => Err(CliError::usage("--store: the path is empty; write `sqlite:PATH`")),
                // It would be gone with the command.
                ":memory:" => Err(CliError::usage("--store: a store in memory holds nothing; write `sqlite:PATH`")),
                _ => Ok(path.into()),
            }
        }
        Some((name @ ("postgres" | "postgresql" | "mysql" | "mariadb"), _)) => Err(CliError::usage(format!(
            "--store: `{name}:` is not supported by this build of countersign; use `sqlite:PATH`"
        ))),
        Some(_) | None => Err(CliError::usage("--store: the URL names no known kind of store; write `sqlite:PATH`")),
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
            assert_eq!(sqlite_path(url).expect("a path"), PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_refused_without_its_password() {
        for url in [
            "postgres://u:hunter2@h/d",
            "mysql://u:hunter2@h/d",
            "redis://:hunter2@h",
            "hunter2",
            "",
            "sqlite:",
            "sqlite::memory:",
        ] {
            let error = sqlite_path(url).expect_err("to be refused");
            assert!(matches!(error, CliError::Usage(_)), "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
