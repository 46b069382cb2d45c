//! Fifth step of the walk, within a request or behind it: runs the handler under its lease, and records how it ended.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info_span, warn};

use super::answer::{self, Answer, Keep};
use super::keep_request::Head;
use super::outcome::{self, Verdict};
use super::response::BoxError;
use super::{Delivery, Outcome, Rejection, RejectionKind, Reservation, VerifiedBody};
use crate::store::{Failure, InboxStore, Lease, ReceiptState, Settled, StoreError, StoreFuture, StoredResult};
use crate::work::{Backoff, Renewal};

/// What is the same for all runs.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub(super) handler_timeout: Duration,
    pub(super) keep_result: Keep,
    pub(super) lease: Duration,
    pub(super) max_attempts: u32,
    /// When a processor runs a failed event again; `None`: the next delivery does.
    pub(super) backoff: Option<Backoff>,
}

/// One run of one event.
pub(super) struct Run<'a> {
    pub(super) store: &'a Arc<dyn InboxStore>,
    pub(super) settings: &'a RunSettings,
    pub(super) lease: Lease,
    /// The request's head, to be kept with its body if it fails.
    pub(super) head: Option<Head>,
}

/// How it went.
pub(super) struct Ran {
    pub(super) answer: Answer,
    /// Whether the event has come to its end.
    pub(super) is_end: bool,
    pub(super) recorded: Result<(), Unrecorded>,
}

/// Why the end of a run is not in the store.
pub(super) enum Unrecorded {
    /// Somebody else runs the event now.
    LeaseLost,
    Store(StoreError),
}

impl Run<'_> {
    /// Calls the handler and records the outcome.
    pub(super) async fn through<F, C, R, E>(self, mut request: Request<VerifiedBody>, handler: F) -> Ran
    where
        F: FnOnce(Request<VerifiedBody>) -> C + Send,
        C: Future<Output = Result<Response<R>, E>> + Send,
        E: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let span = self.settings.lease;
        // A handler that blocks its thread cannot be dropped at its time-out. Its lease is not renewed beyond it.
        let until = Instant::now() + self.settings.handler_timeout.min(FOREVER) + SETTLE_TIME + STORE_TIME;
        let (store, lease) = (Arc::clone(self.store), self.lease.clone());
        let named = info_span!("lease", key = %lease.key.key, attempt = lease.attempt);
        let renewal = Renewal::begin(named, span, until, move || {
            let (store, lease) = (Arc::clone(&store), lease.clone());
            Box::pin(async move { store.renew(lease, span).await })
        });
        request.extensions_mut().insert(Reservation::new(self.lease.clone(), renewal.lost()));

        let delivery = request.body().delivery().clone();
        let (attempt, limit) = (self.lease.attempt, self.settings.max_attempts);
        let (answer, verdict) = match self.call(request, handler).await {
            Ok(answer) => {
                let status = answer.response.status();
                match answer.response.extensions().get::<Outcome>().cloned() {
                    // After a 2xx nothing more is heard of an event, now or when the answer is repeated.
                    Some(Outcome::Transient(error)) if status.is_success() => {
                        let kind = RejectionKind::HandlerFailed("it said that its failure was transient".into());
                        let refusal = Rejection::new(kind).with_status(StatusCode::SERVICE_UNAVAILABLE);
                        (Answer::refusal(refusal), outcome::failed(error, attempt, limit))
                    }
                    outcome => (answer, outcome::verdict(status, outcome, attempt, limit)),
                }
            }
            Err(error) => {
                let rejection = Rejection::new(RejectionKind::HandlerFailed(error.clone()));
                (Answer::refusal(rejection), outcome::failed(error, attempt, limit))
            }
        };
        let is_end = !matches!(verdict, Verdict::Failed { .. });
        let recorded = self.record(verdict, answer.stored.clone(), &delivery, &renewal).await;
        Ran { answer, is_end, recorded }
    }

    /// Calls the handler, and folds every way in which it can end without an answer into one text.
    async fn call<F, C, R, E>(&self, request: Request<VerifiedBody>, handler: F) -> Result<Answer, String>
    where
        F: FnOnce(Request<VerifiedBody>) -> C + Send,
        C: Future<Output = Result<Response<R>, E>> + Send,
        E: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let RunSettings { handler_timeout, keep_result, .. } = self.settings;
        let call = async move {
            let response = handler(request).await.map_err(|error| format!("error: {}", error.into()))?;
            answer::capture(response, keep_result).await.map_err(|error| format!("its answer broke off: {error}"))
        };
        match timeout(*handler_timeout, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(panic)) => Err(format!("panic: {}", panic_text(&*panic))),
            Err(_elapsed) => Err(format!("no answer within {handler_timeout:?}")),
        }
    }

    /// Writes the verdict to the store, again and again for a few seconds where it does not answer: the work is done,
    /// and only its record is missing. The lease is renewed meanwhile.
    async fn record(
        self,
        verdict: Verdict,
        result: StoredResult,
        delivery: &Delivery,
        renewal: &Renewal,
    ) -> Result<(), Unrecorded> {
        let Self { store, settings, lease, head } = self;
        let failed = |error, dead: Option<String>| {
            let waits = settings.backoff.filter(|_| dead.is_none());
            let retry_in = waits.map(|backoff| backoff.by_chance(lease.attempt));
            let request = head.map(|head| head.keep(delivery));
            Some(Failure { error, result: Some(result.clone()), dead, request, retry_in })
        };
        let failure = match verdict {
            Verdict::Done => None,
            Verdict::Failed { error } => failed(error, None),
            Verdict::Dead { error, reason } => failed(error, Some(reason)),
        };
        if let Some(Failure { error, dead, retry_in, .. }) = &failure {
            let dead_letter = dead.is_some();
            warn!(key = %lease.key.key, attempt = lease.attempt, error, dead_letter, ?retry_in, "the event failed");
        }

        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        let mut unsure = false;
        let settled = loop {
            let settled = in_time(match &failure {
                None => store.complete(lease.clone(), result.clone()),
                Some(failure) => store.fail(lease.clone(), failure.clone()),
            });
            match settled.await {
                Err(error) if error.is_transient() && begun.elapsed() < SETTLE_TIME => {
                    debug!(%error, "the store did not take the result; trying again");
                    unsure = true;
                    sleep(pause).await;
                    pause = Duration::from_secs(1).min(pause * 2);
                }
                settled => break settled,
            }
        };
        match settled {
            Ok(Settled::Done) => Ok(()),
            Ok(Settled::LeaseLost) if unsure && is_recorded(store, &lease, &result).await => Ok(()),
            Ok(Settled::LeaseLost) => {
                renewal.lose();
                warn!(key = %lease.key.key, attempt = lease.attempt, "lease lost: the result of this run is dropped");
                Err(Unrecorded::LeaseLost)
            }
            Err(error) => {
                error!(key = %lease.key.key, attempt = lease.attempt, %error, "the result could not be stored");
                Err(Unrecorded::Store(error))
            }
        }
    }
}

/// Whether a call that seemed to fail did take effect: the receipt is settled, by this run and with this result.
async fn is_recorded(store: &Arc<dyn InboxStore>, lease: &Lease, result: &StoredResult) -> bool {
    let found = in_time(store.find(lease.key.clone())).await;
    found.is_ok_and(|found| {
        found.is_some_and(|receipt| {
            receipt.state != ReceiptState::Processing
                && receipt.attempts == lease.attempt
                && receipt.result.as_ref() == Some(result)
        })
    })
}

/// A store that hangs is a store that cannot be reached. A call that is dropped takes effect wholly or not at all: a
/// reservation that did runs out, and a result that did is found by the next delivery.
pub(super) async fn in_time<T>(call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    timeout(STORE_TIME, call).await.unwrap_or_else(|_elapsed| {
        Err(StoreError::Unavailable { reason: format!("no answer within {STORE_TIME:?}"), source: None })
    })
}

/// How long one call of a store may take. Senders wait for 5 to 30 seconds, and stores give up by themselves earlier.
const STORE_TIME: Duration = Duration::from_secs(10);
/// For how long a result is offered to a store that does not take it.
const SETTLE_TIME: Duration = Duration::from_secs(6);
/// Longer than any handler runs, and no overflow when it is added to a moment.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}
