//! Secrets for any scheme: two of each form, private halves where there are pairs.

use countersign::secret::SecretFormat;
use countersign::{Scheme, Secret};

/// The texts of two secrets of this scheme.
pub(crate) fn texts(scheme: &Scheme) -> [&'static str; 2] {
    match scheme.secret_format() {
        SecretFormat::Hex => {
            ["44782def547aaa06c910c43932b1eb0c71fc68d9d0c057550c48ec2acf6ba056", "00112233445566778899aabbccddeeff"]
        }
        SecretFormat::Ed25519 => {
            ["whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "whsk_CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk="]
        }
        SecretFormat::Ed25519Hex => [
            "0707070707070707070707070707070707070707070707070707070707070707ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c",
            "0909090909090909090909090909090909090909090909090909090909090909fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618",
        ],
        SecretFormat::P256 => [
            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwehRANCAAQeGFMv1HVMAvMEHZx1zrM7g//YGsfOT+iCzLHJi8WJbqRsMRxOL/QN2Wo2U+bkVEXTLf5Ibs7XXHqQxqGIgcCj",
            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQmhRANCAARxNfpP2ToJ3OmLv2gbS/z1DnwNY1TmKvsL/yo0KWF4Ze1MHwLduQI+5WpVflFdap3GbBHyIJYN5ZQzTfWId2ck",
        ],
        SecretFormat::P256Jwk => [
            r#"{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k7","x":"HhhTL9R1TALzBB2cdc6zO4P_2BrHzk_ogsyxyYvFiW4","y":"pGwxHE4v9A3ZajZT5uRURdMt_khuztdcepDGoYiBwKM","d":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}"#,
            r#"{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k9","x":"cTX6T9k6Cdzpi79oG0v89Q58DWNU5ir7C_8qNClheGU","y":"7UwfAt25Aj7lalV-UV1qncZsEfIglg3llDNN9Yh3ZyQ","d":"CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk"}"#,
        ],
        // Base64 for some, and as a text for all others.
        _ => ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"],
    }
}

pub(crate) fn secret(scheme: &Scheme) -> Secret {
    parse(scheme, texts(scheme)[0])
}

pub(crate) fn other_secret(scheme: &Scheme) -> Secret {
    parse(scheme, texts(scheme)[1])
}

fn parse(scheme: &Scheme, text: &str) -> Secret {
    scheme.parse_secret(text).unwrap_or_else(|error| panic!("{}: {error}", scheme.name()))
}
