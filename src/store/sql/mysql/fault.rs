//! What the error numbers of MySQL and MariaDB mean. Their messages come in any language, and are for people.

use sqlx::mysql::MySqlDatabaseError;

use super::super::fault::Fault;

pub(in crate::store::sql) fn of(error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
            Some(error) => of_number(error.number(), error.code().unwrap_or_default()),
            None => Fault::Connection,
        },
        // A named lock, or a place in the application's pool, that was not to be had in time.
        sqlx::Error::PoolTimedOut => Fault::Busy,
        sqlx::Error::Encode(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => Fault::Row,
        _ => Fault::Connection,
    }
}

fn of_number(number: u16, state: &str) -> Fault {
    match number {
        // A lock that was not to be had in time, a deadlock, a row that changed under a snapshot, a statement that was
        // ended for its time, named locks that are waited for in a circle.
        1205 | 1213 | 1020 | 1969 | 3024 | 3058 | 3572 => Fault::Busy,
        // A check constraint, as MariaDB and MySQL count it; a value out of a JSON document that does not fit.
        // What is more than a packet may have: the server ends the connection, and a new one would end the same way.
        4025 | 3819 | 3156 | 3141 | 1153 => Fault::Row,
        _ => match state.get(..2) {
            // Data, integrity, what a trigger refused.
            Some("21" | "22" | "23" | "45") => Fault::Row,
            // Lost connections, a server that stops or only reads, no room; and what an operator has to mend, where a
            // new connection sees it first.
            _ => Fault::Connection,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_a_row_from_a_lock_and_a_server() {
        for (number, state) in [(1205, "HY000"), (1213, "40001")] {
            assert_eq!(of_number(number, state), Fault::Busy, "{number}");
        }
        for (number, state) in
            [(1062, "23000"), (1406, "22001"), (4025, "23000"), (3819, "HY000"), (1644, "45000"), (1153, "08S01")]
        {
            assert_eq!(of_number(number, state), Fault::Row, "{number}");
        }
        for (number, state) in [(1053, "08S01"), (1290, "HY000"), (1021, "HY000"), (1146, "42S02"), (0, "")] {
            assert_eq!(of_number(number, state), Fault::Connection, "{number}");
        }
    }
}
