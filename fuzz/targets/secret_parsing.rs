//! Secrets as text: what is accepted is the key that it says, what is refused is not told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign::secret::{SecretError, SecretFormat};
use countersign::signature::{Message, Signer};
use countersign::{Keyring, Scheme, Secret, Timestamp};

use super::input::Input;

/// Reads a format's name and a text.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let format = input.line();
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    let (format, expected) = match format {
        b"hex" => (SecretFormat::Hex, hex(text)),
        b"whsec" => (SecretFormat::Base64 { prefix: "whsec_", min_bytes: 24 }, base64(text, "whsec_", 24)),
        b"base64" => (SecretFormat::Base64 { prefix: "", min_bytes: 0 }, base64(text, "", 0)),
        _ => (SecretFormat::Text, Some(text.as_bytes().to_vec())),
    };
    let one_line = text.trim() == text && !text.chars().any(char::is_control);
    let expected =
        expected.filter(|bytes| one_line && bytes.iter().any(|byte| !(byte.is_ascii_whitespace() || *byte == 0)));

    match format.parse(text) {
        Ok(secret) => {
            assert_eq!(format!("{secret:?}"), "Secret(..)");
            let expected = expected.expect("a text that is to be refused");
            assert_eq!(signature(secret), signature(Secret::from_bytes(expected).expect("a secret")));
        }
        Err(error) => {
            assert_eq!(expected, None, "{error}");
            holds_nothing_of_the_text(&error);
        }
    }
    for warning in format.warnings(text) {
        let warning = warning.to_string();
        assert!(["the secret has ", "the secret begins with `"].iter().any(|start| warning.starts_with(start)));
        assert!(text.len() < 16 || !warning.contains(text), "{warning}");
    }
}

/// The key behind the digits, which are the only way to write it.
fn base64(text: &str, prefix: &str, least: usize) -> Option<Vec<u8>> {
    if ["v1,", "sk_", "pk_", "rk_", "whpk_", "whsk_"].iter().any(|foreign| text.starts_with(foreign)) {
        return None;
    }
    let digits = text.strip_prefix(prefix).unwrap_or(text);
    let bytes = STANDARD.decode(digits).ok()?;
    assert_eq!(STANDARD.encode(&bytes), digits, "one text for each key");
    Some(bytes).filter(|bytes| bytes.len() >= least)
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

/// Two keys with one signature are one key: there is no other way to look at them.
fn signature(secret: Secret) -> String {
    let signer = Signer::new(Scheme::github(), Keyring::new(secret)).expect("a signer");
    let headers = signer.sign(&Message::new(Timestamp::default(), b"body")).expect("a message");
    headers["x-hub-signature-256"].to_str().expect("hex").to_owned()
}

/// Every error is one of those that can be written down without knowing the text.
fn holds_nothing_of_the_text(error: &SecretError) {
    let known = [
        SecretError::Empty,
        SecretError::Blank,
        SecretError::WhiteSpaceAtEnds,
        SecretError::ControlCharacter,
        SecretError::VersionTag,
        SecretError::LooksLikeApiKey("sk_"),
        SecretError::LooksLikeApiKey("pk_"),
        SecretError::LooksLikeApiKey("rk_"),
        SecretError::AsymmetricKey("whsk_"),
        SecretError::AsymmetricKey("whpk_"),
        SecretError::NotBase64,
        SecretError::NotHex,
    ];
    match error {
        SecretError::TooShort { bytes, needed } => assert!(bytes < needed),
        error => assert!(known.contains(error), "{error:?}"),
    }
}
