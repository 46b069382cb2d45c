//! A TCP proxy before a database: it adds latency, and cuts connections at the worst moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// What the proxy does to all its connections.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Before each answer, in milliseconds.
    pub(crate) latency: AtomicU64,
    /// Let the next commit through, and cut its connection in place of the answer.
    pub(crate) lose_answer_to_commit: AtomicBool,
    /// How many answers to commits were lost.
    pub(crate) lost: AtomicU64,
    planned: Mutex<Option<Cut>>,
    /// Nothing gets through.
    down: AtomicBool,
}

/// Whose message is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The client's: the server never sees it.
    Question,
    /// The server's: it has done what it was asked.
    Answer,
}

#[derive(Debug)]
struct Cut {
    side: Side,
    /// How many messages of that side are still to come, this one included.
    left: u32,
    /// Whether the server stays out of reach.
    lasting: bool,
}

impl Faults {
    /// Cuts the connection that brings the `message`-th message of a side from now on, counted from 1 over all
    /// connections; and all others with it, for good, where it is `lasting`.
    pub(crate) fn plan(&self, side: Side, message: u32, lasting: bool) {
        *self.planned.lock().expect("unpoisoned") = Some(Cut { side, left: message.max(1), lasting });
    }

    /// Lets everything through again. Whether the cut that was planned has come.
    pub(crate) fn heal(&self) -> bool {
        self.down.store(false, Ordering::SeqCst);
        self.planned.lock().expect("unpoisoned").take().is_none()
    }

    /// Whether a message of this side gets through.
    fn lets_pass(&self, side: Side) -> bool {
        let mut planned = self.planned.lock().expect("unpoisoned");
        if let Some(cut) = planned.as_mut().filter(|cut| cut.side == side) {
            cut.left -= 1;
            if cut.left == 0 {
                self.down.store(cut.lasting, Ordering::SeqCst);
                *planned = None;
                return false;
            }
        }
        !self.down.load(Ordering::SeqCst)
    }
}

/// Where it listens.
pub(crate) async fn start(server: &str) -> (SocketAddr, Arc<Faults>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let faults = Arc::new(Faults::default());
    let (server, shared) = (server.to_owned(), Arc::clone(&faults));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if shared.down.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = TcpStream::connect(&server).await else { continue };
            // Whoever ends takes the other direction along.
            let (ended, faults) = (CancellationToken::new(), Arc::clone(&shared));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let loses_answer = Arc::new(AtomicBool::new(false));
            let asks = forward(from_client, to_server, Arc::clone(&faults), Arc::clone(&loses_answer));
            let answers = back(from_server, to_client, faults, loses_answer);
            tokio::spawn(until_one_ends(asks, ended.clone()));
            tokio::spawn(until_one_ends(answers, ended));
        }
    });
    (address, faults)
}

async fn until_one_ends(direction: impl Future<Output = ()>, ended: CancellationToken) {
    ended.run_until_cancelled(direction).await;
    ended.cancel();
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, loses_answer: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1_024];
    let mut alone = None;
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let sent = &buffer[..length];
        alone = name_of_what_commits_alone(sent).or(alone);
        let holds = |text: &[u8]| sent.windows(text.len()).any(|window| window == text);
        // Not the `READ COMMITTED` of a transaction that begins.
        let commits =
            sent.ends_with(b"COMMIT") || holds(b"COMMIT\0") || alone.as_ref().is_some_and(|bound| holds(bound));
        if commits && faults.lose_answer_to_commit.swap(false, Ordering::SeqCst) {
            loses_answer.store(true, Ordering::SeqCst);
        }
        if !faults.lets_pass(Side::Question) || to.write_all(sent).await.is_err() {
            return;
        }
    }
}

/// How PostgreSQL's protocol names the statement that is its own transaction when it is run: after an empty portal. It is
/// told by its text when it is prepared, under its name.
fn name_of_what_commits_alone(sent: &[u8]) -> Option<Vec<u8>> {
    const BEGINNING: &[u8] = b"\0WITH clock AS";
    let text = sent.windows(BEGINNING.len()).position(|window| window == BEGINNING)?;
    // The driver's names begin like this. Before it stands a length, which may look like text.
    let name = sent[..text].windows(4).rposition(|window| window == b"sqlx")?;
    Some([b"\0", &sent[name..text], b"\0"].concat())
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, loses_answer: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if loses_answer.load(Ordering::SeqCst) {
            // The server has answered, so that it has committed.
            faults.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let latency = faults.latency.load(Ordering::SeqCst);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        if !faults.lets_pass(Side::Answer) || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
