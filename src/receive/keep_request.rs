//! The request as it is kept with a failed event, so that an operator can look at it and have it run again.

use http::{HeaderMap, HeaderName, Request, header};

use super::verify::original_uri;
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

/// The request, if it is to be kept should it fail.
pub(super) fn kept_request(
    request: &Request<VerifiedBody>,
    delivery: &Delivery,
    keep_request: KeepRequest,
) -> Option<KeptRequest> {
    match keep_request {
        KeepRequest::Failures => Some(keep(request, delivery)),
        KeepRequest::Never => None,
    }
}

/// The part of a request that is worth keeping: never a credential, never the signature.
pub(super) fn keep(request: &Request<VerifiedBody>, delivery: &Delivery) -> KeptRequest {
    KeptRequest {
        method: request.method().clone(),
        target: original_uri(request.extensions(), request.uri())
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned(),
        headers: kept_headers(request.headers(), delivery),
        body: delivery.body().clone(),
        proof: delivery.written_proof(),
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
        || (made_up && !SECRET.iter().any(|word| text.contains(word)) && !super::answer::never_repeated(name))
}
