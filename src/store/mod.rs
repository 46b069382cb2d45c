//! Where receipts live: the [`InboxStore`] contract and the stores that keep it.
//!
//! | store | for |
//! |---|---|
//! | [`MemoryStore`] | tests, and the readable reference that the others are compared with; gone with its process |
//! | `SqliteStore` (feature `sqlite`, on by default) | one machine: a file, durable, shared by the processes on it |
//! | `PostgresStore` (feature `postgres`) | many machines: one database, durable, by its own clock |
//! | `MySqlStore` (feature `mysql`) | the same on MySQL or MariaDB, for those who run it |
//!
//! Write your own by implementing [`InboxStore`], and let `conformance` (feature `test-util`) try it.

mod admission;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod conformance;
mod error;
mod inbox;
mod memory;
mod receipt;
mod retention;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;

pub use error::StoreError;
pub use inbox::{
    Accept, Accepted, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, OtherBody, ReceiptKey, Repeat, Reserve,
    Reserved, ResultBody, Settled, StoreFuture, StoredResult, Token,
};
pub use memory::MemoryStore;
pub use receipt::{FailedRun, ListFilter, Purged, Receipt, ReceiptState, Retention};
pub use retention::purge_forever;
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub use sql::{MySqlOptions, MySqlStore};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use sql::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sql::{SqliteOptions, SqliteStore};
