//! A receiver with axum: Standard Webhooks, one SQLite file, an orderly stop.
//!
//! ```text
//! WEBHOOK_SECRET=whsec_… cargo run --example axum_receiver --features axum
//! ```
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use countersign::receive::{DedupLayer, Event, Outcome, ReceiveLayer, Reservation, VerifyLayer};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::SqliteStore;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The event types that this handler knows.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Known {
    #[serde(rename = "order.paid")]
    OrderPaid { order: String },
    #[serde(rename = "order.deleted")]
    OrderDeleted,
    /// A type that came up after this was written.
    #[serde(other)]
    NotHandled,
}

type Handled = Result<(StatusCode, Json<serde_json::Value>), Outcome>;

/// Runs once for each event. Give `run.idempotency_key()` along to whatever must not happen twice even after a crash.
async fn handle(run: Reservation, event: Event<Known>) -> Handled {
    match event.payload {
        Ok(Known::OrderPaid { order }) => {
            println!("order {order} is paid (event {}, run {})", run.key(), run.attempt());
            Ok((StatusCode::OK, Json(serde_json::json!({ "order": order }))))
        }
        // No delivery will ever succeed: the event is set aside, and its sender learns why to stop.
        Ok(Known::OrderDeleted) => Err(Outcome::permanent("orders are never deleted here")),
        // The sender need not send it again.
        Ok(Known::NotHandled) => Ok((StatusCode::ACCEPTED, Json(serde_json::json!({ "ignored": true })))),
        // A known type of a shape that we cannot read: set aside until somebody has looked at it.
        Err(unreadable) => Err(Outcome::permanent(unreadable.to_string())),
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::standard();
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to the secret of the endpoint")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let inbox = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    let store = SqliteStore::open(inbox).await?;
    let verify = VerifyLayer::new("shop", Verifier::new(scheme, Keyring::new(secret))?)?;
    let receive = ReceiveLayer::new(verify, DedupLayer::new(store.clone()))?;
    let app = Router::new().route("/webhooks", post(handle)).layer(receive.clone());

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;

    // Handlers whose senders have hung up still run: their results are worth waiting for.
    let left = receive.tasks().drain(Duration::from_secs(30)).await;
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
