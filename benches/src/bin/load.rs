//! Sends signed requests as fast as they are answered, and prints what came back as one line of JSON.
//!
//! Every request has an id of its own, and all are signed before the clock starts: what is measured is the receiver.
//! One thread, so that a machine of two cores has one left for the receiver.
//!
//! ```text
//! load URL [--seconds 10] [--connections 64] [--body 1024] [--prepared 200000] [--secret whsec_…] [--cycle]
//! ```
//!
//! `--prepared` is how many requests are signed. When they are used up, the run ends, unless `--cycle` sends them again:
//! then what is measured is mostly the answer to repeats.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use standardwebhooks::Webhook;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let settings = Settings::parse(std::env::args().skip(1))?;
    let prepared = prepare(&settings)?;
    let run = Rc::new(Run::new(settings, prepared));

    let began = Instant::now();
    let tasks = LocalSet::new();
    for _ in 0..run.settings.connections {
        tasks.spawn_local(Rc::clone(&run).one_connection(began));
    }
    tasks.await;
    println!("{}", run.report(began.elapsed()));
    Ok(())
}

struct Settings {
    url: Uri,
    seconds: u64,
    connections: usize,
    body: usize,
    prepared: usize,
    secret: String,
    cycle: bool,
}

impl Settings {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut settings = Self {
            url: words.next().ok_or("usage: load URL [--seconds N] [--connections N] …")?.parse()?,
            seconds: 10,
            connections: 64,
            body: 1024,
            prepared: 200_000,
            secret: "whsec_YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgbm8gbW8=".to_owned(),
            cycle: false,
        };
        while let Some(flag) = words.next() {
            if flag == "--cycle" {
                settings.cycle = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--seconds" => settings.seconds = value.parse()?,
                "--connections" => settings.connections = value.parse()?,
                "--body" => settings.body = value.parse()?,
                "--prepared" => settings.prepared = value.parse()?,
                "--secret" => settings.secret = value,
                _ => return Err(format!("there is no flag {flag}").into()),
            }
        }
        if settings.url.authority().is_none() {
            return Err("the URL needs a host and a port".into());
        }
        Ok(settings)
    }
}

/// What differs between two requests.
struct Prepared {
    id: HeaderValue,
    signature: HeaderValue,
}

struct Batch {
    timestamp: HeaderValue,
    body: Bytes,
    requests: Vec<Prepared>,
}

fn prepare(settings: &Settings) -> Result<Batch, Failure> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seconds = i64::try_from(now.as_secs())?;
    let body: Vec<u8> = b"{\"type\":\"order.paid\"}".iter().copied().cycle().take(settings.body).collect();
    let webhook = Webhook::new(&settings.secret)?;
    let requests = (0..settings.prepared)
        .map(|number| {
            // The moment keeps the ids of one run apart from those of the run before.
            let id = format!("msg_{:x}_{number}", now.as_nanos());
            let signature = webhook.sign(&id, seconds, &body)?;
            Ok(Prepared { id: HeaderValue::try_from(id)?, signature: HeaderValue::try_from(signature)? })
        })
        .collect::<Result<_, Failure>>()?;
    Ok(Batch { timestamp: HeaderValue::from(seconds), body: body.into(), requests })
}

struct Run {
    settings: Settings,
    batch: Batch,
    next: Cell<usize>,
    statuses: RefCell<BTreeMap<u16, u64>>,
    micros: RefCell<Vec<u64>>,
    errors: RefCell<BTreeMap<String, u64>>,
}

impl Run {
    fn new(settings: Settings, batch: Batch) -> Self {
        let micros = RefCell::new(Vec::with_capacity(settings.prepared));
        let (next, statuses, errors) = Default::default();
        Self { settings, batch, next, statuses, micros, errors }
    }

    /// Sends one request after another until the time is up, and connects again when the peer hangs up.
    async fn one_connection(self: Rc<Self>, began: Instant) {
        let deadline = began + Duration::from_secs(self.settings.seconds);
        let mut connection = None;
        while Instant::now() < deadline {
            let Some(prepared) = self.take() else { break };
            let sent = Instant::now();
            match self.send(&mut connection, prepared).await {
                Ok(status) => {
                    *self.statuses.borrow_mut().entry(status).or_default() += 1;
                    self.micros.borrow_mut().push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
                }
                Err(error) => {
                    connection = None;
                    *self.errors.borrow_mut().entry(error.to_string()).or_default() += 1;
                    // A receiver that is down must not turn this into a loop that never yields.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn take(&self) -> Option<&Prepared> {
        let number = self.next.get();
        self.next.set(number + 1);
        let requests = &self.batch.requests;
        if self.settings.cycle { requests.get(number % requests.len().max(1)) } else { requests.get(number) }
    }

    async fn send(
        &self,
        connection: &mut Option<SendRequest<Full<Bytes>>>,
        prepared: &Prepared,
    ) -> Result<u16, Failure> {
        let sender = match connection {
            Some(sender) => sender,
            None => connection.insert(self.connect().await?),
        };
        sender.ready().await?;
        let response = sender.send_request(self.request(prepared)?).await?;
        let status = response.status().as_u16();
        response.into_body().collect().await?;
        Ok(status)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.authority()).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its error reaches the sender of the request too, which counts it.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }

    fn request(&self, prepared: &Prepared) -> Result<Request<Full<Bytes>>, http::Error> {
        Request::post(self.settings.url.path_and_query().map_or("/", |path| path.as_str()))
            .header("host", self.authority())
            .header("content-type", "application/json")
            .header("webhook-id", &prepared.id)
            .header("webhook-timestamp", &self.batch.timestamp)
            .header("webhook-signature", &prepared.signature)
            .body(Full::new(self.batch.body.clone()))
    }

    fn authority(&self) -> &str {
        self.settings.url.authority().map_or("", |authority| authority.as_str())
    }

    fn report(&self, elapsed: Duration) -> serde_json::Value {
        let mut micros = self.micros.borrow_mut();
        micros.sort_unstable();
        let at = |percent: usize| micros.get(micros.len() * percent / 100).or(micros.last()).copied();
        json!({
            "url": self.settings.url.to_string(),
            "connections": self.settings.connections,
            "body_bytes": self.settings.body,
            "seconds": elapsed.as_secs_f64(),
            "requests": micros.len(),
            "per_second": (micros.len() as f64 / elapsed.as_secs_f64()).round(),
            "statuses": *self.statuses.borrow(),
            "errors": *self.errors.borrow(),
            "latency_us": { "p50": at(50), "p90": at(90), "p99": at(99), "max": micros.last() },
            "used_up": !self.settings.cycle && self.next.get() > self.batch.requests.len(),
        })
    }
}
