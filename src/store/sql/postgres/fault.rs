//! What PostgreSQL's SQLSTATEs mean. Its messages come in any language, and are for people.

use super::super::fault::Fault;

pub(in crate::store::sql) fn of(error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Database(error) => error.code().map_or(Fault::Connection, |code| of_code(&code)),
        sqlx::Error::Encode(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => Fault::Row,
        _ => Fault::Connection,
    }
}

fn of_code(code: &str) -> Fault {
    match code {
        // Serialisation failure, deadlock, a lock that was not to be had in time, a statement that was cancelled.
        "40001" | "40P01" | "55P03" | "57014" => Fault::Busy,
        _ => match code.get(..2) {
            // Data, integrity, a change that a trigger refused, limits of a row.
            Some("21" | "22" | "23" | "44" | "54" | "P0") => Fault::Row,
            // Lost connections, a server that stops, a standby, no room, a failed transaction; and what an operator has
            // to mend, where a new connection sees it first.
            _ => Fault::Connection,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_a_row_from_a_lock_and_a_server() {
        for code in ["40001", "40P01", "55P03"] {
            assert_eq!(of_code(code), Fault::Busy, "{code}");
        }
        for code in ["23505", "23514", "22021", "22P05", "P0001", "54000"] {
            assert_eq!(of_code(code), Fault::Row, "{code}");
        }
        for code in ["08006", "57P01", "57P03", "53100", "25006", "25P02", "42P01", "XX000", ""] {
            assert_eq!(of_code(code), Fault::Connection, "{code}");
        }
    }
}
