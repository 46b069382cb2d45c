//! How fast a dispatcher delivers over HTTP what is in an outbox, to a sink in a thread of its own.
//!
//! ```text
//! dispatch sqlite:PATH|postgres://…|mysql://… [--messages 50000] [--endpoints 20] [--concurrency 256] [--database PID]
//! dispatch …                                  --rate 200 [--seconds 20]
//! ```
//!
//! Without `--rate` it fills the outbox (one by one from 32 tasks, in hundreds, in thousands), and then drains it. With
//! `--rate` it enqueues so many messages in a second while the dispatcher runs, and tells how long each took from its
//! commit to the sink: on a server through a store of its own, as another process would, so that it is the notification
//! that wakes the dispatcher.
//!
//! Prints lines of JSON. `--database` is the process whose children serve the database (`postmaster`), for the processor time that it takes.

mod dispatch {
    pub mod clock;
    pub mod sink;
}

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::send::{Dispatcher, Guard, HttpTransport, KeyFuture, KeySource, Policy};
use countersign::signature::{Keyring, Scheme};
use countersign::store::{Endpoint, Enqueue, Message, MySqlStore, OutboxStore, PostgresStore, SqliteStore};
use countersign::{EventId, Name};
use dispatch::clock::{Clock, resident};
use dispatch::sink::Sink;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let asked = Asked::read(std::env::args().skip(1))?;
    match asked.url.split_once(':') {
        Some(("sqlite", path)) => {
            let store = SqliteStore::open(path).await?;
            measure(&asked, store.clone(), store).await
        }
        Some(("mysql", _)) => {
            measure(&asked, MySqlStore::connect(&asked.url).await?, MySqlStore::connect(&asked.url).await?).await
        }
        _ => {
            let store = PostgresStore::connect(&asked.url).await?;
            measure(&asked, store, PostgresStore::connect(&asked.url).await?).await
        }
    }
}

/// What the command line asks for.
struct Asked {
    url: String,
    messages: usize,
    endpoints: usize,
    concurrency: u32,
    database: Option<u32>,
    rate: Option<u32>,
    seconds: u32,
}

impl Asked {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let url = arguments.next().ok_or("a store's URL")?;
        let mut asked =
            Self { url, messages: 50_000, endpoints: 20, concurrency: 256, database: None, rate: None, seconds: 20 };
        while let Some(name) = arguments.next() {
            let value: u32 = arguments.next().ok_or_else(|| format!("a number after {name}"))?.parse()?;
            match &*name {
                "--messages" => asked.messages = usize::try_from(value)?,
                "--endpoints" => asked.endpoints = usize::try_from(value)?.max(1),
                "--concurrency" => asked.concurrency = value,
                "--database" => asked.database = Some(value),
                "--rate" => asked.rate = Some(value.max(1)),
                "--seconds" => asked.seconds = value,
                _ => return Err(format!("nothing is called {name}").into()),
            }
        }
        Ok(asked)
    }
}

async fn measure<S: OutboxStore>(asked: &Asked, store: S, producer: S) -> Result<(), Failed> {
    let producer: Arc<dyn OutboxStore> = Arc::new(producer);
    let count = asked.rate.map_or(asked.messages, |rate| usize::try_from(rate * asked.seconds).unwrap_or_default());
    let sink = Sink::start(count)?;
    for number in 0..asked.endpoints {
        let mut endpoint = Endpoint::new(endpoint(number)?, format!("http://{}/{number}", sink.address));
        endpoint.secrets = vec!["env:NONE".to_owned()];
        producer.put_endpoint(endpoint).await?;
    }
    let transport = HttpTransport::builder(Guard::new(Policy::new().allow_http().with_exception("127.0.0.1".parse()?)));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dispatcher =
        Dispatcher::builder(store, transport.build()?).concurrency(asked.concurrency).keys(OneSecret).build()?;
    match asked.rate {
        Some(rate) => deliver_at(rate, count, asked, dispatcher, &producer, &sink).await,
        None => {
            fill(asked, &producer).await?;
            drain(asked, count, dispatcher, &sink).await
        }
    }
}

/// A third of the messages each: one by one, in hundreds, in thousands.
async fn fill(asked: &Asked, producer: &Arc<dyn OutboxStore>) -> Result<(), Failed> {
    const TASKS: usize = 32;
    let third = asked.messages / 3;
    let endpoints = asked.endpoints;
    let clock = Clock::start(asked.database);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let producer = Arc::clone(producer);
        tasks.spawn(async move {
            for number in (task..third).step_by(TASKS) {
                producer.enqueue(vec![new(number, endpoints)?]).await?;
            }
            Ok::<_, Failed>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    clock.report("enqueued one by one from 32 tasks", third);
    for (size, range) in [(100, third..2 * third), (1_000, 2 * third..asked.messages)] {
        let clock = Clock::start(asked.database);
        let numbers: Vec<usize> = range.collect();
        for some in numbers.chunks(size) {
            let batch = some.iter().map(|number| new(*number, endpoints)).collect::<Result<Vec<_>, _>>()?;
            producer.enqueue(batch).await?;
        }
        clock.report(&format!("enqueued in calls of {size}"), numbers.len());
    }
    Ok(())
}

async fn drain(asked: &Asked, count: usize, dispatcher: Dispatcher, sink: &Sink) -> Result<(), Failed> {
    let tally = dispatcher.tally();
    let (stop, stopped) = oneshot::channel::<()>();
    let before = sink.processor_time();
    let clock = Clock::start(asked.database);
    let running = tokio::spawn(dispatcher.run(async { drop(stopped.await) }));
    let mut most = 0;
    while tally.now().delivered < u64::try_from(count)? {
        tokio::time::sleep(Duration::from_millis(5)).await;
        most = most.max(resident());
    }
    let sink_time = sink.processor_time().saturating_sub(before);
    clock.report_beside("delivered and settled", count, sink_time);
    let line = json!({
        "bench": "dispatch", "what": "the drain", "connections": sink.connections(), "mebibytes": most / 1024,
        "tally": format!("{:?}", tally.now()),
    });
    println!("{line}");
    let _ = stop.send(());
    running.await?;
    Ok(())
}

async fn deliver_at(
    rate: u32,
    count: usize,
    asked: &Asked,
    dispatcher: Dispatcher,
    producer: &Arc<dyn OutboxStore>,
    sink: &Sink,
) -> Result<(), Failed> {
    let tally = dispatcher.tally();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(dispatcher.run(async { drop(stopped.await) }));
    // Connections and plans are made, and whoever listens does.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let clock = Clock::start(asked.database);
    let began = Instant::now();
    let mut enqueueing = JoinSet::new();
    let mut committed = vec![None; count];
    for number in 0..count {
        let due = began + Duration::from_secs(1) * u32::try_from(number)? / rate;
        tokio::time::sleep_until(due.into()).await;
        let (producer, endpoints) = (Arc::clone(producer), asked.endpoints);
        enqueueing.spawn(async move {
            producer.enqueue(vec![new(number, endpoints)?]).await?;
            Ok::<_, Failed>((number, Instant::now()))
        });
        while let Some(done) = enqueueing.try_join_next() {
            let (number, at) = done??;
            committed[number] = Some(at);
        }
    }
    while let Some(done) = enqueueing.join_next().await {
        let (number, at) = done??;
        committed[number] = Some(at);
    }
    while tally.now().delivered < u64::try_from(count)? {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clock.report(&format!("enqueued at {rate}/s and delivered"), count);
    // The first second is for those who have to warm up.
    let first = usize::try_from(rate)?.min(count / 2);
    let mut took: Vec<Duration> = (first..count)
        .filter_map(|number| Some(sink.arrival(number)?.saturating_duration_since(committed[number]?)))
        .collect();
    took.sort_unstable();
    let at = |part: usize| {
        let took = took.get((took.len() * part / 1_000).min(took.len() - 1)).copied().unwrap_or_default();
        (took.as_secs_f64() * 1e4).round() / 10.0
    };
    let line = json!({
        "bench": "dispatch", "what": format!("from commit to arrival at {rate}/s"), "of": took.len(),
        "millis": { "p50": at(500), "p90": at(900), "p99": at(990), "p99.9": at(999) }, "mebibytes": resident() / 1024,
    });
    println!("{line}");
    let _ = stop.send(());
    running.await?;
    Ok(())
}

struct OneSecret;

impl KeySource for OneSecret {
    fn keyring<'a>(&'a self, _: &'a Endpoint, scheme: &'a Scheme) -> KeyFuture<'a> {
        let secret = scheme.parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").map(Keyring::new);
        Box::pin(async { secret.map_err(|error| countersign::send::KeyError::Other(error.to_string())) })
    }
}

fn endpoint(number: usize) -> Result<Name, Failed> {
    Ok(Name::new(&format!("endpoint-{number}"))?)
}

fn new(number: usize, endpoints: usize) -> Result<Enqueue, Failed> {
    let id = EventId::new(&format!("msg_{number:012}"))?;
    let message = Message::new(id, Name::new("order.paid")?, vec![b'x'; 1_024]);
    Ok(Enqueue::new(endpoint(number % endpoints)?, message))
}
