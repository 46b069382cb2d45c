//! The receiving end: from a request's head and body to a proof, or to a reason for refusing it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::form::{Claim, Opened};
use super::header::{Head, Signatures};
use super::keyring::{Key, Keyring, MAX_SECRETS};
use super::scheme::Scheme;
use super::signed::Around;
use super::trial::Trial;
use super::verified::{IdOrigin, Verified};
use super::window::ReplayWindow;
use super::{ChallengeToken, ConfigError, VerifyError, body_id};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::event::{EventId, NameError};
use crate::secret::Secret;

/// Checks the requests of one source.
///
/// Cheap to clone; the keys' states are computed once.
///
/// The order of its checks is fixed. First the headers: what is absent, malformed or there twice is refused before a
/// byte of the body is read. Then the signature, then the id, and the time last, so that "too old" always means that
/// the signature was right.
#[derive(Clone)]
pub struct Verifier {
    shared: Arc<Shared>,
}

impl Verifier {
    /// A verifier with the scheme's own window and the system's clock.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoLiveSecret`] if every secret has expired by now, [`ConfigError::TooManySecrets`] for more than
    /// [`MAX_SECRETS`](super::MAX_SECRETS).
    pub fn new(scheme: Scheme, keyring: Keyring) -> Result<Self, ConfigError> {
        let keys = keyring.into_keys(scheme.algorithm, SystemClock.now())?;
        let expiring = keys.iter().any(|key| key.expires.is_some());
        if scheme.form.as_ref().is_some_and(|form| form.omits_body()) {
            tracing::warn!(
                scheme = scheme.name(),
                "the signature does not cover the body, which anybody can change: put content-digest among the components"
            );
        }
        let window = scheme.window().unwrap_or_default();
        Ok(Self { shared: Arc::new(Shared { scheme, keys, expiring, window, clock: Arc::new(SystemClock) }) })
    }

    /// Another window. Without effect on schemes that sign no timestamp.
    #[must_use]
    pub fn with_window(mut self, window: ReplayWindow) -> Self {
        Arc::make_mut(&mut self.shared).window = window;
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        Arc::make_mut(&mut self.shared).clock = Arc::new(clock);
        self
    }

    /// The scheme that it checks.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.shared.scheme
    }

    /// The window that it holds requests to; `None` where the scheme signs no timestamp.
    #[must_use]
    pub fn window(&self) -> Option<ReplayWindow> {
        self.shared.scheme.time.map(|_| self.shared.window)
    }

    /// Reads the head of a request, before its body.
    ///
    /// # Errors
    ///
    /// Everything that can be said without the body: a header that is missing, malformed or there twice.
    pub fn begin(&self, head: Head<'_>) -> Result<Check, VerifyError> {
        // The clock is read only if it matters here.
        let now = if self.shared.expiring { self.shared.clock.now() } else { Timestamp::default() };
        self.begin_at(head, now)
    }

    /// Checks a request whose body is at hand.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why it was refused.
    pub fn verify(&self, head: Head<'_>, body: &[u8]) -> Result<Verified, VerifyError> {
        let timed = self.shared.expiring || self.shared.scheme.reads_clock();
        self.verify_at(head, body, if timed { self.shared.clock.now() } else { Timestamp::default() })
    }

    /// Checks a request as if it were `now`.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why it was refused.
    pub fn verify_at(&self, head: Head<'_>, body: &[u8], now: Timestamp) -> Result<Verified, VerifyError> {
        if self.shared.scheme.form.is_some() {
            return self.begin_at(head, now)?.finish_at(body, now);
        }
        // The same as a `Check` does, without what it needs in order to wait for the body.
        let scheme = &self.shared.scheme;
        scheme.check_constants(head.headers())?;
        let claims = scheme.read(&head)?;
        let around = scheme.around(head, &claims);
        let length = scheme.signed.length_before(body);
        let text = [around.before(), length.as_slice(), body, around.after()];
        let mut tried = 0;
        let mut found = Found::default();
        for (index, key) in self.shared.keys.iter().enumerate().filter(|(_, key)| key.is_live(now)) {
            found.take(index, key.trial.matches_text(&text, &claims.signatures));
            tried += 1;
        }
        let secret = found.secret().ok_or(VerifyError::Mismatch { tried })?;
        let id = claims.id.map(|id| EventId::from_bytes(id.as_bytes()));
        let sent = claims.timestamp.map(|timestamp| timestamp.number);
        match self.shared.conclude(secret, id, sent, around, body, now)? {
            (_, Some(outside)) => Err(outside),
            (verified, None) => Ok(verified),
        }
    }

    /// The signature of a challenge, as the scheme writes its signatures: by the first live secret.
    pub(crate) fn answer(&self, challenge: ChallengeToken<'_>) -> Option<String> {
        let now = self.shared.clock.now();
        let scheme = &self.shared.scheme;
        let mut trial = self.shared.keys.iter().find(|key| key.is_live(now))?.trial.clone();
        trial.update(challenge.as_str().as_bytes());
        Some(scheme.encoding.encode(trial.sign().ok()?, scheme.algorithm))
    }

    /// This verifier with one more secret, in front of the others.
    pub(crate) fn with_secret(&self, secret: Secret) -> Result<Self, ConfigError> {
        let mut shared = Shared::clone(&self.shared);
        let keys = Keyring::new(secret).into_keys(shared.scheme.algorithm, SystemClock.now())?;
        shared.keys = keys.iter().chain(&shared.keys).take(MAX_SECRETS).cloned().collect();
        Ok(Self { shared: Arc::new(shared) })
    }

    fn begin_at(&self, head: Head<'_>, now: Timestamp) -> Result<Check, VerifyError> {
        let scheme = &self.shared.scheme;
        let mut check = Check {
            begun: now,
            trials: Trials::new(),
            signatures: Signatures::new(),
            timestamp: None,
            id: None,
            around: Around::default(),
            opened: None,
            fed: 0,
            shared: Arc::clone(&self.shared),
        };
        scheme.check_constants(head.headers())?;
        if let Some(form) = &scheme.form {
            check.opened = Some(form.open(&head)?);
            return Ok(check);
        }
        let claims = scheme.read(&head)?;
        check.around = scheme.around(head, &claims);
        check.signatures = claims.signatures;
        check.timestamp = claims.timestamp.map(|timestamp| timestamp.number);
        check.id = claims.id.map(|id| EventId::from_bytes(id.as_bytes()));
        Ok(check)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("scheme", &self.shared.scheme.name())
            .field("secrets", &self.shared.keys.len())
            .field("window", &self.window())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Shared {
    scheme: Scheme,
    keys: Box<[Key]>,
    /// Whether any key expires, and the clock matters to the choice of keys.
    expiring: bool,
    window: ReplayWindow,
    clock: Arc<dyn Clock>,
}

/// A check under way: the headers are read, the body is still arriving.
///
/// Give it the body piece by piece with [`update`](Self::update), so that the work is done when the last byte is there.
#[must_use = "nothing is verified before `finish`"]
pub struct Check {
    shared: Arc<Shared>,
    /// Decides which secrets are live.
    begun: Timestamp,
    trials: Trials,
    signatures: Signatures,
    timestamp: Option<i64>,
    /// That of the header. A malformed one is spoken of only after the signature was found to be right.
    id: Option<Result<EventId, NameError>>,
    around: Around,
    /// For schemes that are no template: the head, as far as it was read.
    opened: Option<Opened>,
    fed: usize,
}

impl Check {
    /// Feeds the next piece of the body. Optional: [`finish`](Self::finish) feeds what was not fed.
    pub fn update(&mut self, chunk: &[u8]) {
        if self.opened.is_none() && self.shared.scheme.streams() {
            self.start();
            update(&mut self.trials, chunk);
            self.fed = self.fed.saturating_add(chunk.len());
        }
    }

    /// Ends the check. `body` is the whole body; what was given to [`update`](Self::update) must be its beginning.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why the request was refused.
    pub fn finish(self, body: &[u8]) -> Result<Verified, VerifyError> {
        let now = self.now();
        self.finish_at(body, now)
    }

    /// Ends the check as if it were `now`.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why the request was refused.
    pub fn finish_at(self, body: &[u8], now: Timestamp) -> Result<Verified, VerifyError> {
        match self.judge_at(body, now)? {
            (_, Some(outside)) => Err(outside),
            (verified, None) => Ok(verified),
        }
    }

    /// Ends the check, and leaves it to the caller what to do with a request that was rightly signed but lies outside the
    /// window: the error says by how much.
    pub(crate) fn judge(self, body: &[u8]) -> Result<(Verified, Option<VerifyError>), VerifyError> {
        let now = self.now();
        self.judge_at(body, now)
    }

    /// The present, where it matters.
    fn now(&self) -> Timestamp {
        if self.shared.scheme.reads_clock() { self.shared.clock.now() } else { Timestamp::default() }
    }

    fn judge_at(mut self, body: &[u8], now: Timestamp) -> Result<(Verified, Option<VerifyError>), VerifyError> {
        if let Some(opened) = self.opened.take() {
            let claim = opened(body)?;
            return self.judge_claim(claim, body, now);
        }
        self.start();
        let scheme = &self.shared.scheme;
        let rest = body.get(self.fed..).ok_or(VerifyError::Unsupported("a body that is shorter than what was fed"))?;
        scheme.signed.feed_body(rest, |bytes| update(&mut self.trials, bytes));
        update(&mut self.trials, self.around.after());

        let tried = self.trials.len();
        let secret = matching(self.trials, &self.signatures).ok_or(VerifyError::Mismatch { tried })?;
        self.shared.conclude(secret, self.id, self.timestamp, self.around, body, now)
    }

    /// The same for a scheme that is no template.
    fn judge_claim(
        self,
        claim: Claim,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(Verified, Option<VerifyError>), VerifyError> {
        let scheme = &self.shared.scheme;
        let mut trials = Trials::new();
        for (index, key) in self.shared.keys.iter().enumerate().filter(|(_, key)| key.is_live(self.begun)) {
            let named = claim.key_id.as_deref().zip(key.secret.key_id());
            if named.is_some_and(|(claimed, ours)| claimed != &**ours) {
                continue;
            }
            let trial = if claim.algorithm == scheme.algorithm {
                key.trial.clone()
            } else {
                Trial::new(claim.algorithm, &key.secret).map_err(|_| VerifyError::Unsupported("this algorithm"))?
            };
            trials.push((index, trial));
        }
        let tried = trials.len();
        let found = [Some(&claim.text), claim.or_text.as_ref()].into_iter().flatten().find_map(|text| {
            let mut trials = trials.clone();
            update(&mut trials, text);
            matching(trials, &claim.signatures)
        });
        let secret = found.filter(|_| claim.binds_body).ok_or(VerifyError::Mismatch { tried })?;
        let id = match claim.id {
            Some((Err(fault), IdOrigin::SignedHeader)) => return Err(VerifyError::InvalidId(fault)),
            Some((id, origin)) => {
                passed_over(scheme, origin, id).map_or((None, IdOrigin::None), |id| (Some(id), origin))
            }
            None => (None, IdOrigin::None),
        };
        let (moment, outside) = self.shared.judge_time(claim.sent, claim.until, now);
        let key = scheme.key_rule(body, now);
        Ok((Verified::assertion(scheme.name(), id, moment, secret, Around::whole(claim.text), key), outside))
    }

    /// Starts the trials, unless they are under way. Not done before the first byte of the body is there: they are most
    /// of a check's size, and until then it is moved about.
    fn start(&mut self) {
        if self.trials.is_empty() {
            self.trials.reserve_exact(self.shared.keys.len());
            let live = self.shared.keys.iter().enumerate().filter(|(_, key)| key.is_live(self.begun));
            self.trials.extend(live.map(|(index, key)| (index, key.trial.clone())));
            update(&mut self.trials, self.around.before());
        }
    }
}

impl Shared {
    /// What is left once the signature was found to be right: the id, and the time last.
    #[inline]
    fn conclude(
        &self,
        secret: usize,
        id: Option<Result<EventId, NameError>>,
        sent: Option<i64>,
        around: Around,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(Verified, Option<VerifyError>), VerifyError> {
        let scheme = &self.scheme;
        let id = event_id(scheme, id, body)?;
        let sent = match scheme.body_time {
            Some(path) => Some(scheme.read_body_time(path, body)?),
            None => sent,
        };
        let (moment, outside) = self.judge_time(sent, None, now);
        let key = scheme.key_rule(body, now);
        Ok((Verified::assertion(scheme.name(), id, moment, secret, around, key), outside))
    }

    /// The moment at which a request was signed, and whether that lies outside the window.
    fn judge_time(
        &self,
        sent: Option<i64>,
        until: Option<i64>,
        now: Timestamp,
    ) -> (Option<Timestamp>, Option<VerifyError>) {
        let (Some(unit), Some(sent)) = (self.scheme.time, sent) else { return (None, None) };
        let expired =
            until.and_then(|until| unit.judge(until, now, ReplayWindow::new(Duration::ZERO, Duration::MAX)).err());
        (unit.moment(sent), unit.judge(sent, now, self.window).err().or(expired))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("scheme", &self.shared.scheme.name()).finish_non_exhaustive()
    }
}

/// One trial for each live secret, with the secret's place in the keyring.
type Trials = Vec<(usize, Trial)>;

fn update(trials: &mut [(usize, Trial)], bytes: &[u8]) {
    trials.iter_mut().for_each(|(_, trial)| trial.update(bytes));
}

/// The place of the first secret that one of the signatures was made with.
fn matching(trials: Trials, signatures: &Signatures) -> Option<usize> {
    let mut found = Found::default();
    trials.into_iter().for_each(|(index, trial)| found.take(index, trial.matches(signatures)));
    found.secret()
}

/// The first secret that fits.
///
/// Every signature is compared with every secret's, whatever matched before, in time that depends on their numbers
/// only.
struct Found(u64);

impl Default for Found {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl Found {
    const NONE: u64 = u64::MAX;

    #[inline]
    fn take(&mut self, index: usize, right: Choice) {
        let first = right & self.0.ct_eq(&Self::NONE);
        self.0.conditional_assign(&(index as u64), first);
    }

    fn secret(&self) -> Option<usize> {
        if self.0 == Self::NONE { None } else { usize::try_from(self.0).ok() }
    }
}

fn event_id(
    scheme: &Scheme,
    header: Option<Result<EventId, NameError>>,
    body: &[u8],
) -> Result<(Option<EventId>, IdOrigin), VerifyError> {
    // A signed id goes before a label that anybody could have put there.
    let in_body = match &scheme.body_id {
        Some(path) if !scheme.signs_id() => body_id::find(body, path),
        Some(_) | None => None,
    };
    let in_body = in_body.and_then(|id| passed_over(scheme, IdOrigin::SignedBody, EventId::new(&id)));
    Ok(match (in_body, header) {
        (Some(id), _) => (Some(id), IdOrigin::SignedBody),
        (None, Some(id)) if scheme.signs_id() => (Some(id.map_err(VerifyError::InvalidId)?), IdOrigin::SignedHeader),
        (None, Some(id)) => match passed_over(scheme, IdOrigin::Unsigned, id) {
            Some(id) => (Some(id), IdOrigin::Unsigned),
            None => (None, IdOrigin::None),
        },
        (None, None) => (None, IdOrigin::None),
    })
}

/// The id, unless it is malformed. An event is not lost for that: a label is no part of it, and the digest of the signed
/// bytes knows it again. A refusal would only be repeated by each further attempt.
fn passed_over(scheme: &Scheme, origin: IdOrigin, id: Result<EventId, NameError>) -> Option<EventId> {
    id.inspect_err(|fault| {
        tracing::warn!(scheme = scheme.name(), %origin, %fault, "an event's id is malformed and was passed over");
    })
    .ok()
}
