//! `Signature-Input` and `Signature`: which components are covered, with which parameters, and the signature itself.

use std::collections::HashSet;
use std::convert::Infallible;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::visitor::{DictionaryVisitor, EntryVisitor, Ignored};
use sfv::{BareItem, Dictionary, InnerList, KeyRef, ListEntry, ListSerializer, Parser};

use super::component::Component;
use crate::signature::VerifyError;

pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("signature");
pub(super) const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");

/// One signature of a request, with what it claims to cover.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) components: Vec<Component>,
    /// The list of components and the parameters, in the order in which they came: the last line of the signature base.
    pub(super) parameters: String,
    pub(super) created: i64,
    pub(super) expires: Option<i64>,
    pub(super) nonce: Option<String>,
    pub(super) key_id: Option<String>,
    pub(super) alg: Option<String>,
    pub(super) signature: Vec<u8>,
}

/// More of them are an attempt to keep this side busy.
const MAX_COMPONENTS: usize = 64;

impl Input {
    /// Reads the signature of this label; without one, the only signature that there is.
    pub(super) fn read(headers: &HeaderMap, label: Option<&str>) -> Result<Self, VerifyError> {
        let inputs = dictionary(headers, SIGNATURE_INPUT)?;
        let signatures = dictionary(headers, SIGNATURE)?;
        let label = match (label, inputs.keys().next()) {
            (Some(label), _) => label,
            (None, Some(only)) if inputs.len() == 1 && signatures.len() == 1 => only.as_str(),
            (None, _) => {
                return Err(malformed(
                    SIGNATURE_INPUT,
                    "it holds none or several signatures, and no label is agreed on",
                ));
            }
        };
        let list = match inputs.get(label) {
            Some(ListEntry::InnerList(list)) => list,
            Some(ListEntry::Item(_)) => return Err(malformed(SIGNATURE_INPUT, "its member is no list of components")),
            None => return Err(malformed(SIGNATURE_INPUT, "it has no signature of the agreed label")),
        };
        let signature = match signatures.get(label) {
            Some(ListEntry::Item(item)) => item.bare_item.as_byte_sequence(),
            Some(ListEntry::InnerList(_)) | None => None,
        };
        let signature =
            signature.ok_or_else(|| malformed(SIGNATURE, "it holds no signature of the label in signature-input"))?;

        let integer = |name| match list.params.get(name) {
            None => Ok(None),
            Some(BareItem::Integer(number)) => Ok(Some(i64::from(*number)).filter(|number| *number >= 0)),
            Some(_) => Err(malformed(SIGNATURE_INPUT, "a time is not a whole number")),
        };
        let text = |name| match list.params.get(name) {
            None => Ok(None),
            Some(BareItem::String(text)) => Ok(Some(text.as_str().to_owned())),
            Some(_) => Err(malformed(SIGNATURE_INPUT, "`alg`, `keyid` or `nonce` is no text")),
        };
        let expires = integer("expires")?;
        if expires.is_none() && list.params.contains_key("expires") {
            return Err(malformed(SIGNATURE_INPUT, "a time lies before 1970"));
        }
        Ok(Self {
            components: components(list)?,
            parameters: serialize(list),
            created: integer("created")?.ok_or_else(|| malformed(SIGNATURE_INPUT, "`created` is missing"))?,
            expires,
            nonce: text("nonce")?,
            key_id: text("keyid")?,
            alg: text("alg")?,
            signature: signature.to_vec(),
        })
    }
}

/// A list of components with its parameters, as a structured field.
pub(super) fn serialize(list: &InnerList) -> String {
    let mut serializer = ListSerializer::new();
    let mut inner = serializer.inner_list();
    inner.items(&list.items);
    let _ = inner.finish().parameters(&list.params);
    serializer.finish().unwrap_or_default()
}

fn components(list: &InnerList) -> Result<Vec<Component>, VerifyError> {
    if list.items.len() > MAX_COMPONENTS {
        return Err(malformed(SIGNATURE_INPUT, "it lists more than 64 components"));
    }
    let mut seen = HashSet::new();
    let component = |item: &sfv::Item| {
        let name = item.bare_item.as_string().map(sfv::StringRef::as_str);
        let name = name.ok_or_else(|| malformed(SIGNATURE_INPUT, "a component is no text"))?;
        if !item.params.is_empty() {
            return Err(malformed(SIGNATURE_INPUT, "a component has parameters, which are not supported"));
        }
        if !seen.insert(name.to_owned()) {
            return Err(malformed(SIGNATURE_INPUT, "a component is listed twice"));
        }
        Component::named(name).ok_or_else(|| malformed(SIGNATURE_INPUT, "a component is not known"))
    };
    list.items.iter().map(component).collect()
}

fn dictionary(headers: &HeaderMap, name: HeaderName) -> Result<Dictionary, VerifyError> {
    // A proxy that signs adds lines of its own: several lines are one list, as of every structured field.
    let lines: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return Err(VerifyError::MissingHeader(name));
    }
    let joined = lines.join(&b", "[..]);
    let no_dictionary = || malformed(name.clone(), "it is no dictionary of structured fields");
    let labels = Parser::new(&joined).parse_dictionary_with_visitor(Labels::default()).map_err(|_| no_dictionary())?;
    if labels.twice {
        return Err(malformed(name, "a label stands in it twice"));
    }
    Parser::new(&joined).parse().map_err(|_| no_dictionary())
}

/// The labels of a dictionary. Of two members with one label the last would count for us, and another reader may take the
/// first.
#[derive(Default)]
struct Labels<'a> {
    seen: HashSet<&'a str>,
    twice: bool,
}

impl<'a> DictionaryVisitor<'a> for Labels<'a> {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, label: &'a KeyRef) -> Result<impl EntryVisitor<'a>, Infallible> {
        self.twice |= !self.seen.insert(label.as_str());
        Ok(Ignored)
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

fn malformed(header: HeaderName, fault: &'static str) -> VerifyError {
    VerifyError::Malformed { header, fault }
}
