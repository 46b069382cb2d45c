//! A request with its verdict, as the files of `tests/vectors` hold them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign::signature::{Head, Keyring, ReplayWindow, Scheme, Verified, Verifier, VerifyError};
use countersign::{Secret, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;

/// One request with its verdict.
#[derive(Clone, Deserialize)]
pub(crate) struct Vector {
    pub(crate) id: String,
    method: String,
    pub(crate) url: String,
    headers: BTreeMap<String, Value>,
    body_base64: String,
    secret: String,
    secrets: Option<Vec<String>>,
    now_unix: i64,
    tolerance_s: Option<u64>,
    pub(crate) expect: String,
    pub(crate) event_id: Option<String>,
    pub(crate) event_id_signed: Option<bool>,
}

#[derive(Debug)]
pub(crate) enum Refused {
    Secret,
    Request(VerifyError),
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The vectors of a scheme.
pub(crate) fn vectors(scheme: &str) -> Vec<Vector> {
    let path = folder().join(format!("{scheme}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Vector {
    pub(crate) fn method(&self) -> Method {
        self.method.parse().expect("a method")
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            for value in value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]) {
                let value = HeaderValue::from_str(value.as_str().expect("a header's value")).expect("a header's value");
                headers.append(name.parse::<HeaderName>().expect("a header's name"), value);
            }
        }
        headers
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        STANDARD.decode(&self.body_base64).expect("a body")
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(self.now_unix).expect("a moment")
    }

    pub(crate) fn window(&self) -> Option<ReplayWindow> {
        self.tolerance_s.map(|seconds| ReplayWindow::symmetric(Duration::from_secs(seconds)))
    }

    /// The secrets, the current one first; `None` where the scheme refuses one of them.
    pub(crate) fn secrets(&self, scheme: &Scheme) -> Option<Vec<Secret>> {
        let texts = self.secrets.clone().unwrap_or_else(|| vec![self.secret.clone()]);
        texts.iter().map(|text| scheme.parse_secret(text).ok()).collect()
    }

    /// A verifier with these secrets, and this vector's window.
    pub(crate) fn verifier_with(&self, scheme: &Scheme, secrets: Vec<Secret>) -> Verifier {
        let verifier = Verifier::new(scheme.clone(), Keyring::from_secrets(secrets).expect("a keyring"));
        let verifier = verifier.unwrap_or_else(|error| panic!("{}: {error}", self.id));
        match self.window() {
            Some(window) => verifier.with_window(window),
            None => verifier,
        }
    }

    pub(crate) fn run(&self, scheme: &Scheme) -> Result<Verified, Refused> {
        let secrets = self.secrets(scheme).ok_or(Refused::Secret)?;
        let verifier = self.verifier_with(scheme, secrets);
        assert_eq!(verifier.window().is_some(), self.tolerance_s.is_some(), "{}", self.id);
        let (method, headers) = (self.method(), self.headers());
        let head = Head::new(&method, &self.url, &headers);
        verifier.verify_at(head, &self.body(), self.now()).map_err(Refused::Request)
    }
}
