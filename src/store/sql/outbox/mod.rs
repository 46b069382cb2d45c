//! The outbox of the stores that speak SQL. What they share stands here; each database's statements stand in its room.
//!
//! A call that writes goes the way `store → queue → writers → writer → call → batch → enqueue, claim, settle, order,
//! subscribers, operate → database`; one that reads, `store → read`. Who enqueues in a transaction of his own goes
//! `connection → enqueue → inserts`, with the same statements.

pub(in crate::store::sql) mod batch;
pub(in crate::store::sql) mod call;
mod claim;
mod connection;
pub(in crate::store::sql) mod database;
mod dealing;
pub(in crate::store::sql) mod enqueue;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store::sql) mod later;
mod operate;
mod order;
pub(in crate::store::sql) mod queue;
pub(in crate::store::sql) mod row;
mod settle;
mod subscribers;

pub use self::connection::OutboxConnection;
