//! How fast messages go into an outbox and out of it, without sending them.
//!
//!   outbox sqlite:PATH|postgres://…|mysql://… [MESSAGES]
//!
//! Prints rates: enqueued one by one by 32 tasks, enqueued in calls of 100, and drained: claimed 100 at a time and settled,
//! each on its own, by tasks beside. The durations of the claims come last.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::store::{
    AttemptReport, ClaimMessages, Endpoint, Enqueue, Fate, Message, MySqlStore, OutboxStore, PostgresStore, Settled,
    Settlement, SqliteStore,
};
use countersign::{EventId, Name};

const TASKS: usize = 32;
const ENDPOINTS: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("a store's URL")?;
    let messages: usize = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let store: Arc<dyn OutboxStore> = match url.split_once(':') {
        Some(("sqlite", path)) => Arc::new(SqliteStore::open(path).await?),
        Some(("mysql", _)) => Arc::new(MySqlStore::connect(&url).await?),
        _ => Arc::new(PostgresStore::connect(&url).await?),
    };
    for number in 0..ENDPOINTS {
        store.put_endpoint(Endpoint::new(endpoint(number)?, "https://example.com")).await?;
    }

    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for number in 0..messages / TASKS {
                store.enqueue(vec![new(task * messages + number).expect("a message")]).await.expect("an answer");
            }
        });
    }
    tasks.join_all().await;
    report("enqueued one by one", messages / TASKS * TASKS, begin);

    let begin = Instant::now();
    for batch in 0..messages / 100 {
        let batch = (0..100)
            .map(|number| new(TASKS * messages + 100 * batch + number))
            .collect::<Result<Vec<_>, Box<dyn std::error::Error + Send + Sync>>>()
            .map_err(|error| error.to_string())?;
        store.enqueue(batch).await?;
    }
    report("enqueued in hundreds", messages / 100 * 100, begin);

    let begin = Instant::now();
    let (mut drained, mut claims) = (0, Vec::new());
    let slots = Arc::new(tokio::sync::Semaphore::new(256));
    loop {
        let free = Arc::clone(&slots).acquire_many_owned(100).await?;
        let asked = Instant::now();
        let claimed = store.claim_messages(ClaimMessages::new(100, Duration::from_secs(60))).await?.messages;
        claims.push(asked.elapsed());
        drop(free);
        if claimed.is_empty() {
            break;
        }
        drained += claimed.len();
        for claimed in claimed {
            let (store, slot) = (Arc::clone(&store), Arc::clone(&slots).acquire_owned().await?);
            tokio::spawn(async move {
                let settlement = Settlement::new(Fate::Delivered, AttemptReport::default());
                assert_eq!(store.settle(claimed.lease, settlement).await.expect("an answer"), Settled::Done);
                drop(slot);
            });
        }
    }
    let _ = slots.acquire_many(256).await?;
    report("claimed and settled", drained, begin);
    claims.sort_unstable();
    let at = |part: usize| claims.get(claims.len() * part / 100).copied().unwrap_or_default();
    println!("claims of 100: median {:.1?}, 99 % {:.1?}", at(50), at(99));
    Ok(())
}

fn report(what: &str, messages: usize, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what}: {messages} in {seconds:.2} s, {:.0}/s", messages as f64 / seconds);
}

fn endpoint(number: usize) -> Result<Name, Box<dyn Error>> {
    Ok(Name::new(&format!("endpoint-{number}"))?)
}

fn new(number: usize) -> Result<Enqueue, Box<dyn Error + Send + Sync>> {
    let id = EventId::new(&format!("msg_{number:012x}"))?;
    let message = Message::new(id, Name::new("order.paid")?, vec![b'x'; 1_024]);
    Ok(Enqueue::new(Name::new(&format!("endpoint-{}", number % ENDPOINTS))?, message))
}
