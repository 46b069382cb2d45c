//! Sockets: accept, speak HTTP/1.1 or HTTP/2, and stop without cutting anybody off.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
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
use tower_service::Service;
use tracing::{debug, warn};

use crate::error::CliError;

/// How long a client may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Most connections at one time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 8_192;

/// Serves until `stop` resolves, then lets the requests that run end, for at most `grace`.
pub(crate) async fn serve<S, B>(listener: TcpListener, service: S, stop: impl Future<Output = ()>, grace: Duration)
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
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
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
            (slot, Ok((stream, _peer))) => (slot, stream),
            (_, Err(error)) => {
                // Out of file descriptors, say: give the connections that are open a moment to end.
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (slot, stream) = stream;
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "TCP_NODELAY was not set");
        }
        let http = Arc::clone(&http);
        let service = TowerToHyperService::new(service.clone());
        let watcher = connections.watcher();
        tokio::spawn(async move {
            if !has_spoken(&stream).await {
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
    if tokio::time::timeout(grace, connections.shutdown()).await.is_err() {
        warn!("some connections were still open after {grace:?} and are cut off");
    }
}

/// SIGTERM and SIGINT, listened for from the moment this is made.
#[derive(Debug)]
pub(crate) struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::unreachable(format!("signals cannot be listened for: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Resolves at the first of them.
    pub(crate) async fn received(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits until a client has sent something, so that those that never do hold no place for long.
async fn has_spoken(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(tokio::time::timeout(HEAD_TIME, stream.peek(&mut first)).await, Ok(Ok(read)) if read > 0)
}
