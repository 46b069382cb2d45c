//! Connections, made to vetted addresses only.
//!
//! The pool asks here for each new connection, so a name is looked up and judged each time, and the address that passed
//! is the one that is dialled. A connection that is used again leads where it led.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::{Failure, Guard, Stage, Target};

/// Makes connections for the pool.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) guard: Guard,
    pub(super) tls: TlsConnector,
    pub(super) connect_timeout: Duration,
    pub(super) tls_timeout: Duration,
}

/// The address that was dialled, handed on with each answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialled(pub(super) SocketAddr);

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> Result<Link, Failure> {
        // The pool hands on scheme, host and port of a target: read again, they are themselves.
        let target: Target = uri.to_string().parse()?;
        let addresses = self.guard.vet(&target).await?;
        let tcp = match timeout(self.connect_timeout, dial(&addresses)).await {
            Ok(result) => result?,
            Err(_elapsed) => return Err(Failure::Timeout(Stage::Connect)),
        };
        // Requests are small and answered one by one: waiting for more to send only delays them.
        tcp.set_nodelay(true).map_err(|error| not_connected(addresses.first(), &error))?;
        let dialled = tcp.peer_addr().map_err(|error| not_connected(addresses.first(), &error))?;
        if !target.is_https() {
            return Ok(Link { dialled, stream: Stream::Plain(tcp) });
        }

        let host = target.host().to_owned();
        let no_tls = |reason: String| Failure::Tls { host: host.clone(), reason };
        let name = ServerName::try_from(host.clone()).map_err(|error| no_tls(error.to_string()))?;
        match timeout(self.tls_timeout, self.tls.connect(name, tcp)).await {
            Ok(Ok(stream)) => Ok(Link { dialled, stream: Stream::Tls(Box::new(stream)) }),
            Ok(Err(error)) => Err(no_tls(error.to_string())),
            Err(_elapsed) => Err(Failure::Timeout(Stage::Tls)),
        }
    }
}

/// An address that does not answer gets this much time before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// More addresses than this are not tried for one connection.
const MAX_ADDRESSES: usize = 16;

/// Connects to the first of these addresses that answers.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Failure> {
    let mut waiting = addresses.iter().take(MAX_ADDRESSES);
    let mut dialling = FuturesUnordered::new();
    let mut failure = None;
    loop {
        if let Some(address) = waiting.next() {
            dialling.push(async move { TcpStream::connect(address).await.map_err(|error| (address, error)) });
        }
        let has_more = waiting.len() > 0;
        tokio::select! {
            result = dialling.next() => match result {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err((address, error))) => failure = Some(not_connected(Some(address), &error)),
                None => {
                    let none = || not_connected(None, &io::Error::from(io::ErrorKind::AddrNotAvailable));
                    return Err(failure.unwrap_or_else(none));
                }
            },
            () = sleep(HEAD_START), if has_more => {}
        }
    }
}

fn not_connected(address: Option<&SocketAddr>, error: &io::Error) -> Failure {
    Failure::Connect {
        address: address.map_or_else(|| "any address".to_owned(), SocketAddr::to_string),
        reason: error.to_string(),
    }
}

/// A connection to a receiver.
pub(super) struct Link {
    dialled: SocketAddr,
    stream: Stream,
}

enum Stream {
    Plain(TcpStream),
    /// Many times larger than the other one.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(Dialled(self.dialled));
        match &self.stream {
            Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => connected.negotiated_h2(),
            Stream::Plain(_) | Stream::Tls(_) => connected,
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
