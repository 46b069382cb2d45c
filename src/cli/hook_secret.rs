//! `--hook-secret-file`: the secret of a provider that makes it up itself, and sends it once.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use countersign::receive::HookRegistration;
use countersign::signature::{Handshake, Keyring, Scheme};
use countersign::{ConfigError, Secret};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::scheme::SigningArgs;

/// Where such a secret is kept.
#[derive(Args, Debug)]
pub(crate) struct HookSecretArgs {
    /// File for the secret, for providers that make it up and send it once (Asana)
    ///
    /// If it does not exist, the first X-Hook-Secret that comes within 10 minutes is taken and written there, and anybody
    /// can send one: start the receiver right before you ask the provider for the webhook.
    #[arg(long, value_name = "PATH")]
    hook_secret_file: Option<PathBuf>,
}

/// How long a secret is waited for.
const WAIT: Duration = Duration::from_secs(10 * 60);

impl HookSecretArgs {
    /// The secrets to begin with, and the registration, where one is pending.
    pub(crate) fn keyring(
        &self,
        signing: &SigningArgs,
        scheme: &Scheme,
    ) -> Result<(Keyring, Option<HookRegistration>), CliError> {
        let Some(path) = &self.hook_secret_file else { return Ok((signing.keyring(scheme)?, None)) };
        if !scheme.handshakes().contains(&Handshake::HookSecret) {
            return Err(CliError::usage(format!(
                "--hook-secret-file: nobody who signs like `{}` makes up the secret; give it with --secret-file",
                scheme.name()
            )));
        }
        if path.exists() {
            return Ok((signing.keyring_with(scheme, path)?, None));
        }
        let keyring = if signing.has_secrets() { signing.keyring(scheme)? } else { Keyring::new(unknown()?) };
        let registration = registration(path.clone());
        registration.open(WAIT);
        tracing::info!("waiting for X-Hook-Secret, to be kept in {}", path.display());
        Ok((keyring, Some(registration)))
    }
}

fn registration(path: PathBuf) -> HookRegistration {
    HookRegistration::new(move |secret| {
        keep(&path, secret)?;
        tracing::info!("the secret was taken, and is kept in {}", path.display());
        Ok(())
    })
}

/// Writes the secret for its owner alone, and is sure that it is there.
fn keep(path: &Path, secret: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(secret.as_bytes())?;
    file.sync_all()
}

/// A secret that nobody has: until there is another one, nothing is rightly signed.
fn unknown() -> Result<Secret, CliError> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes)
        .map_err(|error| CliError::unreachable(format!("no random bytes: {error}; try again")))?;
    Secret::from_bytes(bytes.to_vec()).map_err(|error| ConfigError::from(error).into())
}
