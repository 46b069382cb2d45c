//! Fourth step of the walk: [`DedupLayer`] runs each event once, and answers repeats with the stored result.
//!
//! ```text
//! key → reserve ─┬─ acquired ──▶ handler ──▶ capture ──▶ complete or fail ──▶ response
//!                ├─ succeeded, dead letter ──▶ stored response
//!                └─ processing ──▶ wait a little, reserve again ──▶ 409
//! ```
//! Deferred:
//! ```text
//! key → accept ──┬─ stored, known ──▶ 202
//!                └─ succeeded, dead letter ──▶ stored response
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, sleep};
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, debug, error, info, warn};

use super::answer;
use super::keep_request::Head;
use super::measure::{self, Received};
use super::response::BoxError;
use super::run::{Ran, Run, Unrecorded, panic_text};
use super::settings::{DedupLayerBuilder, OtherBodyAnswer, Settings};
use super::tasks::Walk;
use super::trace;
use super::{Arrivals, Delivery, HandlerTasks, Rejection, RejectionKind, ResponseBody, VerifiedBody};
use crate::EventId;
use crate::notice::Notice;
use crate::signature::Scheme;
use crate::store::{Accept, Accepted, InboxStore, Lease, ReceiptKey, Repeat, Reserve, Reserved, StoreError, Unclear};
use crate::work::in_time;

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
        let (tasks, arrivals) = (HandlerTasks::default(), Arrivals::default());
        Self(Arc::new(Desk { store, settings, tasks, arrivals }))
    }

    /// In deferred mode, says when an event has been accepted: give it to a [`Processor`](super::Processor) in this
    /// process, so that it need not wait for its next poll.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        &self.0.arrivals
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

    fn call(&mut self, mut request: Request<VerifiedBody>) -> Self::Future {
        // The clone has not been polled ready: it stays here, and the one that was is called.
        let unready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready);
        let desk = Arc::clone(&self.desk);
        // The walk goes on when the sender hangs up and the future that comes back is dropped.
        let walk = async move {
            let source = request.body().delivery().source().clone();
            let (outcome, response) = desk.handle(&mut request, &mut inner).await;
            measure::received(&source, outcome);
            response
        };
        let walk = walk.in_current_span();
        DedupFuture { walk: self.desk.tasks.run(walk), error: std::marker::PhantomData }
    }
}

/// The future of a [`Dedup`] service. Dropping it ends the wait for the answer, not the handler.
pub struct DedupFuture<E> {
    walk: Walk<Response<ResponseBody>>,
    error: std::marker::PhantomData<fn() -> E>,
}

impl<E> Future for DedupFuture<E> {
    type Output = Result<Response<ResponseBody>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match ready!(Pin::new(&mut self.walk).poll(cx)) {
            Ok(response) => response,
            Err(panic) => {
                // A store of somebody's own, most likely. Whether the event ran is not known here.
                error!(panic = panic_text(&*panic), "a delivery was not handled to its end");
                Rejection::new(RejectionKind::Unsettled("the store panicked".into())).into_response()
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
    arrivals: Arrivals,
}

impl Desk {
    /// One delivery, from its key to its answer.
    async fn handle<S, R>(&self, request: &mut Request<VerifiedBody>, inner: &mut S) -> Handled
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
                let refusal = Rejection::new(RejectionKind::InvalidKey(error)).into_response();
                return (Received::BadKey, refusal);
            }
        };
        let key = ReceiptKey { consumer: self.settings.consumer.clone(), source: delivery.source().clone(), key };
        let span = tracing::info_span!(
            "handle",
            consumer = %key.consumer,
            key = %key.key,
            event_id = delivery.event_id().map(EventId::as_str),
            correlation_id = trace::correlation_id(request.headers()),
            causation_id = trace::causation_id(request.headers()),
        );
        self.handle_key(key, delivery, request, inner).instrument(span).await
    }

    async fn handle_key<S, R>(
        &self,
        key: ReceiptKey,
        delivery: Delivery,
        request: &mut Request<VerifiedBody>,
        inner: &mut S,
    ) -> Handled
    where
        S: Service<Request<VerifiedBody>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        if let Some(outside) = request.body().staleness() {
            return self.quarantine(key, request, outside.to_string()).await;
        }
        if self.settings.is_deferred {
            return self.accept(key, request).await;
        }
        let (reserved, asked) = self.reserve_or_wait(key.clone(), request).await;
        match reserved {
            Ok(Reserved::Acquired(lease)) => self.run(lease, asked, request, inner).await,
            Ok(Reserved::Succeeded(repeat) | Reserved::DeadLetter(repeat)) => self.repeat(&key, repeat),
            Ok(Reserved::Processing(left)) => {
                info!(key = %key.key, "another delivery of the event is being handled");
                let refusal = Rejection::processing(self.in_flight_status(&delivery), left);
                (Received::Processing, refusal.into_response())
            }
            Ok(Reserved::OtherBody) => self.refuse_other_body(&key, &delivery),
            Err(error) => self.unreachable(&error),
        }
    }

    /// Reserves; while another delivery is being handled, tries again for a moment, since most handlers are quick.
    /// Returns with the answer when the store was asked for it.
    async fn reserve_or_wait(
        &self,
        key: ReceiptKey,
        request: &Request<VerifiedBody>,
    ) -> (Result<Reserved, StoreError>, Instant) {
        let delivery = request.body().delivery();
        let request = Reserve {
            key,
            event_id: delivery.event_id().cloned(),
            correlation_id: trace::belongs_to(request.headers()),
            body: delivery.body_digest(),
            lease: self.lease(delivery),
            max_attempts: self.settings.run.limits.max_attempts,
            other_body: self.other_body(delivery).into(),
            unclear: self.settings.run.limits.unclear,
        };
        let wait = self.wait(delivery);
        let begun = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            let asked = Instant::now();
            let reserved = in_time(self.store.reserve(request.clone())).await;
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() || !matches!(reserved, Ok(Reserved::Processing(_))) {
                return (reserved, asked);
            }
            sleep(pause.min(left)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Runs the handler, records how it ended, and only then lets the sender know.
    async fn run<S, R>(
        &self,
        lease: Lease,
        asked: Instant,
        request: &mut Request<VerifiedBody>,
        inner: &mut S,
    ) -> Handled
    where
        S: Service<Request<VerifiedBody>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let delivery = request.body().delivery().clone();
        let head = Head::to_keep(request, self.settings.keep_request);
        let lease_for = self.lease(&delivery);
        let run = Run { store: &self.store, settings: &self.settings.run, lease, lease_for, asked, head };
        let key = run.lease.key.clone();
        let ran = run.through(request, move |request| inner.call(request)).await;
        let outcome = measure::ran(&key, &ran);
        let Ran { answer, is_end, recorded, .. } = ran;

        // An end is told only once it is recorded: after a 2xx, and for many senders after a 4xx, they do not come back.
        let response = match recorded {
            Err(unrecorded) if is_end => match unrecorded {
                Unrecorded::LeaseLost => {
                    Rejection::processing(self.in_flight_status(&delivery), lease_for).into_response()
                }
                Unrecorded::Store(error) => Rejection::new(RejectionKind::Unsettled(error.to_string())).into_response(),
            },
            Ok(()) | Err(_) => answer.response,
        };
        (outcome, response)
    }

    /// Takes the event in, and lets the sender know that it is in good hands.
    async fn accept(&self, key: ReceiptKey, request: &Request<VerifiedBody>) -> Handled {
        match in_time(self.store.accept(self.acceptance(key.clone(), request, None))).await {
            Ok(accepted @ (Accepted::Stored | Accepted::Known)) => {
                self.arrivals.announce();
                let outcome = if accepted == Accepted::Stored { Received::Accepted } else { Received::Known };
                (outcome, in_good_hands())
            }
            Ok(Accepted::Succeeded(repeat) | Accepted::DeadLetter(repeat)) => self.repeat(&key, repeat),
            Ok(Accepted::OtherBody) => self.refuse_other_body(&key, request.body().delivery()),
            Err(error) => self.unreachable(&error),
        }
    }

    /// Keeps a stale event for a person to look at. The answer is the same whatever is known of it: who replays an old
    /// request learns nothing.
    async fn quarantine(&self, key: ReceiptKey, request: &Request<VerifiedBody>, reason: String) -> Handled {
        warn!(key = %key.key, reason, "a rightly signed but stale event goes into quarantine");
        match in_time(self.store.accept(self.acceptance(key.clone(), request, Some(reason.clone())))).await {
            Ok(accepted) => {
                if accepted == Accepted::Stored {
                    self.settings.notices.tell(&quarantined(key, request.body().delivery(), reason));
                }
                (Received::Quarantined, in_good_hands())
            }
            Err(error) => self.unreachable(&error),
        }
    }

    fn acceptance(&self, key: ReceiptKey, request: &Request<VerifiedBody>, quarantine: Option<String>) -> Accept {
        let delivery = request.body().delivery();
        Accept {
            key,
            event_id: delivery.event_id().cloned(),
            correlation_id: trace::belongs_to(request.headers()),
            body: delivery.body_digest(),
            other_body: self.other_body(delivery).into(),
            request: Head::of(request).keep(delivery),
            ordering_key: self.settings.order_by.as_ref().and_then(|order_by| order_by.ordering_key(delivery)),
            quarantine,
        }
    }

    fn repeat(&self, key: &ReceiptKey, repeat: Repeat) -> Handled {
        if repeat.same_body {
            debug!(key = %key.key, "a repeat was answered with the stored result");
        } else {
            warn!(key = %key.key, "a repeat with another body was answered with the stored result");
        }
        match answer::replay(repeat) {
            Some(response) => (Received::Replayed, response),
            None => {
                let kind = match self.settings.run.limits.unclear {
                    Unclear::RunAgain => RejectionKind::GaveUp,
                    // Nothing else ends without an answer.
                    Unclear::Hold => RejectionKind::OutcomeUnclear,
                };
                (Received::GivenUp, Rejection::new(kind).into_response())
            }
        }
    }

    fn refuse_other_body(&self, key: &ReceiptKey, delivery: &Delivery) -> Handled {
        warn!(key = %key.key, "a known id was delivered with another body, and refused");
        let refusal = Rejection::new(RejectionKind::OtherBody)
            .with_status(self.other_body(delivery).status().unwrap_or(StatusCode::CONFLICT));
        (Received::OtherBody, refusal.into_response())
    }

    fn unreachable(&self, error: &StoreError) -> Handled {
        error!(%error, consumer = %self.settings.consumer, "the store could not be asked, so the event was not taken");
        let refusal = Rejection::new(RejectionKind::StoreUnavailable(error.to_string()));
        (Received::StoreUnavailable, refusal.into_response())
    }

    fn in_flight_status(&self, delivery: &Delivery) -> StatusCode {
        let of_scheme = || delivery.scheme().map_or(StatusCode::CONFLICT, Scheme::in_flight_status);
        self.settings.in_flight_status.unwrap_or_else(of_scheme)
    }

    fn lease(&self, delivery: &Delivery) -> Duration {
        let of_scheme = || delivery.scheme().map_or(Scheme::USUAL_LEASE, Scheme::lease);
        self.settings.lease.unwrap_or_else(of_scheme)
    }

    fn wait(&self, delivery: &Delivery) -> Duration {
        let of_scheme = || delivery.scheme().map_or(Scheme::USUAL_WAIT, Scheme::in_flight_wait);
        self.settings.wait.unwrap_or_else(of_scheme)
    }

    fn other_body(&self, delivery: &Delivery) -> OtherBodyAnswer {
        let of_scheme = || delivery.scheme().map_or(OtherBodyAnswer::Replay, OtherBodyAnswer::of);
        self.settings.other_body.unwrap_or_else(of_scheme)
    }
}

/// What became of a delivery, and what its sender is told.
type Handled = (Received, Response<ResponseBody>);

fn quarantined(key: ReceiptKey, delivery: &Delivery, reason: String) -> Notice {
    let ReceiptKey { consumer, source, key } = key;
    let event_id = delivery.event_id().cloned();
    Notice::EventQuarantined { consumer, source, key: key.to_string(), event_id, reason }
}

/// 202, and nothing to read.
fn in_good_hands() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Longest pause between two looks at an event that another delivery runs.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
