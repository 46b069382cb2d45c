//! How a signature's bytes are written in a header.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::mac::{Algorithm, MAX_TAG_BYTES, Tag};
use crate::secret::hex_digit;

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// Hex digits; written in lower case, read in either.
    Hex,
    /// Base64: the standard alphabet, padded, the unused bits zero. Anything else is refused, so that there is one text
    /// for each signature.
    Base64,
}

impl Encoding {
    /// Its name, `hex` or `base64`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// Reads a signature; `None` unless it is one, whole, of exactly the algorithm's length.
    pub(super) fn decode(self, text: &[u8], algorithm: Algorithm) -> Option<Tag> {
        let length = algorithm.tag_bytes();
        // A little room more: the decoder of base64 asks for it.
        let mut bytes = [0; MAX_TAG_BYTES + 8];
        let written = match self {
            Self::Hex if text.len() == length * 2 => from_hex(text, &mut bytes)?,
            Self::Base64 if text.len() == length.div_ceil(3) * 4 => STANDARD.decode_slice(text, &mut bytes).ok()?,
            Self::Hex | Self::Base64 => return None,
        };
        (written == length).then(|| bytes.get(..length)).flatten().map(Tag::new)
    }

    pub(super) fn encode(self, tag: Tag, algorithm: Algorithm) -> String {
        let bytes = tag.to_bytes(algorithm);
        match self {
            Self::Hex => bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_char).collect(),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn from_hex(text: &[u8], bytes: &mut [u8]) -> Option<usize> {
    let (pairs, _) = text.as_chunks::<2>();
    // To the end even if a digit is none: without a way out of the loop, it looks at many digits at once.
    let mut all_digits = true;
    for ([high, low], byte) in pairs.iter().zip(bytes) {
        let (high, low) = (hex_digit(*high), hex_digit(*low));
        all_digits &= high.is_some() & low.is_some();
        *byte = high.unwrap_or(0) << 4 | low.unwrap_or(0);
    }
    all_digits.then_some(pairs.len())
}

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
