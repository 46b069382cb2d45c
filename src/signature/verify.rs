//! The receiving end: from a request's head and body to a proof, or to a reason for refusing it.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::header::{Head, Signatures};
use super::keyring::{Key, Keyring};
use super::mac::Mac;
use super::scheme::Scheme;
use super::signed::{Around, Values};
use super::verified::{IdOrigin, Verified};
use super::window::ReplayWindow;
use super::{ConfigError, VerifyError, body_id};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::event::{EventId, NameError};

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
        self.begin(head)?.finish(body)
    }

    /// Checks a request as if it were `now`.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why it was refused.
    pub fn verify_at(&self, head: Head<'_>, body: &[u8], now: Timestamp) -> Result<Verified, VerifyError> {
        self.begin_at(head, now)?.finish_at(body, now)
    }

    fn begin_at(&self, head: Head<'_>, now: Timestamp) -> Result<Check, VerifyError> {
        let scheme = &self.shared.scheme;
        let claims = scheme.read(&head)?;
        let values = Values {
            head,
            id: claims.id.map(HeaderValue::as_bytes),
            timestamp: claims.timestamp.map(|timestamp| timestamp.text),
        };

        Ok(Check {
            begun: now,
            macs: Macs::new(),
            signatures: claims.signatures,
            timestamp: claims.timestamp.map(|timestamp| timestamp.number),
            id: claims.id.map(|id| EventId::from_bytes(id.as_bytes())),
            around: scheme.signed.around(&values),
            fed: 0,
            shared: Arc::clone(&self.shared),
        })
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
    macs: Macs,
    signatures: Signatures,
    timestamp: Option<i64>,
    /// That of the header. A malformed one is spoken of only after the signature was found to be right.
    id: Option<Result<EventId, NameError>>,
    around: Around,
    fed: usize,
}

impl Check {
    /// Feeds the next piece of the body. Optional: [`finish`](Self::finish) feeds what was not fed.
    pub fn update(&mut self, chunk: &[u8]) {
        if self.shared.scheme.signed.streams() {
            self.start();
            update(&mut self.macs, chunk);
            self.fed = self.fed.saturating_add(chunk.len());
        }
    }

    /// Ends the check. `body` is the whole body; what was given to [`update`](Self::update) must be its beginning.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] says why the request was refused.
    pub fn finish(self, body: &[u8]) -> Result<Verified, VerifyError> {
        let now = if self.timestamp.is_some() { self.shared.clock.now() } else { Timestamp::default() };
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
        let now = if self.timestamp.is_some() { self.shared.clock.now() } else { Timestamp::default() };
        self.judge_at(body, now)
    }

    fn judge_at(mut self, body: &[u8], now: Timestamp) -> Result<(Verified, Option<VerifyError>), VerifyError> {
        self.start();
        let scheme = &self.shared.scheme;
        let rest = body.get(self.fed..).ok_or(VerifyError::Unsupported("a body that is shorter than what was fed"))?;
        scheme.signed.feed_body(rest, |bytes| update(&mut self.macs, bytes));
        update(&mut self.macs, self.around.after());

        let tried = self.macs.len();
        let secret = matching(&mut self.macs, &self.signatures).ok_or(VerifyError::Mismatch { tried })?;
        let id = event_id(scheme, self.id, body)?;
        let (moment, outside) = match (scheme.time, self.timestamp) {
            (Some(unit), Some(sent)) => (unit.moment(sent), unit.judge(sent, now, self.shared.window).err()),
            _ => (None, None),
        };
        Ok((Verified::assertion(scheme.name(), id, moment, secret, self.around), outside))
    }

    /// Starts the MACs, unless they are under way. Not done before the first byte of the body is there: they are most
    /// of a check's size, and until then it is moved about.
    fn start(&mut self) {
        if self.macs.is_empty() {
            self.macs.reserve_exact(self.shared.keys.len());
            let live = self.shared.keys.iter().enumerate().filter(|(_, key)| key.is_live(self.begun));
            self.macs.extend(live.map(|(index, key)| (index, key.mac.clone())));
            update(&mut self.macs, self.around.before());
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("scheme", &self.shared.scheme.name()).finish_non_exhaustive()
    }
}

/// One MAC for each live secret, with the secret's place in the keyring.
type Macs = Vec<(usize, Mac)>;

fn update(macs: &mut [(usize, Mac)], bytes: &[u8]) {
    macs.iter_mut().for_each(|(_, mac)| mac.update(bytes));
}

/// The place of the first secret that one of the signatures was made with.
///
/// Every signature is compared with every secret's, whatever matched before, in time that depends on their numbers
/// only.
fn matching(macs: &mut [(usize, Mac)], signatures: &Signatures) -> Option<usize> {
    const NONE: u64 = u64::MAX;
    let mut found = NONE;
    for (index, mac) in macs {
        let expected = mac.finish();
        for signature in signatures {
            let first = expected.ct_eq(signature) & found.ct_eq(&NONE);
            found.conditional_assign(&(*index as u64), first);
        }
    }
    if found == NONE { None } else { usize::try_from(found).ok() }
}

fn event_id(
    scheme: &Scheme,
    header: Option<Result<EventId, NameError>>,
    body: &[u8],
) -> Result<(Option<EventId>, IdOrigin), VerifyError> {
    let (id, origin) = match (header, &scheme.body_id) {
        (Some(id), _) => (Some(id), scheme.id_origin()),
        (None, Some(path)) => (body_id::find(body, path).map(|id| EventId::new(&id)), IdOrigin::SignedBody),
        (None, None) => (None, IdOrigin::None),
    };
    match id.transpose().map_err(VerifyError::InvalidId)? {
        Some(id) => Ok((Some(id), origin)),
        None => Ok((None, IdOrigin::None)),
    }
}
