//! A sender without a preset: its scheme, written as options.
//!
//! The sender of this example signs `TIMESTAMP.BODY` with HMAC-SHA256, in hex after `sha256=`, and has the id of the
//! event in its JSON body.
//!
//! ```text
//! ACME_SECRET=… cargo run --example custom_scheme --features axum
//! ```
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, OtherBodyAnswer, ReceiveLayer, VerifyLayer};
use countersign::signature::{Keyring, ReplayWindow, Scheme, Verifier};
use countersign::store::SqliteStore;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

async fn handle(delivery: Delivery) -> String {
    // Signed, and the same for every delivery of the event: a name to keep it by.
    let id = delivery.event_id().map_or("no id", |id| id.as_str());
    println!("event {id}, its id is {:?}", delivery.id_origin());
    format!("handled {id}")
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::hmac([
        ("header", "x-acme-signature"),
        ("prefix", "sha256="),
        ("signed", "{timestamp}.{body}"),
        ("timestamp", "x-acme-timestamp"),
        ("id", "body:event.id"),
    ])?;
    let secret = std::env::var("ACME_SECRET").map_err(|_| "set ACME_SECRET to the secret of the endpoint")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("ACME_SECRET: {error}"))?;
    let inbox = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    let verifier = Verifier::new(scheme, Keyring::new(secret))?
        .with_window(ReplayWindow::new(Duration::from_secs(120), Duration::from_secs(10)));
    let store = SqliteStore::open(inbox).await?;
    let verify = VerifyLayer::builder("acme", verifier).body_limit(64 * 1024).build()?;
    // This sender puts the number of the delivery into the body, so two deliveries of an event differ.
    let dedup = DedupLayer::builder(store.clone()).other_body(OtherBodyAnswer::Replay).build()?;
    let receive = ReceiveLayer::new(verify, dedup)?;
    let app = Router::new().route("/acme", post(handle)).layer(receive.clone());

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
