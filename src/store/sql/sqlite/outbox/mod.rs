//! The outbox in the file.

mod database;
mod inserting;
mod read;
mod statements;

pub(in crate::store::sql) use self::inserting::Inserting;
pub(super) use self::read::Reader;
