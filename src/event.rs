//! What names an event: the sender's id for it, the digest of its bytes, and the key under which it is remembered.
//!
//! Each of these is checked once, where it is made, so that nothing behind this module meets a value that a database
//! would cut, fold or refuse.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The longest event id, name or key in bytes that is accepted. Longer ones are refused, never cut: two long ids that
/// share a prefix stay two ids.
pub const MAX_NAME_BYTES: usize = 255;

/// Why an id or a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// It holds a control character (a line break, a tab, NUL, …).
    #[error("it holds a control character")]
    ControlCharacter,
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// It is longer than [`MAX_NAME_BYTES`].
    #[error("it has {0} bytes; {MAX_NAME_BYTES} are allowed")]
    TooLong(usize),
}

/// The sender's id for an event: 1 to [`MAX_NAME_BYTES`] bytes of UTF-8 without control characters.
///
/// Ids compare by their bytes: no case is folded, no space trimmed, no accent removed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    /// Checks an id.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong with it.
    pub fn new(id: &str) -> Result<Self, NameError> {
        checked(id).map(Self)
    }

    /// Checks an id that came as bytes, from a header say.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong with it.
    pub fn from_bytes(id: &[u8]) -> Result<Self, NameError> {
        std::str::from_utf8(id).map_err(|_| NameError::NotUtf8).and_then(Self::new)
    }

    /// An id that this crate made.
    pub(crate) fn literal(id: String) -> Self {
        debug_assert!(checked(&id).is_ok());
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name that this side chose: of a source (who sends) or of a consumer (who handles).
///
/// 1 to [`MAX_NAME_BYTES`] bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong with it.
    pub fn new(name: &str) -> Result<Self, NameError> {
        checked(name).map(Self)
    }

    /// A name that stands in this crate's own code.
    pub(crate) fn literal(name: &'static str) -> Self {
        debug_assert!(checked(name).is_ok());
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A SHA-256 digest. What is digested says the place that makes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was computed before.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What an event is remembered by within one consumer and source: the sender's id where the signature covers it, a
/// digest of the signed bytes where it does not.
///
/// As text, a digest is `sha256:` and 64 hex digits. An id that begins like that, or with `id:`, is written with `id:`
/// before it, so that no id can be mistaken for a digest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupKey(Arc<str>);

impl DedupKey {
    /// The key of an event whose id is signed.
    #[must_use]
    pub fn from_id(id: &EventId) -> Self {
        if id.0.starts_with(DIGEST_PREFIX) || id.0.starts_with(ID_PREFIX) {
            return Self(format!("{ID_PREFIX}{id}").into());
        }
        Self(Arc::clone(&id.0))
    }

    /// The key of an event that has no signed id.
    #[must_use]
    pub fn from_digest(digest: &Digest) -> Self {
        Self(format!("{DIGEST_PREFIX}{digest}").into())
    }

    /// Reads a key as a store keeps it or an operator writes it.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix(ID_PREFIX) {
            Some(id) => checked(id).map(|_| Self(text.into())),
            None => checked(text).map(Self),
        }
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const DIGEST_PREFIX: &str = "sha256:";
const ID_PREFIX: &str = "id:";

fn checked(name: &str) -> Result<Arc<str>, NameError> {
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.len() > MAX_NAME_BYTES {
        Err(NameError::TooLong(name.len()))
    } else if holds_control(name) {
        Err(NameError::ControlCharacter)
    } else {
        Ok(name.into())
    }
}

fn holds_control(name: &str) -> bool {
    // Nearly all are printable ASCII. A fold looks at many bytes at once; `all` would look at one after the other.
    let printable = name.bytes().fold(true, |so_far, byte| so_far & matches!(byte, b' '..=b'~'));
    !printable && name.chars().any(char::is_control)
}

macro_rules! shown_as_text {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    )+};
}

macro_rules! read_as_text {
    ($($name:ident),+) => {$(
        /// Checked like any other.
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

shown_as_text!(EventId, Name, DedupKey);
read_as_text!(EventId, Name);

/// 64 lower-case hex digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c067_an_id_is_accepted_whole_or_refused_never_cut() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        assert_eq!(EventId::new(&longest).map(|id| id.as_str().len()), Ok(255));
        assert_eq!(EventId::new(&"x".repeat(256)), Err(NameError::TooLong(256)));
        assert_eq!(EventId::new(&"x".repeat(4_000)), Err(NameError::TooLong(4_000)));
        assert_ne!(EventId::new("evt_1"), EventId::new("evt_1 "));
    }

    #[test]
    fn c068_an_id_with_control_characters_is_refused() {
        for id in ["a\0b", "a\nb", "a\tb", "a\u{7f}b", "a\u{85}b"] {
            assert_eq!(EventId::new(id), Err(NameError::ControlCharacter), "{id:?}");
        }
        assert_eq!(EventId::from_bytes(&[0x61, 0xff]), Err(NameError::NotUtf8));
        assert_eq!(EventId::new(""), Err(NameError::Empty));
    }

    #[test]
    fn no_id_can_pass_for_a_digest() {
        let digest = DedupKey::from_digest(&Digest::of(b"body"));
        let posing = EventId::new(digest.as_str()).expect("a valid id");
        let nested = EventId::new("id:x").expect("a valid id");
        assert_ne!(DedupKey::from_id(&posing), digest);
        assert_eq!(DedupKey::from_id(&nested).as_str(), "id:id:x");
    }

    #[test]
    fn every_key_reads_back_from_its_text() {
        let longest = format!("sha256:{}", "x".repeat(248));
        for id in ["evt_1", "id:x", "sha256:00", longest.as_str()] {
            let key = DedupKey::from_id(&EventId::new(id).expect("a valid id"));
            assert_eq!(DedupKey::parse(key.as_str()), Ok(key));
        }
    }
}
