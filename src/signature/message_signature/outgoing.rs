//! The sender's side: the headers of a message, and the signature base that is to be signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, InnerList, Item, Key};

use super::component::{Component, NoValue};
use super::content_digest::CONTENT_DIGEST;
use super::input::{SIGNATURE, SIGNATURE_INPUT, serialize};
use super::{IdPlace, MessageSignature, base};
use crate::event::EventId;
use crate::signature::scheme::WEBHOOK_TYPE;
use crate::signature::{Head, Message, SignError};

/// A message whose signature is still to be computed.
#[derive(Debug)]
pub(super) struct Unsigned {
    /// What is to be signed.
    pub(super) base: Vec<u8>,
    headers: HeaderMap,
    label: String,
}

impl Unsigned {
    /// The headers, with the signature among them.
    pub(super) fn signed(mut self, signature: &[u8]) -> Result<HeaderMap, SignError> {
        let signature = format!("{}=:{}:", self.label, STANDARD.encode(signature));
        self.headers.insert(SIGNATURE, value(&SIGNATURE, &signature)?);
        Ok(self.headers)
    }
}

impl MessageSignature {
    /// The headers of a message but for the signature.
    pub(super) fn prepare(&self, message: &Message<'_>) -> Result<Unsigned, SignError> {
        let created = message.timestamp.as_unix_seconds();
        if created < 0 {
            return Err(SignError::NegativeTimestamp);
        }
        let id = match (message.id, self.has_id()) {
            (_, false) => None,
            (None, true) => return Err(SignError::MissingId),
            (Some(id), true) => Some(EventId::new(id).map(|_| id).map_err(SignError::InvalidId)?),
        };
        let mut headers = HeaderMap::new();
        for component in &self.required {
            if let Component::Field(name) = component
                && let Some(text) = self.field(name, id, message)?
            {
                headers.insert(name.clone(), value(name, &text)?);
            }
        }
        let list = self.parameters(created, id, &headers)?;
        let head = Head::new(message.method, message.url, &headers);
        let covered: Vec<_> = self.covered(&headers).cloned().collect();
        let base = base(&covered, &list, &head).map_err(|missing| match missing {
            NoValue::Url => SignError::MissingUrl,
            NoValue::Missing(name) | NoValue::Unreadable(name) => SignError::InvalidHeader(name),
        })?;
        let label = self.label.clone().unwrap_or_else(|| "sig1".to_owned());
        headers.insert(SIGNATURE_INPUT, value(&SIGNATURE_INPUT, &format!("{label}={list}"))?);
        Ok(Unsigned { base, headers, label })
    }

    /// The value that a message has for a header; none where it may leave it out.
    fn field(&self, name: &HeaderName, id: Option<&str>, message: &Message<'_>) -> Result<Option<String>, SignError> {
        if *name == CONTENT_DIGEST {
            Ok(Some(self.digest.header(message.body)))
        } else if self.id == IdPlace::Header(name.clone()) {
            Ok(id.map(str::to_owned))
        } else if *name == CONTENT_TYPE {
            message.content_type.map(str::to_owned).map(Some).ok_or_else(|| SignError::UnknownHeader(name.clone()))
        } else if *name == WEBHOOK_TYPE {
            message.event_type.map(str::to_owned).map(Some).ok_or_else(|| SignError::UnknownHeader(name.clone()))
        } else {
            Err(SignError::UnknownHeader(name.clone()))
        }
    }

    fn covered<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a Component> {
        self.required.iter().filter(|component| match component {
            Component::Field(name) => headers.contains_key(name),
            _ => true,
        })
    }

    fn parameters(&self, created: i64, id: Option<&str>, headers: &HeaderMap) -> Result<String, SignError> {
        let mut list = InnerList::default();
        for component in self.covered(headers) {
            list.items.push(Item::new(text(component.name())?));
        }
        let integer = |number: i64| sfv::Integer::try_from(number).map(BareItem::Integer).map_err(|_| TOO_LATE);
        let mut add = |name: &str, value: BareItem| {
            if let Ok(key) = Key::from_string(name.to_owned()) {
                list.params.insert(key, value);
            }
        };
        add("created", integer(created)?);
        if let Some(lifetime) = self.lifetime {
            add("expires", integer(created.saturating_add(lifetime))?);
        }
        if self.id == IdPlace::Nonce
            && let Some(id) = id
        {
            add("nonce", text(id)?);
        }
        if let Some(key_id) = &self.key_id {
            add("keyid", text(key_id)?);
        }
        add("alg", text(self.algorithm.as_str())?);
        Ok(serialize(&list))
    }
}

/// A structured field holds no number of 16 digits: that is the year 33 million.
const TOO_LATE: SignError = SignError::NegativeTimestamp;

fn text(text: &str) -> Result<BareItem, SignError> {
    sfv::String::from_string(text.to_owned()).map(BareItem::String).map_err(|_| SignError::IdNotForHeader)
}

fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, SignError> {
    let sound = text.is_ascii() && text.trim() == text;
    sound.then(|| HeaderValue::from_str(text).ok()).flatten().ok_or_else(|| SignError::InvalidHeader(name.clone()))
}
