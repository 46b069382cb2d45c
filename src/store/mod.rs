//! Where receipts live: the [`InboxStore`] contract and the stores that keep it.
//!
//! | store | for |
//! |---|---|
//! | [`MemoryStore`] | tests, and the readable reference that the others are compared with; gone with its process |
//! | `SqliteStore` (feature `sqlite`, on by default) | one machine: a file, durable, shared by the processes on it |
//!
//! Write your own by implementing [`InboxStore`], and let `conformance` (feature `test-util`) try it.

mod admission;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod conformance;
mod error;
mod inbox;
mod memory;
mod retention;
#[cfg(feature = "sqlite")]
mod sql;

pub use error::StoreError;
pub use inbox::{
    FailedRun, Failure, InboxStore, KeptRequest, Lease, ListFilter, OtherBody, Purged, Receipt, ReceiptKey,
    ReceiptState, Repeat, Reserve, Reserved, ResultBody, Retention, Settled, StoreFuture, StoredResult, Token,
};
pub use memory::MemoryStore;
pub use retention::purge_forever;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sql::{SqliteOptions, SqliteStore};
