//! The outbox in PostgreSQL.

mod database;
mod floors;
mod inserting;
mod listen;
mod read;
mod statements;

pub(super) use self::floors::Floors;
pub(in crate::store::sql) use self::inserting::Inserting;
pub(super) use self::listen::Listening;
