//! Secrets, and the ways in which providers write them down.
//!
//! A secret that cannot be right is refused where it is built, with a text that says how to mend it and prints none of
//! it. So no verifier ever runs with an empty key, which anybody could sign with.

#[cfg(feature = "asymmetric")]
mod key_pair;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use zeroize::Zeroizing;

/// The bytes of a key.
///
/// `Debug` shows nothing of it, and its memory is overwritten when it is dropped.
///
/// Build one from the text that the provider shows, with [`SecretFormat::parse`] or
/// [`Scheme::parse_secret`](crate::signature::Scheme::parse_secret). [`Secret::from_bytes`] is for keys that you hold
/// as raw bytes.
#[derive(Clone)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    half: Half,
    /// What the sender calls it, where its text says so.
    key_id: Option<Arc<str>>,
}

/// What a key can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Verify, and sign too: a key that both sides share, or the private half of a pair.
    Whole,
    /// Verify only: the public half of a pair.
    #[cfg(feature = "asymmetric")]
    Public,
}

impl Secret {
    /// A key of these bytes, as they are: nothing is decoded, trimmed or stripped. For schemes with key pairs, they are
    /// the 32 bytes of a private key.
    ///
    /// # Errors
    ///
    /// [`SecretError::Empty`] for no bytes, [`SecretError::Blank`] for nothing but white space or NUL bytes: HMAC pads
    /// its key with NUL bytes, so a key of them is the empty key.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, SecretError> {
        let secret = Self { bytes: Zeroizing::new(bytes), half: Half::Whole, key_id: None };
        if secret.bytes.is_empty() {
            Err(SecretError::Empty)
        } else if secret.bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            Err(SecretError::Blank)
        } else {
            Ok(secret)
        }
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn key_id(&self) -> Option<&Arc<str>> {
        self.key_id.as_ref()
    }

    /// Whether it is the public half of a pair.
    pub(crate) fn is_public(&self) -> bool {
        self.half != Half::Whole
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How a provider writes its keys down.
///
/// ```
/// use countersign::secret::{SecretError, SecretFormat};
///
/// let format = SecretFormat::Base64 { prefix: "whsec_", min_bytes: 24 };
/// assert!(format.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_ok());
/// assert!(format.parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_ok());
/// assert_eq!(format.parse("whsec_QQ==").unwrap_err(), SecretError::TooShort { bytes: 1, needed: 24 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretFormat {
    /// The key is the text itself, in UTF-8, prefix and all. Stripe's `whsec_…` is one of these.
    Text,
    /// The key is base64: the standard alphabet (`+` and `/`), with its padding, and nothing else. Signatures follow
    /// the same rule.
    Base64 {
        /// A prefix that the text may carry; with it or without it is the same key.
        prefix: &'static str,
        /// The fewest bytes that a key may have.
        min_bytes: usize,
    },
    /// The key is hex digits, of either case.
    Hex,
    /// Half of an Ed25519 pair in base64: `whpk_` and the 32 bytes of a public key, or `whsk_` and a private key, which
    /// is 32 bytes, or 64 with the public one behind it.
    #[cfg(feature = "asymmetric")]
    Ed25519,
    /// The same, where a public key may stand without its prefix.
    #[cfg(feature = "asymmetric")]
    Ed25519Base64,
    /// Half of an Ed25519 pair in hex: the 32 bytes of a public key, or the 64 of a private key with the public one
    /// behind it.
    #[cfg(feature = "asymmetric")]
    Ed25519Hex,
    /// Half of an ECDSA pair on the curve P-256, in base64, with or without the lines of PEM around it: a public key as
    /// `SubjectPublicKeyInfo`, or a private one as PKCS #8.
    #[cfg(feature = "asymmetric")]
    P256,
    /// Half of an ECDSA pair on the curve P-256 as a JSON Web Key, whose `kid` says which of the sender's keys it is.
    #[cfg(feature = "asymmetric")]
    P256Jwk,
}

impl SecretFormat {
    /// Reads a key as the provider shows it.
    ///
    /// Nothing is trimmed: a text with white space at its ends is refused, since whether that belongs to the key is a
    /// guess.
    ///
    /// # Errors
    ///
    /// [`SecretError`] says what is wrong and how to mend it. It holds nothing of the text.
    pub fn parse(&self, text: &str) -> Result<Secret, SecretError> {
        if text.is_empty() {
            return Err(SecretError::Empty);
        }
        if text.trim().is_empty() {
            return Err(SecretError::Blank);
        }
        if text.trim() != text {
            return Err(SecretError::WhiteSpaceAtEnds);
        }
        if !self.may_have_lines() && text.chars().any(char::is_control) {
            return Err(SecretError::ControlCharacter);
        }
        match *self {
            Self::Text => Secret::from_bytes(text.as_bytes().to_vec()),
            Self::Base64 { prefix, min_bytes } => from_base64(text, prefix, min_bytes),
            Self::Hex => from_hex(text),
            #[cfg(feature = "asymmetric")]
            Self::Ed25519 => key_pair::ed25519(text),
            #[cfg(feature = "asymmetric")]
            Self::Ed25519Base64 => key_pair::ed25519_base64(text),
            #[cfg(feature = "asymmetric")]
            Self::Ed25519Hex => key_pair::ed25519_hex(text),
            #[cfg(feature = "asymmetric")]
            Self::P256 => key_pair::p256(text),
            #[cfg(feature = "asymmetric")]
            Self::P256Jwk => key_pair::p256_jwk(text),
        }
    }

    /// Whether its texts are files as other tools write them.
    const fn may_have_lines(&self) -> bool {
        #[cfg(feature = "asymmetric")]
        if matches!(self, Self::P256 | Self::P256Jwk) {
            return true;
        }
        false
    }

    /// Its name: `text`, `base64`, `hex`, `ed25519`, `ed25519-hex`, `p256` or `jwk`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Base64 { .. } => "base64",
            Self::Hex => "hex",
            #[cfg(feature = "asymmetric")]
            Self::Ed25519 | Self::Ed25519Base64 => "ed25519",
            #[cfg(feature = "asymmetric")]
            Self::Ed25519Hex => "ed25519-hex",
            #[cfg(feature = "asymmetric")]
            Self::P256 => "p256",
            #[cfg(feature = "asymmetric")]
            Self::P256Jwk => "jwk",
        }
    }

    /// What looks odd about a text that [`parse`](Self::parse) accepts. Log these when a service starts; they print
    /// nothing of the secret.
    #[must_use]
    pub fn warnings(&self, text: &str) -> Vec<SecretWarning> {
        let bytes = match self {
            Self::Text => text.len(),
            Self::Hex => text.len() / 2,
            // It refuses what would be odd: short keys, and the `_` of an API key.
            Self::Base64 { .. } => return Vec::new(),
            #[cfg(feature = "asymmetric")]
            Self::Ed25519 | Self::Ed25519Base64 | Self::Ed25519Hex | Self::P256 | Self::P256Jwk => return Vec::new(),
        };
        let short = (bytes < SHORT_TEXT_BYTES).then_some(SecretWarning::Short { bytes });
        let api_key = api_key_prefix(text).map(SecretWarning::LooksLikeApiKey);
        short.into_iter().chain(api_key).collect()
    }
}

/// Why a secret was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// There is no text, or none behind the prefix.
    #[error("the secret is empty; is its variable or file set?")]
    Empty,
    /// There is only white space, or only NUL bytes.
    #[error("the secret is blank; is its variable or file set?")]
    Blank,
    /// White space stands before or behind it.
    #[error("the secret begins or ends with white space; remove it (files often end with a line break)")]
    WhiteSpaceAtEnds,
    /// A line break, tab or other control character stands in it.
    #[error("the secret holds a control character; copy it again, in one line")]
    ControlCharacter,
    /// `v1,` was copied along, the tag of a signature.
    #[error("the secret begins with `v1,`, which is not part of it; remove `v1,`")]
    VersionTag,
    /// It begins like an API key.
    #[error("the secret begins with `{0}` and looks like an API key; use the signing secret of the webhook endpoint")]
    LooksLikeApiKey(&'static str),
    /// It is half of a key pair, and the scheme is a symmetric one.
    #[error("the secret begins with `{0}` and is half of a key pair; this scheme needs a `whsec_` secret")]
    AsymmetricKey(&'static str),
    /// It is a key whose owner says that it is not used any more.
    #[error("the key has expired: its `expired_at` has passed; ask the provider for the one that it signs with now")]
    Expired,
    /// It is not base64.
    #[error("the secret is not base64 (standard alphabet, with padding); copy it again, whole")]
    NotBase64,
    /// It is not hex.
    #[error("the secret is not an even number of hex digits; copy it again, whole")]
    NotHex,
    /// It is no half of a key pair of the scheme's kind.
    #[error("the key is not {0}; copy it again, whole")]
    NotKey(&'static str),
    /// It decodes to fewer bytes than its scheme allows.
    #[error("the secret has {bytes} bytes and needs {needed}; make a longer one")]
    TooShort {
        /// How many bytes it has.
        bytes: usize,
        /// How many it needs.
        needed: usize,
    },
}

/// What looks odd about a secret that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretWarning {
    /// It is short enough to be guessed. Providers let their users choose, so it is not refused.
    #[error("the secret has {bytes} bytes; {SHORT_TEXT_BYTES} or more cannot be guessed")]
    Short {
        /// How many bytes it has.
        bytes: usize,
    },
    /// It begins like an API key.
    #[error("the secret begins with `{0}` and looks like an API key, not the signing secret of a webhook endpoint")]
    LooksLikeApiKey(&'static str),
}

const SHORT_TEXT_BYTES: usize = 16;

fn from_base64(text: &str, prefix: &'static str, min_bytes: usize) -> Result<Secret, SecretError> {
    // A few providers show the tag as a part of it.
    let (text, prefix) = match prefix.strip_prefix("v1,") {
        Some(prefix) => (text.strip_prefix("v1,").unwrap_or(text), prefix),
        None => (text, prefix),
    };
    if text.starts_with("v1,") {
        return Err(SecretError::VersionTag);
    }
    if let Some(found) = api_key_prefix(text) {
        return Err(SecretError::LooksLikeApiKey(found));
    }
    if let Some(found) = ["whsk_", "whpk_"].into_iter().find(|found| text.starts_with(found)) {
        return Err(SecretError::AsymmetricKey(found));
    }
    let digits = text.strip_prefix(prefix).unwrap_or(text);
    if digits.is_empty() {
        return Err(SecretError::Empty);
    }
    let bytes = Zeroizing::new(STANDARD.decode(digits).map_err(|_| SecretError::NotBase64)?);
    if bytes.len() < min_bytes {
        return Err(SecretError::TooShort { bytes: bytes.len(), needed: min_bytes });
    }
    Secret::from_bytes(bytes.to_vec())
}

fn from_hex(text: &str) -> Result<Secret, SecretError> {
    Secret::from_bytes(std::mem::take(&mut *hex_bytes(text)?))
}

fn hex_bytes(text: &str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return Err(SecretError::NotHex);
    }
    // Room for all of it at the start: a vector that grows leaves copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        match (hex_digit(*high), hex_digit(*low)) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(SecretError::NotHex),
        }
    }
    Ok(bytes)
}

pub(crate) fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn api_key_prefix(text: &str) -> Option<&'static str> {
    ["sk_", "pk_", "rk_"].into_iter().find(|prefix| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHSEC: SecretFormat = SecretFormat::Base64 { prefix: "whsec_", min_bytes: 24 };

    fn refusal(format: SecretFormat, text: &str) -> SecretError {
        format.parse(text).expect_err("to be refused")
    }

    #[test]
    fn c019_an_api_key_is_refused_or_warned_about_and_never_printed() {
        let refused = refusal(WHSEC, "sk_test_x");
        assert_eq!(refused, SecretError::LooksLikeApiKey("sk_"));
        let warnings = SecretFormat::Text.warnings("rk_live_0123456789abcdef");
        assert_eq!(warnings, [SecretWarning::LooksLikeApiKey("rk_")]);
        for text in [refused.to_string(), warnings[0].to_string()] {
            assert!(!text.contains("test_x") && !text.contains("0123456789"), "{text}");
        }
    }

    #[test]
    fn c020_a_secret_pasted_with_its_version_tag_is_refused_and_the_text_says_what_to_remove() {
        let refused = refusal(WHSEC, "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(refused, SecretError::VersionTag);
        assert!(refused.to_string().contains("remove `v1,`"));
    }

    #[test]
    fn c021_bad_base64_never_becomes_a_tiny_or_empty_key() {
        assert_eq!(refusal(WHSEC, "whsec_"), SecretError::Empty);
        assert_eq!(refusal(WHSEC, "whsec_!!!!"), SecretError::NotBase64);
        assert_eq!(refusal(WHSEC, "whsec_QQ=="), SecretError::TooShort { bytes: 1, needed: 24 });
        assert_eq!(refusal(WHSEC, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa$$"), SecretError::NotBase64);
    }

    #[test]
    fn c022_an_empty_or_blank_secret_is_refused_in_every_format() {
        for format in [SecretFormat::Text, WHSEC, SecretFormat::Hex] {
            assert_eq!(refusal(format, ""), SecretError::Empty);
            for blank in ["   ", "\n", "\t\r\n"] {
                assert_eq!(refusal(format, blank), SecretError::Blank, "{format:?} {blank:?}");
            }
        }
        assert_eq!(Secret::from_bytes(Vec::new()).unwrap_err(), SecretError::Empty);
        assert_eq!(Secret::from_bytes(b" \n".to_vec()).unwrap_err(), SecretError::Blank);
        assert_eq!(Secret::from_bytes(vec![0; 32]).unwrap_err(), SecretError::Blank);
        assert_eq!(refusal(SecretFormat::Hex, "0000"), SecretError::Blank);
    }

    #[test]
    fn c022_a_line_break_behind_a_secret_is_refused_not_trimmed() {
        for text in ["whsec_test_secret\n", " whsec_test_secret", "whsec_test_secret\u{a0}"] {
            assert_eq!(refusal(SecretFormat::Text, text), SecretError::WhiteSpaceAtEnds);
        }
        assert_eq!(refusal(SecretFormat::Text, "one\ntwo"), SecretError::ControlCharacter);
    }

    #[test]
    fn c025_the_prefix_of_a_base64_secret_changes_nothing_and_that_of_a_text_is_part_of_the_key() {
        let with = WHSEC.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let without = WHSEC.parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        assert_eq!(with.expose(), without.expose());
        assert_eq!(with.expose().len(), 24);
        let text = SecretFormat::Text.parse("whsec_test").expect("a secret");
        assert_eq!(text.expose(), b"whsec_test");
    }

    #[test]
    fn c026_base64_secrets_have_the_standard_alphabet_and_their_padding_and_no_spare_bits() {
        assert!(WHSEC.parse("+/AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQ=").is_ok());
        for text in [
            "+/AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQ",
            "-_AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQ=",
            "+/AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPR=",
            "+/AABBCCDDEEFFGGHH IIJJKKLLMMNNOOPPQ=",
        ] {
            assert_eq!(refusal(WHSEC, text), SecretError::NotBase64, "{text}");
        }
        assert_eq!(refusal(WHSEC, "+/AABBCCDDEEFFGGHH\nIIJJKKLLMMNNOOPPQ="), SecretError::ControlCharacter);
    }

    #[test]
    fn hex_secrets_have_an_even_number_of_digits_of_either_case() {
        assert_eq!(SecretFormat::Hex.parse("00aBfF").expect("a secret").expose(), [0x00, 0xab, 0xff]);
        for text in ["0", "abc", "0g", "0x12", "+1"] {
            assert_eq!(refusal(SecretFormat::Hex, text), SecretError::NotHex, "{text}");
        }
    }

    #[test]
    fn half_of_a_key_pair_is_not_taken_for_a_shared_secret() {
        assert_eq!(refusal(WHSEC, "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), SecretError::AsymmetricKey("whpk_"));
    }

    #[test]
    fn a_short_text_is_warned_about() {
        assert_eq!(SecretFormat::Text.warnings("hush"), [SecretWarning::Short { bytes: 4 }]);
        assert!(SecretFormat::Text.warnings("0123456789abcdef").is_empty());
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = SecretFormat::Text.parse("hunter2hunter2hunter2").expect("a secret");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
