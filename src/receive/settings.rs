//! What can be set on a [`DedupLayer`], and what cannot work.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::answer::{Keep, never_repeated};
use super::keep_request::KeepRequest;
use super::outcome::Limits;
use super::run::RunSettings;
use super::{DedupLayer, KeyFrom, OrderBy, Profile};
use crate::notice::Notices;
use crate::signature::{RepeatedId, Scheme};
use crate::store::{InboxStore, OtherBody, Retention, Unclear};
use crate::{ConfigError, Name};

/// Settings of a [`DedupLayer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct DedupLayerBuilder {
    store: Arc<dyn InboxStore>,
    consumer: String,
    settings: Settings,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) consumer: Name,
    pub(super) in_flight_status: Option<StatusCode>,
    pub(super) is_deferred: bool,
    pub(super) keep_request: KeepRequest,
    pub(super) key: KeyFrom,
    pub(super) notices: Notices,
    pub(super) order_by: Option<OrderBy>,
    pub(super) other_body: Option<OtherBodyAnswer>,
    pub(super) retention: Retention,
    pub(super) run: RunSettings,
    /// As it was set. What suits the scheme otherwise, as for `in_flight_status`.
    pub(super) lease: Option<Duration>,
    pub(super) wait: Option<Duration>,
}

/// What a delivery gets whose id is known, but with another body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherBodyAnswer {
    /// 409: the sender promised that all deliveries of an event have the same bytes.
    Conflict,
    /// The stored result, as if the body were the same: some providers change a field between deliveries.
    Replay,
    /// 422.
    Unprocessable,
}

impl OtherBodyAnswer {
    /// What suits the senders of this scheme.
    pub(super) fn of(scheme: &Scheme) -> Self {
        match scheme.repeated_id() {
            RepeatedId::Conflict => Self::Conflict,
            RepeatedId::Replay => Self::Replay,
        }
    }

    pub(super) const fn status(self) -> Option<StatusCode> {
        match self {
            Self::Conflict => Some(StatusCode::CONFLICT),
            Self::Replay => None,
            Self::Unprocessable => Some(StatusCode::UNPROCESSABLE_ENTITY),
        }
    }
}

impl From<OtherBodyAnswer> for OtherBody {
    fn from(answer: OtherBodyAnswer) -> Self {
        match answer {
            OtherBodyAnswer::Replay => Self::Accept,
            OtherBodyAnswer::Conflict | OtherBodyAnswer::Unprocessable => Self::Refuse,
        }
    }
}

impl DedupLayerBuilder {
    pub(super) fn new(store: Arc<dyn InboxStore>) -> Self {
        let settings = Settings::default();
        Self { store, consumer: settings.consumer.to_string(), settings }
    }

    /// The name of who handles the events. Each consumer of a store handles each event once. `default` by default.
    pub fn consumer(mut self, name: &str) -> Self {
        name.clone_into(&mut self.consumer);
        self
    }

    /// Deferred mode: an event is stored and answered 202 at once, and a [`Processor`](super::Processor), here or in
    /// another process, runs it. The service inside this layer is never called. Settings of runs (lease, attempts,
    /// time-outs, results) are the processor's.
    pub fn deferred(mut self) -> Self {
        self.settings.is_deferred = true;
        self
    }

    /// How long a handler may take, its answer's body included as far as it is kept. 60 seconds by default. After that
    /// it is dropped, the run has failed, and the sender gets a 500. One that blocks its thread cannot be dropped.
    pub fn handler_timeout(mut self, time: Duration) -> Self {
        self.settings.run.handler_timeout = time;
        self
    }

    /// The status of a delivery while another one of the same event is being handled. By default what suits the
    /// scheme: 409, or 503 where the sender would give up on a 4xx.
    pub fn in_flight_status(mut self, status: StatusCode) -> Self {
        self.settings.in_flight_status = Some(status);
        self
    }

    /// Whether the requests of failed events are kept.
    pub fn keep_request(mut self, keep: KeepRequest) -> Self {
        self.settings.keep_request = keep;
        self
    }

    /// What makes two deliveries the same event.
    pub fn key(mut self, key: KeyFrom) -> Self {
        self.settings.key = key;
        self
    }

    /// How long a run is protected from being taken for dead. It is renewed while the handler runs, so this is how
    /// long an event waits after a crash. By default what suits the scheme ([`Scheme::lease`]): 30 seconds, or less where
    /// the sender is impatient. 1 second at least.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// How often an event is run before it is a dead letter. 20 by default.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.run.limits.max_attempts = attempts;
        self
    }

    /// Settings for what a second run of an event would cost, by name. Set it first: what is set after it goes before it.
    /// [`Profile::Standard`] by default.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.settings.run.limits.unclear = profile.unclear();
        self.settings.key = profile.key();
        self
    }

    /// Who is told what a person should know. The layer itself tells only what goes into quarantine: all else that is told of an
    /// inbox is found by [`watch_forever`](super::watch_forever), or by a [`Processor`](super::Processor).
    pub fn notices(mut self, notices: &Notices) -> Self {
        self.settings.notices = notices.clone();
        self
    }

    /// In deferred mode, which events run one by one in their order. None by default.
    pub fn order_by(mut self, order: OrderBy) -> Self {
        self.settings.order_by = Some(order);
        self
    }

    /// What a delivery gets whose id is known, but with another body. By default what suits the scheme.
    pub fn other_body(mut self, answer: OtherBodyAnswer) -> Self {
        self.settings.other_body = Some(answer);
        self
    }

    /// The largest body of an answer that is kept for repeats, in bytes. 64 KiB by default. Repeats of a longer one
    /// get its status and no body.
    pub fn result_limit(mut self, bytes: usize) -> Self {
        self.settings.run.keep_result.body_bytes = bytes;
        self
    }

    /// Headers of an answer that are kept for repeats, beside `Content-*`, `Location`, `ETag`, `Link`,
    /// `Cache-Control`, `Last-Modified` and those that begin with `x-`.
    pub fn result_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.run.keep_result.headers = names.into_iter().collect();
        self
    }

    /// How long finished events are remembered. The store forgets them when it is purged with the same values;
    /// [`ReceiveLayer::new`](super::ReceiveLayer::new) checks them against the replay window.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long a delivery waits for another one of the same event before it is sent away. By default what suits the
    /// scheme ([`Scheme::in_flight_wait`]): 250 milliseconds, or less where the sender is impatient.
    pub fn wait(mut self, time: Duration) -> Self {
        self.settings.wait = Some(time);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which of them cannot work.
    pub fn build(mut self) -> Result<DedupLayer, ConfigError> {
        self.settings.consumer =
            Name::new(&self.consumer).map_err(|reason| ConfigError::Name { what: "consumer", reason })?;
        if let Some(lease) = self.settings.lease {
            check_lease(lease)?;
        }
        self.settings.run.check()?;
        if self.settings.is_deferred && self.settings.keep_request == KeepRequest::Never {
            return Err(ConfigError::NothingKept);
        }
        if self.settings.in_flight_status.is_some_and(|status| status.as_u16() < 400) {
            return Err(ConfigError::InFlightStatus);
        }
        Ok(DedupLayer::with(self.store, self.settings))
    }

    /// The defaults are known to work.
    pub(super) fn finish(self) -> DedupLayer {
        DedupLayer::with(self.store, self.settings)
    }
}

impl RunSettings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        at_least("handler timeout", self.handler_timeout, Duration::from_millis(1))?;
        if self.limits.max_attempts == 0 {
            return Err(ConfigError::NoAttempts);
        }
        match self.keep_result.headers.iter().find(|name| never_repeated(name)) {
            Some(name) => Err(ConfigError::ResultHeader(name.to_string())),
            None => Ok(()),
        }
    }
}

pub(super) fn check_lease(lease: Duration) -> Result<(), ConfigError> {
    at_least("lease", lease, Duration::from_secs(1))
}

pub(super) fn at_least(what: &'static str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    if value < least { Err(ConfigError::TooShort { what, value, least }) } else { Ok(()) }
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            handler_timeout: Duration::from_secs(60),
            keep_result: Keep { body_bytes: 64 * 1024, headers: Vec::new() },
            limits: Limits { max_attempts: 20, unclear: Unclear::RunAgain },
            backoff: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            consumer: Name::literal("default"),
            in_flight_status: None,
            is_deferred: false,
            keep_request: KeepRequest::default(),
            key: KeyFrom::default(),
            notices: Notices::default(),
            order_by: None,
            other_body: None,
            retention: Retention::default(),
            run: RunSettings::default(),
            lease: None,
            wait: None,
        }
    }
}
