//! The policy of message signatures, read from options.

use http::HeaderName;

use super::component::Component;
use super::content_digest::{CONTENT_DIGEST, DigestAlgorithm};
use super::input::SIGNATURE_INPUT;
use super::{IdPlace, MessageSignature};
use crate::signature::{Algorithm, ConfigError};

const OPTIONS: [&str; 7] = ["components", "algorithm", "label", "keyid", "id", "digest", "expires"];

impl MessageSignature {
    /// Reads the options; none of them is required.
    pub(in crate::signature) fn from_options<K, V>(
        options: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut policy = Self::default();
        let mut given = Vec::new();
        for (option, value) in options {
            let (option, value) = (option.as_ref(), value.as_ref());
            if given.iter().any(|earlier| earlier == option) {
                return Err(wrong(option, "it is given twice"));
            }
            policy.take(option, value)?;
            given.push(option.to_owned());
        }
        if let IdPlace::Header(name) = &policy.id
            && !policy.required.contains(&Component::Field(name.clone()))
        {
            // An id that is not covered could be changed by anybody.
            policy.required.push(Component::Field(name.clone()));
        }
        policy.headers = headers(&policy.required);
        Ok(policy)
    }

    fn take(&mut self, option: &str, value: &str) -> Result<(), ConfigError> {
        match option {
            "components" => {
                self.required = components(value)?;
                self.target_in_parts = false;
            }
            "algorithm" => self.algorithm = algorithm(value)?,
            "label" => {
                let is_key = sfv::KeyRef::from_str(value).is_ok();
                self.label = Some(is_key.then(|| value.to_owned()).ok_or_else(|| {
                    wrong(
                        "label",
                        "it holds lower-case letters, digits, `_`, `-`, `.` and `*`, and begins with a letter",
                    )
                })?);
            }
            "keyid" => {
                let is_text = sfv::StringRef::from_str(value).is_ok();
                self.key_id = Some(
                    is_text
                        .then(|| value.to_owned())
                        .ok_or_else(|| wrong("keyid", "it may hold printable ASCII characters"))?,
                );
            }
            "id" if value == "nonce" => self.id = IdPlace::Nonce,
            "id" => match HeaderName::from_bytes(value.as_bytes()) {
                Ok(name) => self.id = IdPlace::Header(name),
                Err(_) => return Err(wrong("id", "it is `nonce`, or the name of a header")),
            },
            "digest" => {
                self.digest = match value {
                    "sha-256" => DigestAlgorithm::Sha256,
                    "sha-512" => DigestAlgorithm::Sha512,
                    _ => return Err(wrong("digest", "it is sha-256 or sha-512")),
                };
            }
            "expires" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=MAX_LIFETIME).contains(seconds));
                self.lifetime =
                    Some(seconds.ok_or_else(|| wrong("expires", "it is a number of seconds, a year at most"))?);
            }
            _ => return Err(wrong(option, format!("there is no such option; there are {}", OPTIONS.join(", ")))),
        }
        Ok(())
    }
}

/// Method, address and body: what says which request it is.
impl Default for MessageSignature {
    fn default() -> Self {
        let required = vec![Component::Method, Component::TargetUri, Component::Field(CONTENT_DIGEST)];
        Self {
            headers: headers(&required),
            required,
            target_in_parts: true,
            algorithm: Algorithm::HmacSha256,
            label: None,
            key_id: None,
            id: IdPlace::Nowhere,
            digest: DigestAlgorithm::Sha256,
            lifetime: None,
        }
    }
}

const MAX_LIFETIME: i64 = 366 * 24 * 60 * 60;

fn components(value: &str) -> Result<Vec<Component>, ConfigError> {
    let mut components = Vec::new();
    for name in value.split([' ', ',']).filter(|name| !name.is_empty()) {
        let name = name.to_ascii_lowercase();
        let component = Component::named(&name).ok_or_else(|| {
            wrong(
                "components",
                "it is a list of headers and of @method, @target-uri, @authority, @scheme, @request-target, @path, @query",
            )
        })?;
        if components.contains(&component) {
            return Err(wrong("components", format!("`{name}` is listed twice")));
        }
        components.push(component);
    }
    if components.is_empty() { Err(wrong("components", "it lists nothing")) } else { Ok(components) }
}

fn headers(required: &[Component]) -> Vec<HeaderName> {
    let covered = required.iter().filter_map(|component| match component {
        Component::Field(name) => Some(name.clone()),
        _ => None,
    });
    std::iter::once(SIGNATURE_INPUT).chain(covered).collect()
}

fn algorithm(value: &str) -> Result<Algorithm, ConfigError> {
    let known = [Algorithm::HmacSha256, Algorithm::Ed25519, Algorithm::EcdsaP256];
    match known.into_iter().find(|algorithm| algorithm.as_str() == value) {
        Some(algorithm) if algorithm.is_asymmetric() && !cfg!(feature = "asymmetric") => {
            Err(wrong("algorithm", format!("{algorithm} needs the feature `asymmetric` of this crate")))
        }
        Some(algorithm) => Ok(algorithm),
        None => Err(wrong("algorithm", "it is hmac-sha256, ed25519 or ecdsa-p256-sha256")),
    }
}

fn wrong(option: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError::SchemeOption { option: option.to_owned(), problem: problem.into() }
}
