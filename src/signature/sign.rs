//! The sending end: from a message to the headers that prove who sent it.

use std::fmt::{self, Write as _};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::form::Hand;
use super::header::Head;
use super::keyring::{Key, Keyring};
use super::scheme::{Carrier, Constant, Scheme, WEBHOOK_TYPE};
use super::signed::{Part, Values};
use super::{ConfigError, Encoding, SignError, body_id};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::event::EventId;

/// What is signed: one attempt to deliver one event.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The event's id, the same for every attempt. Schemes that know no id, or read it from the body, leave it out.
    pub id: Option<&'a str>,
    /// When this attempt is made. It also decides which secrets are live.
    pub timestamp: Timestamp,
    /// The method of the request. `POST` unless set.
    pub method: &'a Method,
    /// The URL that is called. Needed for schemes that sign it.
    pub url: &'a str,
    /// The event's type, for schemes that sign it.
    pub event_type: Option<&'a str>,
    /// The body's content type, for schemes that sign it.
    pub content_type: Option<&'a str>,
    /// The body, byte for byte as it will be sent.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message without an id, to be sent with `POST`.
    #[must_use]
    pub const fn new(timestamp: Timestamp, body: &'a [u8]) -> Self {
        Self { id: None, timestamp, method: &Method::POST, url: "", event_type: None, content_type: None, body }
    }

    /// Sets the event's id.
    #[must_use]
    pub const fn with_id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the event's type.
    #[must_use]
    pub const fn with_event_type(mut self, event_type: &'a str) -> Self {
        self.event_type = Some(event_type);
        self
    }

    /// Sets the body's content type.
    #[must_use]
    pub const fn with_content_type(mut self, content_type: &'a str) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// Sets the method and the URL of the request.
    #[must_use]
    pub const fn with_target(mut self, method: &'a Method, url: &'a str) -> Self {
        self.method = method;
        self.url = url;
        self
    }
}

/// Signs the messages for one destination.
#[derive(Clone)]
pub struct Signer {
    scheme: Scheme,
    keys: Box<[Key]>,
}

impl Signer {
    /// A signer with these secrets.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoLiveSecret`] if every secret has expired by now, [`ConfigError::TooManySecrets`] for more than
    /// [`MAX_SECRETS`](super::MAX_SECRETS).
    pub fn new(scheme: Scheme, keyring: Keyring) -> Result<Self, ConfigError> {
        let keys = keyring.into_keys(scheme.algorithm, SystemClock.now())?;
        Ok(Self { scheme, keys })
    }

    /// The scheme that it signs with.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The headers to send along, in the order in which the scheme names them. All of the scheme's headers are among
    /// them, also those of a signed type and content type.
    ///
    /// Schemes whose header takes several signatures get one for each live secret, so that receivers can change over
    /// in their own time. The others get that of the first live secret.
    ///
    /// # Errors
    ///
    /// [`SignError`], for everything that a receiver would refuse.
    pub fn sign(&self, message: &Message<'_>) -> Result<HeaderMap, SignError> {
        let scheme = &self.scheme;
        let live: Vec<&Key> = self.keys.iter().filter(|key| key.is_live(message.timestamp)).collect();
        if live.is_empty() {
            return Err(SignError::NoLiveSecret);
        }
        if let Some(form) = &scheme.form {
            return form.sign(message, &Hand::new(&live));
        }
        let family = scheme.families.first();
        let mut headers = HeaderMap::new();

        if let Some(name) = family.and_then(|family| family.id.as_ref()) {
            match message.id {
                Some(id) => drop(headers.insert(name.clone(), id_value(scheme, id)?)),
                None if scheme.signs_id() => return Err(SignError::MissingId),
                None => {}
            }
        }
        if let Some(id) = scheme.body_id.as_ref().and_then(|path| body_id::find(message.body, path)) {
            // The receiver will take it from there, and has to be able to keep it.
            EventId::new(&id).map_err(SignError::InvalidId)?;
        }
        let timestamp = scheme.time.map(|unit| unit.of(message.timestamp));
        if timestamp.is_some_and(i64::is_negative) {
            return Err(SignError::NegativeTimestamp);
        }
        if let Some(path) = scheme.body_time
            && scheme.read_body_time(path, message.body).is_err()
        {
            return Err(SignError::Body("the scheme reads the timestamp there, and there is none"));
        }
        let timestamp = timestamp.zip(scheme.time).map(|(number, unit)| unit.write(number));
        if timestamp.as_deref() == Some("") {
            return Err(SignError::TimestampTooLate);
        }
        if let (Some(name), Some(text)) = (family.and_then(|family| family.timestamp.as_ref()), &timestamp) {
            headers.insert(name.clone(), value(name, text)?);
        }
        for part in scheme.signed.parts() {
            match part {
                Part::Header(name) => add_signed_header(&mut headers, name, message)?,
                Part::Url | Part::UrlDecoded if message.url.is_empty() => return Err(SignError::MissingUrl),
                Part::Literal(_) | Part::Id | Part::Timestamp | Part::Method | Part::Url | Part::UrlDecoded => {}
            }
        }
        for Constant { name, value, required } in &scheme.constants {
            if let (true, Some(value)) = (required, value) {
                headers.insert(name.clone(), HeaderValue::from_static(value));
            }
        }

        let values = Values {
            head: Head::new(message.method, message.url, &headers),
            id: message.id.map(str::as_bytes),
            timestamp: timestamp.as_deref().map(str::as_bytes),
        };
        let signatures = self.signatures(&live, &values, message)?;
        if let Some(name) = family.and_then(|family| family.signature.first()) {
            let text = scheme.carrier.write(&signatures, timestamp.as_deref());
            headers.insert(name.clone(), value(name, &text)?);
        }
        Ok(headers)
    }

    fn signatures(&self, live: &[&Key], values: &Values<'_>, message: &Message<'_>) -> Result<Vec<String>, SignError> {
        let scheme = &self.scheme;
        let most = if scheme.carrier.takes_several() { usize::MAX } else { 1 };
        let around = scheme.signed.around(values);
        let sign = |key: &&Key| {
            if scheme.encoding == Encoding::Plain {
                return String::from_utf8(key.secret.expose().to_vec()).map_err(|_| SignError::SecretNotForHeader);
            }
            let mut trial = key.trial.clone();
            trial.update(around.before());
            scheme.signed.feed_body(message.body, |bytes| trial.update(bytes));
            trial.update(around.after());
            Ok(scheme.encoding.encode(trial.sign()?, scheme.algorithm))
        };
        live.iter().take(most).map(sign).collect()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("scheme", &self.scheme.name())
            .field("secrets", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Carrier {
    fn takes_several(&self) -> bool {
        matches!(self, Self::List { .. } | Self::TimeFirst)
    }

    fn write(&self, signatures: &[String], time: Option<&str>) -> String {
        match self {
            Self::Whole { prefix } => {
                signatures.iter().take(1).map(|signature| format!("{prefix}{signature}")).collect()
            }
            Self::TimeFirst => {
                let time = time.unwrap_or_default();
                signatures.iter().fold(time.to_owned(), |text, signature| format!("{text},{signature}"))
            }
            Self::List { separator, spaced, tag, timestamp } => {
                let mut text = String::new();
                if let (Some(field), Some(time)) = (timestamp, time) {
                    // Writing to a string does not fail.
                    let _ = write!(text, "{field}{time}");
                }
                for signature in signatures {
                    if !text.is_empty() {
                        text.push(char::from(*separator));
                        text.push_str(if *spaced { " " } else { "" });
                    }
                    let _ = write!(text, "{tag}{signature}");
                }
                text
            }
        }
    }
}

fn id_value(scheme: &Scheme, id: &str) -> Result<HeaderValue, SignError> {
    EventId::new(id).map_err(SignError::InvalidId)?;
    let bounds = scheme.signed.id_bounds();
    if let Some(separator) = bounds.into_iter().flatten().find(|separator| id.as_bytes().contains(separator)) {
        return Err(SignError::SeparatorInId(char::from(separator)));
    }
    header_value(id).ok_or(SignError::IdNotForHeader)
}

fn add_signed_header(headers: &mut HeaderMap, name: &HeaderName, message: &Message<'_>) -> Result<(), SignError> {
    let text = if *name == WEBHOOK_TYPE {
        message.event_type
    } else if *name == CONTENT_TYPE {
        message.content_type
    } else {
        return Err(SignError::UnknownHeader(name.clone()));
    };
    if let Some(text) = text {
        headers.insert(name.clone(), value(name, text)?);
    }
    Ok(())
}

fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, SignError> {
    header_value(text).ok_or_else(|| SignError::InvalidHeader(name.clone()))
}

/// The header value of this text, if it arrives as it was sent: HTTP drops outer spaces, and characters outside ASCII
/// may be recoded on the way.
fn header_value(text: &str) -> Option<HeaderValue> {
    let sound = text.is_ascii() && text.trim() == text;
    sound.then(|| HeaderValue::from_str(text).ok()).flatten()
}
