//! The second half of deferred mode: [`Processor`] runs what was accepted.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response, Uri};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;
use tracing::{Instrument, debug, error, error_span};

use super::measure;
use super::outcome::Limits;
use super::response::BoxError;
use super::run::{Ran, Run, RunSettings};
use super::settings::{at_least, check_lease};
use super::trace;
use super::verify::describe;
use super::watch::Inbox;
use super::{Arrivals, Delivery, Profile, VerifiedBody};
use crate::notice::Notices;
use crate::store::{Claim, Claimed, Failure, InboxStore, Lease, Settled, StoreError, Unclear};
use crate::telemetry::Traceparent;
use crate::work::{Backoff, Pace, Watched as _, Work, in_time, run_until, watch};
use crate::{ConfigError, EventId, Name};

/// Runs the events that a [`DedupLayer`](super::DedupLayer) in deferred mode has accepted, with retries of its own, however
/// impatient their senders are.
///
/// The service is one that a layer could be put around: a handler works in both modes. It finds the
/// [`Delivery`](super::Delivery) and the [`Reservation`](super::Reservation) where it always does, and the request as it
/// was kept: method, path, query, body, and the headers that are not credentials by their name. Its answer is the result:
/// repeats get it, and what is not a 2xx is tried again after a while, until the attempts are used up.
///
/// Any number of processors, in any number of processes, share the events of one consumer: each is run by one of them, and
/// by another one if that one dies.
///
/// ```
/// # #[cfg(feature = "axum")]
/// # async fn example(verify: countersign::receive::VerifyLayer) -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, http::StatusCode, routing::post};
/// use countersign::receive::{DedupLayer, Delivery, Processor, ReceiveLayer};
/// use countersign::store::MemoryStore;
///
/// async fn slow(delivery: Delivery) -> StatusCode {
///     StatusCode::NO_CONTENT
/// }
///
/// let store = MemoryStore::new();
/// let handlers = Router::new().route("/hooks", post(slow));
/// let receive = ReceiveLayer::new(verify, DedupLayer::builder(store.clone()).deferred().build()?)?;
/// let processor = Processor::builder(store, handlers.clone()).arrivals(receive.arrivals()).build()?;
///
/// let app = handlers.layer(receive);
/// let stop = tokio_util::sync::CancellationToken::new();
/// let processing = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
/// // Serve the app; when that has ended:
/// stop.cancel();
/// processing.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until it runs"]
pub struct Processor<S> {
    desk: Desk<S>,
    pace: Pace,
    arrivals: Arrivals,
    notices: Notices,
}

/// Settings of a [`Processor`].
#[derive(Clone)]
#[must_use]
pub struct ProcessorBuilder<S> {
    store: Arc<dyn InboxStore>,
    service: S,
    consumer: String,
    lease_for: Duration,
    run: RunSettings,
    backoff: Backoff,
    pace: Pace,
    arrivals: Arrivals,
    notices: Notices,
}

impl<S, R> Processor<S>
where
    S: Service<Request<VerifiedBody>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    /// Begins to set up a processor of the events in this store. Each run calls a clone of the service, once that is ready.
    pub fn builder(store: impl InboxStore, service: S) -> ProcessorBuilder<S> {
        ProcessorBuilder {
            store: Arc::new(store),
            service,
            consumer: "default".to_owned(),
            lease_for: Duration::from_secs(30),
            run: RunSettings::default(),
            backoff: Backoff::default(),
            pace: Pace { slots: 16, poll: Duration::from_secs(1), grace: Duration::from_secs(30) },
            arrivals: Arrivals::default(),
            notices: Notices::default(),
        }
    }

    /// Runs events until `shutdown` resolves; then claims no more, waits for those that run, and gives back those that
    /// have not ended within the grace.
    ///
    /// A store that fails, and a handler that panics, do not end it.
    ///
    /// # Cancel safety
    ///
    /// Where this is dropped, the handlers that run are dropped too, and their events run again when their leases end.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut inbox = Inbox::new(Arc::clone(&self.desk.store), self.desk.consumer.clone());
        tokio::select! {
            biased;
            () = run_until(Arc::new(self.desk), self.pace, self.arrivals.hint(), shutdown) => {}
            never = watch(&mut inbox, &self.notices) => match never {},
        }
        // What was given up at the very end is told as well: the next process may begin much later.
        if self.notices.is_heard() {
            inbox.look(&self.notices).await;
        }
    }
}

impl<S> ProcessorBuilder<S> {
    /// Looks for events at once when this layer has accepted one.
    pub fn arrivals(mut self, arrivals: &Arrivals) -> Self {
        self.arrivals = arrivals.clone();
        self
    }

    /// How long a failed event waits for its next run. One second at first, up to one hour, by default.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How many events are run at one time. 16 by default.
    pub fn concurrency(mut self, events: u32) -> Self {
        self.pace.slots = events;
        self
    }

    /// Whose events are run: the name that the layer has. `default` by default.
    ///
    /// They are the events of all sources of that consumer: the service must be the one that handles each of them. Layers
    /// whose events go to different services are different consumers.
    pub fn consumer(mut self, name: &str) -> Self {
        name.clone_into(&mut self.consumer);
        self
    }

    /// How long events that run may take once the processor is to stop. 30 seconds by default. After that they are
    /// dropped and given back, for another processor to run them.
    pub fn grace(mut self, time: Duration) -> Self {
        self.pace.grace = time;
        self
    }

    /// How long a handler may take, its readiness and its answer's body included. 60 seconds by default. After that it is
    /// dropped, and the run has failed. One that blocks its thread cannot be dropped.
    pub fn handler_timeout(mut self, time: Duration) -> Self {
        self.run.handler_timeout = time;
        self
    }

    /// How long a run is protected from being taken for dead. It is renewed while the handler runs, so this is how long
    /// an event waits after a crash. 30 seconds by default, 1 at least.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease_for = lease;
        self
    }

    /// How often an event is run before it is a dead letter. 20 by default: with the usual backoff, for eight hours at
    /// least.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.run.limits.max_attempts = attempts;
        self
    }

    /// Settings for what a second run of an event would cost, by name: those of the layer. [`Profile::Standard`] by default.
    ///
    /// With [`Profile::Strict`], an event that is dropped at the end of the grace is held too, and not given back.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.run.limits.unclear = profile.unclear();
        self
    }

    /// Who is told what a person should know of this consumer's events, see [`watch_forever`](super::watch_forever).
    pub fn notices(mut self, notices: &Notices) -> Self {
        self.notices = notices.clone();
        self
    }

    /// How often to look for events that are due, up to half as much again by chance. One second by default.
    pub fn poll(mut self, time: Duration) -> Self {
        self.pace.poll = time;
        self
    }

    /// The largest body of an answer that is kept for repeats, in bytes. 64 KiB by default.
    pub fn result_limit(mut self, bytes: usize) -> Self {
        self.run.keep_result.body_bytes = bytes;
        self
    }

    /// Headers of an answer that are kept for repeats, beside the usual ones.
    /// See [`DedupLayerBuilder::result_headers`](super::DedupLayerBuilder::result_headers).
    pub fn result_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.run.keep_result.headers = names.into_iter().collect();
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which of them cannot work.
    pub fn build(mut self) -> Result<Processor<S>, ConfigError> {
        let consumer = Name::new(&self.consumer).map_err(|reason| ConfigError::Name { what: "consumer", reason })?;
        check_lease(self.lease_for)?;
        self.run.check()?;
        at_least("poll", self.pace.poll, Duration::from_millis(1))?;
        if self.pace.slots == 0 {
            return Err(ConfigError::NoConcurrency);
        }
        self.run.backoff = Some(self.backoff);
        let Self { store, service, lease_for, run, pace, arrivals, notices, .. } = self;
        let desk = Desk { store, service, consumer, lease_for, run };
        Ok(Processor { desk, pace, arrivals, notices })
    }
}

impl<S> fmt::Debug for Processor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("consumer", &self.desk.consumer)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for ProcessorBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorBuilder")
            .field("consumer", &self.consumer)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// What all runs share.
struct Desk<S> {
    store: Arc<dyn InboxStore>,
    service: S,
    consumer: Name,
    lease_for: Duration,
    run: RunSettings,
}

impl<S, R> Work for Desk<S>
where
    S: Service<Request<VerifiedBody>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    /// With when it was asked for.
    type Item = (Claimed, Instant);
    type Lease = Lease;

    async fn claim(&self, free: u32) -> Result<Vec<Self::Item>, StoreError> {
        let Limits { max_attempts, unclear } = self.run.limits;
        let claim =
            Claim { consumer: self.consumer.clone(), limit: free, lease: self.lease_for, max_attempts, unclear };
        let asked = Instant::now();
        let claimed = in_time(self.store.claim(claim)).await?;
        Ok(claimed.into_iter().map(|claimed| (claimed, asked)).collect())
    }

    fn lease(&self, (claimed, _): &Self::Item) -> Lease {
        claimed.lease.clone()
    }

    async fn run(&self, (claimed, asked): Self::Item) {
        let lease = claimed.lease.clone();
        let trace = Traceparent::of(&claimed.request.headers);
        let span = error_span!(
            "process",
            consumer = %lease.key.consumer,
            key = %lease.key.key,
            source = %lease.key.source,
            attempt = lease.attempt,
            event_id = claimed.event_id.as_ref().map(EventId::as_str),
            correlation_id = trace::correlation_id(&claimed.request.headers),
            causation_id = trace::causation_id(&claimed.request.headers),
            trace_id = trace.as_ref().map(Traceparent::trace_id),
            parent_id = trace.as_ref().map(Traceparent::parent_id),
        );
        async {
            let mut request = match rebuilt(claimed) {
                Ok(request) => request,
                Err(fault) => return self.set_aside(lease, fault).await,
            };
            let mut service = self.service.clone();
            let run =
                Run { store: &self.store, settings: &self.run, lease, lease_for: self.lease_for, asked, head: None };
            let key = run.lease.key.clone();
            let ran = run
                .through(&mut request, async move |request| {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                })
                .await;
            measure::ran(&key, &ran);
            let Ran { answer, is_end, .. } = ran;
            debug!(status = %answer.stored.status, is_end, "an event was run");
        }
        .instrument(span)
        .await;
    }

    async fn release(&self, lease: Lease) -> Result<Settled, StoreError> {
        match self.run.limits.unclear {
            Unclear::RunAgain => self.store.release(lease).await,
            // Its handler was at work.
            Unclear::Hold => {
                let (error, dead) = ("it was dropped before it had ended".to_owned(), Some(Unclear::HELD.to_owned()));
                let failure = Failure { error, result: None, dead, request: None, retry_in: None };
                self.store.fail(lease, failure).await
            }
        }
    }
}

impl<S> Desk<S> {
    /// No run of it can ever begin.
    async fn set_aside(&self, lease: Lease, fault: &'static str) {
        error!(fault, "an event cannot be run from what was kept of it, and is made a dead letter");
        let dead = Some(format!("the kept request cannot be run: {fault}"));
        let failure = Failure { error: fault.to_owned(), result: None, dead, request: None, retry_in: None };
        let key = lease.key.clone();
        match in_time(self.store.fail(lease, failure)).await {
            Ok(Settled::Done) => measure::set_aside(&key),
            Ok(Settled::LeaseLost) => {}
            Err(error) => error!(%error, "it could not be made one: it is tried again when its lease ends"),
        }
    }
}

/// The request as it was when it had been checked, as far as it was kept.
fn rebuilt(claimed: Claimed) -> Result<Request<VerifiedBody>, &'static str> {
    let delivery = Delivery::accepted(&claimed).ok_or("it does not say what was checked")?;
    let uri: Uri = claimed.request.target.parse().map_err(|_| "its target is none")?;
    let mut request = Request::new(VerifiedBody::new(delivery.clone()));
    *request.method_mut() = claimed.request.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = claimed.request.headers;
    let (mut parts, body) = request.into_parts();
    describe(&mut parts, &delivery);
    Ok(Request::from_parts(parts, body))
}
