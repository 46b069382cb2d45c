//! What a link or a call names: filters, one receipt, one message.

use serde::Deserialize;

use super::fault::Fault;
use crate::event::NameError;
use crate::store::{Cursor, ListFilter, MessageFilter, MessageKey, MessageState, Receipt, ReceiptKey, ReceiptState};
use crate::{DedupKey, EventId, Name};

/// So many are shown on a page.
pub(super) const PAGE: u32 = 50;

/// Which receipts a list shows. An empty field, as a form sends it, asks for nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InboxQuery {
    pub(super) state: String,
    pub(super) consumer: String,
    pub(super) source: String,
    pub(super) key: String,
    pub(super) correlation_id: String,
    pub(super) after: String,
}

impl InboxQuery {
    pub(super) fn filter(&self) -> Result<ListFilter, Fault> {
        Ok(ListFilter {
            consumer: optional("consumer", &self.consumer, Name::new)?,
            source: optional("source", &self.source, Name::new)?,
            key: optional("key", &self.key, DedupKey::parse)?,
            correlation_id: optional("correlation_id", &self.correlation_id, Name::new)?,
            state: optional("state", &self.state, |text| ReceiptState::from_name(text).ok_or(STATES))?,
            limit: PAGE,
        })
    }

    /// Behind which place the page begins.
    pub(super) fn after(&self) -> Result<Option<Cursor>, Fault> {
        optional("after", &self.after, str::parse)
    }

    /// The same filter in a link, at its newest page.
    pub(super) fn link(&self) -> String {
        let Self { state, consumer, source, key, correlation_id, after: _ } = self;
        link([
            ("state", state),
            ("consumer", consumer),
            ("source", source),
            ("key", key),
            ("correlation_id", correlation_id),
        ])
    }
}

/// Which messages a list shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OutboxQuery {
    pub(super) state: String,
    pub(super) endpoint: String,
    #[serde(rename = "type")]
    pub(super) event_type: String,
    pub(super) id: String,
    pub(super) correlation_id: String,
    pub(super) after: String,
    /// How many the step changed that led to this page.
    pub(super) changed: Option<u32>,
}

impl OutboxQuery {
    pub(super) fn filter(&self) -> Result<MessageFilter, Fault> {
        Ok(MessageFilter {
            state: optional("state", &self.state, |text| MessageState::from_name(text).ok_or(STATES))?,
            endpoint: optional("endpoint", &self.endpoint, Name::new)?,
            event_type: optional("type", &self.event_type, Name::new)?,
            id: optional("id", &self.id, EventId::new)?,
            correlation_id: optional("correlation_id", &self.correlation_id, Name::new)?,
            limit: PAGE,
            ..MessageFilter::default()
        })
    }

    /// Behind which place the page begins.
    pub(super) fn after(&self) -> Result<Option<Cursor>, Fault> {
        optional("after", &self.after, str::parse)
    }

    /// The same filter in a link, at its newest page.
    pub(super) fn link(&self) -> String {
        let Self { state, endpoint, event_type, id, correlation_id, after: _, changed: _ } = self;
        link([
            ("state", state),
            ("endpoint", endpoint),
            ("type", event_type),
            ("id", id),
            ("correlation_id", correlation_id),
        ])
    }
}

/// What is asked for, without what is not.
fn link<const N: usize>(fields: [(&str, &String); N]) -> String {
    let asked = fields.into_iter().filter(|(_, value)| !value.is_empty());
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(asked).finish()
}

/// Which receipt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptQuery {
    pub(super) consumer: String,
    pub(super) source: String,
    pub(super) key: String,
}

impl ReceiptQuery {
    pub(super) fn key(&self) -> Result<ReceiptKey, Fault> {
        Ok(ReceiptKey {
            consumer: needed("consumer", &self.consumer, Name::new)?,
            source: needed("source", &self.source, Name::new)?,
            key: needed("key", &self.key, DedupKey::parse)?,
        })
    }
}

/// Which message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageQuery {
    pub(super) endpoint: String,
    pub(super) id: String,
}

impl MessageQuery {
    pub(super) fn key(&self) -> Result<MessageKey, Fault> {
        Ok(MessageKey {
            endpoint: needed("endpoint", &self.endpoint, Name::new)?,
            id: needed("id", &self.id, EventId::new)?,
        })
    }
}

/// Which endpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointQuery {
    pub(super) name: String,
}

impl EndpointQuery {
    pub(super) fn name(&self) -> Result<Name, Fault> {
        needed("name", &self.name, Name::new)
    }
}

/// How a receipt is called in a list: one in quarantine is not just `received`.
pub(super) fn standing(receipt: &Receipt) -> &'static str {
    if receipt.quarantined { "quarantined" } else { receipt.state.as_str() }
}

/// A URL as it may be shown: without its query, which may hold a token, and without the user and password that a row
/// written by hand may hold.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let (shown, query) = match url.split_once('?') {
        Some((shown, _)) => (shown, "?…"),
        None => (url, ""),
    };
    let (scheme, rest) = shown.split_once("://").map_or(("", shown), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let end = rest.find(['/', '\\', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last one: those before it belong to the password.
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}{separator}…@{host}{path}{query}"),
        None => format!("{scheme}{separator}{authority}{path}{query}"),
    }
}

/// The path of a request's target.
pub(super) fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

const STATES: &str = "there is no such state";

fn optional<T, E: std::fmt::Display>(
    field: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|error| Fault::Bad(format!("{field}: {error}")))
}

fn needed<T>(field: &str, text: &str, parse: impl FnOnce(&str) -> Result<T, NameError>) -> Result<T, Fault> {
    parse(text).map_err(|error| Fault::Bad(format!("{field}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("https://shop.example/hooks", "https://shop.example/hooks"),
            ("https://shop.example/hooks?key=hunter2", "https://shop.example/hooks?…"),
            ("https://user:hunter2@shop.example:8443/a@b", "https://…@shop.example:8443/a@b"),
            ("https://user:hunter2/x@shop.example/", "https://user:hunter2/x@shop.example/"),
            ("https://hunter2@hunter2@shop.example", "https://…@shop.example"),
            ("user:hunter2@shop.example/", "…@shop.example/"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }
}
