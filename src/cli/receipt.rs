//! One receipt of the inbox, as text for people and as JSON.
//!
//! All text in it came from senders and handlers, so none of it reaches a terminal as it is.

use std::fmt::Write as _;

use countersign::store::{FailedRun, KeptRequest, Receipt, ReceiptKey, ResultBody, StoredResult};

use crate::output::{Printable, table};

pub(crate) use countersign::admin::json::{named, receipt as summary, receipt_details as details};

/// How to name this receipt on the command line.
pub(crate) fn flags_of(key: &ReceiptKey) -> String {
    let ReceiptKey { consumer, source, key } = key;
    format!("`{key}` --consumer `{consumer}` --source `{source}`")
}

/// A line for each.
pub(crate) fn table_of(receipts: &[Receipt]) -> String {
    let rows = receipts.iter().map(|receipt| {
        [
            if receipt.quarantined { "quarantined".to_owned() } else { receipt.state.to_string() },
            receipt.attempts.to_string(),
            receipt.updated.to_string(),
            status(receipt.result.as_ref()),
            printable(receipt.key.consumer.as_str()),
            printable(receipt.key.source.as_str()),
            printable(receipt.key.key.as_str()),
            receipt.event_id.as_ref().map_or_else(none, |id| printable(id.as_str())),
            receipt.error.as_deref().or(receipt.reason.as_deref()).map_or_else(String::new, printable),
        ]
    });
    let heads = ["STATE", "ATTEMPTS", "UPDATED", "STATUS", "CONSUMER", "SOURCE", "KEY", "EVENT ID", "ERROR"];
    table(heads, &rows.collect::<Vec<_>>())
}

/// Everything that is known, a line for each fact.
pub(crate) fn page_of(receipt: &Receipt) -> String {
    let mut page = String::new();
    let mut fact = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{name:<13}{}", Printable(value));
    };
    fact("consumer", receipt.key.consumer.as_str());
    fact("source", receipt.key.source.as_str());
    fact("key", receipt.key.key.as_str());
    fact("event id", receipt.event_id.as_ref().map_or("-", |id| id.as_str()));
    fact("state", receipt.state.as_str());
    if receipt.quarantined {
        fact("quarantined", "until it is retried");
    }
    fact("attempts", &receipt.attempts.to_string());
    fact("first seen", &receipt.first_seen.to_string());
    fact("updated", &receipt.updated.to_string());
    if let Some(moment) = receipt.lease_until {
        fact("lease until", &moment.to_string());
    }
    if let Some(moment) = receipt.due {
        fact("due", &moment.to_string());
    }
    if let Some(key) = &receipt.ordering_key {
        fact("ordering key", key.as_str());
    }
    if let Some(id) = &receipt.correlation_id {
        fact("correlation", id.as_str());
    }
    fact("body sha256", &receipt.body.to_string());
    if receipt.other_bodies > 0 {
        fact("other bodies", &receipt.other_bodies.to_string());
    }
    if let Some(reason) = &receipt.reason {
        fact("reason", reason);
    }
    if let Some(error) = &receipt.error {
        fact("error", error);
    }
    if let Some(StoredResult { status, headers, body }) = &receipt.result {
        fact("result", status.as_str());
        for (name, value) in headers {
            fact("", &format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
        match body {
            ResultBody::Kept(body) => fact("", &format!("body of {} bytes (--json shows it)", body.len())),
            _ => fact("", "body not kept"),
        }
    }
    if let Some(request) = &receipt.request {
        let KeptRequest { method, headers, body, .. } = request;
        let sizes = format!("{} headers, body of {} bytes", headers.len(), body.len());
        fact("request", &format!("{method} {}, {sizes}", path(request)));
    }
    for FailedRun { attempt, at, status, error } in &receipt.failures {
        let status = status.map_or_else(none, |status| status.as_str().to_owned());
        fact("failed run", &format!("{attempt}  {at}  {status}  {error}"));
    }
    page
}

fn path(request: &KeptRequest) -> &str {
    request.target.split('?').next().unwrap_or_default()
}

fn status(result: Option<&StoredResult>) -> String {
    result.map_or_else(none, |result| result.status.as_str().to_owned())
}

fn none() -> String {
    "-".to_owned()
}

fn printable(text: &str) -> String {
    Printable(text).to_string()
}
