//! Sockets: accept, speak HTTP/1.1 or HTTP/2, and stop without cutting anybody off.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use tracing::{debug, warn};

use crate::error::CliError;

/// How long a client may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Most connections at one time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 8_192;

/// A third of the files that may be open: each connection may need one to the application, and the store needs some.
fn max_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    files.map_or(MAX_CONNECTIONS, |files: usize| (files / 3).clamp(1, MAX_CONNECTIONS))
}

/// Serves until `stop` resolves, then lets the requests that run end, for at most `grace`. Returns what is left of it.
pub(crate) async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> Duration
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30)).max_concurrent_streams(128);
    let http = Arc::new(http);
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(max_connections()));
    let stopping = CancellationToken::new();
    let mut stop = std::pin::pin!(stop);

    loop {
        let accepted = tokio::select! {
            accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            } => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            (slot, Ok((stream, peer))) => (slot, stream, peer),
            (_, Err(error)) => {
                // Out of file descriptors, say: give the connections that are open a moment to end.
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (slot, stream, peer) = stream;
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "TCP_NODELAY was not set");
        }
        let http = Arc::clone(&http);
        let service =
            TowerToHyperService::new(FromPeer { peer: Peer(peer.ip().to_canonical()), inner: service.clone() });
        let watcher = connections.watcher();
        let stopping = stopping.clone();
        tokio::spawn(async move {
            let speaks = tokio::select! {
                speaks = speaks(&stream) => speaks,
                () = stopping.cancelled() => false,
            };
            if !speaks {
                return;
            }
            let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                debug!(%error, "a connection ended early");
            }
            drop(slot);
        });
    }

    drop(listener);
    stopping.cancel();
    let stopped = tokio::time::Instant::now();
    if tokio::time::timeout(grace, connections.shutdown()).await.is_err() {
        warn!("some connections were still open after {grace:?} and are cut off");
    }
    grace.saturating_sub(stopped.elapsed())
}

/// Who is at the other end of a connection: in the extensions of each of its requests. An IPv4 address is written as one,
/// whatever kind of socket it came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Says of each request whom it came from.
#[derive(Clone)]
struct FromPeer<S> {
    peer: Peer,
    inner: S,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for FromPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}

/// Whether a client says enough, in time, to tell HTTP/1.1 from HTTP/2. hyper waits for that without a limit, and a
/// client that says nothing would keep its place for ever.
async fn speaks(stream: &TcpStream) -> bool {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// Between two looks at a preface that came in part.
    const PAUSE: Duration = Duration::from_millis(50);
    let enough = async {
        let mut begun = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut begun).await {
                Ok(0) | Err(_) => return false,
                Ok(length)
                    if length < PREFACE.len() && begun.get(..length).is_some_and(|it| PREFACE.starts_with(it)) =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(_) => return true,
            }
        }
    };
    tokio::time::timeout(HEAD_TIME, enough).await.unwrap_or(false)
}

/// SIGTERM, SIGINT, and the SIGHUP of a terminal that was closed, listened for from the moment this is made.
#[derive(Debug)]
pub(crate) struct StopSignal {
    hang_up: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::unreachable(format!("signals cannot be listened for: {error}")))
        };
        let hang_up = listen(SignalKind::hangup())?;
        Ok(Self { hang_up, interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Resolves at the first of them.
    pub(crate) async fn received(mut self) {
        tokio::select! {
            _ = self.hang_up.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c114_a_client_that_does_not_say_what_it_speaks_loses_its_place() {
        for said in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
            let (mut client, server) = pair().await;
            client.write_all(said.as_bytes()).await.expect("it is sent");
            assert!(!speaks(&server).await, "{said:?}");
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_request_is_enough_and_is_not_taken_away() {
        for said in ["G", "POST / HTTP/1.1", "PROPFIND", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let (mut client, server) = pair().await;
            client.write_all(said.as_bytes()).await.expect("it is sent");
            assert!(speaks(&server).await, "{said:?}");
            let mut read = [0; 64];
            let length = server.try_read(&mut read).expect("it is there");
            assert_eq!(&read[..length], said.as_bytes());
        }
        let (client, server) = pair().await;
        drop(client);
        assert!(!speaks(&server).await);
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.expect("a connection"), server.expect("a connection").0)
    }
}
