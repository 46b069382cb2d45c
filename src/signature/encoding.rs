//! How a signature's bytes are written in a header.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::der;
use super::mac::{Algorithm, MAX_TAG_BYTES, Tag};

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// Hex digits; written in lower case, read in either.
    Hex,
    /// Base64: the standard alphabet, padded, the unused bits zero. Anything else is refused, so that there is one text
    /// for each signature.
    Base64,
    /// Base64 without padding, with `-` and `_` for the two characters that a URL cannot hold: the way of JSON Web Tokens.
    Base64Url,
    /// As it is: the secret of a scheme that sends it along.
    Plain,
}

impl Encoding {
    /// Its name: `hex`, `base64`, `base64url` or `plain`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
            Self::Plain => "plain",
        }
    }

    /// Reads a signature; `None` unless it is one, whole, of exactly the algorithm's length.
    pub(super) fn decode(self, text: &[u8], algorithm: Algorithm) -> Option<Tag> {
        let length = algorithm.tag_bytes();
        // A little room more: the decoder of base64 asks for it.
        let mut bytes = [0; MAX_TAG_BYTES + 16];
        let written = match self {
            Self::Hex if text.len() == length * 2 => from_hex(text, &mut bytes)?,
            Self::Base64 if algorithm == Algorithm::EcdsaP256 => return from_der(text),
            Self::Base64 if text.len() == length.div_ceil(3) * 4 => STANDARD.decode_slice(text, &mut bytes).ok()?,
            Self::Base64Url => URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?,
            Self::Plain if !text.is_empty() => return Some(Tag::of_token(text)),
            Self::Hex | Self::Base64 | Self::Plain => return None,
        };
        (written == length).then(|| bytes.get(..length)).flatten().map(Tag::new)
    }

    pub(super) fn encode(self, tag: Tag, algorithm: Algorithm) -> String {
        let bytes = tag.to_bytes(algorithm);
        match self {
            Self::Base64 if algorithm == Algorithm::EcdsaP256 => STANDARD.encode(der::write(&bytes)),
            Self::Base64 => STANDARD.encode(bytes),
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            // Plain tokens are not made of tags: the signer writes the secret.
            Self::Hex | Self::Plain => to_hex(&bytes),
        }
    }
}

/// The digits of these bytes, in lower case.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_char).collect()
}

fn from_der(text: &[u8]) -> Option<Tag> {
    let mut bytes = [0; der::LONGEST + 2];
    // Longer texts are refused for want of room.
    let written = STANDARD.decode_slice(text, &mut bytes).ok()?;
    der::read(bytes.get(..written)?).map(|tag| Tag::new(&tag))
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn from_hex(text: &[u8], bytes: &mut [u8]) -> Option<usize> {
    let (pairs, _) = text.as_chunks::<2>();
    // To the end even if a digit is none, and by a table: then there is no branch in the loop.
    let mut seen = 0;
    for ([high, low], byte) in pairs.iter().zip(bytes) {
        let (high, low) = (HEX_DIGITS[usize::from(*high)], HEX_DIGITS[usize::from(*low)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    (seen != NO_DIGIT).then_some(pairs.len())
}

/// What each byte is worth as a hex digit.
const HEX_DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value as usize];
        digits[digit as usize] = value;
        digits[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    digits
};

/// All bits: one of these is not to be hidden by digits.
const NO_DIGIT: u8 = 0xff;

fn hex_char(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const BASE64: &str = "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";

    fn reads(encoding: Encoding, text: &str) -> bool {
        encoding.decode(text.as_bytes(), Algorithm::HmacSha256).is_some()
    }

    #[test]
    fn c026_base64_signatures_have_one_spelling() {
        assert!(reads(Encoding::Base64, BASE64));
        for text in [
            "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw",
            "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkx=",
            "tZ1I4_hDygAJgO5TYxiSd6Sd0kDW6hPenDe-bTa3Kkw=",
            "!Z1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ] {
            assert!(!reads(Encoding::Base64, text), "{text}");
        }
    }

    #[test]
    fn c029_a_signature_of_another_length_is_none() {
        assert!(reads(Encoding::Hex, HEX) && reads(Encoding::Hex, &HEX.to_uppercase()));
        let same_text_length = "A".repeat(44);
        assert!(!reads(Encoding::Base64, &same_text_length));
        for text in
            ["", &HEX[..63], &HEX[..62], &format!("{HEX}0"), &format!("{HEX}00"), &"g".repeat(64), &"é".repeat(32)]
        {
            assert!(!reads(Encoding::Hex, text), "{text}");
        }
        assert!(Encoding::Hex.decode(HEX.as_bytes(), Algorithm::HmacSha512).is_none());
    }

    #[test]
    fn what_is_written_can_be_read() {
        for algorithm in [Algorithm::HmacSha1, Algorithm::HmacSha256, Algorithm::HmacSha512] {
            for encoding in [Encoding::Hex, Encoding::Base64] {
                let bytes: Vec<u8> = (100..164).take(algorithm.tag_bytes()).collect();
                let text = encoding.encode(Tag::new(&bytes), algorithm);
                let read = encoding.decode(text.as_bytes(), algorithm).expect("a signature");
                assert_eq!(read.to_bytes(algorithm), bytes);
            }
        }
    }
}
