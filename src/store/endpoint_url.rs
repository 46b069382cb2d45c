//! The URL of an endpoint, read once, by one parser.
//!
//! A store keeps and shows the text as it was given. What is checked, signed and dialled is what this parser understood.

use std::net::IpAddr;

use thiserror::Error;
use url::{Host, ParseError, Url};

/// A URL that nothing can be sent to. The text never repeats the URL, which may hold what is secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It holds a user or a password.
    #[error("the URL holds a user or password; put credentials into a header of the endpoint")]
    Credentials,
    /// It cannot be read, or has no host.
    #[error("the URL cannot be used: {0}")]
    Malformed(String),
    /// Its port is 0, which nothing can listen on.
    #[error("the URL's port is 0; 1 to 65535 can be called")]
    PortZero,
    /// It begins with neither a scheme nor a host.
    #[error("the URL is not a whole one: write it with its scheme and host, like https://shop.example/hooks")]
    Relative,
    /// It is neither `http` nor `https`.
    #[error("the URL's scheme is neither https nor http: write it like https://shop.example/hooks")]
    Scheme,
}

/// An `http` or `https` URL that a request can be sent to, and what is known of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointUrl {
    pub(crate) url: Url,
    /// The host, where it is an address.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl EndpointUrl {
    pub(crate) fn read(text: &str) -> Result<Self, TargetError> {
        let mut url = Url::parse(text).map_err(|error| match error {
            // What stands in front of a host is missing: a path, or `shop.example/hooks`.
            ParseError::RelativeUrlWithoutBase => TargetError::Relative,
            error => TargetError::Malformed(error.to_string()),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        // It is never sent, so it says nothing about where a message goes.
        url.set_fragment(None);
        let address = match url.host() {
            Some(Host::Domain(name)) => {
                can_be_looked_up(name)?;
                None
            }
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            None => return Err(TargetError::Malformed("it has no host".to_owned())),
        };
        let port = url.port_or_known_default().unwrap_or_default();
        if port == 0 {
            return Err(TargetError::PortZero);
        }
        // What a client reads instead of this is no longer than that.
        if url.as_str().len() > MAX_URL_BYTES {
            return Err(TargetError::Malformed(format!("it is longer than {MAX_URL_BYTES} bytes")));
        }
        Ok(Self { url, address, port })
    }
}

/// Refuses what no resolver can be asked for (RFC 1035, section 2.3.4), and what one might read as something else: `1...`.
fn can_be_looked_up(name: &str) -> Result<(), TargetError> {
    // The dot at the end says that the name is complete.
    let name = name.strip_suffix('.').unwrap_or(name);
    let problem = if name.split('.').any(str::is_empty) {
        "a label of its host is empty: it has two dots in a row, or one at its beginning"
    } else if name.split('.').any(|label| label.len() > 63) {
        "a label of its host is longer than 63 bytes"
    } else if name.len() > 253 {
        "its host is longer than 253 bytes"
    } else {
        return Ok(());
    };
    Err(TargetError::Malformed(problem.to_owned()))
}

/// How long a URL may be, in bytes, once it is read.
const MAX_URL_BYTES: usize = 65_534;
