//! Who is sent to: takes every request, and notes when it came. In a thread of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::clock;
use crate::Failed;

pub struct Sink {
    pub address: SocketAddr,
    thread: u32,
    seen: Arc<Seen>,
}

struct Seen {
    began: Instant,
    /// By number: nanoseconds since it began, 0 for one that has not come.
    arrivals: Vec<AtomicU64>,
    connections: AtomicU32,
}

impl Sink {
    /// Of messages with these numbers.
    pub fn start(messages: usize) -> Result<Self, Failed> {
        let arrivals = (0..messages).map(|_| AtomicU64::new(0)).collect();
        let seen = Arc::new(Seen { began: Instant::now(), arrivals, connections: AtomicU32::new(0) });
        let (tell, told) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let taken = Arc::clone(&seen);
        std::thread::Builder::new().name("sink".into()).spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
                let address = listener.local_addr().expect("an address");
                // Linux names the thread that asks.
                let thread = std::fs::read_link("/proc/thread-self").ok();
                let thread = thread.and_then(|path| path.file_name()?.to_str()?.parse().ok()).unwrap_or_default();
                tell.send((address, thread)).expect("who started it waits");
                while let Ok((stream, _)) = listener.accept().await {
                    taken.connections.fetch_add(1, Ordering::Relaxed);
                    stream.set_nodelay(true).expect("a socket");
                    let seen = Arc::clone(&taken);
                    let service = service_fn(move |request| answer(Arc::clone(&seen), request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
                }
            });
        })?;
        let (address, thread) = told.recv()?;
        Ok(Self { address, thread, seen })
    }

    pub fn arrival(&self, number: usize) -> Option<Instant> {
        let after = self.seen.arrivals.get(number)?.load(Ordering::Relaxed);
        (after > 0).then(|| self.seen.began + Duration::from_nanos(after))
    }

    pub fn connections(&self) -> u32 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    pub fn processor_time(&self) -> Duration {
        clock::of_thread(self.thread)
    }
}

async fn answer(
    seen: Arc<Seen>,
    mut request: Request<Incoming>,
) -> Result<Response<Empty<bytes::Bytes>>, hyper::Error> {
    let after = u64::try_from(seen.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let id = request.headers().get("webhook-id").and_then(|id| id.to_str().ok()?.strip_prefix("msg_")?.parse().ok());
    if let Some(arrival) = id.and_then(|id: usize| seen.arrivals.get(id)) {
        // The first one counts.
        let _ = arrival.compare_exchange(0, after, Ordering::Relaxed, Ordering::Relaxed);
    }
    while let Some(frame) = request.body_mut().frame().await {
        frame?;
    }
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
