//! A secret that the sender makes up, taken while somebody waits for it and at no other time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use tracing::warn;

use super::response::BoxError;
use crate::Secret;

/// The registration of a webhook whose sender makes up the secret, Asana's `X-Hook-Secret`.
///
/// Anybody can send such a header. So one is taken only between [`open`](Self::open) and the end of the time given there,
/// and only the first; the same one again is answered as before. Open it right before you ask the provider to create the
/// webhook: its request comes in while that call waits. The layer checks with the secret from then on, beside those that it
/// was built with; build the next one with the secret that you kept.
///
/// Before there is any secret, build the layer with random bytes, which nobody can sign with.
///
/// ```
/// # fn example(verifier: countersign::signature::Verifier) -> Result<(), countersign::ConfigError> {
/// use std::time::Duration;
/// use countersign::receive::{HookRegistration, VerifyLayer};
///
/// let registration = HookRegistration::new(|secret| Ok(std::fs::write("asana.secret", secret)?));
/// let layer = VerifyLayer::builder("asana", verifier).hook_registration(&registration).build()?;
///
/// registration.open(Duration::from_secs(60));
/// // Ask the provider for the webhook here.
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HookRegistration(Arc<Shared>);

struct Shared {
    keep: Box<Keep>,
    /// Held while a secret is kept, which may take as long as a disk: one offer at a time. Every request reads the state, so
    /// that one is never held for as long.
    offers: Mutex<()>,
    state: Mutex<State>,
}

type Keep = dyn Fn(&str) -> Result<(), BoxError> + Send + Sync;

#[derive(Default)]
struct State {
    /// Until when a secret is taken.
    open_until: Option<Instant>,
    secret: Option<Secret>,
}

impl HookRegistration {
    /// One that is not open yet. `keep` gets the text of the secret before the provider is answered, so that none is lost
    /// which the provider will sign with; if it fails, the provider is refused and the next secret may come. It is called
    /// in the middle of a request: let it be quick.
    #[must_use]
    pub fn new(keep: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { keep: Box::new(keep), offers: Mutex::default(), state: Mutex::default() }))
    }

    /// From now on, for this long, the first secret that comes is taken. One that was taken before stays.
    pub fn open(&self, time: Duration) {
        self.state().open_until = Instant::now().checked_add(time);
    }

    /// Whether a secret was taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.state().secret.is_some()
    }

    pub(super) fn secret(&self) -> Option<Secret> {
        self.state().secret.clone()
    }

    /// Takes a secret if this is the time for it; says whether this is now the one.
    pub(super) fn offer(&self, text: &str, offered: &Secret) -> bool {
        let _one_at_a_time = self.0.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let (open_until, taken) = {
            let state = self.state();
            (state.open_until, state.secret.clone())
        };
        let same = taken.map(|taken| bool::from(taken.expose().ct_eq(offered.expose())));
        if same == Some(false) {
            warn!("another secret came after one was taken: the wrong secret may have been taken; remove the file");
            return false;
        }
        if open_until.is_none_or(|until| until <= Instant::now()) {
            return false;
        }
        if same == Some(true) {
            return true;
        }
        match (self.0.keep)(text) {
            Ok(()) => {
                self.state().secret = Some(offered.clone());
                true
            }
            Err(error) => {
                warn!(%error, "the secret of a registration could not be kept");
                false
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HookRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookRegistration").field("is_taken", &self.is_taken()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(registration: &HookRegistration, text: &str) -> bool {
        registration.offer(text, &Secret::from_bytes(text.as_bytes().to_vec()).expect("a secret"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_is_taken_only_while_the_registration_is_open_and_only_the_first() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeper = Arc::clone(&kept);
        let registration = HookRegistration::new(move |text| {
            keeper.lock().expect("no panic").push(text.to_owned());
            Ok(())
        });
        assert!(!offer(&registration, "early"));
        registration.open(Duration::from_secs(60));
        assert!(offer(&registration, "first"));
        assert!(!offer(&registration, "second"));
        assert!(offer(&registration, "first"));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!offer(&registration, "first"));
        assert_eq!(*kept.lock().expect("no panic"), ["first"]);
        assert_eq!(registration.secret().expect("a secret").expose(), b"first");
        assert_eq!(format!("{registration:?}"), "HookRegistration { is_taken: true, .. }");
    }

    #[tokio::test]
    async fn while_a_secret_is_kept_requests_do_not_wait() {
        let (began, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let (has_begun, may_end) = (Mutex::new(began.0), Mutex::new(wait.1));
        let registration = HookRegistration::new(move |_| {
            has_begun.lock().expect("no panic").send(()).expect("somebody listens");
            Ok(may_end.lock().expect("no panic").recv()?)
        });
        registration.open(Duration::from_secs(60));
        let offering = registration.clone();
        let offered = std::thread::spawn(move || offer(&offering, "first"));
        began.1.recv().expect("it is being kept");
        assert!(registration.secret().is_none(), "and this returns");
        wait.0.send(()).expect("it waits");
        assert!(offered.join().expect("no panic") && registration.is_taken());
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_kept_is_not_taken() {
        let registration = HookRegistration::new(|_| Err("the disk is full".into()));
        registration.open(Duration::from_secs(60));
        assert!(!offer(&registration, "first") && !registration.is_taken());
    }
}
