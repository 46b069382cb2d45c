//! How receipts, messages and endpoints are written as JSON, by the API and by the program alike.
//!
//! Fields are only ever added. Times are RFC 3339 in UTC, text that is no UTF-8 is in base64, headers are pairs since a
//! name may stand more than once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

use super::query::path_of;
pub use super::query::shown_url;
use crate::store::{
    Attempt, AttemptReport, Endpoint, EndpointEntry, FailedRun, KeptRequest, OutboxEntry, Receipt, ReceiptKey,
    ResultBody, StoredResult, TypePattern,
};

/// The fields of a receipt in a list.
#[must_use]
pub fn receipt(receipt: &Receipt) -> Value {
    let fields = json!({
        "event_id": receipt.event_id,
        "state": receipt.state.as_str(),
        "attempts": receipt.attempts,
        "first_seen": receipt.first_seen,
        "updated": receipt.updated,
        "status": receipt.result.as_ref().map(|result| result.status.as_u16()),
        "error": receipt.error,
        "reason": receipt.reason,
        "quarantined": receipt.quarantined,
    });
    named(&receipt.key, fields)
}

/// Everything that is known of a receipt. Of a kept request only sizes: what a sender sent may be anybody's data.
#[must_use]
pub fn receipt_details(found: &Receipt) -> Value {
    let more = json!({
        "lease_until": found.lease_until,
        "due": found.due,
        "ordering_key": found.ordering_key,
        "correlation_id": found.correlation_id,
        "body_sha256": found.body.to_string(),
        "other_bodies": found.other_bodies,
        "result": found.result.as_ref().map(result),
        "request": found.request.as_ref().map(request),
        "failures": found.failures.iter().map(failure).collect::<Value>(),
    });
    joined(receipt(found), more)
}

/// These fields, behind those that say which receipt it is.
#[must_use]
pub fn named(key: &ReceiptKey, fields: Value) -> Value {
    joined(json!({ "consumer": key.consumer, "source": key.source, "key": key.key }), fields)
}

/// The fields of a message in a list.
#[must_use]
pub fn message(entry: &OutboxEntry) -> Value {
    json!({
        "id": entry.message.id,
        "endpoint": entry.endpoint,
        "type": entry.message.event_type,
        "state": entry.state.as_str(),
        "attempts": entry.attempts,
        "replays": entry.replays,
        "due": entry.due,
        "created": entry.created,
        "updated": entry.updated,
        "last_status": entry.last_status.map(|status| status.as_u16()),
        "last_error": entry.last_error,
        "reason": entry.reason,
    })
}

/// Everything that is known of a message, with its payload and every attempt.
#[must_use]
pub fn message_details(entry: &OutboxEntry) -> Value {
    let content = &entry.message;
    let more = json!({
        "content_type": content.content_type,
        "ordering_key": content.ordering_key,
        "correlation_id": content.correlation_id,
        "causation_id": content.causation_id,
        "schema_version": content.schema_version,
        "traceparent": content.traceparent,
        "payload": body(&content.payload),
        "log": entry.attempt_log.iter().map(attempt).collect::<Value>(),
    });
    joined(message(entry), more)
}

/// An endpoint. The query of its URL and the values of its headers are left out: they often are tokens.
#[must_use]
pub fn endpoint(entry: &EndpointEntry) -> Value {
    let Endpoint { name, url, scheme, secrets, types, headers, settings, .. } = &entry.endpoint;
    json!({
        "name": name,
        "url": shown_url(url),
        "scheme": scheme,
        "secrets": secrets,
        "types": types.iter().map(TypePattern::as_str).collect::<Vec<_>>(),
        "headers": headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
        "settings": settings,
        "enabled": entry.disabled.is_none(),
        "disabled": entry.disabled,
        "disabled_since": entry.disabled_since,
        "paused_until": entry.paused_until,
        "failing_since": entry.failing_since,
        "failures": entry.failures,
        "created": entry.created,
        "updated": entry.updated,
    })
}

fn result(result: &StoredResult) -> Value {
    let body = match &result.body {
        ResultBody::Kept(bytes) => body(bytes),
        ResultBody::Omitted => Value::Null,
    };
    json!({ "status": result.status.as_u16(), "headers": pairs(&result.headers), "body": body })
}

fn request(request: &KeptRequest) -> Value {
    json!({
        "method": request.method.as_str(),
        "path": path_of(&request.target),
        "headers": request.headers.len(),
        "body_bytes": request.body.len(),
    })
}

fn failure(run: &FailedRun) -> Value {
    json!({
        "attempt": run.attempt,
        "at": run.at,
        "status": run.status.map(|status| status.as_u16()),
        "error": run.error,
    })
}

fn attempt(attempt: &Attempt) -> Value {
    let AttemptReport { took, status, headers, body: begins, error, kind, .. } = &attempt.report;
    json!({
        "replay": attempt.replay,
        "number": attempt.number,
        "at": attempt.at,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "status": status.map(|status| status.as_u16()),
        "headers": pairs(headers),
        "body": body(begins),
        "error": error,
        "kind": kind,
    })
}

/// As the text that it is, or else in base64.
fn body(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

fn pairs(headers: &HeaderMap) -> Value {
    headers.iter().map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])).collect()
}

fn joined(first: Value, second: Value) -> Value {
    let fields = |value| match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    Value::Object(fields(first).into_iter().chain(fields(second)).collect())
}
