//! What can be set on a [`DedupLayer`], and what cannot work.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::answer::{Keep, never_repeated};
use super::keep_request::KeepRequest;
use super::{DedupLayer, KeyFrom};
use crate::signature::{RepeatedId, Scheme};
use crate::store::{InboxStore, Retention};
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
    pub(super) handler_timeout: Duration,
    pub(super) in_flight_status: Option<StatusCode>,
    pub(super) keep_request: KeepRequest,
    pub(super) keep_result: Keep,
    pub(super) key: KeyFrom,
    pub(super) lease: Duration,
    pub(super) max_attempts: u32,
    pub(super) other_body: Option<OtherBodyAnswer>,
    pub(super) retention: Retention,
    pub(super) wait: Duration,
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

    /// How long a handler may take, its answer's body included as far as it is kept. 60 seconds by default. After that
    /// it is dropped, the run has failed, and the sender gets a 500. One that blocks its thread cannot be dropped.
    pub fn handler_timeout(mut self, time: Duration) -> Self {
        self.settings.handler_timeout = time;
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
    /// long an event waits after a crash. 30 seconds by default, 1 at least.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How often an event is run before it is a dead letter. 20 by default.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
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
        self.settings.keep_result.body_bytes = bytes;
        self
    }

    /// Headers of an answer that are kept for repeats, beside `Content-*`, `Location`, `ETag`, `Link`,
    /// `Cache-Control`, `Last-Modified` and those that begin with `x-`.
    pub fn result_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.keep_result.headers = names.into_iter().collect();
        self
    }

    /// How long finished events are remembered. The store forgets them when it is purged with the same values;
    /// [`ReceiveLayer::new`](super::ReceiveLayer::new) checks them against the replay window.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long a delivery waits for another one of the same event before it is sent away. 250 milliseconds by
    /// default.
    pub fn wait(mut self, time: Duration) -> Self {
        self.settings.wait = time;
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
        let too_short = |what, value: Duration, least: Duration| {
            if value < least { Err(ConfigError::TooShort { what, value, least }) } else { Ok(()) }
        };
        too_short("lease", self.settings.lease, Duration::from_secs(1))?;
        too_short("handler timeout", self.settings.handler_timeout, Duration::from_millis(1))?;
        if self.settings.max_attempts == 0 {
            return Err(ConfigError::NoAttempts);
        }
        if let Some(name) = self.settings.keep_result.headers.iter().find(|name| never_repeated(name)) {
            return Err(ConfigError::ResultHeader(name.to_string()));
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            consumer: Name::literal("default"),
            handler_timeout: Duration::from_secs(60),
            in_flight_status: None,
            keep_request: KeepRequest::default(),
            keep_result: Keep { body_bytes: 64 * 1024, headers: Vec::new() },
            key: KeyFrom::default(),
            lease: Duration::from_secs(30),
            max_attempts: 20,
            other_body: None,
            retention: Retention::default(),
            wait: Duration::from_millis(250),
        }
    }
}
