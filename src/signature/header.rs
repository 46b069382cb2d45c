//! Reads what a request claims in its headers. Every refusal that needs no body is made here.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use memchr::memchr;
use smallvec::SmallVec;

use super::VerifyError;
use super::mac::Tag;
use super::scheme::{Carrier, Constant, Scheme};
use super::signed::{Around, Framing, Part, Values};
use super::window::Unit;

/// The part of a request that comes before its body, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    url: &'a str,
    headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    /// The head of a request.
    ///
    /// `url` counts only for schemes that sign it. It is then the one that the sender was given, from your
    /// configuration: behind a proxy, the request itself does not know it.
    #[must_use]
    pub const fn new(method: &'a Method, url: &'a str, headers: &'a HeaderMap) -> Self {
        Self { method, url, headers }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The URL as the sender knows it.
    #[must_use]
    pub const fn url(&self) -> &'a str {
        self.url
    }

    /// The headers.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}

/// What the headers claim. Nothing of it is proven.
pub(super) struct Claims<'a> {
    pub(super) signatures: Signatures,
    pub(super) timestamp: Option<SentAt<'a>>,
    pub(super) id: Option<&'a HeaderValue>,
}

/// The well-formed signatures of a request. There is at least one.
pub(super) type Signatures = SmallVec<[Tag; 1]>;

/// A timestamp: its text, which is what was signed, and its number.
#[derive(Clone, Copy)]
pub(super) struct SentAt<'a> {
    pub(super) text: &'a [u8],
    pub(super) number: i64,
}

/// No sender puts more signatures into a request. More of them are an attempt to keep this side busy.
pub(super) const MAX_SIGNATURES: usize = 16;

impl Scheme {
    /// Reads the headers that this scheme knows.
    pub(super) fn read<'a>(&self, head: &Head<'a>) -> Result<Claims<'a>, VerifyError> {
        // The family is the one whose signature is there; all else is read under its names, so that an id of one
        // family never goes with the signature of another.
        let headers = head.headers;
        let signed_by = |name: &HeaderName| headers.contains_key(name);
        let family = match &*self.families {
            [only] => only,
            several => match several.iter().find(|family| family.signature.iter().any(signed_by)) {
                Some(family) => family,
                None => several.first().ok_or(VerifyError::Unsupported("the scheme has no headers"))?,
            },
        };

        let mut found = Found { signatures: Signatures::new(), timestamp: None };
        let mut carrier = None;
        for name in &family.signature {
            if let Some(value) = single(headers, name)? {
                self.read_signatures(name, value.as_bytes(), &mut found)?;
                carrier = Some(name);
            }
        }
        let Some(carrier) = carrier else {
            let name = family.signature.first().ok_or(VerifyError::Unsupported("the scheme has no headers"))?;
            return Err(VerifyError::MissingHeader(name.clone()));
        };

        let timestamp = match (&family.timestamp, self.time) {
            (Some(name), Some(unit)) => Some(read_timestamp(name, required(headers, name)?.as_bytes(), unit)?),
            (None, Some(unit)) if self.body_time.is_none() => match found.timestamp {
                Some(text) => Some(read_timestamp(carrier, text, unit)?),
                None => return Err(malformed(carrier, "it has no timestamp field")),
            },
            (None, Some(_)) | (_, None) => None,
        };
        let id = match &family.id {
            Some(name) if self.signs_id() => Some(self.check_id(name, required(headers, name)?)?),
            Some(name) => single(headers, name)?,
            None => None,
        };
        self.check_signed_headers(headers)?;

        if found.signatures.is_empty() {
            return Err(malformed(carrier, "it holds no well-formed signature"));
        }
        Ok(Claims { signatures: found.signatures, timestamp, id })
    }

    /// The signed text of a request, but for its body.
    pub(super) fn around(&self, head: Head<'_>, claims: &Claims<'_>) -> Around {
        self.signed.around(&Values {
            head,
            id: claims.id.map(HeaderValue::as_bytes),
            timestamp: claims.timestamp.map(|timestamp| timestamp.text),
        })
    }

    fn read_signatures<'a>(
        &self,
        name: &HeaderName,
        value: &'a [u8],
        found: &mut Found<'a>,
    ) -> Result<(), VerifyError> {
        match &self.carrier {
            Carrier::Whole { prefix } => match value.strip_prefix(prefix.as_bytes()) {
                Some(text) => self.read_signature(name, text, found),
                None => Err(malformed(name, "it does not begin with the scheme's prefix")),
            },
            Carrier::TimeFirst => {
                let mut items = items(value, b',');
                found.timestamp = items.next();
                items.try_for_each(|item| self.read_signature(name, item, found))
            }
            Carrier::List { separator, spaced, tag, timestamp } => {
                for item in items(value, *separator) {
                    let item = if *spaced { item.strip_prefix(b" ").unwrap_or(item) } else { item };
                    if let Some(text) = item.strip_prefix(tag.as_bytes()) {
                        self.read_signature(name, text, found)?;
                    } else if let Some(text) = timestamp.and_then(|field| item.strip_prefix(field.as_bytes()))
                        && found.timestamp.replace(text).is_some()
                    {
                        return Err(malformed(name, "its timestamp field appears more than once"));
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes a signature if it is one. A malformed one is passed over: a good one may stand beside it.
    fn read_signature(&self, name: &HeaderName, text: &[u8], found: &mut Found<'_>) -> Result<(), VerifyError> {
        if let Some(tag) = self.encoding.decode(text, self.algorithm) {
            // A public key takes a thousand times as long as a MAC.
            let most = if self.algorithm.is_asymmetric() { MAX_SIGNATURES / 4 } else { MAX_SIGNATURES };
            if found.signatures.len() == most {
                return Err(malformed(name, "it holds more signatures than any sender makes"));
            }
            found.signatures.push(tag);
        }
        Ok(())
    }

    fn check_id<'a>(&self, name: &HeaderName, id: &'a HeaderValue) -> Result<&'a HeaderValue, VerifyError> {
        let bounds = self.signed.id_bounds();
        if bounds.into_iter().flatten().any(|bound| memchr(bound, id.as_bytes()).is_some()) {
            return Err(malformed(name, "the id holds the separator of the signed text"));
        }
        not_empty(name, id)
    }

    /// Refuses a request that says it was signed in another way. Such a header never chooses anything.
    pub(super) fn check_constants(&self, headers: &HeaderMap) -> Result<(), VerifyError> {
        for Constant { name, value, required: needed } in &self.constants {
            match (if *needed { Some(required(headers, name)?) } else { single(headers, name)? }, value) {
                (Some(found), Some(value)) if found != value => {
                    return Err(malformed(name, "it names another way to sign than the scheme's"));
                }
                (Some(_), None) => {
                    return Err(VerifyError::Unsupported(
                        "a stronger signature is there too; use the scheme of that one",
                    ));
                }
                (_, _) => {}
            }
        }
        Ok(())
    }

    /// The timestamp in a body whose signature was found to be right.
    pub(super) fn read_body_time(&self, path: &'static str, body: &[u8]) -> Result<i64, VerifyError> {
        let text = super::body_id::find(body, path).ok_or(VerifyError::MalformedBody("it has no timestamp"))?;
        let number = self.time.and_then(|unit| unit.parse(text.as_bytes()));
        number.ok_or(VerifyError::MalformedBody("its timestamp is none in the scheme's unit"))
    }

    fn check_signed_headers(&self, headers: &HeaderMap) -> Result<(), VerifyError> {
        for part in self.signed.parts() {
            if let Part::Header(name) = part {
                match self.signed.framing {
                    Framing::LengthPrefixed => single(headers, name).map(drop)?,
                    Framing::Joined => required(headers, name).map(drop)?,
                }
            }
        }
        Ok(())
    }
}

struct Found<'a> {
    signatures: Signatures,
    timestamp: Option<&'a [u8]>,
}

/// What stands between the separators. There is one item at least, which may be empty.
fn items(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        let end = memchr(separator, value);
        rest = end.and_then(|end| value.get(end + 1..));
        Some(end.and_then(|end| value.get(..end)).unwrap_or(value))
    })
}

fn read_timestamp<'a>(name: &HeaderName, text: &'a [u8], unit: Unit) -> Result<SentAt<'a>, VerifyError> {
    match unit.parse(text) {
        Some(number) => Ok(SentAt { text, number }),
        None => Err(malformed(name, unit.fault())),
    }
}

pub(super) fn required<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, VerifyError> {
    single(headers, name)?.ok_or_else(|| VerifyError::MissingHeader(name.clone()))
}

pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, VerifyError> {
    // Where there are as many values as names, none is there twice.
    if headers.len() != headers.keys_len() && headers.get_all(name).iter().nth(1).is_some() {
        return Err(VerifyError::DuplicateHeader(name.clone()));
    }
    Ok(headers.get(name))
}

fn not_empty<'a>(name: &HeaderName, value: &'a HeaderValue) -> Result<&'a HeaderValue, VerifyError> {
    if value.is_empty() { Err(malformed(name, "it is empty")) } else { Ok(value) }
}

pub(super) fn malformed(header: &HeaderName, fault: &'static str) -> VerifyError {
    VerifyError::Malformed { header: header.clone(), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_what_stands_between_separators() {
        for list in ["", ",", "a", "a,", ",a", "a,,b", "t=1,v1=x, v1=y"] {
            let expected: Vec<&[u8]> = list.split(',').map(str::as_bytes).collect();
            assert_eq!(items(list.as_bytes(), b',').collect::<Vec<_>>(), expected, "{list}");
        }
    }
}
