//! The tables that a copy carries, and what their columns hold.

/// A table that a copy carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Table {
    /// Who messages go to.
    Endpoint,
    /// The receipts.
    Inbox,
    /// Their failed runs.
    InboxFailure,
    /// The messages.
    Outbox,
    /// Their attempts.
    Attempt,
}

impl Table {
    /// All of them, in the order in which they are carried: what belongs to a row comes after it.
    pub const ALL: [Self; 5] = [Self::Endpoint, Self::Inbox, Self::InboxFailure, Self::Outbox, Self::Attempt];

    /// Its name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "countersign_endpoint",
            Self::Inbox => "countersign_inbox",
            Self::InboxFailure => "countersign_inbox_failure",
            Self::Outbox => "countersign_outbox",
            Self::Attempt => "countersign_attempt",
        }
    }

    /// What is carried of a row, its key first.
    pub(in crate::store::sql) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Endpoint => ENDPOINT,
            Self::Inbox => INBOX,
            Self::InboxFailure => INBOX_FAILURE,
            Self::Outbox => OUTBOX,
            Self::Attempt => ATTEMPT,
        }
    }

    /// Whether its key is a row of another table and a number there, and not a number of its own.
    pub(in crate::store::sql) const fn is_history(self) -> bool {
        matches!(self, Self::InboxFailure | Self::Attempt)
    }

    /// Where the state of a row stands, by which rows are counted.
    pub(super) fn state(self) -> Option<usize> {
        self.columns().iter().position(|column| column.name == "state")
    }
}

/// A column, and what it holds.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct Column {
    pub(in crate::store::sql) name: &'static str,
    pub(in crate::store::sql) kind: Kind,
}

/// What a column holds, as far as databases tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sql) enum Kind {
    Number,
    Flag,
    /// Text that tells things apart: MySQL keeps 255 bytes of it, as bytes.
    Name,
    /// Text for people: MySQL keeps 65,535 bytes of it, as characters.
    Prose,
    /// Other text: MySQL keeps 16 MiB of it, as bytes.
    Text,
    /// Bytes: MySQL keeps 16 MiB of them.
    Block,
    /// Bytes, as many as a row can have.
    Body,
}

impl Kind {
    #[cfg(feature = "postgres")]
    pub(in crate::store::sql) const fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Prose | Self::Text)
    }
}

/// The columns of a table as a statement names them. `key` is a word of its own in MySQL, and quoted in another way than
/// elsewhere.
macro_rules! columns {
    (endpoint) => {
        "id, name, url, scheme, secrets, types, headers, settings, disabled, disabled_since, paused_until, failing_since, failures, \
         created, updated"
    };
    (inbox $key:literal) => {
        concat!(
            "id, consumer, source, ",
            $key,
            ", event_id, correlation_id, body_digest, other_bodies, state, attempts, token, lease_until, due, quarantined, ordering_key, \
             first_seen, updated, error, reason, result_status, result_headers, result_body, request_method, request_target, \
             request_headers, request_body, request_proof"
        )
    };
    (inbox_failure) => {
        "receipt, seq, attempt, at, status, error"
    };
    (outbox) => {
        "id, endpoint, message_id, type, content_type, payload, ordering_key, correlation_id, causation_id, schema_version, \
         traceparent, state, attempts, replays, noted, token, due, claim_at, created, since, updated, last_status, last_error, reason"
    };
    (attempt) => {
        "message, seq, replay, number, at, took, status, headers, body, error, kind"
    };
}

pub(in crate::store::sql) use columns;

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

const ENDPOINT: &[Column] = &[
    column("id", Kind::Number),
    column("name", Kind::Name),
    column("url", Kind::Text),
    column("scheme", Kind::Name),
    column("secrets", Kind::Text),
    column("types", Kind::Text),
    column("headers", Kind::Block),
    column("settings", Kind::Text),
    column("disabled", Kind::Prose),
    column("disabled_since", Kind::Number),
    column("paused_until", Kind::Number),
    column("failing_since", Kind::Number),
    column("failures", Kind::Number),
    column("created", Kind::Number),
    column("updated", Kind::Number),
];

/// Without `ended_token`: a store on a server keeps it for a caller who waits for an answer.
const INBOX: &[Column] = &[
    column("id", Kind::Number),
    column("consumer", Kind::Name),
    column("source", Kind::Name),
    column("key", Kind::Name),
    column("event_id", Kind::Name),
    column("correlation_id", Kind::Name),
    column("body_digest", Kind::Block),
    column("other_bodies", Kind::Number),
    column("state", Kind::Name),
    column("attempts", Kind::Number),
    column("token", Kind::Block),
    column("lease_until", Kind::Number),
    column("due", Kind::Number),
    column("quarantined", Kind::Flag),
    column("ordering_key", Kind::Name),
    column("first_seen", Kind::Number),
    column("updated", Kind::Number),
    column("error", Kind::Prose),
    column("reason", Kind::Prose),
    column("result_status", Kind::Number),
    column("result_headers", Kind::Block),
    column("result_body", Kind::Body),
    column("request_method", Kind::Name),
    column("request_target", Kind::Text),
    column("request_headers", Kind::Block),
    column("request_body", Kind::Body),
    column("request_proof", Kind::Text),
];

const INBOX_FAILURE: &[Column] = &[
    column("receipt", Kind::Number),
    column("seq", Kind::Number),
    column("attempt", Kind::Number),
    column("at", Kind::Number),
    column("status", Kind::Number),
    column("error", Kind::Prose),
];

/// Without `last_token`, for the same reason; and without `lane`, which follows from the rest.
const OUTBOX: &[Column] = &[
    column("id", Kind::Number),
    column("endpoint", Kind::Name),
    column("message_id", Kind::Name),
    column("type", Kind::Name),
    column("content_type", Kind::Name),
    column("payload", Kind::Body),
    column("ordering_key", Kind::Name),
    column("correlation_id", Kind::Name),
    column("causation_id", Kind::Name),
    column("schema_version", Kind::Number),
    column("traceparent", Kind::Name),
    column("state", Kind::Name),
    column("attempts", Kind::Number),
    column("replays", Kind::Number),
    column("noted", Kind::Number),
    column("token", Kind::Block),
    column("due", Kind::Number),
    column("claim_at", Kind::Number),
    column("created", Kind::Number),
    column("since", Kind::Number),
    column("updated", Kind::Number),
    column("last_status", Kind::Number),
    column("last_error", Kind::Prose),
    column("reason", Kind::Prose),
];

const ATTEMPT: &[Column] = &[
    column("message", Kind::Number),
    column("seq", Kind::Number),
    column("replay", Kind::Number),
    column("number", Kind::Number),
    column("at", Kind::Number),
    column("took", Kind::Number),
    column("status", Kind::Number),
    column("headers", Kind::Block),
    column("body", Kind::Block),
    column("error", Kind::Prose),
    column("kind", Kind::Prose),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_the_columns_that_are_described() {
        for (table, text) in [
            (Table::Endpoint, columns!(endpoint)),
            (Table::Inbox, columns!(inbox "key")),
            (Table::InboxFailure, columns!(inbox_failure)),
            (Table::Outbox, columns!(outbox)),
            (Table::Attempt, columns!(attempt)),
        ] {
            let described: Vec<_> = table.columns().iter().map(|column| column.name).collect();
            assert_eq!(text.split(", ").collect::<Vec<_>>(), described, "{table:?}");
        }
    }
}
