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
mod receipt;
mod retention;
#[cfg(feature = "sqlite")]
mod sql;

pub use error::StoreError;
pub use inbox::{
    Accept, Accepted, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, OtherBody, ReceiptKey, Repeat, Reserve,
    Reserved, ResultBody, Settled, StoreFuture, StoredResult, Token,
};
pub use memory::MemoryStore;
pub use receipt::{FailedRun, ListFilter, Purged, Receipt, ReceiptState, Retention};
pub use retention::purge_forever;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sql::{SqliteOptions, SqliteStore};
