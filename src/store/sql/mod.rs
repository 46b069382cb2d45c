//! Stores that speak SQL. What they share stands here; each database has a room of its own.
//!
//! A call that writes goes the way `store → queue → writers → writer → call → batch → accept, claim, reserve, settle →
//! database`; one that reads, `store → read`. Everything up to [`database`] exists once. The writer knows no calls but only
//! that they are [`Asked`](writer::Asked): these are the inbox's.

mod accept;
mod at_once;
mod batch;
mod call;
mod claim;
pub mod copy;
mod database;
mod fault;
mod header_block;
mod migrate;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "send")]
mod outbox;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod reserve;
mod row;
#[cfg(feature = "saga")]
mod saga;
mod settle;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transaction;
mod transactor;
mod writer;
mod writers;

#[cfg(feature = "mysql")]
pub use mysql::{MySqlOptions, MySqlStore};
#[cfg(feature = "send")]
pub use outbox::OutboxConnection;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "saga")]
pub use saga::{SagaConnection, SagaStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};
pub use transaction::SqlConnection;
