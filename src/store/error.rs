//! What can go wrong with a store, told apart by what the caller should do about it.

use std::error::Error as StdError;

use thiserror::Error;

/// A store could not do what was asked. Nothing that it answered before is lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The settings cannot work: the store was not opened.
    #[error("the store's settings cannot work: {0}")]
    Config(String),
    /// A row holds something that this version cannot read. It was left as it is.
    #[error("a row of the store cannot be read: {0}")]
    Corrupt(String),
    /// So many calls are waiting that this one was refused at once, to keep memory bounded.
    #[error("the store is overloaded: {0} calls are waiting")]
    Overloaded(usize),
    /// The database does not take what was to be written, and will not take it later either.
    #[error("the store does not take this: {0}")]
    Rejected(String),
    /// The schema is newer than this version can use, or has not been brought up to date.
    #[error("the store's schema does not fit: {0}")]
    Schema(String),
    /// The database could not be reached, was busy for too long, or failed.
    #[error("the store could not be reached: {reason}")]
    Unavailable {
        /// What was being done, and what the database said.
        reason: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl StoreError {
    /// Whether the same call may well succeed later: the sender is told to come back.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Overloaded(_) | Self::Unavailable { .. } => true,
            Self::Config(_) | Self::Corrupt(_) | Self::Rejected(_) | Self::Schema(_) => false,
        }
    }
}
