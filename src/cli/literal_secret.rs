//! Keeps secrets out of the configuration file: it names where they are.

use toml::de::DeValue;

/// What to say of a key that is none, where it asks for a secret itself. `known` are the keys that there are.
pub(crate) fn advice(key: &str, known: &[&str]) -> Option<String> {
    let lower = key.to_lowercase().replace('_', "-");
    let asks = ["secret", "token", "password", "passwd", "api-key", "apikey", "private-key"];
    if !asks.iter().any(|word| lower.contains(word)) || known.contains(&lower.as_str()) {
        return None;
    }
    let of_kind = |ending: &str| {
        let wanted = format!("{lower}{ending}");
        known.iter().find(|key| **key == wanted).or_else(|| known.iter().find(|key| key.ends_with(ending))).copied()
    };
    let ways: Vec<_> = ["-env", "-file"].into_iter().filter_map(of_kind).map(|key| format!("`{key}`")).collect();
    let instead = if ways.is_empty() { "leave it out".to_owned() } else { format!("write {}", ways.join(" or ")) };
    Some(format!("`{key}`: a secret never stands in this file, only where it is: {instead}"))
}

/// Refuses a value that holds a secret, where only the place of one, or none, belongs.
pub(crate) fn refuse(key: &str, value: &DeValue<'_>) -> Result<(), String> {
    match value {
        DeValue::Array(values) => values.iter().try_for_each(|value| refuse(key, value.get_ref())),
        DeValue::String(text) => refuse_text(key, text),
        _ => Ok(()),
    }
}

fn refuse_text(key: &str, text: &str) -> Result<(), String> {
    if key.ends_with("-env") && !is_name(text) {
        return Err(format!(
            "`{key}` takes the name of a variable, and this is none; a secret never stands in this file"
        ));
    }
    if key.ends_with("-file") && has_mark(text) {
        return Err(format!(
            "`{key}` takes the path of a file, and this looks like the secret itself, which never stands in this file"
        ));
    }
    if key == "store" && has_password(text) {
        return Err(
            "`store` holds a password: leave `store` out, and set COUNTERSIGN_STORE in the environment".to_owned()
        );
    }
    let header = text.split(':').next().unwrap_or_default().trim().to_lowercase();
    if key == "header" && ["authorization", "cookie", "proxy-authorization", "x-api-key"].contains(&header.as_str()) {
        return Err(format!(
            "`header`: `{header}` holds a secret, which never stands in this file; add that endpoint with `countersign endpoint add`"
        ));
    }
    Ok(())
}

/// Whether it can be a variable's name, and is no secret that happens to be made of the same letters.
fn is_name(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has = |kind: fn(&u8) -> bool| text.as_bytes().iter().any(kind);
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    let is_random = text.len() >= 16 && (is_mixed || text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_word
        && !text.is_empty()
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && !has_mark(text)
        && !is_random
}

/// How well-known secrets begin.
fn has_mark(text: &str) -> bool {
    ["whsec_", "whsk_", "whpk_", "sk_live", "sk_test", "-----BEGIN"].iter().any(|mark| text.starts_with(mark))
}

fn has_password(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    scheme != "sqlite" && (user.contains(':') || rest.contains("password="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_a_secret_is_answered_with_where_to_name_it() {
        let known = ["secret-env", "secret-file", "verify-token-env", "verify-token-file"];
        let told = advice("secret", &known).expect("advice");
        assert!(told.contains("`secret-env` or `secret-file`"), "{told}");
        assert!(advice("verify_token", &known).expect("advice").contains("`verify-token-env`"));
        assert!(advice("signing_secret", &known).is_some() && advice("password", &[]).is_some());
        assert!(advice("upstreem", &known).is_none());
    }

    #[test]
    fn a_secret_is_told_from_where_it_is() {
        for (key, text, is_refused) in [
            ("secret-env", "STRIPE_SECRET", false),
            ("secret-env", "stripe_secret", false),
            ("secret-env", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("secret-env", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("secret-env", "0123456789abcdef0123456789abcdef", true),
            ("secret-env", "a b", true),
            ("secret-file", "/run/secrets/stripe", false),
            ("secret-file", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("store", "postgres://app@db/app", false),
            ("store", "postgres://app:hunter2@db/app", true),
            ("store", "postgres://db/app?user=app&password=hunter2", true),
            ("store", "sqlite:/var/a:b@c.db", false),
            ("header", "x-tenant: 7", false),
            ("header", "Authorization: Bearer hunter2", true),
        ] {
            let refused = refuse_text(key, text);
            assert_eq!(refused.is_err(), is_refused, "{key} {text}");
            assert!(!refused.err().unwrap_or_default().contains("hunter2"));
        }
    }
}
