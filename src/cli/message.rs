//! One message of the outbox, as text for people and as JSON.
//!
//! What receivers answered and senders wrote is shown with control characters spelled out.

use std::fmt::Write as _;

use countersign::Name;
use countersign::store::{Attempt, AttemptReport, Enqueued, OutboxEntry};
use serde_json::{Value, json};

use crate::output::{Printable, table};

pub(crate) use countersign::admin::json::{message as summary, message_details as details};

/// A line for each.
pub(crate) fn table_of(entries: &[OutboxEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let what = entry.reason.as_deref().or(entry.last_error.as_deref()).unwrap_or_default();
        [
            entry.state.to_string(),
            entry.attempts.to_string(),
            entry.replays.to_string(),
            entry.due.map_or_else(none, |due| due.to_string()),
            entry.updated.to_string(),
            entry.last_status.map_or_else(none, |status| status.as_str().to_owned()),
            printable(entry.endpoint.as_str()),
            printable(entry.message.event_type.as_str()),
            printable(entry.message.id.as_str()),
            printable(what),
        ]
    });
    let heads = ["STATE", "ATTEMPTS", "REPLAYS", "DUE", "UPDATED", "STATUS", "ENDPOINT", "TYPE", "ID", "ERROR"];
    table(heads, &rows.collect::<Vec<_>>())
}

/// Everything that is known, a line for each fact.
pub(crate) fn page_of(entry: &OutboxEntry) -> String {
    let OutboxEntry { message, endpoint, state, attempts, replays, .. } = entry;
    let mut page = String::new();
    let mut fact = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{name:<16}{}", Printable(value));
    };
    fact("id", message.id.as_str());
    fact("endpoint", endpoint.as_str());
    fact("type", message.event_type.as_str());
    fact("state", state.as_str());
    fact("attempts", &attempts.to_string());
    fact("replays", &replays.to_string());
    let optional = [
        ("due", entry.due.map(|due| due.to_string())),
        ("created", Some(entry.created.to_string())),
        ("updated", Some(entry.updated.to_string())),
        ("reason", entry.reason.clone()),
        ("last error", entry.last_error.clone()),
        ("content type", Some(message.content_type.clone())),
        ("ordering key", message.ordering_key.as_ref().map(Name::to_string)),
        ("correlation id", message.correlation_id.as_ref().map(Name::to_string)),
        ("causation id", message.causation_id.as_ref().map(Name::to_string)),
        ("traceparent", message.traceparent.clone()),
        ("payload", Some(format!("{} bytes (--json shows it)", message.payload.len()))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            fact(name, &value);
        }
    }
    for Attempt { replay, number, at, report, .. } in &entry.attempt_log {
        let AttemptReport { took, status, error, .. } = report;
        let status = status.map_or_else(none, |status| status.as_str().to_owned());
        let error = error.as_deref().unwrap_or_default();
        let after = if *replay > 0 { format!(" after {replay} replays") } else { String::new() };
        fact("attempt", &format!("{number}{after}  {at}  {} ms  {status}  {error}", took.as_millis()));
    }
    page
}

/// What was put into the outbox.
pub(crate) fn enqueued(all: &[Enqueued]) -> Value {
    let each = all
        .iter()
        .map(|Enqueued { id, endpoint, created, .. }| json!({ "id": id, "endpoint": endpoint, "created": created }));
    json!({ "messages": each.collect::<Value>() })
}

/// The same, a line for each.
pub(crate) fn enqueued_lines(all: &[Enqueued]) -> String {
    let lines = all.iter().map(|Enqueued { id, endpoint, created, .. }| {
        let was_there = if *created { "" } else { "  (was there)" };
        format!("{}  {}{was_there}\n", printable(id.as_str()), printable(endpoint.as_str()))
    });
    lines.collect()
}

fn none() -> String {
    "-".to_owned()
}

fn printable(text: &str) -> String {
    Printable(text).to_string()
}
