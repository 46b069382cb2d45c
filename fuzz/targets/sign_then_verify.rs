//! Both ends: what is signed verifies, and after a change of any single bit it does not.

use countersign::signature::{Algorithm, Encoding, Head, IdOrigin, Message, SignError, Signer};
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

    if scheme.timestamp_field().is_some() {
        // The body says when it was sent: not now, for most.
        return;
    }
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
        SignError::InvalidId(_) | SignError::InvalidHeader(_) | SignError::InBody | SignError::Body(_) => {}
        SignError::SecretNotForHeader | SignError::TimestampTooLate => {}
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
            IdOrigin::SignedBody if verified.id_origin() == IdOrigin::Unsigned => assert_eq!(found, Some(id)),
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
            return self.is_no_other_event(&flipped(self.body, at, bit));
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
            let label = self.scheme().id_header() == Some(name) && self.scheme().id_origin() != IdOrigin::SignedHeader;
            // Hex is read in either case: that is the same signature.
            if !(self.scheme().is_signature_header(name) && spelling) {
                if label {
                    self.only_the_label_changes(verdict);
                } else {
                    assert!(verdict.is_err(), "bit {bit} of byte {at} of {name}");
                }
            }
            return;
        }
    }

    /// A body with a flipped bit is refused. Where only its fields are signed, it may be the same event in other words;
    /// where nothing is, it is whatever the holder of the token says.
    fn is_no_other_event(&self, body: &[u8]) {
        match self.verify(&self.headers, body) {
            Err(error) => assert_eq!(error, VerifyError::Mismatch { tried: 2 }),
            Ok(_) if self.scheme().algorithm() == Algorithm::Token => {}
            Ok(verified) => {
                assert!(!self.scheme().signed_text().contains("{body}"));
                let key = self.accepted().dedup_key(&Digest::of(self.body));
                assert_eq!(verified.dedup_key(&Digest::of(body)), key);
            }
        }
    }

    fn only_the_label_changes(&self, verdict: Result<Verified, VerifyError>) {
        let (before, digest) = (self.accepted(), Digest::of(self.body));
        match verdict {
            Ok(verified) => {
                assert!(before.id_origin().is_signed() || verified.event_id() != before.event_id());
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
