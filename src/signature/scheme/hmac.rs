//! The scheme that is built from options, for senders that have no preset.

use std::borrow::Cow;

use http::HeaderName;

use super::preset::Preset;
use super::{Carrier, ConfigError, Family, RepeatedId, Scheme};
use crate::secret::SecretFormat;
use crate::signature::signed::{Framing, Part, SignedText};
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Encoding};

impl Scheme {
    /// A scheme of your own: HMAC over the body, or over a text around it, in one header.
    ///
    /// | option | value |
    /// |---|---|
    /// | `header` | the signature's header; required |
    /// | `prefix` | what stands before the signature in it, `sha256=` for example; nothing unless given |
    /// | `encoding` | `hex` (default) or `base64` |
    /// | `algorithm` | `sha256` (default), `sha1` or `sha512` |
    /// | `signed` | the signed text, with `{body}` and, where wanted, `{id}`, `{timestamp}`, `{method}`, `{url}`; `{body}` unless given |
    /// | `timestamp` | the timestamp's header, in Unix seconds; `HEADER:ms` for milliseconds |
    /// | `id` | the id's header, or `body:PATH` for a field of the JSON body, `body:event.id` for example |
    /// | `secret` | how secrets are written: `text` (default), `base64` or `hex` |
    ///
    /// A timestamp that is not in `signed` is refused: anybody could change it. An id that is not in `signed` is
    /// accepted as a label, and events are then known by the digest of their signed bytes.
    ///
    /// Two placeholders need a text between them, which must not touch `{timestamp}` with a digit; an id must not
    /// hold the characters of that text next to it. Else one signature would fit two requests. `{url}` and `{method}`
    /// must stand behind `{id}`, and are held to the same next to it only: the URL is the one that you configured.
    ///
    /// ```
    /// # use countersign::signature::Scheme;
    /// let scheme = Scheme::hmac([
    ///     ("header", "x-acme-signature"),
    ///     ("signed", "{timestamp}.{body}"),
    ///     ("timestamp", "x-acme-timestamp"),
    ///     ("id", "body:event.id"),
    /// ])?;
    /// assert!(scheme.signs_timestamp());
    /// # Ok::<(), countersign::signature::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::SchemeOption`] names the option and says what is allowed.
    pub fn hmac<K, V>(options: impl IntoIterator<Item = (K, V)>) -> Result<Self, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut given = Given::default();
        for (option, value) in options {
            given.take(option.as_ref(), value.as_ref())?;
        }
        given.build()
    }
}

const OPTIONS: [&str; 8] = ["header", "prefix", "encoding", "algorithm", "signed", "timestamp", "id", "secret"];

/// The options as they were given, each at most once.
#[derive(Default)]
struct Given {
    header: Option<String>,
    prefix: Option<String>,
    encoding: Option<String>,
    algorithm: Option<String>,
    signed: Option<String>,
    timestamp: Option<String>,
    id: Option<String>,
    secret: Option<String>,
}

impl Given {
    fn take(&mut self, option: &str, value: &str) -> Result<(), ConfigError> {
        let slot = match option {
            "header" => &mut self.header,
            "prefix" => &mut self.prefix,
            "encoding" => &mut self.encoding,
            "algorithm" => &mut self.algorithm,
            "signed" => &mut self.signed,
            "timestamp" => &mut self.timestamp,
            "id" => &mut self.id,
            "secret" => &mut self.secret,
            _ => return Err(wrong(option, format!("there is no such option; there are {}", OPTIONS.join(", ")))),
        };
        match slot.replace(value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(wrong(option, "it is given twice")),
        }
    }

    fn build(self) -> Result<Scheme, ConfigError> {
        let header = self
            .header
            .as_deref()
            .ok_or_else(|| wrong("header", "it is required: the name of the header that holds the signature"))?;
        let signature = header_name("header", header)?;
        let signed = signed_text(self.signed.as_deref().unwrap_or("{body}"))?;
        let (timestamp, time) = match self.timestamp.as_deref() {
            Some(text) => read_timestamp(text).map(|(name, unit)| (Some(name), Some(unit)))?,
            None => (None, None),
        };
        match (signed.covers(&Part::Timestamp), &timestamp) {
            (true, None) => return Err(wrong("timestamp", "`signed` has {timestamp}; say which header holds it")),
            (false, Some(_)) => {
                return Err(wrong(
                    "timestamp",
                    "`signed` has no {timestamp}; a timestamp that is not signed protects nothing, leave it out",
                ));
            }
            (true, Some(_)) | (false, None) => {}
        }
        let (id, body_id) = match self.id.as_deref() {
            Some(text) => read_id(text)?,
            None => (None, None),
        };
        if signed.covers(&Part::Id) && id.is_none() {
            return Err(wrong("id", "`signed` has {id}; say which header holds it"));
        }
        distinct(&[Some(&signature), timestamp.as_ref(), id.as_ref()])?;

        Ok(Scheme {
            secret_format: choose(
                "secret",
                self.secret.as_deref(),
                &[
                    ("text", SecretFormat::Text),
                    ("base64", SecretFormat::Base64 { prefix: "whsec_", min_bytes: 16 }),
                    ("hex", SecretFormat::Hex),
                ],
            )?,
            algorithm: choose(
                "algorithm",
                self.algorithm.as_deref(),
                &[("sha256", Algorithm::HmacSha256), ("sha1", Algorithm::HmacSha1), ("sha512", Algorithm::HmacSha512)],
            )?,
            encoding: choose(
                "encoding",
                self.encoding.as_deref(),
                &[("hex", Encoding::Hex), ("base64", Encoding::Base64)],
            )?,
            families: vec![Family { signature: vec![signature], timestamp, id }],
            carrier: Carrier::Whole { prefix: Cow::Owned(prefix(self.prefix)?) },
            signed,
            time,
            body_id: body_id.map(Cow::Owned),
            repeated_id: RepeatedId::Conflict,
            ..Scheme::from(&Preset::new("hmac", "any", ""))
        })
    }
}

/// Takes the value of that name; the first one where none is given.
fn choose<T: Copy>(option: &str, given: Option<&str>, choices: &[(&str, T)]) -> Result<T, ConfigError> {
    let found = match given {
        None => choices.first(),
        Some(given) => choices.iter().find(|(name, _)| *name == given),
    };
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        wrong(option, format!("it is one of {}", names.join(", ")))
    })
}

fn header_name(option: &str, text: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| wrong(option, "it is not the name of a header"))
}

fn prefix(text: Option<String>) -> Result<String, ConfigError> {
    let text = text.unwrap_or_default();
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if printable && !text.starts_with(' ') {
        Ok(text)
    } else {
        Err(wrong("prefix", "it may hold printable ASCII characters, and not begin with a space"))
    }
}

fn read_timestamp(text: &str) -> Result<(HeaderName, Unit), ConfigError> {
    let (name, unit) = match text.split_once(':') {
        None | Some((_, "s")) => (text.trim_end_matches(":s"), Unit::Seconds),
        Some((name, "ms")) => (name, Unit::Millis),
        Some(_) => return Err(wrong("timestamp", "it is HEADER or HEADER:s for seconds, HEADER:ms for milliseconds")),
    };
    header_name("timestamp", name).map(|name| (name, unit))
}

fn read_id(text: &str) -> Result<(Option<HeaderName>, Option<String>), ConfigError> {
    match text.strip_prefix("body:") {
        None => header_name("id", text).map(|name| (Some(name), None)),
        Some(path) if path.split('.').all(|field| !field.is_empty()) => Ok((None, Some(path.to_owned()))),
        Some(_) => Err(wrong("id", "it is HEADER, or body:PATH with a path like `id` or `event.id`")),
    }
}

fn distinct(names: &[Option<&HeaderName>]) -> Result<(), ConfigError> {
    let names: Vec<_> = names.iter().flatten().collect();
    let repeated = names.iter().enumerate().any(|(at, name)| names.iter().take(at).any(|earlier| earlier == name));
    if repeated { Err(wrong("header", "signature, timestamp and id need a header each")) } else { Ok(()) }
}

fn wrong(option: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError::SchemeOption { option: option.to_owned(), problem: problem.into() }
}

/// Reads a template like `{timestamp}.{body}`.
fn signed_text(template: &str) -> Result<SignedText, ConfigError> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((literal, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}').ok_or_else(|| wrong("signed", "a `{` has no `}`"))?;
        if !literal.is_empty() {
            parts.push(Some(Part::Literal(Cow::Owned(literal.to_owned()))));
        }
        let part = match name {
            "body" => None,
            "id" => Some(Part::Id),
            "timestamp" => Some(Part::Timestamp),
            "method" => Some(Part::Method),
            "url" => Some(Part::Url),
            _ => return Err(wrong("signed", "it may hold {body}, {id}, {timestamp}, {method} and {url}")),
        };
        if parts.contains(&part) {
            return Err(wrong("signed", format!("{{{name}}} appears twice")));
        }
        parts.push(part);
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Some(Part::Literal(Cow::Owned(rest.to_owned()))));
    }
    unambiguous(&parts)?;

    let mut halves = parts.split(Option::is_none).map(|half| half.iter().flatten().cloned().collect::<Vec<_>>());
    match (halves.next(), halves.next()) {
        (Some(before), Some(after)) => Ok(SignedText { before, after, framing: Framing::Joined }),
        _ => Err(wrong("signed", "it must hold {body}")),
    }
}

/// Refuses templates in which a character could move from one placeholder to the next without changing the text.
fn unambiguous(parts: &[Option<Part>]) -> Result<(), ConfigError> {
    let bound = |part: &Option<Part>| matches!(part, Some(Part::Method | Part::Url));
    // Methods and URLs may hold any separator, so that one of them could take in an id behind it, and leave the beginning
    // of the body as the new one.
    let before_id = parts.iter().take_while(|part| **part != Some(Part::Id));
    if parts.contains(&Some(Part::Id)) && before_id.into_iter().any(bound) {
        return Err(wrong("signed", "{url} and {method} must stand behind {id}"));
    }
    for pair in parts.windows(2) {
        let [left, right] = pair else { continue };
        match (left, right) {
            (Some(Part::Literal(text)), Some(Part::Timestamp)) if text.ends_with(digit) => {
                return Err(wrong("signed", "a digit touches {timestamp}; put another character between them"));
            }
            (Some(Part::Timestamp), Some(Part::Literal(text))) if text.starts_with(digit) => {
                return Err(wrong("signed", "a digit touches {timestamp}; put another character between them"));
            }
            (Some(Part::Literal(_)), _) | (_, Some(Part::Literal(_))) => {}
            // A body may hold the URL or the method too, and the id could end at either of the two.
            (Some(Part::Id), _) | (_, Some(Part::Id)) if bound(left) || bound(right) => {
                return Err(wrong("signed", "{id} touches {url} or {method}; put a character like `.` between them"));
            }
            _ if bound(left) || bound(right) => {}
            _ => return Err(wrong("signed", "two placeholders touch; put a character like `.` between them")),
        }
    }
    Ok(())
}

fn digit(character: char) -> bool {
    character.is_ascii_digit()
}
