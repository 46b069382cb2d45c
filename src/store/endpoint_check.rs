//! What an endpoint must keep to before any store takes it in.

use url::Url;

use super::endpoint_headers;
use super::endpoint_url::{EndpointUrl, TargetError};
use super::{Endpoint, EndpointSettings, Overrides, StoreError};

impl Endpoint {
    /// The most attempts that an endpoint may let one dispatcher begin in a second.
    pub const MAX_RATE_PER_SECOND: u32 = 1_000_000;
    /// The most references to secrets, and the most patterns of types.
    pub const MAX_LIST: usize = 64;
    /// The longest name of a scheme and reference to a secret, in bytes.
    pub const MAX_TEXT_BYTES: usize = 4_096;

    /// Holds an endpoint to what every store demands, before it is asked: what could never be sent to is refused when it is
    /// written, and not found out message by message.
    ///
    /// The destination policy has no part in this: what may be reached is the dispatcher's decision, at connect time. Nor
    /// have the scheme and its secrets, which may be the application's own. A URL that is neither `http` nor `https` is for a
    /// transport of the application's own, which knows what it means (`topic:orders`).
    ///
    /// # Errors
    ///
    /// [`StoreError::Rejected`] names the first setting that cannot work. It repeats no URL, and no value of a header.
    pub fn check(&self) -> Result<(), StoreError> {
        let rejected = |text: String| Err(StoreError::Rejected(format!("the endpoint {}: {text}", self.name)));
        if let Err(error) = check_url(&self.url) {
            return rejected(error.to_string());
        }
        // It is never sent: whoever wrote it meant something else.
        if self.url.contains('#') {
            return rejected(
                "the URL has a fragment, which is never sent; leave out the `#` and what is behind it".into(),
            );
        }
        if let Err(error) = endpoint_headers::check(&self.headers) {
            return rejected(error.to_string());
        }
        if self.scheme.is_empty() || self.scheme.len() > Self::MAX_TEXT_BYTES {
            return rejected("the name of its scheme is empty or too long".to_owned());
        }
        if self.secrets.len() > Self::MAX_LIST || self.types.len() > Self::MAX_LIST {
            return rejected(format!("{} secrets and {} types are allowed", Self::MAX_LIST, Self::MAX_LIST));
        }
        for (reference, number) in self.secrets.iter().zip(1..) {
            if reference.is_empty() || reference.len() > Self::MAX_TEXT_BYTES {
                return rejected(format!("the reference to secret number {number} is empty or too long"));
            }
            // It would be stored, listed and logged.
            if SECRET_PREFIXES.iter().any(|prefix| reference.starts_with(prefix)) {
                return rejected(format!(
                    "secret number {number} is a secret itself; name the place where it is, like `env:NAME`"
                ));
            }
        }
        self.settings.check().or_else(rejected)
    }
}

impl EndpointSettings {
    fn check(&self) -> Result<(), String> {
        // An age of 0 is one attempt and no other.
        let Self { max_in_flight, rate_per_second, timeout_ms, max_attempts, verdicts, .. } = self;
        let numbers = [
            ("max_in_flight", max_in_flight.map(u64::from), u64::MAX),
            ("rate_per_second", rate_per_second.map(u64::from), Endpoint::MAX_RATE_PER_SECOND.into()),
            ("timeout_ms", *timeout_ms, u64::MAX),
            ("max_attempts", max_attempts.map(u64::from), u64::MAX),
        ];
        for (what, number, most) in numbers {
            match number {
                Some(0) => return Err(format!("`{what}` is 0: nothing would ever be sent; 1 is the least")),
                Some(number) if number > most => return Err(format!("`{what}` is {number}: {most} is the most")),
                Some(_) | None => {}
            }
        }
        let pairs = verdicts.iter().map(|(statuses, meaning)| (statuses, meaning));
        Overrides::from_pairs(pairs).map(drop).map_err(|error| error.to_string())
    }
}

fn check_url(text: &str) -> Result<(), TargetError> {
    match EndpointUrl::read(text) {
        Err(TargetError::Scheme) => {
            let url = Url::parse(text).map_err(|error| TargetError::Malformed(error.to_string()))?;
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            if has_credentials { Err(TargetError::Credentials) } else { Ok(()) }
        }
        read => read.map(drop),
    }
}

/// How the secrets of Standard Webhooks begin.
const SECRET_PREFIXES: &[&str] = &["whsec_", "whsk_"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn endpoint() -> Endpoint {
        Endpoint::new(Name::new("shop").expect("a name"), "https://example.com/hooks")
    }

    fn refused(change: impl FnOnce(&mut Endpoint)) -> String {
        let mut endpoint = endpoint();
        change(&mut endpoint);
        let error = endpoint.check().expect_err("it is refused");
        assert!(matches!(error, StoreError::Rejected(_)) && !error.is_transient(), "{error}");
        error.to_string()
    }

    #[test]
    fn what_could_never_be_sent_to_is_refused_with_its_reason_and_without_what_is_secret() {
        assert!(endpoint().check().is_ok());
        assert!(Endpoint { url: "topic:orders".into(), ..endpoint() }.check().is_ok(), "for a transport of one's own");
        for (url, expected) in [
            ("https://user:pa55@example.com/", "user or password"),
            ("https://example.com/pa55#frag", "fragment"),
            ("broker://user:pa55@example.com/", "user or password"),
            ("topic:pa55#frag", "fragment"),
            ("pa55", "is not a whole one"),
            ("https://example.com:0/pa55", "port is 0"),
        ] {
            let error = refused(|endpoint| endpoint.url = url.to_owned());
            assert!(error.contains(expected) && error.contains("shop") && !error.contains("pa55"), "{error}");
        }
        let error = refused(|endpoint| {
            endpoint.headers.insert("content-length", http::HeaderValue::from_static("5"));
        });
        assert!(error.contains("content-length"), "{error}");
        let error = refused(|endpoint| endpoint.secrets = vec!["env:A".into(), "whsec_c2VjcmV0".into()]);
        assert!(error.contains("number 2") && !error.contains("c2VjcmV0"), "{error}");
        assert!(refused(|endpoint| endpoint.scheme = String::new()).contains("scheme"));
        assert!(refused(|endpoint| endpoint.secrets = vec!["env:A".into(); 65]).contains("64"));
    }

    #[test]
    fn numbers_with_which_nothing_would_be_sent_and_verdicts_that_say_nothing_are_refused() {
        type Change = fn(&mut EndpointSettings);
        let changes: [(&str, Change); 6] = [
            ("max_in_flight", |settings| settings.max_in_flight = Some(0)),
            ("rate_per_second", |settings| settings.rate_per_second = Some(0)),
            ("rate_per_second", |settings| settings.rate_per_second = Some(1_000_001)),
            ("timeout_ms", |settings| settings.timeout_ms = Some(0)),
            ("max_attempts", |settings| settings.max_attempts = Some(0)),
            ("99=retry", |settings| settings.verdicts = vec![("99".into(), "retry".into())]),
        ];
        for (expected, change) in changes {
            let error = refused(|endpoint| change(&mut endpoint.settings));
            assert!(error.contains(expected), "{error}");
        }
    }
}
