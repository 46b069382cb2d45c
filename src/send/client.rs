//! The HTTP client: pooled connections, one request, one bounded answer.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::connector::{Connector, Dialled};
use super::transport::SendFuture;
use super::{Answer, Ending, Failure, Guard, Outgoing, Redirect, Stage, Target};
use crate::ConfigError;

/// Sends messages over HTTP/1.1 and HTTP/2, to targets that its [`Guard`] lets through.
///
/// Connections are kept and used again: for 4 seconds, which is less than most servers keep them, so that few requests
/// meet a connection that was just closed. A request that met one is sent again at once if none of it was written; if
/// some of it was, the receiver may have it, and the attempt has failed.
///
/// Redirects are not followed, answers are not decompressed, and no proxy is used, whatever the environment says.
///
/// It is a Tower service of [`Outgoing`], and cheap to clone; clones share their connections.
///
/// ```no_run
/// # async fn example(tls: rustls::ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use countersign::send::{Guard, HttpTransport, Outgoing, Policy, Transport};
/// use http::HeaderMap;
///
/// // With defaults: the process's crypto provider, the system's certificates.
/// let transport = HttpTransport::builder(Guard::new(Policy::new())).build()?;
/// let answer = transport.send(Outgoing::new("https://example.com/hook", HeaderMap::new(), "{}")).await?;
/// println!("{answer}");
///
/// // With settings of your own.
/// let policy = Policy::new().with_exception("hooks.internal:8443".parse()?);
/// let transport = HttpTransport::builder(Guard::new(policy))
///     .tls(tls)
///     .connect_timeout(Duration::from_secs(2))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpTransport {
    client: Client<Connector, Payload>,
    guard: Guard,
}

/// Settings of an [`HttpTransport`].
#[derive(Debug)]
#[must_use]
pub struct HttpTransportBuilder {
    guard: Guard,
    tls: Option<ClientConfig>,
    connect_timeout: Duration,
    tls_timeout: Duration,
    idle_timeout: Duration,
}

impl HttpTransport {
    /// Begins with the defaults.
    pub fn builder(guard: Guard) -> HttpTransportBuilder {
        HttpTransportBuilder {
            guard,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            tls_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
        }
    }

    async fn attempt(self, outgoing: Outgoing) -> Result<Answer, Failure> {
        let began = Instant::now();
        let total = began + outgoing.total_timeout.min(LONGEST);
        let head = began + outgoing.head_timeout.min(LONGEST);

        // Also where a connection is at hand: the target may be another one than that of the last attempt.
        let target: Target = outgoing.url.parse()?;
        self.guard.policy().check(&target)?;

        let sent = Sent::default();
        let request = request(&target, &outgoing, sent.clone());
        let response = match timeout_at(head.min(total), self.client.request(request)).await {
            Ok(response) => response.map_err(|error| failure(&error))?,
            Err(_elapsed) => return Err(Failure::Timeout(sent.stage())),
        };
        Ok(answer(&target, response, total, outgoing.answer_limit).await)
    }
}

impl HttpTransportBuilder {
    /// How long connecting may take, after the look-up. 5 seconds by default. If the name has several addresses, that is
    /// for all of them.
    pub const fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How long an unused connection is kept. 4 seconds by default.
    pub const fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle_timeout = time;
        self
    }

    /// How to encrypt, and whom to trust. By default the process's [`CryptoProvider`] and the certificates that the
    /// operating system trusts. Where no protocols (ALPN) are set, HTTP/2 and HTTP/1.1 are.
    pub fn tls(mut self, tls: ClientConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long it may take to agree on encryption. 5 seconds by default.
    pub const fn tls_timeout(mut self, time: Duration) -> Self {
        self.tls_timeout = time;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoCryptoProvider`] and [`ConfigError::NoRootCertificates`], where [`tls`](Self::tls) was not called
    /// and there is nothing to take by default.
    pub fn build(self) -> Result<HttpTransport, ConfigError> {
        let mut tls = self.tls.map_or_else(default_tls, Ok)?;
        if tls.alpn_protocols.is_empty() {
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        let connector = Connector {
            guard: self.guard.clone(),
            tls: Arc::new(tls).into(),
            connect_timeout: self.connect_timeout.min(LONGEST),
            tls_timeout: self.tls_timeout.min(LONGEST),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(self.idle_timeout.min(LONGEST))
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            // "Canceled" is a request of which nothing was written.
            .retry_canceled_requests(true)
            .http1_max_buf_size(MAX_HEAD_BYTES as usize)
            // A 2xx that cannot be read is sent again: what is odd but clear is read.
            .http1_max_headers(MAX_HEADERS)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http2_max_header_list_size(MAX_HEAD_BYTES)
            // A connection that leads nowhere any more must not take every request of its host with it.
            .http2_keep_alive_interval(Some(Duration::from_secs(10)))
            .http2_keep_alive_timeout(Duration::from_secs(10))
            .build(connector);
        Ok(HttpTransport { client, guard: self.guard })
    }
}

impl Service<Outgoing> for HttpTransport {
    type Response = Answer;
    type Error = Failure;
    type Future = SendFuture<'static>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, outgoing: Outgoing) -> Self::Future {
        Box::pin(self.clone().attempt(outgoing))
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// So far ahead that no message waits for it, and not so far that a moment overflows.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How large an answer's head may be.
const MAX_HEAD_BYTES: u32 = 64 * 1024;

/// How many headers an answer may have, within those bytes. Room for all of them is made for each answer, 64 bytes for
/// each.
const MAX_HEADERS: usize = 1_024;

/// More than a dispatcher has attempts under way at one host: else each burst would close what the next one needs. Only
/// what was used within the idle time is kept, so that a smaller bound would save little.
const MAX_IDLE_PER_HOST: usize = 1_024;

fn default_tls() -> Result<ClientConfig, ConfigError> {
    // Which one is the application's choice.
    let provider = CryptoProvider::get_default().cloned().ok_or(ConfigError::NoCryptoProvider)?;

    let mut roots = RootCertStore::empty();
    let (usable, _unusable) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if usable == 0 {
        return Err(ConfigError::NoRootCertificates);
    }
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|_unusable| ConfigError::NoCryptoProvider)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn request(target: &Target, outgoing: &Outgoing, sent: Sent) -> Request<Payload> {
    let mut request = Request::new(Payload { bytes: Some(outgoing.body.clone()), sent });
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = target.uri().clone();
    *request.headers_mut() = outgoing.headers.clone();
    strip(request.headers_mut());
    request
}

/// Takes off what the connection writes itself. A length that is not the body's would let one request pass for two.
fn strip(headers: &mut HeaderMap) {
    const OF_THE_CONNECTION: [HeaderName; 9] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
}

/// Reads what is kept of an answer. Nothing that goes wrong here takes the status back.
async fn answer(target: &Target, response: Response<Incoming>, until: Instant, limit: usize) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut kept = BytesMut::new();
    let ending = loop {
        match timeout_at(until, body.frame()).await {
            Ok(None) => break Ending::Complete,
            Ok(Some(Ok(frame))) => {
                // Trailers say nothing that counts.
                let Ok(data) = frame.into_data() else { continue };
                let room = limit - kept.len();
                if data.len() > room {
                    kept.extend_from_slice(data.get(..room).unwrap_or_default());
                    break Ending::Cut;
                }
                kept.extend_from_slice(&data);
            }
            Ok(Some(Err(_failed))) => break Ending::Failed,
            Err(_elapsed) => break Ending::TimedOut,
        }
    };
    let redirect = Redirect::read(target, head.status, &head.headers);
    let address = head.extensions.get::<Dialled>().map(|dialled| dialled.0);
    Answer { status: head.status, headers: head.headers, body: kept.freeze(), ending, redirect, address }
}

/// What an error of the client means.
fn failure(error: &legacy::Error) -> Failure {
    // The connector's own word for it, where it was its.
    if let Some(failure) = causes(error).find_map(|cause| cause.downcast_ref::<Failure>()) {
        return failure.clone();
    }
    let text = whole_text(error);
    match causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
        Some(cause) if cause.is_user() => Failure::Request(text),
        Some(cause) if cause.is_parse() => Failure::Protocol(text),
        // Only what HTTP/2 asks after a connection: whether it still leads anywhere.
        Some(cause) if cause.is_timeout() => Failure::Timeout(Stage::Head),
        Some(_) => Failure::Closed(text),
        None => Failure::Request(text),
    }
}

/// What was wrong, in full. The client's own error only names the kind, and its causes say what it was.
fn whole_text(error: &legacy::Error) -> String {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// A message's bytes, in one piece.
struct Payload {
    bytes: Option<Bytes>,
    sent: Sent,
}

/// Whether the connection has asked for a request's body: it is made by then, and the head is written or about to be.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicBool>);

impl Sent {
    fn stage(&self) -> Stage {
        if self.0.load(Ordering::Relaxed) { Stage::Head } else { Stage::Connect }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.sent.0.store(true, Ordering::Relaxed);
        Poll::Ready(self.bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    // It has no end before it was asked for, so that it is asked for even where it is empty.
    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
