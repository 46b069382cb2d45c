//! Fifth step of the walk, within a request or behind it: runs the handler under its lease, and records how it ended.

use std::future::Future;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument as _, debug, error, error_span, info_span, warn};

use super::answer::{self, Answer, Keep};
use super::keep_request::Head;
use super::measure::{self, End};
use super::outcome::{self, Limits, Verdict};
use super::reservation::Completing;
use super::response::BoxError;
use super::trace;
use super::{Delivery, Outcome, Rejection, RejectionKind, Reservation, VerifiedBody};
use crate::Cause;
use crate::store::{Failure, InboxStore, Lease, ReceiptKey, ReceiptState, Settled, StoreError, StoredResult, Unclear};
use crate::telemetry::{self, Traceparent};
use crate::work::{Backoff, Renewal, STORE_TIME, in_time};

/// What is the same for all runs.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub(super) handler_timeout: Duration,
    pub(super) keep_result: Keep,
    pub(super) limits: Limits,
    /// When a processor runs a failed event again; `None`: the next delivery does.
    pub(super) backoff: Option<Backoff>,
}

/// One run of one event.
pub(super) struct Run<'a> {
    pub(super) store: &'a Arc<dyn InboxStore>,
    pub(super) settings: &'a RunSettings,
    pub(super) lease: Lease,
    /// How long that is, each time that it is renewed.
    pub(super) lease_for: Duration,
    /// When the store was asked for it.
    pub(super) asked: Instant,
    /// The request's head, to be kept with its body if it fails.
    pub(super) head: Option<Head>,
}

/// How it went.
pub(super) struct Ran {
    pub(super) answer: Answer,
    /// Whether the event has come to its end.
    pub(super) is_end: bool,
    pub(super) end: End,
    pub(super) recorded: Result<(), Unrecorded>,
}

impl Ran {
    /// It ended in success, in the handler's own transaction.
    const fn recorded(answer: Answer) -> Self {
        Self { answer, is_end: true, end: End::Succeeded, recorded: Ok(()) }
    }
}

/// Why the end of a run is not in the store.
pub(super) enum Unrecorded {
    /// Somebody else runs the event now.
    LeaseLost,
    Store(StoreError),
}

impl Run<'_> {
    /// Calls the handler and records the outcome. What is left of the request is its body.
    pub(super) async fn through<F, C, R, E>(self, request: &mut Request<VerifiedBody>, handler: F) -> Ran
    where
        F: FnOnce(Request<VerifiedBody>) -> C + Send,
        C: Future<Output = Result<Response<R>, E>> + Send,
        E: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let span = self.lease_for;
        // A handler that blocks its thread cannot be dropped at its time-out. Its lease is not renewed beyond it.
        let until = Instant::now() + self.settings.handler_timeout.min(FOREVER) + SETTLE_TIME + STORE_TIME;
        let (store, lease) = (Arc::clone(self.store), self.lease.clone());
        let named = error_span!("lease", key = %lease.key.key, attempt = lease.attempt);
        let renewal = Renewal::begin(named, self.asked, span, until, move || {
            let (store, lease) = (Arc::clone(&store), lease.clone());
            Box::pin(async move { store.renew(lease, span).await })
        });
        let keep = Arc::new(self.settings.keep_result.clone());
        let reservation = Reservation::new(self.lease.clone(), renewal.lost(), keep);
        let completing = reservation.completing();
        request.extensions_mut().insert(reservation);

        let delivery = request.body().delivery().clone();
        let (attempt, limits) = (self.lease.attempt, self.settings.limits);
        let (answer, verdict) = match self.call(request, handler).await {
            Ok(answer) => {
                let status = answer.response.status();
                match answer.response.extensions().get::<Outcome>().cloned() {
                    // After a 2xx nothing more is heard of an event, now or when the answer is repeated.
                    Some(outcome @ (Outcome::Transient(_) | Outcome::Unclear(_))) if status.is_success() => {
                        let kind = RejectionKind::HandlerFailed("it said that it had not handled the event".into());
                        let refusal = Rejection::new(kind).with_status(StatusCode::SERVICE_UNAVAILABLE);
                        (Answer::refusal(refusal), outcome::verdict(status, Some(outcome), attempt, limits))
                    }
                    outcome => (answer, outcome::verdict(status, outcome, attempt, limits)),
                }
            }
            Err(error) => {
                let rejection = Rejection::new(RejectionKind::HandlerFailed(error.clone()));
                (Answer::refusal(rejection), outcome::unclear(error, attempt, limits))
            }
        };
        let answer = match verdict {
            // Whatever it said, it is not what its sender is to go by.
            Verdict::Held { .. } => Answer::refusal(Rejection::new(RejectionKind::OutcomeUnclear)),
            Verdict::Done | Verdict::Failed { .. } | Verdict::Dead { .. } => answer,
        };
        self.settle(answer, verdict, &completing, &delivery, &renewal).await
    }

    /// Finds out what the handler has recorded itself, and records what it has not.
    async fn settle(
        &self,
        mut answer: Answer,
        mut verdict: Verdict,
        completing: &Completing,
        delivery: &Delivery,
        renewal: &Renewal,
    ) -> Ran {
        let (store, key, attempt) = (Arc::clone(self.store), self.lease.key.clone(), self.lease.attempt);
        if completing.has_begun() {
            // What the store holds decides, not what the handler says.
            match committed(&store, &key).await {
                Ok(Some(recorded)) => return Ran::recorded(answer.or_recorded(recorded)),
                Ok(None) => (answer, verdict) = unless_done(answer, verdict, attempt, self.settings.limits),
                Err(error) => {
                    let recorded = Err(Unrecorded::Store(error));
                    return Ran { answer, is_end: true, end: End::Succeeded, recorded };
                }
            }
        }
        let end = match verdict {
            Verdict::Done => End::Succeeded,
            Verdict::Failed { .. } => End::Failed,
            Verdict::Dead { .. } | Verdict::Held { .. } => End::DeadLetter,
        };
        let is_end = end != End::Failed;
        let recorded = self.record(verdict, answer.stored.clone(), delivery).await;
        if matches!(recorded, Err(Unrecorded::LeaseLost)) {
            // A commit whose answer was lost, or that outlived its handler, may have come after the first look.
            if completing.has_begun()
                && let Ok(Some(recorded)) = committed(&store, &key).await
            {
                return Ran::recorded(answer.or_recorded(recorded));
            }
            renewal.lose();
            warn!(key = %key.key, attempt, "lease lost: the result of this run is dropped");
        }
        Ran { answer, is_end, end, recorded }
    }

    /// Calls the handler, and folds every way in which it can end without an answer into one text.
    async fn call<F, C, R, E>(&self, request: &mut Request<VerifiedBody>, handler: F) -> Result<Answer, String>
    where
        F: FnOnce(Request<VerifiedBody>) -> C + Send,
        C: Future<Output = Result<Response<R>, E>> + Send,
        E: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let RunSettings { handler_timeout, keep_result, .. } = self.settings;
        let headers = request.headers();
        let event_id = request.body().delivery().event_id();
        let cause = Cause::of_delivery(event_id, trace::correlation_id(headers), Traceparent::of(headers));
        let _running = telemetry::level(telemetry::IN_FLIGHT, &self.lease.key.consumer);
        let began = Instant::now();
        let left = Request::new(VerifiedBody::new(request.body().delivery().clone()));
        let request = mem::replace(request, left);
        let call = async move {
            let response = handler(request).await.map_err(|error| format!("error: {}", error.into()))?;
            answer::capture(response, keep_result).await.map_err(|error| format!("its answer broke off: {error}"))
        };
        let span = info_span!("run", attempt = self.lease.attempt);
        let called =
            timeout(*handler_timeout, AssertUnwindSafe(cause.scope(call).instrument(span)).catch_unwind()).await;
        measure::handler_took(&self.lease.key, began.elapsed());
        match called {
            Ok(Ok(answered)) => answered,
            Ok(Err(panic)) => Err(format!("panic: {}", panic_text(&*panic))),
            Err(_elapsed) => Err(format!("no answer within {handler_timeout:?}")),
        }
    }

    /// Writes the verdict to the store, again and again for a few seconds where it does not answer: the work is done,
    /// and only its record is missing. The lease is renewed meanwhile.
    async fn record(&self, verdict: Verdict, result: StoredResult, delivery: &Delivery) -> Result<(), Unrecorded> {
        let Self { store, settings, lease, head, .. } = self;
        let failed = |error, dead: Option<String>| {
            let waits = settings.backoff.filter(|_| dead.is_none());
            let retry_in = waits.map(|backoff| backoff.by_chance(lease.attempt));
            let request = head.as_ref().map(|head| head.keep(delivery));
            Some(Failure { error, result: Some(result.clone()), dead, request, retry_in })
        };
        let failure = match verdict {
            Verdict::Done => None,
            Verdict::Failed { error } => failed(error, None),
            Verdict::Dead { error, reason } => failed(error, Some(reason)),
            Verdict::Held { error } => failed(error, Some(Unclear::HELD.to_owned())),
        };
        if let Some(Failure { error, dead, retry_in, .. }) = &failure {
            let dead_letter = dead.is_some();
            warn!(key = %lease.key.key, attempt = lease.attempt, error, dead_letter, ?retry_in, "the event failed");
        }

        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
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
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                settled => break settled,
            }
        };
        match settled {
            Ok(Settled::Done) => Ok(()),
            Ok(Settled::LeaseLost) if unsure && is_recorded(store, lease, &result).await => Ok(()),
            Ok(Settled::LeaseLost) => Err(Unrecorded::LeaseLost),
            Err(error) => {
                error!(key = %lease.key.key, attempt = lease.attempt, %error, "the result could not be stored");
                Err(Unrecorded::Store(error))
            }
        }
    }
}

/// The result of an event that has succeeded: by the commit of the handler that has just ended, or by another run. Asks again
/// and again for a few seconds where the store does not answer.
async fn committed(store: &Arc<dyn InboxStore>, key: &ReceiptKey) -> Result<Option<StoredResult>, StoreError> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match in_time(store.find(key.clone())).await {
            Ok(found) => {
                let succeeded = found.filter(|receipt| receipt.state == ReceiptState::Succeeded);
                return Ok(succeeded.and_then(|receipt| receipt.result));
            }
            Err(error) if error.is_transient() && begun.elapsed() < SETTLE_TIME => {
                debug!(%error, "the store does not say whether the handler committed; asking again");
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            Err(error) => {
                error!(key = %key.key, %error, "whether the handler committed is not known");
                return Err(error);
            }
        }
    }
}

/// A handler that completes its run in a transaction, does not commit it, and then says that all is well, is not believed:
/// after a 2xx the sender would not come back, and nothing was done.
fn unless_done(answer: Answer, verdict: Verdict, attempt: u32, limits: Limits) -> (Answer, Verdict) {
    if verdict != Verdict::Done {
        return (answer, verdict);
    }
    let error = "it completed its run in a transaction that was not committed".to_owned();
    let rejection = Rejection::new(RejectionKind::HandlerFailed(error.clone()));
    (Answer::refusal(rejection), outcome::failed(error, attempt, limits))
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

/// For how long a result is offered to a store that does not take it.
const SETTLE_TIME: Duration = Duration::from_secs(6);
/// How long to leave a store alone that did not answer; twice as long each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longer than any handler runs, and no overflow when it is added to a moment.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}
