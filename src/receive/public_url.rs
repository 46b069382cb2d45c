//! The URL as the sender wrote it, for schemes that sign it: behind proxies and routers it is another one.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::uri::Authority;
use http::{Extensions, Uri};

/// How the sender writes this endpoint's address, for schemes that sign it.
#[derive(Clone, Debug)]
pub(super) enum PublicUrl {
    /// Scheme and authority; the request's own path and query follow.
    Base(String),
    /// All of it.
    Exact(String),
}

/// Says of which requests the forwarded headers are believed.
#[derive(Clone)]
pub(super) struct Trusted(pub(super) Arc<dyn Fn(&Parts) -> bool + Send + Sync>);

impl Trusted {
    /// Scheme and authority as the proxy saw them.
    pub(super) fn base(&self, parts: &Parts) -> Option<String> {
        let one = |name: &str| {
            let mut values = parts.headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
        };
        let scheme = one("x-forwarded-proto").filter(|scheme| ["http", "https"].contains(scheme))?;
        let host = one("x-forwarded-host")?.parse::<Authority>().ok()?;
        (self.0)(parts).then(|| format!("{scheme}://{host}"))
    }
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trusted(..)")
    }
}

impl PublicUrl {
    /// The URL, if it cannot be one that a sender was given.
    pub(super) fn fault(&self) -> Option<&str> {
        let absolute =
            |url: &str| url.parse::<Uri>().is_ok_and(|url| url.scheme().is_some() && url.authority().is_some());
        match self {
            // A path follows it, which is not one behind a query or a fragment.
            Self::Base(url) => (!absolute(url) || url.contains(['?', '#'])).then_some(url),
            Self::Exact(url) => (!absolute(url)).then_some(url),
        }
    }
}

/// The request's target before routers took prefixes off it.
pub(super) fn original_uri<'a>(extensions: &'a Extensions, uri: &'a Uri) -> &'a Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    #[cfg(not(feature = "axum"))]
    let _ = extensions;
    uri
}
