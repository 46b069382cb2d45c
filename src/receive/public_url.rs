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
        let (scheme, host) = (forwarded_scheme(parts)?, forwarded_host(parts)?);
        (self.0)(parts).then(|| format!("{scheme}://{host}"))
    }

    /// Why the forwarded headers were not heeded: for the log, where a signature over the URL does not fit.
    pub(super) fn lack(&self, parts: &Parts) -> Option<&'static str> {
        let has_both = (forwarded_scheme(parts).is_some(), forwarded_host(parts).is_some());
        match has_both {
            _ if !(self.0)(parts) => {
                Some("the request did not come through a proxy that is trusted: the configured URL was checked")
            }
            (true, true) => None,
            (true, false) => {
                Some("the trusted proxy sent X-Forwarded-Proto without one usable X-Forwarded-Host: have it send both")
            }
            (false, true) => {
                Some("the trusted proxy sent X-Forwarded-Host without one usable X-Forwarded-Proto: have it send both")
            }
            (false, false) => {
                Some("the trusted proxy sent neither X-Forwarded-Proto nor X-Forwarded-Host: have it send both")
            }
        }
    }
}

fn forwarded_scheme(parts: &Parts) -> Option<&str> {
    only(parts, "x-forwarded-proto").filter(|scheme| ["http", "https"].contains(scheme))
}

fn forwarded_host(parts: &Parts) -> Option<Authority> {
    only(parts, "x-forwarded-host")?.parse().ok()
}

/// A header that stands once.
fn only<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let mut values = parts.headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
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
