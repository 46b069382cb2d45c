//! Both layers as one, with the settings of one checked against those of the other.

use std::time::Duration;

use tower_layer::Layer;

use super::{Arrivals, Dedup, DedupLayer, HandlerTasks, Verify, VerifyLayer};
use crate::ConfigError;

/// A [`VerifyLayer`] around a [`DedupLayer`]: the receiver.
#[derive(Clone, Debug)]
pub struct ReceiveLayer {
    verify: VerifyLayer,
    dedup: DedupLayer,
}

impl ReceiveLayer {
    /// Puts the two together.
    ///
    /// # Errors
    ///
    /// [`ConfigError::WindowExceedsRetention`] where a key would be forgotten while the delivery that it stands for could
    /// still be replayed: retention must be longer than the past and the future part of the replay window together, by a
    /// second at least. Where the scheme signs no timestamp, the key alone stops a replay: it must be kept for a day at
    /// least.
    pub fn new(verify: VerifyLayer, dedup: DedupLayer) -> Result<Self, ConfigError> {
        let keys = dedup.settings().retention.keys;
        match verify.verifier().window().map(|window| window.span()) {
            Some(window) if keys < window.saturating_add(WHOLE_SECONDS) => {
                Err(ConfigError::WindowExceedsRetention { window, retention: keys })
            }
            None if keys < LEAST_WITHOUT_WINDOW => {
                Err(ConfigError::TooShort { what: "retention of keys", value: keys, least: LEAST_WITHOUT_WINDOW })
            }
            Some(_) | None => Ok(Self { verify, dedup }),
        }
    }

    /// In deferred mode, says when an event has been accepted: for a [`Processor`](super::Processor) in this process.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        self.dedup.arrivals()
    }

    /// The handlers that run now: wait for them when the server stops.
    #[must_use]
    pub fn tasks(&self) -> &HandlerTasks {
        self.dedup.tasks()
    }
}

/// Timestamps of whole seconds are accepted for up to this much longer than the window spans.
const WHOLE_SECONDS: Duration = Duration::from_secs(1);

/// Long enough for the retries of most senders, and for somebody to notice that a request was captured.
const LEAST_WITHOUT_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

impl<S> Layer<S> for ReceiveLayer {
    type Service = Verify<Dedup<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.verify.around_inbox(self.dedup.layer(inner))
    }
}
