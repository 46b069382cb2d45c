//! HTTP Message Signatures: what is signed verifies, whatever was agreed on, and nothing else does.

use std::time::Duration;

use countersign::signature::{Head, Message, SignError, Signer};
use countersign::{ConfigError, Keyring, ReplayWindow, Scheme, Timestamp, Verifier, VerifyError};
use http::{HeaderMap, Method};

use super::input::{Input, URL, other_secret};

/// Reads lines `option=value` up to an empty one, headers up to another one, and a body.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut options = Vec::new();
    loop {
        match input.text().and_then(|line| line.split_once('=')) {
            // Keys of a pair have a form of their own, and are the business of `secret_parsing`.
            Some(("algorithm", _)) => {}
            Some(option) => options.push(option),
            None => break,
        }
    }
    let scheme = match Scheme::rfc9421(options) {
        Ok(scheme) => scheme,
        Err(error) => return assert!(matches!(error, ConfigError::SchemeOption { .. }), "{error}"),
    };
    let headers = input.headers(&scheme);
    let body = input.rest();
    let agreed = Agreed { verifier: verifier(&scheme, data), scheme };

    // The key hangs on the whole input, so that no signature in it can be right.
    let refused = agreed.verify(&headers, body).expect_err("nobody has this key");
    assert_eq!(agreed.verifier.begin(head(&headers)).err().unwrap_or(VerifyError::Mismatch { tried: 1 }), refused);
    agreed.both_ends_agree(Keyring::new(other_secret(data)), &headers, body);
}

fn verifier(scheme: &Scheme, data: &[u8]) -> Verifier {
    let verifier = Verifier::new(scheme.clone(), Keyring::new(other_secret(data))).expect("a verifier");
    verifier.with_window(ReplayWindow::symmetric(Duration::MAX))
}

struct Agreed {
    scheme: Scheme,
    verifier: Verifier,
}

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

impl Agreed {
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), VerifyError> {
        self.verifier.verify_at(head(headers), body, NOW).map(drop)
    }

    fn both_ends_agree(&self, keyring: Keyring, others: &HeaderMap, body: &[u8]) {
        let signer = Signer::new(self.scheme.clone(), keyring).expect("a signer");
        let message = Message::new(NOW, body).with_id("evt-1").with_target(&Method::POST, URL);
        let message = message.with_content_type("application/json");
        let signed = match signer.sign(&message) {
            Ok(signed) => signed,
            // What has to be covered is not there, or its place is taken.
            Err(SignError::InvalidHeader(_) | SignError::InvalidId(_) | SignError::IdNotForHeader) => return,
            Err(SignError::UnknownHeader(_)) => return,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(self.verify(&signed, body), Ok(()), "{signed:?}");
        if signed.contains_key("content-digest") {
            assert!(self.verify(&signed, &[body, b"x"].concat()).is_err(), "another body");
        }
        for name in ["signature", "signature-input"] {
            let mut without = signed.clone();
            let value = without.remove(name).expect("the signer's headers");
            assert!(self.verify(&without, body).is_err(), "without {name}");
            let mut twice = signed.clone();
            twice.append(name, value);
            assert!(self.verify(&twice, body).is_err(), "twice {name}");
        }
        // Headers of others do not count, unless they stand where those of the signature do.
        let mut more = signed.clone();
        for (name, value) in others.iter().filter(|(name, _)| !signed.contains_key(*name)) {
            more.append(name, value.clone());
        }
        assert_eq!(self.verify(&more, body), Ok(()), "{more:?}");
    }
}

fn head(headers: &HeaderMap) -> Head<'_> {
    Head::new(&Method::POST, URL, headers)
}
