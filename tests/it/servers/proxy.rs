//! A TCP proxy before a database: it adds latency, and cuts connections at the worst moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does to all its connections.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Before each answer, in milliseconds.
    pub(crate) latency: AtomicU64,
    /// Let the next commit through, and cut its connection in place of the answer.
    pub(crate) lose_answer_to_commit: AtomicBool,
    /// How many answers were lost.
    pub(crate) lost: AtomicU64,
}

/// Where it listens.
pub(crate) async fn start(server: &str) -> (SocketAddr, Arc<Faults>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let faults = Arc::new(Faults::default());
    let (server, shared) = (server.to_owned(), Arc::clone(&faults));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&server).await else { continue };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let cut = Arc::new(AtomicBool::new(false));
            tokio::spawn(forward(from_client, to_server, Arc::clone(&shared), Arc::clone(&cut)));
            tokio::spawn(back(from_server, to_client, Arc::clone(&shared), cut));
        }
    });
    (address, faults)
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, cut: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let sent = &buffer[..length];
        // Not the `READ COMMITTED` of a transaction that begins.
        let commits = sent.ends_with(b"COMMIT") || sent.windows(7).any(|window| window == b"COMMIT\0");
        if commits && faults.lose_answer_to_commit.swap(false, Ordering::SeqCst) {
            cut.store(true, Ordering::SeqCst);
        }
        if to.write_all(sent).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, cut: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if cut.load(Ordering::SeqCst) {
            // The server has answered, so that it has committed.
            faults.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let latency = faults.latency.load(Ordering::SeqCst);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
