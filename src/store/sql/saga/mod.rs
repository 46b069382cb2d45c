//! Sagas beside inbox and outbox: read and written on a connection of the caller's, in whatever transaction that is; and what
//! operators ask a store.

mod connection;
mod row;
mod store;

pub use self::connection::SagaConnection;
pub use self::store::SagaStore;
