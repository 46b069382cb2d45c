//! `--scheme` and `--option`: the way to sign, and the secrets that go with it.

use std::path::Path;

use clap::Args;
use countersign::signature::{Keyring, Scheme};

use crate::error::CliError;
use crate::nearest::nearest;
use crate::secrets::SecretArgs;

/// The scheme that is built from options, see [`Scheme::hmac`].
pub(crate) const HMAC: &str = "hmac";
/// The one that has options, see [`Scheme::rfc9421`].
const RFC9421: &str = "rfc9421";

/// Which scheme.
#[derive(Args, Debug)]
pub(crate) struct SchemeArgs {
    /// Scheme, by its name; `countersign schemes` lists them
    #[arg(long = "scheme", value_name = "NAME")]
    name: String,
    /// Option of the schemes `hmac` and `rfc9421`; repeatable
    ///
    /// hmac: header=NAME (required), prefix=TEXT before the signature, encoding=hex|base64, algorithm=sha256|sha1|sha512,
    /// signed=TEMPLATE of {body}, {timestamp}, {id}, {method}, {url}, like {timestamp}.{body}, timestamp=NAME or NAME:ms,
    /// id=NAME of a header or body:PATH like body:event.id, secret=text|base64|hex. An id in a header tells events apart
    /// only where {id} is signed; else the digest of what is signed does.
    ///
    /// rfc9421: components=LIST that must be covered, algorithm=hmac-sha256|ed25519|ecdsa-p256-sha256, id=nonce or the NAME
    /// of a header, label=NAME, keyid=TEXT, digest=sha-256|sha-512, expires=SECONDS.
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

/// A scheme and its secrets: all that signing and verifying need to know.
#[derive(Args, Debug)]
pub(crate) struct SigningArgs {
    #[command(flatten)]
    scheme: SchemeArgs,
    #[command(flatten)]
    secrets: SecretArgs,
}

impl SchemeArgs {
    /// The scheme that was asked for.
    pub(crate) fn scheme(&self) -> Result<Scheme, CliError> {
        match self.name.as_str() {
            HMAC => return Ok(Scheme::hmac(self.pairs()?)?),
            RFC9421 => return Ok(Scheme::rfc9421(self.pairs()?)?),
            _ => {}
        }
        if !self.options.is_empty() {
            return Err(CliError::usage(format!(
                "--option is for `--scheme {HMAC}` and `{RFC9421}` only; leave it out"
            )));
        }
        Scheme::named(&self.name).ok_or_else(|| CliError::usage(format!("--scheme: {}", unknown(&self.name))))
    }

    /// The options, each split at its `=`.
    fn pairs(&self) -> Result<Vec<(&str, &str)>, CliError> {
        let pairs = self.options.iter().map(|option| match option.split_once('=') {
            // Not the option itself: a key that is none may be a secret, and base64 ends with `=`.
            Some((key, _)) if key.len() > LONGEST_NAME => {
                Err(CliError::usage("--option: there is no option of that name; see --help"))
            }
            Some(pair) => Ok(pair),
            None => Err(CliError::usage("--option: it has no `=`; write it as KEY=VALUE, `header=x-signature`")),
        });
        pairs.collect()
    }
}

impl SigningArgs {
    /// The scheme, and the secrets in the order in which they were given.
    pub(crate) fn parts(&self) -> Result<(Scheme, Keyring), CliError> {
        let scheme = self.scheme()?;
        let keyring = self.keyring(&scheme)?;
        Ok((scheme, keyring))
    }

    /// The scheme alone.
    pub(crate) fn scheme(&self) -> Result<Scheme, CliError> {
        self.scheme.scheme()
    }

    /// The secrets alone.
    pub(crate) fn keyring(&self, scheme: &Scheme) -> Result<Keyring, CliError> {
        self.secrets.keyring(scheme)
    }

    /// The secrets with that of one more file in front of them.
    pub(crate) fn keyring_with(&self, scheme: &Scheme, file: &Path) -> Result<Keyring, CliError> {
        self.secrets.with_file(file).keyring(scheme)
    }

    pub(crate) fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
}

pub(crate) fn unknown(name: &str) -> String {
    // The longer ones are no slips: one may be a secret in the wrong place.
    let shown = if name.len() <= LONGEST_NAME { format!("`{name}`") } else { "of that name".to_owned() };
    let names = || Scheme::all().map(|scheme| scheme.name()).chain([HMAC]);
    let near: Vec<_> = nearest(name, names()).into_iter().map(|known| format!("`{known}`")).collect();
    if near.is_empty() {
        format!("there is no scheme {shown}; `countersign schemes` lists all")
    } else {
        format!("there is no scheme {shown}; did you mean {}? `countersign schemes` lists all", near.join(" or "))
    }
}

const LONGEST_NAME: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_answered_with_the_names_that_are_near() {
        assert!(unknown("strpe").contains("did you mean `stripe`?"));
        assert!(unknown("GitHub").contains("`github`"));
        assert!(unknown("standard-webhooks").contains("`standard`"));
        assert!(unknown("hmac-sha256").contains("`hmac`"));
        assert!(unknown("zzzzzz").contains("`countersign schemes` lists all"));
    }
}
