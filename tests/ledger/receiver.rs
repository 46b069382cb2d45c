//! A receiver that books each event in the transaction that ends it: one of the processes of the ledger test, which kills
//! it, stops it, and takes its database away.
//!
//! `LEDGER` is the URL of the database, `LISTEN` says where, and `MODE` is `inline` or `deferred`.

mod books;

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use countersign::receive::{
    Backoff, DedupLayer, Outcome, Processor, ReceiveLayer, Reservation, ResponseBody, VerifyLayer,
};
use countersign::signature::{Keyring, Scheme, Verifier};
use http::Response;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::books::{Books, Plan};

#[tokio::main]
async fn main() {
    let value = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (ledger, listen) = (value("LEDGER"), value("LISTEN"));
    let store = books::store(&ledger).await;
    let books = Books::open(&ledger, 8).await;
    let handlers = Router::new().route("/", post(async move |run: Reservation| book(&books, &run).await));

    let scheme = Scheme::standard();
    let secret = scheme.parse_secret(&value("WEBHOOK_SECRET")).expect("a secret");
    let verifier = Verifier::new(scheme, Keyring::new(secret)).expect("a verifier");
    let verify = VerifyLayer::new("ledger", verifier).expect("a layer");
    let (lease, handler_timeout, attempts) = (Duration::from_secs(1), Duration::from_secs(10), 1_000);
    let mut dedup =
        DedupLayer::builder(store.clone()).lease(lease).handler_timeout(handler_timeout).max_attempts(attempts);
    let deferred = value("MODE") == "deferred";
    if deferred {
        dedup = dedup.deferred();
    }
    let receive = ReceiveLayer::new(verify, dedup.build().expect("a layer")).expect("a receiver");
    if deferred {
        let processor = Processor::builder(store, handlers.clone())
            .arrivals(receive.arrivals())
            .backoff(Backoff::new(Duration::from_millis(20), Duration::from_millis(200)))
            .poll(Duration::from_millis(100))
            .lease(lease)
            .handler_timeout(handler_timeout)
            .max_attempts(attempts)
            .build()
            .expect("a processor");
        tokio::spawn(processor.run(std::future::pending()));
    }

    let listener = TcpListener::bind(listen).await.expect("a socket");
    println!("listening on http://{}", listener.local_addr().expect("an address"));
    axum::serve(listener, handlers.layer(receive)).await.expect("a server");
}

/// Books; now and then takes its time before or within the transaction, rolls back and says that all is well, or fails
/// after the commit.
async fn book(books: &Books, run: &Reservation) -> Result<Response<ResponseBody>, Outcome> {
    let chance = std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.subsec_micros());
    let mut plan = Plan::at_once(!chance.is_multiple_of(13));
    let slow = match chance % 8 {
        0 => Some(&mut plan.begin),
        1 => Some(&mut plan.complete),
        2 => Some(&mut plan.end),
        _ => None,
    };
    if run.key().as_str().starts_with("slow_") && run.attempt() == 1 {
        // The test stops this process meanwhile. In a file a transaction would keep everybody else from taking over.
        let slow = if matches!(books, Books::Sqlite(_)) { &mut plan.begin } else { &mut plan.complete };
        wait(slow, Duration::from_millis(600));
    } else if let Some(slow) = slow {
        wait(slow, Duration::from_millis(u64::from(chance / 8 % 60)));
    }
    let response = books.book(run, Response::new("booked".to_owned()), &plan).await?;
    if chance.is_multiple_of(11) {
        return Err(Outcome::transient("it fails all the same"));
    }
    Ok(response)
}

fn wait(step: &mut CancellationToken, time: Duration) {
    *step = CancellationToken::new();
    let step = step.clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        step.cancel();
    });
}
