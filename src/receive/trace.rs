//! What a request says it belongs to, for spans and for what its handler sends. Few schemes sign it: it is shown and passed
//! on, and nothing goes by it.

use http::{HeaderMap, HeaderName};

use crate::event::MAX_NAME_BYTES;
use crate::{Name, cause};

/// What the event belongs to: an order, a flow.
pub(super) fn correlation_id(headers: &HeaderMap) -> Option<&str> {
    shown(headers, &HeaderName::from_static("correlation-id"))
}

/// The same as a receipt keeps it: what could not be passed on either is left out.
pub(super) fn belongs_to(headers: &HeaderMap) -> Option<Name> {
    correlation_id(headers).and_then(cause::passable)
}

/// The id of the event that caused it.
pub(super) fn causation_id(headers: &HeaderMap) -> Option<&str> {
    shown(headers, &HeaderName::from_static("causation-id"))
}

/// Visible ASCII, within bounds: it goes into logs.
fn shown<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?;
    (1..=MAX_NAME_BYTES).contains(&text.len()).then_some(text)
}
