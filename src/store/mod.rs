//! Where receipts and messages live: the contracts [`InboxStore`] and `OutboxStore` (feature `send`), and the stores that
//! keep them.
//!
//! | store | for |
//! |---|---|
//! | [`MemoryStore`] | tests, and the readable reference that the others are compared with; gone with its process |
//! | `SqliteStore` (feature `sqlite`, on by default) | one machine: a file, durable, shared by the processes on it |
//! | `PostgresStore` (feature `postgres`) | many machines: one database, durable, by its own clock |
//! | `MySqlStore` (feature `mysql`) | the same on MySQL or MariaDB, for those who run it |
//!
//! `CachedInbox` (feature `cache`) puts a cache of finished results in front of any of them.
//!
//! Beside them the SQL stores keep sagas (feature `saga`): `SagaConnection`, and `SagaStore` for operators.
//!
//! Write your own by implementing [`InboxStore`], and let `conformance` and `faults` (feature `test-util`) try it; and
//! `OutboxStore`, for which there are `outbox_conformance` and `outbox_faults`.

mod admission;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod conformance;
#[cfg(feature = "send")]
mod delivery;
#[cfg(feature = "send")]
mod endpoint;
#[cfg(feature = "send")]
mod endpoint_check;
#[cfg(feature = "send")]
pub(crate) mod endpoint_headers;
#[cfg(feature = "send")]
pub(crate) mod endpoint_url;
mod error;
#[cfg(feature = "send")]
mod fairness;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod faults;
mod inbox;
mod keys;
#[cfg(feature = "send")]
mod measure;
mod memory;
#[cfg(feature = "send")]
mod message;
#[cfg(feature = "send")]
mod outbox;
#[cfg(all(feature = "test-util", feature = "send"))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "test-util", feature = "send"))))]
pub mod outbox_conformance;
#[cfg(all(feature = "test-util", feature = "send"))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "test-util", feature = "send"))))]
pub mod outbox_faults;
#[cfg(feature = "send")]
pub(crate) mod overrides;
mod page;
mod receipt;
mod retention;
#[cfg(all(feature = "saga", any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
mod saga;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;

#[cfg(feature = "cache")]
#[cfg_attr(docsrs, doc(cfg(feature = "cache")))]
pub use cache::CachedInbox;
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub use endpoint::{Endpoint, EndpointEntry, EndpointHealth, EndpointNews, EndpointSettings, OnDead, TypePattern};
pub use error::StoreError;
pub use inbox::{
    Accept, Accepted, Claim, Claimed, Failure, InboxStore, KeptRequest, Lease, OtherBody, ReceiptKey, Repeat, Reserve,
    Reserved, ResultBody, Settled, StoreFuture, StoredResult, Token, Unclear,
};
pub use keys::Keys;
pub use memory::MemoryStore;
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub use message::{
    Attempt, AttemptReport, Message, MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxRetention,
};
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub use outbox::{
    Buried, ClaimMessages, ClaimedMessage, Claims, Enqueue, Enqueued, Fate, MessageLease, OutboxStore, Settlement,
};
#[cfg(feature = "send")]
use overrides::Overrides;
pub use page::{Cursor, CursorError, Page};
pub use receipt::{FailedRun, ListFilter, Purged, Receipt, ReceiptState, Retention};
pub use retention::purge_forever;
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub use retention::purge_messages_forever;
#[cfg(all(feature = "saga", any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
#[cfg_attr(docsrs, doc(cfg(feature = "saga")))]
pub use saga::{SagaEntry, SagaKey, SagaStep, SentMessage, StepAnswer};
#[cfg(all(feature = "send", any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub use sql::OutboxConnection;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))))]
pub use sql::SqlConnection;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))))]
pub use sql::copy;
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub use sql::{MySqlOptions, MySqlStore};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use sql::{PostgresOptions, PostgresStore};
#[cfg(all(feature = "saga", any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
#[cfg_attr(docsrs, doc(cfg(feature = "saga")))]
pub use sql::{SagaConnection, SagaStore};
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sql::{SqliteOptions, SqliteStore};
