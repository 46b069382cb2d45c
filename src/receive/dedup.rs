//! Fourth step of the walk: [`DedupLayer`] runs each event once, and answers repeats with the stored result.
//!
//! ```text
//! key → reserve ─┬─ acquired ──▶ handler ──▶ capture ──▶ complete or fail ──▶ response
//!                ├─ succeeded, dead letter ──▶ stored response
//!                └─ processing ──▶ wait a little, reserve again ──▶ 409
//! ```

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, debug, error, info, warn};

use super::answer::{self, Answer};
use super::keep_request::kept_request;
use super::outcome::{self, Verdict};
use super::reservation::Renewal;
use super::response::BoxError;
use super::settings::{DedupLayerBuilder, OtherBodyAnswer, Settings};
use super::{Delivery, HandlerTasks, Outcome, Rejection, RejectionKind, ResponseBody, VerifiedBody};
use crate::store::{
    Failure, InboxStore, KeptRequest, Lease, OtherBody, ReceiptKey, Repeat, Reserve, Reserved, Settled, StoreError,
    StoreFuture, StoredResult,
};

/// Runs the handler once for each event, however often and from however many machines it is delivered.
///
/// Goes behind a [`VerifyLayer`](super::VerifyLayer): it asks for a [`VerifiedBody`], which nothing else makes. See the
/// [module](super) for examples and for what a sender gets.
///
/// Put around a router that has no check around it, it does not compile, since nothing there makes a verified body:
///
/// ```compile_fail,E0277
/// # use axum::{Router, routing::post};
/// # use countersign::receive::DedupLayer;
/// # use countersign::store::MemoryStore;
/// let dedup = DedupLayer::new(MemoryStore::new());
/// let app: Router = Router::new().route("/", post(async || "done")).layer(dedup);
/// ```
#[derive(Clone, Debug)]
pub struct DedupLayer(Arc<Desk>);

impl DedupLayer {
    /// A layer with default settings over this store.
    pub fn new(store: impl InboxStore) -> Self {
        Self::builder(store).finish()
    }

    /// A layer with settings of your own.
    pub fn builder(store: impl InboxStore) -> DedupLayerBuilder {
        DedupLayerBuilder::new(Arc::new(store))
    }

    pub(super) fn with(store: Arc<dyn InboxStore>, settings: Settings) -> Self {
        Self(Arc::new(Desk { store, settings, tasks: HandlerTasks::default() }))
    }

    /// The handlers that run now: wait for them when the server stops.
    #[must_use]
    pub fn tasks(&self) -> &HandlerTasks {
        &self.0.tasks
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }
}

impl<S> Layer<S> for DedupLayer {
    type Service = Dedup<S>;

    fn layer(&self, inner: S) -> Dedup<S> {
        Dedup { desk: Arc::clone(&self.0), inner }
    }
}

/// The service of a [`DedupLayer`].
#[derive(Clone, Debug)]
pub struct Dedup<S> {
    desk: Arc<Desk>,
    inner: S,
}

impl<S, R> Service<Request<VerifiedBody>> for Dedup<S>
where
    S: Service<Request<VerifiedBody>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = S::Error;
    type Future = DedupFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<VerifiedBody>) -> Self::Future {
        // The clone has not been polled ready: it stays here, and the one that was is called.
        let unready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, unready);
        let desk = Arc::clone(&self.desk);
        // In a task of its own: the walk goes on when the sender hangs up and this future is dropped.
        let walk = async move { desk.handle(request, inner).await }.in_current_span();
        DedupFuture { task: self.desk.tasks.spawn(walk), error: std::marker::PhantomData }
    }
}

/// The future of a [`Dedup`] service. Dropping it ends the wait for the answer, not the handler.
pub struct DedupFuture<E> {
    task: JoinHandle<Response<ResponseBody>>,
    error: std::marker::PhantomData<fn() -> E>,
}

impl<E> Future for DedupFuture<E> {
    type Output = Result<Response<ResponseBody>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(response) => response,
            Err(ended) => {
                // The runtime stops, or a store panicked: whether the event ran is not known here.
                error!(%ended, "a delivery was not handled to its end");
                Rejection::new(RejectionKind::Unsettled("the receiver is stopping".into())).into_response()
            }
        }))
    }
}

impl<E> fmt::Debug for DedupFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DedupFuture")
    }
}

/// What all requests of a layer share.
#[derive(Debug)]
struct Desk {
    store: Arc<dyn InboxStore>,
    settings: Settings,
    tasks: HandlerTasks,
}

impl Desk {
    /// One delivery, from its key to its answer.
    async fn handle<S, R>(&self, request: Request<VerifiedBody>, inner: S) -> Response<ResponseBody>
    where
        S: Service<Request<VerifiedBody>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let delivery = request.body().delivery().clone();
        let key = match self.settings.key.key(&delivery) {
            Ok(key) => key,
            Err(error) => {
                warn!(%error, "a delivery has no usable key");
                return Rejection::new(RejectionKind::InvalidKey(error)).into_response();
            }
        };
        let key = ReceiptKey { consumer: self.settings.consumer.clone(), source: delivery.source().clone(), key };

        let reserved = self.reserve_or_wait(key.clone(), &delivery).await;
        match reserved {
            Ok(Reserved::Acquired(lease)) => self.run(lease, request, inner).await,
            Ok(Reserved::Succeeded(repeat) | Reserved::DeadLetter(repeat)) => self.repeat(&key, repeat),
            Ok(Reserved::Processing(left)) => {
                info!(key = %key.key, "another delivery of the event is being handled");
                Rejection::processing(self.in_flight_status(&delivery), left).into_response()
            }
            Ok(Reserved::OtherBody) => {
                warn!(key = %key.key, "a known id was delivered with another body, and refused");
                Rejection::new(RejectionKind::OtherBody)
                    .with_status(self.other_body(&delivery).status().unwrap_or(StatusCode::CONFLICT))
                    .into_response()
            }
            Err(error) => {
                error!(%error, "the store could not be asked, so the event was not run");
                Rejection::new(RejectionKind::StoreUnavailable(error.to_string())).into_response()
            }
        }
    }

    /// Reserves; while another delivery is being handled, tries again for a moment, since most handlers are quick.
    async fn reserve_or_wait(&self, key: ReceiptKey, delivery: &Delivery) -> Result<Reserved, StoreError> {
        let request = Reserve {
            key,
            event_id: delivery.event_id().cloned(),
            body: delivery.body_digest(),
            lease: self.settings.lease,
            max_attempts: self.settings.max_attempts,
            other_body: match self.other_body(delivery) {
                OtherBodyAnswer::Replay => OtherBody::Accept,
                OtherBodyAnswer::Conflict | OtherBodyAnswer::Unprocessable => OtherBody::Refuse,
            },
        };
        let begun = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            let reserved = in_time(self.store.reserve(request.clone())).await?;
            let left = self.settings.wait.saturating_sub(begun.elapsed());
            if left.is_zero() || !matches!(reserved, Reserved::Processing(_)) {
                return Ok(reserved);
            }
            sleep(pause.min(left)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Runs the handler, records how it ended, and only then lets the sender know.
    async fn run<S, R>(&self, lease: Lease, request: Request<VerifiedBody>, inner: S) -> Response<ResponseBody>
    where
        S: Service<Request<VerifiedBody>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let delivery = request.body().delivery().clone();
        let kept = kept_request(&request, &delivery, self.settings.keep_request);
        let (renewal, reservation) = Renewal::begin(Arc::clone(&self.store), lease.clone(), self.settings.lease);
        let mut request = request;
        request.extensions_mut().insert(reservation);

        let limit = self.settings.max_attempts;
        let (answer, verdict) = match self.call(request, inner).await {
            Ok(answer) => {
                let outcome = answer.response.extensions().get::<Outcome>().cloned();
                let verdict = outcome::verdict(answer.response.status(), outcome, lease.attempt, limit);
                (answer, verdict)
            }
            Err(error) => {
                let rejection = Rejection::new(RejectionKind::HandlerFailed(error.clone()));
                (Answer::refusal(rejection), outcome::failed(error, lease.attempt, limit))
            }
        };
        let ends = !matches!(verdict, Verdict::Failed { .. });
        let says_done = answer.response.status().is_success();
        let recorded = self.record(lease, verdict, answer.stored, kept, &renewal, &delivery).await;

        // After a 2xx, and for many senders after a 4xx, nothing more is heard of an event. So an end is told only once
        // it is recorded, and a 2xx only of an end.
        match recorded {
            Err(rejection) if ends || says_done => rejection.into_response(),
            Ok(()) if says_done && !ends => {
                Rejection::new(RejectionKind::HandlerFailed("it said that its failure was transient".into()))
                    .with_status(StatusCode::SERVICE_UNAVAILABLE)
                    .into_response()
            }
            Ok(()) | Err(_) => answer.response,
        }
    }

    /// Calls the handler, and folds every way in which it can end without an answer into one text.
    async fn call<S, R>(&self, request: Request<VerifiedBody>, mut inner: S) -> Result<Answer, String>
    where
        S: Service<Request<VerifiedBody>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let call = async move {
            let response = inner.call(request).await.map_err(|error| format!("error: {}", error.into()))?;
            answer::capture(response, &self.settings.keep_result)
                .await
                .map_err(|error| format!("its answer broke off: {error}"))
        };
        match timeout(self.settings.handler_timeout, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(panic)) => Err(format!("panic: {}", panic_text(&*panic))),
            Err(_elapsed) => Err(format!("no answer within {:?}", self.settings.handler_timeout)),
        }
    }

    /// Writes the verdict to the store, again and again for a few seconds where it does not answer: the work is done,
    /// and only its record is missing. The lease is renewed meanwhile.
    async fn record(
        &self,
        lease: Lease,
        verdict: Verdict,
        result: StoredResult,
        request: Option<KeptRequest>,
        renewal: &Renewal,
        delivery: &Delivery,
    ) -> Result<(), Rejection> {
        let failure = match verdict {
            Verdict::Done => None,
            Verdict::Failed { error } => {
                Some(Failure { error, result: Some(result.clone()), dead: None, request, retry_in: None })
            }
            Verdict::Dead { error, reason } => {
                Some(Failure { error, result: Some(result.clone()), dead: Some(reason), request, retry_in: None })
            }
        };
        if let Some(Failure { error, dead, .. }) = &failure {
            warn!(key = %lease.key.key, attempt = lease.attempt, error, dead_letter = dead.is_some(), "the event failed");
        }

        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        let settled = loop {
            let settled = in_time(match &failure {
                None => self.store.complete(lease.clone(), result.clone()),
                Some(failure) => self.store.fail(lease.clone(), failure.clone()),
            });
            match settled.await {
                Err(error) if error.is_transient() && begun.elapsed() < SETTLE_TIME => {
                    debug!(%error, "the store did not take the result; trying again");
                    sleep(pause).await;
                    pause = Duration::from_secs(1).min(pause * 2);
                }
                settled => break settled,
            }
        };
        match settled {
            Ok(Settled::Done) => Ok(()),
            Ok(Settled::LeaseLost) => {
                renewal.lose();
                warn!(key = %lease.key.key, attempt = lease.attempt, "lease lost: the result of this run is dropped");
                Err(Rejection::processing(self.in_flight_status(delivery), self.settings.lease))
            }
            Err(error) => {
                error!(key = %lease.key.key, attempt = lease.attempt, %error, "the result could not be stored");
                Err(Rejection::new(RejectionKind::Unsettled(error.to_string())))
            }
        }
    }

    fn repeat(&self, key: &ReceiptKey, repeat: Repeat) -> Response<ResponseBody> {
        if repeat.same_body {
            debug!(key = %key.key, "a repeat was answered with the stored result");
        } else {
            warn!(key = %key.key, "a repeat with another body was answered with the stored result");
        }
        answer::replay(repeat).unwrap_or_else(|| Rejection::new(RejectionKind::GaveUp).into_response())
    }

    fn in_flight_status(&self, delivery: &Delivery) -> StatusCode {
        self.settings.in_flight_status.unwrap_or_else(|| delivery.scheme().in_flight_status())
    }

    fn other_body(&self, delivery: &Delivery) -> OtherBodyAnswer {
        self.settings.other_body.unwrap_or_else(|| OtherBodyAnswer::of(delivery.scheme()))
    }
}

/// A store that hangs is a store that cannot be reached. A call that is dropped takes effect wholly or not at all: a
/// reservation that did runs out, and a result that did is found by the next delivery.
async fn in_time<T>(call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    timeout(STORE_TIME, call).await.unwrap_or_else(|_elapsed| {
        Err(StoreError::Unavailable { reason: format!("no answer within {STORE_TIME:?}"), source: None })
    })
}

/// How long one call of a store may take. Senders wait for 5 to 30 seconds, and stores give up by themselves earlier.
const STORE_TIME: Duration = Duration::from_secs(10);
/// For how long a result is offered to a store that does not take it.
const SETTLE_TIME: Duration = Duration::from_secs(6);
/// Longest pause between two looks at an event that another delivery runs.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}
