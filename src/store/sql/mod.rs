//! Stores that speak SQL. What they share stands here; each database has a room of its own.

mod header_block;
mod sqlite;

pub use sqlite::{SqliteOptions, SqliteStore};
