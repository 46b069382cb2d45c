//! A client that writes HTTP/1.1 by hand, for what no proper client does, and an ear on the log.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

/// A connection on which a test writes what it likes.
pub(crate) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_write(bytes).await.expect("the server reads");
    }

    pub(crate) async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        within(self.stream.write_all(bytes.as_ref())).await
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub(crate) async fn end(&mut self) {
        self.stream.shutdown().await.expect("the socket is open");
    }

    /// Reads one head, `HTTP/1.1 …` to the empty line. `None` if the connection ends before there is one.
    pub(crate) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                return Some(String::from_utf8(head).expect("text"));
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    /// Reads one head and the body that it announces with `Content-Length`.
    pub(crate) async fn answer(&mut self) -> Option<(String, Vec<u8>)> {
        let head = self.head().await?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        let length: usize = length.parse().expect("a length");
        while self.read.len() < length {
            if !self.read_more().await {
                return None;
            }
        }
        let rest = self.read.split_off(length);
        Some((head, std::mem::replace(&mut self.read, rest)))
    }

    /// Everything that the server still says until it closes the connection.
    pub(crate) async fn rest(mut self) -> String {
        while self.read_more().await {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Whether there was more. A reset is an end like any other.
    async fn read_more(&mut self) -> bool {
        within(self.stream.read_buf(&mut self.read)).await.is_ok_and(|length| length > 0)
    }
}

/// No server that works needs longer.
async fn within<T>(io: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(Duration::from_secs(20), io).await.expect("the server is alive")
}

/// A head to `/` with these headers and those lines.
pub(crate) fn head(headers: &HeaderMap, lines: &[&str]) -> Vec<u8> {
    let mut head = b"POST / HTTP/1.1\r\nhost: test\r\n".to_vec();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    for line in lines {
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// What this package says on this thread, from now to the end of the test.
pub(crate) struct Log {
    lines: Lines,
    _guard: DefaultGuard,
}

impl Log {
    pub(crate) fn listen() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_env_filter(EnvFilter::new("countersign=trace"))
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.0.lock().expect("no test panics in here")).into_owned()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics in here").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
