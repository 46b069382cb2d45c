//! Second step of the walk: [`VerifyLayer`] lets through what is signed, fresh and whole, and nothing else.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body::Body;
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, warn};

use super::body::{self, BodyError, Limits, Whole};
use super::delivery::Source;
use super::handshake::{self, Handshakes};
use super::measure::{self, Received};
use super::public_url::{PublicUrl, Trusted, original_uri};
use super::response::BoxError;
use super::{Delivery, HookRegistration, Rejection, RejectionKind, ResponseBody, VerifiedBody};
use crate::signature::{Head, Verifier, VerifyError};
use crate::telemetry::Traceparent;
use crate::{ConfigError, Digest, Name, Secret};

/// Checks signature and replay window of every request, whatever its method and path.
///
/// What is refused is refused on the headers alone where that is possible, before the body is read; else as soon as
/// the body is whole. What passes goes on as a [`Request<VerifiedBody>`](VerifiedBody) with a [`Delivery`] in its
/// extensions. See the [module](super) for examples.
///
/// The limit on the body set here is the only one that counts behind it: axum's own default limit is lifted.
/// The body of a refused request is read and dropped, up to 32 MiB and 5 seconds, so that a client that sends before it
/// reads gets the answer and no reset connection.
///
/// A request with both `Content-Length` and `Transfer-Encoding` is refused with 400 where both are visible. hyper drops
/// the former and closes the connection after the answer, so there the request passes and nothing can hide behind it.
///
/// Handshakes, by which a provider learns that the endpoint is there, are answered here, and no handler sees them: those of
/// the verifier's [`Scheme`](crate::signature::Scheme::handshakes). A GET or HEAD that is none is refused like any request
/// without a signature.
///
/// The inner service's place is taken while the body is still arriving, as Tower's readiness has it: a limit on
/// concurrency inside this layer counts requests that are not verified yet.
#[derive(Clone, Debug)]
pub struct VerifyLayer(Arc<Gate>);

/// Settings of a [`VerifyLayer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct VerifyLayerBuilder {
    source: String,
    verifier: Verifier,
    limits: Limits,
    public_url: Option<PublicUrl>,
    trusted: Option<Trusted>,
    stale: Stale,
    verify_token: Option<Secret>,
    registration: Option<HookRegistration>,
}

/// What becomes of a request that is rightly signed, but whose timestamp lies outside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// It is refused like a forged one. The default.
    #[default]
    Refuse,
    /// A [`ReceiveLayer`](super::ReceiveLayer) keeps it in the inbox for a person to look at, and answers 202, whatever is
    /// known of the event. It is not run before an operator retries it.
    ///
    /// For senders whose events must not get lost in an outage that outlasts the window. Whoever has captured a request can
    /// have it kept again, even once the event was forgotten: look before you retry. A [`VerifyLayer`] alone has no inbox,
    /// and refuses.
    Quarantine,
}

/// Everything that a check needs, shared by all requests.
#[derive(Debug)]
struct Gate {
    source: Arc<Source>,
    /// The same with the secret of a registration, once there is one.
    registered: OnceLock<Arc<Source>>,
    handshakes: Handshakes,
    limits: Limits,
    /// A permit for each byte.
    room: Arc<Semaphore>,
    public_url: Option<PublicUrl>,
    trusted: Option<Trusted>,
    stale: Stale,
}

impl VerifyLayer {
    /// A layer with the default limits: 2 MiB, to be read within 30 seconds.
    ///
    /// `source` is your name for the sender and endpoint. Events of one source are told apart by their ids alone, so
    /// give each endpoint, account or tenant a name of its own.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] where the name cannot be used, or the scheme signs the URL: set one with
    /// [`VerifyLayer::builder`].
    pub fn new(source: &str, verifier: Verifier) -> Result<Self, ConfigError> {
        Self::builder(source, verifier).build()
    }

    /// A layer with settings of your own.
    pub fn builder(source: &str, verifier: Verifier) -> VerifyLayerBuilder {
        VerifyLayerBuilder {
            source: source.to_owned(),
            verifier,
            limits: Limits { bytes: 2 * 1024 * 1024, time: Duration::from_secs(30), unverified: 256 * 1024 * 1024 },
            public_url: None,
            trusted: None,
            stale: Stale::default(),
            verify_token: None,
            registration: None,
        }
    }

    /// The service of a layer around an inbox, which knows what to do with what is stale.
    pub(super) fn around_inbox<S>(&self, inner: S) -> Verify<S> {
        Verify { stale: self.0.stale, ..self.layer(inner) }
    }

    /// What checks the requests, as it was given.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        &self.0.source.verifier
    }
}

impl VerifyLayerBuilder {
    /// The largest body that is accepted, in bytes. 2 MiB by default; larger ones are answered 413.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// How much memory all bodies together may take whose signatures are not checked yet, in bytes. 256 MiB by default,
    /// and never less than one body may have; what does not fit is answered 503.
    pub fn unverified_limit(mut self, bytes: usize) -> Self {
        self.limits.unverified = bytes;
        self
    }

    /// How long a body may take, from the end of the headers to its last byte. 30 seconds by default; slower ones are
    /// answered 408.
    pub fn body_timeout(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// Scheme, host and, where it is not the default one, port, under which the sender knows this endpoint, for
    /// schemes that sign the URL: `https://hooks.example.com`. Path and query are those of the request, before any
    /// router took a prefix away. Neither `Host` nor `X-Forwarded-*` is ever believed.
    pub fn public_url(mut self, base: &str) -> Self {
        self.public_url = Some(PublicUrl::Base(base.trim_end_matches('/').to_owned()));
        self
    }

    /// The whole URL, to the letter, as it was given to the sender, for schemes that sign it.
    pub fn exact_url(mut self, url: &str) -> Self {
        self.public_url = Some(PublicUrl::Exact(url.to_owned()));
        self
    }

    /// Believes `X-Forwarded-Proto` and `X-Forwarded-Host` of requests that `trusted` says came through a proxy of your
    /// own, for schemes that sign the URL and endpoints with several hosts. Nobody is trusted by default: who can set
    /// these headers chooses the URL that a signature is checked for.
    ///
    /// `trusted` sees the head: your server may have put the peer's address into its extensions. Both headers have to be
    /// there, once each; else the configured URL counts.
    pub fn trust_forwarded(mut self, trusted: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.trusted = Some(Trusted(Arc::new(trusted)));
        self
    }

    /// What becomes of a request that is rightly signed, but stale.
    pub fn stale(mut self, stale: Stale) -> Self {
        self.stale = stale;
        self
    }

    /// The token that you gave to the provider beside the secret, for those that send it along with their challenge. Meta
    /// does; without it, its GET is refused.
    pub fn verify_token(mut self, token: Secret) -> Self {
        self.verify_token = Some(token);
        self
    }

    /// Takes the secret that the sender makes up, while this is open. Asana does that.
    pub fn hook_registration(mut self, registration: &HookRegistration) -> Self {
        self.registration = Some(registration.clone());
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which of them cannot work.
    pub fn build(self) -> Result<VerifyLayer, ConfigError> {
        let name = Name::new(&self.source).map_err(|reason| ConfigError::Name { what: "source", reason })?;
        if self.public_url.is_none() && self.trusted.is_none() && self.verifier.scheme().signs_url() {
            return Err(ConfigError::PublicUrlMissing);
        }
        if let Some(url) = self.public_url.as_ref().and_then(PublicUrl::fault) {
            return Err(ConfigError::PublicUrl(url.to_owned()));
        }
        let kinds = self.verifier.scheme().handshakes();
        let handshakes = Handshakes::new(kinds, self.verify_token, self.registration);
        measure::begin(&name);
        let source = Arc::new(Source { name, verifier: self.verifier });
        let room = self.limits.unverified.max(self.limits.bytes).min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(room));
        let Self { limits, public_url, trusted, stale, .. } = self;
        let registered = OnceLock::new();
        Ok(VerifyLayer(Arc::new(Gate { source, registered, handshakes, limits, room, public_url, trusted, stale })))
    }
}

impl<S> Layer<S> for VerifyLayer {
    type Service = Verify<S>;

    fn layer(&self, inner: S) -> Verify<S> {
        Verify { gate: Arc::clone(&self.0), stale: Stale::Refuse, inner }
    }
}

/// The service of a [`VerifyLayer`].
#[derive(Clone, Debug)]
pub struct Verify<S> {
    gate: Arc<Gate>,
    stale: Stale,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Verify<S>
where
    S: Service<Request<VerifiedBody>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + Unpin + 'static,
    B::Data: Into<Bytes> + Send,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = S::Error;
    type Future = VerifyFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone has not been polled ready: it stays here, and the one that was is called.
        let unready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready);
        let (gate, stale) = (Arc::clone(&self.gate), self.stale);
        let trace = Traceparent::of(request.headers());
        let span = tracing::info_span!(
            "verify",
            source = %gate.source.name,
            trace_id = trace.as_ref().map(Traceparent::trace_id),
            parent_id = trace.as_ref().map(Traceparent::parent_id),
        );
        let walk = async move {
            match gate.admit(request, stale).await {
                Ok(request) => Ok(inner.call(request).await?.map(ResponseBody::stream)),
                Err(Turned::Refused(rejection)) => {
                    measure::turned_away(&gate.source.name, rejection.kind());
                    Ok(rejection.into_response())
                }
                Err(Turned::Answered(response)) => {
                    measure::received(&gate.source.name, Received::Handshake);
                    Ok(*response)
                }
            }
        };
        VerifyFuture { walk: Box::pin(walk.instrument(span)) }
    }
}

/// The future of a [`Verify`] service.
pub struct VerifyFuture<E> {
    walk: Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, E>> + Send>>,
}

impl<E> Future for VerifyFuture<E> {
    type Output = Result<Response<ResponseBody>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.walk.as_mut().poll(cx)
    }
}

impl<E> fmt::Debug for VerifyFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifyFuture")
    }
}

/// A request that goes no further.
enum Turned {
    Refused(Rejection),
    /// It was a handshake.
    Answered(Box<Response<ResponseBody>>),
}

impl From<Rejection> for Turned {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(rejection)
    }
}

impl From<handshake::Answer> for Turned {
    fn from(answer: handshake::Answer) -> Self {
        match answer {
            Ok(response) => Self::Answered(Box::new(response)),
            Err(rejection) => {
                warn!(detail = %rejection.kind(), "a handshake was refused");
                Self::Refused(rejection)
            }
        }
    }
}

impl Gate {
    /// Headers, then body, then signature, then window. Handshakes as soon as they show themselves.
    async fn admit<B>(&self, request: Request<B>, stale: Stale) -> Result<Request<VerifiedBody>, Turned>
    where
        B: Body + Unpin,
        B::Data: Into<Bytes>,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        if parts.headers.contains_key(header::TRANSFER_ENCODING) && parts.headers.contains_key(header::CONTENT_LENGTH) {
            // Two lengths for one body: somebody in front of us may have believed the other one.
            let error = BodyError::Incomplete("both Content-Length and Transfer-Encoding were sent".into());
            return Err(unread(error).into());
        }

        let source = self.source();
        if let Some(answer) = self.handshakes.answer_head(&parts, &source.verifier) {
            body::drain_unread(&parts.headers, body).await;
            return Err(answer.into());
        }
        let url = self.url(&parts);
        let mut check = match source.verifier.begin(Head::new(&parts.method, &url, &parts.headers)) {
            Ok(check) => check,
            Err(error) if self.handshakes.may_be_unsigned(&parts, &source.verifier) => {
                return Err(self.answer_unsigned(&parts, &url, body, error).await);
            }
            Err(error) => {
                body::drain_unread(&parts.headers, body).await;
                return Err(self.refuse(&parts, &url, None, error).into());
            }
        };

        // The share is given back at the end of this function, when the body has been checked.
        let Whole { bytes: body, share: _share } =
            body::read(&parts.headers, body, |chunk| check.update(chunk), self.limits, &self.room)
                .await
                .map_err(unread)?;

        let (verified, outside) = match check.judge(&body) {
            Ok((_, Some(error))) if stale == Stale::Refuse => {
                return Err(self.refuse(&parts, &url, Some(&body), error).into());
            }
            Ok(judged) => judged,
            Err(error) => return Err(self.refuse(&parts, &url, Some(&body), error).into()),
        };
        if let Some(answer) = self.handshakes.answer_signed(&body, &source.verifier) {
            return Err(match outside {
                // There is nothing in it to look at later.
                Some(error) => self.refuse(&parts, &url, Some(&body), error).into(),
                None => answer.into(),
            });
        }
        let delivery = Delivery::assertion(Arc::clone(source), verified, body);
        describe(&mut parts, &delivery);
        let body = match outside {
            None => VerifiedBody::new(delivery),
            Some(outside) => VerifiedBody::stale(delivery, outside),
        };
        Ok(Request::from_parts(parts, body))
    }

    /// A request without a signature: a handshake of a provider that signs none, or nothing.
    async fn answer_unsigned<B>(&self, parts: &Parts, url: &str, body: B, error: VerifyError) -> Turned
    where
        B: Body + Unpin,
        B::Data: Into<Bytes>,
        B::Error: Into<BoxError>,
    {
        let limits = Limits { bytes: self.limits.bytes.min(handshake::MAX_BODY_BYTES), ..self.limits };
        let verifier = &self.source().verifier;
        // What is larger, slower or cut off is no handshake.
        let whole = body::read(&parts.headers, body, |_| {}, limits, &self.room).await.ok();
        match whole.as_ref().and_then(|whole| self.handshakes.answer_unsigned(&whole.bytes, verifier)) {
            Some(answer) => answer.into(),
            None => self.refuse(parts, url, whole.as_ref().map(|whole| &whole.bytes), error).into(),
        }
    }

    fn source(&self) -> &Arc<Source> {
        if let Some(registered) = self.registered.get() {
            return registered;
        }
        let secret = self.handshakes.registration.as_ref().and_then(HookRegistration::secret);
        match secret.map(|secret| self.source.verifier.with_secret(secret)) {
            Some(Ok(verifier)) => {
                self.registered.get_or_init(|| Arc::new(Source { name: self.source.name.clone(), verifier }))
            }
            Some(Err(_)) | None => &self.source,
        }
    }

    /// The URL as the sender wrote it, where the scheme signs it; else nothing.
    fn url(&self, parts: &Parts) -> Cow<'_, str> {
        let with_target = |base: &str| {
            let target = original_uri(&parts.extensions, &parts.uri).path_and_query();
            Cow::Owned(format!("{base}{}", target.map_or("/", |target| target.as_str())))
        };
        if let Some(base) = self.trusted.as_ref().and_then(|trusted| trusted.base(parts)) {
            return with_target(&base);
        }
        match &self.public_url {
            None => Cow::Borrowed(""),
            Some(PublicUrl::Exact(url)) => Cow::Borrowed(url),
            Some(PublicUrl::Base(base)) => with_target(base),
        }
    }

    /// What may be wrong on this side, where a signature does not fit. `is_empty`: the body is.
    fn hint(&self, parts: &Parts, is_empty: bool) -> Option<&'static str> {
        if is_empty {
            return Some("the body is empty; if it was not sent empty, a layer in front of the check has read it");
        }
        let signs_url = self.source.verifier.scheme().signs_url();
        self.trusted.as_ref().filter(|_| signs_url).and_then(|trusted| trusted.lack(parts))
    }

    /// Says in the log what helps to find the fault, and nothing that helps to forge: no secret, no signature, no
    /// payload, no query.
    fn refuse(&self, parts: &Parts, url: &str, body: Option<&Bytes>, error: VerifyError) -> Rejection {
        let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(beginning);
        let body_digest = body.map(|body| Digest::of(body).to_string());
        let taken = matches!(error, VerifyError::Mismatch { .. }) && body.is_some_and(Bytes::is_empty);
        warn!(
            scheme = self.source.verifier.scheme().name(),
            reason = error.reason(),
            detail = %error,
            path = beginning(original_uri(&parts.extensions, &parts.uri).path()),
            signed_url = url.split('?').next().filter(|url| !url.is_empty()).map(beginning),
            body_bytes = body.map(Bytes::len),
            announced_bytes = body::content_length(&parts.headers),
            body_sha256 = body_digest.as_deref().and_then(|digest| digest.get(..16)),
            content_type = text(header::CONTENT_TYPE),
            content_encoding = text(header::CONTENT_ENCODING),
            hint = self.hint(parts, taken),
            "a request was refused"
        );
        let rejection = Rejection::new(RejectionKind::Unverified(error));
        if self.handshakes.tries_wrong_signatures() { rejection.without_body() } else { rejection }
    }
}

/// As much of a text as helps. The sender of the request may have made it as long as a head can be.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(200)).unwrap_or_default()
}

/// Cause of a body that could not be read → rejection.
fn unread(error: BodyError) -> Rejection {
    let kind = match error {
        BodyError::Incomplete(error) => RejectionKind::BodyIncomplete(error.to_string()),
        BodyError::NoRoom => RejectionKind::Overloaded,
        BodyError::Taken(length) => RejectionKind::BodyTaken(length),
        BodyError::TooLarge => RejectionKind::BodyTooLarge,
        BodyError::TooSlow => RejectionKind::BodyTooSlow,
    };
    warn!(detail = %kind, "a request was refused");
    Rejection::new(kind)
}

/// Makes the head agree with the body that now follows it, and puts the delivery where extractors look for it.
pub(super) fn describe(parts: &mut Parts, delivery: &Delivery) {
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.remove(header::TRAILER);
    if body::content_length(&parts.headers) != Some(delivery.body().len() as u64) {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(delivery.body().len()));
    }
    parts.extensions.insert(delivery.clone());
    #[cfg(feature = "axum")]
    {
        let mut carrier = Request::new(());
        std::mem::swap(carrier.extensions_mut(), &mut parts.extensions);
        axum::extract::DefaultBodyLimit::disable().apply(&mut carrier);
        std::mem::swap(carrier.extensions_mut(), &mut parts.extensions);
    }
}
