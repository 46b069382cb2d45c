//! What a redirect says, for a text that helps: none is followed.

use std::fmt;

use http::{HeaderMap, StatusCode, header};

use super::Target;

/// An answer that points elsewhere.
///
/// It is not followed: most clients would turn a `POST` into a `GET`, which many servers answer with a 200 that
/// delivered nothing, and the receiver would choose whom we call next. The endpoint's URL is what has to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    host: Option<String>,
    is_upgrade: bool,
}

impl Redirect {
    /// Reads the header `Location` of a 3xx.
    pub(super) fn read(target: &Target, status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        if !status.is_redirection() {
            return None;
        }
        let location = headers.get(header::LOCATION)?;
        let url = location.to_str().ok().and_then(|location| target.url().join(location).ok());
        let host = url.as_ref().and_then(|url| url.host_str()).map(str::to_owned);
        let is_upgrade = url.as_ref().is_some_and(|url| {
            !target.is_https() && url.scheme() == "https" && url.host_str() == target.url().host_str()
        });
        Some(Self { host, is_upgrade })
    }

    /// The host that it points to; none where that cannot be read.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Whether it asks for `https` instead of `http` on the same host.
    #[must_use]
    pub const fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if self.is_upgrade => {
                write!(f, "a redirect to https at {host}, not followed: let the endpoint's URL begin with https://")
            }
            Some(host) => write!(f, "a redirect to {host}, not followed: set the endpoint's URL to where it leads"),
            None => f.write_str("a redirect to nowhere that can be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, status: u16, location: &str) -> Option<Redirect> {
        let headers = [(header::LOCATION, location.parse().expect("a value"))].into_iter().collect();
        Redirect::read(&url.parse().expect("a target"), StatusCode::from_u16(status).expect("a status"), &headers)
    }

    #[test]
    fn c112_the_text_names_the_host_and_explains_an_upgrade() {
        let text = |url, location| read(url, 302, location).expect("a redirect").to_string();
        assert!(text("https://a.example/x", "https://b.example/y?key=S3CRET").contains("to b.example, not followed"));
        assert!(!text("https://a.example/x", "https://b.example/y?key=S3CRET").contains("S3CRET"));
        assert!(text("https://a.example/x", "/elsewhere").contains("to a.example"));
        assert!(text("https://a.example/x", "//user:pw@[::1]/").contains("to [::1]"));
        assert!(text("http://a.example/x", "https://a.example/x").contains("begin with https://"));
        assert!(text("https://a.example/x", "https://[").contains("nowhere"));
        assert_eq!(read("https://a.example/x", 200, "https://b.example/"), None);
        assert!(!read("https://a.example/x", 308, "http://a.example/").expect("a redirect").is_upgrade());
    }
}
