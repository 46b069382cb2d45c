//! Where a message goes: the URL of an endpoint, as it is checked, shown and dialled.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use url::Url;

use crate::store::endpoint_url::{EndpointUrl, TargetError};

/// An `http` or `https` URL that a request can be sent to, in its canonical form.
///
/// It is read as browsers do (the WHATWG URL standard), so that numbers in all notations, Unicode and percent escapes in
/// the host have become plain text before anything looks at them:
///
/// ```
/// use countersign::send::Target;
///
/// let target: Target = "HTTPS://Hooks.Example.COM:443/in#top".parse()?;
/// assert_eq!(target.as_str(), "https://hooks.example.com/in");
/// assert_eq!("https://0x7f.1/".parse::<Target>()?.host(), "127.0.0.1");
/// # Ok::<(), countersign::send::TargetError>(())
/// ```
///
/// A user or password in the URL is refused: it would be a secret in a place that is stored, listed and logged. Give an
/// `authorization` header to the endpoint instead.
///
/// [`Debug`](fmt::Debug) shows neither path nor query; many receivers put tokens there.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    address: Option<IpAddr>,
    port: u16,
    uri: Uri,
}

impl Target {
    /// The URL, as it is to be stored and shown to those who may see its query.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The host, as it stands in the URL: a name, an IPv4 address, or an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The port that is dialled.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The address, where the host is one; a name needs a look-up.
    pub(super) const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let EndpointUrl { url, address, port } = EndpointUrl::read(text)?;
        let uri =
            url.as_str().parse().map_err(|error: http::uri::InvalidUri| TargetError::Malformed(error.to_string()))?;
        Ok(Self { url, address, port, uri })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}://{}:{}/..)", self.url.scheme(), self.url.host_str().unwrap_or_default(), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, TargetError> {
        text.parse()
    }

    #[test]
    fn c134_c136_c137_every_notation_becomes_the_text_that_is_shown_and_dialled() {
        for (text, canonical) in [
            ("https://0x7f000001/hook", "https://127.0.0.1/hook"),
            ("https://0177.0.0.1/hook", "https://127.0.0.1/hook"),
            ("https://2130706433/hook", "https://127.0.0.1/hook"),
            ("https://127.1/hook", "https://127.0.0.1/hook"),
            ("https://010.8.8.8/hook", "https://8.8.8.8/hook"),
            ("https://127%2e0%2e0%2e1/hook", "https://127.0.0.1/hook"),
            ("https://１２７.０.０.１/hook", "https://127.0.0.1/hook"),
            ("https://127。0。0。1/hook", "https://127.0.0.1/hook"),
            ("https://127.0.0.1\\@1.1.1.1/hook", "https://127.0.0.1/@1.1.1.1/hook"),
            ("https:127.0.0.1/hook", "https://127.0.0.1/hook"),
            ("https://127.0.\t0.1/hook", "https://127.0.0.1/hook"),
            ("https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("https://1.1.1.1/#@127.0.0.1/", "https://1.1.1.1/"),
            ("https://1.1.1.1", "https://1.1.1.1/"),
        ] {
            let target = target(text).expect(text);
            assert_eq!(target.as_str(), canonical, "{text}");
            // What hyper is given names the same place.
            assert_eq!(target.uri().to_string(), canonical, "{text}");
            assert_eq!(target.uri().host().map(|host| host.trim_matches(['[', ']'])), Some(target.host()), "{text}");
            assert_eq!(canonical.parse::<Target>().as_ref(), Ok(&target), "read again, it is itself");
        }
    }

    #[test]
    fn what_is_no_target_is_refused_with_its_reason() {
        for (text, expected) in [
            ("https://user:pa55@1.1.1.1/hook", TargetError::Credentials),
            ("https://user@1.1.1.1/hook", TargetError::Credentials),
            ("https://:pa55@1.1.1.1/hook", TargetError::Credentials),
            ("gopher://1.1.1.1:70/_x", TargetError::Scheme),
            ("ws://1.1.1.1/hook", TargetError::Scheme),
            ("unix:/run/docker.sock", TargetError::Scheme),
            ("javascript:alert(1)", TargetError::Scheme),
            ("https://1.1.1.1:0/hook", TargetError::PortZero),
        ] {
            let error = target(text).expect_err(text);
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("pa55"), "{error}");
        }
        for text in ["", "//1.1.1.1/", "shop.example/hooks", "/hooks", "1.1.1.1"] {
            assert_eq!(target(text), Err(TargetError::Relative), "{text}");
        }
        for text in ["https://", "https://256.1.1.1/", "https://08.8.8.8/", "https://1.1.1.1:65536/"] {
            assert!(matches!(target(text), Err(TargetError::Malformed(_))), "{text}");
        }
        let (label, name) = ("x".repeat(64), "x.".repeat(128));
        for host in ["1..", "1...", ".", "a..b", ".example.com", "1.%2E.:10", "a。。b", &label, &name] {
            assert!(matches!(target(&format!("https://{host}/")), Err(TargetError::Malformed(_))), "{host}");
        }
        let (label, name) = ("x".repeat(63), "x.".repeat(127));
        for host in ["example.com.", &label, &name] {
            assert!(target(&format!("https://{host}/")).is_ok(), "{host}");
        }
        let long = format!("https://example.com/{}", "x".repeat(70_000));
        assert!(matches!(target(&long), Err(TargetError::Malformed(_))));
    }

    #[test]
    fn debug_output_holds_neither_path_nor_query() {
        let target = target("https://example.com/T0KEN?key=S3CRET").expect("a target");
        assert_eq!(format!("{target:?}"), "Target(https://example.com:443/..)");
    }
}
