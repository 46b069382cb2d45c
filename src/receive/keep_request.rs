//! The request as it is kept with a failed event, so that an operator can look at it and have it run again.

use http::{HeaderMap, HeaderName, Method, Request, Uri, header};

use super::public_url::original_uri;
use super::{Delivery, VerifiedBody};
use crate::store::KeptRequest;

/// Whether requests are kept: method, path and query, body, and headers that are not credentials by their name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepRequest {
    /// Those of failed events, until they succeed; in deferred mode, of all. The default.
    #[default]
    Failures,
    /// None: the payload never enters the store.
    Never,
}

/// A request's head, for as long as its handler runs. What of it is worth keeping is looked for only when the event has
/// failed: most do not.
pub(super) struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Head {
    /// The head of this request.
    pub(super) fn of(request: &Request<VerifiedBody>) -> Self {
        Self {
            method: request.method().clone(),
            uri: original_uri(request.extensions(), request.uri()).clone(),
            headers: request.headers().clone(),
        }
    }

    /// The head of this request, where it may have to be kept.
    pub(super) fn to_keep(request: &Request<VerifiedBody>, keep: KeepRequest) -> Option<Self> {
        match keep {
            KeepRequest::Failures => Some(Self::of(request)),
            KeepRequest::Never => None,
        }
    }

    /// The part of the request that is worth keeping: never a credential, never the signature.
    pub(super) fn keep(&self, delivery: &Delivery) -> KeptRequest {
        KeptRequest {
            method: self.method.clone(),
            target: self.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            headers: kept_headers(&self.headers, delivery),
            body: delivery.body().clone(),
            proof: delivery.written_proof(),
        }
    }
}

fn kept_headers(headers: &HeaderMap, delivery: &Delivery) -> HeaderMap {
    let is_signature = |name: &HeaderName| delivery.scheme().is_some_and(|scheme| scheme.is_signature_header(name));
    headers
        .iter()
        .filter(|(name, _)| !is_signature(name) && worth_keeping(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Headers that say what the body is, and those that senders make up to describe the event.
fn worth_keeping(name: &HeaderName) -> bool {
    const DESCRIBING: [HeaderName; 4] =
        [header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_TYPE, header::USER_AGENT];
    // Parts of names. `sig` and `hmac` are other schemes' signatures, which a request may carry beside the checked one.
    const SECRET: [&str; 12] =
        ["auth", "bearer", "cookie", "credential", "hmac", "jwt", "key", "pass", "secret", "session", "sig", "token"];
    let text = name.as_str();
    let made_up = text.contains('-') && !text.starts_with("sec-") && !text.starts_with("proxy-");
    DESCRIBING.contains(name)
        || text == "idempotency-key" // the one key that opens nothing
        || matches!(text, "traceparent" | "tracestate")
        || (made_up && !SECRET.iter().any(|word| text.contains(word)) && !super::answer::never_repeated(name))
}
