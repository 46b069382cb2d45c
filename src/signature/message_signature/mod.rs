//! HTTP Message Signatures (RFC 9421): what has to be covered, and the signature base of a request, for both directions.
//!
//! The body is covered by way of its digest (RFC 9530), which counts only where the signature covers `content-digest` and
//! the digest is that of the body as it was received.

mod component;
mod content_digest;
mod form;
mod input;
mod options;
mod outgoing;

use http::{HeaderName, Uri};

use self::component::{Component, NoValue, field};
use self::content_digest::{CONTENT_DIGEST, ContentDigest, DigestAlgorithm};
pub(super) use self::form::form;
use self::input::{Input, SIGNATURE_INPUT};
use super::header::required;
use super::{Algorithm, Head, VerifyError};

/// What a message signature has to be like: the policy that RFC 9421 leaves to those who use it.
#[derive(Clone, Debug)]
pub(super) struct MessageSignature {
    /// What has to be covered, and what a sender covers.
    required: Vec<Component>,
    /// Whether `@target-uri` may be covered in parts.
    target_in_parts: bool,
    algorithm: Algorithm,
    label: Option<String>,
    key_id: Option<String>,
    id: IdPlace,
    digest: DigestAlgorithm,
    /// How long a signature of ours may be used, in seconds.
    lifetime: Option<i64>,
    /// The headers that take part, beside `signature`.
    headers: Vec<HeaderName>,
}

/// Where the event's id stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IdPlace {
    Nowhere,
    Nonce,
    /// One of the covered headers.
    Header(HeaderName),
}

/// What a request claims by its message signature.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// What is signed.
    pub(super) base: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) key_id: Option<String>,
    /// Unix seconds.
    pub(super) created: i64,
    pub(super) expires: Option<i64>,
    pub(super) id: Option<String>,
    digest: Option<ContentDigest>,
}

impl Claim {
    /// Whether the body is the one that the signature covers, if it covers one.
    pub(super) fn covers(&self, body: &[u8]) -> bool {
        self.digest.as_ref().is_none_or(|digest| digest.fits(body))
    }
}

impl MessageSignature {
    /// The algorithm of its keys.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether every signature covers the body.
    pub(super) fn covers_body(&self) -> bool {
        self.required.iter().any(is_content_digest)
    }

    pub(super) fn has_id(&self) -> bool {
        self.id != IdPlace::Nowhere
    }

    /// Reads the head of a request. Whatever the signature covers, the policy has to be met.
    pub(super) fn read(&self, head: &Head<'_>) -> Result<Claim, VerifyError> {
        let input = Input::read(head.headers(), self.label.as_deref())?;
        if !self.required.iter().all(|required| self.is_covered(required, &input.components)) {
            return Err(malformed("it does not cover every component that is required"));
        }
        if input.key_id.as_deref().zip(self.key_id.as_deref()).is_some_and(|(named, ours)| named != ours) {
            return Err(malformed("`keyid` names another key than the one that was agreed on"));
        }
        // The key says which algorithm it is for. A request that says otherwise is none of its owner's.
        if input.alg.as_deref().is_some_and(|alg| alg != self.algorithm.as_str()) {
            return Err(malformed("`alg` is not the algorithm that was agreed on"));
        }
        let digest = if input.components.iter().any(is_content_digest) {
            let value = one_line(head, &CONTENT_DIGEST)?;
            Some(ContentDigest::parse(&value)?)
        } else {
            None
        };
        let id = match &self.id {
            IdPlace::Nowhere => None,
            IdPlace::Nonce => Some(input.nonce.ok_or_else(|| malformed("`nonce` is missing"))?),
            IdPlace::Header(name) => Some(one_line(head, name)?),
        };
        Ok(Claim {
            base: base(&input.components, &input.parameters, head).map_err(NoValue::refused)?,
            signature: input.signature,
            key_id: input.key_id,
            created: input.created,
            expires: input.expires,
            id,
            digest,
        })
    }

    fn is_covered(&self, required: &Component, covered: &[Component]) -> bool {
        let covers = |component| covered.contains(&component);
        covers(required.clone())
            || self.target_in_parts
                && *required == Component::TargetUri
                && (covers(Component::RequestTarget) || covers(Component::Path) && covers(Component::Query))
    }
}

impl NoValue {
    fn refused(self) -> VerifyError {
        match self {
            Self::Url => VerifyError::Unsupported("the signature covers the URL, which is not configured"),
            Self::Missing(header) => VerifyError::MissingHeader(header),
            Self::Unreadable(header) => {
                VerifyError::Malformed { header, fault: "it is covered, and holds what a signature base cannot" }
            }
        }
    }
}

/// The signature base: a line for each component, and the parameters.
fn base(components: &[Component], parameters: &str, head: &Head<'_>) -> Result<Vec<u8>, NoValue> {
    // One that is none has no value, and a line break is not in one that is.
    let url: Option<Uri> = if components.iter().any(Component::is_of_url) { head.url().parse().ok() } else { None };
    let mut base = String::with_capacity(64 * (components.len() + 2));
    for component in components {
        let value = component.value(head, url.as_ref())?;
        base.extend(["\"", component.name(), "\": ", &value, "\n"]);
    }
    base.extend(["\"@signature-params\": ", parameters]);
    Ok(base.into_bytes())
}

/// The value of a header that means something here. Where it stands twice, another reader may take the other one.
fn one_line(head: &Head<'_>, name: &HeaderName) -> Result<String, VerifyError> {
    required(head.headers(), name)?;
    field(head.headers(), name).map_err(NoValue::refused)
}

fn is_content_digest(component: &Component) -> bool {
    *component == Component::Field(CONTENT_DIGEST)
}

fn malformed(fault: &'static str) -> VerifyError {
    VerifyError::Malformed { header: SIGNATURE_INPUT, fault }
}

#[cfg(test)]
mod tests;
