//! Sagas beside inbox and outbox: read and written on a connection of the caller's, in whatever transaction that is.

mod connection;
mod row;

pub use self::connection::SagaConnection;
