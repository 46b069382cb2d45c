//! Stores that speak SQL. What they share stands here; each database has a room of its own.
//!
//! A call that writes goes the way `store → queue → call → writer → batch → accept, claim, reserve, settle → database`; one that reads,
//! `store → read`. Everything up to [`database`] exists once.

mod accept;
mod batch;
mod call;
mod claim;
mod database;
mod fault;
mod header_block;
mod migrate;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod reserve;
mod row;
mod settle;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod writer;

#[cfg(feature = "mysql")]
pub use mysql::{MySqlOptions, MySqlStore};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};
