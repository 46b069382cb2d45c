//! Slow work: events are stored and answered 202 at once, and run behind the request, with retries.
//!
//! ```text
//! WEBHOOK_SECRET=whsec_… cargo run --example deferred --features axum
//! ```
//!
//! Senders give up after a few seconds, and some give up for good. Here they wait for one commit. Events of one order run
//! one by one. More processes like this one, on the same file, share the work.
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{
    Backoff, DedupLayer, Event, OrderBy, Outcome, Processor, ReceiveLayer, Reservation, VerifyLayer,
};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::SqliteStore;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What the sender sends.
#[derive(Deserialize)]
struct Shipment {
    order: String,
    parcels: u32,
}

/// Takes its time, and fails at first: the event comes back by itself.
async fn ship(run: Reservation, event: Event<Shipment>) -> Result<StatusCode, Outcome> {
    let Shipment { order, parcels } = event.payload.map_err(|error| Outcome::permanent(error.to_string()))?;
    if parcels > 1 && run.attempt() == 1 {
        return Err(Outcome::transient("the carrier did not answer"));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("order {order} is shipped in {parcels} parcels (event {}, run {})", run.key(), run.attempt());
    Ok(StatusCode::NO_CONTENT)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::standard();
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to the secret of the endpoint")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let inbox = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    let store = SqliteStore::open(inbox).await?;
    let verify = VerifyLayer::new("shop", Verifier::new(scheme, Keyring::new(secret))?)?;
    let dedup = DedupLayer::builder(store.clone()).deferred().order_by(OrderBy::BodyField("order".into())).build()?;
    let receive = ReceiveLayer::new(verify, dedup)?;

    // The same routes twice: behind the layer, which says where events are received, and in the processor, which runs
    // them.
    let handlers = Router::new().route("/webhooks", post(ship));
    let processor = Processor::builder(store.clone(), handlers.clone())
        .arrivals(receive.arrivals())
        .concurrency(8)
        .backoff(Backoff::new(Duration::from_millis(500), Duration::from_secs(3_600)))
        .grace(Duration::from_secs(10))
        .build()?;
    let app = handlers.layer(receive.clone());

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let processing = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;

    // Nothing new comes in. What runs has its grace; what does not end is given back to the store.
    stop.cancel();
    processing.await?;
    let left = receive.tasks().drain(Duration::from_secs(5)).await;
    store.close().await?;
    println!("stopped, {left} handlers left");
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
