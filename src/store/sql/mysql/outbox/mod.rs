//! The outbox in MySQL or MariaDB.

mod database;
mod inserting;
pub(super) mod read;
mod statements;

pub(in crate::store::sql) use self::inserting::Inserting;
