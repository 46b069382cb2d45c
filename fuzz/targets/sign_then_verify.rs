//! Both ends: what is signed verifies, and after a change of any single bit it does not.

use countersign::signature::{Encoding, Head, IdOrigin, Message, SignError, Signer};
use countersign::{Digest, Keyring, Scheme, Timestamp, Verified, Verifier, VerifyError};
use http::{HeaderMap, HeaderValue, Method};

use super::input::{Input, URL, other_secret};

/// Reads a scheme, its secret, id, moment, type, content type, the place of a bit, and a body.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let scheme = input.scheme();
    let secret = input.secret(&scheme);
    let id = input.text().unwrap_or_default();
    let now = input.moment();
    let event_type = input.text();
    let content_type = input.text();
    let place = input.number();
    let body = input.rest();

    let signer = Signer::new(scheme.clone(), Keyring::new(secret.clone())).expect("a signer");
    let message =
        Message { id: Some(id), event_type, content_type, ..Message::new(now, body).with_target(&Method::POST, URL) };
    let headers = match signer.sign(&message) {
        Ok(headers) => headers,
        Err(error) => return assert_refused_with_a_reason(&error, id, now),
    };

    let keyring = Keyring::new(other_secret(data)).with_previous(secret);
    let sent = Sent { verifier: Verifier::new(scheme, keyring).expect("a verifier"), now, headers, body };
    sent.is_accepted(id);
    sent.is_refused_when_a_bit_changes(place);
}

/// An ordinary message can be signed.
fn assert_refused_with_a_reason(error: &SignError, id: &str, now: Timestamp) {
    match error {
        SignError::NegativeTimestamp => assert!(now < Timestamp::default()),
        SignError::SeparatorInId(separator) => assert!(id.contains(*separator)),
        SignError::IdNotForHeader => assert!(!id.is_ascii() || id.trim() != id),
        SignError::InvalidId(_) | SignError::InvalidHeader(_) => {}
        other => panic!("{other}"),
    }
}

struct Sent<'a> {
    verifier: Verifier,
    now: Timestamp,
    headers: HeaderMap,
    body: &'a [u8],
}

impl Sent<'_> {
    fn scheme(&self) -> &Scheme {
        self.verifier.scheme()
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Verified, VerifyError> {
        self.verifier.verify_at(Head::new(&Method::POST, URL, headers), body, self.now)
    }

    fn accepted(&self) -> Verified {
        self.verify(&self.headers, self.body).expect("what was signed is accepted")
    }

    fn is_accepted(&self, id: &str) {
        let verified = self.accepted();
        assert_eq!(verified.secret(), 1);
        let found = verified.event_id().map(|id| id.as_str());
        match self.scheme().id_origin() {
            IdOrigin::SignedHeader | IdOrigin::Unsigned => assert_eq!(found, Some(id)),
            IdOrigin::SignedBody => assert_eq!(verified.id_origin().is_signed(), found.is_some()),
            _ => assert_eq!(found, None),
        }
        // The unit of a scheme may be coarser than the moment.
        let early = verified.timestamp().map_or(0, |sent| self.now.as_micros() - sent.as_micros());
        assert!((0..1_000_000).contains(&early), "{early} us early");
    }

    fn is_refused_when_a_bit_changes(&self, place: i64) {
        let lengths: usize = self.body.len() + self.headers.values().map(HeaderValue::len).sum::<usize>();
        let place = usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX);
        let (mut at, bit) = (place / 8 % lengths, place % 8);
        if at < self.body.len() {
            let refused = self.verify(&self.headers, &flipped(self.body, at, bit)).err();
            return assert_eq!(refused, Some(VerifyError::Mismatch { tried: 2 }));
        }
        at -= self.body.len();
        for (name, value) in &self.headers {
            if at >= value.len() {
                at -= value.len();
                continue;
            }
            let changed = flipped(value.as_bytes(), at, bit);
            let spelling = self.scheme().encoding() == Encoding::Hex && changed.eq_ignore_ascii_case(value.as_bytes());
            let Ok(changed) = HeaderValue::from_bytes(&changed) else { return };
            let mut headers = self.headers.clone();
            headers.insert(name, changed);
            let verdict = self.verify(&headers, self.body);
            return match self.scheme().id_origin() {
                // Hex is read in either case: that is the same signature.
                _ if self.scheme().is_signature_header(name) && spelling => {}
                IdOrigin::Unsigned if !self.scheme().is_signature_header(name) => self.only_the_label_changes(verdict),
                _ => assert!(verdict.is_err(), "bit {bit} of byte {at} of {name}"),
            };
        }
    }

    fn only_the_label_changes(&self, verdict: Result<Verified, VerifyError>) {
        let (before, digest) = (self.accepted(), Digest::of(self.body));
        match verdict {
            Ok(verified) => {
                assert_ne!(verified.event_id(), before.event_id());
                assert_eq!(verified.dedup_key(&digest), before.dedup_key(&digest));
            }
            Err(error) => assert!(matches!(error, VerifyError::InvalidId(_)), "{error}"),
        }
    }
}

fn flipped(bytes: &[u8], at: usize, bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << bit;
    bytes
}
