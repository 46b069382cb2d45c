//! Whether the files that a connection has open still stand at their paths.
//!
//! SQLite does not look: it goes on writing to a file that was removed or replaced, and all that is committed there is
//! gone with the process. So the writer looks, before a batch and again before it answers one.

use std::path::{Path, PathBuf};

/// The database, its log, and the index of the log.
#[derive(Debug)]
pub(super) struct Files {
    paths: [PathBuf; 3],
    /// As it was when the store was opened.
    database: Option<Identity>,
    /// As they were when the connection first used them. While it has them open no other file can get their numbers.
    log: Option<[Option<Identity>; 2]>,
}

impl Files {
    /// Those of this database, which exists.
    pub(super) fn of(database: &Path) -> Self {
        // The log stands beside the file itself, not beside a link to it.
        let path = database.canonicalize().unwrap_or_else(|_| database.to_owned());
        let beside = |suffix| {
            let mut path = path.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let paths = [beside(""), beside("-wal"), beside("-shm")];
        Self { database: identity(&path), paths, log: None }
    }

    /// Whether all three are there and the same as ever. The first look since [`forget_log`](Self::forget_log) is what
    /// the log is compared with.
    pub(super) fn are_in_place(&mut self) -> bool {
        let [_, log, index] = &self.paths;
        let found = [identity(log), identity(index)];
        self.database_is_in_place() && found.iter().all(Option::is_some) && *self.log.get_or_insert(found) == found
    }

    /// Another database with the same name is not taken for this one: beside it there may be the log of this one, which
    /// SQLite would read as its own.
    pub(super) fn database_is_in_place(&self) -> bool {
        let [database, _, _] = &self.paths;
        self.database.is_some() && identity(database) == self.database
    }

    /// A new connection follows, which may have a new log.
    pub(super) const fn forget_log(&mut self) {
        self.log = None;
    }
}

/// Device and number.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Elsewhere a file that is open can be neither removed nor replaced.
#[cfg(not(unix))]
const fn identity(_: &Path) -> Option<Identity> {
    Some((0, 0))
}
