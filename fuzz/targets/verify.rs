//! A whole request: the verdict does not depend on how the body arrives, nor on headers that are not the scheme's.

use std::time::Duration;

use countersign::signature::{Head, IdOrigin, Message, Signer};
use countersign::{Digest, EventId, Keyring, ReplayWindow, Scheme, Secret, Timestamp, Verified, Verifier, VerifyError};
use http::{HeaderMap, HeaderValue, Method};

use super::input::{Input, URL, other_secret};

/// Reads a scheme, its secret, the lengths of the body's pieces (a byte each), the present, headers and a body. Tries
/// the request as it is, and once more with a right signature.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let scheme = input.scheme();
    let secret = input.secret(&scheme);
    let pieces = input.line();
    let now = input.moment();
    let headers = input.headers(&scheme);
    let body = input.rest();
    let case = Case { verifier: verifier(&scheme, &secret), pieces, now, body };

    let raw = case.verdict(&headers);
    case.holds(&headers, &raw);
    if let Some(signed) = case.signed(&scheme, secret, headers) {
        let verdict = case.verdict(&signed);
        if scheme.timestamp_field().is_some() || matches!(verdict, Err(VerifyError::Unsupported(_))) {
            // The body says when it was sent; or a header of a stronger scheme is there too.
            return case.holds(&signed, &verdict);
        }
        assert_eq!(verdict.as_ref().map(|found| found.secret), Ok(1), "{} signed it", scheme.name());
        case.holds(&signed, &verdict);
    }
}

/// The secret is the second of two.
fn verifier(scheme: &Scheme, secret: &Secret) -> Verifier {
    let keyring = Keyring::new(other_secret(b"the newer one")).with_previous(secret.clone());
    Verifier::new(scheme.clone(), keyring).expect("a verifier")
}

struct Case<'a> {
    verifier: Verifier,
    pieces: &'a [u8],
    now: Timestamp,
    body: &'a [u8],
}

/// All that a proof tells.
#[derive(Debug, PartialEq)]
struct Found {
    id: Option<EventId>,
    origin: IdOrigin,
    timestamp: Option<Timestamp>,
    secret: usize,
    digest: Digest,
}

type Verdict = Result<Found, VerifyError>;

impl Case<'_> {
    fn verdict(&self, headers: &HeaderMap) -> Verdict {
        self.found(self.verifier.verify_at(head(headers), self.body, self.now))
    }

    fn found(&self, verified: Result<Verified, VerifyError>) -> Verdict {
        verified.map(|verified| Found {
            id: verified.event_id().cloned(),
            origin: verified.id_origin(),
            timestamp: verified.timestamp(),
            secret: verified.secret(),
            digest: verified.signed_digest(&Digest::of(self.body)),
        })
    }

    fn holds(&self, headers: &HeaderMap, verdict: &Verdict) {
        assert_eq!(&self.in_pieces(headers), verdict, "in pieces");

        let mut more = headers.clone();
        for value in ["1", "2"] {
            more.append("x-unrelated", HeaderValue::from_static(value));
        }
        assert_eq!(&self.verdict(&more), verdict, "with headers of others");

        if verdict.as_ref().is_err_and(VerifyError::is_stale) {
            let patient = self.verifier.clone().with_window(ReplayWindow::symmetric(Duration::MAX));
            let verified = patient.verify_at(head(headers), self.body, self.now);
            assert!(verified.is_ok(), "a request is stale only if its signature is right");
        }
    }

    /// The body by pieces of the given lengths; what they leave over is not fed.
    fn in_pieces(&self, headers: &HeaderMap) -> Verdict {
        let mut check = self.verifier.begin(head(headers))?;
        let mut left = self.body;
        for length in self.pieces {
            let (piece, rest) = left.split_at(usize::from(*length).min(left.len()));
            check.update(piece);
            left = rest;
        }
        self.found(check.finish_at(self.body, self.now))
    }

    /// The headers with those of the scheme replaced by right ones; `None` if the message cannot be signed.
    fn signed(&self, scheme: &Scheme, secret: Secret, mut headers: HeaderMap) -> Option<HeaderMap> {
        let names: Vec<_> = scheme.headers().cloned().collect();
        let id = names.iter().filter(|name| name.as_str().ends_with("id")).find_map(|name| headers.remove(name));
        let id = id.as_ref().and_then(|id| id.to_str().ok());
        let message = Message { id, ..Message::new(self.now, self.body).with_target(&Method::POST, URL) };
        let signer = Signer::new(scheme.clone(), Keyring::new(secret)).expect("a signer");
        let signed = signer.sign(&message).ok()?;
        for name in names {
            headers.remove(name);
        }
        headers.extend(signed);
        Some(headers)
    }
}

fn head(headers: &HeaderMap) -> Head<'_> {
    Head::new(&Method::POST, URL, headers)
}
