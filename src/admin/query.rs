//! What a link or a call names: filters, one receipt, one message.

use serde::Deserialize;

use super::fault::Fault;
use crate::event::NameError;
use crate::store::{ListFilter, MessageFilter, MessageKey, MessageState, Receipt, ReceiptKey, ReceiptState};
use crate::{DedupKey, EventId, Name};

/// So many are shown on a page.
pub(super) const PAGE: u32 = 50;

/// No page begins behind this many: who looks for something that far back narrows the filter.
const FURTHEST: u32 = 10_000;

/// Which receipts a list shows. An empty field, as a form sends it, asks for nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InboxQuery {
    pub(super) state: String,
    pub(super) consumer: String,
    pub(super) source: String,
    pub(super) key: String,
    pub(super) skip: u32,
}

impl InboxQuery {
    /// One more than a page, behind those that are skipped.
    pub(super) fn filter(&self) -> Result<ListFilter, Fault> {
        Ok(ListFilter {
            consumer: optional("consumer", &self.consumer, Name::new)?,
            source: optional("source", &self.source, Name::new)?,
            key: optional("key", &self.key, DedupKey::parse)?,
            state: optional("state", &self.state, |text| ReceiptState::from_name(text).ok_or(STATES))?,
            limit: reach(self.skip)?,
        })
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
    pub(super) skip: u32,
    /// How many the step changed that led to this page.
    pub(super) changed: Option<u32>,
}

impl OutboxQuery {
    /// One more than a page, behind those that are skipped.
    pub(super) fn filter(&self) -> Result<MessageFilter, Fault> {
        Ok(MessageFilter {
            state: optional("state", &self.state, |text| MessageState::from_name(text).ok_or(STATES))?,
            endpoint: optional("endpoint", &self.endpoint, Name::new)?,
            event_type: optional("type", &self.event_type, Name::new)?,
            id: optional("id", &self.id, EventId::new)?,
            limit: reach(self.skip)?,
            ..MessageFilter::default()
        })
    }
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

/// A page of what was found up to its end: where the pages before and behind it begin, if there are any.
#[derive(Debug)]
pub(super) struct Paged<T> {
    pub(super) rows: Vec<T>,
    pub(super) before: Option<u32>,
    pub(super) behind: Option<u32>,
}

impl<T> Paged<T> {
    pub(super) fn new(found: Vec<T>, skip: u32) -> Self {
        let skipped = usize::try_from(skip).unwrap_or(usize::MAX);
        let page = usize::try_from(PAGE).unwrap_or(usize::MAX);
        let mut rows: Vec<T> = found.into_iter().skip(skipped).collect();
        let goes_on = rows.len() > page && skip + PAGE <= FURTHEST;
        rows.truncate(page);
        Self { rows, before: (skip > 0).then(|| skip.saturating_sub(PAGE)), behind: goes_on.then_some(skip + PAGE) }
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

fn reach(skip: u32) -> Result<u32, Fault> {
    if skip > FURTHEST {
        return Err(Fault::Bad(format!("skip: at most {FURTHEST} can be skipped; narrow the filter instead")));
    }
    Ok(skip + PAGE + 1)
}

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
