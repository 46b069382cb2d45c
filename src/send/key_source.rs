//! Where the secrets of endpoints come from, at the moment of sending. No store ever holds one.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::secret_reads::SECRET_READS;
use super::{PlaceError, SecretPlace};
use crate::secret::SecretError;
use crate::signature::{ConfigError, Keyring, Scheme, Signer};
use crate::store::Endpoint;
use crate::{Name, Secret};

/// Finds the secrets of an endpoint by the references that its row holds. Implement it to ask a vault.
///
/// A dispatcher asks when it signs, and remembers the answer for a few seconds: a secret that was changed is used
/// without a restart. To rotate without losing an event, list the new secret's reference first and the old one behind
/// it: schemes whose header takes several signatures are signed with all of them.
pub trait KeySource: Send + Sync + 'static {
    /// The secrets of this endpoint, the current one first, in the form of this scheme.
    ///
    /// # Errors
    ///
    /// [`KeyError`] where there are none to sign with now. The message is tried again later, and the attempt counts.
    ///
    /// # Cancel safety
    ///
    /// Dropped after 3 seconds, and wherever the attempt is: it must leave nothing half done behind.
    fn keyring<'a>(&'a self, endpoint: &'a Endpoint, scheme: &'a Scheme) -> KeyFuture<'a>;
}

/// What a [`KeySource`] returns.
pub type KeyFuture<'a> = Pin<Box<dyn Future<Output = Result<Keyring, KeyError>> + Send + 'a>>;

/// Why there are no secrets to sign with. Its text holds nothing of one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The secrets together make no keyring: there is none, or there are too many.
    #[error("the endpoint's secrets cannot be used: {0}")]
    Keyring(#[from] ConfigError),
    /// One of the application's own source.
    #[error("{0}")]
    Other(String),
    /// A reference of a kind that the source does not know. It is not shown: somebody may have put the secret there.
    #[error("secret number {0} of the endpoint is neither `env:NAME` nor `file:PATH`")]
    Reference(usize),
    /// There is something, and it is no secret of the scheme.
    #[error("{place}: {reason}")]
    Secret {
        /// The reference.
        place: String,
        /// What is wrong with it.
        reason: SecretError,
    },
    /// There is nothing where the reference says.
    #[error("{place}: {reason}")]
    Unreadable {
        /// The reference.
        place: String,
        /// Why not.
        reason: PlaceError,
    },
}

/// The usual source: `env:NAME` is an environment variable of this process, `file:PATH` a file. A line break at the end
/// of a file is dropped; anything else odd is refused, and so is what is no regular file.
///
/// All dispatchers of a process read 8 files at a time at most, and each file once at a time. One that is not read within
/// 2 seconds counts as unreadable for as long as that read goes on; another failure is the answer for 3 seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvAndFiles;

impl KeySource for EnvAndFiles {
    fn keyring<'a>(&'a self, endpoint: &'a Endpoint, scheme: &'a Scheme) -> KeyFuture<'a> {
        Box::pin(async move {
            let reads = endpoint.secrets.iter().zip(1..).map(|(reference, number)| read(reference, number, scheme));
            let secrets = join_all(reads).await.into_iter().collect::<Result<Vec<_>, KeyError>>()?;
            Ok(Keyring::from_secrets(secrets)?)
        })
    }
}

/// Why an endpoint's messages cannot be signed at all.
#[derive(Debug, Error)]
pub(super) enum NoSigner {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("there is no scheme `{0}`")]
    Scheme(String),
}

/// The signers of a dispatcher's endpoints, each remembered for a short while.
pub(super) struct Signers {
    source: Arc<dyn KeySource>,
    /// Beside the presets.
    schemes: HashMap<String, Scheme>,
    kept_for: Duration,
    kept: Mutex<HashMap<Name, Kept>>,
}

/// What a signer was made from, and until when it counts.
struct Kept {
    scheme: String,
    secrets: Vec<String>,
    signer: Arc<Signer>,
    until: Instant,
}

impl Signers {
    pub(super) fn new(source: Arc<dyn KeySource>, schemes: HashMap<String, Scheme>, kept_for: Duration) -> Self {
        Self { source, schemes, kept_for, kept: Mutex::default() }
    }

    pub(super) async fn signer(&self, endpoint: &Endpoint) -> Result<Arc<Signer>, NoSigner> {
        if let Some(signer) = self.kept(endpoint) {
            return Ok(signer);
        }
        let own = self.schemes.get(&endpoint.scheme).cloned();
        let scheme = own.or_else(|| Scheme::named(&endpoint.scheme));
        let scheme = scheme.ok_or_else(|| NoSigner::Scheme(endpoint.scheme.clone()))?;
        let asked = timeout(ANSWER_TIME, self.source.keyring(endpoint, &scheme)).await;
        let keyring = asked.map_err(|_elapsed| KeyError::Other(format!("no secrets within {ANSWER_TIME:?}")))??;
        let signer = Arc::new(Signer::new(scheme, keyring).map_err(KeyError::from)?);
        self.keep(endpoint, Arc::clone(&signer));
        Ok(signer)
    }

    fn kept(&self, endpoint: &Endpoint) -> Option<Arc<Signer>> {
        let all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get(&endpoint.name)?;
        let is_same = kept.scheme == endpoint.scheme && kept.secrets == endpoint.secrets;
        (is_same && Instant::now() < kept.until).then(|| Arc::clone(&kept.signer))
    }

    fn keep(&self, endpoint: &Endpoint, signer: Arc<Signer>) {
        let now = Instant::now();
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_KEPT {
            all.retain(|_, kept| now < kept.until);
        }
        if all.len() < MOST_KEPT {
            let Endpoint { name, scheme, secrets, .. } = endpoint.clone();
            all.insert(name, Kept { scheme, secrets, signer, until: now + self.kept_for });
        }
    }
}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signers").field("kept_for", &self.kept_for).finish_non_exhaustive()
    }
}

/// How long a source may take. It is within what a lease has beyond an attempt.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// How many signers are remembered at one time. Others are made anew for each attempt.
const MOST_KEPT: usize = 4_096;

async fn read(reference: &str, number: usize, scheme: &Scheme) -> Result<Secret, KeyError> {
    let place = SecretPlace::parse(reference).ok_or(KeyError::Reference(number))?;
    let parsed = match &place {
        SecretPlace::File(path) => SECRET_READS.text(path).await.map(|text| scheme.parse_secret(&text)),
        SecretPlace::Env(_) => place.read(|text| scheme.parse_secret(text)),
    };
    parsed
        .map_err(|reason| KeyError::Unreadable { place: reference.to_owned(), reason })?
        .map_err(|reason| KeyError::Secret { place: reference.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn endpoint(secrets: &[&str]) -> Endpoint {
        let mut endpoint = Endpoint::new(Name::new("shop").expect("a name"), "https://example.com/");
        endpoint.secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        endpoint
    }

    #[tokio::test]
    async fn secrets_are_read_where_the_references_say_and_what_is_wrong_is_told_without_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            format!("file:{}", path.display())
        };
        let good = file("good", &format!("{SECRET}\n"));
        let keyring = |secrets: &[&str]| {
            let endpoint = endpoint(secrets);
            async move { EnvAndFiles.keyring(&endpoint, &Scheme::standard()).await }
        };
        assert!(keyring(&[&good]).await.is_ok());
        assert!(keyring(&[&good, &good]).await.is_ok());
        let two_lines = file("two", &format!("{SECRET}\n\n"));
        let marked = file("marked", &format!("\u{feff}{SECRET}"));
        let short = file("short", "whsec_c2VjcmV0");
        let absent = format!("file:{}", folder.path().join("absent").display());
        for (secrets, expected) in [
            (&[][..], "there is no live secret"),
            (&[SECRET], "secret number 1"),
            (&[&good, "vault:x"], "secret number 2"),
            (&["env:COUNTERSIGN_NO_SUCH_VARIABLE"], "is not set"),
            (&[&absent], "cannot be read"),
            (&[&two_lines], "white space"),
            (&[&marked], "byte order mark"),
            (&[&short], "needs 24"),
        ] {
            let error = keyring(secrets).await.expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains("MfKQ9r8G") && !error.contains("c2VjcmV0"), "{error}");
        }
    }

    struct Counting(AtomicUsize);

    impl KeySource for Counting {
        fn keyring<'a>(&'a self, _: &'a Endpoint, scheme: &'a Scheme) -> KeyFuture<'a> {
            self.0.fetch_add(1, SeqCst);
            Box::pin(async { Ok(Keyring::new(scheme.parse_secret(SECRET).expect("a secret"))) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn c125_a_signer_is_remembered_for_a_while_and_made_anew_for_another_scheme_or_secret() {
        let source = Arc::new(Counting(AtomicUsize::new(0)));
        let signers = Signers::new(Arc::clone(&source) as _, HashMap::new(), Duration::from_secs(10));
        let mut endpoint = endpoint(&["env:A"]);
        for _ in 0..3 {
            signers.signer(&endpoint).await.expect("a signer");
        }
        assert_eq!(source.0.load(SeqCst), 1);
        endpoint.secrets.push("env:B".to_owned());
        signers.signer(&endpoint).await.expect("a signer");
        assert_eq!(source.0.load(SeqCst), 2);
        tokio::time::advance(Duration::from_secs(11)).await;
        signers.signer(&endpoint).await.expect("a signer");
        assert_eq!(source.0.load(SeqCst), 3);
        endpoint.scheme = "no-such".to_owned();
        let refused = signers.signer(&endpoint).await.expect_err("unknown");
        assert!(matches!(refused, NoSigner::Scheme(_)));
    }
}
